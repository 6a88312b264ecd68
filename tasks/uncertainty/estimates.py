"""What can be said of unbiased estimates with known variances: their intervals, marks, and how much of their rows is noise.

An estimate is a sum of discrete Gaussians with known weights, and is taken to be normal; then it is rounded to a whole number within 1.
In a tree, estimates of a level are never positively correlated: the noise of siblings that share what their family lacks goes in
opposite directions. So events to one side are negatively associated (Joag-Dev and Proschan, 1983), and what
`tasks.uncertainty.selection` says of independent noise holds for them (Shao, 2000).
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri_exp

from tasks.tree.axis import BoolArray, IntArray
from tasks.uncertainty.intervals import NO_CAP, intervals
from tasks.uncertainty.mixture import FloatArray
from tasks.uncertainty.noise_rows import LOG_TAILS, beyond
from tasks.uncertainty.selection import tails_of
from tasks.uncertainty.shares import EXACT, Shares, normal_mixture, shares_from
from tasks.uncertainty.signals import signals

ROUNDING = 1  # by which a rounded estimate may be off, records


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
        cells: how many cells the level has.
    """

    counts: IntArray
    deviations: FloatArray
    cells: int

    @property
    def is_exact(self) -> bool:
        """Whether the counts have no noise."""
        return not self.deviations.any()

    def row_intervals(self, confidence: float, total: int | None) -> tuple[IntArray, IntArray]:
        """Return the intervals of the rows, of which at most a share α is expected not to be covered, however they came to be rows.

        Args:
            confidence: 1 − α, in (0, 1).
            total: the exact count of everything; None where it is not published exactly.
        """
        margin = margins(self.deviations, row_log_tail(self.cells, len(self.counts), confidence))
        return intervals(self.counts, margin, NO_CAP if total is None else total, self.counts)

    def simultaneous_intervals(self, log_odds: float, total: int | None) -> tuple[IntArray, IntArray]:
        """Return intervals of the rows that each miss with a probability of at most 2 exp(-x), given x; `total` as above."""
        margin = simultaneous_margins(self.deviations, log_odds)
        return intervals(self.counts, margin, NO_CAP if total is None else total, self.counts)

    def signals(self, rate: float) -> tuple[BoolArray, int | None]:
        """Return which rows stand out from the noise, and above what, as `tasks.uncertainty.signals.signals` does, if that is one number."""
        if self.is_exact:
            return self.counts > 0, None
        marked, above = signals(self.counts, self.cells, rate, lambda log_tail: margins(self.deviations, log_tail))
        widths = np.unique(above if above is not None else np.zeros(0))
        return marked, int(widths[0]) if len(widths) == 1 else None

    def shares(self) -> Shares | None:
        """Return how much of the rows is noise; None where there is none."""
        if self.is_exact or not len(self.counts):
            return EXACT if len(self.counts) else None
        of_margins = [margins(self.deviations, log_tail) for log_tail in LOG_TAILS]
        mixture = normal_mixture(self.counts, self.deviations, np.arange(len(self.counts)))
        mixture.add_zeros(self.cells - len(self.counts))
        return shares_from(mixture, beyond(self.counts, self.counts, of_margins), self.cells, len(self.counts))


def margins(deviations: FloatArray, log_tail: float) -> IntArray:
    """Return what errors exceed to one side with at most a given probability, given its logarithm; int64, of the same shape, records."""
    reached = np.ceil(-float(ndtri_exp(min(log_tail, math.log(0.5)))) * deviations).astype(np.int64)
    return np.where(deviations > 0, reached + ROUNDING, 0)


def simultaneous_margins(deviations: FloatArray, log_odds: float) -> IntArray:
    """Return what errors exceed to either side with a probability of at most 2 exp(-x), given x; int64, of the same shape, records."""
    reached = np.floor(math.sqrt(2 * log_odds) * deviations).astype(np.int64)
    return np.where(deviations > 0, reached + ROUNDING, 0)


def row_log_tail(cells: int, rows: int, confidence: float) -> float:
    """Return the logarithm of the probability with which a row's error may go beyond its margin, to one side.

    Args:
        cells: how many cells the level has.
        rows: how many of them have a row.
        confidence: 1 − α, in (0, 1).
    """
    return tails_of(max(cells, 1), (1 - confidence) / 2).of(max(rows, 1))
