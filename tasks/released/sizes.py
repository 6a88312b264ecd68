"""What a release of group sizes says: whole numbers of groups, with intervals by what was measured of each size."""

import math

import numpy as np

from storage.counts.columns import COUNT, INTERVAL, SIMULTANEOUS
from tasks.format.manifest import Signal
from tasks.format.rows import Rows
from tasks.groups.sources import own_source, regions_inside, source_of
from tasks.groups.task import by_region
from tasks.released.boxes import Boxes, each
from tasks.released.estimate import Answers, Estimate, without_intervals
from tasks.released.known import Known
from tasks.released.measured_sizes import MeasuredSizes, ReleasedSizes
from tasks.released.sources.protocol import Source
from tasks.tree.axis import IntArray
from tasks.uncertainty.intervals import NO_CAP, intervals, rounded_outwards

_MEASURED = {
    "tails": "{} noisy numbers of groups of at least some size",
    "sizes": "{} noisy numbers of groups",
    "chain": "{} noisy running sums",
}


class SizesEstimate(Estimate):
    """What is said of numbers of groups, in regions and ranges of sizes. A level's intervals follow from the measured level that says most about its regions."""

    takes_ranges = True

    def __init__(self, source: Source) -> None:
        """Read nothing yet."""
        super().__init__(source)
        self._noises = {part.level: part.noise for part in source.levels if part.is_measured}

    def rows(self, level: int) -> Rows:
        """Return all released nodes of a level in the order of their codes."""
        source, stated = self.source, self.source.intervals
        released = ReleasedSizes(self._counts(level), self._measured(level), stated.confidence, is_total=not level)
        tails = [released.log_tail]
        if stated.simultaneous:
            tails.append(released.simultaneous_log_tail(len(source.levels)))
        step = source.parts[level].step
        bounds = [end for tail in tails for end in rounded_outwards(*released.intervals(tail), step)]
        signal, above = released.signals(stated.signal_rate)
        marked, widths = int(signal.sum()), [released.widest(tail) for tail in tails]
        self._known[level] = Known(
            promise="rows",
            half_width=widths[0],
            simultaneous_half_width=widths[1] if stated.simultaneous else None,
            signal=Signal(rows=marked, above=above) if marked else None,
        )
        region, size = released.places
        return Rows((region, size), released.counts[region, size], tuple(bounds), signal)

    def _counts(self, level: int) -> IntArray:
        """Return the released numbers of groups of a level, shape (regions, sizes); of level 0 there is one of each."""
        nodes = self.source.nodes(level)
        counts = np.zeros(self.source.tree.sizes(level), dtype=np.int64)
        counts[nodes.areas] = nodes.counts
        return counts

    def _measured(self, level: int) -> MeasuredSizes:
        """Return what was measured of all regions of a level, or of everything."""
        tree = self.source.tree
        groups = self._counts(max(level, 1)).sum(axis=1) if self.source.has_groups else None
        found = self._sums(level, source_of(tree, level, self.source.statistic, self._noises), groups)
        return found if level else found.of_everything()

    def _sums(
        self, level: int, source: int, groups: IntArray | None = None, region: int | None = None
    ) -> MeasuredSizes:
        """Return what a source says of the regions of a level, or of one of them, whose noisy counts alone are read then."""
        tree, begins = self.source.tree, regions_inside(self.source.tree, level, source)
        if region is None:
            noisy = by_region(tree, source, self.source.noisy(source))
        else:
            begins = begins[region : region + 2]
            inside = range(int(begins[0]), int(begins[1]))
            cells = self.folder.noisy(source, [inside, range(tree.sizes(source)[1])])
            noisy = cells.reshape(-1, len(inside)).T
        sums = np.add.reduceat(noisy, begins[:-1] - begins[0], axis=0)
        return MeasuredSizes(self.source.statistic, sums, self._noises[source], groups, np.diff(begins))

    def answers(self, boxes: Boxes, *, confidence: float | None = None, simultaneous: bool = False) -> Answers:
        """Return what is said of some sizes, or all, in regions."""
        source = self.folder
        level = source.level_of(boxes)
        met = source.rows_met(source.manifest.levels[level], boxes)
        count = met.sums(COUNT)
        if not source.manifest.noisy_counts:
            kind = SIMULTANEOUS if simultaneous else INTERVAL
            why = "sum of rows; no interval follows from them, since the noisy counts are not published"
            if kind[0] not in met.table.columns.columns or (level and not boxes.levels[1]):
                return without_intervals(count, why)
            low, high = (met.sums(end) for end in kind)
            of_row, stated = f"the cell of level {level}, from its row in the table", met.rows == 1
            if boxes.stops is not None:
                stated &= boxes.stops[1] == boxes.areas[1] + 1
            return Answers(count, low, high, stated, lambda box: of_row if stated[box] else why)
        measured, places, number = self._measured_in(level, boxes, simultaneous=simultaneous)
        noisy, terms = self._noisy_in(measured, places, boxes)
        alpha, noise = 1 - self._confidence(confidence), measured.noise
        if simultaneous:
            draws = sum(part.cells for part in source.levels if not part.is_summed)
            margin = terms * noise.quantile(math.log(alpha / (2 * draws)))
        else:
            margin = each(terms, lambda many: noise.quantile(math.log(alpha / 2), many) if many else 0)
        cap = NO_CAP if measured.groups is None else measured.groups[places]
        low, high = intervals(noisy, margin, cap, count)
        return Answers(
            count, low, high, np.ones(len(boxes), dtype=bool), lambda box: self._how(number, int(terms[box]))
        )

    def _measured_in(self, level: int, boxes: Boxes, *, simultaneous: bool) -> tuple[MeasuredSizes, IntArray, int]:
        """Return what was measured of regions, the place of the region of each box in it, and the level at which that was.

        Intervals that hold at once hold for every draw, and many draws that reach so far reach further than one: they take the
        regions themselves. Sums that run through the regions need all of them.
        """
        source, statistic, regions = self.folder, self.source.statistic, boxes.areas[0]
        own = own_source(level, self._noises)
        number = own if simultaneous else source_of(source.tree, level, statistic, self._noises)
        is_one = boxes.within is not None and statistic != "chain"
        places, groups = np.zeros_like(regions) if is_one else regions, None
        if source.has_groups:
            everywhere = boxes.with_all_of(1)
            of_boxes = source.rows_met(source.manifest.levels[level], everywhere).sums(COUNT)
            groups = np.zeros(1 if is_one else source.tree.sizes(max(level, 1))[0], dtype=np.int64)
            groups[places] = of_boxes
        return self._sums(level, number, groups, int(regions[0]) if is_one else None), places, number

    def _noisy_in(self, measured: MeasuredSizes, places: IntArray, boxes: Boxes) -> tuple[IntArray, IntArray]:
        """Return the noisy numbers of groups of the sizes of boxes, and how many draws each bears, int64, shape (boxes,) each."""
        first, stop = boxes.range_of(1) if boxes.levels[1] else (np.zeros_like(places), places * 0 + measured.sizes)
        noisy, terms = (np.zeros(len(boxes), dtype=np.int64) for _ in range(2))
        for begin, end in {*zip(first.tolist(), stop.tolist(), strict=True)}:
            of_sizes, found = (first == begin) & (stop == end), measured.between(begin, end)
            noisy[of_sizes], terms[of_sizes] = found.counts[places[of_sizes]], found.terms[places[of_sizes]]
        return noisy, terms

    def _how(self, source: int, terms: int) -> str:
        """Return from what an interval follows, in words."""
        if not terms:
            return "all groups of the public list"
        of = _MEASURED[self.source.statistic].format("one of the" if terms == 1 else f"{terms:,}")
        return f"sum of rows; the interval follows from {of}, measured at level {source}"
