"""The intervals of many boxes of one kind, where views were measured: those of `tasks.query.settled`.

Every level and view whose whole cells make up the boxes says something about each of them. What has the least variance is taken, box
by box.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from storage.counts.columns import COUNT, HIGH, LOW, NOISY
from tasks.format.manifest import LevelEntry, ViewEntry
from tasks.laws.law import LevelNoise
from tasks.laws.named import noise_of
from tasks.query.boxes import level_of
from tasks.tabulate.measured import each, possible_cells
from tasks.tabulate.tables import Boxes, Groups, Tables
from tasks.tree.axis import BoolArray, IntArray

Ends = tuple[IntArray, IntArray]


@dataclass(frozen=True, slots=True, eq=False)
class _Said:
    """What a level or view says of boxes, shape (boxes,) each.

    Attributes:
        says: whether it says anything.
        cells: how many of its cells make up the box.
        noisy: their sum, records; None where noisy counts are not published.
        count: what its table counts, records.
        rows: the sums of the ends of the published intervals of the cells; looked at where `noisy` is None.
        noise: of one cell.
    """

    says: BoolArray
    cells: IntArray
    noisy: IntArray | None
    count: IntArray
    rows: Ends
    noise: LevelNoise

    @property
    def variance(self) -> NDArray[np.float64]:
        """The variance of what it says, infinite where it says nothing."""
        return np.where(self.says, self.cells * self.noise.variance, np.inf)


def settled_intervals(tables: Tables, boxes: Boxes, count: IntArray) -> Ends:
    """Return low and high of boxes where everything was settled together, int64, shape (boxes,).

    Args:
        tables: of such a folder.
        boxes: of one kind.
        count: the released counts, int64, shape (boxes,).
    """
    manifest = tables.folder.manifest
    said = [
        _said(tables, part, boxes) for part in [*manifest.levels, *manifest.views] if _makes_up(tables, part, boxes)
    ]
    most = np.maximum(int(tables.rows(0).column(HIGH)[0]), count)
    variance = np.array([of.variance for of in said]).reshape(len(said), len(boxes))
    best, low, high = variance.argmin(axis=0), np.zeros_like(count), most
    for number, of in enumerate(said):
        chosen = (best == number) & of.says
        own_low, own_high = _interval(tables, of, count)
        low, high = np.where(chosen, own_low, low), np.where(chosen, own_high, high)
    return low, high


def margin_intervals(tables: Tables, boxes: Boxes) -> tuple[BoolArray, IntArray, Ends] | None:
    """Return which boxes a view of its own answers where levels are only calibrated to views, its counts of them, and low and high.

    Args:
        tables: of a folder whose levels were measured one by one.
        boxes: of one kind.
    Returns:
        None where no view of its own is made of what the boxes name.
    """
    manifest, level = tables.folder.manifest, level_of(tables.folder.steps, boxes.levels)
    said = [_said(tables, view, boxes) for view in manifest.own_views if _makes_up(tables, view, boxes)]
    if level <= 1 or not said:
        return None
    variance = np.array([of.variance for of in said])
    best, least = variance.argmin(axis=0), variance.min(axis=0)
    answered = np.isfinite(least)
    if manifest.noisy_counts or tables.folder.reached(level) == boxes.levels:
        cells = possible_cells(tables, level, boxes).astype(np.float64)
        answered &= cells * noise_of(manifest.levels[level]).variance > least
    found = [np.zeros(len(boxes), dtype=np.int64) for _ in range(3)]
    for number, of in enumerate(said):
        for into, values in zip(found, (of.count, *_interval(tables, of, of.count)), strict=True):
            into[best == number] = values[best == number]
    return answered, found[0], (found[1], found[2])


def _makes_up(tables: Tables, part: LevelEntry, boxes: Boxes) -> bool:
    return all(asked <= own for asked, own in zip(boxes.levels, tables.levels_of(part.axes), strict=True))


def _said(tables: Tables, part: LevelEntry, boxes: Boxes) -> _Said:
    """Return what a level or view says of boxes."""
    if isinstance(part, ViewEntry):
        return _said_by_view(tables, part, boxes)
    rows, has_noisy = tables.rows(part.level), tables.folder.manifest.noisy_counts
    groups = Groups(tables.tree, rows, boxes.levels)
    which = groups.of(boxes.areas)
    count, *ends = (groups.sums(rows.column(name))[which] for name in (COUNT, LOW, HIGH))
    there, is_cell = groups.rows[which], rows.levels == boxes.levels
    if not has_noisy:
        says = (there == 1) & is_cell & (part.source == part.level) & (not part.summed)
        return _Said(says, there, None, count, (ends[0], ends[1]), noise_of(part))
    if part.summed:
        nothing = np.zeros(len(boxes), dtype=np.int64)
        return _Said(nothing > 0, nothing, nothing, count, (ends[0], ends[1]), noise_of(part))
    cells = tables.noisy(part.level)
    of_cells = Groups(tables.tree, cells, boxes.levels)
    noisy = of_cells.sums(cells.column(NOISY))[of_cells.of(boxes.areas)]
    many = possible_cells(tables, part.level, boxes).astype(np.int64)
    return _Said(np.ones(len(boxes), dtype=bool), many, noisy, count, (ends[0], ends[1]), noise_of(part))


def _said_by_view(tables: Tables, view: ViewEntry, boxes: Boxes) -> _Said:
    """Return what a view says of boxes; it lists all its cells."""
    rows = tables.view(view)
    groups = Groups(tables.tree, rows, boxes.levels)
    which = groups.of(boxes.areas)
    count, *ends = (groups.sums(rows.column(name))[which] for name in (COUNT, LOW, HIGH))
    noisy = None
    if tables.folder.manifest.noisy_counts and view.same_as is None and not view.summed:
        noisy = groups.sums(tables.noisy_view(view))[which]
    says = np.full(len(boxes), noisy is not None or view.source == view.level or view.summed)
    return _Said(says, groups.rows[which], noisy, count, (ends[0], ends[1]), noise_of(view))


def _interval(tables: Tables, said: _Said, count: IntArray) -> Ends:
    """Return the intervals that a measurement gives, with the released counts inside, and no further than an exact total."""
    alpha = 1 - tables.folder.manifest.intervals.confidence
    log_tail = math.log(alpha / 2)
    if said.noisy is None:
        one = said.noise.quantile(log_tail)
        further = each(said.cells, lambda k: k * (said.noise.quantile(math.log(alpha / 2 / k)) - one) if k else 0)
        low, high = np.maximum(said.rows[0] - further, 0), said.rows[1] + further
    else:
        z = each(said.cells, lambda terms: said.noise.quantile(log_tail, terms))
        is_exact = not tables.folder.manifest.levels[0].sigma
        low, high = np.maximum(said.noisy - z, 0), np.maximum(said.noisy + z, 0)
        high = np.minimum(high, tables.total[0]) if is_exact else np.minimum(high, said.noisy + z)
    low, high = np.minimum(low, count), np.maximum(high, count)
    return np.where(said.cells > 0, low, 0), np.where(said.cells > 0, high, 0)
