"""The optimise stage: sealed noisy counts in, consistent whole counts out."""

from collections.abc import Callable
from functools import partial

import numpy as np

from storage.database import store
from storage.releases import Release, find_release
from storage.running import check_going_on
from storage.seals import FrontierShard, Seal, list_branches, list_frontiers, list_seals
from storage.shards import counts_path, noisy_path, read_shard, write_shard
from tasks.stage import stage
from tasks.tree.axis import IntArray
from tasks.tree.frontier import CHUNK_CELLS, Frontier, cell_counts, chunks, expand, join, keep_positive
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
    tree = tree_of(release)
    noisy = _noisy_counts(release, seal)
    if level == 0:
        frontier = Frontier(0, tuple(np.zeros(1, dtype=np.int64) for _ in tree.axes), np.maximum(noisy, 0))
    else:
        parents = load_parents(release, level, branch, frontiers, branches)
        frontier = _next_frontier(tree, parents, noisy, optimiser, partial(check_going_on, release_id))
    columns = {f"area_{axis}": areas for axis, areas in enumerate(frontier.areas)} | {"count": frontier.counts}
    sha256 = write_shard(counts_path(release_id, level, branch), tuple(columns), [columns])
    cells_below = int(cell_counts(tree, frontier).sum()) if level < tree.depth else 0
    return FrontierShard(level, branch, sha256, len(frontier), cells_below)


def _noisy_counts(release: Release, seal: Seal) -> IntArray:
    return read_shard(noisy_path(release.id, seal.level, seal.branch), seal.sha256)["noisy"]


def _next_frontier(
    tree: Tree, parents: Frontier, noisy: IntArray, optimiser: Optimiser, going_on: Callable[[], None]
) -> Frontier:
    parts = [Frontier(parents.level + 1, tuple(areas[:0] for areas in parents.areas), parents.counts[:0])]
    first = 0
    for nodes in chunks(cell_counts(tree, parents), CHUNK_CELLS):
        going_on()
        cells = expand(tree, parents[nodes])
        counts = optimiser(noisy[first : first + len(cells)], cells.first_cell, parents.counts[nodes])
        parts.append(keep_positive(cells, counts))
        first += len(cells)
    return join(parts)
