"""Answers where everything was settled together: a box's count, and the interval of the measurement that says most about it.

Every cell of what was measured has a noisy count. A box is the sum of whole cells of some of these levels and views; each of
them gives an interval, by the noise of so many draws. So is the part of a box with some codes of derived columns: of a level or
view that has the codes on which such a column depends, it is the cells that the table of the column names. Where noisy counts are not published, the intervals of a view's rows are
widened until all hold at once, and added up. Which measurement is taken follows from the question and the codebooks: that with
the least variance. So the interval covers the true count of a box that is fixed beforehand with the stated probability.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from storage.counts.columns import COUNT, HIGH, LOW, NOISY
from tasks.format.manifest import LevelEntry, ViewEntry
from tasks.format.published_tree import derived_places
from tasks.laws.law import LevelNoise
from tasks.laws.named import noise_of
from tasks.query.areas import Area
from tasks.query.boxes import Box, areas_met
from tasks.query.folder import PublishedFolder
from tasks.words.levels import place

_PLACE = "\0place"  # no column of codes has such a name


@dataclass(frozen=True, slots=True)
class _Measured:
    """What a level or a view says of a box.

    Attributes:
        cells: how many of its cells make up the box.
        noisy: their sum, records; None where noisy counts are not published.
        noise: of one cell.
        row: the sums of the ends of the published intervals of the cells, where all of them have rows; else None.
        where: the level or view, in words.
    """

    cells: int
    noisy: int | None
    noise: LevelNoise
    row: tuple[int, int] | None
    where: str


@dataclass(frozen=True, slots=True)
class SettledAnswer:
    """The count of a box, records; its interval, None where none can be stated; how many cells were added up, and how."""

    count: int
    low: int | None
    high: int | None
    cells: int
    how: str


def settled_answer(folder: PublishedFolder, areas: Sequence[Area], codes: Mapping[str, str]) -> SettledAnswer:
    """Return what a folder says about a box, or about its part with some codes.

    Args:
        folder: the published folder.
        areas: one area per axis.
        codes: the codes of derived columns.
    Raises:
        StoreError: a file is missing, or differs from what was published.
    """
    count, found = None, list[_Measured]()
    for part in [*folder.manifest.levels, *folder.manifest.views]:
        if _makes_up(folder, part, areas, codes):
            rows = _rows(folder, part, areas, codes)
            count = int(rows[COUNT].sum()) if count is None else count
            if (measured := _measured(folder, part, rows, areas, codes)) is not None:
                found.append(measured)
    count = count or 0  # the leaves make up every box, with whatever codes
    best = min(found, key=lambda of: of.cells * of.noise.variance, default=None)
    if best is not None and not best.cells:
        return SettledAnswer(0, 0, 0, 0, "no cell: by the public tables, these codes do not occur together")
    if best is None:
        everything = _rows(folder, folder.manifest.levels[0], [Area(0, ())] * len(areas), {})
        how = "sum of rows; the noisy counts are not published, so all that is known is that it is at most the total"
        return SettledAnswer(count, 0, max(int(everything[HIGH][0]), count), 0, how)
    low, high = _interval(folder, best, count)
    return SettledAnswer(
        count, low, high, best.cells, f"{best.where}: of what was measured, it says most about this question"
    )


def margin_answer(folder: PublishedFolder, areas: Sequence[Area], level: int) -> SettledAnswer | None:
    """Return what a view of its own says of a box, where the levels are only calibrated to views.

    Args:
        folder: the published folder.
        areas: one area per axis.
        level: the coarsest level whose whole cells make up the box.
    Returns:
        None where no view of its own is made of what the question names, or the level has less noise in a box of that kind.
    """
    found = []
    for view in folder.manifest.own_views:
        if _makes_up(folder, view, areas, {}):
            rows = _rows(folder, view, areas, {})
            if (measured := _measured(folder, view, rows, areas, {})) is not None:
                found.append((measured.cells * measured.noise.variance, int(rows[COUNT].sum()), measured))
    if not found or level <= 1:
        return None
    variance, count, best = min(found, key=lambda of: of[0])
    cells = _cells_in(folder, level, areas)
    if cells is not None and cells * noise_of(folder.manifest.levels[level]).variance <= variance:
        return None
    low, high = _interval(folder, best, count)
    how = f"{best.where}, which is measured by itself; sums of the levels may differ from it"
    return SettledAnswer(count, low, high, best.cells, how)


def _cells_in(folder: PublishedFolder, level: int, areas: Sequence[Area]) -> int | None:
    """Return of how many cells of a level a box is made; None where no codebook is published, unless it is one cell."""
    if _is_cell(folder, folder.manifest.levels[level], areas):
        return 1
    if not folder.manifest.noisy_counts:
        return None
    box = Box(*zip(*((of.level, of.number) for of in areas), strict=True))
    return math.prod(map(len, areas_met(folder.tree, level, box)))


def _makes_up(folder: PublishedFolder, part: LevelEntry, areas: Sequence[Area], codes: Mapping[str, str]) -> bool:
    """Return whether a box is made of whole cells of a level or view, each of which has one code of every column that is asked for."""
    reached = [_reached(names, part.axes.get(axis)) for axis, names in folder.axes.items()]
    places = derived_places(folder.manifest)
    return all(area.level <= own for area, own in zip(areas, reached, strict=True)) and all(
        name in part.axes or all(reached[axis] >= level for axis, level in places[name]) for name in codes
    )


def _reached(names: Sequence[str], level: str | None) -> int:
    return names.index(level) + 1 if level else 0


def _rows(folder: PublishedFolder, part: LevelEntry, areas: Sequence[Area], codes: Mapping[str, str]) -> pl.DataFrame:
    """Return the rows of a level or view in a box, with their places in its table."""
    asked = [
        pl.col(column) == code
        for axis, area in zip(folder.axes, areas, strict=True)
        for column, code in zip(folder.columns(axis, area.level), area.path, strict=True)
    ]
    asked += [pl.col(column) == code for column, code in codes.items() if column in part.axes]
    table = folder.view(part.name) if isinstance(part, ViewEntry) else folder.table(part.level)
    rows = table.with_row_index(_PLACE)
    for column, code in codes.items():
        if column not in part.axes:
            of = folder.manifest.derived[column].of
            rows = rows.join(folder.derived_table(column).filter(pl.col(column) == code).select(of), on=of, how="semi")
    (found,) = folder.collect([(rows.filter(*asked) if asked else rows).select(_PLACE, COUNT, LOW, HIGH)])
    return found


def _measured(
    folder: PublishedFolder, part: LevelEntry, rows: pl.DataFrame, areas: Sequence[Area], codes: Mapping[str, str]
) -> _Measured | None:
    """Return what a level or view says of a box; None where nothing follows from what is published of it.

    A view lists all its cells, so that its rows are the cells of the box. A level leaves out those that count 0, and is asked by its
    noisy counts, or by the row of its one cell. A view that is not measured has the cells of a level that is.
    """
    is_view = isinstance(part, ViewEntry)
    if part.summed and not is_view:
        return None
    cells, noisy = rows.height, None
    if isinstance(part, ViewEntry):
        where = f"view {part.name}"
        if folder.manifest.noisy_counts and part.same_as is None and not part.summed:
            (counts,) = folder.collect([folder.noisy_view(part.name).select(NOISY)])
            noisy = int(counts[NOISY].to_numpy()[rows[_PLACE].to_numpy()].sum())
    else:
        where = f"level {part.level} ({place(part.axes) or 'everything'})"
        if folder.manifest.noisy_counts:
            cells, noisy = _noisy_sum(folder, part.level, areas, codes)
        elif rows.height != 1 or not _is_cell(folder, part, areas):
            return None
    is_own = part.source == part.level or (is_view and part.summed)
    row = (int(rows[LOW].sum()), int(rows[HIGH].sum())) if rows.height == cells and is_own else None
    if row is None and noisy is None:
        return None
    text = f"the cell of {where}" if cells == 1 else f"sum of {cells:,} cells of {where}"
    return _Measured(cells, noisy, noise_of(part), row, text)


def _noisy_sum(folder: PublishedFolder, level: int, areas: Sequence[Area], codes: Mapping[str, str]) -> tuple[int, int]:
    """Return how many cells of a level are in a box and have some codes, and the sum of their noisy counts; all are measured."""
    tree = folder.tree
    met = areas_met(tree, level, Box(*zip(*((of.level, of.number) for of in areas), strict=True)))
    noisy = folder.noisy(level, met)
    if not codes:
        (counts,) = folder.collect([noisy.select(pl.col(NOISY).sum())])
        return math.prod(map(len, met)), int(counts[NOISY][0])
    (cells,) = folder.collect([noisy])
    of_cells, asked = folder.areas_of(level, cells), np.ones(cells.height, dtype=bool)
    for name, code in codes.items():
        column = folder.derived[name]
        asked &= column.at(tree, tree.axis_levels(level), of_cells) == column.codes.index_of(code)
    return int(asked.sum()), int(cells[NOISY].to_numpy()[asked].sum())


def _is_cell(folder: PublishedFolder, part: LevelEntry, areas: Sequence[Area]) -> bool:
    """Return whether a box is one cell of a level."""
    return all(
        area.level == _reached(names, part.axes.get(axis))
        for (axis, names), area in zip(folder.axes.items(), areas, strict=True)
    )


def _interval(folder: PublishedFolder, best: _Measured, count: int) -> tuple[int, int]:
    """Return the interval that a measurement gives, with the released count inside, and no further than an exact total."""
    if best.noisy is None:
        low, high = best.row or (0, count)
        further = best.cells * _further(folder, best)
        return min(max(low - further, 0), count), max(high + further, count)
    z = best.noise.quantile(math.log((1 - folder.manifest.intervals.confidence) / 2), best.cells)
    total = folder.manifest.levels[0]
    most = int(folder.collect([folder.table(0)])[0][COUNT][0]) if not total.sigma else best.noisy + z
    return min(max(best.noisy - z, 0), count), max(min(max(best.noisy + z, 0), most), count)


def _further(folder: PublishedFolder, best: _Measured) -> int:
    """Return by how much each of several published intervals must be wider so that all of them hold at once, records.

    Each of k intervals then misses with a probability of at most α/k, and the sums of their ends with α.
    """
    alpha = 1 - folder.manifest.intervals.confidence
    return best.noise.quantile(math.log(alpha / 2 / best.cells)) - best.noise.quantile(math.log(alpha / 2))
