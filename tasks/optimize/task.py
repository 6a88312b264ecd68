"""The optimise stages: sealed noisy counts to consistent whole counts, then up the tree to estimates and down it to the released counts.

Both read only sealed counts and the nodes that the first pass kept. They measure nothing and charge nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from storage.releases.shards import TRUNK, Shard, shard_name
from tasks.optimize.reconcile import NodeEstimates, UpDown, combined, first_kept, root_total, summed_children
from tasks.optimize.siblings import Optimiser, as_they_are
from tasks.tree.axis import IntArray
from tasks.tree.frontier import (
    CHUNK_CELLS,
    Cells,
    Frontier,
    cell_counts,
    cells_of,
    chunks,
    expand,
    keep_all,
    keep_largest,
    keep_positive,
    nodes_above,
    root_of,
    sums_of_children,
    taking,
    without_zeros,
)
from tasks.tree.job import Job
from tasks.tree.order import Tree
from tasks.tree.views import Measured

# from all cells, their counts and noisy counts to the nodes that stay
Keep = Callable[[Cells, IntArray, IntArray], Frontier]


def repair(
    job: Job, level: int, branch: str, cells: Measured, optimiser: Optimiser | None, *, keeps_leaves: bool = False
) -> Shard:
    """Turn the sealed noisy counts of one level of one branch into its frontier. Repeated calls give the same result.

    Args:
        level: the level; its counts do not change where it is published exactly.
        optimiser: from noisy counts and their parents' totals to consistent counts; None where there is nothing to repair.
        keeps_leaves: whether leaves that end at 0 stay, because a second pass may give them a count.
    """
    parts: Iterator[Frontier]
    if optimiser is None:
        parts = _leaves(job, level, branch, cells)
    elif level == 0:
        parts = iter([root_of(job.tree, max(int(next(job.noisy(level, branch))[0]), 0))])
    else:
        exact = job.record.release.levels[level].is_invariant
        keep = _keep(job, level, keeps_leaves=keeps_leaves)
        parts = _next_frontier(job, level, branch, as_they_are if exact else optimiser, keep)
    return write_frontier(job, level, branch, parts)


def repeat(job: Job, level: int, branch: str, *, keeps_leaves: bool = False) -> Shard:
    """Give the cells of a level, each the only one in its parent, the counts of their parents; arguments are those of `repair`."""
    parents, keep = job.parents(level, branch), _keep(job, level, keeps_leaves=keeps_leaves)

    def parts() -> Iterator[Frontier]:
        for first in range(0, max(len(parents), 1), CHUNK_CELLS):
            of_part = parents[first : first + CHUNK_CELLS]
            # where zeros are dropped, only a root has a count of 0
            yield keep(expand(job.tree, of_part), of_part.counts, of_part.counts)

    return write_frontier(job, level, branch, parts())


def add_up(job: Job, level: int, branch: str) -> Shard:
    """Turn the frontier of the level below into that of a level which is not measured, a part at a time."""
    children = job.level(level + 1, job.record.shards["counts"])
    return write_frontier(job, level, branch, sums_of_children(job.tree, level, children))


def _leaves(job: Job, level: int, branch: str, cells: Measured) -> Iterator[Frontier]:
    """Yield the leaves that are released as they were measured, all or those that were kept.

    For an axis without a codebook, the sealed codes become its codebook, beside the shards.
    """
    release = job.record.release
    if release.terms.unlisted:
        leaves, codebooks = job.coded_leaves(job.record.shards["noisy"][level, branch])
        for axis, codebook in codebooks.items():
            job.shard_store.keep_codebook(axis, codebook)
        return (leaves[first : first + CHUNK_CELLS] for first in range(0, max(len(leaves), 1), CHUNK_CELLS))
    if cells == "records":
        axes, seal = range(len(release.terms.axes)), job.record.shards["noisy"][level, branch]
        groups = job.shard_store.groups(shard_name("noisy", level, branch, seal.turn), seal.sha256)
        return (Frontier(level, tuple(of[f"area_{axis}"] for axis in axes), of["noisy"]) for of in groups)
    return all_leaves(job.tree, job.noisy(level, branch))


def all_leaves(tree: Tree, noisy: Iterator[IntArray]) -> Iterator[Frontier]:
    """Yield the leaves whose noisy count is not 0, part by part, from the noisy counts of all, in whatever parts."""
    take = taking(noisy)
    for parents in nodes_above(tree, tree.depth, CHUNK_CELLS):
        cells = expand(tree, parents)
        yield without_zeros(Frontier(cells.level, cells.areas, take(len(cells))))


def _next_frontier(job: Job, level: int, branch: str, optimiser: Optimiser, keep: Keep) -> Iterator[Frontier]:
    """Yield the cells of a level (> 0) of a branch that stay, chunk by chunk."""
    parents = job.parents(level, branch)
    for nodes, counts in in_chunks(cell_counts(job.tree, parents), job.noisy(level, branch)):
        cells = expand(job.tree, parents[nodes])
        yield keep(cells, optimiser(counts, cells.first_cell, parents.counts[nodes]), counts)


def _keep(job: Job, level: int, *, keeps_leaves: bool) -> Keep:
    """Return what makes a frontier of the cells of a level (> 0), their counts and their noisy counts."""
    if level == job.record.thinned:
        return keep_largest
    keeps = job.record.keeps_zeros(level) or (keeps_leaves and level >= job.record.last_measured)
    return keep_all if keeps else keep_positive


def write_frontier(job: Job, level: int, branch: str, parts: Iterator[Frontier]) -> Shard:
    """Write the released nodes of one level of one branch as a shard, a row group per part."""
    axes = range(len(job.record.release.terms.axes))
    nonzero = cells_below = 0

    def counted() -> Iterator[dict[str, IntArray]]:
        nonlocal nonzero, cells_below
        for part in parts:
            job.check_going_on()
            nonzero += len(part)
            cells_below += int(cell_counts(job.tree, part).sum()) if level < job.record.finest else 0
            yield {f"area_{axis}": part.areas[axis] for axis in axes} | {"count": part.counts}

    columns = (*(f"area_{axis}" for axis in axes), "count")
    sha256 = job.shard_store.write(shard_name("counts", level, branch), columns, counted())
    return Shard("counts", level, branch, sha256, nonzero, cells_below)


def in_chunks(cells_per_parent: IntArray, noisy: Iterator[IntArray]) -> Iterator[tuple[slice, IntArray]]:
    """Yield parents a chunk at a time, with the noisy counts of their cells, which come in whatever parts.

    Args:
        cells_per_parent: shape (parents,).
        noisy: of all cells, in their order.
    """
    take = taking(noisy)
    for parents in chunks(cells_per_parent, CHUNK_CELLS):
        yield parents, take(int(cells_per_parent[parents].sum()))


def estimate_branch(job: Job, branch: str) -> list[Shard]:
    """Estimate the nodes of a branch from the noisy counts of all that lies below them, the finest level first.

    The branches into which it was cut must be estimated before. The last shard belongs to the level of the cut: the sum of
    the branch for each node at which it begins.
    """
    levels, pieces = job.record.levels_of(branch), job.record.pieces(branch)
    made: list[Shard] = []

    def keep(level: int, estimates: NodeEstimates) -> None:
        columns = {"value": estimates.values, "variance": estimates.variances}
        made.append(job.write_numbers("estimates", level, branch, columns))

    below = _joined([read_estimates(job, levels[-1], piece) for piece in pieces]) if pieces else None
    for level in reversed(levels):
        if job.record.release.levels[level].same_as is not None:
            # each node above has one cell here, and nothing of it was measured: what is below it says the same of both
            below = below if below is not None and len(below) else None  # under a root that was released as 0
            continue
        if level == 0:
            keep(0, combined(next(job.noisy(0, branch)), _variance(job, 0), below))
        else:
            estimates, below = _estimates(job, level, branch, below)
            keep(level, estimates)
    if branch != TRUNK and below is not None:
        keep(levels[0] - 1, below)
    return made


def settle_branch(job: Job, branch: str, finish: UpDown) -> list[Shard]:
    """Go down a branch once more, from estimates to the counts that are released, over the nodes of the first pass.

    The branch that was cut into it is settled already.
    """
    made, totals = [], None if branch == TRUNK else totals_above(job, job.record.levels_of(branch)[0], branch)
    for level in job.record.levels_of(branch):
        kept = nodes_kept(job, level, branch)
        if totals is None:
            totals = root_settled(job, kept)
        elif job.record.release.levels[level].same_as is None:
            counts = np.zeros(len(kept), dtype=np.int64)
            for part in parts_of(job, level, branch, kept, totals):
                counts[part.nodes] = finish.share(part.estimates, part.first, part.totals)
            totals = counts
        else:
            totals = totals[: len(kept)]  # a root of 0 has no cell
        made.append(write_settled(job, level, branch, kept, totals))
    return made


def write_settled(job: Job, level: int, branch: str, kept: Frontier, counts: IntArray) -> Shard:
    """Write the settled counts of the nodes that were kept of a level of a branch, without zeros below level 0."""
    columns = {f"area_{axis}": areas for axis, areas in enumerate(kept.areas)}
    columns |= {"count": counts, "row": np.arange(len(counts))}
    left = np.flatnonzero(counts > 0) if level else np.zeros(1, dtype=np.int64)
    return job.write_rows("settled", level, branch, columns, left)


def nodes_kept(job: Job, level: int, branch: str) -> Frontier:
    """Return the nodes that the first pass has kept."""
    return job.nodes(job.record.shards["counts"][level, branch])


def _variance(job: Job, level: int) -> float:
    """Return the variance of the noise of a level, 0 where it is exact."""
    return job.record.release.levels[level].sigma ** 2


def _estimates(job: Job, level: int, branch: str, below: NodeEstimates | None) -> tuple[NodeEstimates, NodeEstimates]:
    """Return the estimates of the nodes that were kept of a level, and what all cells add up to for each of their parents."""
    kept, parents, variance = nodes_kept(job, level, branch), job.parents(level, branch), _variance(job, level)
    first, cell = cells_of(job.tree, parents, kept)
    cells = cell_counts(job.tree, parents)
    before = 0  # cells of earlier chunks
    of_nodes, of_parents = [], []
    for nodes, noisy in in_chunks(cells, job.noisy(level, branch)):
        job.check_going_on()
        rows = slice(first[nodes.start], first[nodes.stop])
        is_kept = np.zeros(len(noisy), dtype=bool)
        is_kept[cell[rows] - before] = True
        estimates = combined(noisy[is_kept], variance, below[rows] if below else None)
        first_cell = np.concatenate(([0], np.cumsum(cells[nodes])))
        of_nodes.append(estimates)
        of_parents.append(summed_children(noisy, variance, first_cell, is_kept, estimates))
        before += len(noisy)
    return _joined(of_nodes), _joined(of_parents)


def totals_above(job: Job, level: int, branch: str) -> IntArray:
    """Return the settled counts of the nodes whose children are a level (> 0) of a branch, shape (nodes,); 0 for dropped nodes."""
    cut = job.record.branches.get(branch)
    if cut is None or cut.cut_level != level - 1:
        shard, first = job.record.shards["settled"][level - 1, branch], 0
        rows, nodes = slice(None), job.record.shards["counts"][level - 1, branch].rows
    else:
        shard, first = job.record.shards["settled"][level - 1, cut.parent], cut.first_node
        rows, nodes = job.rows_of(shard, cut), cut.end_node - cut.first_node
    columns = job.columns(shard)
    totals = np.zeros(nodes, dtype=np.int64)
    totals[columns["row"][rows] - first] = columns["count"][rows]
    return totals


def root_settled(job: Job, kept: Frontier) -> IntArray:
    """Return the settled count of the root, shape (1,); a root of 0 in the first pass can have one if leaves are measured below it."""
    first_total = int(kept.counts[0]) or int(job.record.revives)
    return np.array([root_total(read_estimates(job, 0, TRUNK), first_total)])


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Some whole families of a level of a branch.

    Attributes:
        parents: their parents, with the counts of the first pass.
        totals: of these, settled, shape (parents,), records.
        first: where the nodes of each begin, and the end, shape (parents + 1,).
        nodes: which of the kept nodes of the branch these are, shape (nodes,).
        areas: of the nodes, per axis, shape (nodes,).
        estimates: of the nodes, shape (nodes,).
    """

    parents: Frontier
    totals: IntArray
    first: IntArray
    nodes: IntArray
    areas: tuple[IntArray, ...]
    estimates: NodeEstimates


