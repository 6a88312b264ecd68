r"""Mechanisms that measure cumulative counts: M_c of Fioretto, Van Hentenryck and Zhu.

The paper publishes c, the groups of at most each size, for a known number of groups. They are the groups without those of a larger size,

.. math:: c_{rs} = A_r - t_{r, s + 1}

so what is measured here are tails, which need no number of groups: with sizes from 1 on, c moves in all N columns when a person who
lives alone leaves. Results are those of `from_tails`.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tasks.sizes.direct import from_sizes_exact
from tasks.sizes.down import settle_down
from tasks.sizes.monotone import falling, round_half_up
from tasks.sizes.tables import NoisyLevels, sizes_of, sums_over_children
from tasks.sizes.tails import up
from tasks.tree.axis import FloatArray, IntArray

_MOST_TURNS = 60  # between tails that add up and tails that do not increase
_CLOSE = 0.05  # records: sums that are met as nearly as this need no further turn


def from_cumulative(levels: NoisyLevels) -> list[IntArray]:
    """Return whole group sizes near to the nearest real tails that add up: M_c, rounded from the root down."""
    real = nearest_tails(levels.noisy, levels.variances, levels.first_child)
    sizes = sizes_of(round_half_up(_at_most(real[0], levels.total)))
    return settle_down(sizes, real, [np.ones(len(of)) for of in real], levels.first_child, levels.groups)


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
