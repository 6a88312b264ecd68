"""The totals of one axis, as a tree of their own: least squares up the axis, and whole counts down it."""

from collections.abc import Mapping

import numpy as np

from tasks.optimize.euclidean import nearest_in_euclid
from tasks.optimize.reconcile import NodeEstimates, combined, measured, rounded
from tasks.tree.axis import Axis, IntArray


def settle_axis(
    axis: Axis, fixed: Mapping[int, IntArray], noisy: Mapping[int, tuple[IntArray, float]]
) -> dict[int, IntArray]:
    r"""Return non-negative whole totals of an axis that add up from level to level, and to those that are known.

    Up, each area's noisy count and the sum over its parts make one estimate, by least squares. Down, the parts of an area are
    the whole counts nearest to their estimates, in squares, that sum to its own.

    Args:
        axis: the axis.
        fixed: by axis level, the totals that are known, shape (areas of the level,), int64, records, >= 0; 0 is everything,
            and all others lie above the measured levels.
        noisy: by axis level, the noisy counts of all its areas, shape (areas of the level,), int64, records, and their
            variance. Levels may be missing.
    Returns:
        By measured axis level, int64, shape (areas of the level,), records.
    Guarantees:
        Post-processing: reads no true count. Deterministic.
    Source:
        Hay, Rastogi, Miklau and Suciu (2010) for the estimates.
    """
    levels, estimates = sorted(noisy), dict[int, NodeEstimates]()
    below: NodeEstimates | None = None
    for level in reversed(levels):
        counts, variance = noisy[level]
        own = combined(counts, variance, below) if below else measured(counts, variance)
        estimates[level] = own
        if level > levels[0]:
            starts = axis.first_descendants(levels[levels.index(level) - 1], level)[:-1]
            below = NodeEstimates(np.add.reduceat(own.values, starts), np.add.reduceat(own.variances, starts))
    above = max(fixed)
    totals, found = fixed[above], dict[int, IntArray]()
    for level in levels:
        first = axis.first_descendants(above, level)
        totals = found[level] = nearest_in_euclid(rounded(estimates[level]), first, totals)
        above = level
    return found
