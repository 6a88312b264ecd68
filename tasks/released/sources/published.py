"""A published folder as the source of an estimate: one question reads by filters, and many read whole columns, once each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from storage.tables import COUNT, NOISY
from tasks.format.entries import LevelEntry, ViewEntry
from tasks.format.noisy_counts import CODEBOOK, noisy_counts_path
from tasks.format.published_tree import areas_of_rows, axis_columns, axis_of_levels, levels_named, view_columns, view_of
from tasks.format.tables import Rows, joined, level_paths
from tasks.released.boxes import (
    Boxes,
    Children,
    Groups,
    Met,
    MetCells,
    Table,
    areas_below,
    areas_met,
    children_of,
    level_of,
    lifted,
    lying_in,
    possible_cells,
)
from tasks.released.sources.folder import PublishedFolder
from tasks.released.sources.protocol import Misfit, Source
from tasks.released.sources.rows_kept import WalkedRows
from tasks.tree.axis import Axis, AxisLevels, IntArray
from tasks.tree.frontier import CHUNK_CELLS, locate
from tasks.tree.keys import all_differ, packed
from tasks.tree.order import Tree
from tasks.tree.ordered import in_order
from tasks.tree.views import View
from tasks.unbiased.dense import Strategies
from tasks.uncertainty.intervals import NO_CAP, Margins
from tasks.work.capacity import side_by_side

_BATCH_ROWS = 250_000  # cells looked up at once

PLACE = "\0place"  # no column of codes has such a name


class FolderSource(Source):
    """What a published folder says. Each table is read once as a whole, and by filters for each single question."""

    disk: Path | None = None
    is_in_order = True

    def __init__(self, folder: PublishedFolder, threads: int = 1) -> None:
        self.threads = threads
        self.folder, self.manifest = folder, folder.manifest
        self.covariance, self.statistic = self.manifest.covariance, self.manifest.statistic
        self.is_together, self.intervals = self.manifest.has_sources, self.manifest.intervals
        self.parts, self.levels = {entry.level: entry for entry in self.manifest.parts}, self.manifest.levels
        self._tables = dict[str | int, Table]()
        self._cells, self._noisy = dict[int, Table](), dict[int, IntArray]()
        self._below = dict[int, Children]()
        self._groups = dict[int, Groups]()

    @property
    def has_groups(self) -> bool:
        """Whether a public list says how many groups there are."""
        return self.manifest.has_groups

    @cached_property
    def tree(self) -> Tree:
        """The tree: of all areas where the folder knows them, else of those that its tables name."""
        if self.folder.has_tree:
            return self.folder.tree
        # ordered axes have all areas
        axes = [self.folder.ordered.get(name) or self._axis(name) for name in self.folder.axes]
        return in_order(Tree(tuple(axes), self.folder.steps), self.manifest.spec).cascading(self.manifest.cascades)

    @property
    def strategies(self) -> Strategies:
        """What was measured of axes in place of the counts of their leaves."""
        return self.folder.strategies

    def view_of(self, entry: LevelEntry) -> View:
        """Return a level or view as it was measured."""
        return view_of(self.manifest, entry, self.folder.derived if isinstance(entry, ViewEntry) else {})

    def view(self, number: int) -> View:
        """Return a level or view as it was measured, by its number."""
        return self.view_of(self.parts[number])

    def counts(self, number: int) -> IntArray:
        """Return the released counts of all cells of a view, zeros too, in the order of their areas."""
        entry = next(view for view in self.manifest.views if view.level == number)
        return self.table(entry).column(COUNT)

    def nodes(self, level: int) -> Rows:
        """Return the released nodes of a level in the order of their codes."""
        table = self.table(self.manifest.levels[level])
        return Rows(table.areas, table.column(COUNT))

    def possible_cells(self, level: int) -> int | None:
        """Return how many cells a level can have; None where no codebook lists them."""
        return None if self.manifest.unlisted else self.tree.possible_cells(level)

    def runs(
        self,
        level: int,
        margins: Sequence[Sequence[Margins]],  # noqa: ARG002
        begin: Callable[[], WalkedRows],
    ) -> Iterator[WalkedRows]:
        """Yield the rows of a level that was walked, as one run, with the caps of the first kind of interval alone.

        Raises:
            Misfit: a row has no noisy count.
        """
        rows, path = self._rows_of(level), noisy_counts_path(Path(), level)
        noisy, of_rows, places = self._noisy_of(level, rows)
        if (places < 0).any():
            raise Misfit(f"{path} lacks a cell that has a released count.")
        released, run = np.zeros_like(noisy), begin()
        released[places] = rows.counts
        for first in range(0, len(noisy), CHUNK_CELLS):
            run.see(noisy[first : first + CHUNK_CELLS], released[first : first + CHUNK_CELLS])
        run.read(rows, of_rows, [self._exact_above(level, rows)])
        yield run

    def repeat(self, level: int) -> None:
        """Go past a level that repeats the one above it.

        Raises:
            Misfit: its noisy counts are not those of the level above for the cells that were kept there.
        """
        above, own = self.cells(level - 1), self.cells(level)
        coarser = lifted(self.tree, own.levels, own.areas, above.levels)
        places = locate(coarser, above.areas, self.tree.sizes(level - 1))
        repeats = (places >= 0).all() and np.array_equal(above.column(NOISY)[places], own.column(NOISY))
        if not repeats or not all_differ(coarser, self.tree.sizes(level - 1)):
            same_as = self.manifest.levels[level].same_as
            path = noisy_counts_path(Path(), level)
            raise Misfit(f"{path} does not agree with the noisy counts of level {same_as}.")

    def forget(self) -> None:
        """Forget the tables that were read."""
        self._tables.clear()
        self._cells.clear()
        self._noisy.clear()

    def _rows_of(self, level: int) -> Rows:
        """Return the rows of a level; parts are read side by side, and their codes are not kept."""
        entry = self.manifest.levels[level]
        levels = self.levels_of(entry.axes)

        def read(path: Path) -> Rows:
            table = pl.read_parquet(path, columns=[*view_columns(self.manifest, entry), COUNT], glob=False)
            areas = self._areas_of(levels, table)
            return Rows(tuple(of.astype(np.int32) for of in areas), table[COUNT].to_numpy())

        return joined([*side_by_side(read, level_paths(self.folder.path, entry), self.threads)])

    def _noisy_of(self, level: int, rows: Rows) -> tuple[IntArray, IntArray, IntArray]:
        """Look up rows among the measured cells, a batch of these at a time.

        Returns:
            The noisy counts of all cells, shape (measured,); and those of the rows, with the places of their cells, shape (rows,),
            or -1 where none was measured.
        """
        sizes = self.tree.sizes(level)
        keys = packed([of.astype(np.int64) for of in rows.areas], sizes)
        if keys is None:
            cells = self.cells(level)
            places = locate([of.astype(np.int64) for of in rows.areas], cells.areas, sizes)
            return cells.column(NOISY), cells.column(NOISY)[places], places
        order = np.argsort(keys)
        sorted_keys, noisy, before = keys[order], list[IntArray](), 0
        of_rows, places = np.zeros_like(keys), np.full_like(keys, -1)
        refined = [
            axis.name if own else None for axis, own in zip(self.tree.axes, self.tree.axis_levels(level), strict=True)
        ]
        with pq.ParquetFile(self.folder.path / noisy_counts_path(Path(), level)) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=[*filter(None, refined), NOISY]):
                nothing = np.zeros(len(batch), dtype=np.int64)
                cells_of_batch = packed([batch.column(of).to_numpy() if of else nothing for of in refined], sizes)
                noisy.append(batch.column(NOISY).to_numpy().copy())
                if cells_of_batch is not None and len(keys):
                    at = np.minimum(np.searchsorted(sorted_keys, cells_of_batch), len(keys) - 1)
                    hit = np.flatnonzero(sorted_keys[at] == cells_of_batch)
                    of_rows[order[at[hit]]], places[order[at[hit]]] = noisy[-1][hit], before + hit
                before += len(batch)
        return np.concatenate(noisy or [of_rows[:0]]), of_rows, places

    def _exact_above(self, level: int, rows: Rows) -> IntArray:
        """Return the count of the finest exact cell that holds each row, int64, shape (rows,); `NO_CAP` where there is none."""
        exact = [part.level for part in self.levels[:level] if part.is_exact and part.same_as is None]
        if not exact:
            return np.full(len(rows), NO_CAP)
        nodes, levels = self.nodes(exact[-1]), self.tree.axis_levels(level)
        coarser = self.tree.axis_levels(exact[-1])
        held = lifted(self.tree, levels, [of.astype(np.int64) for of in rows.areas], coarser)
        places = locate(held, [of.astype(np.int64) for of in nodes.areas], self.tree.sizes(exact[-1]))
        return np.where(places < 0, 0, nodes.counts[places])

    def level_of(self, boxes: Boxes) -> int:
        """Return the coarsest tree level whose whole cells make up boxes."""
        return level_of(self.folder.steps, boxes.levels)

    def table(self, entry: LevelEntry) -> Table:
        """Return the whole table of a level or view."""
        name = entry.name if isinstance(entry, ViewEntry) else entry.level
        if name not in self._tables:
            levels, (table,) = self.levels_of(entry.axes), self.folder.collect([self.folder.scan(entry)])
            if any(levels):
                areas = self._areas_of(levels, table)
            else:  # everything, which needs no tree
                areas = tuple(np.zeros(table.height, dtype=np.int64) for _ in levels)
            self._tables[name] = Table(levels, areas, table)
        return self._tables[name]

    def level_table(self, level: int) -> Table:
        """Return the whole table of a level."""
        return self.table(self.manifest.levels[level])

    def rows_met(self, entry: LevelEntry, boxes: Boxes) -> Met:
        """Return the rows of a level or view that lie in boxes; its axis levels are as fine as those of the boxes.

        Those of a single box come with their places in the table, in the column `PLACE`.
        """
        if boxes.within is None:
            return Met.of(self.tree, self.table(entry), boxes)
        rows, within = (
            self.folder.scan(entry).with_row_index(PLACE),
            [one for of_axis in boxes.within for one in of_axis],
        )
        for name, codes in boxes.codes.items():
            if name in entry.axes:
                within.append(pl.col(name).is_in(codes))
            else:
                of = self.manifest.derived[name].of
                listed = self.folder.derived_table(name).filter(pl.col(name).is_in(codes)).select(of)
                rows = rows.join(listed, on=of, how="semi")
        (inside,) = self.folder.collect([rows.filter(*within) if within else rows])
        return Met.whole(Table(self.levels_of(entry.axes), (), inside))

    def noisy(self, number: int, areas: Sequence[IntArray] | None = None) -> IntArray:
        """Return the noisy counts of a level or view in the order in which they were measured, int64, or those of some areas per axis."""
        if areas is not None:
            return self._noisy_in(self.folder.noisy(number, areas))
        if number not in self._noisy:
            view = next((view for view in self.manifest.own_views if view.level == number), None)
            scan = self.folder.noisy_view(view.name) if view else self.folder.noisy(number, self._everywhere(number))
            self._noisy[number] = self._noisy_in(scan)
        return self._noisy[number]

    def _noisy_in(self, scan: pl.LazyFrame) -> IntArray:
        (cells,) = self.folder.collect([scan.select(NOISY)])
        return cells[NOISY].to_numpy().astype(np.int64)

    def _everywhere(self, level: int) -> list[IntArray]:
        return [np.arange(size) for size in self.tree.sizes(level)]

    def cells(self, level: int) -> Table:
        """Return all measured cells of a level with their noisy counts."""
        if level not in self._cells:
            self._cells[level] = self._read_cells([(level, self._everywhere(level))])[0]
        return self._cells[level]

    def children(self, level: int) -> Children:
        """Return what the measured cells of a level have below them."""
        if level not in self._below:
            self._below[level] = children_of(self.tree, level, self.cells(level), self.cells(level + 1))
        return self._below[level]

    def cells_met(self, level: int, boxes: Boxes) -> Table:
        """Return the measured cells of a level that a single box meets, in the order of the tree."""
        return self._read_cells([(level, areas_met(self.tree, level, boxes))])[0]

    def measured_met(self, level: int, boxes: Boxes) -> list[MetCells]:
        """Return the measured cells of levels 0 to their own that boxes meet.

        Of a single box, the cells of a level are those whose parents it meets, in the order of the tree.
        """
        tree, cells_of_levels = self.tree, list[MetCells]()
        if boxes.within is None:
            for own in range(level + 1):
                coarser = tuple(map(min, self.folder.reached(own), boxes.levels))
                met = Met.of(tree, self.cells(own), boxes, self._groups_of(own, coarser))
                children = self.children(own) if own < level else None
                cells_of_levels.append(MetCells(possible_cells(tree, own, boxes), met, children))
            return cells_of_levels
        areas = [areas_met(tree, own, boxes) for own in range(level + 1)]
        wider = [areas[0], *(areas_below(tree, own, areas[own]) for own in range(level))]
        cells = self._read_cells(list(enumerate(wider)))
        for own, asked in enumerate(areas):
            inside = lying_in(tree, own, asked, cells[own].areas)
            below = children_of(tree, own, cells[own], cells[own + 1]) if own < level else None
            cells_of_levels.append(MetCells(possible_cells(tree, own, boxes), Met.whole(cells[own], inside), below))
        return cells_of_levels

    def _groups_of(self, level: int, levels: AxisLevels) -> Groups:
        """Return the groups of the measured cells of a level that lie in the same areas of axis levels; those of the cells themselves are kept."""
        if levels != self.folder.reached(level):
            return Groups(self.tree, self.cells(level), levels)
        if level not in self._groups:
            self._groups[level] = Groups(self.tree, self.cells(level), levels)
        return self._groups[level]

    def _read_cells(self, asked: Sequence[tuple[int, Sequence[IntArray]]]) -> list[Table]:
        """Return the measured cells of some levels whose areas are among some per axis, in the order of the tree."""
        tables = self.folder.collect([self.folder.noisy(level, areas) for level, areas in asked])
        return [
            Table(self.folder.reached(level), self.folder.areas_of(level, cells), cells)
            for (level, _), cells in zip(asked, tables, strict=True)
        ]

    def levels_of(self, axes: Mapping[str, str | None]) -> AxisLevels:
        """Return the axis levels that an entry of the manifest names."""
        return levels_named(self.manifest, axes)

    def _areas_of(self, levels: AxisLevels, table: pl.DataFrame) -> tuple[IntArray, ...]:
        """Return, per axis, the areas of the rows of a table.

        Raises:
            Misfit: the codebook lists an area twice.
        """
        areas = areas_of_rows(self.manifest, self.tree, levels, table)
        if any(len(of) != table.height for of in areas):
            raise Misfit(f"{CODEBOOK} must list each area once.")
        return areas

    def _axis(self, name: str) -> Axis:
        """Return an axis of the areas that the tables name; an area need not have one below it."""
        columns, number = axis_columns(self.manifest, name), list(self.folder.axes).index(name)
        levels = list[pl.DataFrame]()  # their paths, sorted, coarse to fine
        for level in reversed(range(1, len(columns) + 1)):
            first = next(entry for entry in self.manifest.levels if self.folder.reached(entry.level)[number] == level)
            views = [view for view in self.manifest.views if self.levels_of(view.axes)[number] == level]
            scans = [self.folder.scan(entry).select(columns[:level]).unique() for entry in (first, *views)]
            below = [paths.select(columns[:level]) for paths in levels[:1]]
            levels.insert(0, pl.concat([*self.folder.collect(scans), *below]).unique().sort(columns[:level]))
        parents = [np.zeros(levels[0].height, dtype=np.int64)]
        for above, paths in pairwise(levels):
            numbers = above.with_row_index("\0number")
            held = paths.join(numbers, on=above.columns, how="left", maintain_order="left")["\0number"]
            parents.append(held.to_numpy().astype(np.int64))
        return axis_of_levels(name, self.folder.axes[name], parents, [paths[paths.columns[-1]] for paths in levels])
