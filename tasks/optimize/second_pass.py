"""The stages of a second pass: up the tree, from all noisy counts to estimates; and down it, to the released counts.

Both read only sealed counts and the nodes that the first pass kept. They measure nothing and charge nothing.
"""

from collections.abc import Sequence

import numpy as np

from storage.releases.shards import TRUNK, Shard
from tasks.optimize.reconcile import NodeEstimates, UpDown, first_kept
from tasks.optimize.task import in_chunks
from tasks.tree.axis import BoolArray, IntArray
from tasks.tree.frontier import CHUNK_CELLS, Frontier, cell_counts, cells_of, chunks
from tasks.tree.job import Job


def estimate_branch(job: Job, branch: str, finish: UpDown) -> list[Shard]:
    """Estimate the nodes of a branch from the noisy counts of all that lies below them, the finest level first.

    The branches into which it was cut must be estimated before. The last shard belongs to the level of the cut: the sum of
    the branch for each node at which it begins.
    """
    levels, parts = job.record.levels_of(branch), job.record.parts(branch)
    found: list[Shard] = []

    def keep(level: int, estimates: NodeEstimates) -> None:
        columns = {"value": estimates.values, "variance": estimates.variances}
        found.append(job.write_numbers("estimates", level, branch, columns))

    below = _joined([read_estimates(job, levels[-1], part) for part in parts]) if parts else None
    for level in reversed(levels):
        if job.record.release.levels[level].same_as is not None:
            # each node above has one cell here, and nothing of it was measured: what is below it says the same of both
            below = below if below is not None and len(below) else None  # under a root that was released as 0
            continue
        if level == 0:
            keep(0, finish.of_nodes(next(job.noisy(0, branch)), _variance(job, 0), below))
        else:
            estimates, below = _estimates(job, level, branch, below, finish)
            keep(level, estimates)
    if branch != TRUNK and below is not None:
        keep(levels[0] - 1, below)
    return found


def settle_branch(job: Job, branch: str, finish: UpDown) -> list[Shard]:
    """Go down a branch once more, from estimates to the counts that are released, over the nodes of the first pass.

    The branch that was cut into it is settled already.
    """
    found, totals = [], None if branch == TRUNK else totals_above(job, job.record.levels_of(branch)[0], branch)
    for level in job.record.levels_of(branch):
        kept = nodes_kept(job, level, branch)
        if totals is None:
            totals = root_settled(job, kept, finish)
        elif job.record.release.levels[level].same_as is None:
            totals = _settled(job, level, branch, kept, totals, finish)
        else:
            totals = totals[: len(kept)]  # a root of 0 has no cell
        found.append(write_settled(job, level, branch, kept, totals))
    return found


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


def _estimates(
    job: Job, level: int, branch: str, below: NodeEstimates | None, finish: UpDown
) -> tuple[NodeEstimates, NodeEstimates]:
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
        estimates = finish.of_nodes(noisy[is_kept], variance, below[rows] if below else None)
        first_cell = np.concatenate(([0], np.cumsum(cells[nodes])))
        of_nodes.append(estimates)
        of_parents.append(finish.gather(noisy, variance, first_cell, is_kept, estimates))
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


def root_settled(job: Job, kept: Frontier, finish: UpDown) -> IntArray:
    """Return the settled count of the root, shape (1,); a root of 0 in the first pass can have one if leaves are measured below it."""
    first_total = int(kept.counts[0]) or int(job.record.revives)
    return np.array([finish.root(read_estimates(job, 0, TRUNK), first_total)])


def may_count(job: Job, level: int, kept: Frontier) -> BoolArray:
    """Return which of the nodes that were kept of a level (> 0) can have a settled count, shape (kept,).

    Unless leaves are measured below every node, one with a count of 0 in the first pass has no leaf that could take a count.
    """
    record = job.record
    is_leaf = level >= record.last_measured
    return np.full(len(kept), is_leaf or record.revives) | (kept.counts > 0)


def _settled(job: Job, level: int, branch: str, kept: Frontier, totals: IntArray, finish: UpDown) -> IntArray:
    """Return the settled counts of the nodes that were kept of a level (> 0), shape (kept,)."""
    estimates, can = read_estimates(job, level, branch), may_count(job, level, kept)
    first_of, _ = cells_of(job.tree, job.parents(level, branch), kept)
    first_of = first_kept(can, first_of)
    estimates = estimates.of(can)
    found = np.zeros(len(estimates), dtype=np.int64)
    for nodes in chunks(np.diff(first_of), CHUNK_CELLS):
        job.check_going_on()
        rows = slice(first_of[nodes.start], first_of[nodes.stop])
        found[rows] = finish.share(estimates[rows], first_of[nodes.start : nodes.stop + 1] - rows.start, totals[nodes])
    counts = np.zeros(len(kept), dtype=np.int64)
    counts[can] = found
    return counts


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
