"""The tables of the explorer's data: of ends and attributes alike, the most useful first, as far as they have room."""

import math
import re
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any

import numpy as np

from storage.tables import COUNT, HIGH, LOW, SIGNAL, SIZE, ends_of, level_csv
from tasks.format.entries import LevelEntry, ViewEntry
from tasks.pages.explorer.areas import views_shown
from tasks.pages.explorer.sums import MOST_NUMBERED, Sums
from tasks.released.boxes import Boxes, Met, level_of
from tasks.released.estimate import Answers, Estimate
from tasks.released.query.overview import level_shown
from tasks.released.sources.folder import PublishedFolder
from tasks.tree.axis import AxisLevels
from tasks.tree.keys import packed
from tasks.tree.order import twins_of
from tasks.words.levels import in_short

_MOST_TABLES = 120  # that no level has
_MOST_WORK = 10_000_000  # rows that are added up for all tables of attributes together
_MOST_DENSE = 100_000  # possible cells of a level of which all are shown, those without a row too
_ONE_BY_ONE = 2_000_000  # cells without a row that are asked about one by one
_DIGITS = 4  # of standard deviations, after the point
_MOST_EXPLAINED = 200  # cells of a table, spread over it, that say what its numbers follow from
_SOURCE = re.compile(  # of a number, in words about it; codes stand before the words of the first kind
    r"^.*(least squares over [\w ]+|published exactly)$|\b(?:of|at) (view [^ :;,]+|levels? \d+(?:, \d+)*)"
)


def tables_shown(estimate: Estimate, most_rows: int) -> tuple[dict[str, Any], AxisLevels]:
    """Return the tables and views that the explorer shows of a release, and the finest level that it shows of each axis.

    Args:
        most_rows: the most cells of tables and rows of levels and views that are taken in.
    """
    folder, tree = estimate.folder.folder, estimate.folder.tree
    ends = ends_of(list(folder.manifest.roles.values()))
    views = {} if ends else {estimate.folder.levels_of(view.axes): view for view in _tables_of(estimate)}
    sums = Sums(estimate)
    shown, left_out, reasons = dict[AxisLevels, dict[str, Any]](), list[str](), dict[str, list[str]]()
    room, work, many = most_rows, _MOST_WORK, 0
    for levels in _kinds(folder, ends):
        entry, added = _level_of(folder, levels), 0
        possible = math.prod(axis.areas(level) for axis, level in zip(tree.axes, levels, strict=True))
        cells = min(possible, entry.nonzero) if entry and ends else possible
        if not entry and any(level for axis, level in enumerate(levels) if axis not in (ends or ())):
            added = estimate.rows_added(levels)
        reason = "they are too large for this page" if cells > room or possible > MOST_NUMBERED else ""
        reason = reason or ("their cells are sums of too many others" if added > work else "")
        reason = reason or (f"this page has room for {_MOST_TABLES}" if not entry and many == _MOST_TABLES else "")
        words = " by ".join(_named(*of, level) for of, level in zip(folder.axes.items(), levels, strict=True) if level)
        if reason and entry and ends:
            rows, file = f"{entry.nonzero:,} rows", _file(folder, entry)
            left_out.append(f"Counts of {words} ({rows}) are not in this page; they are in {file}.")
        elif reason:
            reasons.setdefault(reason, []).append(words)
        else:
            room, work, many = room - cells, work - added, many + (not entry)
            shown[levels] = _table(estimate, levels, ends, views.get(levels), sums)
    same = [view for view in _tables_of(estimate) if _is_in(estimate, view, shown)]
    apart = [view for view in folder.manifest.views if view not in views.values() and view not in same]
    views_taken, without_room = views_shown(estimate, apart, room)
    left_out += [f"Tables of {in_short(words)} are left out: {reason}." for reason, words in reasons.items()]
    flows = [of["rows"]["level"] for of in shown.values() if of["rows"]]
    content = {
        "ends": ends and list(ends),
        "twins": twins_of(tree),
        "tables": list(shown.values()),
        "sums": sums.shared(),
        "first": level_shown(folder, max(flows)) if flows else None,
        "views": views_taken,
        "left_out": left_out + without_room,
    }
    return content, tuple(max(of) for of in zip(*shown, strict=True))


