"""What can be said of the released counts of a tree of which every node was measured: deviations and intervals, from codebooks and noise."""

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tasks.tree.axis import IntArray
from tasks.tree.order import Tree
from tasks.unbiased.variance import ROUNDING_VARIANCE, FloatArray, LevelVariances, TreeVariances, tree_variances
from tasks.uncertainty.estimates import Estimates, margins, row_log_tail, simultaneous_margins


class ReleasedTree:
    """The released counts of a tree, apart from the counts themselves."""

    def __init__(
        self, tree: Tree, precisions: Sequence[float], confidence: float, signal_rate: float, total: int | None
    ) -> None:
        """Know a tree.

        Args:
            tree: the axes and their order.
            precisions: of levels 0 to T, as in `tree_variances`.
            confidence: 1 − α, of intervals.
            signal_rate: of marked rows, the share that is expected to have a true count of 0 at most.
            total: the exact count of everything; None where it is not published exactly.
        """
        self.tree, self._precisions, self._confidence = tree, precisions, confidence
        self._signal_rate, self.total = signal_rate, total

    @cached_property
    def variances(self) -> TreeVariances:
        """The variances of estimates before they are rounded."""
        return tree_variances(self.tree, self._precisions)

    @cached_property
    def _of_levels(self) -> list[LevelVariances]:
        return self.variances.of_levels()

    def deviations(self, level: int) -> tuple[float, float]:
        """Return the least and the most standard deviation of a released count of a level, records."""
        of_level = self._of_levels[level]
        least, most = _rounded(np.array([of_level.least, of_level.most])).tolist()
        return least, most

    def estimates(self, level: int, areas: Sequence[IntArray], counts: IntArray) -> Estimates:
        """Return the rows of a level as estimates.

        Args:
            level: of the rows.
            areas: per axis, int64, shape (rows,).
            counts: int64, shape (rows,), records.
        """
        deviations = _rounded(self.variances.of_nodes(level, areas))
        return Estimates(counts, deviations, self.tree.possible_cells(level))

    def intervals(self, level: int, estimates: Estimates, *, simultaneous: bool) -> tuple[IntArray, ...]:
        """Return low and high of rows, and those of simultaneous intervals if they are asked for, int64, shape (rows,) each."""
        found = estimates.row_intervals(self._confidence, self.total)
        if not simultaneous:
            return found
        return *found, *estimates.simultaneous_intervals(self._log_odds(level), self.total)

    def simultaneous_margins(self, level: int, areas: Sequence[IntArray]) -> IntArray:
        """Return z of the simultaneous intervals of some nodes of a level, int64, shape (nodes,), records."""
        deviations = _rounded(self.variances.of_nodes(level, areas))
        return simultaneous_margins(deviations, self._log_odds(level))

    def with_rounding(self, variances: FloatArray) -> FloatArray:
        """Return standard deviations of whole counts, given variances before rounding, records."""
        return _rounded(variances)

    def half_widths(self, level: int, rows: int) -> tuple[int | None, int | None]:
        """Return z of the intervals of rows, and of simultaneous ones; None where rows have different ones."""
        both = np.array(self.deviations(level))
        log_tail = row_log_tail(self.tree.possible_cells(level), rows, self._confidence)
        return _single(margins(both, log_tail)), _single(simultaneous_margins(both, self._log_odds(level)))

    def _log_odds(self, level: int) -> float:
        """Return x such that 2 exp(-x), added up over all nodes of all levels with noise, is α."""
        noisy = sum(of_level.most > 0 for of_level in self._of_levels)
        return math.log(2 * max(noisy, 1) * self.tree.possible_cells(level) / (1 - self._confidence))


def _rounded(variances: FloatArray) -> FloatArray:
    """Return standard deviations of whole counts, given variances before rounding; 0 where they are exact."""
    return np.sqrt(np.where(variances > 0, variances + ROUNDING_VARIANCE, 0.0))


def _single(widths: IntArray) -> int | None:
    return int(widths[0]) if widths[0] == widths[1] else None
