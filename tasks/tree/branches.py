"""Branches: slices of a frontier with everything below them, cut by public counts alone.

A release begins with one branch, the trunk. The trunk is cut once there is work for several branches. Any branch is cut
further if the cells of its next level would need more memory than a branch may use.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tasks.tree.axis import IntArray
from tasks.tree.frontier import CHUNK_CELLS, Frontier, cell_counts, chunks
from tasks.tree.order import Tree

BRANCH_CELLS = 10_000  # of its first level that are worth a branch of their own; smaller ones travel together
WORTH_CUTTING = 4  # branches; for fewer the trunk goes on, unless the next level is the last
RUNS = 2  # that a level of a branch takes, at least: one measures and one optimises
TASK_RUNS = 180  # of measuring and optimising in branches; the trunk and the single stages take the rest of 200
MOST_TASK_RUNS = 200  # of a release; those with very many levels have less than `TASK_RUNS` left for branches
MOST_BRANCHES = 16  # of the trunk
FINER = 4  # times smaller are the branches of a cluster, of which each worker has several

_MORE_THAN_RECORDS = 2.0**62  # any released count

# With two axes:
CELL_BYTES = 64  # that a stage keeps for each cell of a branch's level: noisy counts, and the nodes that survive, twice
CHUNK_BYTES = 256  # that it works with for each cell of a chunk
# More bytes for each further axis:
AXIS_CELL_BYTES, AXIS_CHUNK_BYTES = 16, 32


def most_cells(memory: int, workers: int, axes: int = 2) -> int:
    """Return how many cells of one level a branch may have.

    Args:
        memory: bytes for all branches that are walked at once.
        workers: how many those are.
    """
    share, (cell, chunk) = memory // workers, _bytes(axes)
    with_whole_chunks = (share - chunk * CHUNK_CELLS) // cell
    return int(max(1, with_whole_chunks if with_whole_chunks >= CHUNK_CELLS else share // (cell + chunk)))


def memory_for(cells: int, workers: int, axes: int = 2) -> int:
    """Return the memory that `cells` cells on one level of a branch need: the inverse of `most_cells`."""
    cell, chunk = _bytes(axes)
    return workers * (cells * cell + min(cells, CHUNK_CELLS) * chunk)


def _bytes(axes: int) -> tuple[int, int]:
    """Return the bytes per cell of a level and of a chunk."""
    further = max(0, axes - 2)
    return CELL_BYTES + further * AXIS_CELL_BYTES, CHUNK_BYTES + further * AXIS_CHUNK_BYTES


def branch_count(
    levels_below: int, nodes: int, cells_below: int, levels_above: int, runs: int = RUNS, wanted: int = 0
) -> int:
    """Return into how many branches to cut the trunk, within the number of task runs that a release may make; 1 where none is worth it yet.

    Args:
        levels_below: how many levels the branches have.
        nodes: those that can be shared out.
        cells_below: the cells of the first level below them.
        levels_above: how many levels the trunk has below level 0.
        runs: the task runs that a level of a branch takes.
        wanted: how many a cluster wants, and it is worth cutting for half of them; 0 where threads of one machine walk the branches.
    """
    if wanted:
        most, worth, finer = wanted, wanted // 2, FINER
    else:
        # ingest, tree, publish; validate; the trunk
        single = 3 + (1 + levels_above + levels_below) + runs * (1 + levels_above)
        left = min(TASK_RUNS, MOST_TASK_RUNS - single)
        most = min(MOST_BRANCHES, left // (runs * levels_below))
        worth, finer = min(WORTH_CUTTING, most), 1
    count = max(1, min(most, nodes, cells_below * finer // BRANCH_CELLS))
    return 1 if levels_below > 1 and count < worth else count


def pieces_of(
    depth: int,
    level: int,
    nodes: int,
    cells_below: int,
    most: int,
    *,
    is_trunk: bool,
    runs: int = RUNS,
    wanted: int = 0,
) -> int:
    """Return into how many branches to cut a branch after one of its levels; 0 if it goes on whole.

    Args:
        nodes: that are left of it in the branch.
        cells_below: that they have on the next level.
        most: cells of a level that a branch may have.
        is_trunk: whether the branch is the trunk. Others are cut only where they have too many cells.
        wanted: into how many a cluster wants the trunk to be cut; 0 where threads of one machine walk it.
    """
    count = branch_count(depth - level, nodes, cells_below, level, runs, wanted) if is_trunk else 1
    return 0 if nodes < 2 or (count == 1 and cells_below <= most) else count


def branch_name(number: int, parent: str = "") -> str:
    """Return `b00`, `b01`, …, or `b00-00`, `b00-01`, … for those into which `b00` is cut."""
    return f"{parent}-{number:02d}" if parent else f"b{number:02d}"


def top_branch(name: str) -> str:
    """Return the name of the branch of the trunk that a branch is part of, or is."""
    return name.partition("-")[0]


def slices_of(tree: Tree, frontier: Frontier, branches: int, most: int, complete: int = 0) -> list[slice]:
    """Return contiguous slices of nodes, of about equal expected work, each with at most `most` cells below it.

    Args:
        frontier: public.
        branches: how many slices are sought.
        most: cells; a single node with more makes a slice of its own.
        complete: as in `work_below`.
    """
    cells = cell_counts(tree, frontier)
    return [
        slice(part.start + within.start, part.start + within.stop)
        for part in cut(work_below(tree, frontier, complete), branches)
        for within in chunks(cells[part], most)
    ]


def work_below(tree: Tree, frontier: Frontier, complete: int = 0) -> NDArray[np.float64]:
    """Return how many cells may be expected on all levels below each node, shape (nodes,), from its public count.

    A node of count c has at most c nodes with records on any level below it, and they have children like its others.

    Args:
        complete: the finest level of which every cell is measured whatever its count.
    """
    expected = np.zeros(len(frontier))
    nodes = np.ones(len(frontier))
    for level, fan_out in enumerate(_fan_outs(tree, frontier), frontier.level + 1):
        expected += (nodes if level <= complete else np.minimum(nodes, frontier.counts)) * fan_out
        nodes = np.minimum(nodes * fan_out, _MORE_THAN_RECORDS)  # their number may exceed the largest float
    return expected


def _fan_outs(tree: Tree, frontier: Frontier) -> Iterator[NDArray[np.float64]]:
    """Yield, for each level below a frontier, how many cells it has below each node per cell of the level above it."""
    reached = tree.axis_levels(frontier.level)
    first = [areas.copy() for areas in frontier.areas]
    end = [areas + 1 for areas in frontier.areas]
    at = list(reached)
    for axis in tree.steps[frontier.level :]:
        first_child = tree.axes[axis].first_child[at[axis]]
        areas = end[axis] - first[axis]
        first[axis], end[axis] = first_child[first[axis]], first_child[end[axis]]
        at[axis] += 1
        yield (end[axis] - first[axis]) / areas


def cut(weights: IntArray | NDArray[np.float64], branches: int) -> list[slice]:
    """Return at most `branches` contiguous slices of nodes, of about equal weight, each with at least one node.

    Args:
        weights: shape (nodes,), > 0, public: how much work hangs below each node.
    """
    ends = np.cumsum(weights)
    goals = ends[-1] * np.arange(1, branches) / branches
    cuts = np.unique(np.concatenate(([0], np.searchsorted(ends, goals, side="left") + 1, [len(weights)])))
    return [slice(int(start), int(stop)) for start, stop in pairwise(cuts)]
