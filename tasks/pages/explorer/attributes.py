"""The part of the explorer's data that is about attributes, or regions and sizes: the tables of one and of two of them."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np

from storage.tables import COUNT, HIGH, LOW, SIGNAL
from tasks.format.entries import ViewEntry
from tasks.pages.explorer.areas import views_shown
from tasks.released.boxes import Boxes, Met, level_of
from tasks.released.estimate import Estimate
from tasks.tree.axis import AxisLevels
from tasks.words.levels import in_short

_MOST_TABLES = 60
_MOST_WORK = 10_000_000  # rows that are added up for all tables together
_DIGITS = 4  # of standard deviations, after the point


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of table.

    Attributes:
        axes: the numbers of its axes, one or two.
        at: the level of each, from 1 on.
        levels: per axis of the release, the level of its cells; 0 for everything.
    """

    axes: tuple[int, ...]
    at: tuple[int, ...]
    levels: AxisLevels


def attributes(estimate: Estimate, most_cells: int) -> tuple[dict[str, Any], AxisLevels]:
    """Return what the explorer shows of a release of features or of group sizes, and the finest level that it shows of each axis.

    Args:
        most_cells: the most cells of tables and rows of views that are taken in.
    """
    axes, tree = list(estimate.folder.folder.axes.items()), estimate.folder.tree
    shown, left_out, finest = list[dict[str, Any]](), dict[str, list[str]](), [0] * len(axes)
    room, work = most_cells, _MOST_WORK
    for kind in _kinds([len(levels) for _, levels in axes]):
        cells = math.prod(axis.areas(level) for axis, level in zip(tree.axes, kind.levels, strict=True))
        rows = estimate.rows_added(kind.levels)
        reason = "they are too large for this page" if cells > room else ""
        reason = reason or ("their cells are sums of too many others" if rows > work else "")
        reason = reason or (f"this page has room for {_MOST_TABLES}" if len(shown) == _MOST_TABLES else "")
        if reason:
            words = " by ".join(_named(*axes[axis], level) for axis, level in zip(kind.axes, kind.at, strict=True))
            left_out.setdefault(reason, []).append(words)
            continue
        room, work = room - cells, work - rows
        shown.append(_table(estimate, kind))
        for axis, level in zip(kind.axes, kind.at, strict=True):
            finest[axis] = max(finest[axis], level)
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


def _kinds(depths: Sequence[int]) -> Iterator[_Kind]:
    """Yield the kinds of tables, the most useful first: of one axis, of two at their finest levels, of two at coarser ones."""
    for axis, depth in enumerate(depths):
        yield from (_kind(depths, (axis,), (level,)) for level in range(depth, 0, -1))
    pairs = list(combinations(range(len(depths)), 2))
    for pair in pairs:
        yield _kind(depths, pair, tuple(depths[axis] for axis in pair))
    for pair in pairs:
        _, *coarser = product(*(range(depths[axis], 0, -1) for axis in pair))
        yield from (_kind(depths, pair, at) for at in coarser)


def _kind(depths: Sequence[int], axes: tuple[int, ...], at: tuple[int, ...]) -> _Kind:
    level_of_axis = dict(zip(axes, at, strict=True))
    return _Kind(axes, at, tuple(level_of_axis.get(axis, 0) for axis in range(len(depths))))


def _named(axis: str, levels: Sequence[str], level: int) -> str:
    """Return a level of an attribute in words."""
    name = levels[level - 1]
    if name == axis or len(levels) == 1:
        return axis
    return name if name.startswith(f"{axis}_") else f"{axis} {name}"


def _is_table(estimate: Estimate, view: ViewEntry) -> bool:
    """Return whether a view has one or two axes and no derived column, so that it can be shown as a table."""
    refined = sum(level > 0 for level in estimate.folder.levels_of(view.axes))
    return refined in {1, 2} and refined == sum(level is not None for level in view.axes.values())


def _table(estimate: Estimate, kind: _Kind) -> dict[str, Any]:
    """Return a table of all its cells, those of a view as they are published, all others as a question about each is answered."""
    folder, levels = estimate.folder.folder, kind.levels
    of_tables = (view for view in folder.manifest.views if _is_table(estimate, view))
    view = next((view for view in of_tables if estimate.folder.levels_of(view.axes) == levels), None)
    if view:
        boxes = Boxes(levels, estimate.folder.table(view).areas)
        source, cells = f"view {view.name}", _published(estimate, view)
    else:
        sizes = [axis.areas(level) for axis, level in zip(estimate.folder.tree.axes, levels, strict=True)]
        boxes, level = Boxes(levels, tuple(of.ravel() for of in np.indices(sizes))), level_of(folder.steps, levels)
        source = f"level {level}" if folder.reached(level) == levels else "sum of leaves"
        cells = _asked(estimate, boxes)
    return {
        "axes": list(kind.axes),
        "at": list(kind.at),
        "source": source,
        "exact": not view and folder.is_exact(levels),
        "index": [boxes.areas[axis].tolist() for axis in kind.axes],
        **cells,
    }


def _published(estimate: Estimate, view: ViewEntry) -> dict[str, Any]:
    rows = estimate.folder.table(view)
    table, deviation = rows.columns, estimate.deviations(Boxes(rows.levels, rows.areas))
    return {
        COUNT: table[COUNT].to_list(),
        **{end: table[end].to_list() if end in table.columns else None for end in (LOW, HIGH)},
        "sd": None if deviation is None else deviation.round(_DIGITS).tolist(),
        SIGNAL: table[SIGNAL].cast(int).to_list() if SIGNAL in table.columns else None,
    }


def _asked(estimate: Estimate, boxes: Boxes) -> dict[str, Any]:
    """Return what a question about each box is answered, and the marks of rows that stand out if the boxes are cells of a level."""
    answers, level, signal = estimate.answers(boxes), level_of(estimate.folder.folder.steps, boxes.levels), None
    rows = estimate.folder.level_table(level)
    if rows.levels == boxes.levels and SIGNAL in rows.columns.columns:
        signal = Met.of(estimate.folder.tree, rows, boxes).sums(SIGNAL).tolist()
    return {
        COUNT: answers.count.tolist(),
        **answers.ends(),
        "sd": None if answers.deviation is None else answers.deviation.round(_DIGITS).tolist(),
        SIGNAL: signal,
    }
