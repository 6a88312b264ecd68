"""The true tree: confidential records sorted along the order of refinement, as prefix runs per level."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tasks.tree.axis import BoolArray, IntArray
from tasks.tree.frontier import Frontier, first_cells, locate
from tasks.tree.order import Tree
from tasks.work.capacity import in_slices

LARGEST_TOTAL = 2**40  # records; with it and sigma <= 2**32 no arithmetic on noisy counts can overflow

SAMPLED = 64  # one of 64 records is in the sample by which the sort is shared out among threads

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
        leaf_areas: per axis, int64, shape (records,): area at the axis' finest level; no combination twice.
        true_counts: int64, shape (records,), > 0; it may be empty.
    """
    if not len(true_counts):
        for level in range(tree.depth + 1):  # a root that counts nothing, and nothing below it
            nothing = np.zeros(0 if level else 1, dtype=np.int64)
            yield TrueLevel(tuple(nothing for _ in tree.axes), nothing, nothing, nothing)
        return
    order = _tree_order(tree, leaf_areas)
    leaf_areas = [_taken(areas, order) for areas in leaf_areas]
    before = np.zeros(len(order) + 1, dtype=np.int64)
    np.cumsum(_taken(true_counts, order), out=before[1:])
    begins = np.zeros(len(order), dtype=bool)
    begins[0] = True
    ends = _ends(begins)
    for level in range(tree.depth + 1):
        next_ends = ends
        if level < tree.depth:
            _mark_beginnings(tree, level, leaf_areas, begins)
            next_ends = _ends(begins)
        *areas, counts = (np.empty(len(ends) - 1, dtype=np.int64) for _ in range(len(tree.axes) + 1))
        first_child, children = np.zeros((2, len(counts)), dtype=np.int64)
        nodes = TrueLevel(tuple(areas), counts, first_child, children)
        in_slices(len(nodes), partial(_fill, nodes, tree, level, leaf_areas, before, ends, next_ends))
        yield nodes
        ends = next_ends


def _ends(begins: BoolArray) -> IntArray:
    """Return the record with which each node begins, and the number of records, from marks at these records."""
    first = in_slices(len(begins), lambda records: np.flatnonzero(begins[records]) + records.start)
    return np.concatenate([*first, [len(begins)]])


def _mark_beginnings(tree: Tree, level: int, leaf_areas: Sequence[IntArray], begins: BoolArray) -> None:
    """Mark the records with which nodes of the level below `level` begin; those of `level` are marked already."""
    refined, own_level = tree.refined(level)
    axis = tree.axes[refined]

    def mark(records: slice) -> None:
        areas = axis.ancestors(leaf_areas[refined][records.start : records.stop + 1], axis.depth, own_level + 1)
        begins[records.start + 1 : records.stop + 1] |= areas[1:] != areas[:-1]

    in_slices(len(begins) - 1, mark)


def _fill(
    nodes: TrueLevel,
    tree: Tree,
    level: int,
    leaf_areas: Sequence[IntArray],
    before: IntArray,
    ends: IntArray,
    next_ends: IntArray,
    these: slice,
) -> None:
    """Fill in some nodes of a level.

    Args:
        leaf_areas: per axis, shape (records,), in the order of the tree.
        before: shape (records + 1,): the sum of the true counts before each record.
        ends: shape (nodes + 1,): the record with which each node begins, and the number of records.
        next_ends: likewise of the next level; not read at the finest one.
    """
    here = ends[these.start : these.stop + 1]
    for axis, leaves, areas, own in zip(tree.axes, leaf_areas, nodes.areas, tree.axis_levels(level), strict=True):
        areas[these] = axis.ancestors(leaves.take(here[:-1]), axis.depth, own)
    nodes.true_counts[these] = np.diff(before.take(here))
    if level < tree.depth:
        first_child = np.searchsorted(next_ends, here)
        nodes.first_child[these], nodes.children[these] = first_child[:-1], np.diff(first_child)


def _tree_order(tree: Tree, leaf_areas: Sequence[IntArray]) -> IntArray:
    """Return the permutation that sorts records along the order of refinement.

    A step's rank of a child within its parent takes a few bits; steps are packed into as few 64-bit keys as they need.
    """
    parts = in_slices(len(leaf_areas[0]), lambda rows: _keys(tree, [areas[rows] for areas in leaf_areas]))
    keys = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
    sample = np.sort(keys[0][::SAMPLED])

    def sort(places: slice) -> IntArray:
        """Return the records, sorted, whose first keys are between those that the sample has at about the ends of some places."""
        inside = np.ones(len(keys[0]), dtype=bool)
        if places.start > 0:
            inside &= keys[0] >= sample[places.start // SAMPLED]
        if places.stop < len(inside):
            inside &= keys[0] < sample[places.stop // SAMPLED]
        records = np.flatnonzero(inside)
        return records.take(np.lexsort([key.take(records) for key in reversed(keys)]))

    return np.concatenate(in_slices(len(keys[0]), sort))


def _keys(tree: Tree, leaf_areas: Sequence[IntArray]) -> list[IntArray]:
    """Return the keys of records, the first one first."""
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
        keys[-1] = (keys[-1] << bits) | (areas - first_child.take(axis.parent[own_level].take(areas)))
        bits_used += bits
    return keys


def _taken(values: IntArray, order: IntArray) -> IntArray:
    """Return values in another order."""
    taken = np.empty(len(order), dtype=values.dtype)
    in_slices(len(order), lambda rows: np.take(values, order[rows], out=taken[rows], mode="clip"))  # "raise" copies
    return taken


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
