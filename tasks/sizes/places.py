"""Places: where a group lies, its region and the values of its attributes. Each place of a level has its own sizes, which are the last axis of the tree.

A group has one value of each attribute, as it has one region. So the nodes of a tree that refines regions and attributes are places as regions
are: a group lies in one of every level, and those below a place follow each other in the order of the tree.
"""

import math
from collections.abc import Sequence

import numpy as np

from tasks.tree.axis import AxisLevels, IntArray
from tasks.tree.keys import AreaArray
from tasks.tree.order import Tree


def places_of(tree: Tree, level: int) -> int:
    """Return how many places a level of a tree of group sizes has."""
    return math.prod(tree.sizes(level)[:-1])


def numbered(tree: Tree, levels: AxisLevels, areas: Sequence[AreaArray]) -> IntArray:
    """Return the numbers of the places at some axis levels that have some areas: those of the last attribute follow each other.

    Args:
        areas: per axis, integers, shape (cells,); what they say of the axis of sizes is not looked at.
    """
    sizes = [axis.areas(level) for axis, level in zip(tree.axes, levels, strict=True)][:-1]
    numbers: IntArray = np.ravel_multi_index(tuple(of.astype(np.int64) for of in areas[:-1]), sizes)
    return numbers


def areas_of(tree: Tree, levels: AxisLevels, numbers: IntArray) -> tuple[IntArray, ...]:
    """Return the areas of places by their numbers, per axis but that of the sizes, int64, shape (places,)."""
    sizes = [axis.areas(level) for axis, level in zip(tree.axes, levels, strict=True)][:-1]
    return tuple(of.astype(np.int64) for of in np.unravel_index(numbers, sizes))


def in_tree_order(tree: Tree, level: int) -> IntArray:
    """Return the numbers of the places of a level in the order of the tree, int64, shape (places,)."""
    reached, own = tree.axis_levels(level), [0] * len(tree.axes)
    numbers = np.arange(places_of(tree, level))
    areas, paths = areas_of(tree, reached, numbers), list[IntArray]()
    for axis in tree.steps[:level]:
        own[axis] += 1
        if axis < len(areas):
            paths.append(tree.axes[axis].ancestors(areas[axis], reached[axis], own[axis]))
    return np.lexsort(paths[::-1]) if paths else numbers


def first_inside(tree: Tree, level: int, below: int) -> IntArray:
    """Return where the places of a level below begin in each place of a level, and the end, both in the order of the tree; int64, shape (places + 1,)."""
    reached, finer, many = tree.axis_levels(level), tree.axis_levels(below), np.ones(1, dtype=np.int64)
    for axis, own, inside in zip(tree.axes[:-1], reached, finer, strict=False):
        many = np.multiply.outer(many, np.diff(axis.first_descendants(own, inside))).ravel()
    return np.append(0, np.cumsum(many[in_tree_order(tree, level)]))


def by_place(tree: Tree, level: int, counts: IntArray) -> IntArray:
    """Return the counts of all cells of a level, which come in the order of the tree, by place in that order and size: shape (places, sizes)."""
    return np.ascontiguousarray(counts.reshape(-1, places_of(tree, level)).T)