def _kinds(folder: PublishedFolder, ends: tuple[int, int] | None) -> Iterator[AxisLevels]:
    """Yield the axis levels of tables, the most useful first.

    They are of everything, of one attribute, of two at their finest levels, and of two at coarser ones; of trips each of these for both
    ends at all levels, coarse ones first, and those that the release has before those that are sums; at last, all other levels of trips; of
    group sizes those of three axes and more.
    """
    depths = [len(levels) for levels in folder.axes.values()]
    own = {folder.reached(entry.level): None for entry in folder.manifest.levels}
    of_ends = [*product(*(range(depths[end] + 1) for end in ends or ()))]
    for kind in _of_attributes(depths, ends or ()):
        at = [_with(kind, dict(zip(ends or (), levels, strict=True))) for levels in of_ends]
        if ends:
            is_sum = {of: of not in own and all(of[end] for end in ends) for of in at}
            at.sort(key=lambda of: (is_sum[of], max(of[end] for end in ends), sum(of), of))
        yield from at
        own = {of: None for of in own if of not in at}
    if ends:
        yield from own
    elif SIZE in folder.manifest.roles.values():  # the sizes in each region of groups with each attribute
        yield from (of for of in product(*(range(depth, -1, -1) for depth in depths)) if np.count_nonzero(of) > 2)


def _of_attributes(depths: Sequence[int], ends: Sequence[int]) -> Iterator[AxisLevels]:
    attributes = [axis for axis in range(len(depths)) if axis not in ends]
    pairs, nothing = list(combinations(attributes, 2)), (0,) * len(depths)
    yield nothing
    for axis in attributes:
        yield from (_with(nothing, {axis: level}) for level in range(depths[axis], 0, -1))
    for one, other in pairs:
        yield _with(nothing, {one: depths[one], other: depths[other]})
    for one, other in pairs:
        _, *coarser = product(range(depths[one], 0, -1), range(depths[other], 0, -1))
        yield from (_with(nothing, {one: level, other: below}) for level, below in coarser)


def _with(levels: AxisLevels, others: dict[int, int]) -> AxisLevels:
    return tuple(others.get(axis, level) for axis, level in enumerate(levels))


def _named(axis: str, levels: Sequence[str], level: int) -> str:
    """Return a level of an axis in words."""
    name = levels[level - 1]
    if name == axis or len(levels) == 1:
        return axis
    return name if name.startswith(f"{axis}_") else f"{axis} {name}"


def _level_of(folder: PublishedFolder, levels: AxisLevels) -> LevelEntry | None:
    """Return the level that has some axis levels; None where there is none."""
    level = level_of(folder.steps, levels)
    return folder.manifest.levels[level] if folder.reached(level) == levels else None


def _file(folder: PublishedFolder, entry: LevelEntry) -> str:
    """Return the file that readers open for a level: CSV where there is one."""
    if folder.manifest.csv == "every_level":
        return level_csv(entry.level)
    return "counts.csv" if folder.manifest.csv and entry is folder.manifest.levels[-1] else entry.path


def _tables_of(estimate: Estimate) -> Iterator[ViewEntry]:
    """Yield the views that have one or two axes and no derived column, so that they can be shown as tables."""
    for view in estimate.folder.folder.manifest.views:
        refined = sum(level > 0 for level in estimate.folder.levels_of(view.axes))
        if refined in {1, 2} and refined == sum(level is not None for level in view.axes.values()):
            yield view


def _is_in(estimate: Estimate, view: ViewEntry, shown: dict[AxisLevels, dict[str, Any]]) -> bool:
    """Return whether a table that is shown has the counts of a view."""
    table = shown.get(estimate.folder.levels_of(view.axes))
    return table is not None and table[COUNT] == estimate.folder.table(view).columns[COUNT].to_list()


