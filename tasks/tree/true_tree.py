"""The true tree: confidential records sorted along the order of refinement, as prefix runs per level."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tasks.tree.axis import IntArray
from tasks.tree.frontier import Frontier, first_cells, locate
from tasks.tree.order import Tree

LARGEST_TOTAL = 2**40  # records; with it and sigma <= 2**32 no arithmetic on noisy counts can overflow

_KEY_BITS = 63


@dataclass(frozen=True, slots=True, eq=False)
class TrueLevel:
    """Nodes of one level with a positive true count, in the order of the tree, and the root always. Confidential.

    Attributes:
        areas: per axis, int64, shape (nodes,), at the axis levels that the tree level has reached.
        true_counts: int64, shape (nodes,), records, > 0; the root of an empty table has 0.
        first_child: int64, shape (nodes,): the position of the node's first child in the next level.
        children: int64, shape (nodes,): how many positions from there on are its children; 0 at the finest level.
    """

    areas: tuple[IntArray, ...]
    true_counts: IntArray
    first_child: IntArray
    children: IntArray

    def __len__(self) -> int:
        return len(self.true_counts)


def grow(tree: Tree, leaf_areas: Sequence[IntArray], true_counts: IntArray) -> Iterator[TrueLevel]:
    """Yield the true levels from 0 to T.

    Args:
        tree: the axes and their order.
        leaf_areas: per axis, int64, shape (records,): area at the axis' finest level; no combination twice.
        true_counts: int64, shape (records,), > 0; it may be empty.
    """
    if not len(true_counts):
        yield from _barren(tree)
        return
    order = _tree_order(tree, leaf_areas)
    leaf_areas = [areas[order] for areas in leaf_areas]
    before = np.concatenate(([0], np.cumsum(true_counts[order])))
    begins = np.zeros(len(order), dtype=bool)
    begins[0] = True
    starts = np.flatnonzero(begins)
    for level in range(tree.depth + 1):
        reached = tree.axis_levels(level)
        areas = tuple(
            axis.ancestors(leaves[starts], axis.depth, own)
            for axis, leaves, own in zip(tree.axes, leaf_areas, reached, strict=True)
        )
        if level < tree.depth:
            refined = tree.steps[level]
            axis = tree.axes[refined]
            next_areas = axis.ancestors(leaf_areas[refined], axis.depth, reached[refined] + 1)
            begins[1:] |= next_areas[1:] != next_areas[:-1]
            next_starts = np.flatnonzero(begins)
            first_child = np.searchsorted(next_starts, starts)
            children = np.diff(np.append(first_child, len(next_starts)))
        else:
            next_starts, first_child, children = starts, np.zeros_like(starts), np.zeros_like(starts)
        yield TrueLevel(areas, np.diff(before[np.append(starts, len(order))]), first_child, children)
        starts = next_starts


def _barren(tree: Tree) -> Iterator[TrueLevel]:
    """Yield the true levels of a table without records: a root that counts nothing, and nothing below it."""
    for level in range(tree.depth + 1):
        nothing = np.zeros(1 if level == 0 else 0, dtype=np.int64)
        yield TrueLevel(tuple(nothing for _ in tree.axes), nothing, nothing, nothing)


def _tree_order(tree: Tree, leaf_areas: Sequence[IntArray]) -> IntArray:
    """Return the permutation that sorts records along the order of refinement.

    A step's rank of a child within its parent takes a few bits; steps are packed into as few 64-bit keys as they need.
    """
    keys = [np.zeros(len(leaf_areas[0]), dtype=np.int64)]
    bits_used = 0
    for level, refined in enumerate(tree.steps):
        axis, own_level = tree.axes[refined], tree.axis_levels(level)[refined]
        areas = axis.ancestors(leaf_areas[refined], axis.depth, own_level + 1)
        first_child = axis.first_child[own_level]
        bits = int(np.diff(first_child).max()).bit_length()
        if bits_used + bits > _KEY_BITS:
            keys.append(np.zeros(len(areas), dtype=np.int64))
            bits_used = 0
        keys[-1] = (keys[-1] << bits) | (areas - first_child[axis.parent[own_level][areas]])
        bits_used += bits
    return np.lexsort(keys[::-1])


@dataclass(frozen=True, slots=True, eq=False)
class TrueFamilies:
    """Some true nodes of a level and their children. Confidential.

    Attributes:
        areas: per axis, int64, shape (nodes,): the nodes' areas, in any order.
        first_child: int64, shape (nodes,): where among the children the node's begin.
        children: int64, shape (nodes,): how many there are.
        child_areas: int64, shape (children,): on the axis that is refined.
        child_counts: int64, shape (children,), records.
    """

    areas: tuple[IntArray, ...]
    first_child: IntArray
    children: IntArray
    child_areas: IntArray
    child_counts: IntArray


def true_counts_of(tree: Tree, parents: Frontier, true: TrueFamilies) -> IntArray:
    """Return the true count of every cell below some surviving nodes, zeros included. Confidential.

    Args:
        tree: the axes and their order.
        parents: the surviving nodes.
        true: true nodes of their level, at least those that are among `parents`, with their children.
    Returns:
        int64, shape (cells,), records, in the order of `expand(tree, parents)`.
    """
    rows = locate(true.areas, parents.areas, tree.sizes(parents.level))
    alive = np.flatnonzero(rows >= 0)
    children = true.children[alive]
    ends = np.cumsum(children)
    row = np.repeat(rows[alive], children)
    child = np.arange(len(row)) + np.repeat(true.first_child[alive] - (ends - children), children)
    first_cell, first_area = first_cells(tree, parents)
    true_counts = np.zeros(first_cell[-1], dtype=np.int64)
    true_counts[(first_cell[:-1] - first_area)[row] + true.child_areas[child]] = true.child_counts[child]
    return true_counts
