"""Answers about group sizes: a number of groups and its interval, by what was measured of its sizes, from the folder alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from storage.counts.columns import COUNT, INTERVAL, NOISY
from storage.counts.columns import SIMULTANEOUS as AT_ONCE
from tasks.format.manifest import LevelEntry
from tasks.groups.released import MeasuredSizes, SizesNoisy
from tasks.groups.sources import own_source, regions_inside, source_of
from tasks.laws.named import noise_of
from tasks.query.areas import Area
from tasks.query.boxes import level_of
from tasks.query.folder import PublishedFolder
from tasks.query.ranges import AreaRange
from tasks.tree.axis import IntArray
from tasks.uncertainty.intervals import NO_CAP, intervals

_MEASURED = {
    "tails": "{} noisy numbers of groups of at least some size",
    "sizes": "{} noisy numbers of groups",
    "chain": "{} noisy running sums",
}


@dataclass(frozen=True, slots=True)
class SizesAnswer:
    """A number of groups; its interval, None where none can be stated; and how they were put together.

    Attributes:
        count: as released.
        level: the coarsest tree level whose whole cells make up the question.
        low: the lower end of the interval; likewise `high`.
        high: the upper end.
        how: how the count and the interval were put together, in words.
    """

    count: int
    level: int
    low: int | None
    high: int | None
    how: str


def sizes_answer(folder: PublishedFolder, asked: Sequence[Area | AreaRange], *, simultaneous: bool) -> SizesAnswer:
    """Return what a folder says about the groups of some sizes in a region.

    Args:
        folder: the published folder, of group sizes.
        asked: a region, and a size or a range of sizes.
        simultaneous: whether the interval must hold together with those of all other questions.
    Raises:
        StoreError: a file is missing, or differs from what was published.
    """
    region, size = asked
    if isinstance(region, AreaRange):  # find_areas refuses ranges of an axis without order
        raise TypeError("regions have no order.")
    level = level_of(folder.steps, [of.level for of in asked])
    rows = _rows(folder, level, region, size)
    count = int(rows[COUNT].sum())
    if not folder.manifest.noisy_counts:
        return _of_rows(
            level, rows, count, is_cell=isinstance(size, Area) and size.level > 0, simultaneous=simultaneous
        )
    first, stop = _places(folder, size)
    measured, place, source = _measured(folder, level, region, simultaneous=simultaneous)
    found = measured.between(first, stop)
    noisy, terms = int(found.counts[place]), int(found.terms[place])
    low, high = intervals(
        np.array([noisy]),
        _margin(folder, source, found, place, simultaneous=simultaneous),
        _cap(measured, place),
        np.array([count]),
    )
    how = _how(folder, source, terms)
    return SizesAnswer(count, level, int(low[0]), int(high[0]), how)


def _margin(folder: PublishedFolder, source: LevelEntry, found: SizesNoisy, place: int, *, simultaneous: bool) -> int:
    """Return what the noise of the answer exceeds with at most α, to either side, or what no noise of any answer exceeds, groups."""
    alpha, terms = 1 - folder.manifest.intervals.confidence, int(found.terms[place])
    if not terms:
        return 0
    if not simultaneous:
        return noise_of(source).quantile(math.log(alpha / 2), terms)
    draws = sum(entry.cells for entry in folder.manifest.levels if not entry.summed)
    return terms * noise_of(source).quantile(math.log(alpha / (2 * draws)))


def _measured(
    folder: PublishedFolder, level: int, region: Area, *, simultaneous: bool
) -> tuple[MeasuredSizes, int, LevelEntry]:
    """Return what was measured of a region, the region's place in it, and the level at which that was.

    Intervals that hold at once hold for every draw, and many draws that reach so far reach further than one: they take the regions themselves.
    """
    manifest, tree = folder.manifest, folder.tree
    noises = {entry.level: noise_of(entry) for entry in manifest.levels if not entry.summed}
    source = own_source(level, noises) if simultaneous else source_of(tree, level, manifest.statistic, noises)
    number, begins = int(region.number) if region.level else 0, regions_inside(tree, level, source)
    is_one = manifest.statistic != "chain"  # sums that run through the regions need all of them
    inside = range(int(begins[number]), int(begins[number + 1])) if is_one else range(int(begins[-1]))
    (cells,) = folder.collect([folder.noisy(source, [inside, range(tree.sizes(source)[1])])])
    found: IntArray = cells[NOISY].to_numpy().reshape(-1, len(inside)).T
    noisy, place = (found.sum(axis=0)[None, :], 0) if is_one else (found, number)
    groups = None
    if manifest.has_groups:
        of_region = int(_rows(folder, level, region, Area(0, ()))[COUNT].sum())
        groups = np.full(len(noisy), of_region)
    many = np.full(len(noisy), len(inside) if is_one else 1)
    return MeasuredSizes(manifest.statistic, noisy, noises[source], groups, many), place, manifest.levels[source]


def _cap(measured: MeasuredSizes, place: int) -> int:
    """Return how many groups there are at most: those of the public list."""
    return NO_CAP if measured.groups is None else int(measured.groups[place])


def _places(folder: PublishedFolder, size: Area | AreaRange) -> tuple[int, int]:
    """Return the place of the first size that is asked for, and that of the first one after it that is not."""
    if isinstance(size, AreaRange):
        return size.first, size.stop
    return (size.number, size.number + 1) if size.level else (0, folder.tree.sizes(folder.tree.depth)[1])


def _rows(folder: PublishedFolder, level: int, region: Area, size: Area | AreaRange) -> pl.DataFrame:
    """Return the rows of a level that a question is about."""
    axes = list(folder.axes)
    wanted = [
        pl.col(name) == code for name, code in zip(folder.columns(axes[0], region.level), region.path, strict=True)
    ]
    if size.level:
        [name] = folder.columns(axes[1], size.level)
        if isinstance(size, AreaRange):
            codes = folder.ordered[axes[1]].codes[size.level - 1][size.first : size.stop]
            wanted.append(pl.col(name).is_in(codes.implode()))
        else:
            wanted.append(pl.col(name) == size.path[-1])
    table = folder.table(level)
    (found,) = folder.collect([(table.filter(*wanted) if wanted else table).select(COUNT, *folder.manifest.bounds)])
    return found


def _of_rows(level: int, rows: pl.DataFrame, count: int, *, is_cell: bool, simultaneous: bool) -> SizesAnswer:
    """Return the answer of a folder without noisy counts: a row has its interval, and sums of rows have none."""
    kind = AT_ONCE if simultaneous else INTERVAL
    if (is_cell or level == 0) and rows.height == 1 and kind[0] in rows.columns:
        low, high = (int(rows[end][0]) for end in kind)
        return SizesAnswer(count, level, low, high, f"the cell of level {level}, from its row in the table")
    how = "sum of rows; no interval follows from them, since the noisy counts are not published"
    return SizesAnswer(count, level, None, None, how)


def _how(folder: PublishedFolder, source: LevelEntry, terms: int) -> str:
    """Return from what an interval follows, in words."""
    if not terms:
        return "all groups of the public list"
    of = _MEASURED[folder.manifest.statistic].format("one of the" if terms == 1 else f"{terms:,}")
    return f"sum of rows; the interval follows from {of}, measured at level {source.level}"
