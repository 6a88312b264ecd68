"""The stages of a second pass: up the tree, from all noisy counts to estimates; and down it, to the released counts.

Both read only sealed counts and the nodes that the first pass kept. They measure nothing and charge nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from storage.counts.shards import (
    estimates_path,
    frontier_path,
    noisy_path,
    read_row_groups,
    read_shard,
    settled_path,
    write_shard,
)
from storage.database.connections import store
from storage.machine.locks import check_going_on
from storage.record import Record, load_record
from storage.releases.seals import TRUNK, EstimateShard, FrontierShard
from tasks.optimize.reconcile import Estimates, Settling, combined, measured, root_total, summed_children
from tasks.optimize.task import Optimiser, in_chunks
from tasks.stage import stage
from tasks.tree.axis import IntArray
from tasks.tree.frontier import CHUNK_CELLS, Frontier, cell_counts, cells_of, chunks
from tasks.tree.order import Tree
from tasks.tree.task import load_frontier, load_parents, rows_of, tree_of


@stage("estimate {branch}")
def estimate_branch(release_id: str, branch: str) -> list[EstimateShard]:
    """Estimate the nodes of a branch from the noisy counts of all that lies below them, the finest level first.

    The branches into which it was cut must be estimated before. The last shard belongs to the level of the cut: the sum of
    the branch for each node at which it begins.
    """
    record, tree = _load(release_id)
    levels, parts = record.levels_of(branch), record.parts(branch)
    found: list[EstimateShard] = []

    def keep(level: int, estimates: Estimates) -> None:
        columns = {"value": estimates.values, "variance": estimates.variances}
        path = estimates_path(release_id, level, branch)
        found.append(EstimateShard(level, branch, write_shard(path, tuple(columns), [columns], pa.float64())))

    below = _joined([_read(record, levels[-1], part) for part in parts]) if parts else None
    for level in reversed(levels):
        if level == 0:
            keep(0, _of_nodes(next(_noisy(record, 0, branch)), _variance(record, 0), below))
        else:
            estimates, below = _estimates(record, tree, level, branch, below)
            keep(level, estimates)
    if branch != TRUNK and below is not None:
        keep(levels[0] - 1, below)
    return found


@stage("settle {branch}")
def settle_branch(release_id: str, branch: str, optimiser: Optimiser, settling: Settling) -> list[FrontierShard]:
    """Go down a branch once more, from estimates to the counts that are released, over the nodes of the first pass.

    The branch that was cut into it is settled already.
    """

    def settle(estimates: Estimates, first_kept: IntArray, totals: IntArray) -> IntArray:
        return settling(estimates, first_kept, totals, optimiser)

    record, tree = _load(release_id)
    axes = range(len(tree.axes))
    columns = (*(f"area_{axis}" for axis in axes), "count", "row")
    found, totals = [], None if branch == TRUNK else _totals(record, branch)
    for level in record.levels_of(branch):
        kept = _kept(record, level, branch)
        totals = _root(record, kept) if totals is None else _settled(record, tree, level, branch, kept, totals, settle)
        left = np.flatnonzero(totals > 0) if level else np.zeros(1, dtype=np.int64)
        groups = [left[start : start + CHUNK_CELLS] for start in range(0, len(left), CHUNK_CELLS)]
        rows = (
            {f"area_{axis}": kept.areas[axis][group] for axis in axes} | {"count": totals[group], "row": group}
            for group in groups
        )
        sha256 = write_shard(settled_path(release_id, level, branch), columns, rows)
        found.append(FrontierShard(level, branch, sha256, len(left), 0, is_settled=True))
    return found


def _load(release_id: str) -> tuple[Record, Tree]:
    """Return what the store knows of a release after the first pass, and its tree."""
    with store() as con:
        record = load_record(con, release_id)
    return record, tree_of(record.release)


def _kept(record: Record, level: int, branch: str) -> Frontier:
    """Return the nodes that the first pass has kept."""
    return load_frontier(record.release, record.frontiers[level, branch])


def _noisy(record: Record, level: int, branch: str) -> Iterator[IntArray]:
    """Yield the sealed noisy counts of a level of a branch."""
    shard = noisy_path(record.release.id, level, branch), record.seals[level, branch].sha256
    return (group["noisy"] for group in read_row_groups(*shard))


def _variance(record: Record, level: int) -> float:
    """Return the variance of the noise of a level, 0 where it is exact."""
    return record.release.levels[level].sigma ** 2


def _estimates(
    record: Record, tree: Tree, level: int, branch: str, below: Estimates | None
) -> tuple[Estimates, Estimates]:
    """Return the estimates of the nodes that were kept of a level, and what all cells add up to for each of their parents."""
    kept, parents, variance = (
        _kept(record, level, branch),
        load_parents(record, level, branch),
        _variance(record, level),
    )
    first_kept, cell = cells_of(tree, parents, kept)
    cells = cell_counts(tree, parents)
    before = 0  # cells of earlier chunks
    of_nodes, of_parents = [], []
    for nodes, noisy in in_chunks(cells, _noisy(record, level, branch), partial(check_going_on, record.release.id)):
        rows = slice(first_kept[nodes.start], first_kept[nodes.stop])
        is_kept = np.zeros(len(noisy), dtype=bool)
        is_kept[cell[rows] - before] = True
        estimates = _of_nodes(noisy[is_kept], variance, below[rows] if below else None)
        first_cell = np.concatenate(([0], np.cumsum(cells[nodes])))
        of_nodes.append(estimates)
        of_parents.append(summed_children(noisy, variance, first_cell, is_kept, estimates))
        before += len(noisy)
    return _joined(of_nodes), _joined(of_parents)


def _of_nodes(noisy: IntArray, variance: float, below: Estimates | None) -> Estimates:
    return combined(noisy, variance, below) if below else measured(noisy, variance)


def _totals(record: Record, branch: str) -> IntArray:
    """Return the settled counts of the nodes at which a branch begins, shape (nodes,); 0 for dropped nodes."""
    stands_on = record.branches[branch]
    above = record.settled[stands_on.cut_level, stands_on.parent]
    rows = rows_of(record.release, above, stands_on)
    columns = read_shard(frontier_path(record.release.id, above), above.sha256)
    totals = np.zeros(stands_on.end_node - stands_on.first_node, dtype=np.int64)
    totals[columns["row"][rows] - stands_on.first_node] = columns["count"][rows]
    return totals


def _root(record: Record, kept: Frontier) -> IntArray:
    """Return the settled count of the root, shape (1,)."""
    return np.array([root_total(_read(record, 0, TRUNK), int(kept.counts[0]))])


def _settled(
    record: Record,
    tree: Tree,
    level: int,
    branch: str,
    kept: Frontier,
    totals: IntArray,
    settle: Callable[[Estimates, IntArray, IntArray], IntArray],
) -> IntArray:
    """Return the settled counts of the nodes that were kept of a level (> 0), shape (kept,)."""
    first_kept, _ = cells_of(tree, load_parents(record, level, branch), kept)
    estimates = _read(record, level, branch)
    counts = np.zeros(len(kept), dtype=np.int64)
    for nodes in chunks(np.diff(first_kept), CHUNK_CELLS):
        check_going_on(record.release.id)
        rows = slice(first_kept[nodes.start], first_kept[nodes.stop])
        first = first_kept[nodes.start : nodes.stop + 1] - first_kept[nodes.start]
        counts[rows] = settle(estimates[rows], first, totals[nodes])
    return counts


def _read(record: Record, level: int, branch: str) -> Estimates:
    path = estimates_path(record.release.id, level, branch)
    columns = read_shard(path, record.estimates[level, branch].sha256)
    return Estimates(columns["value"], columns["variance"])


def _joined(parts: Sequence[Estimates]) -> Estimates:
    """Return parts of a level as one; there are none below a root that was released as 0."""
    nothing = np.zeros(0)
    return Estimates(
        np.concatenate([nothing, *(part.values for part in parts)]),
        np.concatenate([nothing, *(part.variances for part in parts)]),
    )
