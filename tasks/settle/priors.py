"""Counts of all leaves of a tree by priors, in memory: up to estimates, and down by a prior that is fitted to each level."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from tasks.optimize.prior import families_with, shrunk_totals
from tasks.optimize.reconcile import NodeEstimates, combined, root_total, summed_children
from tasks.optimize.shrink import Shrink, counts_by_prior
from tasks.optimize.shrink_statistics import hashed_names, level_prior, statistics_of
from tasks.settle.margins import totals_of_axis
from tasks.tree.axis import FloatArray, IntArray
from tasks.tree.frontier import Frontier, expand, root_of
from tasks.tree.order import Tree, innermost

Noisy = Mapping[int, tuple[IntArray, float]]
NO_MARGINS: Mapping[int, Noisy] = MappingProxyType({})


def leaves_by_priors(tree: Tree, noisy: Noisy, finish: Shrink, margins: Mapping[int, Noisy] = NO_MARGINS) -> IntArray:
    """Return the counts of all leaves, in the order of their areas, int64, shape (leaves,), records, >= 0.

    It is the second pass of `inftda_shrunk`, where every cell of every level is measured.

    Args:
        noisy: by the levels that are measured, or exact, their noisy counts in the order of their areas, and σ²; the finest is one of them,
            or has the cells of one.
        finish: that of the mechanism.
        margins: by the numbers of axes and their levels, the totals that are measured besides, shape (areas of the level,), and σ².
    Guarantees:
        Post-processing: reads no true count. Deterministic.
    """
    nodes, first = [root_of(tree, 0)], list[IntArray]()
    for level in range(tree.depth):
        cells = expand(tree, nodes[-1])
        nodes.append(Frontier(level + 1, cells.areas, np.zeros(len(cells), dtype=np.int64)))
        first.append(cells.first_cell)
    places = [np.ravel_multi_index(of.areas, tree.sizes(of.level)) for of in nodes]
    estimates: dict[int, NodeEstimates] = {}
    below: NodeEstimates | None = None
    for level in reversed(range(tree.depth + 1)):
        if level in noisy:
            counts, variance = noisy[level]
            below = combined(counts[places[level]], variance, below)
        if below is None:
            continue  # each node of the level above has one cell here
        estimates[level] = below
        if level:
            every = np.ones(len(below), dtype=bool)
            below = summed_children(np.zeros(len(below), dtype=np.int64), 1.0, first[level - 1], every, below)
    totals = np.array([root_total(estimates[0], 1)])
    of_axes = {axis: totals_of_axis(tree.axes[axis], of_axis) for axis, of_axis in margins.items()}
    for level in range(1, tree.depth + 1):
        axis, own = tree.refined(level - 1)
        of_areas = of_axes.get(axis, {}).get(own + 1)
        totals = _shared(tree, level, nodes, first[level - 1], totals, estimates.get(level), finish, of_areas)
    counts = np.zeros(len(totals), dtype=np.int64)
    counts[places[-1]] = totals
    return counts


def drawn_totals(tree: Tree, margins: Mapping[int, Noisy]) -> dict[int, dict[int, FloatArray]]:
    """Return the totals of axes, drawn to what those of a level show to be likely, by axis and axis level, shape (areas,), records, >= 0.

    Args:
        margins: as in `leaves_by_priors`.
    """
    return {
        axis: {
            own: shrunk_totals(of.values, of.variances, tree.axes[axis].first_child[own - 1])
            for own, of in totals_of_axis(tree.axes[axis], of_axis).items()
        }
        for axis, of_axis in margins.items()
    }


def _shared(
    tree: Tree,
    level: int,
    nodes: list[Frontier],
    first: IntArray,
    totals: IntArray,
    estimates: NodeEstimates | None,
    finish: Shrink,
    of_areas: NodeEstimates | None,
) -> IntArray:
    """Return the counts of a level, given those of the level above; each family's add up to its total."""
    if estimates is None or (np.diff(first) == 1).all():
        return totals
    axis, own = tree.refined(level - 1)
    families = families_with(estimates, first, totals)
    areas = [of[families.cell] for of in nodes[level].areas]
    places = areas[axis], innermost(tree, level)(areas)
    names = hashed_names([of[families.parent] for of in nodes[level - 1].areas])
    learnt = statistics_of(families, *places, names, tree.axes[axis].areas(own + 1))
    prior = level_prior(learnt, tree.axes[axis].first_child[own], of_areas)
    if not len(prior.weights):
        return finish.passes.share(estimates, first, totals)
    return counts_by_prior(families, *places, first, totals, prior)
