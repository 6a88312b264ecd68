"""What can be said of unbiased estimates with known variances: their intervals, marks, and how much of their rows is noise.

An estimate is a sum of discrete Gaussians with known weights, and is taken to be normal; then it is rounded to a whole number within 1.
In a tree, estimates of a level are never positively correlated: the noise of siblings that share what their family lacks goes in
opposite directions. So events to one side are negatively associated (Joag-Dev and Proschan, 1983), and what
`tasks.uncertainty.signals` says of independent noise holds for them (Shao, 2000).

Intervals hold for cells that are fixed beforehand, whatever the dependence is. In a grid, cells that differ on two axes may be
positively correlated. There marks follow Benjamini and Yekutieli (2001), and how much of the rows is noise is estimated, without a bound.
"""

import math
from dataclasses import dataclass

import numpy as np

from tasks.laws.gaussian import normal_quantile
from tasks.tree.axis import BoolArray, FloatArray, IntArray
from tasks.uncertainty.intervals import NO_CAP, intervals
from tasks.uncertainty.noise_rows import EXACT, LOG_TAILS, Shares, beyond, normal_mixture, shares_from
from tasks.uncertainty.signals import signals, signals_under_any_dependence

ROUNDING = 1  # by which a rounded estimate of a tree may be off, records
GRID_ROUNDING = 2  # likewise of a grid of two axes; with more, roundings of more corners are as good as normal


def reach(variance: float, log_odds: float) -> float:
    r"""Return what an estimate's noise reaches, to one side, with a probability of at most exp(-x), records: :math:`\sqrt{2 x \mathrm{Var}}`.

    It is no approximation: a sum of discrete Gaussians is sub-Gaussian with its variance.

    Source:
        Canonne, Kamath and Steinke (2020).
    """
    return math.sqrt(2 * log_odds * variance)


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """The released counts of the rows of a level, which are unbiased estimates of their true counts. Cells without a row count 0.

    Attributes:
        counts: int64, shape (rows,), records; they may be negative.
        deviations: the standard deviation of each, with rounding, float64, shape (rows,), records; 0 where counts are exact.
        possible: how many cells the level has.
        rounding: what rounding adds to margins by a normal law, records.
        is_any_dependence: whether errors may depend on one another in any way.
    """

    counts: IntArray
    deviations: FloatArray
    possible: int
    rounding: int = ROUNDING
    is_any_dependence: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether the counts have no noise."""
        return not self.deviations.any()

    def cell_intervals(self, confidence: float, total: int | None) -> tuple[IntArray, IntArray]:
        """Return intervals that each hold with a probability of 1 − α for a cell that is fixed beforehand.

        Guarantees:
            In a table without the cells that count 0, the expected number of rows that miss is at most α times the expected number of rows,
            whatever the dependence is. To see this, let N be a normal error, and the error of the released count the nearest whole number. A
            cell has a row with a probability of at least P(|N| > 1/2), and misses with at most P(|N| > z + 1/2), where P(|N| > z) = α. The
            hazard rate of |N| rises, so this is at most α P(|N| > 1/2).
        """
        margin = self._margins(math.log((1 - confidence) / 2))
        return intervals(self.counts, margin, NO_CAP if total is None else total, self.counts)

    def simultaneous_intervals(
        self, log_odds: float, total: int | None, rounding: int | IntArray
    ) -> tuple[IntArray, IntArray]:
        """Return intervals of the rows that each miss with a probability of at most 2 exp(-x), given x and how far rounding may move a count, records."""
        margin = simultaneous_margins_of_estimates(self.deviations, log_odds, rounding)
        return intervals(self.counts, margin, NO_CAP if total is None else total, self.counts)

    def signals(self, rate: float) -> tuple[BoolArray, int | None]:
        """Return which rows stand out from the noise, and above what, as `tasks.uncertainty.signals.signals` does, if that is one number."""
        if self.is_exact:
            return self.counts > 0, None
        find = signals_under_any_dependence if self.is_any_dependence else signals
        marked, above = find(self.counts, self.possible, rate, self._margins)
        widths = np.unique(above if above is not None else np.zeros(0))
        return marked, int(widths[0]) if len(widths) == 1 else None

    def shares(self) -> Shares | None:
        """Return how much of the rows is noise; None where there is none. With any dependence it is an estimate without a bound."""
        if self.is_exact or not len(self.counts):
            return EXACT if len(self.counts) else None
        of_margins = [self._margins(log_tail) for log_tail in LOG_TAILS]
        rows = np.arange(len(self.counts))
        mixture = normal_mixture(self.counts, self.deviations, rows, self.possible - len(rows))
        seen = None if self.is_any_dependence else beyond(self.counts, self.counts, of_margins)
        return shares_from(mixture, seen, self.possible, len(self.counts))

    def _margins(self, log_tail: float) -> IntArray:
        return margins(self.deviations, log_tail, self.rounding)


def margins(deviations: FloatArray, log_tail: float, rounding: int = ROUNDING) -> IntArray:
    """Return what errors exceed to one side with at most a given probability, given its logarithm; int64, of the same shape, records."""
    reached = np.ceil(normal_quantile(log_tail) * deviations).astype(np.int64)
    return np.where(deviations > 0, reached + rounding, 0)


def simultaneous_margins_of_estimates(
    deviations: FloatArray, log_odds: float, rounding: int | IntArray = ROUNDING
) -> IntArray:
    """Return what errors exceed to either side with a probability of at most 2 exp(-x), given x; int64, of the same shape, records."""
    reached = np.floor(math.sqrt(2 * log_odds) * deviations).astype(np.int64)
    return np.where(deviations > 0, reached + rounding, 0)
