"""The optimise stage: turns sealed noisy counts into consistent whole counts."""

from collections.abc import Callable, Iterator

from storage.releases.shards import Shard, shard_name
from tasks.optimize.siblings import Optimiser, as_they_are
from tasks.tree.axis import IntArray
from tasks.tree.frontier import (
    CHUNK_CELLS,
    Cells,
    Frontier,
    cell_counts,
    chunks,
    expand,
    keep_all,
    keep_largest,
    keep_positive,
    taking,
)
from tasks.tree.job import Job
from tasks.tree.leaves import nodes_above, root_of, sums_of_children, without_zeros
from tasks.tree.order import Tree
from tasks.tree.views import Measured

# from all cells, their counts and noisy counts to the nodes that stay
Keep = Callable[[Cells, IntArray, IntArray], Frontier]


def repair(
    job: Job, level: int, branch: str, cells: Measured, optimiser: Optimiser | None, *, keeps_leaves: bool = False
) -> Shard:
    """Turn the sealed noisy counts of one level of one branch into its frontier. Repeated calls give the same result.

    Args:
        job: the release.
        level: the level; its counts do not change where it is published exactly.
        branch: the branch.
        cells: which cells of the level are measured.
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
