"""What can be said of released counts of which every node was measured: deviations and intervals, from codebooks and noise."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.laws.law import LevelNoise
from tasks.tree.axis import AxisLevels, FloatArray, IntArray
from tasks.tree.order import Tree
from tasks.unbiased.grid import GRID_ROUNDING_VARIANCE, Grid, grid_of
from tasks.unbiased.least_squares import precisions_of
from tasks.unbiased.variance import ROUNDING_VARIANCE, Inside, TreeVariances, tree_variances
from tasks.unbiased.workloads import mean_variances
from tasks.uncertainty.estimates import (
    GRID_ROUNDING,
    ROUNDING,
    Estimates,
    log_tail_of_estimates,
    margins,
    reach,
    simultaneous_margins_of_estimates,
)


@dataclass(frozen=True)
class ReleasedCounts:
    """The released counts of a tree or a grid, apart from the counts themselves.

    Attributes:
        variances: of sums of leaves, before rounding.
        confidence: 1 − α, of intervals.
        total: the exact count of everything; None where it is not published exactly.
    """

    tree: Tree
    variances: TreeVariances | Grid
    confidence: float
    total: int | None = None

    @property
    def is_grid(self) -> bool:
        """Whether it is a grid: errors of different cells may be positively correlated, and rounding moves counts further."""
        return isinstance(self.variances, Grid)

    def deviations(self, levels: AxisLevels) -> tuple[float, float]:
        """Return the least and the most standard deviation of a released count of some axis levels, records."""
        level = self.variances.of_level(levels)
        least, most = self.with_rounding(np.array([level.least, level.most])).tolist()
        return least, most

    def estimates(self, levels: AxisLevels, areas: Sequence[IntArray], counts: IntArray) -> Estimates:
        """Return rows as estimates."""
        deviations = self.with_rounding(self.variances.of_cells(levels, areas))
        return Estimates(counts, deviations, self._cells(levels), self.rounding, is_any_dependence=self.is_grid)

    def intervals(self, levels: AxisLevels, estimates: Estimates, *, simultaneous: bool) -> tuple[IntArray, ...]:
        """Return low and high of rows, and those of simultaneous intervals if they are asked for, int64, shape (rows,) each."""
        of_rows = estimates.row_intervals(self.confidence, self.total)
        if not simultaneous:
            return of_rows
        return *of_rows, *estimates.simultaneous_intervals(self._log_odds(levels), self.total)

    def cell_intervals(self, estimates: Estimates) -> tuple[IntArray, IntArray]:
        """Return low and high of cells that are fixed beforehand, int64, shape (cells,) each."""
        return estimates.cell_intervals(self.confidence, self.total)

    def whole_margins(self, inside: Inside) -> tuple[int, int]:
        """Return the sum of z of the simultaneous intervals of the fewest measured cells that make up a single box, and how many these are."""
        margin = pieces = 0
        for levels, areas in self.variances.whole_cells(inside):
            if len(areas[0]):
                deviations = self.with_rounding(self.variances.of_cells(levels, areas))
                at_once = simultaneous_margins_of_estimates(deviations, self._log_odds(levels), self.rounding)
                margin += int(at_once.sum())
                pieces += len(areas[0])
        return margin, pieces

    def with_rounding(self, variances: FloatArray, runs: int = 1) -> FloatArray:
        """Return standard deviations of whole counts, given variances before rounding, records; 0 where they are exact.

        Args:
            variances: of boxes, float64, shape (boxes,).
            runs: of how many parts that are rounded apart each box is made; each adds the same.
        """
        variance = runs * (GRID_ROUNDING_VARIANCE if self.is_grid else ROUNDING_VARIANCE)
        return np.sqrt(np.where(variances > 0, variances + variance, 0.0))

    def box_deviation(self, inside: Inside) -> FloatArray:
        """Return the standard deviation of the count of a single box, float64, shape (1,), records."""
        return self.with_rounding(self.variances.variances_of(inside), self.variances.runs_of_box(inside))

    def half_widths(self, levels: AxisLevels, rows: int) -> tuple[int | None, int | None]:
        """Return z of the intervals of rows, and of simultaneous ones; None where rows have different ones."""
        both = np.array(self.deviations(levels))
        log_tail = (
            self._cell_log_tail if self.is_grid else log_tail_of_estimates(self._cells(levels), rows, self.confidence)
        )
        at_once = simultaneous_margins_of_estimates(both, self._log_odds(levels), self.rounding)
        return _single(margins(both, log_tail, self.rounding)), _single(at_once)

    def cell_half_width(self, levels: AxisLevels) -> int | None:
        """Return z of the intervals of cells that are fixed beforehand; None where they have different ones."""
        return _single(margins(np.array(self.deviations(levels)), self._cell_log_tail, self.rounding))

    def box_margin(self, deviations: FloatArray, confidence: float | None = None) -> IntArray:
        """Return z of the intervals of boxes that are fixed beforehand, with the stated confidence or another one, int64, shape (boxes,), records."""
        return margins(deviations, math.log((1 - (confidence or self.confidence)) / 2), self.rounding)

    def widest_margin(self, levels: AxisLevels) -> int:
        """Return z of the widest interval of a cell that is fixed beforehand, records."""
        return int(self.box_margin(np.array(self.deviations(levels))).max())

    def bound(self, levels: AxisLevels, confidence: float) -> float:
        """Return what the error of no count of some axis levels exceeds, with a probability, whatever law its noise follows, records."""
        cells = self._cells(levels)
        return reach(self.variances.of_level(levels).most, math.log(2 * cells / (1 - confidence))) + self.rounding

    def mean_variances(self) -> dict[str, float]:
        """Return the mean variance of all queries of each workload, as `tasks.unbiased.workloads.mean_variances`."""
        if isinstance(self.variances, Grid):
            return self.variances.mean_variances()
        return mean_variances(self.variances, self.tree.ordered)

    @property
    def rounding(self) -> int:
        """By how much rounding may move the count of a box, records."""
        return GRID_ROUNDING if self.is_grid else ROUNDING

    @property
    def _cell_log_tail(self) -> float:
        return math.log((1 - self.confidence) / 2)

    def _cells(self, levels: AxisLevels) -> int:
        return math.prod(axis.areas(level) for axis, level in zip(self.tree.axes, levels, strict=True))

    def _log_odds(self, levels: AxisLevels) -> float:
        """Return x such that 2 exp(-x), added up over all cells of all levels with noise, is α."""
        return math.log(2 * max(self.variances.noisy_levels, 1) * self._cells(levels) / (1 - self.confidence))


def released_counts(
    tree: Tree,
    measured: Sequence[tuple[AxisLevels, LevelNoise | None]],
    confidence: float,
    total: int | None,
    *,
    is_grid: bool,
) -> ReleasedCounts:
    """Return the released counts of a tree or a grid; arguments as in `ReleasedCounts`.

    Args:
        measured: of levels 0 to T, and of a grid of all other pairs too, the axis levels and the noise: no noise where they are exact, None
            where they are not measured.
    """
    if is_grid:
        grid = grid_of(tree, pair_precisions(measured), total)
        return ReleasedCounts(tree, grid, confidence, total)
    variances = tree_variances(tree, precisions_of([noise for _, noise in measured]))
    return ReleasedCounts(tree, variances, confidence, total)


def pair_precisions(measured: Sequence[tuple[AxisLevels, LevelNoise | None]]) -> dict[tuple[int, int], float]:
    """Return 1 / σ² of the pairs of levels that are measured with noise, by their axis levels."""
    return {(levels[0], levels[1]): noise.scale**-2 for levels, noise in measured if noise}


def _single(widths: IntArray) -> int | None:
    return int(widths[0]) if widths[0] == widths[1] else None
