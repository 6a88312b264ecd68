"""Boxes: the parts of a universe that questions ask for, the cells of each level that overlap them, and sums over these."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from storage.tables import NOISY
from tasks.tree.axis import Axis, AxisLevels, BoolArray, IntArray
from tasks.tree.frontier import locate
from tasks.tree.keys import packed
from tasks.tree.order import Tree
from tasks.uncertainty.intervals import NO_CAP

_POSSIBLE = 4  # times as many combinations of areas as rows, where these are grouped by marks


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Boxes of one kind: of areas of the same axis levels. Many boxes have an area of each axis; a single one may have a set of areas of each.

    Attributes:
        levels: per axis, the axis level; 0 for everything.
        areas: per axis, the number of the area of each box, int64, shape (boxes,); 0 for everything. Of a single box the numbers of all
            its areas, ascending, shape (areas of the axis,).
        within: per axis, which rows of a table lie in the single box, so that no others are read; None of many boxes, for which whole
            tables are.
        codes: by derived column, the codes of what is counted.
    """

    levels: AxisLevels
    areas: tuple[IntArray, ...]
    within: tuple[Sequence[pl.Expr], ...] | None = None
    codes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.areas[0]) if self.within is None else 1

    @property
    def cells(self) -> int:
        """Of how many cells of its axis levels a box is made."""
        return 1 if self.within is None else math.prod(map(len, self.areas))


def level_of(steps: Sequence[int], axis_levels: Sequence[int]) -> int:
    """Return the coarsest tree level whose whole cells make up boxes with these axis levels; `steps` as in `Tree`, noise plays no part."""
    return next(
        level
        for level in range(len(steps) + 1)
        if all(steps[:level].count(axis) >= asked for axis, asked in enumerate(axis_levels))
    )


def coarsest_boxes(tree: Tree, boxes: Boxes) -> Iterator[tuple[IntArray, Boxes]]:
    """Yield the places of boxes that are the same as coarser ones, since they are of only children, and these coarser ones, by axis levels.

    A box that a question asks for comes as the coarsest one, with the rows that lie in it; a set has no parent.
    """
    if boxes.within is not None:
        return
    alike = [axis.coarsest_alike(of, own) for axis, of, own in zip(tree.axes, boxes.areas, boxes.levels, strict=True)]
    levels = np.array([own for _, own in alike])
    for reached in sorted({*zip(*levels.tolist(), strict=True)} - {boxes.levels}):
        chosen = np.flatnonzero(np.equal(levels.T, reached).all(axis=1))
        yield chosen, Boxes(reached, tuple(areas[chosen] for areas, _ in alike))


