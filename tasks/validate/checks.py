"""Consistency checks on the released counts of one level, from public things alone."""

import numpy as np

from tasks.tree.frontier import Frontier, locate
from tasks.tree.order import Tree


def counts_whole_and_positive(nodes: Frontier) -> bool:
    """Return whether every count is an integer above zero; level 0 may hold a zero."""
    least = 0 if nodes.level == 0 else 1
    return nodes.counts.dtype == np.int64 and bool((nodes.counts >= least).all())


def adds_to_total(nodes: Frontier, total: int) -> bool:
    """Return whether the counts of a level add up to the total of the release."""
    return int(nodes.counts.sum()) == total


def areas_known_once(tree: Tree, nodes: Frontier) -> bool:
    """Return whether every area is in the codebook and no node appears twice."""
    sizes = tree.sizes(nodes.level)
    known = all(bool(((areas >= 0) & (areas < size)).all()) for areas, size in zip(nodes.areas, sizes, strict=True))
    return known and bool((locate(nodes.areas, nodes.areas, sizes) == np.arange(len(nodes))).all())


def children_add_up(tree: Tree, parents: Frontier, nodes: Frontier) -> bool:
    """Return whether the children of every parent add up to it, and no child is without its parent."""
    refined = tree.steps[parents.level]
    axis, own_level = tree.axes[refined], tree.axis_levels(nodes.level)[refined]
    above = list(nodes.areas)
    above[refined] = axis.ancestors(above[refined], own_level, own_level - 1)
    row = locate(above, parents.areas, tree.sizes(parents.level))
    if (row < 0).any():
        return False
    sums = np.bincount(row, weights=nodes.counts, minlength=len(parents))  # floats are exact up to 2**53
    return bool((sums == parents.counts).all())
