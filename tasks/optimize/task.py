"""The optimise stage: sealed noisy counts in, consistent whole counts out."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from storage.database import store
from storage.releases import find_release
from storage.running import check_going_on
from storage.seals import FrontierShard, list_branches, list_frontiers, list_seals
from storage.shards import counts_path, noisy_path, read_row_groups, write_shard
from tasks.stage import stage
from tasks.tree.axis import IntArray
from tasks.tree.frontier import CHUNK_CELLS, Frontier, cell_counts, chunks, expand, keep_positive
from tasks.tree.order import Tree
from tasks.tree.task import load_parents, tree_of

Optimiser = Callable[[IntArray, IntArray, IntArray], IntArray]


@stage("optimise level {level} {branch}")
def optimise_branch(release_id: str, level: int, branch: str, optimiser: Optimiser) -> FrontierShard:
    """Turn the sealed noisy counts of one level of one branch into its frontier.

    A level that is optimised already is left as it is. The result is the same however often it is computed.
    """
    with store() as con:
        seal = list_seals(con, release_id)[level, branch]
        release = find_release(con, release_id)
        frontiers, branches = list_frontiers(con, release_id), list_branches(con, release_id)
    if (level, branch) in frontiers:
        return frontiers[level, branch]
    tree, axes = tree_of(release), range(len(release.terms["axes"]))
    noisy = (group["noisy"] for group in read_row_groups(noisy_path(release_id, level, branch), seal.sha256))
    if level == 0:
        root = Frontier(0, tuple(np.zeros(1, dtype=np.int64) for _ in axes), np.maximum(next(noisy), 0))
        parts = iter([root])
    else:
        parents = load_parents(release, level, branch, frontiers, branches)
        parts = _next_frontier(tree, parents, noisy, optimiser, partial(check_going_on, release_id))
    nonzero = cells_below = 0

    def counted() -> Iterator[dict[str, IntArray]]:
        nonlocal nonzero, cells_below
        for part in parts:
            nonzero += len(part)
            cells_below += int(cell_counts(tree, part).sum()) if level < tree.depth else 0
            yield {f"area_{axis}": part.areas[axis] for axis in axes} | {"count": part.counts}

    columns = (*(f"area_{axis}" for axis in axes), "count")
    sha256 = write_shard(counts_path(release_id, level, branch), columns, counted())
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
    waiting = np.zeros(0, dtype=np.int64)
    for parents in chunks(cells_per_parent, CHUNK_CELLS):
        going_on()
        cells = int(cells_per_parent[parents].sum())
        while len(waiting) < cells:
            waiting = np.concatenate((waiting, next(noisy))) if len(waiting) else next(noisy)
        yield parents, waiting[:cells]
        waiting = waiting[cells:]
