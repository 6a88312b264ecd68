"""Sums of leaves that people ask for: all ranges, prefixes, nodes, leaves; and the mean variance of each in a tree, exactly."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np

from tasks.tree.axis import Axis, FloatArray
from tasks.tree.order import Tree
from tasks.unbiased.variance import LevelVariances, TreeVariances, shares_within

RANGES, PREFIX, NODES, LEAVES, SETS = WORKLOADS = ("ranges", "prefix", "nodes", "leaves", "sets")

WORST = "worst_node"

# of dense sets: each has every leaf with a probability q, which lies anywhere between 1/4 and 1 with the same probability
_TOTAL_OF_SETS = 7 / 16  # the mean of q²
_LEAF_OF_SETS = 3 / 16  # the mean of q (1 - q)


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    r"""What all queries r of an axis make of a tree: the quadratic form of :math:`M = \sum_r r r^T`.

    b_v says how the finest areas of area v share a record that least squares gives to v.

    Attributes:
        queries: how many there are.
        whole: for each level of the axis, the sum over its areas of :math:`b_v^T M b_v`.
        contrasts: for each level above the finest and every area v, :math:`\sum_c s_c (b_c - b_v)^T M (b_c - b_v)` over its
            children c, which have the shares s_c; float64, shape (areas,).
    """

    queries: int
    whole: tuple[float, ...]
    contrasts: tuple[FloatArray, ...]


def range_form(axis: Axis, shares: Sequence[FloatArray]) -> Form:
    r"""Return the form of all ranges of adjacent finest areas: :math:`M_{ij} = \min(i, j) \, (n + 1 - \max(i, j))`.

    Args:
        axis: n finest areas, in their order.
        shares: for levels 1 to the finest, the share of each area in its family, float64, shape (areas,).
    """
    means, spreads, between = _positions(axis, shares)
    n = len(means[-1])
    whole = [float(((n + 1) * (mean - spread) - mean**2).sum()) for mean, spread in zip(means, spreads, strict=True)]
    contrasts = []
    for level, first in enumerate(axis.first_child):
        away = means[level + 1] - means[level][axis.parent[level]]
        contrasts.append((n + 1) * between[level] - np.add.reduceat(shares[level] * away**2, first[:-1]))
    return Form(n * (n + 1) // 2, tuple(whole), tuple(contrasts))


def prefix_form(axis: Axis, shares: Sequence[FloatArray]) -> Form:
    r"""Return the form of all ranges that begin with the first area: :math:`M_{ij} = n + 1 - \max(i, j)`; as `range_form`."""
    means, spreads, between = _positions(axis, shares)
    n = len(means[-1])
    whole = [float((n + 1 - mean - spread).sum()) for mean, spread in zip(means, spreads, strict=True)]
    return Form(n, tuple(whole), tuple(between))


def area_form(axis: Axis, shares: Sequence[FloatArray]) -> Form:
    """Return the form of all areas of all levels of an axis; as `range_form`."""
    inner = [np.ones(axis.areas(axis.depth))]  # of an area, what it and the areas below it add to its b M b
    contrasts = list[FloatArray]()
    for first, share in zip(reversed(axis.first_child), reversed(shares), strict=True):
        contrasts.insert(0, np.add.reduceat(share * (1 - share) * inner[0], first[:-1]))
        inner.insert(0, 1 + np.add.reduceat(share**2 * inner[0], first[:-1]))
    whole = tuple(float((of + level).sum()) for level, of in enumerate(inner))
    return Form(sum(len(of) for of in inner), whole, tuple(contrasts))


FORMS: Mapping[str, Callable[[Axis, Sequence[FloatArray]], Form]] = MappingProxyType(
    {RANGES: range_form, PREFIX: prefix_form}
)


def level_weights(workload: str, tree: Tree, ordered: Collection[int]) -> FloatArray:
    r"""Return how much the noise of each level weighs in the variances of a workload, added up; float64, shape (T + 1,).

    If the estimates of all nodes of level l from what is measured below them have the variance :math:`\tau_l`, the variances of
    all queries add up to :math:`\sum_l m_l \tau_l` with these weights m, where :math:`\tau_0` is the variance of the total. This is
    exact where all nodes of a level have equally many children; elsewhere siblings are taken to have equal shares.

    Args:
        workload: `nodes` and `leaves` are those of the tree. `ranges` and `prefix` are boxes: ranges, or prefixes, of every
            ordered axis, and areas of any level of the others. `sets` are dense sets of leaves, and the mean over them.
    Raises:
        ValueError: there is no such workload.
    """
    if workload in FORMS:
        shares = [[np.repeat(1 / of, of) for of in map(np.diff, axis.first_child)] for axis in tree.axes]
        forms = _forms(tree, FORMS[workload], ordered, shares)
        fan_outs = [np.diff(tree.axes[axis].first_child[level]) for axis, level in map(tree.refined, range(tree.depth))]
        return _summed_parts(tree, forms, fan_outs)
    nodes = _nodes(tree)
    new = np.diff(nodes, prepend=0.0)  # nodes beyond those of the level above
    weights: dict[str, FloatArray] = {
        NODES: new * nodes * np.cumsum(1 / nodes[::-1])[::-1],
        LEAVES: new * nodes / nodes[-1],
        SETS: _LEAF_OF_SETS * new * nodes / nodes[-1] + _TOTAL_OF_SETS * np.eye(len(nodes))[0],
    }
    if workload not in weights:
        raise ValueError(f"workload must be one of {', '.join(WORKLOADS)}, got {workload}.")
    return weights[workload]


class Levels(Protocol):
    """What is known of the variances of a tree, with views or without."""

    @property
    def tree(self) -> Tree:
        """The tree."""

    @property
    def total(self) -> float:
        """The variance of the total."""

    @property
    def levels(self) -> list[LevelVariances]:
        """Of levels 0 to T the least, the mean and the most variance of a node."""


def mean_variances(variances: Levels, ordered: Collection[int]) -> dict[str, float]:
    """Return the mean variance of all queries of each workload, and that of the worst node, before rounding, records squared.

    Ranges and prefixes are left out where there is no ordered axis, beside views, and where the tree refines an axis in several goes,
    so that shares of siblings depend on areas of several axes.
    """
    tree, nodes = variances.tree, _nodes(variances.tree)
    levels = variances.levels
    means = {
        NODES: float(nodes @ [level.mean for level in levels] / nodes.sum()),
        LEAVES: levels[-1].mean,
        SETS: of_sets(variances.total, int(nodes[-1]), levels[-1].mean),
        WORST: max(level.most for level in levels),
    }
    if not (ordered and isinstance(variances, TreeVariances)) or sum(
        one != other for one, other in pairwise(tree.steps)
    ) >= len(tree.axes):
        return means
    shares, together = _shares(variances)
    for name, form_of in FORMS.items():
        forms = _forms(tree, form_of, ordered, shares)
        of_total, *of_levels = _summed_parts(tree, forms, together)
        queries = math.prod(form.queries for form in forms)
        means[name] = float(of_total * variances.total + sum(of_levels)) / queries
    return means


def of_sets(total: float, leaves: int, leaf: float) -> float:
    """Return the mean variance of dense sets, from that of the total and the mean one of the leaves, records squared."""
    return _TOTAL_OF_SETS * total + _LEAF_OF_SETS * leaves * leaf


class MeanAndWorst(NamedTuple):
    """The mean and the most variance of the questions of a workload, before rounding, records squared."""

    mean: float
    worst: float


def range_variances(covariance: FloatArray) -> FloatArray:
    """Return the variances of all ranges of an axis, float64, shape (leaves + 1, leaves + 1): at i, j that of the leaves from i to j - 1.

    Args:
        covariance: of the leaves, float64, shape (leaves, leaves), records squared.
    """
    prefixes = np.pad(covariance.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))
    own = np.diagonal(prefixes)
    variances: FloatArray = np.maximum(own[:, None] + own - 2 * prefixes, 0.0)
    return variances


def mean_and_worst(variances: FloatArray) -> dict[str, MeanAndWorst]:
    """Return the mean and the most variance of all ranges and of all prefixes of an axis, by workload.

    Args:
        variances: as `range_variances` returns them.
    """
    of = {RANGES: variances[np.triu_indices(len(variances), 1)], PREFIX: variances[0, 1:]}
    return {workload: MeanAndWorst(float(each.mean()), float(each.max())) for workload, each in of.items()}


def _nodes(tree: Tree) -> FloatArray:
    return np.array([tree.possible_cells(level) for level in range(tree.depth + 1)], dtype=np.float64)


def _forms(
    tree: Tree,
    form_of: Callable[[Axis, Sequence[FloatArray]], Form],
    ordered: Collection[int],
    shares: Sequence[Sequence[FloatArray]],
) -> list[Form]:
    return [
        (form_of if number in ordered else area_form)(axis, of_axis)
        for number, (axis, of_axis) in enumerate(zip(tree.axes, shares, strict=True))
    ]


def _summed_parts(tree: Tree, forms: Sequence[Form], variances: Sequence[FloatArray]) -> FloatArray:
    """Return what the total, at variance 1, and each level add to the variances of all boxes.

    Args:
        forms: one per axis.
        variances: for levels 0 to T - 1, the sum of the variances of the children of each area of the axis that is refined.
    """
    parts = [math.prod(form.whole[0] for form in forms)]
    for level, of_families in enumerate(variances):
        refined, own_level = tree.refined(level)
        reached = tree.axis_levels(level)
        others = math.prod(
            form.whole[at] for axis, (form, at) in enumerate(zip(forms, reached, strict=True)) if axis != refined
        )
        parts.append(float(of_families @ forms[refined].contrasts[own_level]) * others)
    return np.array(parts)


def _shares(variances: TreeVariances) -> tuple[list[list[FloatArray]], list[FloatArray]]:
    """Return for each axis the shares of its areas by level, and for levels 0 to T - 1 the variances of families, summed."""
    tree, together = variances.tree, list[FloatArray]()
    shares: list[list[FloatArray]] = [[] for _ in tree.axes]
    for level in range(tree.depth):
        axis, own_level = tree.refined(level)
        first = tree.axes[axis].first_child[own_level]
        of_family = np.repeat(variances.children[level].ravel(), np.diff(first))
        share, rest = shares_within(variances.below[level + 1].ravel(), of_family)
        shares[axis].append(share)
        together.append(np.add.reduceat(np.broadcast_to(rest, share.shape), first[:-1]))
    return shares, together


def _positions(axis: Axis, shares: Sequence[FloatArray]) -> tuple[list[FloatArray], list[FloatArray], list[FloatArray]]:
    r"""Return of each area the mean position of a record in it, half the mean distance of two, and what lies between its children.

    Positions are the numbers 1 to n of the finest areas. With D the half distance, what lies between is
    :math:`D_v - \sum_c s_c D_c`.
    """
    n = axis.areas(axis.depth)
    means, spreads, between = [np.arange(1.0, n + 1)], [np.zeros(n)], list[FloatArray]()
    for level in reversed(range(axis.depth)):
        begins, parent, share = axis.first_child[level][:-1], axis.parent[level], shares[level]
        mean = np.add.reduceat(share * means[0], begins)
        before = np.cumsum(share) - share
        before -= before[begins][parent]  # the shares of the siblings before it
        across = np.add.reduceat(share * (means[0] - mean[parent]) * (2 * before + share - 1), begins)
        spread = across + np.add.reduceat(share**2 * spreads[0], begins)
        between.insert(0, spread - np.add.reduceat(share * spreads[0], begins))
        means.insert(0, mean)
        spreads.insert(0, spread)
    return means, spreads, between
