"""The facts that a report shows about the released counts, collected level by level while the tables are written."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from storage.releases.parts import Part
from tasks.format.tables import Rows, SlicedRows, slices
from tasks.released.query.overview import EndsOf, Ranges, RangesOf
from tasks.released.query.summaries import (
    CHUNK,
    AreaTotals,
    Histograms,
    LargeCount,
    as_asked,
    histograms_of,
    largest,
    largest_rows,
    shown_on_maps,
    totals_at,
)
from tasks.tree.axis import BoolArray, FloatArray, IntArray, Path
from tasks.tree.order import Tree, finest_clear, flows_within, levels_of_flows, without_attributes
from tasks.uncertainty.bounds import finest_above_noise
from tasks.uncertainty.noise_rows import Shares
from tasks.words.areas import Names, Shapes

CLASSES = (1, 2, 10, 100, 1_000, 10_000, 100_000, 1_000_000)  # the least count of each; one more class lies below them
CLASS_NAMES = ("below 1", "1", "2–9", "10–99", "100–999", "1,000–9,999", "10k–99k", "100k–999k", "1M or more")
MOST_SHOWN = 40  # areas per side of a matrix
_MOST_OF_VIEW = 4  # counts that are shown of a view
_MOST_POINTS = 2_000  # of a line along an axis
_MOST_ROWS = 0.5  # of a level; if fewer stand above the noise, most counts are small beside it


@dataclass(frozen=True, slots=True)
class AreasFacts:
    """How many areas of an axis have a released count at a level.

    Attributes:
        left: areas that have a row.
        possible: areas in the codebook; None where no codebook lists them.
    """

    axis: str
    left: int
    possible: int | None


@dataclass(frozen=True, slots=True)
class LevelFacts:
    """The released counts of a level.

    Attributes:
        possible_cells: how many cells are possible; None where no codebook lists them.
        areas: facts about each axis that is refined.
        sizes: rows per size class: counts below `CLASSES[0]`, then those from each of `CLASSES` to the next.
        most: the largest count, records; 0 without rows.
        half_width: half the width of the rows' intervals, on average, records; None where no intervals are stated.
    """

    possible_cells: int | None
    areas: tuple[AreasFacts, ...]
    sizes: tuple[int, ...]
    most: int
    half_width: float | None

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(self.sizes)


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """The counts of two axes against each other, for the areas with the largest sums.

    Attributes:
        level: the first level at which both axes are refined; with a single axis, its first level.
        axes: the names of the axis of the rows and that of the columns, or of the single axis.
        codes: per axis, the areas shown, in the order of the codebook.
        left: per axis, how many areas have a row, shown or not.
        counts: int64, shape (rows, columns), records; 0 where the cell was not released. One row for a single axis.
        is_released: bool, the same shape.
        may_be_zero: whether an interval reaches 0, bool, the same shape; False where none is stated.
    """

    level: int
    axes: tuple[str, ...]
    codes: tuple[tuple[Path, ...], ...]
    left: tuple[int, ...]
    counts: IntArray
    is_released: BoolArray
    may_be_zero: BoolArray


@dataclass(frozen=True, slots=True, eq=False)
class OrderedCounts:
    """The released counts of all areas of a level of an ordered axis, in their order.

    Attributes:
        source: the tree level, which refines no other axis, or the view, in words.
        paths: of the areas: the codes of those that contain each one, and its own.
        counts: int64, shape (areas,), records; 0 for an area without a row.
        low: the lower ends of their intervals, float64, shape (areas,), records; not a number where there is no row or interval;
            likewise `high`.
    """

    axis: str
    source: str
    paths: tuple[Path, ...]
    counts: IntArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, slots=True)
class LargestFlows:
    """The largest counts of trips by attributes, at a level that refines both ends alike; those within one area are left out.

    Attributes:
        level: the level.
        axes: those that are refined there.
        rows: the largest count first.
    """

    level: int
    axes: tuple[str, ...]
    rows: tuple[LargeCount, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """What a report shows about the released counts. All of it is public.

    Attributes:
        total: of the counts, records.
        total_ends: of its interval, records; None where none is stated.
        finest_above_noise: the finest level down to which at least half of the rows are estimated to count more than twice the
            noise, or, where counts had to reach a threshold, at which a count of the mean size is published; None for no level.
        is_noise_compared: whether that is known: whether rows are estimated, and no codes are unlisted.
        levels: levels 0 to T.
        matrix: the coarsest matrix; None where no axis is refined.
        largest_level: the level of the largest counts.
        largest_axes: the axes that are refined there.
        largest: the largest counts, the largest first; of equal counts, the first in the table comes first. Of trips between
            areas, those within one area are left out.
        series: the counts along each ordered axis that a level or a view refines alone.
        histograms: of group sizes, the regions with the most groups, level by level.
        within: of trips, the largest counts at the same level that begin and end in one area, likewise.
        within_records: how many records all trips within one area have there.
        by_attribute: of trips, the largest counts at the first level that refines an attribute down to its codes, for each attribute.
        maps: the totals of areas that maps show.
        views: by the name of each without a derived column, its axes, its largest counts and how many it has.
    """

    total: int
    total_ends: tuple[int, int] | None
    finest_above_noise: int | None
    is_noise_compared: bool
    levels: tuple[LevelFacts, ...]
    matrix: Matrix | None
    largest_level: int
    largest_axes: tuple[str, ...]
    largest: tuple[LargeCount, ...]
    series: tuple[OrderedCounts, ...]
    histograms: tuple[Histograms, ...]
    within: tuple[LargeCount, ...]
    within_records: int
    by_attribute: tuple[LargestFlows, ...]
    maps: tuple[AreaTotals, ...]
    views: Mapping[str, tuple[tuple[str, ...], tuple[LargeCount, ...], int]]
    shapes: Shapes
    names: Names

    @property
    def is_unlisted(self) -> bool:
        """Whether the number of possible cells is unknown at some level."""
        return any(level.possible_cells is None for level in self.levels)

    def mean_count(self, level: int) -> float | None:
        """Return the total spread evenly over the possible cells of a level, records; None where their number is unknown."""
        possible = self.levels[level].possible_cells
        return None if possible is None else max(self.total, 0) / possible


class Collector:
    """Reads the levels of a release one by one, from level 0 on, and keeps a few numbers of each.

    It reads only what is public: released counts, the codes of areas that have one, and the terms of the levels.
    """

    def __init__(
        self,
        tree: Tree,
        levels: Sequence[Part],
        ordered: Collection[str] = (),
        *,
        names: Names | None = None,
        shapes: Shapes | None = None,
    ) -> None:
        """Start.

        Args:
            levels: the terms of levels 0 to T.
            shapes: of areas; without them, no totals are kept for maps.
        """
        self._tree, self._terms, self._ordered = tree, levels, frozenset(ordered)
        self._names, self._shapes = names or Names(), shapes or Shapes()
        reached = [tree.axis_levels(level) for level in range(tree.depth + 1)]
        flows = levels_of_flows(tree.ends, [axis.level_names for axis in tree.axes], reached)
        others = [number for number in range(len(tree.axes)) if number not in (tree.ends or ())]
        self._flows = without_attributes(flows, tree.ends, reached)
        firsts = (
            next((of for of in flows if reached[of][number] == tree.axes[number].depth), None) for number in others
        )
        self._by_attribute: dict[int, LargestFlows | None] = {of: None for of in firsts if of is not None}
        refined = [sum(own > 0 for own in levels_reached) for levels_reached in reached]
        self._matrix_level = refined.index(min(2, max(refined)))  # that refines two axes, or at least one
        self._total = 0
        self._total_ends: tuple[int, int] | None = None
        self._levels: list[LevelFacts] = []
        self._has_shares = bool(levels[-1].threshold)
        self._finest_above: int | None = None
        self._matrix: Matrix | None = None
        self._largest: tuple[LargeCount, ...] = ()
        self._within: tuple[LargeCount, ...] = ()
        self._within_records = 0
        self._series: dict[int, tuple[int, OrderedCounts]] = {}  # by axis, with its axis level
        self._histograms: list[Histograms] = []
        self._totals: list[AreaTotals] = []
        self._views: dict[str, tuple[tuple[str, ...], tuple[LargeCount, ...], int]] = {}
        self._ranges: dict[tuple[int, int], Ranges] = {}  # of views of one axis, by its number and level

    @property
    def _largest_level(self) -> int:
        """The finest level if there is a threshold, else the finest level above the noise, else that of the matrix.

        Of trips, the finest one so far that refines both ends alike, or else the first one that does.
        """
        if self._flows:
            reach = self._tree.depth if self._terms[-1].threshold else self._finest_above or 0
            return finest_clear(self._flows, reach)
        if self._terms[-1].threshold:
            return self._tree.depth
        return self._matrix_level if self._finest_above is None else self._finest_above

    def take(self, rows: SlicedRows, shares: Shares | None) -> None:
        """Read the next level; its rows are in the order of their areas.

        Args:
            shares: how much of the rows stands above the noise; None where there are none, or counts had to reach a threshold.
        """
        level = len(self._levels)
        self._has_shares = self._has_shares or shares is not None
        if level == 0:
            self._take_total(rows[:])
        elif shares and shares.rows_above >= _MOST_ROWS and (self._finest_above or 0) == level - 1:
            self._finest_above = level
        self._levels.append(self._look_at(level, rows))
        if level == 0:
            return
        if level == self._matrix_level:
            self._matrix = _matrix(self._tree, level, rows)
        self._take_series(self._tree.axis_levels(level), f"level {level}", rows)
        if self._tree.number_of("size") is not None and (histograms := histograms_of(self._tree, level, rows[:])):
            self._histograms.append(histograms)
        if level == self._largest_level:  # until a finer level turns out to be above the noise
            self._largest, self._within, self._within_records = self._largest_of(level, rows)
        if level in self._by_attribute:
            axes = zip(self._tree.axes, self._tree.axis_levels(level), strict=True)
            of_level, *_ = self._largest_of(level, rows)
            self._by_attribute[level] = LargestFlows(level, tuple(axis.name for axis, own in axes if own), of_level)
        if self._shapes:
            self._totals += totals_at(self._tree, self._terms, level, rows)

    def _take_total(self, rows: Rows) -> None:
        """Read level 0; where counts had to reach a threshold, find the finest level at which a count of the mean size does."""
        self._total = int(rows.counts.sum())
        if rows.bounds:
            self._total_ends = int(rows.bounds[0][0]), int(rows.bounds[1][0])
        if threshold := self._terms[-1].threshold:
            sigmas, possible = [terms.sigma for terms in self._terms], [terms.possible_cells for terms in self._terms]
            self._finest_above = finest_above_noise(max(self._total, 0), sigmas, possible, threshold)

    def _largest_of(self, level: int, rows: SlicedRows) -> tuple[tuple[LargeCount, ...], tuple[LargeCount, ...], int]:
        """Return the largest counts of a level; of trips, those within one area by themselves, and how many records all of these have."""
        reached = self._tree.axis_levels(level)
        if self._tree.ends is None or not all(reached[end] for end in self._tree.ends):
            return largest(self._tree, reached, list(map(largest_rows, slices(rows, CHUNK)))), (), 0
        within = flows_within(self._tree, level)
        across, inside, records = list[Rows](), list[Rows](), 0
        for part in slices(rows, CHUNK):
            is_within = within(part.areas)
            across.append(largest_rows(part[np.flatnonzero(~is_within)]))
            inside.append(largest_rows(of_one_area := part[np.flatnonzero(is_within)]))
            records += int(of_one_area.counts.sum())
        return largest(self._tree, reached, across), largest(self._tree, reached, inside), records

    def take_view(self, name: str, levels: Sequence[int], rows: Rows) -> None:
        """Read a view, and keep its largest counts; a line is drawn of one that refines an ordered axis alone, to few enough areas, and a map of one with shapes.

        Args:
            levels: per axis, the axis level of its cells.
            rows: all its cells, with their intervals; the areas of axes that are summed over are 0.
        """
        self._take_series(levels, f"view {name}", rows)
        named = tuple(axis.name for axis, own in zip(self._tree.axes, levels, strict=True) if own)
        self._views[name] = (
            named,
            largest(self._tree, tuple(levels), [rows])[:_MOST_OF_VIEW] if named else (),
            len(rows),
        )
        refined = [(number, level) for number, level in enumerate(levels) if level]
        if len(refined) == 1 and rows.bounds:
            number, level = refined[0]
            axis = self._tree.axes[number]
            if (axis.name, level) in self._shapes.tables:
                of_areas = np.zeros((3, axis.areas(level)), dtype=np.int64)
                of_areas[:, rows.areas[number]] = rows.counts, *rows.bounds[:2]
                self._ranges[number, level] = of_areas[0], of_areas[1], of_areas[2]

    def _take_series(self, levels: Sequence[int], source: str, rows: SlicedRows) -> None:
        """Keep the counts along an ordered axis that is refined alone, to few enough areas for a line, at its finest level."""
        refined = [(number, level) for number, level in enumerate(levels) if level]
        if len(refined) != 1:
            return
        number, level = refined[0]
        axis = self._tree.axes[number]
        is_finest = level > self._series.get(number, (0,))[0]
        if not (is_finest and axis.name in self._ordered and axis.areas(level) <= _MOST_POINTS):
            return
        whole = rows[:]
        counts, ends = np.zeros(axis.areas(level), dtype=np.int64), np.full((2, axis.areas(level)), np.nan)
        counts[whole.areas[number]] = whole.counts
        for end, of_rows in zip(ends, whole.bounds[:2], strict=False):
            end[whole.areas[number]] = of_rows
        self._series[number] = level, OrderedCounts(axis.name, source, tuple(axis.paths(level).rows()), counts, *ends)

    def facts(self, ranges_of: RangesOf = lambda *_: None, ends_of: EndsOf = lambda *_: None) -> Facts:
        """Return the facts, after the last level.

        Args:
            ranges_of: the totals of areas as the folder answers questions about them, for maps. Where they are not known, those of a
                view of the same areas are taken.
            ends_of: likewise the intervals of numbers of groups. Where they are not known, those of rows are taken.
        """
        axes = [axis.name for axis in self._tree.axes]
        reached = zip(axes, self._tree.axis_levels(self._largest_level), strict=True)
        return Facts(
            total=self._total,
            total_ends=self._total_ends,
            finest_above_noise=self._finest_above,
            is_noise_compared=self._has_shares and all(of.possible_cells is not None for of in self._levels),
            levels=tuple(self._levels),
            matrix=self._matrix,
            largest_level=self._largest_level,
            largest_axes=tuple(axis for axis, own in reached if own),
            largest=self._largest,
            series=tuple(series for _, (_, series) in sorted(self._series.items())),
            histograms=tuple(as_asked(of, ends_of) for of in self._histograms),
            within=self._within,
            within_records=self._within_records,
            by_attribute=tuple(of for of in self._by_attribute.values() if of and of.level != self._largest_level),
            maps=shown_on_maps(
                self._totals,
                self._shapes,
                axes,
                lambda axis, level: ranges_of(axis, level) or self._ranges.get((axis, level)),
            ),
            views=self._views,
            shapes=self._shapes,
            names=self._names,
        )

    def _look_at(self, level: int, rows: SlicedRows) -> LevelFacts:
        sizes = zip(self._tree.axis_levels(level), self._tree.sizes(level), strict=True)
        left = {number: np.zeros(size, dtype=bool) for number, (own, size) in enumerate(sizes) if own}
        from_class = np.zeros(len(CLASSES), dtype=np.int64)
        most, widths = list[int](), list[float]()
        for part in slices(rows, CHUNK):
            for number, is_left in left.items():
                is_left[part.areas[number]] = True
            from_class += [np.count_nonzero(part.counts >= first) for first in CLASSES]
            most.append(int(part.counts.max()))
            if part.bounds:
                widths.append(float((part.bounds[1] - part.bounds[0]).sum(dtype=float)))
        areas = list[AreasFacts]()
        for number, is_left in left.items():
            axis = self._tree.axes[number]
            areas.append(AreasFacts(axis.name, int(is_left.sum()), len(is_left) if axis.is_listed else None))
        return LevelFacts(
            self._terms[level].possible_cells,
            tuple(areas),
            tuple(more - fewer for more, fewer in pairwise([len(rows), *from_class.tolist(), 0])),
            max(most, default=0),
            sum(widths) / (2 * len(rows)) if widths else None,
        )


def _matrix(tree: Tree, level: int, rows: SlicedRows) -> Matrix:
    """Return the matrix of a level at which one or two axes are refined, so that each cell has one row."""
    reached, sizes = tree.axis_levels(level), tree.sizes(level)
    refined = [number for number, own in enumerate(reached) if own]
    sums = [np.zeros(sizes[number]) for number in refined]  # which only decide which areas are the largest
    is_left = [np.zeros(sizes[number], dtype=bool) for number in refined]
    for part in slices(rows, CHUNK):
        for number, of_axis, left in zip(refined, sums, is_left, strict=True):
            of_axis += np.bincount(part.areas[number], weights=part.counts, minlength=len(of_axis))
            left[part.areas[number]] = True
    shown, places = list[IntArray](), list[IntArray]()  # areas, and of every area its place among those, or -1
    for of_axis, left in zip(sums, map(np.flatnonzero, is_left), strict=True):
        shown.append(np.sort(left[np.argsort(-of_axis[left], kind="stable")[:MOST_SHOWN]]))
        places.append(np.full(len(of_axis), -1))
        places[-1][shown[-1]] = np.arange(len(shown[-1]))
    shape = tuple(map(len, shown))
    counts = np.zeros(shape, dtype=np.int64)
    released, may_be_zero = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    for part in slices(rows, CHUNK):
        place = [of_axis[part.areas[number]] for number, of_axis in zip(refined, places, strict=True)]
        is_shown = np.logical_and.reduce([of_axis >= 0 for of_axis in place])
        there = tuple(of_axis[is_shown] for of_axis in place)
        counts[there] = part.counts[is_shown]
        released[there] = True
        if part.bounds:
            low, high = (ends[is_shown] for ends in part.bounds[:2])
            may_be_zero[there] = (low <= 0) & (high > 0) | (part.counts[is_shown] < 0)  # what is exact has no width
    axes = [(tree.axes[number], reached[number]) for number in refined]
    return Matrix(
        level,
        tuple(axis.name for axis, _ in axes),
        tuple(tuple(axis.paths(own, areas).rows()) for (axis, own), areas in zip(axes, shown, strict=True)),
        tuple(int(left.sum()) for left in is_left),
        np.atleast_2d(counts),
        np.atleast_2d(released),
        np.atleast_2d(may_be_zero),
    )
