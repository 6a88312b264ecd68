"""What can be said of released counts of which every node was measured: deviations and intervals, from codebooks and noise."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np

from tasks.laws.law import LevelNoise
from tasks.tree.axis import Axis, AxisLevels, BoolArray, FloatArray, IntArray
from tasks.tree.order import Tree
from tasks.tree.views import Partition, View
from tasks.unbiased.dense import NO_STRATEGIES, Strategies
from tasks.unbiased.grid import Grid, grid_of
from tasks.unbiased.least_squares import precisions_of
from tasks.unbiased.variance import (
    ROUNDING_VARIANCE,
    SUM_ROUNDING_VARIANCE,
    Inside,
    TreeVariances,
    in_ranges,
    tree_variances,
)
from tasks.unbiased.views import TreeWithViews, roundings_of
from tasks.unbiased.workloads import mean_variances
from tasks.uncertainty.estimates import (
    GRID_ROUNDING,
    ROUNDING,
    Estimates,
    margins,
    reach,
    simultaneous_margins_of_estimates,
)

_MOST_RANGES = 1000  # of which a sum is made, before it is made of nodes alone


class AtOnce(NamedTuple):
    """The simultaneous interval of the count of a single box: z, records, and of how many parts it is the sum: of nodes, or of ranges."""

    margin: int
    parts: int
    kind: str = "node"


@dataclass(frozen=True)
class ReleasedCounts:
    """The released counts of a tree, with views or without, of a grid, or of axes that strategies measure, apart from the counts themselves.

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
    def covariance(self) -> FloatArray:
        """The covariance of the leaves of a single axis before rounding, float64, shape (leaves, leaves), records squared.

        Raises:
            TypeError: there are views, or several axes.
        """
        if isinstance(self.variances, TreeWithViews):
            raise TypeError("beside views the covariance of leaves is not known as a whole.")
        return self.variances.covariance

    @property
    def crosses(self) -> bool:
        """Whether it is no tree alone: errors of different cells may be positively correlated, and sums over all axes are rounded."""
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

    def intervals(self, view: View, estimates: Estimates, *, simultaneous: bool) -> tuple[IntArray, ...]:
        """Return low and high of rows of a level, or of all cells of a view, and those of simultaneous intervals if they are asked for, int64, shape (rows,) each.

        Cells of a view with derived columns are no boxes. Like the nodes of a level, all cells of the view share its part of α, as `at_once` describes.
        """
        of_rows = estimates.cell_intervals(self.confidence, self.total)
        if not simultaneous:
            return of_rows
        rounding: int | IntArray = self.rounding
        if view.derived and isinstance(self.variances, TreeWithViews):
            sums = roundings_of(self.variances.partitions[view.number])  # each of which moves by a half at most
            rounding = (sums + 1) // 2
        return *of_rows, *estimates.simultaneous_intervals(self._log_odds(view), self.total, rounding)

    def at_once(self, inside: Inside) -> AtOnce:
        r"""Return the simultaneous interval of the count of a single box, which holds together with those of all other boxes.

        α is shared out beforehand over *parts*, of which half goes to the nodes of all levels with noise (or the cells of all tables of a
        grid), equally to each level, and half to all *ranges*, equally: boxes with a range of finest areas of each ordered axis, and
        one area of any level of each other. If no axis is ordered and there is one alone, ranges are nodes, which have all of α.

        Guarantees:
            The error of a part is a sum of discrete Gaussians with the part's own variance, and rounding, which is bounded. So a part with the share a
            of α exceeds its margin :math:`\sqrt{2 \mathrm{Var} \ln(2 / a)}` with a probability of at most a, however little noise there is. By the union
            bound, whatever the dependence is, no part of either kind does so with a probability of at least 1 − α. Then every sum of parts
            keeps within the sum of their margins. So of several ways to put a box together the one with the least margin may be taken,
            and so may the larger share of a node, which is a range too. Both follow from codebooks and noise, not from counts.
        Source:
            Canonne, Kamath and Steinke (2020) for the tails.
        """
        margin = nodes = 0
        for levels, areas in self.variances.whole_cells(inside):
            if len(areas[0]):
                deviations = self.with_rounding(self.variances.of_cells(levels, areas), self.runs(levels))
                margin += int(
                    simultaneous_margins_of_estimates(deviations, self._log_odds(levels), self.rounding).sum()
                )
                nodes += len(areas[0])
        of_axes = [_stretches(axis, self._chosen(number, inside)) for number, axis in enumerate(self.tree.axes)]
        ranges = math.prod(map(len, of_axes))
        if not self._ranges or ranges >= min(nodes, _MOST_RANGES + 1):
            return AtOnce(margin, nodes)
        of_ranges = sum(self._range_margin(sides) for sides in product(*of_axes))
        return min(AtOnce(margin, nodes), AtOnce(of_ranges, ranges, "range"))

    def _range_margin(self, sides: Sequence[tuple[int, int]]) -> int:
        """Return z of the simultaneous interval of a range, from the first finest area inside and the first one after it that is outside, per axis."""
        inside = in_ranges(*([np.array([end]) for end in ends] for ends in zip(*sides, strict=True)))
        rounding = self.rounding * (1 if self.crosses else self.variances.runs_of_box(inside))
        log_odds = math.log(4 * self._ranges / (1 - self.confidence))
        return int(simultaneous_margins_of_estimates(self.box_deviation(inside), log_odds, rounding)[0])

    def _chosen(self, number: int, inside: Inside) -> BoolArray:
        """Return which finest areas of an axis are in a single box, shape (areas,)."""
        areas = np.arange(self.tree.axes[number].areas(self.tree.axes[number].depth))
        chosen: BoolArray = inside(number, areas, areas + 1, np.zeros_like(areas)) > 0
        return chosen

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
        if isinstance(self.variances, Grid):
            return self.variances.rounding_variance
        return SUM_ROUNDING_VARIANCE if isinstance(self.variances, TreeWithViews) else ROUNDING_VARIANCE

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

    def simultaneous_half_width(self, levels: AxisLevels) -> int | None:
        """Return z of the simultaneous intervals of rows; None where rows have different ones."""
        both = np.array(self.deviations(levels))
        return _single(simultaneous_margins_of_estimates(both, self._log_odds(levels), self.rounding))

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

    def settle(self, numbers: Mapping[AxisLevels, int], noisy: Callable[[int], IntArray]) -> FloatArray:
        """Return the least-squares values of all leaves of a grid, or of a tree with views, float64, one dimension per axis.

        Args:
            numbers: by the axis levels of every table of a grid its number.
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
            lambda levels: noisy(numbers[levels]).reshape([of.areas(own) for of, own in zip(axes, levels, strict=True)])
        )

    def mean_variances(self) -> dict[str, float]:
        """Return the mean variance of all queries of each workload, as `tasks.unbiased.workloads.mean_variances`."""
        if isinstance(self.variances, TreeVariances):
            return mean_variances(self.variances, self.tree.ordered)
        return self.variances.mean_variances()

    @property
    def rounding(self) -> int:
        """By how much rounding may move the count of a box, records."""
        return 1 << len(self.tree.axes) - 1 if isinstance(self.variances, TreeWithViews | Grid) else ROUNDING

    def _is_beside(self, view: View) -> bool:
        """Return whether a view is one beside a tree, whose cells have variances of their own."""
        return isinstance(self.variances, TreeWithViews) and view.number > self.tree.depth

    @property
    def slack(self) -> int:
        """What is added to intervals by a normal law: by how much whole counts move, or less where so many roundings add up that they are as good as normal."""
        return min(GRID_ROUNDING, self.rounding) if isinstance(self.variances, Grid) else ROUNDING

    @property
    def _cell_log_tail(self) -> float:
        return math.log((1 - self.confidence) / 2)

    def _cells(self, levels: AxisLevels) -> int:
        return math.prod(axis.areas(level) for axis, level in zip(self.tree.axes, levels, strict=True))

    def _log_odds(self, of: AxisLevels | View) -> float:
        """Return x such that a cell of some axis levels, or of a view, has the share 2 exp(-x) of α, the larger of a node's and of a range's, if it is one."""
        cells = len(Partition(self.tree, of)) if isinstance(of, View) else self._cells(of)
        is_box = not (isinstance(of, View) and of.derived)
        parts = max(self.variances.noisy_levels, 1) * cells
        if self._ranges:
            parts = 2 * (min(parts, self._ranges) if is_box else parts)
        return math.log(2 * parts / (1 - self.confidence))

    @cached_property
    def _ranges(self) -> int:
        """How many ranges there are, as `at_once` describes; 0 where all of them are nodes."""
        if not self.tree.ordered and len(self.tree.axes) == 1:
            return 0
        return math.prod(_ranges_of(axis) for axis in self.tree.axes)


def _ranges_of(axis: Axis) -> int:
    """Return how many ranges of finest areas an ordered axis has, or how many areas of all levels another one."""
    finest = axis.areas(axis.depth)
    return finest * (finest + 1) // 2 if axis.is_ordered else sum(map(axis.areas, range(axis.depth + 1)))


def _stretches(axis: Axis, chosen: BoolArray) -> list[tuple[int, int]]:
    """Return the fewest ranges of an ordered axis, or areas of another one, that make up some finest areas: the first one inside, and the first one after it."""
    if axis.is_ordered:
        edges = np.flatnonzero(np.diff(chosen, prepend=False, append=False)).tolist()
        return [*zip(edges[::2], edges[1::2], strict=True)]
    found, is_held = list[tuple[int, int]](), np.zeros(1, dtype=bool)
    for level in range(axis.depth + 1):
        first = axis.first_descendants(level, axis.depth)
        is_whole = np.logical_and.reduceat(chosen, first[:-1])
        found += zip(*(ends[is_whole & ~is_held].tolist() for ends in (first[:-1], first[1:])), strict=True)
        if level < axis.depth:
            is_held = np.repeat(is_whole, np.diff(axis.first_child[level]))
    return found


def released_counts(
    tree: Tree,
    parts: Sequence[tuple[View, LevelNoise | None]],
    confidence: float,
    total: int | None,
    *,
    is_grid: bool = False,
    has_views: bool = False,
    strategies: Strategies = NO_STRATEGIES,
) -> ReleasedCounts:
    """Return the released counts of a tree, with views or without, of a grid, or by strategies; arguments as in `ReleasedCounts`.

    Args:
        parts: levels 0 to T, and then the views beside them, or all other tables of a grid, with their noise: no noise where they are exact,
            None where they are not measured.
        has_views: whether it is settled as with views, even if all of these are levels.
        strategies: of what is measured in place of counts: of one axis or of some axes of a grid.
    """
    if is_grid or strategies:
        grid = grid_of(tree, {view.axis_levels: noise.scale**-2 for view, noise in parts if noise}, total, strategies)
        return ReleasedCounts(tree, grid, confidence, total)
    precisions = precisions_of([noise for _, noise in parts[: tree.depth + 1]])
    variances = tree_variances(tree, precisions)
    if not has_views:
        return ReleasedCounts(tree, variances, confidence, total)
    views = [(view, noise.scale**-2) for view, noise in parts[tree.depth + 1 :] if noise]
    return ReleasedCounts(tree, TreeWithViews(variances, precisions, views), confidence, total)


def _single(widths: IntArray) -> int | None:
    return int(widths[0]) if widths[0] == widths[1] else None
