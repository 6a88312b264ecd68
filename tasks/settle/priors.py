"""Counts of all leaves of a tree by priors, in memory: up to estimates, and down by a prior that is fitted to each level."""

from collections.abc import Mapping

import numpy as np

from tasks.optimize.posterior import shared_out
from tasks.optimize.prior import families_with, fitted, prior_means, shrunk_totals
from tasks.optimize.reconcile import NodeEstimates, combined, root_total, summed_children
from tasks.optimize.shrink import FEWEST, Shrink
from tasks.optimize.shrink_statistics import hashed_names, sample_of, statistics_of
from tasks.tree.axis import IntArray
from tasks.tree.frontier import Frontier, expand, root_of
from tasks.tree.order import Tree

Noisy = Mapping[int, tuple[IntArray, float]]


def leaves_by_priors(tree: Tree, noisy: Noisy, finish: Shrink) -> IntArray:
    """Return the counts of all leaves, in the order of their areas, int64, shape (leaves,), records, >= 0.

    It is the second pass of `inftda_shrunk`, where every cell of every level is measured.

    Args:
        noisy: by the levels that are measured, or exact, their noisy counts in the order of their areas, and σ²; the finest is one of them,
            or has the cells of one.
        finish: that of the mechanism.
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
    for level in range(1, tree.depth + 1):
        totals = _shared(tree, level, nodes, first[level - 1], totals, estimates.get(level), finish)
    counts = np.zeros(len(totals), dtype=np.int64)
    counts[places[-1]] = totals
    return counts


def _shared(
    tree: Tree,
    level: int,
    nodes: list[Frontier],
    first: IntArray,
    totals: IntArray,
    estimates: NodeEstimates | None,
    finish: Shrink,
) -> IntArray:
    """Return the counts of a level, given those of the level above; each family's add up to its total."""
    if estimates is None or (np.diff(first) == 1).all():
        return totals
    axis, own = tree.refined(level - 1)
    areas = nodes[level].areas[axis]
    families = families_with(estimates, first, totals)
    names = hashed_names([of[families.parent] for of in nodes[level - 1].areas])
    learnt = statistics_of(families, areas[families.cell], names, tree.axes[axis].areas(own + 1))
    if learnt.cells.sum() < FEWEST:
        return finish.passes.share(estimates, first, totals)
    of_areas = shrunk_totals(learnt.values, learnt.variances, tree.axes[axis].first_child[own])
    prior = fitted(sample_of(learnt, of_areas))
    means = prior_means(
        families.totals.astype(np.float64), families.sizes, families.first, of_areas[areas[families.cell]]
    )
    counts, single = np.zeros(int(first[-1]), dtype=np.int64), np.flatnonzero(np.diff(first) == 1)
    counts[first[single]] = totals[single]
    counts[families.cell] = shared_out(families, means, prior)
    return counts
