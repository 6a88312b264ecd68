"""Ranges as sums of the fewest noisy nodes, without least squares: what the binary tree mechanism answers. For comparisons only."""

from collections.abc import Sequence

import numpy as np

from tasks.tree.axis import Axis
from tasks.unbiased.workloads import LEAVES, NODES, PREFIX, RANGES, WORST


def variances_in_pieces(axis: Axis, variances: Sequence[float]) -> dict[str, float]:
    r"""Return the mean variance of all ranges, prefixes, nodes and leaves of an axis, each the sum of its fewest nodes.

    With them comes that of the worst node, all of them records squared.

    A node is a piece of a range if it lies inside and its parent does not. With leaves numbered from 1 to n, :math:`i (n + 1 - j)`
    ranges and :math:`n + 1 - j` prefixes hold all leaves from i to j.

    Args:
        axis: of a tree without other axes.
        variances: of the noisy counts of levels 0 to T; 0 where a level is exact. A level that repeats the one above has its variance.
    Source:
        Chan, Shi and Song (2011); Dwork, Naor, Pitassi and Rothblum (2010).
    """
    n, nodes = axis.areas(axis.depth), 0
    found = dict.fromkeys((RANGES, PREFIX, NODES), 0.0)
    above = {RANGES: np.zeros(1), PREFIX: np.zeros(1)}  # how many of them hold the parent of each node
    for level, variance in enumerate(variances):
        first = axis.first_descendants(level, axis.depth)
        after = (n - first[1:] + 1).astype(np.float64)
        holding = {RANGES: (first[:-1] + 1) * after, PREFIX: after}
        for workload, of in holding.items():
            found[workload] += variance * float((of - above[workload]).sum())
        found[NODES] += variance * len(after)
        nodes += len(after)
        if level < axis.depth:
            above = {workload: np.repeat(of, np.diff(axis.first_child[level])) for workload, of in holding.items()}
    means = {RANGES: found[RANGES] / (n * (n + 1) / 2), PREFIX: found[PREFIX] / n, NODES: found[NODES] / nodes}
    return means | {LEAVES: variances[-1], WORST: max(variances)}
