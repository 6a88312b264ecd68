r"""Axes side by side: every combination of what is measured of each is measured, for sums over boxes.

An axis is measured as a tree, with precisions :math:`p_i` of its levels, or by a strategy, which combines all leaves. Combinations of
levels are measured with the product of their precisions. Then the information is the product of those of the axes,
:math:`X = X_1 \otimes \dots \otimes X_d`, and so is the covariance.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from itertools import product
from typing import TypeVar

import numpy as np

from tasks.tree.axis import Axis, AxisLevels, FloatArray, IntArray
from tasks.tree.frontier import root_of
from tasks.tree.order import Tree
from tasks.unbiased.dense import NO_STRATEGIES, Combined, Dense, Strategies, Strategy
from tasks.unbiased.least_squares import subtrees
from tasks.unbiased.variance import (
    SUM_ROUNDING_VARIANCE,
    Inside,
    LevelVariances,
    TreeVariances,
    in_ranges,
    side_tree,
    tree_variances,
)
from tasks.unbiased.workloads import LEAVES, NODES, PREFIX, RANGES, mean_variances

Values = TypeVar("Values", FloatArray, IntArray)

Moments = tuple[
    FloatArray, FloatArray
]  # of some sums over an axis the shares of its total, and the variances given that

OF_AN_ORDER = {RANGES, PREFIX}
_PRODUCTS = {*OF_AN_ORDER, NODES, LEAVES}  # workloads whose queries are those of one axis times those of the others


@dataclass(frozen=True, slots=True, eq=False)
class Side:
    """One axis of a grid, as if it stood alone: a tree whose levels are measured.

    Attributes:
        variances: of a single axis.
        precisions: of its levels, as in `tree_variances`, none of them infinite.
    """

    variances: TreeVariances
    precisions: Sequence[float]

    def __post_init__(self) -> None:
        """Refuse what cannot stand beside others.

        Raises:
            ValueError: the tree has several axes, or a precision is infinite.
        """
        if len(self.variances.tree.axes) != 1 or not all(map(math.isfinite, self.precisions)):
            raise ValueError("each side of a grid must have one axis, and finite precisions.")

    @property
    def tree(self) -> Tree:
        """The tree of the axis."""
        return self.variances.tree

    @property
    def total(self) -> float:
        """The variance that the total would have."""
        return self.variances.total

    def moments_of(self, inside: Inside, boxes: int = 1) -> Moments:
        """Return the moments of sets of leaves, float64, shape (boxes,)."""
        return self.variances.moments_of(inside, boxes)

    def of_ranges(self, first: IntArray, stop: IntArray) -> Moments:
        """Return the moments of the ranges from a first leaf to the one before another, int64, shape (ranges,) each."""
        return self.moments_of(in_ranges([first], [stop]), len(first))

    @property
    def nodes(self) -> TreeVariances:
        """The tree with its nodes."""
        return self.variances

    def mean_variances(self, *, given_total: bool = False) -> dict[str, float]:
        """Return the mean variances of workloads as `workloads.mean_variances`, given the total or not; ranges of an axis without an order are nodes."""
        variances, ordered = self.variances, self.tree.ordered
        if given_total:
            variances = tree_variances(self.tree, [math.inf, *self.precisions[1:]])
        means = mean_variances(variances, ordered)
        return means if ordered else means | dict.fromkeys(OF_AN_ORDER, means[NODES])

    def settle(self, noisy: Sequence[FloatArray | IntArray | None]) -> FloatArray:
        """Return the least-squares values of the leaves, many times, float64, shape (…, leaves).

        Args:
            noisy: of each level the counts, shape (…, nodes); None where it is not measured.
        """
        whole = subtrees(self.variances, self.precisions, root_of(self.tree, 0), self.tree.depth)
        *above, leaves = noisy
        many = next(of.shape[:-1] for of in noisy if of is not None)
        lowest = np.zeros((*many, whole.cells[-1])) if leaves is None else leaves.astype(np.float64)
        estimates, sums = whole.up(above, lowest)
        return whole.down(estimates, sums, estimates[0])

    @property
    def shares(self) -> FloatArray:
        """The share of each leaf in what the total lacks, float64, shape (leaves,)."""
        unmeasured = [0.0] * (self.tree.depth + 1)
        whole = subtrees(self.variances, unmeasured, root_of(self.tree, 0), self.tree.depth)
        shares = np.ones(1)
        for fan_out, share in zip(whole.fan_outs, whole.shares, strict=True):
            shares = np.repeat(shares, fan_out) * share
        return shares


def side_of(tree: Tree, precisions: Sequence[float]) -> Side:
    """Return a side of a tree of a single axis; arguments and errors as in `tree_variances`."""
    return Side(tree_variances(tree, precisions), precisions)


AnySide = Side | Dense


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """One axis or more, all combinations of whose nodes are measured, each with the product of their precisions; not at all where that is 0.

    Attributes:
        sides: one per axis: a tree, or a strategy, which combines the leaves of that axis within every node of the others.
        total: the exact count of everything; None where it is measured like all else.
    """

    sides: tuple[AnySide, ...]
    total: int | None = None

    def of_boxes(self, first: Sequence[IntArray], stop: Sequence[IntArray]) -> FloatArray:
        """Return the variance of the sum over each of some boxes, which `in_ranges` describes, float64, shape (boxes,), records squared."""
        return self._product([side.of_ranges(*ends) for side, *ends in zip(self.sides, first, stop, strict=True)])

    def variances_of(self, inside: Inside, boxes: int = 1) -> FloatArray:
        r"""Return the variance of the sum over each of some boxes before rounding, float64, shape (boxes,), records squared.

        It is the product of the variances of the ranges, or sets of areas, of all axes. If the total is exact, :math:`g^2 V_0` is taken
        off, where g is the share of the total that least squares gives to the box, and V_0 is the variance that the total would have.
        """
        return self._product([side.moments_of(own, boxes) for side, own in self._insides(inside)])

    def _insides(self, inside: Inside) -> list[tuple[AnySide, Inside]]:
        """Return every side, with what is in a box of its axis."""
        return [(side, partial(_on_axis, inside, axis)) for axis, side in enumerate(self.sides)]

    @property
    def noisy_levels(self) -> int:
        """How many combinations of levels have noise."""
        return math.prod(len(side.precisions) for side in self.sides) - (self.total is not None)

    def of_cells(self, levels: Sequence[int], areas: Sequence[IntArray]) -> FloatArray:
        """Return the variances of cells before rounding, float64, shape (cells,), records squared, by their areas per axis, int64, shape (cells,)."""
        return self._product([(share[of], rest[of]) for (share, rest), of in zip(self._of(levels), areas, strict=True)])

    def of_level(self, levels: Sequence[int]) -> LevelVariances:
        """Return the least, the mean and the most variance of the cells of a level of each axis."""
        shares, rests = zip(*self._of(levels), strict=True)
        if self.total is None:  # a product of what the axes have
            every = [self._variances(moments, side) for moments, side in zip(self._of(levels), self.sides, strict=True)]
            return LevelVariances(*(math.prod(float(of(each)) for each in every) for of in (np.min, np.mean, np.max)))
        cells = self._product([*zip(np.ix_(*shares), np.ix_(*rests), strict=True)])
        return LevelVariances(float(cells.min()), float(cells.mean()), float(cells.max()))

    def whole_cells(self, inside: Inside) -> Iterator[tuple[AxisLevels, tuple[IntArray, ...]]]:
        """Yield the fewest cells that make up a single box: the axis levels of some, and their areas per axis, shape (cells,)."""
        for nodes in product(*([*side.nodes.whole_cells(own)] for side, own in self._insides(inside))):
            areas = np.meshgrid(*(own for _, (own,) in nodes), indexing="ij")
            yield tuple(level for (level,), _ in nodes), tuple(of.ravel() for of in areas)

    def runs_of_box(self, inside: Inside) -> int:
        """Return of how many boxes of adjacent areas a single box is made."""
        return math.prod(side.nodes.runs_of_box(own) for side, own in self._insides(inside))

    @property
    def rounding_variance(self) -> float:
        """What whole counts add to the variance of a box of adjacent areas, records squared: each of its corners is rounded by up to a half."""
        return (1 << len(self.sides)) * SUM_ROUNDING_VARIANCE

    @property
    def covariance(self) -> FloatArray:
        """The covariance of the leaves of a single axis, float64, shape (leaves, leaves), records squared.

        Raises:
            TypeError: there are several axes, or one that is measured as a tree.
        """
        [side, *others] = self.sides
        if others or not isinstance(side, Dense):
            raise TypeError("only of a single axis that a strategy measures is the covariance known as a whole.")
        return side.covariance if self.total is None else side.given_total

    def mean_of_ranges(self, levels: Sequence[int | None]) -> float:
        """Return the mean variance, before rounding, of all ranges of some axes with an area of a level of each other one, records squared.

        Args:
            levels: per axis the level; None for all of its ranges.
        """
        means = list[tuple[float, float]]()  # of each axis, and what of that it owes to its total
        for side, level in zip(self.sides, levels, strict=True):
            if level is None:
                mean, given = (side.mean_variances(given_total=of)[RANGES] for of in (False, True))
                means.append((mean, mean - given))
            else:
                begins = side.tree.axes[0].first_descendants(level, side.tree.depth)
                share, rest = side.of_ranges(begins[:-1], begins[1:])
                owed = float((share**2).mean()) * side.total
                means.append((owed + float(rest.mean()), owed))
        mean, owed = (math.prod(of) for of in zip(*means, strict=True))
        return float(mean - owed if self.total is not None else mean)

    def mean_variances(self) -> dict[str, float]:
        """Return the mean variance of all boxes of ranges, and of what `workloads.mean_variances` knows of all axes, before rounding.

        Each is the product of the means of all axes. Of an exact total, what all owe to their totals is taken off.
        """
        is_ordered = any(side.tree.ordered for side in self.sides)
        names = _PRODUCTS if is_ordered else _PRODUCTS - OF_AN_ORDER
        sides = [side.mean_variances() for side in self.sides]
        means = {name: math.prod(of[name] for of in sides) for name in sides[0] if name in names}
        if self.total is not None:
            given = [side.mean_variances(given_total=True) for side in self.sides]
            for name in means:
                means[name] -= math.prod(of[name] - rest[name] for of, rest in zip(sides, given, strict=True))
        return means

    def _product(self, moments: Sequence[Moments]) -> FloatArray:
        """Return the variances of products of sums, given the moments on each axis."""
        sides = [*zip(moments, self.sides, strict=True)]
        variances: FloatArray = reduce(np.multiply, [self._variances(of, side) for of, side in sides])
        if self.total is None:
            return variances
        return variances - math.prod(share for (share, _), _ in sides) ** 2 * math.prod(side.total for _, side in sides)

    @staticmethod
    def _variances(moments: Moments, side: AnySide) -> FloatArray:
        share, rest = moments
        return share**2 * side.total + rest

    def _of(self, levels: Sequence[int]) -> list[Moments]:
        """Return of each axis the moments of all areas of a level."""
        return [_of_areas(side, level) for side, level in zip(self.sides, levels, strict=True)]

    def settle(self, noisy: Callable[[AxisLevels], IntArray]) -> FloatArray:
        r"""Return the least-squares values of all combinations of finest areas, float64, one dimension per axis; they may be negative.

        The normal equations are :math:`(X_1 \otimes \dots \otimes X_d) f = \sum p_1 \cdots p_d (A_1 \otimes \dots \otimes A_d)^T y`. So
        least squares along the last axis, for every combination of nodes of the others, and then along the one before it, up to the
        first, is least squares over everything. An exact total is met by shares of what is missing.

        Args:
            noisy: from a level of each axis to their noisy counts, int64, one dimension per axis, records. It is asked for what is
                measured, and not for the roots if the total is exact.
        Guarantees:
            Post-processing: reads no true count. Deterministic.
        """
        values = self._settled((), noisy)
        if self.strategies:  # what whole numbers near the values leave of large combinations is exact
            near = np.rint(values).astype(np.int64)
            values = near + self._settled((), lambda levels: noisy(levels) - self.measured_of(near, levels))
        if self.total is not None:
            missing = self.total - math.fsum(values.sum(axis=-1).ravel())
            values = values + missing * reduce(np.multiply.outer, [side.shares for side in self.sides])
        return np.ascontiguousarray(values)

    @property
    def strategies(self) -> dict[int, Strategy]:
        """The strategies, by the number of the axis that each measures."""
        return {axis: side.strategy for axis, side in enumerate(self.sides) if isinstance(side, Dense)}

    def measured_of(self, counts: IntArray, levels: AxisLevels) -> IntArray:
        """Return what is measured of counts of all leaves at a level of each axis, without noise, int64, one dimension per axis."""
        sums = sums_of_cells([side.tree.axes[0] for side in self.sides], counts, levels)
        return Combined(sums.shape, self.strategies).of(sums)

    def _settled(self, above: AxisLevels, noisy: Callable[[AxisLevels], IntArray]) -> FloatArray | IntArray:
        """Return the values of all finest areas of the last axes, for the nodes of some levels of the first ones, one dimension per axis."""
        axis = len(above)
        if axis == len(self.sides):
            is_exact = self.total is not None and not any(above)
            return np.full((1,) * axis, self.total) if is_exact else noisy(above)
        side = self.sides[axis]
        counts = [
            np.moveaxis(self._settled((*above, level), noisy), axis, -1) if precision else None
            for level, precision in enumerate(side.precisions)
        ]
        return np.moveaxis(side.settle(counts), -1, axis)


@lru_cache(maxsize=64)  # every table of a grid asks for those of its levels
def _of_areas(side: AnySide, level: int) -> Moments:
    """Return the moments of all areas of a level of an axis."""
    axis = side.tree.axes[0]
    begins = axis.first_descendants(level, axis.depth)
    return side.of_ranges(begins[:-1], begins[1:])


def _on_axis(inside: Inside, axis: int, _: int, begin: IntArray, end: IntArray, box: IntArray) -> IntArray:
    """Return what is in boxes of one axis of several, which is the only one of its tree."""
    return inside(axis, begin, end, box)


def grid_of(
    tree: Tree, precisions: Mapping[AxisLevels, float], total: int | None = None, strategies: Strategies = NO_STRATEGIES
) -> Grid:
    """Return the grid of some axes, given what is measured of their levels.

    Args:
        tree: of the axes, in any order.
        precisions: by the axis levels of what is measured, 1 / σ² of its noise: a product of precisions of a level of each axis.
        strategies: by the numbers of the axes that they measure: at the finest level alone.
    Raises:
        ValueError: nothing that is measured tells some areas apart.
    """
    if not precisions:
        raise ValueError("something must be measured with noise.")
    finest = finest_measured(precisions)
    sides = list[AnySide]()
    for number, axis in enumerate(tree.axes):
        alone = side_tree(axis)
        own = [precisions.get((*finest[:number], level, *finest[number + 1 :]), 0.0) for level in range(axis.depth + 1)]
        own = [of / precisions[finest] for of in own] if number else own  # the first axis bears the scale of all
        is_dense = number in strategies
        sides.append(Dense(alone, strategies[number], 1 / own[-1]) if is_dense else side_of(alone, own))
    return Grid(tuple(sides), total)


def finest_measured(levels: Iterable[AxisLevels]) -> AxisLevels:
    """Return of each axis the finest level that is measured in any combination, which is measured with those of all others."""
    return tuple(map(max, zip(*levels, strict=True)))


def sums_of_cells(axes: Sequence[Axis], counts: IntArray, levels: Sequence[int]) -> IntArray:
    """Return the sums of leaves in the cells of an axis level per axis, int64, shape (areas, areas, …), records.

    Args:
        counts: of all combinations of finest areas, int64, one dimension per axis.
    """
    shares = [axis.areas(level) / axis.areas(axis.depth) for axis, level in zip(axes, levels, strict=True)]
    for number in sorted(range(len(axes)), key=shares.__getitem__):  # what leaves the fewest cells first
        axis, level = axes[number], levels[number]
        if level < axis.depth:
            counts = np.add.reduceat(counts, axis.first_descendants(level, axis.depth)[:-1], axis=number)
    return counts


def round_grid(values: FloatArray) -> IntArray:
    r"""Return whole counts for the values of all combinations of finest areas: the sums over the first areas of all axes are rounded, halves to even.

    A box on d axes is made of :math:`2^d` such sums, so that its count is within :math:`2^{d - 1}` of the sum of its values, and a whole
    total is met.

    Args:
        values: float64, one dimension per axis, records; below 2**50 in absolute value.
    Returns:
        int64, of the same shape, records; they may be negative.
    """
    floors = np.floor(values)
    parts, whole = sums_of_first(values - floors), sums_of_first(floors.astype(np.int64))
    carried = np.floor(parts)
    whole += carried.astype(np.int64)
    parts -= carried
    whole += (parts > 0.5) | ((parts == 0.5) & (whole % 2 == 1))
    for axis in range(values.ndim):
        whole = np.diff(whole, axis=axis, prepend=0)
    return whole


def sums_of_first(values: Values) -> Values:
    """Return the sums over the first areas of all axes, of the same shape."""
    for axis in range(values.ndim):
        values = values.cumsum(axis=axis)
    return values
