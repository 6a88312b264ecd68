"""The part of the explorer's data that is about trips: the levels, the totals of areas, and the views."""

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from storage.tables import COUNT, HIGH, LOW, SIGNAL, level_csv
from tasks.format.entries import LevelEntry
from tasks.pages.explorer.areas import views_shown
from tasks.released.boxes import Boxes
from tasks.released.estimate import Estimate
from tasks.released.query.overview import area_totals, level_shown
from tasks.released.sources.folder import PublishedFolder
from tasks.tree.order import flows_within

_ENDS = ("from", "to")
_MOST_CROSSED = 50_000  # pairs whose axis levels no level has
_MOST_ABSENT = 100_000  # possible pairs of a level of which each without a row has its own interval
_ONE_BY_ONE = 2_000_000  # cells without a row that are asked about one by one


def levels_that_fit(estimate: Estimate, most_rows: int) -> int:
    """Return how many levels have at most `most_rows` rows together, coarse ones first; level 0 always fits."""
    entries, tree = estimate.folder.folder.manifest.levels, estimate.folder.tree
    rows = np.cumsum([entry.nonzero for entry in entries])
    areas = np.array([sum(tree.sizes(entry.level)) for entry in entries])  # which have totals too
    return max(int(np.searchsorted(np.maximum(rows, areas), most_rows, side="right")), 1)


def trips(estimate: Estimate, most_rows: int) -> dict[str, Any]:
    """Return what the explorer shows of a release of trips.

    Args:
        most_rows: the most rows of levels and views that are taken in.
    """
    folder, fit = estimate.folder.folder, levels_that_fit(estimate, most_rows)
    shown, others = folder.manifest.levels[:fit], folder.manifest.levels[fit:]
    room = most_rows - sum(entry.nonzero for entry in shown)
    views, views_left_out = views_shown(estimate, folder.manifest.views, room)
    return {
        "levels": [_level(estimate, entry) for entry in shown],
        "first": level_shown(folder, fit - 1),
        "left_out": [
            {"level": of.level, "at": list(folder.reached(of.level)), "rows": of.nonzero, "file": _file(folder, of)}
            for of in others
        ],
        "totals": [
            _totals(estimate, axis, level)
            for axis, finest in enumerate(folder.reached(fit - 1))
            for level in range(1, finest + 1)
        ],
        "crossed": list(_crossed(estimate, fit, most_rows)),
        "views": views,
        "views_left_out": views_left_out,
    }


def _crossed(estimate: Estimate, fit: int, most_cells: int) -> Iterator[dict[str, Any]]:
    """Yield what questions about pairs of areas are answered whose axis levels no level has, coarse ones first, as far as they have room."""
    folder, tree = estimate.folder.folder, estimate.folder.tree
    own = {folder.reached(level) for level in range(len(folder.manifest.levels))}
    depths = [range(1, finest + 1) for finest in folder.reached(fit - 1)]
    room = min(most_cells, _MOST_CROSSED)
    for levels in sorted(set(product(*depths)) - own, key=lambda levels: (sum(levels), levels)):
        sizes = [axis.areas(level) for axis, level in zip(tree.axes, levels, strict=True)]
        if math.prod(sizes) > room:
            continue
        room -= math.prod(sizes)
        answers = estimate.answers(Boxes(levels, tuple(of.ravel() for of in np.indices(sizes))))
        yield {"at": list(levels), COUNT: answers.count.tolist(), **answers.ends(), "exact": folder.is_exact(levels)}


def _absent(estimate: Estimate, level: int) -> list[int | None] | None:
    """Return where the interval ends of each pair without a row, in the order of their areas; None where there are too many.

    A pair without a row counts 0, and its interval begins there.
    """
    sizes, rows = estimate.folder.tree.sizes(level), estimate.folder.level_table(level)
    if not all(rows.levels) or math.prod(sizes) > _MOST_ABSENT:
        return None
    lacks_row = np.ones(sizes, dtype=bool)
    lacks_row[rows.areas] = False
    answers = estimate.answers(Boxes(rows.levels, np.nonzero(lacks_row)))
    if (answers.low[answers.stated] < 0).any() or answers.count.any():
        return None
    return answers.ends()[HIGH]


def _file(folder: PublishedFolder, entry: LevelEntry) -> str:
    """Return the file that readers open for a level: CSV where there is one."""
    if folder.manifest.csv == "every_level":
        return level_csv(entry.level)
    return "counts.csv" if folder.manifest.csv and entry is folder.manifest.levels[-1] else entry.path


def _level(estimate: Estimate, entry: LevelEntry) -> dict[str, Any]:
    """Return a level: its table, what a question about each of its rows is answered, and what is said of the level."""
    rows = estimate.folder.level_table(entry.level)
    asked = {f"asked_{end}": of for end, of in estimate.answers(Boxes(rows.levels, rows.areas)).ends().items()}
    areas = {end: of.tolist() for end, level, of in zip(_ENDS, rows.levels, rows.areas, strict=True) if level}
    table, shares = rows.columns, entry.noise_rows
    is_within = flows_within(estimate.folder.tree, entry.level)(rows.areas) if all(rows.levels) else np.zeros(0)
    return {
        "level": entry.level,
        "at": list(rows.levels),
        **areas,
        COUNT: table[COUNT].to_list(),
        **{end: table[end].to_list() if end in table.columns else None for end in (LOW, HIGH)},
        **asked,
        SIGNAL: table[SIGNAL].cast(int).to_list() if SIGNAL in table.columns else None,
        "exact": estimate.folder.folder.is_exact(rows.levels),
        "within": np.flatnonzero(is_within).tolist(),  # the rows that are of trips within one area
        "promise": entry.intervals.promise if entry.intervals else None,
        "noise_rows": shares.model_dump() if shares else None,
        "absent": _absent(estimate, entry.level),
        "absent_high": estimate.absent_high(entry.level, _ONE_BY_ONE),
    }


def _totals(estimate: Estimate, axis: int, level: int) -> dict[str, Any]:
    """Return what a question about each area of an axis level is answered, with everything of the other axes."""
    answers = area_totals(estimate, axis, level)
    levels = tuple(level if own == axis else 0 for own in range(len(estimate.folder.tree.axes)))
    exact = estimate.folder.folder.is_exact(levels)
    return {"axis": axis, "level": level, COUNT: answers.count.tolist(), **answers.ends(), "exact": exact}