def parts_of(job: Job, level: int, branch: str, kept: Frontier, totals: IntArray) -> Iterator[Part]:
    """Yield the families of a level (> 0) of a branch, without nodes that cannot have a count, a chunk at a time.

    Unless leaves are measured below every node, one with a count of 0 in the first pass has no leaf that could take a count.

    Args:
        kept: the nodes that were kept of the level.
        totals: the settled counts of their parents, shape (parents,).
    """
    record, parents, estimates = job.record, job.parents(level, branch), read_estimates(job, level, branch)
    is_leaf = level >= record.last_measured
    can = np.full(len(kept), is_leaf or record.revives) | (kept.counts > 0)
    first, there = first_kept(can, cells_of(job.tree, parents, kept)[0]), np.flatnonzero(can)
    for part in chunks(np.diff(first), CHUNK_CELLS):
        job.check_going_on()
        of_part = first[part.start : part.stop + 1]
        nodes = there[of_part[0] : of_part[-1]]
        areas = tuple(of_axis[nodes] for of_axis in kept.areas)
        yield Part(parents[part], totals[part], of_part - of_part[0], nodes, areas, estimates[nodes])


def read_estimates(job: Job, level: int, branch: str) -> NodeEstimates:
    """Return the estimates of the nodes that were kept of a level of a branch."""
    columns = job.columns(job.record.shards["estimates"][level, branch])
    return NodeEstimates(columns["value"], columns["variance"])


def _joined(parts: Sequence[NodeEstimates]) -> NodeEstimates:
    """Return parts of a level as one; there are none below a root that was released as 0."""
    nothing = np.zeros(0)
    return NodeEstimates(
        np.concatenate([nothing, *(part.values for part in parts)]),
        np.concatenate([nothing, *(part.variances for part in parts)]),
    )
