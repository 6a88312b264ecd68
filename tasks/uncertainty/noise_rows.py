r"""How many rows of a level are noise alone, their true count being 0: at most so many, whichever cells are rows.

Fix a level, and all noise above it. That fixes its measured cells. Their noises are independent and symmetric, and a count has
no more than a stated probability q of noise above a margin m. Let S be the number of measured cells with a true count of 0
whose noise is above m, and D of those whose noise is below −m. Rows that are noise have a noisy count of at most m, or are
among the S, so that there are at most K + S of them, K being the rows with a noisy count of at most m. Of S is known that

.. math:: S \le f_\beta(D) \le f_\beta(L), \qquad S \le b_\beta(M, q)

each but for a probability β. L counts the measured cells with a noisy count below −m: the D cells, and those whose noise has hidden a
true count. f is how often a fair coin falls on one side before it falls D + 1 times on the other, and b how many of M coins fall on a
side of probability q: both but for β. The first holds because each cell that is in S or D is in S with a probability of 1/2.
All margins are fixed before any noise is looked at, and β is the stated risk, shared out among them, so that the least bound may be taken.

Nothing better can be had from below: where the noise is large, a true count of 1 looks like one of 0.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betainc, log_ndtr

from tasks.tree.axis import IntArray
from tasks.uncertainty.signals import Margin

RISK = 0.05  # with which there are more such rows on a level than is stated

_DEVIATIONS = np.array([0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 3, 3.5, 4, 5])  # of normal noise, at the margins
LOG_TAILS: tuple[float, ...] = tuple(log_ndtr(-_DEVIATIONS).tolist())  # log q of the margins


@dataclass(frozen=True, slots=True, eq=False)
class BeyondMargins:
    """How many noisy counts of a level are beyond its margins.

    Attributes:
        below: of the measured cells, those with a noisy count below −m, for each margin m, shape (margins,).
        within: of the rows, those with a noisy count of at most m, likewise.
    """

    below: IntArray
    within: IntArray

    def __add__(self, other: "BeyondMargins") -> "BeyondMargins":
        """Return what there is of both."""
        return BeyondMargins(self.below + other.below, self.within + other.within)

    def at_most(self, cells: int, rows: int) -> int:
        """Return how many of the rows have a true count of 0 at most, but for the stated risk.

        Args:
            cells: M, how many were measured.
            rows: how many of them are rows.
        """
        beta = RISK / (2 * len(LOG_TAILS))
        above = np.minimum(
            [_coins_above(below, beta) for below in self.below.tolist()],
            [_binomial_above(cells, tail, beta) for tail in np.exp(LOG_TAILS).tolist()],
        )
        return min(rows, int((self.within + above).min()))


def _coins_above(below: int, risk: float) -> int:
    """Return how often a fair coin shows heads, but for a risk, before it has shown tails once more than `below` times."""
    return _quantile(lambda k: float(betainc(k + 1, below + 1, 0.5)), risk)


def _binomial_above(cells: int, probability: float, risk: float) -> int:
    """Return how many of the cells are chosen at most, but for a risk, where each is with this probability."""
    return _quantile(lambda k: float(betainc(k + 1, cells - k, probability)) if k < cells else 0.0, risk)


def _quantile(tail: Callable[[int], float], risk: float) -> int:
    """Return the least k >= 0 with tail(k) <= risk; the tail is P[X > k] of a whole number X >= 0."""
    low, high = -1, 1
    while tail(high) > risk:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if tail(middle) > risk else (low, middle)
    return high


def beyond(measured: IntArray, rows: IntArray, margins: Sequence[Margin]) -> BeyondMargins:
    """Return how many noisy counts are beyond margins.

    Args:
        measured: the noisy counts of measured cells, int64, shape (cells,), records.
        rows: those of rows, likewise.
        margins: what the noise of a cell exceeds with a probability of at most q, for each of `LOG_TAILS`, records; of all cells, or
            of each where measured cells are the rows.
    """
    below = [np.count_nonzero(measured < -margin) for margin in margins]
    return BeyondMargins(np.array(below), np.array([np.count_nonzero(rows <= margin) for margin in margins]))
