"""The mechanisms of group sizes: what each one measures, tails, sizes (M_H) or cumulative counts (M_c), and how it makes a table of its noisy counts.

The paper publishes c, the groups of at most each size, for a known number of groups. They are the groups without those of a larger size,

.. math:: c_{rs} = A_r - t_{r, s + 1}

so what is measured here are tails, which need no number of groups: with sizes from 1 on, c moves in all N columns when a person who
lives alone leaves. Results are those of `from_tails`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tasks.optimize.euclidean import nearest_in_euclid
from tasks.sizes.down import settle_down, within
from tasks.sizes.programs import real_optimum, whole_optimum
from tasks.sizes.statistics import CHAIN, SIZES, TAILS, Statistic, from_chain
from tasks.sizes.tables import NoisyLevels, Scalar, falling, round_half_up, sizes_of, sums_over_children, tails_of
from tasks.tree.axis import FloatArray, IntArray

_LEAST_SHARE = 0.1  # of the budget of a level, below which noise is averaged over regions alone


def is_cleaned(variances: Sequence[float]) -> bool:
    r"""Return whether tails are made monotone before levels are joined: where every level has at least a tenth of the budget.

    The share of a level is :math:`\sigma_\ell^{-1} / \sum \sigma^{-1}`, that of ε under discrete Laplace noise. Monotone tails are nearer
    to the true ones, but lean to one side where many are 0. In the sum of thousands of children this counts, unless the level above
    is measured well enough to correct it. The rule reads public numbers only.
    """
    precisions = np.array(variances) ** -0.5
    return bool(precisions.min() >= _LEAST_SHARE * precisions.sum() * (1 - 1e-9))


def from_tails(levels: NoisyLevels, *, clean: bool | None = None) -> list[IntArray]:
    r"""Return group sizes near to noisy tails: up to estimates of all levels, and down to whole counts.

    Up, from the finest level, the noisy tails y of a region and the estimates of its children make an estimate z with variance v:

    .. math:: z = S + w (u - S), \quad S = \sum_c z_c, \quad w = \frac{V}{V + \sigma^2}, \quad V = \sum_c v_c, \quad v = w \sigma^2

    where u is y, made non-increasing where `clean` says so. The tails of the root are made non-increasing and whole; from there down see
    `settle_down`.

    Args:
        levels: what was measured; y are its noisy counts, and σ² its variances.
        clean: whether u is monotone. None decides by `is_cleaned`.
    Returns:
        For each level the groups of sizes 1 to N (or more), shape (regions, N), int64, >= 0.
    Guarantees:
        Post-processing: reads no true count. Deterministic. Children add up to their parents, and no region has more groups than
        there are. Tails of a true table are returned as that table.
    """
    clean = is_cleaned(levels.variances) if clean is None else clean
    estimates, spread = up(levels.noisy, levels.variances, levels.first_child, clean=clean)
    root = np.maximum(falling(estimates[0]), 0)
    if levels.total is not None:
        root = np.minimum(root, levels.total)
    return settle_down(sizes_of(round_half_up(root)), estimates, spread, levels.first_child, levels.groups)


def up(
    noisy: Sequence[IntArray] | Sequence[FloatArray],
    variances: Sequence[float],
    first_child: Sequence[IntArray],
    *,
    clean: bool,
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Return the estimates z of every level, shape (regions, N), and their variances, shape (regions,), as in `from_tails`."""
    estimates, spread = list[FloatArray](), list[FloatArray]()
    for level in reversed(range(len(noisy))):
        own = noisy[level].astype(np.float64)
        own = falling(own) if clean else own
        variance = np.full(len(own), float(variances[level]))
        if estimates:
            below = sums_over_children(estimates[0], first_child[level])
            together = sums_over_children(spread[0], first_child[level])
            weight = together / (together + variance)
            own = below + weight[:, None] * (own - below)
            variance = weight * variance
        estimates.insert(0, own)
        spread.insert(0, variance)
    return estimates, spread


