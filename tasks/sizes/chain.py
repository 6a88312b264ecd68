"""The chain of Fioretto, Van Hentenryck and Zhu: running sums over all sizes and regions of a level. For comparisons only."""

import numpy as np
from scipy.optimize import isotonic_regression

from tasks.sizes.down import within
from tasks.sizes.monotone import round_half_up
from tasks.sizes.tables import NoisyLevels, levels_above
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


def from_chain(levels: NoisyLevels) -> list[IntArray]:
    r"""Return the group sizes whose running sums are nearest to noisy ones, in weighted squares.

    .. math:: \min \sum_\ell \sigma_\ell^{-2} \sum_{r, s} (\hat u_{rs} - u_{rs})^2

    where running sums do not increase along the sizes and regions of a level, and that of a region is that of its first child.
    So all regions with the same first leaf have one value, at the weighted mean of their noisy sums. What is left is one isotonic
    regression over sizes × leaves. Rounded, it is the best in whole numbers too.

    Args:
        levels: what was measured; u are its noisy counts.
    Returns:
        As `from_tails`.
    Guarantees:
        Post-processing: reads no true count. Deterministic. Children add up to their parents.
    Source:
        Fioretto, Van Hentenryck and Zhu (2020), Model 3 with the constraint of recurrence (6b); it needs none of their cost tables.
    """
    regions, largest = levels.noisy[-1].shape
    sums, weights = np.zeros((regions, largest)), np.zeros(regions)
    leaf = np.arange(regions)  # the first one of each region
    for level, (noisy, variance) in reversed(list(enumerate(zip(levels.noisy, levels.variances, strict=True)))):
        sums[leaf] += noisy / variance
        weights[leaf] += 1 / variance
        if level:
            leaf = leaf[levels.first_child[level - 1][:-1]]
    means = sums / weights[:, None]
    pooled = isotonic_regression(means.T.ravel(), weights=np.tile(weights, largest), increasing=False).x
    running = np.maximum(round_half_up(pooled), 0)
    if levels.total is not None:
        running = np.minimum(running, levels.total)
    running[:-1] -= running[1:].copy()
    finest = np.ascontiguousarray(running.reshape(largest, regions).T)
    return within(levels_above(finest, levels.first_child), levels.first_child, levels.groups)
