"""What can be said of released counts of which every node was measured: deviations and intervals, from codebooks and noise."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tasks.laws.law import LevelNoise
from tasks.tree.axis import AxisLevels, FloatArray, IntArray
from tasks.tree.order import Tree
from tasks.tree.views import Partition, View
from tasks.unbiased.grid import GRID_ROUNDING_VARIANCE, Grid, grid_of
from tasks.unbiased.least_squares import precisions_of
from tasks.unbiased.variance import ROUNDING_VARIANCE, Inside, TreeVariances, tree_variances
from tasks.unbiased.views import SUM_ROUNDING_VARIANCE, TreeWithViews, roundings_of
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
    """The released counts of a tree, with views or without, or of a grid, apart from the counts themselves.

    Attributes:
        variances: of sums of leaves, before rounding.
        confidence: 1 − α, of intervals.
        total: the exact count of everything; None where it is not published exactly.
    """

    tree: Tree
    variances: TreeVariances | Grid | TreeWithViews
    confidence: float
    total: int | None = None

    @property
    def crosses(self) -> bool:
        """Whether it is a grid, or has views: errors of different cells may be positively correlated, and sums over all axes are rounded."""
        return not isinstance(self.variances, TreeVariances)

    def deviations(self, of: AxisLevels | View) -> tuple[float, float]:
        """Return the least and the most standard deviation of a released count of some axis levels, or of a view, records."""
        if isinstance(of, View) and self._is_beside(of):
            every = self.of_cells(of, ())
            return float(every.min()), float(every.max())
        levels = of.axis_levels if isinstance(of, View) else of
        level = self.variances.of_level(levels)
        least, most = self.with_rounding(np.array([level.least, level.most]), self.runs(levels)).tolist()
        return least, most

    def of_cells(self, view: View, areas: Sequence[IntArray]) -> FloatArray:
        """Return the standard deviations of cells of a level, or of all cells of a view beside the tree, float64, shape (cells,), records."""
        if isinstance(self.variances, TreeWithViews) and self._is_beside(view):
            variances = self.variances.of_view(view.number)
            return self.with_rounding(variances, roundings_of(self.variances.partitions[view.number]))
        return self.with_rounding(self.variances.of_cells(view.axis_levels, areas), self.runs(view.axis_levels))

    def estimates(self, view: View, areas: Sequence[IntArray], counts: IntArray) -> Estimates:
        """Return rows of a level, or all cells of a view, as estimates."""
        deviations = self.of_cells(view, areas)
        return Estimates(counts, deviations, self._cells(view.axis_levels), self.slack, is_any_dependence=self.crosses)

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
                deviations = self.with_rounding(self.variances.of_cells(levels, areas), self.runs(levels))
                at_once = simultaneous_margins_of_estimates(deviations, self._log_odds(levels), self.rounding)
                margin += int(at_once.sum())
                pieces += len(areas[0])
        return margin, pieces

    def with_rounding(self, variances: FloatArray, runs: int | IntArray = 1) -> FloatArray:
        """Return standard deviations of whole counts, given variances before rounding, records; 0 where they are exact.

        Args:
            variances: of boxes, float64, shape (boxes,).
            runs: of how many parts that are rounded apart each box is made; each adds the same. With views these are single sums.
        """
        return np.sqrt(np.where(variances > 0, variances + runs * self.rounding_variance, 0.0))

    @property
    def rounding_variance(self) -> float:
        """What each part that is rounded apart adds to the variance of a count, records squared."""
        added = {TreeVariances: ROUNDING_VARIANCE, Grid: GRID_ROUNDING_VARIANCE, TreeWithViews: SUM_ROUNDING_VARIANCE}
        return added[type(self.variances)]

    def runs(self, levels: AxisLevels) -> int:
        """Return of how many parts that are rounded apart a cell of some axis levels is made."""
        if not isinstance(self.variances, TreeWithViews):
            return 1
        return 1 << sum(axis.areas(level) > 1 for axis, level in zip(self.tree.axes, levels, strict=True))

    def box_deviation(self, inside: Inside) -> FloatArray:
        """Return the standard deviation of the count of a single box, float64, shape (1,), records."""
        return self.with_rounding(self.variances.variances_of(inside), self.variances.runs_of_box(inside))

    def set_deviation(self, inside: FloatArray) -> FloatArray:
        """Return the standard deviation of the count of any set of leaves beside views, float64, shape (1,), records.

        Args:
            inside: 1.0 for the leaves that are in it, 0.0 for others, one dimension per axis.
        Raises:
            TypeError: there are no views.
        """
        if not isinstance(self.variances, TreeWithViews):
            raise TypeError("only beside views are sets of leaves asked for that are no boxes.")
        sums = inside
        for axis in range(inside.ndim):
            sums = np.diff(sums, axis=axis, append=0.0)
        return self.with_rounding(
            np.array([self.variances.of_weights(inside)]), np.rint((sums**2).sum()).astype(np.int64)
        )

    def half_widths(self, levels: AxisLevels, rows: int) -> tuple[int | None, int | None]:
        """Return z of the intervals of rows, and of simultaneous ones; None where rows have different ones."""
        both = np.array(self.deviations(levels))
        log_tail = (
            self._cell_log_tail if self.crosses else log_tail_of_estimates(self._cells(levels), rows, self.confidence)
        )
        at_once = simultaneous_margins_of_estimates(both, self._log_odds(levels), self.rounding)
        return _single(margins(both, log_tail, self.slack)), _single(at_once)

    def cell_half_width(self, of: AxisLevels | View) -> int | None:
        """Return z of the intervals of cells that are fixed beforehand; None where they have different ones."""
        return _single(margins(np.array(self.deviations(of)), self._cell_log_tail, self.slack))

    def box_margin(self, deviations: FloatArray, confidence: float | None = None) -> IntArray:
        """Return z of the intervals of boxes that are fixed beforehand, with the stated confidence or another one, int64, shape (boxes,), records."""
        return margins(deviations, math.log((1 - (confidence or self.confidence)) / 2), self.slack)

    def widest_margin(self, of: AxisLevels | View) -> int:
        """Return z of the widest interval of a cell of some axis levels, or of a view, that is fixed beforehand, records."""
        return int(self.box_margin(np.array(self.deviations(of))).max())

    def most_variance(self, view: View) -> float:
        """Return the most variance of a cell of a level or view, before rounding, records squared."""
        if isinstance(self.variances, TreeWithViews) and self._is_beside(view):
            return float(self.variances.of_view(view.number).max())
        return self.variances.of_level(view.axis_levels).most

    def bound(self, view: View, confidence: float) -> float:
        """Return what the error of no count of a level or view exceeds, with a probability, whatever law its noise follows, records."""
        partition, rounding = Partition(self.tree, view), float(self.rounding)
        if isinstance(self.variances, TreeWithViews):
            rounding = float(roundings_of(partition).max()) / 2
        return reach(self.most_variance(view), math.log(2 * len(partition) / (1 - confidence))) + rounding

    def settle(self, pairs: Mapping[AxisLevels, int], noisy: Callable[[int], IntArray]) -> FloatArray:
        """Return the least-squares values of all leaves of a grid, or of a tree with views, float64, one dimension per axis.

        Args:
            pairs: by the axis levels of every pair of a grid its number.
            noisy: from the number of a level or view that is measured to its noisy counts, int64, shape (cells,), records.
        Guarantees:
            Post-processing: reads no true count. Deterministic.
        """
        variances, axes = self.variances, self.tree.axes
        if isinstance(variances, TreeWithViews):
            return variances.settle(noisy)
        if isinstance(variances, TreeVariances):
            raise TypeError("a tree alone is settled in parts, by least_squares.")
        return variances.settle(
            lambda *pair: noisy(pairs[pair]).reshape([of.areas(own) for of, own in zip(axes, pair, strict=True)])
        )

    def mean_variances(self) -> dict[str, float]:
        """Return the mean variance of all queries of each workload, as `tasks.unbiased.workloads.mean_variances`."""
        if isinstance(self.variances, TreeVariances):
            return mean_variances(self.variances, self.tree.ordered)
        return self.variances.mean_variances()

    @property
    def rounding(self) -> int:
        """By how much rounding may move the count of a box, records."""
        if isinstance(self.variances, TreeWithViews):
            return 1 << len(self.tree.axes) - 1
        return GRID_ROUNDING if self.crosses else ROUNDING

    def _is_beside(self, view: View) -> bool:
        """Return whether a view is one beside a tree, whose cells have variances of their own."""
        return isinstance(self.variances, TreeWithViews) and view.number > self.tree.depth

    @property
    def slack(self) -> int:
        """What is added to intervals by a normal law: by how much whole counts move; with views one record, since many roundings add up to as good as a normal law."""
        return ROUNDING if isinstance(self.variances, TreeWithViews) else self.rounding

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
    parts: Sequence[tuple[View, LevelNoise | None]],
    confidence: float,
    total: int | None,
    *,
    is_grid: bool = False,
    has_views: bool = False,
) -> ReleasedCounts:
    """Return the released counts of a tree, with views or without, or of a grid; arguments as in `ReleasedCounts`.

    Args:
        parts: levels 0 to T, and then the views beside them, or all other pairs of a grid, with their noise: no noise where they are exact,
            None where they are not measured.
        has_views: whether it is settled as with views, even if all of these are levels.
    """
    if is_grid:
        grid = grid_of(tree, pair_precisions(parts), total)
        return ReleasedCounts(tree, grid, confidence, total)
    precisions = precisions_of([noise for _, noise in parts[: tree.depth + 1]])
    variances = tree_variances(tree, precisions)
    if not has_views:
        return ReleasedCounts(tree, variances, confidence, total)
    views = [(view, noise.scale**-2) for view, noise in parts[tree.depth + 1 :] if noise]
    return ReleasedCounts(tree, TreeWithViews(variances, precisions, views), confidence, total)


def pair_precisions(parts: Sequence[tuple[View, LevelNoise | None]]) -> dict[tuple[int, int], float]:
    """Return 1 / σ² of the pairs of levels that are measured with noise, by their axis levels."""
    return {(view.axis_levels[0], view.axis_levels[1]): noise.scale**-2 for view, noise in parts if noise}


def _single(widths: IntArray) -> int | None:
    return int(widths[0]) if widths[0] == widths[1] else None
