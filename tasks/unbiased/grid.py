r"""Two axes side by side: every pair of a node of one and a node of the other is measured, for sums over rectangles.

With precisions p of the levels of one axis and q of those of the other, the pairs of two levels are measured with the precision p q. Then
the information is the product of those of two trees, :math:`X = X_1 \otimes X_2`, and so is the covariance.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from tasks.tree.axis import FloatArray, IntArray
from tasks.tree.frontier import root_of
from tasks.tree.order import Tree
from tasks.unbiased.least_squares import subtrees
from tasks.unbiased.variance import Inside, LevelVariances, TreeVariances, in_ranges, tree_variances
from tasks.unbiased.workloads import LEAVES, NODES, PREFIX, RANGES, mean_variances

Values = TypeVar("Values", FloatArray, IntArray)

Pair = tuple[int, int]  # an axis level of each of the two axes

_PRODUCTS = {RANGES, PREFIX, NODES, LEAVES}  # workloads whose queries are those of one axis times those of the other

GRID_ROUNDING_VARIANCE = 1 / 3  # of a rectangle, records squared: each of four prefix sums is rounded by up to a half


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Two trees of one axis each, all pairs of whose nodes are measured.

    Attributes:
        variances: of the two, each as if it stood alone.
        precisions: of the levels of the two, as in `tree_variances`, none of them infinite: of two levels the pairs are measured
            with the product, and not at all where that is 0.
        total: the exact count of everything; None where it is measured like all pairs.
    """

    variances: tuple[TreeVariances, TreeVariances]
    precisions: tuple[Sequence[float], Sequence[float]]
    total: int | None = None

    def __post_init__(self) -> None:
        """Refuse trees that cannot be put side by side.

        Raises:
            ValueError: a tree has several axes, or a precision is infinite.
        """
        if any(len(of.tree.axes) != 1 for of in self.variances) or not all(
            math.isfinite(precision) for of in self.precisions for precision in of
        ):
            raise ValueError("each side of a grid must have one axis, and finite precisions.")

    def of_boxes(self, first: Sequence[IntArray], stop: Sequence[IntArray]) -> FloatArray:
        """Return the variance of the sum over each of some rectangles, which `in_ranges` describes, float64, shape (boxes,), records squared."""
        return self.variances_of(in_ranges(first, stop), len(first[0]))

    def variances_of(self, inside: Inside, boxes: int = 1) -> FloatArray:
        r"""Return the variance of the sum over each of some rectangles before rounding, float64, shape (boxes,), records squared.

        It is the product of the variances of the two ranges, or sets of areas. If the total is exact, :math:`g^2 V_0` is taken off, where g
        is the share of the total that least squares gives to the rectangle, and V_0 is the variance that the total would have.
        """
        return self._product([of.moments_of(side, boxes) for of, side in self._sides(inside)])

    def _sides(self, inside: Inside) -> list[tuple[TreeVariances, Inside]]:
        """Return both trees, with what is in a rectangle of the axis of each."""
        return [(of, partial(_on_axis, inside, axis)) for axis, of in enumerate(self.variances)]

    @property
    def noisy_levels(self) -> int:
        """How many pairs of levels have noise."""
        return math.prod(map(len, self.precisions)) - (self.total is not None)

    def of_cells(self, levels: Sequence[int], areas: Sequence[IntArray]) -> FloatArray:
        """Return the variances of cells before rounding, float64, shape (cells,), records squared, by their areas per axis, int64, shape (cells,)."""
        moments = [self._of_areas(axis, level) for axis, level in enumerate(levels)]
        return self._product([(share[of], rest[of]) for (share, rest), of in zip(moments, areas, strict=True)])

    def of_level(self, levels: Sequence[int]) -> LevelVariances:
        """Return the least, the mean and the most variance of the cells of two levels."""
        first, second = (self._of_areas(axis, level) for axis, level in enumerate(levels))
        every = self._product([(first[0][:, None], first[1][:, None]), second])
        return LevelVariances(float(every.min()), float(every.mean()), float(every.max()))

    def whole_cells(self, inside: Inside) -> Iterator[tuple[Pair, tuple[IntArray, ...]]]:
        """Yield the fewest cells that make up a single rectangle: the axis levels of some, and their areas per axis, shape (cells,)."""
        one, two = ([*of.whole_cells(side)] for of, side in self._sides(inside))
        for (above,), (rows,) in one:
            for (below,), (columns,) in two:
                yield (above, below), (np.repeat(rows, len(columns)), np.tile(columns, len(rows)))

    def runs_of_box(self, inside: Inside) -> int:
        """Return of how many rectangles of adjacent areas a single box is made, each of four rounded sums."""
        return math.prod(of.runs_of_box(side) for of, side in self._sides(inside))

    def mean_variances(self) -> dict[str, float]:
        """Return the mean variance of all rectangles, and of what `workloads.mean_variances` knows of both axes, before rounding.

        Each is the product of the two means. Of an exact total, what both owe to their totals is taken off.
        """
        sides = [mean_variances(of, {0}) for of in self.variances]
        given_total = [
            mean_variances(tree_variances(of.tree, [math.inf, *precisions[1:]]), {0})
            for of, precisions in zip(self.variances, self.precisions, strict=True)
        ]
        means = {name: math.prod(of[name] for of in sides) for name in sides[0] if name in _PRODUCTS}
        if self.total is not None:
            owed = {
                name: math.prod(of[name] - rest[name] for of, rest in zip(sides, given_total, strict=True))
                for name in means
            }
            means = {name: variance - owed[name] for name, variance in means.items()}
        return means

    def _product(self, moments: Sequence[tuple[FloatArray, FloatArray]]) -> FloatArray:
        """Return the variances of products of sums, given of each axis the shares of the total, and the variances given it."""
        (share, rest), (other_share, other_rest) = moments
        total, other_total = (of.total for of in self.variances)
        product = (share**2 * total + rest) * (other_share**2 * other_total + other_rest)
        if self.total is None:
            return product
        return product - (share * other_share) ** 2 * (total * other_total)

    def _of_areas(self, axis: int, level: int) -> tuple[FloatArray, FloatArray]:
        """Return of each area of a level the share of the total, and the variance given it, float64, shape (areas,)."""
        of = self.variances[axis]
        [own] = of.tree.axes
        begins = own.first_descendants(level, own.depth)
        return of.moments_of(in_ranges([begins[:-1]], [begins[1:]]), len(begins) - 1)

    def settle(self, noisy: Callable[[int, int], IntArray]) -> FloatArray:
        r"""Return the least-squares values of all pairs of finest areas, float64, shape (leaves, leaves); they may be negative.

        The normal equations are :math:`X_1 f X_2 = \sum p q A_1^T y A_2`. So least squares along the second axis, for every node
        of the first, and then along the first axis is least squares over all pairs. An exact total is met by
        shares of what is missing.

        Args:
            noisy: the noisy counts of the pairs of two levels that are measured, int64, shape (nodes, nodes), records. It is not asked for
                the pair of the two roots if the total is exact.
        Guarantees:
            Post-processing: reads no true count. Deterministic.
        """
        of_first, of_second = self.precisions
        rows = [
            _settled(
                self.variances[1], of_second, [self._counts(noisy, above, below) for below in range(len(of_second))]
            )
            if precision
            else None
            for above, precision in enumerate(of_first)
        ]
        values = _settled(self.variances[0], of_first, [None if of is None else of.T for of in rows]).T
        if self.total is not None:
            missing = self.total - math.fsum(values.sum(axis=1))
            values = values + missing * np.outer(*(_shares_of_leaves(of) for of in self.variances))
        return np.ascontiguousarray(values)

    def _counts(self, noisy: Callable[[int, int], IntArray], above: int, below: int) -> IntArray | None:
        """Return the noisy counts of the pairs of two levels; None where they are not measured."""
        if not self.precisions[0][above] * self.precisions[1][below]:
            return None
        if self.total is not None and above == below == 0:
            return np.array([[self.total]])
        return noisy(above, below)


