"""Views: public partitions of the universe. The levels of a tree are views, each of which refines the one before."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tasks.tree.axis import BoolArray, IntArray
from tasks.tree.frontier import Frontier
from tasks.tree.order import Tree

# which cells of a view are measured: the children of the nodes that are left above, all, or those with records; `views` are all
# cells of every view, in the order of their areas
Measured = Literal["survivors", "universe", "records", "views"]


@dataclass(frozen=True, slots=True, eq=False)
class Derived:
    """A column that is a public function of the axes, such as the mode of a trip or its distance band.

    Attributes:
        of: the axis levels on which it depends, as the number of the axis and the axis level.
        codes: its codes, distinct and sorted.
        code_of: int32, shape (combinations,): the number of the code of every combination of areas, the first axis of `of` slowest.
    """

    name: str
    of: tuple[tuple[int, int], ...]
    codes: pl.Series
    code_of: NDArray[np.int32]

    def at(self, tree: Tree, levels: Sequence[int], areas: Sequence[IntArray]) -> NDArray[np.int32]:
        """Return the codes of some cells, shape (cells,).

        Args:
            levels: per axis, the axis level of the cells, at least as fine as those of `of`.
        """
        combination = np.zeros(len(areas[0]), dtype=np.int64)
        for axis, level in self.of:
            combination *= tree.axes[axis].areas(level)
            combination += tree.axes[axis].ancestors(areas[axis], levels[axis], level)
        return self.code_of[combination]

    def is_in(self, codes: Sequence[str], numbers: NDArray[np.int32]) -> BoolArray:
        """Return which of its codes, by their numbers, are among some, of the same shape."""
        inside: BoolArray = self.codes.is_in(codes).to_numpy()[numbers]
        return inside

    def with_as_one(self, codes: Sequence[str]) -> "Derived":
        """Return the column in which some of its codes are the first of them."""
        first = np.flatnonzero(self.codes.is_in(codes))[0]
        return replace(self, code_of=np.where(self.is_in(codes, self.code_of), first, self.code_of).astype(np.int32))


@dataclass(frozen=True, slots=True, eq=False)
class ViewCells:
    """Some cells of a view.

    Attributes:
        levels: per axis, the axis level of their areas; 0 where the axis is left out.
        areas: per axis, int64, shape (cells,).
        codes: by derived column, the numbers of their codes, shape (cells,).
    """

    levels: tuple[int, ...]
    areas: tuple[IntArray, ...]
    codes: Mapping[str, NDArray[np.int32]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.areas[0])


@dataclass(frozen=True, slots=True)
class View:
    """A public partition of the universe.

    Attributes:
        number: by which charges, seals and the manifest know it; that of a tree level is the level.
        axis_levels: per axis, the axis level whose areas its cells have; 0 where the axis is left out, and so summed over.
        names: per axis name, the name of that level, None where the axis is left out; per derived column its own name.
    """

    number: int
    axis_levels: tuple[int, ...]
    names: Mapping[str, str | None]
    derived: tuple[Derived, ...] = ()

    def sizes(self, tree: Tree) -> tuple[int, ...]:
        """Return how many areas it has per axis, and then how many codes per derived column."""
        areas = (axis.areas(level) for axis, level in zip(tree.axes, self.axis_levels, strict=True))
        return (*areas, *(len(column.codes) for column in self.derived))

    def refines(self, other: "View") -> bool:
        """Return whether each of its cells lies in one cell of another view, whatever the codebooks are."""
        if any(own < of_other for own, of_other in zip(self.axis_levels, other.axis_levels, strict=True)):
            return False
        own = {column.name for column in self.derived}
        return all(
            column.name in own or all(self.axis_levels[axis] >= level for axis, level in column.of)
            for column in other.derived
        )

    def is_same_as(self, other: "View") -> bool:
        """Return whether another view has the same cells, by their axis levels and derived columns."""
        return self.refines(other) and other.refines(self)

    def lowered(self, tree: Tree) -> "View":
        """Return the view with the finest axis levels that give it the same cells, by the codebooks.

        Of two lowered views without derived columns, one refines the other exactly if its cells lie in cells of the other.
        """
        return replace(self, axis_levels=lowered(tree, self.axis_levels))


@dataclass(frozen=True, slots=True)
class AddUp:
    """A finish: the levels above the measured one are the sums of its counts."""


class Partition:
    """A view over the codebooks of a release: its cells in the order of their areas, first axis first.

    A cell that no leaf reaches, which derived columns make possible, is left out: it counts 0 by its definition.
    """

    def __init__(self, tree: Tree, view: View) -> None:
        """List the cells; the product of the sizes of the view must fit in memory."""
        self.tree, self.view = tree, view
        self._sizes = view.sizes(tree)
        reached = _reached(tree, view, self._sizes) if view.derived else None
        self._listed = None if reached is None else np.flatnonzero(reached)
        self._position = None if reached is None else np.cumsum(reached) - 1

    def __len__(self) -> int:
        return math.prod(self._sizes) if self._listed is None else len(self._listed)

    def cells(self, which: IntArray | None = None) -> ViewCells:
        """Return its cells, or some of them by their places."""
        keys = np.arange(len(self)) if which is None else which
        if self._listed is not None:
            keys = self._listed[keys]
        columns = []
        for size in reversed(self._sizes):
            columns.append(keys % size)
            keys = keys // size
        columns.reverse()
        axes = len(self.tree.axes)
        codes = zip(self.view.derived, columns[axes:], strict=True)
        return ViewCells(
            self.view.axis_levels,
            tuple(columns[:axes]),
            {column.name: of_cells.astype(np.int32) for column, of_cells in codes},
        )

    def places(self, cells: ViewCells) -> IntArray:
        """Return the cell that holds each of some cells of a view that refines this one, by the codebooks, int64, shape (cells,)."""
        keys = _keys(self.tree, self.view, self._sizes, cells)
        return keys if self._position is None else self._position[keys]


def lowered(tree: Tree, axis_levels: Sequence[int]) -> tuple[int, ...]:
    """Return, per axis, the finest level of which every area of a level has one area, by the codebooks."""
    return tuple(axis.last_alike(level) for axis, level in zip(tree.axes, axis_levels, strict=True))


def level_view(tree: Tree, level: int) -> View:
    """Return a level of a tree as a view."""
    return View(level, tree.axis_levels(level), tree.level_names(level))


def unnumbered(levels: Sequence[int]) -> View:
    """Return the view with an axis level per axis, 0 where it is left out, that nobody measures or names."""
    return View(-1, tuple(levels), {})


def margin(tree: Tree, axis: int, level: int) -> View:
    """Return the totals of one axis at one of its levels."""
    return unnumbered([level if number == axis else 0 for number in range(len(tree.axes))])


def every_level(tree: Tree) -> tuple[View, ...]:
    """Return the views of all levels, from 0 to T."""
    return tuple(level_view(tree, level) for level in range(tree.depth + 1))


def below_everything(tree: Tree) -> tuple[View, ...]:
    """Return the views of all levels from 1 on."""
    return every_level(tree)[1:]


def finest_level(tree: Tree) -> tuple[View, ...]:
    """Return the view of the finest level alone."""
    return (level_view(tree, tree.depth),)


def have_same_cells(tree: Tree, view: View, other: View) -> bool:
    """Return whether two views have the same cells, by the codebooks and the tables of derived columns."""
    if view.lowered(tree).is_same_as(other.lowered(tree)):
        return True
    if not (view.derived or other.derived):
        return False
    one, two = Partition(tree, view), Partition(tree, other)
    if len(one) != len(two):
        return False
    every = Partition(tree, unnumbered(finest_named([view, other]))).cells()
    cell, other_cell = one.places(every), two.places(every)
    only = np.empty(len(one), dtype=np.int64)
    only[cell] = other_cell
    return np.array_equal(only[cell], other_cell)


def leading_levels(tree: Tree) -> int:
    """Return how many levels below level 0 refine the first axis alone: these are totals of one axis."""
    return next((level for level, axis in enumerate(tree.steps) if axis != tree.steps[0]), tree.depth)


def sums_of_leaves(partition: Partition, leaves: Frontier) -> IntArray:
    """Return what some leaves add up to in each cell of a view, int64, shape (cells,), records; it has all cells."""
    sums = np.zeros(len(partition), dtype=np.int64)
    np.add.at(sums, partition.places(leaves_of(partition.tree, leaves.areas)), leaves.counts)
    return sums


def coarse_to_fine(views: Sequence[View]) -> list[View]:
    """Return some views such that none comes before a view that it refines, otherwise in their own order."""
    return sorted(views, key=lambda view: sum(view.refines(other) for other in views))


def common_refinement(tree: Tree, number: int, view: View, other: View) -> View:
    """Return the coarsest view that refines two views, without derived columns that follow from its areas."""
    levels = tuple(map(max, view.axis_levels, other.axis_levels))
    columns = {column.name: column for column in (*view.derived, *other.derived)}
    derived = tuple(column for column in columns.values() if any(levels[axis] < level for axis, level in column.of))
    names: dict[str, str | None] = {
        axis.name: axis.level_name(level) for axis, level in zip(tree.axes, levels, strict=True)
    }
    return View(number, levels, names | {column.name: column.name for column in derived}, derived)


def nested_views(tree: Tree, views: Sequence[View], most_cells: int) -> list[View]:
    """Return a chain of views between everything and the leaves, each of which refines the one before.

    Each view is joined with all that come before it (`coarse_to_fine`), so that of views that cross, the second becomes their
    common refinement. What has the cells of the view before, or of the leaves, is left out, by the codebooks.

    Args:
        views: in any order; they may cross.
        most_cells: of one of the chain, with those that no leaf reaches.
    Returns:
        Views without those of level 0 and of the finest level. One with the cells of a tree level has the number of the finest
        level with these cells; the others are numbered from T + 1.
    Raises:
        ValueError: a view of the chain has more cells.
    """
    chain, last, cells, number = list[View](), level_view(tree, 0), 1, tree.depth + 1
    for view in coarse_to_fine(views):
        joined = common_refinement(tree, number, last, view)
        if (size := math.prod(joined.sizes(tree))) > most_cells:
            raise ValueError(f"joined views must have at most {most_cells:,} cells, got {size:,}.")
        if (reached := len(Partition(tree, joined))) in (cells, tree.possible_cells(tree.depth)):
            continue
        alike = [level for level in range(tree.depth) if tree.sizes(level) == joined.sizes(tree)]
        last, cells = level_view(tree, alike[-1]) if alike else joined, reached
        number += not alike
        chain.append(last)
    return chain


def numbered_codes(name: str, of: Sequence[tuple[int, int]], codes: pl.Series) -> Derived:
    """Return a derived column from the code of every combination of areas.

    Args:
        codes: text, shape (combinations,).
    """
    distinct = codes.unique().sort()
    numbers = pl.DataFrame({"code": distinct}).with_row_index("number")
    code_of = pl.DataFrame({"code": codes}).join(numbers, on="code", how="left", maintain_order="left")["number"]
    return Derived(name, tuple(of), distinct, code_of.to_numpy().astype(np.int32))


def leaves_of(tree: Tree, areas: Sequence[IntArray]) -> ViewCells:
    """Return leaves as cells of a view: per axis their areas at its finest level, shape (leaves,)."""
    return ViewCells(tree.axis_levels(tree.depth), tuple(areas))


def _keys(tree: Tree, view: View, sizes: Sequence[int], cells: ViewCells) -> IntArray:
    """Return the combination of areas and codes of a view in which each cell lies, int64, shape (cells,)."""
    columns: list[IntArray | NDArray[np.int32]] = [
        axis.ancestors(areas, level, own)
        for axis, areas, level, own in zip(tree.axes, cells.areas, cells.levels, view.axis_levels, strict=True)
    ]
    columns += [
        cells.codes[column.name] if column.name in cells.codes else column.at(tree, cells.levels, cells.areas)
        for column in view.derived
    ]
    keys = np.zeros(len(cells), dtype=np.int64)
    for column, size in zip(columns, sizes, strict=True):
        if size > 1:
            keys *= size
            keys += column
    return keys


def _reached(tree: Tree, view: View, sizes: Sequence[int]) -> BoolArray:
    """Return which combinations of areas and codes some leaf has, shape (combinations,)."""
    every = Partition(tree, unnumbered(finest_named([view])))
    reached = np.zeros(math.prod(sizes), dtype=bool)
    reached[_keys(tree, view, sizes, every.cells())] = True
    return reached


def finest_named(views: Sequence[View]) -> list[int]:
    """Return, per axis, the finest axis level on which the cells of some views depend."""
    finest = [max(levels) for levels in zip(*(view.axis_levels for view in views), strict=True)]
    for column in (column for view in views for column in view.derived):
        for axis, level in column.of:
            finest[axis] = max(finest[axis], level)
    return finest
