"""What to show of a release where there is little room: its largest counts, by the names of their areas, and the totals of areas."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from storage.tables import COUNT, ends_of
from tasks.format.published_tree import axes_by_path
from tasks.released.boxes import Boxes
from tasks.released.estimate import Answers, Estimate
from tasks.released.sources.folder import PublishedFolder
from tasks.released.sources.published import FolderSource
from tasks.sizes.places import areas_of
from tasks.tree.axis import AxisLevels, IntArray
from tasks.tree.order import are_the_same, finest_clear, levels_of_flows, without_attributes

MOST_CELLS = 5_000_000  # of a table that is added up for a map

Ends = NDArray[np.float64]  # of intervals, records; not a number where none is stated
Ranges = tuple[IntArray, IntArray, IntArray]  # per area of an axis level its count, low and high, records

# of an axis, by its number, and one of its levels; None where they are not known
RangesOf = Callable[[int, int], Ranges | None]

# of some places at some axis levels, and the first sizes, the ends of all intervals, shape (2, places, sizes), as questions about them are
# answered; None where these are not known
EndsOf = Callable[[AxisLevels, Sequence[int], int], Ends | None]


def area_totals(estimate: Estimate, axis: int, level: int) -> Answers:
    """Return what a question about each area of an axis level is answered, in the order of the areas."""
    levels, many = _levels(estimate, axis, level), estimate.folder.tree.axes[axis].areas(level)
    areas = tuple(np.arange(many) if own == axis else np.zeros(many, dtype=np.int64) for own in range(len(levels)))
    return estimate.answers(Boxes(levels, areas))


def ranges_of_areas(estimate: Estimate, axis: int, level: int) -> Ranges | None:
    """Return the totals of an axis level with their intervals, as queries of the folder are answered.

    They are None where the folder does not have the noisy counts from which the intervals of sums follow, where it states none, and
    where more cells would be added up than a page is worth.
    """
    if not estimate.folder.folder.has_tree or estimate.rows_added(_levels(estimate, axis, level)) > MOST_CELLS:
        return None
    totals = area_totals(estimate, axis, level)
    return (totals.count, totals.low, totals.high) if totals.stated.all() else None


def ends_of_groups(estimate: Estimate, levels: AxisLevels, places: Sequence[int], sizes: int) -> Ends | None:
    """Return the intervals of numbers of groups by place and size, as questions about them are answered, as `EndsOf` does.

    They are None where some have none, and where more cells would be added up than a page is worth.
    """
    if max(entry.cells for entry in estimate.source.levels) > MOST_CELLS:
        return None
    areas = areas_of(estimate.source.tree, levels, np.repeat(np.array(places, dtype=np.int64), sizes))
    groups = estimate.answers(Boxes((*levels[:-1], 1), (*areas, np.tile(np.arange(sizes), len(places)))))
    return np.array([groups.low, groups.high], dtype=np.float64).reshape(2, -1, sizes) if groups.stated.all() else None


def _levels(estimate: Estimate, axis: int, level: int) -> AxisLevels:
    return tuple(level if own == axis else 0 for own in range(len(estimate.folder.folder.axes)))


_MOST_ROWS = 0.5  # of a level, that stand above the noise


@dataclass(frozen=True, slots=True)
class LargestCounts:
    """The largest counts of a level.

    Attributes:
        axes: those that are refined at the level.
        rows: per count what its areas are called, one per axis, and the count; the largest first.
        without_within: whether trips that stay within one area are left out.
    """

    level: int
    axes: tuple[str, ...]
    rows: Sequence[tuple[Sequence[str], int]]
    without_within: bool


def largest_counts(folder: PublishedFolder, most: int) -> LargestCounts | None:
    """Return the largest counts, at most `most`, of the finest level that stands above the noise, and for trips refines both ends alike.

    It is None where no level below the total has a row.
    """
    level = level_shown(folder)
    if level is None:
        return None
    names, by_path = list(folder.axes), axes_by_path(folder.manifest)
    refined = [(number, own) for number, own in enumerate(folder.reached(level)) if own]
    paths = [folder.columns(names[number], own) for number, own in refined]
    rows, within = folder.scan(folder.manifest.levels[level]), _is_within(folder, level)
    if within is not None:
        rows = rows.filter(~within)
    columns = [column for path in paths for column in path]
    (largest,) = folder.collect([rows.select(*columns, COUNT).top_k(most, by=COUNT)])
    largest = largest.sort(COUNT, *columns, descending=[True, *[False] * len(columns)])
    return LargestCounts(
        level,
        tuple(names[number] for number, _ in refined),
        [
            (
                [
                    folder.names.called(
                        names[of[0]], [row[c] for c in path], codes=len(path) if names[of[0]] in by_path else 1
                    )
                    for of, path in zip(refined, paths, strict=True)
                ],
                row[COUNT],
            )
            for row in largest.iter_rows(named=True)
        ],
        without_within=within is not None,
    )


def level_shown(folder: PublishedFolder, most: int | None = None) -> int | None:
    """Return the level to show first: the finest of those that fit down to which most rows stand above the noise, or the first that fits.

    Of trips, those fit that refine both ends alike, and no attribute, where there are any. None finer than `most` fits. It is None where there is none
    below the total.
    """
    entries = folder.manifest.levels[: None if most is None else most + 1]
    ends, reached = _ends(folder), [folder.reached(entry.level) for entry in entries]
    flows = levels_of_flows(ends, list(folder.axes.values()), reached)
    fit = without_attributes(flows, ends, reached) or [entry.level for entry in entries[1:]]
    if not fit:
        return None
    if folder.manifest.levels[-1].threshold:
        return fit[-1]
    clear = 0
    for entry in entries[1:]:
        if entry.above_noise is None or entry.above_noise.rows < _MOST_ROWS:
            break
        clear = entry.level
    return finest_clear(fit, clear)


def _ends(folder: PublishedFolder) -> tuple[int, int] | None:
    return ends_of(list(folder.manifest.roles.values()))


def _is_within(folder: PublishedFolder, level: int) -> pl.Expr | None:
    """Return which rows are of trips within one area; None where two ends have no common levels."""
    ends, reached = _ends(folder), folder.reached(level)
    common = min(reached[end] for end in ends) if ends else 0
    if not ends or not common:
        return None
    (one, of_one), (other, of_other) = (list(folder.axes.items())[end] for end in ends)
    if of_one[:common] != of_other[:common]:
        axes = FolderSource(folder).tree.axes
        if not are_the_same(axes[ends[0]], axes[ends[1]], common):
            return None
    pairs = zip(folder.columns(one, common), folder.columns(other, common), strict=True)
    return pl.all_horizontal(pl.col(begin) == pl.col(end) for begin, end in pairs)
