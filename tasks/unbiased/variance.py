"""Exact variances of least squares in a tree of which every node is measured: of nodes, and of boxes of leaves."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tasks.laws.law import LevelNoise
from tasks.tree.axis import Axis, AxisLevels, BoolArray, FloatArray, IntArray, first_leaves
from tasks.tree.frontier import Frontier, cell_counts, expand, root_of
from tasks.tree.order import Tree

# of a range of leaves, records squared: each of its two prefix sums is rounded by up to a half
ROUNDING_VARIANCE = 1 / 6
SUM_ROUNDING_VARIANCE = 1 / 12  # of one such sum over the first areas of all axes

# from an axis, by its number, the first finest area of each of some nodes and the first one after it that is outside, and the box to which
# each node is compared, by its number, to how many finest areas of the node are in the box, int64, shape (nodes,)
Inside = Callable[[int, IntArray, IntArray, IntArray], IntArray]


def in_ranges(first: Sequence[IntArray], stop: Sequence[IntArray]) -> Inside:
    """Return what is in boxes that have a range of finest areas on each axis.

    Args:
        first: per axis, int64, shape (boxes,): the first finest area inside.
        stop: likewise the first one after it that is outside; a box without leaves has the variance 0.
    """
    return lambda axis, begin, end, box: np.maximum(
        np.minimum(end, stop[axis][box]) - np.maximum(begin, first[axis][box]), 0
    )


def in_sets(chosen: Sequence[BoolArray]) -> Inside:
    """Return what is in a single box that has some finest areas of each axis, given per axis which ones, shape (finest areas,)."""
    before = [np.append(0, np.cumsum(of)) for of in chosen]
    return lambda axis, begin, end, _: before[axis][end] - before[axis][begin]


class Visit(NamedTuple):
    """Nodes of a level that are compared to boxes: all of which the parents lie partly inside.

    Attributes:
        nodes: of which the counts number the boxes.
        share: g of each, the share of a record of the node that least squares gives to the box, float64, shape (nodes,).
        rest: V of each, given its parent, records squared; 0 of an only child, and of the root.
        below: the sum of `rest` over the children that are compared too; 0 where none is.
    """

    nodes: Frontier
    share: FloatArray
    rest: FloatArray
    below: FloatArray


@dataclass(frozen=True, slots=True)
class LevelVariances:
    """The least, the mean and the most variance of the nodes of a level, before counts are rounded, records squared."""

    least: float
    mean: float
    most: float


@dataclass(frozen=True, eq=False)
class TreeVariances:
    r"""The variances of least squares in a tree, before counts are rounded; `tree_variances` makes them.

    With V_v the variance of the estimate of node v from what is measured in its subtree, the least-squares estimate of a child is
    its share :math:`s_c = V_c / \sum V` of its parent's, plus noise that does not depend on the parent's. So a sum of leaves with
    weights r has the variance

    .. math:: g_0^2 V_0 + \sum_v \sum_{c \text{ child of } v} V_c (g_c - g_v)^2, \qquad g_v = \sum_c s_c g_c

    with g = r at the leaves. Below a node that lies wholly inside or outside a set of leaves all g are the same.

    Arrays have a dimension per axis. It has length 1 for an axis that no later step refines, because subtrees do not depend on its
    areas then; so they broadcast against arrays of shape `tree.sizes(level)`, and take memory for axes, not for cells.

    Attributes:
        below: for levels 0 to T, V of every node, records squared.
        children: for levels 0 to T - 1, the sum of V over the children of every node.
    Source:
        docs/proofs/mechanisms.md derives it.
    """

    tree: Tree
    below: tuple[FloatArray, ...]
    children: tuple[FloatArray, ...]

    def own(self, level: int, precision: float) -> FloatArray:
        """Return the weight of a node's own noisy count in its estimate, which broadcasts like `below`: 1 where that is exact.

        Args:
            precision: of the level, as it was given.
        """
        if np.isinf(precision):
            return np.ones((1,) * len(self.tree.axes))
        return self.below[level] * precision * self.portions[level]

    @cached_property
    def portions(self) -> tuple[FloatArray, ...]:
        """`portions_of` the tree."""
        return portions_of(self.tree)

    @property
    def total(self) -> float:
        """The variance of the total; 0 where it is exact."""
        return float(self.below[0].item())

    @property
    def noisy_levels(self) -> int:
        """How many levels have noise."""
        return sum(level.most > 0 for level in self.levels)

    @property
    def covariance(self) -> FloatArray:
        """The covariance of the leaves of a single axis, float64, shape (leaves, leaves), records squared."""
        [axis] = self.tree.axes
        covariance = self.below[0][:, None]
        for parent, own, together in zip(axis.parent, self.below[1:], self.children, strict=True):
            share, rest = shares_within(own, together[parent])
            siblings = parent[:, None] == parent
            covariance = share[:, None] * share * covariance[np.ix_(parent, parent)]
            covariance += np.diag(rest) - np.where(siblings, rest[:, None] * share, 0.0)
        return covariance

    def of_cells(self, axis_levels: Sequence[int], areas: Sequence[IntArray]) -> FloatArray:
        """Return the variance of each of some nodes of a level, float64, shape (nodes,), records squared.

        Args:
            areas: per axis, int64, shape (nodes,).
        """
        variances, weight = np.zeros(len(areas[0])), np.ones(len(areas[0]))
        for above in reversed(range(self._number(axis_levels))):
            own = at_nodes(self.below[above + 1], areas)
            areas = self.tree.areas_above(above + 1, areas)
            share, rest = shares_within(own, at_nodes(self.children[above], areas))
            variances += weight * rest * (1 - share)
            weight *= share**2
        return variances + weight * self.total

    def of_level(self, axis_levels: Sequence[int]) -> LevelVariances:
        """Return those of the level with some axis levels."""
        return self.levels[self._number(axis_levels)]

    def _number(self, axis_levels: Sequence[int]) -> int:
        number = sum(axis_levels)
        if number > self.tree.depth or tuple(axis_levels) != tuple(self.tree.axis_levels(number)):
            raise ValueError(f"no level of the tree has the axis levels {tuple(axis_levels)}.")
        return number

    @cached_property
    def levels(self) -> list[LevelVariances]:
        """Of levels 0 to T the least, the mean and the most variance of a node."""
        least = mean = most = self.below[0]
        levels = [LevelVariances(self.total, self.total, self.total)]
        for above in range(self.tree.depth):
            axis, own_level = self.tree.refined(above)
            fan_out = np.diff(self.tree.axes[axis].first_child[own_level])
            is_last = self.below[above + 1].shape[axis] < fan_out.sum()  # the children of a node have equal subtrees
            repeats = np.ones_like(fan_out) if is_last else fan_out
            share, rest = shares_within(self.below[above + 1], np.repeat(self.children[above], repeats, axis))
            # a child's variance rises with its parent's, and nodes with equal subtrees have equal shares
            least, mean, most = (
                share**2 * np.repeat(of, repeats, axis) + rest * (1 - share) for of in (least, mean, most)
            )
            if is_last:
                weights = fan_out / fan_out.sum()
                least, most = least.min(axis, keepdims=True), most.max(axis, keepdims=True)
                mean = np.expand_dims(np.tensordot(mean, weights, (axis, 0)), axis)
            levels.append(LevelVariances(float(least.min()), float(mean.mean()), float(most.max())))
        return levels

    def of_boxes(self, first: Sequence[IntArray], stop: Sequence[IntArray]) -> FloatArray:
        """Return the variance of the sum of each of some boxes of leaves, which `in_ranges` describes, float64, shape (boxes,), records squared."""
        return self.variances_of(in_ranges(first, stop), len(first[0]))

    def variances_of(self, inside: Inside, boxes: int = 1) -> FloatArray:
        """Return the variance of the sum of each of some boxes of leaves, float64, shape (boxes,), records squared.

        Only nodes that lie partly inside are visited: of a range of a single axis two per level, with their children.
        """
        share, rest = self.moments_of(inside, boxes)
        return share**2 * self.total + rest

    def whole_cells(self, inside: Inside) -> Iterator[tuple[tuple[int, ...], tuple[IntArray, ...]]]:
        """Yield the nodes that lie wholly inside a single box, and whose parents do not: the axis levels of some, and their areas, shape (nodes,)."""
        for nodes, is_inside, _ in self._visited(inside):
            yield self.tree.axis_levels(nodes.level), nodes[is_inside].areas

    def runs_of_box(self, inside: Inside) -> int:
        """Return of how many runs of adjacent leaves, in the order of the tree, a single box is made.

        A range of a single axis is one run; a range of one axis in several areas of axes that are refined before is a run in each.
        """
        begins, ends = list[IntArray](), list[IntArray]()
        place, fan_out = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)
        for nodes, is_inside, partly in self._visited(inside):
            leaves = self.tree.leaves_below(nodes.level, nodes.areas)
            place = np.repeat(place, fan_out) + _before(leaves, fan_out)
            begins.append(place[is_inside])
            ends.append((place + leaves)[is_inside])
            if nodes.level < self.tree.depth:
                place, fan_out = place[partly], cell_counts(self.tree, nodes[partly])
        return len(np.setdiff1d(np.concatenate(begins), np.concatenate(ends)))

    def _visited(self, inside: Inside) -> Iterator[tuple[Frontier, BoolArray, BoolArray]]:
        """Yield the nodes of every level whose parents lie partly inside a box, and which of them lie inside it wholly, and partly."""
        nodes = root_of(self.tree, 0)
        for level in range(self.tree.depth + 1):
            is_inside, partly = self._inside_boxes(nodes, inside)
            yield nodes, is_inside > 0, partly
            if level < self.tree.depth:
                cells = expand(self.tree, nodes[partly])
                nodes = Frontier(cells.level, cells.areas, np.zeros(len(cells), dtype=np.int64))

    def moments_of(self, inside: Inside, boxes: int = 1) -> tuple[FloatArray, FloatArray]:
        """Return of each box the share of the total that least squares gives it, and its variance given the total; as `variances_of`."""
        visits, variances = self.visits(inside, boxes)
        return visits[0].share, variances

    def visits(self, inside: Inside, boxes: int = 1) -> tuple[list[Visit], FloatArray]:
        """Return the nodes that are compared to boxes, coarse to fine, and the variance of each box given the total; as `variances_of`."""
        tree = self.tree
        nodes, rest = (
            Frontier(0, tuple(np.zeros(boxes, dtype=np.int64) for _ in tree.axes), np.arange(boxes)),
            np.zeros(boxes),
        )
        visits, families = list[Visit](), list[tuple[IntArray, IntArray, FloatArray]]()
        while True:
            is_inside, partly = self._inside_boxes(nodes, inside)
            visits.append(Visit(nodes, is_inside, rest, np.zeros(len(nodes))))
            if nodes.level == tree.depth or not partly.any():
                break
            parents = nodes[partly]
            cells = expand(tree, parents)
            fan_out = np.diff(cells.first_cell)
            own = at_nodes(self.below[nodes.level + 1], cells.areas)
            share, rest = shares_within(own, np.repeat(at_nodes(self.children[nodes.level], parents.areas), fan_out))
            visits[-1].below[partly] = np.add.reduceat(rest, cells.first_cell[:-1])
            families.append((np.flatnonzero(partly), fan_out, share))
            nodes = Frontier(nodes.level + 1, cells.areas, np.repeat(parents.counts, fan_out))
        variances = np.zeros(boxes)
        for (at, fan_out, share), above, of in reversed(list(zip(families, visits, visits[1:], strict=False))):
            begins = np.cumsum(fan_out) - fan_out
            means = np.add.reduceat(share * of.share, begins)
            apart = of.rest * (of.share - np.repeat(means, fan_out)) ** 2
            variances += np.bincount(above.nodes.counts[at], np.add.reduceat(apart, begins), boxes)
            above.share[at] = means
        return visits, variances

    @cached_property
    def _first_leaves(self) -> list[list[IntArray]]:
        return [first_leaves(axis.first_child, axis.areas(axis.depth)) for axis in self.tree.axes]

    def _inside_boxes(self, nodes: Frontier, inside: Inside) -> tuple[FloatArray, BoolArray]:
        """Return which nodes lie wholly inside a box, as 1.0, and which only partly; the counts of the nodes number their boxes."""
        whole, meets = np.ones(len(nodes), dtype=bool), np.ones(len(nodes), dtype=bool)
        reached = self.tree.axis_levels(nodes.level)
        for axis, (leaves, level, areas) in enumerate(zip(self._first_leaves, reached, nodes.areas, strict=True)):
            begin, end = leaves[level][areas], leaves[level][areas + 1]
            many = inside(axis, begin, end, nodes.counts)
            whole &= many == end - begin
            meets &= many > 0
        whole &= meets
        return whole.astype(np.float64), meets & ~whole


def tree_variances(tree: Tree, precisions: Sequence[float]) -> TreeVariances:
    """Return the variances of least squares in a tree whose levels are measured with independent noise.

    Args:
        tree: the axes and their order; every area that is not at the finest level has a child.
        precisions: for levels 0 to T, 1 / σ² of the noise; 0 where a level is not measured, inf where it is exact. Of a tree that cascades
            they are those of the most precise nodes.
    Guarantees:
        Post-processing: reads codebooks and noise scales alone.
    Raises:
        ValueError: there is not one precision per level, one is below 0 or not a number, or a node has several children, and
            nothing that is measured tells them apart.
    """
    if len(precisions) != tree.depth + 1 or not all(precision >= 0 for precision in precisions):
        raise ValueError(f"precisions must be {tree.depth + 1} numbers >= 0, one per level, got {list(precisions)}.")
    portions = portions_of(tree)
    below = [_inverse(precisions[-1] * portions[-1])]
    children = list[FloatArray]()
    for level in reversed(range(tree.depth)):
        axis, own_level = tree.refined(level)
        first = tree.axes[axis].first_child[own_level]
        shape = [-1 if number == axis else 1 for number in range(len(tree.axes))]
        fan_out = np.diff(first).reshape(shape)
        is_alike = below[0].shape[axis] == 1  # the children of a node have equal subtrees
        sums = below[0] * fan_out if is_alike else np.add.reduceat(below[0], first[:-1], axis)
        if (np.isinf(sums) & (fan_out > 1)).any():
            raise ValueError(f"level {level + 1} must be measured: nothing tells its nodes from their siblings.")
        children.insert(0, sums)
        below.insert(0, _inverse(precisions[level] * portions[level] + _inverse(sums)))
    if np.isinf(below[0]).any():
        raise ValueError("at least one level must be measured.")
    return TreeVariances(tree, tuple(below), tuple(children))


def cascade_of(tree: Tree) -> list[FloatArray]:
    r"""Return the precisions with which every node of any tree has the variance 1, of levels 0 to T; each broadcasts like `TreeVariances.below`.

    A node that is one of b siblings and has b' children has

    .. math:: p = \frac{b}{b + 1} - \frac{1}{b' + 1}

    where the total has :math:`b = \infty`, and leaves have :math:`b' = \infty`. Then a node has the variance :math:`(b + 1) / b` from what is
    measured in its subtree. A level of only children repeats the one above, and has none; other only children share what is measured of the
    same records with the nodes above them.

    Source:
        Dharangutte, Gao, Gong and Wang (2024), Algorithm 2; docs/proofs/unbiased-trees.md derives the precisions.
    """
    children = np.full((1,) * len(tree.axes), np.inf)
    found = list[FloatArray]()
    for level in reversed(range(tree.depth)):
        axis, own_level = tree.refined(level)
        fan_out = np.diff(tree.axes[axis].first_child[own_level])
        if (fan_out == 1).all():
            found.insert(0, np.zeros((1,) * len(tree.axes)))
            continue
        found.insert(0, 1 - 1 / (_along(tree, axis, np.repeat(fan_out, fan_out)) + 1) - 1 / (children + 1))
        children = _along(tree, axis, fan_out).astype(np.float64)
    return [1 - 1 / (children + 1), *found]


def portions_of(tree: Tree) -> tuple[FloatArray, ...]:
    """Return how precisely nodes are measured, as a part of the most precise nodes of their level, of levels 0 to T; as `cascade_of`.

    All are 1, but where all axes of the tree cascade.
    """
    if not all(axis.cascades for axis in tree.axes):
        return (np.ones((1,) * len(tree.axes)),) * (tree.depth + 1)
    return tuple(of / of.max() if of.any() else np.ones_like(of) for of in cascade_of(tree))


def portions_in(tree: Tree, at: AxisLevels, level: int | None) -> FloatArray:
    """Return the portions of the cells of a level, or of a table of a grid, with a dimension per axis of the tree, of length 1 where all are alike.

    Args:
        at: per axis, the axis level.
        level: its number in the tree; None in a grid, where a cell has the product of the portions of its areas, as each axis alone has them.
    """
    if level is not None:
        return portions_of(tree)[level]
    whole = np.ones((1,) * len(tree.axes))
    for number, (axis, own) in enumerate(zip(tree.axes, at, strict=True)):
        shape = [-1 if of == number else 1 for of in range(len(tree.axes))]
        whole = whole * portions_of(side_tree(axis))[own].reshape(shape)
    return whole


def variances_of(noise: LevelNoise, portions: FloatArray, areas: Sequence[IntArray]) -> FloatArray:
    """Return the variances of the noisy counts of cells, float64, shape (cells,), records squared; inf where nothing is measured.

    Args:
        noise: of the most precise cells.
        portions: as `portions_in` has them.
        areas: per axis, the numbers of the cells' areas, shape (cells,).
    """
    if portions.size == 1:
        return np.full(len(areas[0]), noise.variance)
    distinct, which = np.unique(at_nodes(portions, areas), return_inverse=True)
    scales = [noise.scale / math.sqrt(of) if of else math.inf for of in distinct.tolist()]
    own = [replace(noise, scale=scale).variance if math.isfinite(scale) else math.inf for scale in scales]
    return np.array(own)[which]


def is_uneven(tree: Tree) -> bool:
    """Return whether some nodes of a level of a tree are measured less precisely than others."""
    return any(of.size > 1 for of in portions_of(tree))


def side_tree(axis: Axis) -> Tree:
    """Return an axis as a tree of its own."""
    return Tree((axis,), (0,) * axis.depth)


def _along(tree: Tree, axis: int, values: IntArray) -> IntArray:
    """Return values of the areas of an axis as an array with a dimension per axis; a single one where all are the same."""
    values = values[:1] if len(values) and (values == values[0]).all() else values
    return values.reshape([-1 if number == axis else 1 for number in range(len(tree.axes))])


def _before(leaves: IntArray, fan_out: IntArray) -> IntArray:
    """Return how many leaves the siblings before each node have, int64, shape (nodes,)."""
    before = np.cumsum(leaves) - leaves
    families = np.cumsum(fan_out) - fan_out
    within: IntArray = before - np.repeat(before[families], fan_out)
    return within


def _inverse(values: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        return 1 / values


def shares_within(own: FloatArray, together: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the share of a node in what its family lacks, and V of those that share; an only child takes all, and has no V."""
    alone = own == together
    share = np.divide(own, together, out=np.ones(np.broadcast_shapes(own.shape, together.shape)), where=~alone)
    return share, np.where(alone, 0.0, own)


def at_nodes(values: FloatArray, areas: Sequence[IntArray]) -> FloatArray:
    """Return the entries of an array with a dimension per axis, some of length 1, at the areas of nodes; shape (nodes,)."""
    places = tuple(of if size > 1 else np.zeros_like(of) for of, size in zip(areas, values.shape, strict=True))
    return values[places]
