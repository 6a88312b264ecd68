"""The part of the explorer's data that is about attributes, or regions and sizes: the tables of one and of two of them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np

from storage.tables import COUNT, HIGH, LOW, SIGNAL
from tasks.format.entries import ViewEntry
from tasks.pages.explorer.areas import views_shown
from tasks.released.boxes import AxisLevels, Boxes, Met, Table, level_of
from tasks.released.estimate import Estimate
from tasks.words.levels import in_short

_MOST_TABLES = 60
_MOST_WORK = 10_000_000  # rows that are added up for all tables together
_DIGITS = 4  # of standard deviations, after the point


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of table.

    Attributes:
        axes: the numbers of its axes, one or two.
        at: their levels, from 1 on.
        levels: per axis of the release, the level of its cells; 0 for everything.
        words: its levels in words.
    """

    axes: tuple[int, ...]
    at: tuple[int, ...]
    levels: AxisLevels
    words: str


def attributes(estimate: Estimate, most_cells: int) -> tuple[dict[str, Any], AxisLevels]:
    """Return what the explorer shows of a release of features or of group sizes, and the finest level that it shows of each axis.

    Args:
        estimate: of a published folder.
        most_cells: so many cells of tables, and rows of views, are taken in at most.
    """
    shown, left_out, finest = list[dict[str, Any]](), dict[str, list[str]](), [0] * len(estimate.folder.folder.axes)
    room, work = most_cells, _MOST_WORK
    for kind in _kinds(estimate):
        cells, rows = math.prod(_sizes(estimate, kind)), estimate.rows_added(kind.levels)
        reason = "they are too large for this page" if cells > room else ""
        reason = reason or ("their cells are sums of too many others" if rows > work else "")
        reason = reason or (f"this page has room for {_MOST_TABLES}" if len(shown) == _MOST_TABLES else "")
        if reason:
            left_out.setdefault(reason, []).append(kind.words)
            continue
        room, work = room - cells, work - rows
        shown.append(_table(estimate, kind))
        for axis, at in zip(kind.axes, kind.at, strict=True):
            finest[axis] = max(finest[axis], at)
    apart = [view for view in estimate.folder.folder.manifest.views if not _is_table(estimate, view)]
    views, views_left_out = views_shown(estimate, apart, room)
    content = {
        "tables": shown,
        "tables_left_out": [
            f"Tables of {in_short(words)} are left out: {reason}." for reason, words in left_out.items()
        ],
        "views": views,
        "views_left_out": views_left_out,
    }
    return content, tuple(finest)


def _kinds(estimate: Estimate) -> Iterator[_Kind]:
    """Yield the kinds of tables, the most useful first: of one axis, of two at their finest levels, of two at coarser ones."""
    depths = list(map(len, estimate.folder.folder.axes.values()))
    for axis, depth in enumerate(depths):
        for level in reversed(range(1, depth + 1)):
            yield _kind(estimate, (axis,), (level,))
    pairs = list(combinations(range(len(depths)), 2))
    for one, other in pairs:
        yield _kind(estimate, (one, other), (depths[one], depths[other]))
    for one, other in pairs:
        for at in product(*(reversed(range(1, depths[axis] + 1)) for axis in (one, other))):
            if at != (depths[one], depths[other]):
                yield _kind(estimate, (one, other), (at[0], at[1]))


def _kind(estimate: Estimate, axes: tuple[int, ...], at: tuple[int, ...]) -> _Kind:
    names, found = list(estimate.folder.folder.axes.items()), dict(zip(axes, at, strict=True))
    words = [_named(*names[axis], level) for axis, level in found.items()]
    return _Kind(axes, at, tuple(found.get(axis, 0) for axis in range(len(names))), " by ".join(words))


def _named(axis: str, levels: Sequence[str], level: int) -> str:
    """Return a level of an attribute in words."""
    name = levels[level - 1]
    if name == axis or len(levels) == 1:
        return axis
    return name if name.startswith(f"{axis}_") else f"{axis} {name}"


def _sizes(estimate: Estimate, kind: _Kind) -> list[int]:
    return [estimate.folder.tree.axes[axis].areas(level) for axis, level in zip(kind.axes, kind.at, strict=True)]


def _is_table(estimate: Estimate, view: ViewEntry) -> bool:
    """Return whether a view has one or two axes and no derived column, so that it can be shown as a table."""
    refined = sum(level > 0 for level in estimate.folder.levels_of(view.axes))
    return refined in {1, 2} and refined == sum(level is not None for level in view.axes.values())


def _table(estimate: Estimate, kind: _Kind) -> dict[str, Any]:
    """Return a table of all its cells, those of a view as they are published, all others as a question about each is answered."""
    views = [
        view
        for view in estimate.folder.folder.manifest.views
        if _is_table(estimate, view) and estimate.folder.levels_of(view.axes) == kind.levels
    ]
    rows = estimate.folder.table(views[0]) if views else None
    boxes = Boxes(kind.levels, rows.areas if rows else _every_cell(estimate, kind))
    found = _of_view(estimate, rows) if rows else _asked(estimate, boxes)
    source = f"view {views[0].name}" if views else "sum of leaves"
    level = level_of(estimate.folder.folder.steps, kind.levels)
    if not views and estimate.folder.folder.reached(level) == kind.levels:
        source = f"level {level}"
    return {
        "axes": list(kind.axes),
        "at": list(kind.at),
        "source": source,
        "exact": not views and estimate.folder.folder.is_exact(kind.levels),
        "index": [boxes.areas[axis].tolist() for axis in kind.axes],
        **found,
    }


def _every_cell(estimate: Estimate, kind: _Kind) -> tuple[Any, ...]:
    places = dict(zip(kind.axes, np.indices(_sizes(estimate, kind)).reshape(len(kind.axes), -1), strict=True))
    many = len(next(iter(places.values())))
    return tuple(places.get(axis, np.zeros(many, dtype=np.int64)) for axis in range(len(kind.levels)))


def _of_view(estimate: Estimate, rows: Table) -> dict[str, Any]:
    table, deviation = rows.columns, estimate.deviations(Boxes(rows.levels, rows.areas))
    return {
        COUNT: table[COUNT].to_list(),
        **{end: table[end].to_list() if end in table.columns else None for end in (LOW, HIGH)},
        "sd": None if deviation is None else deviation.round(_DIGITS).tolist(),
        SIGNAL: table[SIGNAL].cast(int).to_list() if SIGNAL in table.columns else None,
    }


def _asked(estimate: Estimate, boxes: Boxes) -> Mapping[str, Any]:
    """Return what a question about each box is answered, and the marks of rows that stand out if the boxes are cells of a level."""
    found, level, signal = estimate.answers(boxes), level_of(estimate.folder.folder.steps, boxes.levels), None
    rows = estimate.folder.level_table(level)
    if rows.levels == boxes.levels and SIGNAL in rows.columns.columns:
        signal = Met.of(estimate.folder.tree, rows, boxes).sums(SIGNAL).tolist()
    return {
        COUNT: found.count.tolist(),
        **found.ends(),
        "sd": None if found.deviation is None else found.deviation.round(_DIGITS).tolist(),
        SIGNAL: signal,
    }
