"""The validate stage: the checks of the released counts of a level, from public data alone, as rows for the store.

A node appears once in a level where it does so in its branch, and children add up in every branch: then each child lies
in the branch that has its parent, and no parent is in two branches, which the total of the level would show.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from storage.counts.shard_files import is_shard, noisy_path, read_codebook
from storage.errors import ChecksFailed
from storage.ledger.accounts import Charge, as_charged
from storage.machine.home import shard_folder
from storage.releases.parts import Part
from storage.releases.register import Release
from storage.releases.shards import TRUNK, Shard
from storage.releases.terms import COUNTS_POSITIVE
from tasks.tree.axis import BoolArray, IntArray
from tasks.tree.frontier import CHUNK_CELLS, Frontier, cell_counts, chunks, expand, keep_positive, locate, taking
from tasks.tree.job import Job, stored_job
from tasks.tree.keys import all_differ, begins_run, order_of
from tasks.tree.order import Tree
from tasks.tree.views import Partition, leading_levels, sums_of_leaves
from tasks.work.stage import stage


def counts_whole_and_positive(nodes: Frontier) -> bool:
    """Return whether every count is an integer above zero; level 0 may hold a zero."""
    least = 0 if nodes.level == 0 else 1
    return nodes.counts.dtype == np.int64 and bool((nodes.counts >= least).all())


def counts_whole(nodes: Frontier) -> bool:
    """Return whether every count is an integer, below zero or above; level 0 may hold a zero."""
    return nodes.counts.dtype == np.int64 and bool(nodes.level == 0 or (nodes.counts != 0).all())


def areas_known_once(tree: Tree, nodes: Frontier) -> bool:
    """Return whether every area is in the codebook and no node appears twice."""
    sizes = tree.sizes(nodes.level)
    known = all(bool(((areas >= 0) & (areas < size)).all()) for areas, size in zip(nodes.areas, sizes, strict=True))
    return known and all_differ(nodes.areas, sizes)


def children_add_up(tree: Tree, parents: Frontier, nodes: Frontier) -> bool:
    """Return whether the children of every parent add up to it, and those that have none add up to 0.

    Counts above zero never do that, so that no child is without its parent.
    """
    above = tree.areas_above(nodes.level, nodes.areas)
    starts = np.flatnonzero(begins_run(above))
    sums = np.add.reduceat(nodes.counts, starts) if len(starts) else nodes.counts
    starts, sums = starts[sums != 0], sums[sums != 0]
    in_order = len(starts) == len(parents) and all(
        bool((areas[starts] == of_parents).all()) for areas, of_parents in zip(above, parents.areas, strict=True)
    )
    if in_order:  # of the tree, as they are unless something is wrong
        return bool((sums == parents.counts).all())
    sizes = tree.sizes(parents.level)
    row = locate(above, parents.areas, sizes)
    sums, is_alone = np.zeros(len(parents), dtype=np.int64), row < 0
    np.add.at(sums, row[~is_alone], nodes.counts[~is_alone])
    return bool((sums == parents.counts).all()) and not _sums_apart(above, nodes.counts, sizes, is_alone).any()


def _sums_apart(above: Sequence[IntArray], counts: IntArray, sizes: Sequence[int], which: BoolArray) -> IntArray:
    """Return what some nodes add up to in each of the nodes above that they have, int64, records."""
    areas, counts = [of[which] for of in above], counts[which]
    order = order_of(areas, sizes)
    starts = np.flatnonzero(begins_run([of[order] for of in areas]))
    return np.add.reduceat(counts[order], starts) if len(starts) else counts


def exact_as_sealed(tree: Tree, parents: Frontier, exact: Iterator[IntArray], nodes: Frontier) -> bool:
    """Return whether the nodes of a level that is published exactly are the cells with a count, each with just that.

    Args:
        parents: the released nodes of the level above.
        exact: the sealed counts of all their cells, int64, records, in the order of the tree, in whatever parts.
    """
    take, before = taking(exact), 0
    for part in chunks(cell_counts(tree, parents), CHUNK_CELLS):
        cells = expand(tree, parents[part])
        sealed = keep_positive(cells, take(len(cells)))
        released = nodes[before : before + len(sealed)]
        columns = zip((*sealed.areas, sealed.counts), (*released.areas, released.counts), strict=True)
        if not all(np.array_equal(one, other) for one, other in columns):
            return False
        before += len(sealed)
    return before == len(nodes)


CheckRow = tuple[str, int, bool]


@stage("validate level {level}")
def validate_level(release_id: str, level: int) -> list[CheckRow]:
    """Return (check, level, passed) for every check of one level; one that its mechanism waives is left out.

    Only levels that are published exactly have the check that counts equal the sealed ones.

    Raises:
        ChecksFailed: a check failed; it has the results of all of them.
    """
    return _passed(release_id, _checked(stored_job(release_id), level), f"level {level}")


@stage("validate views")
def validate_views(release_id: str) -> list[CheckRow]:
    """Return the checks of all views that are no level, and raise, as `validate_level` does."""
    job = stored_job(release_id)
    views = {terms.level: job.partition(terms.level) for terms in job.record.release.views}
    sums = None if job.record.shards["calibrated"] else _sums_of_leaves(job, views)
    checks = list[CheckRow]()
    for number, partition in views.items():
        job.check_going_on()
        checks += _checked_view(job, number, partition, sums)
    return _passed(release_id, checks, "a view")


def _passed(release_id: str, checks: list[CheckRow], of: str) -> list[CheckRow]:
    """Return checks, or raise if one of them failed."""
    broken = [f"{check} at level {level}" for check, level, passed in checks if not passed]
    if broken:
        failure = ChecksFailed(
            f"{of} is not published: {', '.join(broken)} failed.", hint=f"`trellis show {release_id}` lists all checks."
        )
        failure.checks = tuple(checks)
        raise failure
    return checks


def _sums_of_leaves(job: Job, views: Mapping[int, Partition]) -> dict[int, IntArray]:
    """Return what the released leaves add up to in the cells of some views, each from the view with the fewest cells that refines it."""
    leaves, sums = job.nodes(job.record.released[job.record.finest, TRUNK]), dict[int, IntArray]()
    for number, partition in sorted(views.items(), key=lambda of: -len(of[1])):
        finer = [of for of in sums if views[of].view.refines(partition.view)]
        least = min(finer, key=lambda of: len(sums[of]), default=None)
        if least is None or len(sums[least]) > len(leaves):
            sums[number] = sums_of_leaves(partition, leaves)
        else:
            sums[number] = np.zeros(len(partition), dtype=np.int64)
            np.add.at(sums[number], partition.places(views[least].cells()), sums[least])
    return sums


def _checked_view(job: Job, number: int, partition: Partition, sums: Mapping[int, IntArray] | None) -> list[CheckRow]:
    """Check a view: its counts are whole, not negative unless that is waived, and the sums of the released leaves; or, where these are only
    calibrated to it and `sums` is None, add up with the other totals of its axis.
    """
    record, terms = job.record, job.record.release.parts[number]
    counts = job.counts(number)
    may_be_negative = COUNTS_POSITIVE in record.release.terms.waived
    results = {
        _check_of_counts(record.release).__name__: counts.dtype == np.int64
        and (may_be_negative or bool((counts >= 0).all()))
    }
    if sums is None:
        results["adds_up_along_axis"] = _adds_up(job, partition, counts)
    else:
        results["sums_of_leaves"] = np.array_equal(counts, sums[number])
    if terms.is_measured:
        seal = record.shards["noisy"][number, TRUNK]
        results["every_cell_measured"] = seal.rows == len(partition) == len(counts)
        results["seals_match"] = is_shard(noisy_path(record.release.id, number, TRUNK, seal.turn), seal.sha256)
    results["charged_as_planned"] = _charged_as_planned(terms, record.charges.get(number))
    return [(check, number, passed) for check, passed in results.items()]


def _adds_up(job: Job, partition: Partition, counts: IntArray) -> bool:
    """Return whether the counts of a view add up to those of every level and view of its axis that it refines."""
    cells, fits = partition.cells(), True
    for number in [*range(leading_levels(job.tree) + 1), *(terms.level for terms in job.record.release.views)]:
        other = job.partition(number)
        if partition.view.refines(other.view):
            sums = np.zeros(len(other), dtype=np.int64)
            np.add.at(sums, other.places(cells), counts)
            fits = fits and np.array_equal(sums, job.counts(number))
    return fits


def _checked(job: Job, level: int) -> list[CheckRow]:
    release_id = job.record.release.id
    record, tree, total = job.record, job.tree, 0
    release, seals, released = record.release, record.shards["noisy"], record.released
    is_exact = release.levels[level].is_invariant
    intact = {
        branch: is_shard(noisy_path(release_id, level, branch, seal.turn), seal.sha256)
        for (of, branch), seal in seals.items()
        if of == level
    }
    of_counts = _check_of_counts(release)
    results = dict.fromkeys((of_counts.__name__, "children_add_up", "areas_known_once"), True)
    results |= {"exact_as_sealed": True} if is_exact else {}
    for (of, branch), shard in released.items():
        if of == level:
            nodes = job.nodes(shard)
            total += int(nodes.counts.sum())
            results[of_counts.__name__] &= of_counts(nodes)
            results["areas_known_once"] &= areas_known_once(tree, nodes)
            parents = job.parents(level, branch, released) if level else None
            if parents is not None:
                results["children_add_up"] &= children_add_up(tree, parents, nodes)
            if is_exact:
                measured = job.parents(level, branch) if level else None  # of the first pass, which may hold zeros
                results["exact_as_sealed"] &= intact[branch] and _is_as_sealed(
                    job, measured, seals[level, branch], nodes
                )
    results["adds_to_total"] = total == int(job.nodes(released[0, TRUNK]).counts.sum())
    results["seals_match"] = all(intact.values())
    if 0 < level <= record.complete and release.levels[level].is_measured:
        results["every_cell_measured"] = record.cells_of(level)[0] == release.levels[level].possible_cells
    if release.terms.unlisted and level == len(release.levels) - 1:
        results["codes_as_sealed"] = results["seals_match"] and _codes_as_sealed(job, seals[level, TRUNK])
    results["charged_as_planned"] = _charged_as_planned(release.levels[level], record.charges.get(level))
    return [(check, level, passed) for check, passed in results.items()]


def _codes_as_sealed(job: Job, seal: Shard) -> bool:
    """Return whether the codebooks beside the shards, where no public one lists the codes, are of what was sealed."""
    _, codebooks = job.coded_leaves(seal)
    shards = shard_folder(job.record.release.id)
    return all(read_codebook(shards, axis).equals(codebook) for axis, codebook in codebooks.items())


def _check_of_counts(release: Release) -> Callable[[Frontier], bool]:
    """Return the check of the counts: of one that waives `counts_positive`, whether they are whole."""
    return counts_whole if COUNTS_POSITIVE in release.terms.waived else counts_whole_and_positive


def _is_as_sealed(job: Job, parents: Frontier | None, seal: Shard, nodes: Frontier) -> bool:
    """Return whether the nodes of a branch are what was sealed of the children of some parents; the root has none."""
    exact = job.noisy(seal.level, seal.branch)
    if parents is None:
        return np.array_equal(nodes.counts, next(exact))
    return seal.rows == int(cell_counts(job.tree, parents).sum()) and exact_as_sealed(job.tree, parents, exact, nodes)


def _charged_as_planned(terms: Part, charge: Charge | None) -> bool:
    drawn = charge is None or charge.state in {"sealed", "released"}
    return drawn and as_charged(terms, charge)