# Results are those of `from_tails`, and what is noisy are group sizes in place of tails. A public number of groups bounds all groups in the
# optimum. Then groups move between siblings where a region would have too many.


def from_sizes(levels: NoisyLevels) -> list[IntArray]:
    """Return whole group sizes near to the real optimum that add up: M_H, rounded from the root down."""
    tails = [tails_of(of) for of in _bounded(real_optimum, levels)]
    return settle_down(sizes_of(round_half_up(tails[0])), tails, None, levels.first_child, levels.groups)


def from_sizes_relaxed(levels: NoisyLevels) -> list[IntArray]:
    """Return the real optimum, rounded count by count: M_H^r. Its sums do not hold, so that it is for comparisons only."""
    return [round_half_up(of) for of in _bounded(real_optimum, levels)]


def from_sizes_exact(levels: NoisyLevels) -> list[IntArray]:
    """Return the whole optimum: M_H^dp."""
    return within(_bounded(whole_optimum, levels), levels.first_child, levels.groups)


def _bounded(optimum: Callable[..., list[NDArray[Scalar]]], levels: NoisyLevels) -> list[NDArray[Scalar]]:
    """Return an optimum with no more groups than there are."""
    sizes = optimum(levels.noisy, levels.variances, levels.first_child)
    if levels.total is not None and sizes[0].sum() > levels.total:
        sizes = optimum(levels.noisy, levels.variances, levels.first_child, levels.total)
    return sizes


def from_sizes_top_down(levels: NoisyLevels) -> list[IntArray]:
    """Return group sizes from the root down: of each region and size the whole counts of its children nearest to the noisy ones."""
    root = np.maximum(levels.noisy[0], 0)
    if levels.total is not None and root.sum() > levels.total:
        root = nearest_to_total(levels.noisy[0], levels.total)
    return within(top_down(root, levels.noisy, levels.first_child), levels.first_child, levels.groups)


def nearest_to_total(noisy: IntArray, total: int) -> IntArray:
    """Return the whole counts nearest to those of one region, shape (1, N), that have a total."""
    return nearest_in_euclid(noisy[0], np.array([0, noisy.shape[1]]), np.array([total]))[None]


def top_down(root: IntArray, noisy: Sequence[IntArray], first_child: Sequence[IntArray]) -> list[IntArray]:
    """Return whole counts of all levels, given those of the root, shape (1, N), by the nearest counts of each family."""
    settled = [root]
    for counts, first in zip(noisy[1:], first_child, strict=True):
        regions, largest = counts.shape
        begins = np.append((np.arange(largest)[:, None] * regions + first[:-1]).ravel(), counts.size)
        nearest = nearest_in_euclid(counts.T.ravel(), begins, settled[-1].T.ravel())
        settled.append(np.ascontiguousarray(nearest.reshape(largest, regions).T))
    return settled


_MOST_TURNS = 60  # between tails that add up and tails that do not increase
_CLOSE = 0.05  # records: sums that are met as nearly as this need no further turn


def from_cumulative(levels: NoisyLevels) -> list[IntArray]:
    """Return whole group sizes near to the nearest real tails that add up: M_c, rounded from the root down."""
    real = nearest_tails(levels.noisy, levels.variances, levels.first_child)
    sizes = sizes_of(round_half_up(_at_most(real[0], levels.total)))
    return settle_down(sizes, real, None, levels.first_child, levels.groups)


def from_cumulative_relaxed(levels: NoisyLevels) -> list[IntArray]:
    """Return the nearest real tails, rounded count by count: M_c^r. Its sums do not hold, so that it is for comparisons only."""
    real = nearest_tails(levels.noisy, levels.variances, levels.first_child)
    return [sizes_of(round_half_up(_at_most(of, levels.total))) for of in real]


