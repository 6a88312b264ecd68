"""Boxes: the part of a universe that a query asks for, and the cells of each level that overlap it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.tree.axis import IntArray
from tasks.tree.frontier import locate
from tasks.tree.keys import begins_run
from tasks.tree.order import Tree


@dataclass(frozen=True, slots=True)
class Box:
    """One area of each axis; the query asks for everything that lies in all of them.

    Attributes:
        axis_levels: per axis, the axis level of the area; 0 for everything.
        areas: per axis, the number of the area at that level.
    """

    axis_levels: tuple[int, ...]
    areas: tuple[int, ...]


def reached_by(steps: Sequence[int], level: int, axes: int) -> tuple[int, ...]:
    """Return, per axis, the axis level that a tree level has reached; `steps` as in `Tree`."""
    return tuple(steps[:level].count(axis) for axis in range(axes))


def level_of(steps: Sequence[int], axis_levels: Sequence[int]) -> int:
    """Return the coarsest tree level whose whole cells make up boxes with these axis levels; noise plays no part.

    Args:
        steps: as in `Tree`.
        axis_levels: per axis, as in `Box`; none finer than the finest tree level.
    """
    return next(
        level
        for level in range(len(steps) + 1)
        if all(own >= asked for own, asked in zip(reached_by(steps, level, len(axis_levels)), axis_levels, strict=True))
    )


def areas_met(tree: Tree, level: int, box: Box) -> tuple[range, ...]:
    """Return, per axis, the numbers of the areas of a tree level that contain the box's area or lie in it."""
    met = []
    for axis, reached, asked, area in zip(tree.axes, tree.axis_levels(level), box.axis_levels, box.areas, strict=True):
        if reached <= asked:
            above = int(axis.ancestors(np.array([area]), asked, reached)[0])
            met.append(range(above, above + 1))
        else:
            first = axis.first_descendants(asked, reached)
            met.append(range(int(first[area]), int(first[area + 1])))
    return tuple(met)


def areas_below(tree: Tree, level: int, areas: Sequence[range]) -> tuple[range, ...]:
    """Return, per axis, the numbers of the areas of all children of the cells that have the given areas."""
    refined = tree.steps[level]
    first_child = tree.axes[refined].first_child[tree.axis_levels(level)[refined]]
    return tuple(
        range(int(first_child[of_axis.start]), int(first_child[of_axis.stop])) if axis == refined else of_axis
        for axis, of_axis in enumerate(areas)
    )


def without_children(tree: Tree, level: int, areas: Sequence[IntArray], below: Sequence[IntArray]) -> IntArray:
    """Return the rows of the measured cells that were dropped, because no child of theirs was measured, shape (dropped,).

    All children of a cell that was kept are measured, so it does not matter which of them the box overlaps.

    Args:
        tree: the axes and their order.
        level: the level of the cells.
        areas: per axis, int64, shape (cells,): the areas of the measured cells that the box overlaps.
        below: per axis, int64, shape (children,): the areas of all measured cells of the next level that it overlaps, siblings
            together.
    """
    refined = tree.steps[level]
    parents = list(below)
    parents[refined] = tree.axes[refined].parent[tree.axis_levels(level)[refined]][below[refined]]
    once = np.flatnonzero(begins_run(parents))
    found = locate(areas, [of_axis[once] for of_axis in parents], tree.sizes(level))
    return np.flatnonzero(found < 0)


def most_leaves(tree: Tree, level: int, areas: Sequence[range]) -> int:
    """Return the largest number of leaves below any cell of a level whose areas are in the given ranges, one per axis."""
    finest = tree.axis_levels(tree.depth)
    return math.prod(
        int(np.diff(axis.first_descendants(own, below)[of_axis.start : of_axis.stop + 1]).max())
        for axis, own, below, of_axis in zip(tree.axes, tree.axis_levels(level), finest, areas, strict=True)
    )
