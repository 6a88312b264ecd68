r"""Counts of the days of a series measured together, so that cumulative counts stay accurate: a factor over the days, and what follows from it.

With :math:`x_t` the true count of day t, and whole weights :math:`c_0, c_1, \dots`, what is measured on day t, and released, is

.. math:: y_t = \sum_k c_k x_{t-k} + z_t, \qquad n_t = \mathrm{rint}\Bigl(\frac{y_t - \sum_{k \ge 1} c_k n_{t-k}}{c_0}\Bigr)

where every :math:`z_t` is an independent discrete Gaussian of scale σ. The sums are whole, so that the exact law and its cost hold. The errors
:math:`e = n - x` follow :math:`\sum_k c_k e_{t-k} = z_t + r_t`, where the rounding r is uniform on whole numbers below :math:`c_0 / 2`: the noise
of a day is that of a row of the inverse factor, and errors of later days take back much of those of earlier ones.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tasks.tree.axis import FloatArray, IntArray

BAND = 32  # days whose counts one sum holds, at most: so many days true counts are kept
LEAST_DEVIATION = 0.5  # of the noise of one day, records: from here on rounding is as good as independent of it

MOST_DAYS = 1000  # of a series

_OWN = 255  # the weight of the day itself; odd, so that nothing lies halfway between two whole counts


@dataclass(frozen=True, slots=True)
class Days:
    """A factor over days: lower triangular, Toeplitz and banded.

    Attributes:
        weights: c, of the day itself, the day before, and so on; whole numbers >= 0, the first one odd.
    Source:
        Fichtenberger, Henzinger and Upadhyay (2023) for the square root of the prefix sums, Denisov et al. (2022) for adaptive tables,
        Choquette-Choo et al. (2023) for bands, Canonne, Kamath and Steinke (2020) for whole numbers.
    """

    weights: tuple[int, ...]

    @property
    def square(self) -> int:
        """The largest squared norm of a column: how far one record of one day moves the sums of all days."""
        return sum(weight**2 for weight in self.weights)

    def deviation(self, scale: float, before: int) -> float:
        """Return the standard deviation of the noise of the count of a day, records.

        Args:
            scale: σ of what is drawn, in units of the sums.
            before: how many measured days directly precede it; at most the last `BAND` - 1 of them are in its sum.
        """
        own, _ = _errors(self.weights, before + 1)
        return self._of_day(scale) * math.sqrt((own**2).sum())

    def cumulative_deviation(self, scale: float, runs: Sequence[int]) -> float:
        """Return the standard deviation of the noise of the sum of the counts of all days that are measured, records.

        Args:
            runs: how many days each run of measured days has; each run begins anew, after days that are missing.
        """
        variances = ((_errors(self.weights, run)[1] ** 2).sum() for run in runs if run)
        return self._of_day(scale) * math.sqrt(sum(variances))

    def combined(self, counts: Iterable[IntArray]) -> IntArray:
        """Return the weighted sums of true counts of cells, int64, shape (cells,). Confidential.

        Args:
            counts: of the day itself, the day before, and so on, int64, shape (cells,) each; as many days as are in its sum.
        """
        first, *others = (weight * of for weight, of in zip(self.weights, counts, strict=False))
        together: IntArray = np.sum([first, *others], axis=0)
        return together

    def released(self, measured: IntArray, before: Sequence[IntArray]) -> IntArray:
        """Return n, the noisy counts of the cells of a day, int64, shape (cells,), records.

        Args:
            measured: y, int64, shape (cells,).
            before: n of the day before, the day before that, and so on: of all other days in the sums.
        Guarantees:
            Post-processing: reads no true count. Deterministic.
        """
        own, *others = self.weights
        rest = measured - sum(
            (weight * of for weight, of in zip(others, before, strict=False)), np.zeros_like(measured)
        )
        whole: IntArray = np.floor_divide(rest + own // 2, own)
        return whole

    def _of_day(self, scale: float) -> float:
        """Return the standard deviation of what a day adds by itself: its own draw and its rounding, records."""
        own = self.weights[0]
        return math.sqrt((scale / own) ** 2 + (1 - own**-2) / 12)


def days_of(days: int) -> Days:
    """Return the factor for a series of some days: the square root of the prefix sums, cut off after `BAND` days and rounded."""
    weights, weight = list[int](), float(_OWN)
    for day in range(min(days, BAND)):
        weights.append(round(weight))
        weight *= (2 * day + 1) / (2 * day + 2)
    return Days(tuple(weights))


@lru_cache(maxsize=64)
def _errors(weights: tuple[int, ...], days: int) -> tuple[FloatArray, FloatArray]:
    """Return by how much what a day adds moves the count of each later day, and the sum of all counts until then, shape (days,) each."""
    below = np.array(weights[1:]) / weights[0]
    own = np.zeros(days)
    own[0] = 1
    for day in range(1, days):
        reach = min(day, len(below))
        own[day] = -(below[:reach] @ own[day - reach : day][::-1])
    return own, np.cumsum(own)
