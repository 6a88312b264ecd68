"""Rows in little room: the largest counts, how many counts there are of each size, and the totals of areas."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from storage.releases.parts import Part
from tasks.format.tables import Rows, SlicedRows, joined, slices
from tasks.released.query.overview import Ends, EndsOf, RangesOf
from tasks.sizes.places import areas_of, numbered
from tasks.tree.axis import AxisLevels, BoolArray, IntArray, Path
from tasks.tree.order import Tree
from tasks.words.areas import Shapes

MOST_LARGEST = 15  # rows
CHUNK = 250_000  # rows read at once


@dataclass(frozen=True, slots=True)
class LargeCount:
    """One of the largest counts.

    Attributes:
        codes: per refined axis, the area: its code alone if no two areas of the level share a code, otherwise its path.
        count: records.
        low: the lower end of its interval, records; None without an interval. Of the simultaneous intervals if there are any,
            because a count that is chosen by its size needs those.
        high: the upper end.
        paths: per refined axis, the whole path of the area.
    """

    codes: tuple[Path, ...]
    count: int
    low: int | None
    high: int | None
    paths: tuple[Path, ...] = ()


def largest_rows(rows: Rows) -> Rows:
    """Return the rows with the largest counts, the largest first; of equal counts, the first comes first."""
    counts = rows.counts
    if len(counts) > MOST_LARGEST:
        least = np.partition(counts, -MOST_LARGEST)[-MOST_LARGEST]
        above, equal = np.flatnonzero(counts > least), np.flatnonzero(counts == least)
        positions = np.concatenate((above, equal[: MOST_LARGEST - len(above)]))
    else:
        positions = np.arange(len(counts))
    return rows[positions[np.lexsort((positions, -counts[positions]))]]


def largest(tree: Tree, levels: AxisLevels, parts: Sequence[Rows]) -> tuple[LargeCount, ...]:
    """Return the rows of some axis levels with the largest counts, in the order of `largest_rows`, from those of its parts."""
    if not parts:
        return ()
    rows, of_axes, short = largest_rows(joined(parts)), list[list[Path]](), list[list[Path]]()
    for axis, own, areas in zip(tree.axes, levels, rows.areas, strict=True):
        if own:
            paths, codes = axis.paths(own, areas).rows(), axis.codes[own - 1]
            of_axes.append(paths)
            short.append([path[-1:] for path in paths] if codes.n_unique() == len(codes) else paths)
    low, high = (end.tolist() for end in rows.bounds[-2:]) if rows.bounds else ([None] * len(rows),) * 2
    return tuple(
        LargeCount(*of_row)
        for of_row in zip(
            zip(*short, strict=True), rows.counts.tolist(), low, high, zip(*of_axes, strict=True), strict=True
        )
    )


_STANDING_OUT = 0.5  # of the areas with a shape; where fewer stand out, a map shows a coarser level
_MOST_PLACES = 6  # of a level


@dataclass(frozen=True, slots=True, eq=False)
class AreaTotals:
    """The totals of the areas of one axis level, over everything else.

    Attributes:
        level: of the axis, from 1 on.
        tree_level: whose rows are added up.
        paths: the areas, in the order of the codebook.
        counts: int64, shape (areas,), records; 0 for an area without a row.
        noise: the standard deviation of the noise in such a sum, records, if every cell of it is measured; None where the level was not
            measured by itself, or leaves are missing from it.
        ends: low and high of the counts, int64, shape (areas,) each, records; None where these are not known.
    """

    axis: str
    level: int
    level_name: str
    tree_level: int
    paths: Sequence[Path]
    counts: IntArray
    noise: float | None
    ends: tuple[IntArray, IntArray] | None = None

    @property
    def stands_out(self) -> BoolArray:
        """Which totals have an interval that does not reach 0, or else are above twice their noise, or above 0 if that is unknown too."""
        clear: BoolArray = self.ends[0] > 0 if self.ends else self.counts > 2 * (self.noise or 0.0)
        return clear


def totals_at(tree: Tree, terms: Sequence[Part], level: int, rows: SlicedRows) -> Iterator[AreaTotals]:
    """Yield the totals of the areas of each axis that a tree level refines and no tree level above it refines as far."""
    reached, above = tree.axis_levels(level), tree.axis_levels(level - 1)
    sizes = tree.sizes(level)
    for number, axis in enumerate(tree.axes):
        own = reached[number]
        if own == above[number] or not axis.is_listed:
            continue
        counts = np.zeros(sizes[number], dtype=np.int64)
        for part in slices(rows, CHUNK):
            np.add.at(counts, part.areas[number], part.counts)
        cells = math.prod(size for other, size in enumerate(sizes) if other != number)
        name, paths = axis.level_names[own - 1], axis.paths(own).rows()
        is_measured = not (terms[level].is_summed or terms[-1].threshold)
        noise = terms[level].sigma * math.sqrt(cells) if is_measured else None
        yield AreaTotals(axis.name, own, name, level, paths, counts, noise)


def shown_on_maps(
    every: Sequence[AreaTotals], shapes: Shapes, axes: Sequence[str], ranges_of: RangesOf
) -> tuple[AreaTotals, ...]:
    """Return, of each of the axes that has shapes, the finest level at which half of the areas or more stand out, or its coarsest."""
    shown: dict[str, AreaTotals] = {}
    for totals in every:
        if (totals.axis, totals.level) not in shapes.tables:
            continue
        if ranges := ranges_of(axes.index(totals.axis), totals.level):
            totals = replace(totals, counts=ranges[0], ends=ranges[1:])
        shaped = np.isin(_joined(totals.paths), _joined(shapes.paths(totals.axis, totals.level)))
        if totals.axis not in shown or totals.stands_out[shaped].mean() >= _STANDING_OUT:
            shown[totals.axis] = totals
    return tuple(sorted(shown.values(), key=lambda totals: axes.index(totals.axis)))


def _joined(paths: Sequence[Path]) -> list[str]:
    return ["\0".join(path) for path in paths]


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """The released numbers of groups of one place by size.

    Attributes:
        place: its number at the axis levels of its level.
        areas: the path of its region, and of the value of each attribute that the level refines, each with the name of the axis; empty
            for everything.
        counts: int64, shape (sizes,), groups; 0 where there is no row.
        low: the lower ends of their intervals, float64, shape (sizes,); likewise `high`.
        high: the upper ends.
    """

    place: int
    areas: tuple[tuple[str, Path], ...]
    counts: IntArray
    low: Ends
    high: Ends


@dataclass(frozen=True, slots=True, eq=False)
class Histograms:
    """The places of a level with the most groups.

    Attributes:
        axis_levels: those of the level.
        sizes: what the sizes are called, up to the last one that any of these places has.
        places: those that are shown, those with the most groups first.
        there: how many places have groups.
    """

    level: int
    axis_levels: AxisLevels
    sizes: tuple[str, ...]
    places: tuple[Histogram, ...]
    there: int


def histograms_of(tree: Tree, level: int, rows: Rows) -> Histograms | None:
    """Return the numbers of groups by size of the places of a level with the most groups, with the intervals of their rows; None without rows."""
    if not len(rows):
        return None
    levels, size = tree.axis_levels(level), rows.areas[-1].astype(np.int64)
    place = numbered(tree, levels, rows.areas)
    per_place = np.bincount(place, weights=rows.counts)
    shown = np.argsort(-per_place, kind="stable")[:_MOST_PLACES]
    shown = shown[per_place[shown] > 0]
    sizes = int(size[np.isin(place, shown)].max()) + 1
    paths = [
        [(axis.name, path) for path in axis.paths(own, of).rows()]
        for axis, own, of in zip(tree.axes, levels, areas_of(tree, levels, shown), strict=False)
        if own
    ]
    histograms = list[Histogram]()
    for number, areas in zip(shown.tolist(), zip(*paths, strict=True) if paths else [()], strict=True):
        of_place = place == number
        counts, ends = np.zeros(sizes, dtype=np.int64), np.full((2, sizes), np.nan)
        counts[size[of_place]] = rows.counts[of_place]
        for end, of_rows in zip(ends, rows.bounds[:2], strict=False):
            end[size[of_place]] = of_rows[of_place]
        histograms.append(Histogram(number, areas, counts, *ends))
    every = tree.axes[-1].codes[-1].to_list()
    codes = (*every[:-1], f"{every[-1]} or more")[:sizes]
    return Histograms(level, levels, codes, tuple(histograms), len(per_place[per_place > 0]))


def as_asked(histograms: Histograms, ends_of: EndsOf) -> Histograms:
    """Return histograms with the intervals of questions about all their numbers, also those without a row, where these are known."""
    shown = histograms.places
    ends = ends_of(histograms.axis_levels, [of.place for of in shown], len(histograms.sizes))
    if ends is None:
        return histograms
    places = tuple(replace(of, low=low, high=high) for of, low, high in zip(shown, *ends, strict=True))
    return replace(histograms, places=places)
