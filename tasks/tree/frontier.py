"""The frontier: the surviving nodes of one level as columns, the cells that hang below them, and the leaves of a whole tree."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

from tasks.tree.axis import BoolArray, FloatArray, IntArray
from tasks.tree.keys import LARGEST_KEY, begins_run
from tasks.tree.order import Tree

Values = TypeVar("Values", IntArray, FloatArray)

CHUNK_CELLS = 1_000_000  # one sampler call and one row group


@dataclass(frozen=True, slots=True, eq=False)
class Frontier:
    """Nodes of one level with a released count, in the order of the tree.

    Attributes:
        areas: per axis, int64, shape (nodes,): the area's number at the axis level that the tree level has reached.
        counts: int64, shape (nodes,), records, > 0; of a mechanism that keeps negative counts, any but 0; of a first pass after
            which every cell is measured, also 0.
    """

    level: int
    areas: tuple[IntArray, ...]
    counts: IntArray

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, nodes: slice | BoolArray) -> "Frontier":
        return Frontier(self.level, tuple(areas[nodes] for areas in self.areas), self.counts[nodes])

    def copy(self) -> "Frontier":
        """Return the same nodes, so that those from which they were sliced need not be kept."""
        return Frontier(self.level, tuple(areas.copy() for areas in self.areas), self.counts.copy())


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """All children of some nodes, from the public codebook: nothing here depends on a true count.

    Attributes:
        level: the level of the cells, one below their parents.
        first_cell: int64, shape (parents + 1,): parent p owns the cells first_cell[p] to first_cell[p + 1].
        areas: per axis, int64, shape (cells,).
    """

    level: int
    first_cell: IntArray
    areas: tuple[IntArray, ...]

    def __len__(self) -> int:
        return int(self.first_cell[-1])


def cell_counts(tree: Tree, parents: Frontier) -> IntArray:
    """Return how many cells hang below each of some nodes, shape (parents,)."""
    axis, own_level = tree.refined(parents.level)
    return tree.axes[axis].children_of(own_level, parents.areas[axis])


def first_cells(tree: Tree, parents: Frontier) -> tuple[IntArray, IntArray]:
    """Return where each node's cells begin, and the end, shape (parents + 1,); and the area of each one's first cell."""
    refined, own_level = tree.refined(parents.level)
    first_cell = np.concatenate(([0], np.cumsum(cell_counts(tree, parents))))
    return first_cell, tree.axes[refined].first_child[own_level][parents.areas[refined]]


def expand(tree: Tree, parents: Frontier) -> Cells:
    """Return every child of every node, whatever its true count."""
    refined = tree.steps[parents.level]
    first_cell, first_area = first_cells(tree, parents)
    fan_out = np.diff(first_cell)
    children = np.arange(first_cell[-1]) + np.repeat(first_area - first_cell[:-1], fan_out)
    areas = tuple(
        children if axis == refined else np.repeat(column, fan_out) for axis, column in enumerate(parents.areas)
    )
    return Cells(parents.level + 1, first_cell, areas)


def keep_positive(cells: Cells, counts: IntArray, _noisy: IntArray | None = None) -> Frontier:
    """Return the cells with a positive count as the next frontier; zeros leave it with all that is below them.

    Args:
        counts: of the first pass, shape (cells,), int64, records, >= 0.
    """
    return keep_all(cells, counts)[counts > 0]


def keep_all(cells: Cells, counts: IntArray, _noisy: IntArray | None = None) -> Frontier:
    """Return all cells as the next frontier, those with a count of 0 too; arguments are those of `keep_positive`."""
    return Frontier(cells.level, cells.areas, counts)


def keep_largest(cells: Cells, counts: IntArray, noisy: IntArray) -> Frontier:
    """Return the cells with a positive count and, of each family, the first with the largest noisy count, as the next frontier.

    So every parent has a child that stays, and can have a count in the end.

    Args:
        cells: as in `keep_positive`; likewise `counts`.
        noisy: of the cells, shape (cells,), int64, records.
    """
    fan_out = np.diff(cells.first_cell)
    order = np.lexsort((-noisy, np.repeat(np.arange(len(fan_out)), fan_out)))
    kept = counts > 0
    kept[order[cells.first_cell[:-1]]] = True
    return keep_all(cells, counts)[kept]


def cells_of(tree: Tree, parents: Frontier, kept: Frontier) -> tuple[IntArray, IntArray]:
    """Return the positions of some nodes among all children of their parents.

    Args:
        parents: all have a child in `kept`, or exactly those whose count is not 0 have one.
        kept: the nodes, of the next level, in the order of the tree.
    Returns:
        int64, shape (parents + 1,): parent p has the nodes first_kept[p] to first_kept[p + 1]; and int64, shape (kept,):
        the cell that each node is, as `expand(tree, parents)` numbers them.
    """
    begins = begins_run(tree.areas_above(kept.level, kept.areas))
    starts = np.flatnonzero(begins)
    has_kept = np.arange(len(parents)) if len(starts) == len(parents) else np.flatnonzero(parents.counts)
    of_parents = np.zeros(len(parents), dtype=np.int64)
    of_parents[has_kept] = np.diff(starts, append=len(kept))
    first_kept = np.concatenate(([0], np.cumsum(of_parents)))
    first_cell, first_area = first_cells(tree, parents)
    return first_kept, (first_cell[:-1] - first_area)[has_kept][np.cumsum(begins) - 1] + kept.areas[
        tree.steps[parents.level]
    ]


def chunks(cells_per_parent: IntArray, most_cells: int) -> Iterator[slice]:
    """Yield slices of parents with at most `most_cells` cells each; a single larger parent makes a chunk of its own.

    Args:
        cells_per_parent: shape (parents,).
    """
    ends = np.cumsum(cells_per_parent)
    cuts = [0]
    while cuts[-1] < len(ends):
        before = int(ends[cuts[-1] - 1]) if cuts[-1] else 0
        cuts.append(max(cuts[-1] + 1, int(np.searchsorted(ends, before + most_cells, side="right"))))
    for start, stop in pairwise(cuts):
        yield slice(start, stop)


def taking(parts: Iterator[Values]) -> Callable[[int], Values]:
    """Return a function that takes the next n values from parts of any size, one-dimensional.

    Raises:
        StopIteration: raised by the returned function if fewer values are left.
    """
    waiting: Values | None = None

    def take(wanted: int) -> Values:
        nonlocal waiting
        while waiting is None or len(waiting) < wanted:
            waiting = next(parts) if waiting is None or not len(waiting) else np.concatenate((waiting, next(parts)))
        taken, waiting = waiting[:wanted], waiting[wanted:]
        return taken

    return take


def locate(wanted: Sequence[IntArray], present: Sequence[IntArray], sizes: Sequence[int]) -> IntArray:
    """Return, for each wanted node, its row among the present ones, or -1.

    Args:
        wanted: per axis, the area of each node looked for, shape (wanted,).
        present: per axis, the area of each node there is, shape (present,); no node twice.
        sizes: per axis, how many areas there are. Their product may exceed 64 bits.
    """
    size = sizes[0]
    wanted_key, present_key = wanted[0], present[0]
    for wanted_area, present_area, areas in zip(wanted[1:], present[1:], sizes[1:], strict=True):
        if size * areas > LARGEST_KEY:
            seen, key = np.unique(np.concatenate((wanted_key, present_key)), return_inverse=True)
            wanted_key, present_key, size = key[: len(wanted_key)], key[len(wanted_key) :], len(seen)
        wanted_key = wanted_key * areas + wanted_area
        present_key = present_key * areas + present_area
        size *= areas
    if not len(present_key):
        return np.full(len(wanted_key), -1)
    order = np.argsort(present_key)
    in_order = present_key[order]
    nearest = np.minimum(np.searchsorted(in_order, wanted_key), len(in_order) - 1)
    return np.where(in_order[nearest] == wanted_key, order[nearest], -1)


def root_of(tree: Tree, count: int) -> Frontier:
    """Return level 0: one node that holds everything."""
    return Frontier(0, tuple(np.zeros(1, dtype=np.int64) for _ in tree.axes), np.array([count], dtype=np.int64))


def nodes_above(tree: Tree, level: int, most_cells: int) -> Iterator[Frontier]:
    """Yield all nodes of the level above a level (> 0), in the order of the tree; nothing here depends on a true count.

    Depth first, so that only a part of each level is in memory at a time.

    Args:
        level: of the cells below the nodes.
        most_cells: of that level below the nodes of one part; a single node with more makes a part of its own.
    Yields:
        Nodes whose counts have no meaning.
    """

    def below(nodes: Frontier) -> Iterator[Frontier]:
        for part in chunks(cell_counts(tree, nodes), most_cells):
            if nodes.level == level - 1:
                yield nodes[part]
            else:
                cells = expand(tree, nodes[part])
                yield from below(Frontier(cells.level, cells.areas, np.ones(len(cells), dtype=np.int64)))

    return below(root_of(tree, 1))


def without_zeros(nodes: Frontier) -> Frontier:
    """Return the nodes whose count is not 0, below zero or above."""
    return nodes[nodes.counts != 0]


def sums_of_children(tree: Tree, level: int, children: Iterable[Frontier]) -> Iterator[Frontier]:
    """Yield the nodes of a level whose children do not add up to 0, part by part; at level 0 the one node, always.

    Nodes that add up to 0 add nothing to those above them, so that a level can be summed from the next one.

    Args:
        children: parts of the next level, which together hold all of its nodes with a count, in the order of the tree.
    """
    if level == 0:
        yield root_of(tree, sum(int(part.counts.sum()) for part in children))
        return
    waiting: Frontier | None = None  # the last node, whose children may go on in the next part
    for part in children:
        if not len(part):
            continue
        parents = Frontier(level, tuple(tree.areas_above(level + 1, part.areas)), part.counts)
        parents = joined(level, [waiting, parents]) if waiting else parents
        starts = np.flatnonzero(begins_run(parents.areas))
        sums = np.add.reduceat(parents.counts, starts)
        nodes = Frontier(level, tuple(column[starts] for column in parents.areas), sums)
        yield without_zeros(nodes[:-1])
        waiting = nodes[-1:].copy()
    if waiting:
        yield without_zeros(waiting)


def joined(level: int, parts: Iterable[Frontier]) -> Frontier:
    """Return parts of a level, at least one, as one."""
    there = list(parts)
    areas = tuple(np.concatenate(columns) for columns in zip(*(part.areas for part in there), strict=True))
    return Frontier(level, areas, np.concatenate([part.counts for part in there]))
