"""The part of the explorer's data that is about trips: the levels, the totals of areas, and the views."""

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from storage.counts.columns import COUNT, HIGH, LOW, SIGNAL
from storage.counts.tables import level_csv
from tasks.explore.views import views_shown
from tasks.format.manifest import LevelEntry, Manifest
from tasks.query.exactness import is_exact
from tasks.tabulate.answers import absent_high, answers
from tasks.tabulate.largest import level_shown
from tasks.tabulate.tables import Boxes, Tables
from tasks.tabulate.totals import area_totals
from tasks.tree.order import flows_within

_ENDS = ("from", "to")
_MOST_CROSSED = 50_000  # pairs whose axis levels no level has
_MOST_ABSENT = 100_000  # possible pairs of a level of which each without a row has its own interval
_ONE_BY_ONE = 2_000_000  # cells without a row that are asked about one by one


def levels_that_fit(tables: Tables, most_rows: int) -> int:
    """Return how many levels have at most so many rows together, coarse ones first; everything fits always."""
    entries, tree = tables.folder.manifest.levels, tables.tree
    rows = np.cumsum([entry.nonzero for entry in entries])
    areas = np.array([sum(tree.sizes(entry.level)) for entry in entries])  # which have totals too
    return max(int(np.searchsorted(np.maximum(rows, areas), most_rows, side="right")), 1)


def trips(tables: Tables, most_rows: int) -> dict[str, Any]:
    """Return what the explorer shows of a release of trips.

    Args:
        tables: of the folder.
        most_rows: so many rows of levels and views are taken in at most.
    """
    entries, fit = tables.folder.manifest.levels, levels_that_fit(tables, most_rows)
    views, views_left_out = views_shown(
        tables, tables.folder.manifest.views, most_rows - sum(entry.nonzero for entry in entries[:fit])
    )
    return {
        "levels": [_level(tables, entry) for entry in entries[:fit]],
        "first": level_shown(tables.folder, fit - 1),
        "left_out": [
            {"level": entry.level, "at": _at(tables, entry.level), "rows": entry.nonzero, "file": _file(tables, entry)}
            for entry in entries[fit:]
        ],
        "totals": [
            _totals(tables, axis, level)
            for axis, finest in enumerate(tables.folder.reached(fit - 1))
            for level in range(1, finest + 1)
        ],
        "crossed": list(_crossed(tables, fit, most_rows)),
        "views": views,
        "views_left_out": views_left_out,
    }


def _crossed(tables: Tables, fit: int, most_cells: int) -> Iterator[dict[str, Any]]:
    """Yield what questions about pairs of areas are answered whose axis levels no level has, coarse ones first, as far as they have room."""
    folder, tree = tables.folder, tables.tree
    own = {folder.reached(level) for level in range(len(folder.manifest.levels))}
    depths = [range(1, finest + 1) for finest in folder.reached(fit - 1)]
    room = min(most_cells, _MOST_CROSSED)
    for levels in sorted(set(product(*depths)) - own, key=lambda levels: (sum(levels), levels)):
        sizes = [axis.areas(level) for axis, level in zip(tree.axes, levels, strict=True)]
        if math.prod(sizes) > room:
            continue
        room -= math.prod(sizes)
        found = answers(tables, Boxes(levels, tuple(of.ravel() for of in np.indices(sizes))))
        yield {"at": list(levels), COUNT: found.count.tolist(), **found.ends(), "exact": is_exact(folder, levels)}


def _absent(tables: Tables, level: int) -> list[int | None] | None:
    """Return where the interval ends of each pair without a row, in the order of their areas; None where there are too many.

    A pair without a row counts 0, and its interval begins there.
    """
    sizes, rows = tables.tree.sizes(level), tables.rows(level)
    if not all(rows.levels) or math.prod(sizes) > _MOST_ABSENT:
        return None
    lacks_row = np.ones(sizes, dtype=bool)
    lacks_row[rows.areas] = False
    found = answers(tables, Boxes(rows.levels, np.nonzero(lacks_row)))
    if (found.low[found.stated] < 0).any() or found.count.any():
        return None
    return found.ends()[HIGH]


def _at(tables: Tables, level: int) -> list[int]:
    return list(tables.folder.reached(level))


def _file(tables: Tables, entry: LevelEntry) -> str:
    """Return the file that readers open for a level: CSV where there is one."""
    manifest: Manifest = tables.folder.manifest
    if manifest.csv == "every_level":
        return level_csv(entry.level)
    is_finest = entry.level == manifest.levels[-1].level
    return "counts.csv" if is_finest and manifest.csv else entry.path


def _level(tables: Tables, entry: LevelEntry) -> dict[str, Any]:
    """Return a level: its table, what a question about each of its rows is answered, and what is said of the level."""
    rows = tables.rows(entry.level)
    found = answers(tables, Boxes(rows.levels, rows.areas))
    asked = {f"asked_{end}": of for end, of in found.ends().items()}
    areas = {end: of.tolist() for end, level, of in zip(_ENDS, rows.levels, rows.areas, strict=True) if level}
    table, shares = rows.table, entry.noise_rows
    return {
        "level": entry.level,
        "at": list(rows.levels),
        **areas,
        COUNT: table[COUNT].to_list(),
        **{end: table[end].to_list() if end in table.columns else None for end in (LOW, HIGH)},
        **asked,
        SIGNAL: table[SIGNAL].cast(int).to_list() if SIGNAL in table.columns else None,
        "exact": is_exact(tables.folder, rows.levels),
        "within": _within(tables, entry.level),
        "promise": entry.intervals.promise if entry.intervals else None,
        "noise_rows": shares.model_dump() if shares else None,
        "absent": _absent(tables, entry.level),
        "absent_high": absent_high(tables, entry.level, _ONE_BY_ONE),
    }


def _within(tables: Tables, level: int) -> list[int]:
    """Return the rows of a level that are of trips within one area."""
    rows = tables.rows(level)
    if not all(rows.levels):
        return []
    found: list[int] = np.flatnonzero(flows_within(tables.tree, level)(rows.areas)).tolist()
    return found


def _totals(tables: Tables, axis: int, level: int) -> dict[str, Any]:
    """Return what a question about each area of an axis level is answered, with everything of the other axes."""
    found = area_totals(tables, axis, level)
    exact = is_exact(tables.folder, tuple(level if own == axis else 0 for own in range(len(tables.tree.axes))))
    return {"axis": axis, "level": level, COUNT: found.count.tolist(), **found.ends(), "exact": exact}
