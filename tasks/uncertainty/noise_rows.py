r"""How many rows of a level are noise alone, how much stands above it, and what is known of that once noisy counts were seen.

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

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tasks.laws.gaussian import gaussian_density
from tasks.laws.law import LevelNoise
from tasks.tree.axis import FloatArray, IntArray
from tasks.uncertainty.binomial import upper_tails
from tasks.uncertainty.intervals import sum_margins
from tasks.uncertainty.mixture import CountMixture
from tasks.uncertainty.signals import Margin

RISK = 0.05  # with which there are more such rows on a level than is stated

_DEVIATIONS = (0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 2.5, 3, 3.5, 4, 5)  # of normal noise, at the margins
LOG_TAILS = tuple(math.log(math.erfc(at / math.sqrt(2)) / 2) for at in _DEVIATIONS)  # log q of the margins


@dataclass(frozen=True, slots=True, eq=False)
class BeyondMargins:
    """How many noisy counts of a level are beyond its margins.

    Attributes:
        below: of the measured cells, those with a noisy count below −m, for each margin m, shape (margins,).
        within: of the rows, those with a noisy count of at most m, for each margin m, shape (margins,).
    """

    below: IntArray
    within: IntArray

    def __add__(self, other: "BeyondMargins") -> "BeyondMargins":
        """Return what there is of both."""
        return BeyondMargins(self.below + other.below, self.within + other.within)

    def at_most(self, measured: int, rows: int) -> int:
        """Return how many of the rows have a true count of 0 at most, but for the stated risk.

        Args:
            measured: M, how many cells of the level were measured.
        """
        beta, tails = RISK / (2 * len(LOG_TAILS)), np.exp(LOG_TAILS)
        # how often a fair coin shows heads before it has shown tails once more than `below` times, and how many cells are chosen
        of_coins = _quantiles(
            lambda k: upper_tails(k + self.below + 1, np.full(len(tails), 0.5), k)[1], beta, len(tails)
        )
        of_cells = _quantiles(lambda k: upper_tails(measured, tails, np.minimum(k, measured))[1], beta, len(tails))
        return min(rows, int((self.within + np.minimum(of_coins, of_cells)).min()))


def _quantiles(tail: Callable[[IntArray], FloatArray], risk: float, numbers: int) -> IntArray:
    """Return the least k >= 0 with tail(k) <= risk, shape (numbers,); the tail is P[X > k] of whole numbers X >= 0."""
    low, high = np.full(numbers, -1), np.ones(numbers, dtype=np.int64)
    while (is_above := tail(high) > risk).any():
        low, high = np.where(is_above, high, low), np.where(is_above, 2 * high, high)
    while (high - low > 1).any():
        middle = np.maximum((low + high) // 2, 0)  # or 0 where only it is left
        is_above = tail(middle) > risk
        low, high = np.where(is_above, middle, low), np.where(is_above, high, middle)
    return high


def beyond(measured: IntArray, rows: IntArray, margins: Sequence[Margin]) -> BeyondMargins:
    """Return how many noisy counts are beyond margins.

    Args:
        measured: the noisy counts of measured cells, int64, shape (cells,), records.
        rows: the noisy counts of rows, int64, shape (rows,), records.
        margins: what the noise of a cell exceeds with a probability of at most q, for each of `LOG_TAILS`, records; of all cells, or
            of each where measured cells are the rows.
    """
    below = [np.count_nonzero(measured < -margin) for margin in margins]
    return BeyondMargins(np.array(below), np.array([np.count_nonzero(rows <= margin) for margin in margins]))


KNOWN_WITHIN = 0.1  # of the rows of a level

_DIGITS = 3  # of a share
_UNITS = 128  # of normal noise, to a standard deviation
_PARTS = 4  # of a whole count, where cells differ in their noise
_NOTHING, _ZERO = np.zeros(0, dtype=np.int64), np.zeros(1, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of a level's rows, in [0, 1].

    Attributes:
        noise: of rows with a true count of 0, estimated; None where the noisy counts agree with shares that are further than
            `KNOWN_WITHIN` from any estimate.
        noise_at_most: of such rows there are no more, but for a risk of `tasks.uncertainty.noise_rows.RISK`.
        rows_above: of rows with a true count above twice the noise, estimated.
        records_above: of the records in rows, those in such rows, estimated.
    """

    noise: float | None
    noise_at_most: float
    rows_above: float
    records_above: float


EXACT = Shares(0.0, 0.0, 1.0, 1.0)