def fewest_areas(axis: Axis, level: int, areas: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Yield the levels and the numbers of the fewest areas of which a set of areas of a level is made, fine to coarse.

    Each lies inside, and what holds it does not.

    Args:
        areas: their numbers, ascending, int64, shape (areas,).
    """
    while level and len(areas):
        parents, of_area, inside = np.unique(axis.parent[level - 1][areas], return_inverse=True, return_counts=True)
        is_whole = inside == axis.children_of(level - 1, parents)
        if not is_whole[of_area].all():
            yield level, areas[~is_whole[of_area]]
        level, areas = level - 1, parents[is_whole]
    if len(areas):
        yield level, areas


def as_one(tree: Tree, parts: Sequence[Boxes]) -> Boxes:
    """Return the single boxes of a sum, a set of areas of each axis, as one: of areas of the finest level of each axis."""
    if len(parts) == 1:
        return parts[0]
    levels, areas, within = list[int](), list[IntArray](), list[Sequence[pl.Expr]]()
    for number, axis in enumerate(tree.axes):
        sides = {box.levels[number]: (box.areas[number], (box.within or ())[number]) for box in parts}
        finest = max(sides)
        of_levels = [areas_at(axis, of, own, finest) for own, (of, _) in sides.items()]
        rows = [of for _, of in sides.values()]
        levels.append(finest)
        areas.append(np.sort(np.concatenate(of_levels)))
        within.append(rows[0] if len(rows) == 1 else [pl.any_horizontal(pl.all_horizontal(*of) for of in rows)])
    return Boxes(tuple(levels), tuple(areas), tuple(within), parts[0].codes)


def areas_at(axis: Axis, areas: IntArray, level: int, at: int) -> IntArray:
    """Return the areas of a level that contain some areas of another or lie in them, ascending, int64."""
    if at == level:
        return areas
    if at < level:
        return np.unique(axis.ancestors(areas, level, at))
    first = axis.first_descendants(level, at)
    many = np.diff(first)[areas]
    inside: IntArray = np.arange(many.sum()) + np.repeat(first[areas] - np.cumsum(many) + many, many)
    return inside


def areas_met(tree: Tree, level: int, box: Boxes) -> tuple[IntArray, ...]:
    """Return, per axis, the numbers of the areas of a tree level that contain areas of a single box or lie in them, ascending, int64."""
    return tuple(
        areas_at(axis, areas, asked, reached)
        for axis, reached, asked, areas in zip(tree.axes, tree.axis_levels(level), box.levels, box.areas, strict=True)
    )


def areas_below(tree: Tree, level: int, areas: Sequence[IntArray]) -> tuple[IntArray, ...]:
    """Return, per axis, the numbers of the areas of all children of the cells that have the given areas."""
    refined = tree.steps[level]
    own, axis = tree.axis_levels(level)[refined], tree.axes[refined]
    return tuple(
        areas_at(axis, of_axis, own, own + 1) if number == refined else of_axis for number, of_axis in enumerate(areas)
    )


def lying_in(tree: Tree, level: int, inside: Sequence[IntArray], areas: Sequence[IntArray]) -> BoolArray:
    """Return which cells of a level have, of every axis, one of some areas, shape (cells,)."""
    found = np.ones(len(areas[0]), dtype=bool)
    for size, chosen, own in zip(tree.sizes(level), inside, areas, strict=True):
        found &= np.bincount(chosen, minlength=size).astype(bool)[own]
    return found


def most_leaves(tree: Tree, level: int, boxes: Boxes) -> IntArray:
    """Return the largest number of leaves below any cell of a level that lies in each box, int64, shape (boxes,)."""
    most = np.ones(len(boxes), dtype=np.int64)
    for axis, own, asked, areas in zip(tree.axes, tree.axis_levels(level), boxes.levels, boxes.areas, strict=True):
        inside = np.diff(axis.first_descendants(own, axis.depth))
        of_areas = np.maximum.reduceat(inside, axis.first_descendants(asked, own)[:-1])[areas]
        most *= of_areas if boxes.within is None else of_areas.max()
    return most


def lifted(tree: Tree, levels: AxisLevels, areas: Sequence[IntArray], above: AxisLevels) -> tuple[IntArray, ...]:
    """Return the areas at coarser axis levels that hold some areas."""
    return tuple(axis.ancestors(of, own, to) for axis, of, own, to in zip(tree.axes, areas, levels, above, strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """The rows of a published table, or of what was measured.

    Attributes:
        levels: per axis, the axis level that the table has.
        areas: per axis, the numbers of the areas, int64, shape (rows,); empty where nobody needs them.
        columns: what the table says, a row each.
    """

    levels: AxisLevels
    areas: tuple[IntArray, ...]
    columns: pl.DataFrame

    def __len__(self) -> int:
        return self.columns.height

    def column(self, name: str) -> IntArray:
        """Return a column of whole numbers, int64, shape (rows,); 0 where it is empty."""
        values = self.columns[name]
        whole = values.fill_null(0) if values.null_count() else values
        return whole.to_numpy().astype(np.int64)


class Groups:
    """Groups of rows: those whose areas lie in the same areas of some coarser axis levels."""

    def __init__(self, tree: Tree, table: Table, levels: AxisLevels) -> None:
        """Group the rows of a table by axis levels that are as coarse as its own or coarser."""
        self._sizes = tuple(axis.areas(level) for axis, level in zip(tree.axes, levels, strict=True))
        keys = _keys(lifted(tree, table.levels, table.areas, levels), self._sizes)
        if (possible := math.prod(self._sizes)) <= _POSSIBLE * len(keys):  # to mark them takes less time than to sort
            reached = np.zeros(possible, dtype=bool)
            reached[keys] = True
            self._keys, self.numbers = np.flatnonzero(reached), (np.cumsum(reached) - 1)[keys]
        else:
            self._keys, self.numbers = np.unique(keys, return_inverse=True)

    def __len__(self) -> int:
        return len(self._keys)

    def of(self, areas: Sequence[IntArray]) -> IntArray:
        """Return the number of the group of each of some areas, shape (boxes,); the last one, which is not there, for others."""
        wanted = _keys(areas, self._sizes)
        if not len(self._keys):
            return np.zeros(len(wanted), dtype=np.int64)
        places: IntArray = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        places[self._keys[places] != wanted] = len(self._keys)
        return places


@dataclass(frozen=True, slots=True, eq=False)
class Met:
    """The rows of a table that boxes meet. Boxes that no axis level of the table tells apart meet the same rows.

    Attributes:
        numbers: the group of each row, int64, shape (rows,).
        which: the group of each box, int64, shape (boxes,); one more than the last, where a box meets no row.
    """

    table: Table
    numbers: IntArray
    groups: int
    which: IntArray

    @classmethod
    def of(cls, tree: Tree, table: Table, boxes: Boxes, groups: Groups | None = None) -> "Met":
        """Return what many boxes meet of a table of any axis levels, given the groups of its rows if they are known."""
        coarser = tuple(map(min, table.levels, boxes.levels))
        groups = groups or Groups(tree, table, coarser)
        which = groups.of(lifted(tree, boxes.levels, boxes.areas, coarser))
        return cls(table, groups.numbers, len(groups), which)

    @classmethod
    def whole(cls, table: Table, rows: BoolArray | None = None) -> "Met":
        """Return a table of which one box meets all rows, or those that are marked."""
        numbers = np.zeros(len(table), dtype=np.int64) if rows is None else np.where(rows, 0, 1)
        return cls(table, numbers, 1, np.zeros(1, dtype=np.int64))

    @property
    def rows(self) -> IntArray:
        """How many rows each box meets, int64, shape (boxes,)."""
        return np.bincount(self.numbers, minlength=self.groups + 1)[self.which]

    def sums(self, values: str | IntArray) -> IntArray:
        """Return the sums of a column, or of values of the rows, over those that each box meets, int64, shape (boxes,)."""
        of_groups = np.zeros(self.groups + 1, dtype=np.int64)
        np.add.at(of_groups, self.numbers, self.table.column(values) if isinstance(values, str) else values)
        return of_groups[self.which]


@dataclass(frozen=True, slots=True, eq=False)
class Children:
    """What the measured cells of a level have below them, int64, shape (cells,).

    Attributes:
        noisy: the sum of the noisy counts of their measured children, records.
        cells: how many these are.
    """

    noisy: IntArray
    cells: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class MetCells:
    """The cells of a level that boxes meet.

    Attributes:
        possible: how many cells are possible in each box, shape (boxes,): int64, or whole numbers of any size.
        met: the measured ones, with their noisy counts x.
        children: what these have below them; a cell without any was dropped. None at the level of the boxes.
    """

    possible: Any
    met: Met
    children: Children | None

    @property
    def noisy(self) -> IntArray:
        """The noisy counts of all measured cells, int64, shape (cells,), records."""
        return self.met.table.column(NOISY)

    @property
    def dropped(self) -> IntArray:
        """How many cells each box meets that were dropped, int64, shape (boxes,)."""
        return self.met.sums((self.children.cells == 0).astype(np.int64)) if self.children else 0 * self.met.which

    def most(self, margin: int, boxes: IntArray | slice = slice(None)) -> tuple[IntArray, IntArray]:
        """Return the most that measured cells count in some boxes, by the caps of the cells, and the most that the dropped ones count."""
        caps = np.maximum(self.noisy + margin, 0)
        of_dropped = np.zeros_like(caps) if self.children is None else np.where(self.children.cells, 0, caps)
        return self.met.sums(caps)[boxes], self.met.sums(of_dropped)[boxes]


def children_of(tree: Tree, level: int, cells: Table, below: Table) -> Children:
    """Return what some measured cells of a level have below them, of which the parents of `below` are some."""
    sizes, above = tree.sizes(level), tree.axis_levels(level)
    parents = locate(lifted(tree, below.levels, below.areas, above), cells.areas, sizes)
    noisy = np.zeros(len(cells), dtype=np.int64)
    np.add.at(noisy, parents, below.column(NOISY))
    return Children(noisy, np.bincount(parents, minlength=len(cells)))


def _keys(areas: Sequence[IntArray], sizes: Sequence[int]) -> IntArray:
    keys = packed(areas, sizes)
    if keys is None:
        raise ValueError("too many cells to tell them apart by one number.")
    return keys


def possible_cells(tree: Tree, level: int, boxes: Boxes) -> Any:
    """Return how many cells of a level each box meets, shape (boxes,): int64, or whole numbers of any size where that is too small."""
    kind = np.int64 if tree.possible_cells(level) < NO_CAP else object
    if boxes.within is not None:
        return np.array([math.prod(map(len, areas_met(tree, level, boxes)))], dtype=kind)
    possible: Any = np.ones(len(boxes), dtype=kind)
    for axis, reached, asked, areas in zip(tree.axes, tree.axis_levels(level), boxes.levels, boxes.areas, strict=True):
        if reached > asked:
            possible = possible * np.diff(axis.first_descendants(asked, reached)).astype(kind)[areas]
    return possible


def each(values: Any, of: Callable[[int], int]) -> IntArray:
    """Return a function of whole numbers for each of an array, int64, of its shape; it is called once for equal ones."""
    distinct, which = np.unique(values, return_inverse=True)
    results: IntArray = np.array([of(int(value)) for value in distinct], dtype=np.int64)
    return results[which].reshape(np.shape(values))
