r"""A tree of which every node is measured, with views beside it: one more set of rows to least squares.

What the tree alone says of its leaves has the covariance :math:`\Sigma`, which `TreeVariances` knows without a matrix. With the cells W
of the views, whose noise has the precisions P, the covariance is

.. math:: \Sigma - \Sigma W^T (P^{-1} + S)^{-1} W \Sigma, \qquad S = W \Sigma W^T

so that only a matrix with a row and a column per cell of a view is dense. For weights r and w of the leaves, with g_v and f_v their means
below node v by the shares of least squares,

.. math:: r^T \Sigma w = \sum_v (\tau_v - \textstyle\sum_{c} \tau_c) \, g_v f_v

over all nodes v with children c, where :math:`\tau_0 = V_0` and :math:`\tau_c = V_c`, or 0 for an only child. Below a node where r or w
is constant, :math:`\tau_v g_v f_v` stands for all of its terms.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from tasks.tree.axis import FloatArray, IntArray
from tasks.tree.order import Tree
from tasks.tree.views import Partition, View, ViewCells, finest_named, level_view, unnumbered
from tasks.unbiased.variance import Inside, LevelVariances, TreeVariances, at_nodes, in_ranges, shares_within
from tasks.unbiased.workloads import mean_variances

MOST_CELLS = 5000  # of all views together: the rows of a dense matrix
MOST_OPERATIONS = (
    10**12
)  # to solve with its factor for every cell of the coarsest level that refines all views: some two minutes


_AT_ONCE = 2**24  # covariances in memory, each of a sum and a cell of a view


class _Step(NamedTuple):
    """How a level follows from the one above it; arrays broadcast against those of all nodes of a level, as in `TreeVariances`.

    Attributes:
        axis: the number of the one that is refined.
        first: the first child of each of its areas, and the end.
        share: of each node of the level, in what its family lacks.
        tau: of each node of the level.
        below: of each node of the level above, the sum of tau over its children.
    """

    axis: int
    first: IntArray
    share: FloatArray
    tau: FloatArray
    below: FloatArray

    def up(self, values: FloatArray) -> FloatArray:
        """Return the sums of the values of children, of the shape of the level above."""
        return np.add.reduceat(values, self.first[:-1], self.axis)

    def down(self, values: FloatArray) -> FloatArray:
        """Return for each child the value of its parent, of the shape of the level."""
        return np.repeat(values, np.diff(self.first), self.axis)


@dataclass(frozen=True, eq=False)
class TreeWithViews:
    """A tree whose levels are measured, with views beside it.

    Attributes:
        alone: the variances of the tree without views.
        precisions: of levels 0 to T, as in `tree_variances`.
        views: with 1 / σ² of their noise; any of them may cross.
    """

    alone: TreeVariances
    precisions: Sequence[float]
    views: Sequence[tuple[View, float]]

    @property
    def tree(self) -> Tree:
        """The tree."""
        return self.alone.tree

    @property
    def noisy_levels(self) -> int:
        """How many levels and views have noise."""
        return self.alone.noisy_levels + len(self.views)

    @property
    def total(self) -> float:
        """The variance of the total; 0 where it is exact."""
        return self.levels[0].mean

    @property
    def covariance(self) -> FloatArray:
        """The covariance of the leaves of a single axis, float64, shape (leaves, leaves), records squared."""
        from scipy.linalg import solve_triangular

        alone = self.alone.covariance
        if not self.views:  # all of them are levels
            return alone
        across = np.zeros((len(self), len(alone)))
        for partition, cells in self._of_leaves(self.tree.depth):
            np.add.at(across[partition], cells, alone)
        solved = solve_triangular(self._factor, across, lower=True)
        covariance: FloatArray = alone - solved.T @ solved
        return covariance

    # variances ---------------------------------------------------------------------------------------------------------------------

    def of_boxes(self, first: Sequence[IntArray], stop: Sequence[IntArray]) -> FloatArray:
        """Return the variance of the sum of each of some boxes of leaves, which `in_ranges` describes, float64, shape (boxes,), records squared."""
        return self.variances_of(in_ranges(first, stop), len(first[0]))

    def variances_of(self, inside: Inside, boxes: int = 1) -> FloatArray:
        """Return the variance of the sum of each of some boxes of leaves before rounding, float64, shape (boxes,), records squared."""
        from scipy.sparse import csr_array

        visits, variances = self.alone.visits(inside, boxes)
        variances += visits[0].share ** 2 * self.alone.total
        for some in _parts(boxes, len(self)) if self.views else ():
            covariances = np.zeros((some.stop - some.start, len(self)))
            for of in visits[: self.level + 1]:
                level = of.nodes.level
                tau = of.rest if level else self.alone.total
                weights = of.share * (tau - (of.below if level < self.level else 0.0))
                box = of.nodes.counts
                at = np.flatnonzero((weights != 0) & (box >= some.start) & (box < some.stop))
                shape = covariances.shape[0], len(at)
                to_boxes = csr_array((weights[at], (box[at] - some.start, np.arange(len(at)))), shape)
                covariances += (to_boxes @ self._rows(level, [areas[at] for areas in of.nodes.areas])).toarray()
            variances[some] -= self._explained(covariances)
        return np.maximum(variances, 0.0)

    def of_cells(self, levels: Sequence[int], areas: Sequence[IntArray]) -> FloatArray:
        """Return the variance of each of some nodes of a level, float64, shape (nodes,), records squared; arguments as in `TreeVariances.of_cells`."""
        variances = self.alone.of_cells(levels, areas)
        if not self.views:  # all of them are levels
            return variances
        level, weight = sum(levels), np.ones(len(areas[0]))
        while level > self.level:
            weight *= at_nodes(self._steps[level - 1].share, areas)
            areas, level = self.tree.areas_above(level, areas), level - 1
        sizes = self.tree.sizes(level)
        nodes, place = np.unique(np.ravel_multi_index(tuple(areas), sizes), return_inverse=True)
        if level not in self._taken_off and 2 * len(nodes) >= math.prod(sizes):
            self._taken_off[level] = self._of_nodes(level, self._areas(level))
        every = self._taken_off.get(level)
        taken_off = self._of_nodes(level, np.unravel_index(nodes, sizes)) if every is None else every[nodes]
        return np.maximum(variances - weight**2 * taken_off[place], 0.0)

    def of_level(self, levels: Sequence[int]) -> LevelVariances:
        """Return those of the level with some axis levels."""
        return self.levels[sum(levels)]

    @cached_property
    def levels(self) -> list[LevelVariances]:
        """Of levels 0 to T the least, the mean and the most variance of a node."""
        every = (
            self.of_cells(self.tree.axis_levels(level), self._areas(level)) for level in range(self.tree.depth + 1)
        )
        return [LevelVariances(float(of.min()), float(of.mean()), float(of.max())) for of in every]

    def mean_variances(self) -> dict[str, float]:
        """Return the mean variance of nodes, leaves and dense sets, and that of the worst node, before rounding, records squared."""
        return mean_variances(self, ())

    def of_view(self, number: int) -> FloatArray:
        """Return the variance of each cell of a view, by its number, before rounding, float64, shape (cells,), records squared."""
        place = next(place for place, (view, _) in enumerate(self.views) if view.number == number)
        covariances = self._between[self._first[place] : self._first[place + 1]]
        own = np.diagonal(self._between)[self._first[place] : self._first[place + 1]]
        return np.maximum(own - self._explained(covariances), 0.0)

    def of_weights(self, weights: FloatArray) -> float:
        """Return the variance of a sum of leaves with weights, float64, shape `tree.sizes(T)`, before rounding, records squared."""
        spread = self._spread(weights)
        variance = float((weights * spread).sum())
        if self.views:
            variance -= float(self._explained(self._sums(spread)[None])[0])
        return max(variance, 0.0)

    # least squares -----------------------------------------------------------------------------------------------------------------

    def settle(self, noisy: Callable[[int], IntArray]) -> FloatArray:
        r"""Return the least-squares values of all leaves, float64, shape `tree.sizes(T)`; they may be negative.

        They are those of the tree alone, f, and :math:`\Sigma W^T (P^{-1} + S)^{-1} (y - W f)` with the noisy counts y of the views.

        Args:
            noisy: from the number of a level that is measured, or of a view, to its noisy counts, in the order of its areas, int64, shape (cells,), records.
        Guarantees:
            Post-processing: reads no true count. Deterministic.
        """
        values = self._settle_alone(noisy)
        if not self.views:
            return values
        missing = np.concatenate([noisy(view.number) for view, _ in self.views]) - self._sums(values)
        from scipy.linalg import cho_solve

        weights, level = cho_solve((self._factor, True), missing), self.tree.depth
        spread = np.zeros(values.size)
        for partition, cells in self._of_leaves(level):
            spread += weights[partition][cells]
        return values + self._spread(spread.reshape(values.shape))

    def _settle_alone(self, noisy: Callable[[int], IntArray]) -> FloatArray:
        estimates, sums = list[FloatArray](), list[FloatArray]()
        for level in reversed(range(self.tree.depth + 1)):
            sizes, precision = self.tree.sizes(level), self.precisions[level]
            below = np.zeros(sizes) if level == self.tree.depth else self._steps[level].up(estimates[0])
            sums.insert(0, below)
            if precision:
                below = below + self.alone.own(level, precision) * (noisy(level).reshape(sizes) - below)
            estimates.insert(0, below)
        values = estimates[0]
        for step, estimate, below in zip(self._steps, estimates[1:], sums, strict=False):
            values = estimate + step.share * step.down(values - below)
        return values

    def _spread(self, weights: FloatArray) -> FloatArray:
        r"""Return :math:`\Sigma r` for weights r of the leaves, float64, shape `tree.sizes(T)`."""
        means = [weights]
        for step in reversed(self._steps):
            means.insert(0, step.up(step.share * means[0]))
        spread = self.alone.total * means[0]
        for step, above, own in zip(self._steps, means, means[1:], strict=False):
            spread = step.share * step.down(spread) + step.tau * (own - step.down(above))
        return spread

    # the cells of views ------------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return how many cells all views have."""
        return self._first[-1]

    @cached_property
    def level(self) -> int:
        """The coarsest level that refines all views."""
        return level_refining(self.tree, [view for view, _ in self.views])

    @cached_property
    def partitions(self) -> Mapping[int, Partition]:
        """The views with their cells, by their numbers."""
        return {view.number: Partition(self.tree, view) for view, _ in self.views}

    @cached_property
    def _taken_off(self) -> dict[int, FloatArray]:
        """By level, what the views take off the variances of all of its nodes, once that is known."""
        return {}

    @cached_property
    def _first(self) -> list[int]:
        """The place of the first cell of each view among those of all, and the end."""
        return [0, *np.cumsum([len(partition) for partition in self.partitions.values()]).tolist()]

    @cached_property
    def _steps(self) -> list[_Step]:
        steps = []
        for above, children in enumerate(self.alone.children):
            axis, own_level = self.tree.refined(above)
            first = self.tree.axes[axis].first_child[own_level]
            fan_out = np.diff(first)
            share, tau = shares_within(self.alone.below[above + 1], np.repeat(children, fan_out, axis))
            shape = [-1 if number == axis else 1 for number in range(len(self.tree.axes))]
            steps.append(_Step(axis, first, share, tau, np.where(fan_out.reshape(shape) == 1, 0.0, children)))
        return steps

    def _areas(self, level: int) -> tuple[IntArray, ...]:
        """Return the areas of all nodes of a level, in their order."""
        return Partition(self.tree, level_view(self.tree, level)).cells().areas

    def _of_leaves(self, level: int) -> Iterator[tuple[slice, IntArray]]:
        """Yield of each view its place among the cells of all, and the cell that holds each node of a level, which refines it."""
        cells = ViewCells(self.tree.axis_levels(level), self._areas(level))
        for place, partition in enumerate(self.partitions.values()):
            yield slice(self._first[place], self._first[place + 1]), partition.places(cells)

    def _sums(self, values: FloatArray) -> FloatArray:
        """Return the sums of leaves in the cells of all views, float64, shape (cells,)."""
        sums = np.zeros(len(self))
        for partition, cells in self._of_leaves(self.tree.depth):
            sums[partition] = np.bincount(cells, values.ravel(), partition.stop - partition.start)
        return sums

    @cached_property
    def _means(self) -> list[Any]:
        """Of levels 0 to the one that refines all views, a sparse matrix, shape (nodes, cells of views): f_v of every cell and node."""
        from scipy.sparse import csr_array

        cells = np.stack([of + partition.start for partition, of in self._of_leaves(self.level)], axis=-1)
        nodes, views = cells.shape
        means = [
            csr_array((np.ones(cells.size), cells.ravel(), np.arange(0, cells.size + 1, views)), (nodes, len(self)))
        ]
        for above in reversed(range(self.level)):
            step, sizes = self._steps[above], self.tree.sizes(above + 1)
            parents = np.ravel_multi_index(
                tuple(self.tree.areas_above(above + 1, self._areas(above + 1))), self.tree.sizes(above)
            )
            share, shape = np.broadcast_to(step.share, sizes).ravel(), (self.tree.possible_cells(above), parents.size)
            means.insert(0, csr_array((share, (parents, np.arange(parents.size))), shape) @ means[0])
        return means

    def _rows(self, level: int, areas: Sequence[IntArray]) -> Any:
        """Return the rows of `_means` of some nodes."""
        return self._means[level][np.ravel_multi_index(tuple(areas), self.tree.sizes(level))]

    def _tau(self, level: int) -> FloatArray:
        return self._steps[level - 1].tau if level else self.alone.below[0]

    @cached_property
    def _between(self) -> FloatArray:
        """S, the covariances of the cells of views by the tree alone, float64, shape (cells, cells), records squared."""
        between = np.zeros((len(self), len(self)))
        for level, means in enumerate(self._means):
            below = self._steps[level].below if level < self.level else 0.0
            weights = np.broadcast_to(self._tau(level) - below, self.tree.sizes(level)).ravel()
            is_dense = means.nnz * 10 > math.prod(means.shape)
            for some in _parts(len(weights), len(self) if is_dense else 1):
                rows = means[some].toarray() if is_dense else means[some]
                weighted = rows * weights[some, None] if is_dense else rows.multiply(weights[some, None]).tocsr()
                between += rows.T @ weighted
        return between

    @cached_property
    def _factor(self) -> FloatArray:
        r"""The Cholesky factor of :math:`P^{-1} + S`."""
        noise = np.concatenate(
            [np.full(len(self.partitions[view.number]), 1 / precision) for view, precision in self.views]
        )
        return np.linalg.cholesky(self._between + np.diag(noise)).astype(np.float64)

    def _explained(self, covariances: FloatArray) -> FloatArray:
        """Return what the views take off the variances of sums, given their covariances with the cells of views, shape (sums, cells)."""
        from scipy.linalg import solve_triangular

        solved = solve_triangular(self._factor, covariances.T, lower=True)
        squares: FloatArray = np.einsum("ij,ij->j", solved, solved)
        return squares

    def _of_nodes(self, level: int, areas: Sequence[IntArray]) -> FloatArray:
        """Return what the views take off the variances of nodes of a level that is no finer than the one that refines all views."""
        taken_off = np.zeros(len(areas[0]))
        for some in _parts(len(taken_off), len(self)):
            at, weight = [of[some] for of in areas], np.ones(some.stop - some.start)
            covariances = np.zeros((len(weight), len(self)))
            for own in reversed(range(level + 1)):
                below = at_nodes(self._steps[own].below, at) if own < level else 0.0
                weights = weight * (at_nodes(self._tau(own), at) - below)
                covariances += self._rows(own, at).multiply(weights[:, None]).toarray()
                if own:
                    weight = weight * at_nodes(self._steps[own - 1].share, at)
                    at = self.tree.areas_above(own, at)
            taken_off[some] = self._explained(covariances)
        return taken_off

    def whole_cells(self, inside: Inside) -> Iterator[tuple[tuple[int, ...], tuple[IntArray, ...]]]:
        """Yield the fewest nodes of the tree that make up a single box, as `TreeVariances.whole_cells`."""
        return self.alone.whole_cells(inside)

    def runs_of_box(self, inside: Inside) -> int:
        """Return of how many rounded sums over the first areas of all axes a single box is made, at most: of each run of areas two."""
        corners = 1
        for number, axis in enumerate(self.tree.axes):
            areas = np.arange(axis.areas(axis.depth))
            chosen = inside(number, areas, areas + 1, np.zeros_like(areas))
            corners *= 1 if chosen.all() else 2 * int(np.count_nonzero(np.diff(chosen, prepend=0) > 0))
        return corners


