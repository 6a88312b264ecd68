"""What mechanisms measure of group sizes, and how far one privacy unit moves it: tails, sizes, and running sums over all regions (the chain).

A person who leaves a group of size σ makes it one of size σ − 1, or of size 0, which has no column.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from tasks.accounting.sensitivity import SUBSTITUTION, Sensitivity, sensitivity_of
from tasks.sizes.down import within
from tasks.sizes.tables import NoisyLevels, levels_above, round_half_up, tails_of
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
    from scipy.optimize import isotonic_regression  # only where it is used: it takes a fifth of a second to import

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


@dataclass(frozen=True, slots=True)
class Statistic:
    """Whole numbers that are measured of every region and size of a level.

    Attributes:
        of: from true group sizes of a level, shape (regions, N), int64, to the statistic, of the same shape.
        sensitivity: how far one unit moves a level, from the relation of neighbours, the most records of a unit, and the number of
            regions of the level.
    """

    name: str
    of: Callable[[IntArray], IntArray]
    sensitivity: Callable[[str, int, int], Sensitivity]


def _moved_sizes(neighbours: str, max_records: int, _regions: int) -> Sensitivity:
    r"""Return how far one unit moves the sizes n.

    A record that leaves moves n by :math:`e_{\sigma - 1} - e_\sigma`, one that enters by :math:`e_{\tau + 1} - e_\tau`. Two vectors of
    one kind have an inner product of at most 2, two of different kinds of at most 1, so that with m of each kind

    .. math:: \Delta_2^2 \le 2 m^2 + 2 m^2 + 2 m^2
    """
    m = max_records
    if neighbours == SUBSTITUTION:
        return Sensitivity(cells=4 * m, l1=4 * m, l2_squared=6 * m * m, largest=2 * m)
    return Sensitivity(cells=2 * m, l1=2 * m, l2_squared=2 * m * m, largest=m)


def _moved_chain(neighbours: str, max_records: int, regions: int) -> Sensitivity:
    """Return how far one unit moves the chain: a record that leaves lowers as many running sums by 1 as there are regions."""
    one = sensitivity_of(neighbours, max_records)
    return Sensitivity(regions * one.cells, regions * one.l1, regions * one.l2_squared, one.largest)


SIZES = Statistic("sizes", lambda sizes: sizes, _moved_sizes)
# a record that leaves lowers one tail by 1, that of the size its group had
# the cumulative counts too: those of at most s are the groups without t of s + 1
TAILS = Statistic("tails", tails_of, lambda neighbours, max_records, _: sensitivity_of(neighbours, max_records))
CHAIN = Statistic("chain", chain_of, _moved_chain)

STATISTICS: Mapping[str, Statistic] = MappingProxyType({of.name: of for of in (TAILS, SIZES, CHAIN)})  # by their names