def _table(
    estimate: Estimate, levels: AxisLevels, ends: tuple[int, int] | None, view: ViewEntry | None, sums: Sums
) -> dict[str, Any]:
    """Return a table: of all its cells, or of the rows of a level with too many others; a view as it is published, others as questions are answered.

    Its `cells` are the numbers of what is shown, as they are in all cells of the axis levels; None where it is all of them.
    """
    folder, entry = estimate.folder.folder, _level_of(estimate.folder.folder, levels)
    sizes = [axis.areas(level) for axis, level in zip(estimate.folder.tree.axes, levels, strict=True)]
    if view:
        areas = estimate.folder.table(view).areas
    elif entry and ends and math.prod(sizes) > _MOST_DENSE:
        areas = estimate.folder.level_table(entry.level).areas
    else:
        areas = tuple(of.ravel() for of in np.indices(sizes))
    boxes, cells = Boxes(levels, areas), None if len(areas[0]) == math.prod(sizes) else packed(areas, sizes)
    are_pairs = ends and all((level > 0) == (axis in ends) for axis, level in enumerate(levels))
    answers = estimate.answers(boxes)
    shown = _published(estimate, view, boxes) if view else _asked(estimate, boxes, entry, answers)
    if cells is None or not entry:
        of_sums = sums.of_table(boxes, np.array(shown[COUNT], dtype=np.int64))
    else:
        of_sums = sums.of_rows(entry.level, boxes)
    return {
        "at": list(levels),
        "cells": None if cells is None else cells.tolist(),
        "source": f"view {view.name}" if view else _source(estimate, answers) or _alone(entry),
        "exact": not view and folder.is_exact(levels),
        **shown,
        **of_sums,
        "rows": _rows(entry) if entry and are_pairs else None,
        "absent_high": estimate.absent_high(entry.level, _ONE_BY_ONE) if entry and cells is not None else None,
    }


def _published(estimate: Estimate, view: ViewEntry, boxes: Boxes) -> dict[str, Any]:
    table, deviation = estimate.folder.table(view).columns, estimate.deviations(boxes)
    return {
        COUNT: table[COUNT].to_list(),
        **{end: table[end].to_list() if end in table.columns else None for end in (LOW, HIGH)},
        "sd": None if deviation is None else deviation.round(_DIGITS).tolist(),
        SIGNAL: table[SIGNAL].cast(int).to_list() if SIGNAL in table.columns else None,
    }


def _alone(entry: LevelEntry | None) -> str:
    """Return from where the numbers of a table are whose answers name no source."""
    return f"level {entry.level}" if entry else "sum of leaves"


def _source(estimate: Estimate, answers: Answers) -> str:
    """Return from which views and levels, or from what else, questions about boxes are answered, as `query` names it; empty where it does not."""
    most = 1 if estimate.source.covariance else _MOST_EXPLAINED
    boxes = np.linspace(0, len(answers.count) - 1, min(len(answers.count), most), dtype=np.int64).tolist()
    found = (_SOURCE.search(answers.how(box)) for box in boxes)
    return ", ".join(sorted({of[of.lastindex or 0] for of in found if of}))


def _asked(estimate: Estimate, boxes: Boxes, entry: LevelEntry | None, answers: Answers) -> dict[str, Any]:
    """Return what a question about each box is answered, and the marks of rows that stand out if the boxes are cells of a level."""
    rows = estimate.folder.level_table(entry.level) if entry else None
    is_marked = rows is not None and SIGNAL in rows.columns.columns
    return {
        COUNT: answers.count.tolist(),
        **answers.ends(),
        "sd": None if answers.deviation is None else answers.deviation.round(_DIGITS).tolist(),
        SIGNAL: Met.of(estimate.folder.tree, rows, boxes).sums(SIGNAL).tolist()
        if rows is not None and is_marked
        else None,
    }


def _rows(entry: LevelEntry) -> dict[str, Any]:
    """Return what the list of a level of pairs says of its rows, those that count something, and of all of them."""
    shares = entry.noise_rows
    return {
        "level": entry.level,
        "promise": entry.intervals.promise if entry.intervals else None,
        "noise_rows": shares.model_dump() if shares else None,
    }