def level_refining(tree: Tree, views: Sequence[View]) -> int:
    """Return the coarsest level of a tree of which each cell lies in one cell of every view, whatever the codebooks are."""
    return next(
        level for level in range(tree.depth + 1) if all(level_view(tree, level).refines(view) for view in views)
    )


def roundings_of(partition: Partition) -> IntArray:
    r"""Return how many rounded sums over the first areas of all axes make up each cell of a view, int64, shape (cells,).

    A sum that is taken k times counts as :math:`k^2`: the variance of rounding is that many times 1/12. A box is made of its corners. A
    cell of a derived column can have any shape.
    """
    tree, finest = partition.tree, finest_named([partition.view])
    sizes = [axis.areas(level) for axis, level in zip(tree.axes, finest, strict=True)]
    named = [number for number, size in enumerate(sizes) if size > 1]
    if not (partition.view.derived and named):
        return np.full(len(partition), 2 ** len(named))
    cells = partition.places(Partition(tree, unnumbered(finest)).cells()).reshape([sizes[number] for number in named])
    cells = np.pad(cells, [(0, 1)] * len(named), constant_values=-1)
    corners = [
        (
            (-1) ** sum(way),
            cells[tuple(slice(step, size - 1 + step) for step, size in zip(way, cells.shape, strict=True))],
        )
        for way in product((0, 1), repeat=len(named))
    ]
    roundings = np.zeros(len(partition), dtype=np.int64)
    for (sign, one), (other_sign, other) in product(corners, repeat=2):
        same = one[(one == other) & (one >= 0)]
        roundings += sign * other_sign * np.bincount(same, minlength=len(partition))
    return roundings


def _parts(rows: int, columns: int) -> Iterator[slice]:
    """Yield parts of some rows such that a dense matrix of each fits in memory."""
    some = max(_AT_ONCE // max(columns, 1), 1)
    return (slice(first, min(first + some, rows)) for first in range(0, rows, some))
