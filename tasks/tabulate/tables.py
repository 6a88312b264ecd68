"""The tables of a published folder as numbers: the areas of their rows, read once each, and sums over groups of rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from storage.counts.columns import COUNT, NOISY
from tasks.format.manifest import ViewEntry
from tasks.format.published_tree import areas_of_rows, axis_columns
from tasks.query.folder import PublishedFolder
from tasks.tree.axis import Axis, IntArray
from tasks.tree.frontier import locate
from tasks.tree.keys import packed
from tasks.tree.order import Tree

AxisLevels = tuple[int, ...]  # per axis, an axis level; 0 for everything


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Boxes of one kind: areas of the same axis levels.

    Attributes:
        levels: per axis, the axis level; 0 for everything.
        areas: per axis, the numbers of the areas, int64, shape (boxes,); 0 for everything.
    """

    levels: AxisLevels
    areas: tuple[IntArray, ...]

    def __len__(self) -> int:
        return len(self.areas[0])


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The rows of a published table.

    Attributes:
        levels: per axis, the axis level that the table has.
        areas: per axis, the numbers of the areas, int64, shape (rows,).
        table: what the table says, a row each.
    """

    levels: AxisLevels
    areas: tuple[IntArray, ...]
    table: pl.DataFrame

    def column(self, name: str) -> IntArray:
        """Return a column of whole numbers, int64, shape (rows,); 0 where it is empty."""
        values = self.table[name]
        whole = values.fill_null(0) if values.null_count() else values
        found: IntArray = whole.to_numpy().astype(np.int64)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """What the measured cells of a level have below them, int64, shape (cells,).

    Attributes:
        noisy: the sum of the noisy counts of their measured children, records.
        children: how many these are.
    """

    noisy: IntArray
    children: IntArray


class Tables:
    """The tables of a published folder. Each is read once."""

    def __init__(self, folder: PublishedFolder) -> None:
        """Read nothing yet but the codebook."""
        self.folder = folder
        self._rows = dict[int, Rows]()
        self._views = dict[str, Rows]()
        self._noisy = dict[int, Rows]()
        self._below = dict[int, Family]()
        self._cells = dict[int, Groups]()

    @cached_property
    def tree(self) -> Tree:
        """The tree: of all areas where the folder knows them, else of those that its tables name."""
        return self.folder.tree if self.folder.has_tree else self._tree_of_tables()

    def rows(self, level: int) -> Rows:
        """Return the table of a level."""
        if level not in self._rows:
            self._rows[level] = self._numbered(self.folder.table(level), self.folder.reached(level))
        return self._rows[level]

    def view(self, entry: ViewEntry) -> Rows:
        """Return the table of a view."""
        if entry.name not in self._views:
            self._views[entry.name] = self._numbered(self.folder.view(entry.name), self.levels_of(entry.axes))
        return self._views[entry.name]

    def noisy(self, level: int) -> Rows:
        """Return the noisy counts of a level."""
        if level not in self._noisy:
            every = [range(size) for size in self.tree.sizes(level)]
            (cells,) = self.folder.collect([self.folder.noisy(level, every)])
            areas = self.folder.areas_of(level, cells)
            self._noisy[level] = Rows(self.folder.reached(level), areas, cells.select(NOISY))
        return self._noisy[level]

    def below(self, level: int) -> "Family":
        """Return what the measured cells of a level have below them."""
        if level not in self._below:
            cells, children = self.noisy(level), self.noisy(level + 1)
            size = len(cells.areas[0])
            parents = locate(self.parents(level + 1, children.areas), cells.areas, self.tree.sizes(level))
            noisy = np.zeros(size, dtype=np.int64)
            np.add.at(noisy, parents, children.column(NOISY))
            self._below[level] = Family(noisy, np.bincount(parents, minlength=size))
        return self._below[level]

    def parents(self, level: int, areas: Sequence[IntArray]) -> tuple[IntArray, ...]:
        """Return the areas of the parents of cells of a level."""
        return lifted(self.tree, self.folder.reached(level), areas, self.folder.reached(level - 1))

    def noisy_groups(self, level: int, levels: AxisLevels) -> "Groups":
        """Return the groups of the measured cells of a level that lie in the same areas of axis levels."""
        if levels != self.folder.reached(level):
            return Groups(self.tree, self.noisy(level), levels)
        if level not in self._cells:
            self._cells[level] = Groups(self.tree, self.noisy(level), levels)
        return self._cells[level]

    def noisy_view(self, entry: ViewEntry) -> IntArray:
        """Return the noisy counts of a view in the order of its table, int64, shape (rows,)."""
        (cells,) = self.folder.collect([self.folder.noisy_view(entry.name).select(NOISY)])
        found: IntArray = cells[NOISY].to_numpy().astype(np.int64)
        return found

    def levels_of(self, axes: dict[str, str | None]) -> AxisLevels:
        """Return the axis levels that an entry of the manifest names."""
        return tuple(
            names.index(name) + 1 if (name := axes.get(axis)) else 0 for axis, names in self.folder.axes.items()
        )

    @property
    def total(self) -> IntArray:
        """The released count of everything, int64, shape (1,)."""
        return self.rows(0).column(COUNT)

    def _numbered(self, scan: pl.LazyFrame, levels: AxisLevels) -> Rows:
        (table,) = self.folder.collect([scan])
        return Rows(levels, areas_of_rows(self.folder.manifest, self.tree, levels, table), table)

    def _tree_of_tables(self) -> Tree:
        """Return the tree of the areas that the tables name; those of ordered axes are all known."""
        axes = [self.folder.ordered.get(name) or self._axis(name) for name in self.folder.axes]
        return Tree(tuple(axes), self.folder.steps)

    def _axis(self, name: str) -> Axis:
        columns, number = axis_columns(self.folder.manifest, name), list(self.folder.axes).index(name)
        found = dict[int, pl.DataFrame]()
        for level in reversed(range(1, len(columns) + 1)):
            at = next(k for k in range(len(self.folder.steps) + 1) if self.folder.reached(k)[number] == level)
            scans = [self.folder.table(at).select(columns[:level]).unique()]
            scans += [
                self.folder.view(view.name).select(columns[:level]).unique()
                for view in self.folder.manifest.views
                if self.levels_of(view.axes)[number] == level
            ]
            paths = [
                *self.folder.collect(scans),
                *([found[level + 1].select(columns[:level])] if level + 1 in found else []),
            ]
            found[level] = pl.concat(paths).unique().sort(columns[:level])
        return _axis_of_paths(name, self.folder.axes[name], [found[level] for level in sorted(found)])


def _axis_of_paths(name: str, level_names: tuple[str, ...], levels: Sequence[pl.DataFrame]) -> Axis:
    """Return an axis of areas, by the paths of each level, which are sorted; an area need not have one below it."""
    first_child, parent, codes = [], [], []
    above = pl.DataFrame({"\0": [0]})
    for level in levels:
        columns = level.columns[:-1]
        if columns:
            numbers = above.select(columns).with_row_index("\0number")
            of_level = level.join(numbers, on=columns, how="left", maintain_order="left")["\0number"]
            parents = of_level.to_numpy().astype(np.int64)
        else:
            parents = np.zeros(level.height, dtype=np.int64)
        first_child.append(np.searchsorted(parents, np.arange(above.height + 1)))
        parent.append(parents)
        codes.append(level[level.columns[-1]])
        above = level
    return Axis(name, level_names, tuple(first_child), tuple(parent), tuple(codes))


class Groups:
    """Groups of rows: those whose areas lie in the same areas of some coarser axis levels."""

    def __init__(self, tree: Tree, rows: Rows, levels: AxisLevels) -> None:
        """Group rows.

        Args:
            tree: the axes.
            rows: of any axis levels.
            levels: per axis, one as coarse as that of the rows or coarser.
        """
        self._sizes = tuple(axis.areas(level) for axis, level in zip(tree.axes, levels, strict=True))
        self._keys, self.numbers = np.unique(
            _keys(lifted(tree, rows.levels, rows.areas, levels), self._sizes), return_inverse=True
        )

    def sums(self, values: IntArray) -> IntArray:
        """Return the sum of each group, int64, shape (groups,), with a 0 at the end for the group that is not there."""
        found = np.zeros(len(self._keys) + 1, dtype=np.int64)
        np.add.at(found, self.numbers, values)
        return found

    @property
    def rows(self) -> IntArray:
        """How many rows each group has, and a 0 at the end."""
        return self.sums(np.ones(len(self.numbers), dtype=np.int64))

    def of(self, areas: Sequence[IntArray]) -> IntArray:
        """Return the number of the group of each of some areas, shape (boxes,); the last one, which is not there, for others."""
        wanted = _keys(areas, self._sizes)
        if not len(self._keys):
            return np.zeros(len(wanted), dtype=np.int64)
        places = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        found: IntArray = np.where(self._keys[places] == wanted, places, len(self._keys))
        return found


def lifted(tree: Tree, levels: AxisLevels, areas: Sequence[IntArray], above: AxisLevels) -> tuple[IntArray, ...]:
    """Return the areas at coarser axis levels that hold some areas."""
    return tuple(axis.ancestors(of, own, to) for axis, of, own, to in zip(tree.axes, areas, levels, above, strict=True))


def _keys(areas: Sequence[IntArray], sizes: Sequence[int]) -> IntArray:
    keys = packed(areas, sizes)
    if keys is None:
        raise ValueError("too many cells to tell them apart by one number.")
    return keys
