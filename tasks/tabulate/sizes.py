"""The intervals of many regions and sizes, of a release of group sizes: those of `tasks.query.sizes`."""

import math

import numpy as np

from storage.counts.columns import COUNT, HIGH, LOW, NOISY
from tasks.groups.released import MeasuredSizes, SizesNoisy
from tasks.groups.sources import measured_sizes
from tasks.laws.named import noise_of
from tasks.query.boxes import level_of
from tasks.tabulate.measured import each
from tasks.tabulate.tables import Boxes, Groups, Rows, Tables
from tasks.tree.axis import BoolArray, IntArray
from tasks.uncertainty.intervals import NO_CAP, intervals


def sizes_intervals(tables: Tables, boxes: Boxes, count: IntArray) -> tuple[IntArray, IntArray, BoolArray]:
    """Return low and high of boxes, and whether they are stated, shape (boxes,) each.

    Args:
        tables: of a folder of group sizes.
        boxes: of one level of regions, each with one size or all.
        count: the released counts, int64, shape (boxes,), groups.
    """
    manifest, level = tables.folder.manifest, level_of(tables.folder.steps, boxes.levels)
    if not manifest.noisy_counts:
        return _of_rows(tables, boxes, level)
    regions, sizes = boxes.areas
    groups = None
    if manifest.has_groups:
        groups = np.zeros(tables.tree.sizes(max(level, 1))[0], dtype=np.int64)
        groups[regions] = _groups(tables, boxes, level)
    noises = {entry.level: noise_of(entry) for entry in manifest.levels if not entry.summed}
    measured = measured_sizes(
        tables.tree, level, manifest.statistic, noises, lambda source: tables.noisy(source).column(NOISY), groups
    )
    noisy, terms = (np.zeros(len(boxes), dtype=np.int64) for _ in range(2))
    for size in np.unique(sizes).tolist():
        of_size = sizes == size
        between = _between(measured, size, is_one=boxes.levels[1] > 0)
        noisy[of_size], terms[of_size] = (of[regions[of_size]] for of in (between.counts, between.terms))
    alpha = 1 - manifest.intervals.confidence
    margin = each(terms, lambda many: measured.noise.quantile(math.log(alpha / 2), many) if many else 0)
    cap = NO_CAP if measured.groups is None else measured.groups[regions]
    low, high = intervals(noisy, margin, cap, count)
    return low, high, np.ones(len(boxes), dtype=bool)


def _between(measured: MeasuredSizes, size: int, *, is_one: bool) -> SizesNoisy:
    return measured.between(size, size + 1) if is_one else measured.between(0, measured.sizes)


def _groups(tables: Tables, boxes: Boxes, level: int) -> IntArray:
    """Return how many groups the region of each box has, by the public list, int64, shape (boxes,)."""
    rows = tables.rows(level)
    groups = Groups(tables.tree, rows, (boxes.levels[0], 0))
    of_regions: IntArray = groups.sums(rows.column(COUNT))[groups.of((boxes.areas[0], np.zeros_like(boxes.areas[1])))]
    return of_regions


def _of_rows(tables: Tables, boxes: Boxes, level: int) -> tuple[IntArray, IntArray, BoolArray]:
    """Return what the rows of cells state; sums of rows state nothing."""
    rows: Rows = tables.rows(level)
    groups = Groups(tables.tree, rows, boxes.levels)
    which = groups.of(boxes.areas)
    low, high = (groups.sums(rows.column(end))[which] for end in (LOW, HIGH))
    return low, high, (groups.rows[which] == 1) & (boxes.levels[1] > 0 or level == 0)
