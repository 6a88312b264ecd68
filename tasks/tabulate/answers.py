"""Answers about many boxes of one kind: of each what `tasks.query.answers.answer` says of it, from tables that are read once."""

import math
from dataclasses import dataclass

import numpy as np

from storage.counts.columns import COUNT, HIGH, LOW
from tasks.laws.named import noise_of
from tasks.query.boxes import level_of
from tasks.tabulate.measured import measured_intervals, most_without_a_row, possible_cells
from tasks.tabulate.settled import margin_intervals, settled_intervals
from tasks.tabulate.sizes import sizes_intervals
from tasks.tabulate.tables import Boxes, Groups, Tables
from tasks.tabulate.unbiased import unbiased_intervals
from tasks.tree.axis import BoolArray, FloatArray, IntArray
from tasks.uncertainty.intervals import sum_margins


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """What a folder says about boxes, shape (boxes,) each.

    Attributes:
        count: the released counts, int64, records.
        low: the lower ends of their intervals, int64, records; likewise `high`.
        high: the upper ends.
        stated: whether an interval is stated.
        deviation: the standard deviations of the counts; None where they are no unbiased estimates.
    """

    count: IntArray
    low: IntArray
    high: IntArray
    stated: BoolArray
    deviation: FloatArray | None = None

    def ends(self) -> dict[str, list[int | None] | None]:
        """Return low and high as lists, with None for a box without an interval; None in place of lists without any."""
        if not self.stated.any():
            return {LOW: None, HIGH: None}
        stated = self.stated.tolist()
        return {
            end: [value if is_stated else None for value, is_stated in zip(of.tolist(), stated, strict=True)]
            for end, of in ((LOW, self.low), (HIGH, self.high))
        }


def answers(tables: Tables, boxes: Boxes) -> Answers:
    """Return what a folder says about boxes.

    Args:
        tables: of the folder.
        boxes: of one kind.
    Raises:
        StoreError: a file is missing, or differs from what was published.
    """
    manifest, level = tables.folder.manifest, level_of(tables.folder.steps, boxes.levels)
    rows, everywhere = tables.rows(level), np.ones(len(boxes), dtype=bool)
    groups = Groups(tables.tree, rows, boxes.levels)
    which = groups.of(boxes.areas)
    count = groups.sums(rows.column(COUNT))[which]
    if manifest.covariance:
        if not tables.folder.has_tree:
            return Answers(count, count, count, ~everywhere)
        deviation, low, high = unbiased_intervals(tables, boxes, count)
        return Answers(count, low, high, everywhere, deviation)
    if manifest.statistic:
        return Answers(count, *sizes_intervals(tables, boxes, count))
    if manifest.is_settled_together:
        return Answers(count, *settled_intervals(tables, boxes, count), everywhere)
    own = _by_levels(tables, boxes, level, count)
    of_views = margin_intervals(tables, boxes) if manifest.own_views else None
    if of_views is None:
        return own
    answered, of_view, (low, high) = of_views
    return Answers(
        np.where(answered, of_view, own.count),
        np.where(answered, low, own.low),
        np.where(answered, high, own.high),
        answered | own.stated,
    )


def _by_levels(tables: Tables, boxes: Boxes, level: int, count: IntArray) -> Answers:
    """Return what the levels say where each was measured, or only the finest one."""
    manifest = tables.folder.manifest
    if manifest.levels[-1].threshold:
        return _of_thresholded(tables, boxes, level, count)
    if manifest.adds_up_leaves:
        return _of_leaves(tables, boxes, level, count)
    if manifest.noisy_counts:
        return Answers(count, *measured_intervals(tables, boxes, count), np.ones(len(boxes), dtype=bool))
    high = np.maximum(_everything(tables), count)
    return _with_rows(tables, boxes, level, Answers(count, np.zeros_like(count), high, np.ones(len(boxes), dtype=bool)))


def _of_thresholded(tables: Tables, boxes: Boxes, level: int, count: IntArray) -> Answers:
    """Return what is known where only leaves whose noisy count reaches a threshold were kept: of single leaves."""
    finest, zero = tables.folder.manifest.levels[-1], np.zeros_like(count)
    if tables.folder.reached(level) != boxes.levels or level < finest.level:
        return Answers(count, zero, zero, np.zeros(len(boxes), dtype=bool))
    absent = Answers(count, zero, zero + _below_threshold(tables), np.ones(len(boxes), dtype=bool))
    return _with_rows(tables, boxes, level, absent)