def _on_axis(inside: Inside, axis: int, _: int, begin: IntArray, end: IntArray, box: IntArray) -> IntArray:
    """Return what is in boxes of one axis of two, which is the only one of its tree."""
    return inside(axis, begin, end, box)


def grid_of(tree: Tree, precisions: Mapping[Pair, float], total: int | None = None) -> Grid:
    """Return the grid of two axes, given what is measured of their pairs of levels.

    Args:
        tree: of two axes, in any order.
        precisions: by the axis levels of each pair that is measured, 1 / σ² of its noise: a product of a precision of the one level and
            one of the other.
    Raises:
        ValueError: nothing that is measured tells some areas apart.
    """
    one, two = (max(pair[axis] for pair in precisions) for axis in range(2))
    sides = [Tree((axis,), (0,) * axis.depth) for axis in tree.axes]
    of_sides = (
        [precisions.get((level, two), 0.0) for level in range(sides[0].depth + 1)],
        [precisions.get((one, level), 0.0) / precisions[one, two] for level in range(sides[1].depth + 1)],
    )
    variances = (tree_variances(sides[0], of_sides[0]), tree_variances(sides[1], of_sides[1]))
    return Grid(variances, of_sides, total)


def sums_of_pairs(tree: Tree, counts: IntArray, pair: Sequence[int]) -> IntArray:
    """Return the sums of leaves in the cells of an axis level per axis, int64, shape (areas, areas, …), records.

    Args:
        counts: of all combinations of finest areas, int64, one dimension per axis.
    """
    for number, (axis, level) in enumerate(zip(tree.axes, pair, strict=True)):
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


def _settled(
    variances: TreeVariances, precisions: Sequence[float], noisy: Sequence[FloatArray | IntArray | None]
) -> FloatArray:
    """Return the least-squares values of the leaves of many trees of the same shape, float64, shape (trees, leaves).

    Args:
        variances: of any of the trees.
        noisy: of each level the counts, shape (trees, nodes); None where it is not measured.
    """
    tree = variances.tree
    whole = subtrees(variances, precisions, root_of(tree, 0), tree.depth)
    trees = next(len(of) for of in noisy if of is not None)
    *above, leaves = noisy
    lowest = np.zeros((trees, whole.cells[-1])) if leaves is None else leaves.astype(np.float64)
    estimates, sums = whole.up(above, lowest)
    return whole.down(estimates, sums, estimates[0])


def _shares_of_leaves(variances: TreeVariances) -> FloatArray:
    """Return the share of each leaf in what the total lacks, float64, shape (leaves,)."""
    whole = subtrees(variances, [0.0] * (variances.tree.depth + 1), root_of(variances.tree, 0), variances.tree.depth)
    shares = np.ones(1)
    for fan_out, share in zip(whole.fan_outs, whole.shares, strict=True):
        shares = np.repeat(shares, fan_out) * share
    return shares
