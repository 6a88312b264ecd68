"""Boxes: the part of a universe that a question asks for, and the cells of each level that it meets."""

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
    """One area of each axis; what lies in all of them is asked for.

    Attributes:
        axis_levels: per axis, the axis level of its area; 0 for everything.
        areas: per axis, the number of its area at that level.
    """

    axis_levels: tuple[int, ...]
    areas: tuple[int, ...]


def reached_by(steps: Sequence[int], level: int, axes: int) -> tuple[int, ...]:
    """Return, per axis, which of its own levels a tree level has reached; `steps` as in `Tree`."""
    return tuple(steps[:level].count(axis) for axis in range(axes))


def level_of(steps: Sequence[int], axis_levels: Sequence[int]) -> int:
    """Return the coarsest tree level of which boxes with these axis levels are whole cells: the question decides, no noise.

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
    """Return, per axis, the numbers of the areas of a tree level that a box meets: those that hold its area, or lie in it."""
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
    """Return, per axis, the numbers of the areas of all children of the cells of a level that have some areas."""
    refined = tree.steps[level]
    first_child = tree.axes[refined].first_child[tree.axis_levels(level)[refined]]
    return tuple(
        range(int(first_child[of_axis.start]), int(first_child[of_axis.stop])) if axis == refined else of_axis
        for axis, of_axis in enumerate(areas)
    )


def without_children(tree: Tree, level: int, areas: Sequence[IntArray], below: Sequence[IntArray]) -> IntArray:
    """Return which measured cells of a level were dropped: those of which no child was measured, shape (dropped,), rows.

    All children of a cell that stays are measured; so it does not matter which of them a box meets.

    Args:
        tree: the axes and their order.
        level: of the cells.
        areas: per axis, int64, shape (cells,): of measured cells that a box meets.
        below: per axis, int64, shape (children,): of all measured cells of the next level that it meets, siblings together.
    """
    refined = tree.steps[level]
    parents = list(below)
    parents[refined] = tree.axes[refined].parent[tree.axis_levels(level)[refined]][below[refined]]
    once = np.flatnonzero(begins_run(parents))
    found = locate(areas, [of_axis[once] for of_axis in parents], tree.sizes(level))
    return np.flatnonzero(found < 0)


def most_leaves(tree: Tree, level: int, areas: Sequence[range]) -> int:
    """Return the most leaves below any of some cells of a level, whose areas are in ranges of numbers, an axis each."""
    finest = tree.axis_levels(tree.depth)
    return math.prod(
        int(np.diff(axis.first_descendants(own, below)[of_axis.start : of_axis.stop + 1]).max())
        for axis, own, below, of_axis in zip(tree.axes, tree.axis_levels(level), finest, areas, strict=True)
    )
