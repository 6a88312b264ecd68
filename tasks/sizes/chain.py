"""The chain of Fioretto, Van Hentenryck and Zhu: running sums over all sizes and regions of a level. For comparisons only."""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import isotonic_regression

from tasks.sizes.down import within
from tasks.sizes.monotone import round_half_up
from tasks.sizes.tables import levels_above
from tasks.tree.axis import IntArray


def chain_of(sizes: IntArray) -> IntArray:
    r"""Return the running sums of group sizes in the order of size, then region, from the last to each one.

    .. math:: u_{rs} = \sum_{(k, q) \ge (s, r)} n_{qk}

    The paper sums from the first on. Then a person who lives alone and leaves moves all N |R| sums, unless groups of size 0 come first.
    Summed from the last on, |R| sums move whoever leaves, as with groups of size 0, and no number of groups has to be known.

    Args:
        sizes: n, shape (regions, N), int64.
    Returns:
        u, of the same shape.
    """
    running = np.cumsum(sizes.T.ravel()[::-1])[::-1]
    return np.ascontiguousarray(running.reshape(sizes.shape[::-1]).T)


def from_chain(
    noisy: Sequence[IntArray],
    variances: Sequence[float],
    first_child: Sequence[IntArray],
    groups: IntArray | None = None,
) -> list[IntArray]:
    r"""Return the group sizes whose running sums are nearest to noisy ones, in weighted squares.

    .. math:: \min \sum_\ell \sigma_\ell^{-2} \sum_{r, s} (\hat u_{rs} - u_{rs})^2

    where running sums do not increase along the sizes and regions of a level, and that of a region is that of its first child.
    So all regions with the same first leaf have one value, at the weighted mean of their noisy sums. What is left is one isotonic
    regression over sizes × leaves. Rounded, it is the best in whole numbers too.

    Args:
        noisy: u of each level from the root to the finest, shape (regions, N), int64; may be negative.
        variances: as in `from_tails`; likewise `first_child` and `groups`.
    Returns:
        As `from_tails`.
    Guarantees:
        Post-processing: reads no true count. Deterministic. Children add up to their parents.
    Source:
        Fioretto, Van Hentenryck and Zhu (2020), Model 3 with the constraint of recurrence (6b); it needs none of their cost tables.
    """
    regions, largest = noisy[-1].shape
    sums, weights = np.zeros((regions, largest)), np.zeros(regions)
    leaf = np.arange(regions)  # the first one of each region
    for level in reversed(range(len(noisy))):
        sums[leaf] += noisy[level] / variances[level]
        weights[leaf] += 1 / variances[level]
        if level:
            leaf = leaf[first_child[level - 1][:-1]]
    means = sums / weights[:, None]
    pooled = isotonic_regression(means.T.ravel(), weights=np.tile(weights, largest), increasing=False).x
    running = np.maximum(round_half_up(pooled), 0)
    if groups is not None:
        running = np.minimum(running, groups.sum())
    running[:-1] -= running[1:].copy()
    levels = levels_above(np.ascontiguousarray(running.reshape(largest, regions).T), first_child)
    return within(levels, first_child, groups)
