"""Branches: slices of the trunk's frontier, cut by public counts alone."""

from itertools import pairwise

import numpy as np

from tasks.tree.axis import IntArray

TRUNK = "trunk"
TRUNK_CELLS = 10_000  # the first level with more cells than this is walked in branches
BRANCH_CELLS = 10_000  # of its first level that are worth a branch of their own; smaller ones travel together
TASK_RUNS = 180  # of measuring and optimising in branches; the trunk and the single stages take the rest of 200
MOST_BRANCHES = 16


def branch_count(levels_below: int, cells_below: int) -> int:
    """Return into how many branches to cut a trunk: as many as are worth it within a release's task runs.

    Args:
        levels_below: how many levels the branches have; each takes two task runs per branch.
        cells_below: the cells of the first of them.
    """
    affordable = min(MOST_BRANCHES, TASK_RUNS // (2 * levels_below))
    return max(1, min(affordable, cells_below // BRANCH_CELLS))


def branch_name(number: int) -> str:
    """Return `b00`, `b01`, …"""
    return f"b{number:02d}"


def cut(weights: IntArray, branches: int) -> list[slice]:
    """Return at most `branches` contiguous slices of nodes, of about equal weight, each with at least one node.

    Args:
        weights: shape (nodes,), >= 1, public: how many cells hang below each node.
        branches: the number of slices sought.
    """
    ends = np.cumsum(weights)
    goals = ends[-1] * np.arange(1, branches) / branches
    cuts = np.unique(np.concatenate(([0], np.searchsorted(ends, goals, side="left") + 1, [len(weights)])))
    return [slice(int(start), int(stop)) for start, stop in pairwise(cuts)]
