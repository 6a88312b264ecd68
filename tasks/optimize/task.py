"""The optimise stage: turns sealed noisy counts into consistent whole counts."""

from collections.abc import Callable, Iterator
from functools import partial

from storage.counts.shards import counts_path, noisy_path, read_row_groups, write_codebook, write_shard
from storage.database.connections import store
from storage.machine.locks import check_going_on, while_going_on
from storage.record import load_record
from storage.releases.register import Release
from storage.releases.seals import TRUNK, FrontierShard
from tasks.optimize.siblings import as_they_are
from tasks.stage import stage
from tasks.tree.axis import IntArray
from tasks.tree.frontier import CHUNK_CELLS, Frontier, cell_counts, chunks, expand, keep_positive, taking
from tasks.tree.leaves import nodes_above_leaves, root_of, sums_of_children, without_zeros
from tasks.tree.order import Tree
from tasks.tree.task import load_level, load_parents, read_coded_leaves, tree_of

Optimiser = Callable[[IntArray, IntArray, IntArray], IntArray]


@stage("optimise level {level} {branch}")
def optimise_branch(release_id: str, level: int, branch: str, optimiser: Optimiser) -> FrontierShard:
    """Turn the sealed noisy counts of one level of one branch into its frontier.

    A level that is already optimised stays as it is. Counts of a level that is published exactly do not change. Repeated
    calls give the same result.
    """
    with store() as con:
        record = load_record(con, release_id)
    seal, release = record.seals[level, branch], record.release
    if (level, branch) in record.frontiers:
        return record.frontiers[level, branch]
    tree = tree_of(release)
    noisy = (group["noisy"] for group in read_row_groups(noisy_path(release_id, level, branch), seal.sha256))
    parts: Iterator[Frontier]
    if level == 0:
        parts = iter([root_of(tree, max(int(next(noisy)[0]), 0))])
    else:
        parents = load_parents(record, level, branch)
        repair = as_they_are if release.levels[level].is_invariant else optimiser
        parts = _next_frontier(tree, parents, noisy, repair, partial(check_going_on, release_id))
    return _write_frontier(release, level, branch, parts)


@stage("keep leaves")
def keep_leaves(release_id: str) -> FrontierShard:
    """Turn the sealed noisy counts of leaves, of all or of those that were kept, into the frontier of the finest level.

    For an axis without a codebook, the sealed codes become its codebook, beside the shards. Repeated calls give the same
    result.
    """
    with store() as con:
        record = load_record(con, release_id)
    release, level = record.release, record.finest
    seal = record.seals[level, TRUNK]
    if (level, TRUNK) in record.frontiers:
        return record.frontiers[level, TRUNK]
    groups = read_row_groups(noisy_path(release_id, level, TRUNK), seal.sha256)
    parts: Iterator[Frontier]
    if release.terms.unlisted:
        leaves, codebooks = read_coded_leaves(release, seal)
        for axis, codebook in codebooks.items():
            write_codebook(release_id, axis, codebook)
        parts = (leaves[first : first + CHUNK_CELLS] for first in range(0, max(len(leaves), 1), CHUNK_CELLS))
    elif release.levels[level].threshold:
        parts = (_listed(release, group) for group in groups)
    else:
        parts = _all_leaves(tree_of(release), (group["noisy"] for group in groups))
    return _write_frontier(release, level, TRUNK, while_going_on(release_id, parts))


@stage("sum level {level}")
def sum_level(release_id: str, level: int) -> FrontierShard:
    """Turn the frontier of the level below into that of a level which is not measured, a part at a time."""
    with store() as con:
        record = load_record(con, release_id)
    if (level, TRUNK) in record.frontiers:
        return record.frontiers[level, TRUNK]
    release = record.release
    children = while_going_on(release_id, load_level(release, level + 1, record.frontiers))
    return _write_frontier(release, level, TRUNK, sums_of_children(tree_of(release), level, children))


def _listed(release: Release, group: dict[str, IntArray]) -> Frontier:
    """Return leaves that were kept, from the columns of their shard."""
    areas = tuple(group[f"area_{axis}"] for axis in range(len(release.terms.axes)))
    return Frontier(len(release.levels) - 1, areas, group["noisy"])


def _all_leaves(tree: Tree, noisy: Iterator[IntArray]) -> Iterator[Frontier]:
    """Yield the leaves whose noisy count is not 0, part by part, from the noisy counts of all, in whatever parts."""
    take = taking(noisy)
    for parents in nodes_above_leaves(tree, CHUNK_CELLS):
        cells = expand(tree, parents)
        yield without_zeros(Frontier(cells.level, cells.areas, take(len(cells))))


def _write_frontier(release: Release, level: int, branch: str, parts: Iterator[Frontier]) -> FrontierShard:
    """Write the released nodes of one level of one branch as a shard, a row group per part."""
    tree, axes = tree_of(release), range(len(release.terms.axes))
    nonzero = cells_below = 0

    def counted() -> Iterator[dict[str, IntArray]]:
        nonlocal nonzero, cells_below
        for part in parts:
            nonzero += len(part)
            cells_below += int(cell_counts(tree, part).sum()) if level < tree.depth else 0
            yield {f"area_{axis}": part.areas[axis] for axis in axes} | {"count": part.counts}

    columns = (*(f"area_{axis}" for axis in axes), "count")
    sha256 = write_shard(counts_path(release.id, level, branch), columns, counted())
    return FrontierShard(level, branch, sha256, nonzero, cells_below)


def _next_frontier(
    tree: Tree, parents: Frontier, noisy: Iterator[IntArray], optimiser: Optimiser, going_on: Callable[[], None]
) -> Iterator[Frontier]:
    """Yield the cells below some nodes that stay above zero, chunk by chunk."""
    for nodes, counts in in_chunks(cell_counts(tree, parents), noisy, going_on):
        cells = expand(tree, parents[nodes])
        yield keep_positive(cells, optimiser(counts, cells.first_cell, parents.counts[nodes]))


def in_chunks(
    cells_per_parent: IntArray, noisy: Iterator[IntArray], going_on: Callable[[], None]
) -> Iterator[tuple[slice, IntArray]]:
    """Yield parents a chunk at a time, with the noisy counts of their cells, which come in whatever parts.

    Args:
        cells_per_parent: shape (parents,).
        noisy: of all cells, in their order.
        going_on: raises where the release is asked to stop; called before each chunk.
    """
    take = taking(noisy)
    for parents in chunks(cells_per_parent, CHUNK_CELLS):
        going_on()
        yield parents, take(int(cells_per_parent[parents].sum()))