def from_cumulative_exact(levels: NoisyLevels) -> list[IntArray]:
    """Return the whole optimum of M_H^dp for the sizes of tails that were made monotone and whole, region by region: M_c^dp."""
    return from_sizes_exact(replace(levels, noisy=monotone_sizes(levels.noisy)))


def _at_most(values: FloatArray, most: int | None) -> FloatArray:
    return values if most is None else np.minimum(values, most)


def monotone_sizes(noisy: Sequence[IntArray]) -> list[IntArray]:
    """Return, for each region by itself, the sizes of the non-increasing tails >= 0 nearest to its noisy ones, in whole numbers."""
    return [sizes_of(round_half_up(np.maximum(falling(of.astype(np.float64)), 0))) for of in noisy]


def nearest_tails(
    noisy: Sequence[IntArray], variances: Sequence[float], first_child: Sequence[IntArray]
) -> list[FloatArray]:
    r"""Return the real tails nearest to noisy ones that add up over regions, do not increase with size, and are not negative.

    .. math:: \min \sum_{\ell, r, s} \sigma_\ell^{-2} (x_{rs} - t_{rs})^2

    Dykstra's projections take turns between tails that add up, which are least squares in two passes, and tails that do not increase.
    They end when all sums are met to a twentieth of a record, or after 60 turns. The result does not increase; it adds up nearly.
    """
    x: list[FloatArray] = [of.astype(np.float64) for of in noisy]
    q = [np.zeros_like(of) for of in x]
    for _ in range(_MOST_TURNS):
        added = _adding_up(x, variances, first_child)
        moved = [a + of for a, of in zip(added, q, strict=True)]
        x = [np.maximum(falling(a), 0) for a in moved]
        q = [a - of for a, of in zip(moved, x, strict=True)]
        if max(float(np.abs(a - of).max()) for a, of in zip(added, x, strict=True)) <= _CLOSE:
            break
    return x


def _adding_up(
    values: Sequence[FloatArray], variances: Sequence[float], first_child: Sequence[IntArray]
) -> list[FloatArray]:
    """Return the values nearest to given ones, in weighted squares, that add up over regions."""
    estimates, spread = up(values, variances, first_child, clean=False)
    settled = estimates[:1]
    for first, own, variance in zip(first_child, estimates[1:], spread[1:], strict=True):
        fan_out = np.diff(first)
        share = variance / np.repeat(sums_over_children(variance, first), fan_out)
        missing = np.repeat(settled[-1] - sums_over_children(own, first), fan_out, axis=0)
        settled.append(own + share[:, None] * missing)
    return settled


Estimator = Callable[[NoisyLevels], list[IntArray]]  # to the group sizes of each level, as `from_tails`


@dataclass(frozen=True, slots=True)
class Sizes:
    """A finish: an estimator makes numbers of groups of all that was measured; the finest ones are kept, and levels are their sums.

    Attributes:
        measured: what is measured at every level.
        estimate: makes group sizes of it.
        is_consistent: whether they add up over regions, whatever the noise. A release needs that; comparisons do without.
    """

    measured: Statistic
    estimate: Estimator
    is_consistent: bool = True


MECHANISMS: Mapping[str, Sizes] = MappingProxyType(
    {
        "group_sizes": Sizes(TAILS, from_tails),
        "sizes_direct": Sizes(SIZES, from_sizes),
        "sizes_direct_relaxed": Sizes(SIZES, from_sizes_relaxed, is_consistent=False),
        "sizes_direct_exact": Sizes(SIZES, from_sizes_exact),
        "sizes_cumulative": Sizes(TAILS, from_cumulative),
        "sizes_cumulative_relaxed": Sizes(TAILS, from_cumulative_relaxed, is_consistent=False),
        "sizes_cumulative_exact": Sizes(TAILS, from_cumulative_exact),
        "sizes_chain": Sizes(CHAIN, from_chain),
        "sizes_top_down": Sizes(SIZES, from_sizes_top_down),
    }
)