class SeenCounts:
    """The noisy counts of a level that is measured, as they are read."""

    def __init__(self, noise: LevelNoise) -> None:
        """Start without counts; each cell bears the noise."""
        self._mixture = CountMixture(noise.density, noise.scale, noise.sigma)
        self._margins = [noise.quantile(log_tail) for log_tail in LOG_TAILS]
        self._beyond = beyond(_NOTHING, _NOTHING, self._margins)
        self._cells = self._rows = 0

    def add(self, cells: IntArray) -> None:
        """Add the noisy counts of measured cells, shape (cells,), records."""
        self._mixture.add_cells(cells)
        self._beyond += beyond(cells, _NOTHING, self._margins)
        self._cells += len(cells)

    def add_rows(self, rows: IntArray) -> None:
        """Add the noisy counts of rows, each of which is a measured cell as well, shape (rows,), records."""
        self._mixture.add_rows(rows)
        self._beyond += beyond(_NOTHING, rows, self._margins)
        self._rows += len(rows)

    def add_all(self, other: "SeenCounts") -> None:
        """Add the cells and rows of another part of the same level."""
        self._mixture.add_all(other._mixture)
        self._beyond += other._beyond
        self._cells += other._cells
        self._rows += other._rows

    def shares(self) -> Shares | None:
        """Return what is known of the rows; None where there is none."""
        return shares_from(self._mixture, self._beyond, self._cells, self._rows)


def shares_of_sums(noise: LevelNoise, noisy: IntArray, leaves: IntArray, possible: int) -> Shares | None:
    """Return what is known of the rows of a level whose cells are sums of noisy leaves; None where there is no row.

    Args:
        noisy: of the rows: all cells whose noisy count is not 0, shape (rows,), records.
        leaves: of each row, shape (rows,).
    """
    margins: Sequence[IntArray] = [sum_margins(noise, leaves, log_tail) for log_tail in LOG_TAILS]
    mixture = mixture_of_sums(noise, noisy, leaves, np.arange(len(noisy)), possible - len(noisy))
    return shares_from(mixture, beyond(noisy, noisy, margins), possible, len(noisy))


def mixture_of_sums(
    noise: LevelNoise, noisy: IntArray, terms: IntArray, rows: IntArray, zeros: int = 0
) -> CountMixture:
    """Return the noisy counts of all cells and of some, to estimate what those are. Noise of sums of unlike sizes is taken to be normal.

    Args:
        noise: of one of the counts that are added up.
        noisy: of all cells, int64, shape (cells,), records.
        terms: how many each is the sum of, shape (cells,).
        rows: the places of some cells.
        zeros: how many more cells there are, whose noisy counts are 0.
    """
    if len(terms) and terms.min() < terms.max():
        return normal_mixture(noisy, noise.sigma * np.sqrt(terms), rows, zeros)
    width = int(terms[0]) if len(terms) else 1
    mixture = CountMixture(noise.density, noise.scale, noise.sigma * math.sqrt(width), width)
    mixture.add_cells(noisy)
    mixture.add_cells(_ZERO, zeros)
    mixture.add_rows(noisy[rows])
    return mixture


def normal_mixture(noisy: IntArray, deviations: FloatArray, rows: IntArray, zeros: int = 0) -> CountMixture:
    """Return the noisy counts of all cells and of some, to estimate what those are, where their noise is taken to be normal.

    A whole count stands for the numbers that round to it, in as many parts as there are `_PARTS`, so that the bins of cells whose noise
    differs are as full as those of a density.

    Args:
        deviations: the standard deviation of the noise of each, float64, shape (cells,), > 0, records. Other arguments are those of
            `mixture_of_sums`.
    """
    unit = np.sqrt(deviations**2 + 1 / 12) / _UNITS  # of each cell's own noise, and of rounding
    mixture = CountMixture(gaussian_density, _UNITS, _UNITS, one=1 / float(unit.max(initial=1 / _UNITS)))
    for part in (np.arange(_PARTS) + 0.5) / _PARTS - 0.5:
        units = np.rint((noisy + part) / unit).astype(np.int64)
        mixture.add_cells(units, 1 / _PARTS)
        mixture.add_cells(_ZERO, zeros / _PARTS)
        mixture.add_rows(units[rows], unit[rows], 1 / _PARTS)
    return mixture


def shares_from(mixture: CountMixture, seen: BeyondMargins | None, measured: int, rows: int) -> Shares | None:
    """Return what is known of rows, from what was seen of their level; None where there is none.

    Args:
        seen: how far counts are beyond margins; None where nothing follows from that, so that all rows may be noise.
        measured: how many cells of the level have a noisy count, or, where cells are sums of leaves, how many it has.
    """
    if not rows:
        return None
    at_most, likely = 1.0, mixture.likely()
    if seen:
        at_most = float(math.ceil(seen.at_most(measured, rows) / rows * 10**_DIGITS) / 10**_DIGITS)
    least, most = min(likely.least_noise, at_most), min(likely.most_noise, at_most)
    noise = round((least + most) / 2, _DIGITS) if most - least <= 2 * KNOWN_WITHIN else None
    return Shares(
        noise, at_most, round(min(likely.rows_above, 1 - (noise or 0)), _DIGITS), round(likely.records_above, _DIGITS)
    )