def _below_threshold(tables: Tables) -> int:
    """Return the most that a leaf counts that was not kept, records."""
    finest = tables.folder.manifest.levels[-1]
    return finest.threshold - 1 + noise_of(finest).quantile(_log_tail(tables))


def _of_leaves(tables: Tables, boxes: Boxes, level: int, count: IntArray) -> Answers:
    """Return what is known where every leaf was measured and counts are sums of leaves."""
    finest, stated = tables.folder.manifest.levels[-1], np.ones(len(boxes), dtype=bool)
    has_noisy = tables.folder.manifest.noisy_counts
    is_cell = tables.folder.reached(level) == boxes.levels
    if has_noisy:
        leaves = possible_cells(tables, finest.level, boxes).astype(np.int64)
    else:
        leaves = np.full(len(boxes), 1 if is_cell and level == finest.level else finest.cells)
    z = sum_margins(noise_of(finest), leaves, _log_tail(tables))
    found = Answers(count, np.maximum(count - z, 0), np.maximum(count + z, 0), stated)
    return found if has_noisy else _with_rows(tables, boxes, level, found)


def _with_rows(tables: Tables, boxes: Boxes, level: int, others: Answers) -> Answers:
    """Return the intervals of their rows for boxes that are cells with a row, and those given for others."""
    if tables.folder.reached(level) != boxes.levels:
        return others
    rows = tables.rows(level)
    groups = Groups(tables.tree, rows, boxes.levels)
    which = groups.of(boxes.areas)
    there = groups.rows[which] > 0
    low, high = (
        np.where(there, groups.sums(rows.column(end))[which], of)
        for end, of in ((LOW, others.low), (HIGH, others.high))
    )
    has_ends = groups.sums(rows.table[LOW].is_not_null().to_numpy().astype(np.int64))[which] > 0
    return Answers(others.count, low, high, np.where(there, has_ends, others.stated))


def _everything(tables: Tables) -> int:
    """Return the most that any box counts without noisy counts, records: what the row of everything allows, as a cap."""
    root = tables.folder.manifest.levels[0]
    further = max((root.cap_margin or 0) - (root.half_width or 0), 0)
    return int(tables.rows(0).column(HIGH)[0]) + further


def _log_tail(tables: Tables) -> float:
    return math.log((1 - tables.folder.manifest.intervals.confidence) / 2)


def absent_high(tables: Tables, level: int, most_cells: int) -> int | None:
    """Return what the interval of no cell of a level without a row goes beyond, records; None where none is stated.

    Args:
        tables: of a folder.
        level: the tree level.
        most_cells: so many cells are asked about one by one at most where no other way is known.
    """
    manifest, folder = tables.folder.manifest, tables.folder
    if manifest.covariance:
        return folder.released.widest_margin(folder.reached(level)) if folder.has_tree else None
    if manifest.statistic or manifest.is_settled_together or manifest.own_views:
        return _most_of_all(tables, level, most_cells)
    if manifest.levels[-1].threshold:
        return _below_threshold(tables) if level == manifest.levels[-1].level else None
    if manifest.adds_up_leaves:
        finest = manifest.levels[-1]
        leaves = finest.cells if level < finest.level else 1
        if manifest.noisy_counts:
            leaves = _most_leaves(tables, level)
        return int(sum_margins(noise_of(finest), np.array([leaves]), _log_tail(tables))[0])
    return most_without_a_row(tables, level) if manifest.noisy_counts else max(_everything(tables), 0)


def _most_of_all(tables: Tables, level: int, most_cells: int) -> int | None:
    tree = tables.tree
    sizes = tree.sizes(level)
    if math.prod(sizes) > most_cells:
        return None
    areas = tuple(of.ravel() for of in np.indices(sizes))
    boxes, rows = Boxes(tree.axis_levels(level), areas), tables.rows(level)
    lacks_row = Groups(tree, rows, rows.levels).of(areas)
    groups = Groups(tree, rows, rows.levels)
    lacks = groups.rows[lacks_row] == 0
    found = answers(tables, boxes)
    if not found.stated[lacks].all():
        return None
    return int(found.high[lacks].max(initial=0))


def _most_leaves(tables: Tables, level: int) -> int:
    tree = tables.tree
    finest = tree.axis_levels(tree.depth)
    return math.prod(
        axis.most_descendants(own, below)
        for axis, own, below in zip(tree.axes, tree.axis_levels(level), finest, strict=True)
    )
