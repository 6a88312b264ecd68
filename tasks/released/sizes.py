"""The estimate of group sizes: numbers of groups whose intervals follow from two noisy counts each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations_with_replacement

import numpy as np

from storage.tables import COUNT, INTERVAL, SIMULTANEOUS
from tasks.format.entries import Signal
from tasks.format.tables import Rows
from tasks.laws.law import LevelNoise, quantile_of_sum
from tasks.released.boxes import Boxes, areas_at, each, lifted
from tasks.released.estimate import NO_CELL, NO_NOISY, Answers, Drawn, Estimate, Known, Measured, without_intervals
from tasks.released.sources.protocol import Source
from tasks.sizes.intervals import log_tail_of_sizes, own_source, signals_of_sizes, source_of, source_of_view
from tasks.sizes.places import areas_of, by_place, in_tree_order, numbered, places_of
from tasks.tree.axis import AxisLevels, BoolArray, IntArray
from tasks.tree.views import Partition, View
from tasks.uncertainty.intervals import NO_CAP, intervals, rounded_outwards


@dataclass(frozen=True, slots=True)
class SizesNoisy:
    """Noisy numbers of groups of some sizes, by place.

    Attributes:
        counts: int64, shape (places,), groups.
        terms: how many draws each bears, int64, shape (places,); 0 where it is exact.
    """

    counts: IntArray
    terms: IntArray


@dataclass(frozen=True)
class MeasuredSizes:
    """What was measured of the places of a level, or of coarser ones: places are regions, or regions with values of attributes.

    Attributes:
        statistic: what was measured of each place and size: `tails`, the groups of at least this size; `sizes`, those of this size;
            `chain`, the groups of a larger size, or of this size in this place or a later one.
        noisy: int64, shape (places, sizes), groups.
        noise: of one of these.
        groups: how many groups there are in each place, empty ones too, int64, shape (places,), where a public list says so: then the
            first column, of size 0, is not looked at. None where the number of groups is protected.
        inside: how many measured places are added up in each, int64, shape (places,); None where all were measured themselves.
    """

    statistic: str
    noisy: IntArray
    noise: LevelNoise
    groups: IntArray | None = None
    inside: IntArray | None = None

    @property
    def sizes(self) -> int:
        """How many sizes there are, with size 0 where a public list has the empty groups."""
        return int(self.noisy.shape[1])

    @property
    def every_other(self) -> int:
        """How many cells there are at most of which no two share a draw, if every other size is left out."""
        return len(self.noisy) * -(-self.sizes // 2)

    def at_least(self, size: int) -> SizesNoisy:
        """Return the noisy number of groups of at least a size, given by its place among the sizes; nobody has more than all sizes."""
        return self.between(size, self.sizes)

    def between(self, first: int, stop: int) -> SizesNoisy:
        """Return the noisy number of groups of sizes from one place among the sizes to another, which is not included."""
        if first >= self.sizes:
            nothing = np.zeros(len(self.noisy), dtype=np.int64)
            return SizesNoisy(nothing, nothing)
        if self.groups is not None and first == 0:
            larger = self.at_least(stop)
            return SizesNoisy(self.groups - larger.counts, larger.terms)
        if self.statistic == "tails":
            larger = self.at_least(stop)
            return SizesNoisy(self.noisy[:, first] - larger.counts, self._draws(1) + larger.terms)
        of_each, each_bears = (self.noisy, 1) if self.statistic == "sizes" else (self.from_chain, 2)
        is_last = self.statistic == "chain" and stop >= self.sizes  # nothing comes after the last sum
        if self.statistic == "chain" and len(self.noisy) == 1:  # the sums between the first and the last one cancel out
            terms = np.full(1, 2, dtype=np.int64)
        else:
            terms = self._draws((stop - first) * each_bears)
        terms[-1] -= is_last
        return SizesNoisy(of_each[:, first:stop].sum(axis=1), terms)

    def of_set(self, places: IntArray, sizes: IntArray) -> tuple[int, int]:
        """Return the noisy number of groups of any sizes in any places, by their numbers, and how many draws it bears.

        With 1 for each size inside and 0 for others, a tail is added where a run of sizes begins and taken off where it has ended; so are the
        sums of a chain, which runs through the places of one size, and then through those of the next.
        """
        sizes = sizes[sizes < self.sizes]
        if self.groups is not None and 0 in sizes:
            others, terms = self.of_set(places, np.setdiff1d(np.arange(self.sizes), sizes))
            return int(self.groups[places].sum()) - others, terms
        skipped = 0 if self.groups is None else 1
        inside = np.zeros((len(self.noisy), self.sizes - skipped), dtype=np.int64)
        inside[np.ix_(places, sizes - skipped)] = 1
        noisy, many = self.noisy[:, skipped:], np.ones(len(self.noisy), dtype=np.int64)
        if self.statistic == "chain":
            signs = np.diff(inside.T.ravel(), prepend=0).reshape(-1, len(self.noisy)).T
        else:
            signs = inside if self.statistic == "sizes" else np.diff(inside, axis=1, prepend=0)
            many = many if self.inside is None else self.inside
        return int((noisy * signs).sum()), int(many @ np.count_nonzero(signs, axis=1))

    def _draws(self, of_one: int) -> IntArray:
        """Return how many draws a number of each place bears, given that of a place that was measured itself; int64, shape (places,)."""
        many = np.full(len(self.noisy), of_one, dtype=np.int64)
        return many if self.inside is None else many * self.inside

    @cached_property
    def counts(self) -> IntArray:
        """The noisy number of groups of each size, int64, shape (places, sizes)."""
        if self.statistic == "tails":
            tails = self.noisy if self.groups is None else np.column_stack((self.groups, self.noisy[:, 1:]))
            return -np.diff(tails, axis=1, append=0)
        of_each = self.noisy if self.statistic == "sizes" else self.from_chain
        if self.groups is None:
            return of_each
        return np.column_stack((self.groups - of_each[:, 1:].sum(axis=1), of_each[:, 1:]))

    @cached_property
    def terms(self) -> IntArray:
        """How many draws each of `counts` bears, int64, shape (places, sizes): of the first, the last, and those between, all alike."""
        first, second, last = (
            self.between(size, size + 1).terms for size in (0, min(1, self.sizes - 1), self.sizes - 1)
        )
        terms = np.repeat(second[:, None], self.sizes, axis=1)
        terms[:, -1] = last
        terms[:, 0] = first
        return terms

    @property
    def is_paired(self) -> bool:
        """Whether adjacent cells, and no others, share a draw; a single cell shares none."""
        return self.counts.size > 1 and (self.statistic == "tails" or self.groups is None)

    @cached_property
    def from_chain(self) -> IntArray:
        """The differences of the running sums, int64, shape (places, sizes): the sums run through the sizes, place by place."""
        skipped = 0 if self.groups is None else 1
        of_size = -np.diff(self.noisy[:, skipped:].T.ravel(), append=0)
        return np.pad(of_size.reshape(-1, len(self.noisy)).T, ((0, 0), (skipped, 0)))

    def margins(self, log_tail: float, terms: IntArray) -> IntArray:
        """Return what the noise of cells exceeds with at most a given probability, int64, of the shape of `terms`, groups."""
        return each(terms, lambda many: self.noise.quantile(log_tail, many))

    def of_everything(self) -> "MeasuredSizes":
        """Return what this says of everything, where it is of one place: the number of groups, as the only size."""
        total = self.at_least(0)
        noise = replace(self.noise, terms=int(total.terms[0])) if self.groups is None else replace(self.noise, law=None)
        return MeasuredSizes("tails", total.counts[:, None], noise, self.groups)


@dataclass(frozen=True)
class ReleasedSizes:
    """The released numbers of groups of one level, with what was measured of it.

    Attributes:
        counts: int64, shape (places, sizes), groups, >= 0.
        confidence: 1 − α, of intervals.
        is_total: whether it is the number of all groups, which has its row whatever it is.
    """

    counts: IntArray
    measured: MeasuredSizes
    confidence: float
    is_total: bool = False

    @cached_property
    def places(self) -> tuple[IntArray, IntArray]:
        """The places and the sizes of the rows, in the order of the table: the cells that count something."""
        place, size = np.nonzero(np.ones_like(self.counts) if self.is_total else self.counts)
        return place, size

    @property
    def _caps(self) -> int | IntArray:
        groups = self.measured.groups
        return NO_CAP if groups is None else groups[self.places[0]]

    @property
    def log_tail(self) -> float:
        """The logarithm of the probability with which a row's noise may go beyond its interval, to one side."""
        measured, alpha = self.measured, 1 - self.confidence
        of_rows = math.log(alpha / (2 * measured.counts.size))
        if measured.is_paired:
            of_rows = log_tail_of_sizes(measured.every_other, len(self.places[0]), self.confidence)
        return min(of_rows, math.log(alpha / 2))  # no narrower than for a cell that is fixed beforehand

    def simultaneous_log_tail(self, levels: int) -> float:
        """Return the logarithm of the probability for intervals that all hold at once, given how many levels there are."""
        return math.log((1 - self.confidence) / (2 * levels * self.measured.counts.size))

    def intervals(self, log_tail: float) -> tuple[IntArray, IntArray]:
        """Return low and high of the rows, which each miss to one side with at most a given probability."""
        terms, noisy = self.measured.terms[self.places], self.measured.counts[self.places]
        return intervals(noisy, self.measured.margins(log_tail, terms), self._caps, self.counts[self.places])

    def widest(self, log_tail: float) -> int:
        """Return the widest margin of any cell, groups."""
        return int(self.measured.margins(log_tail, np.unique(self.measured.terms)).max())

    def signals(self, rate: float) -> tuple[BoolArray, int | None]:
        """Return which rows stand out from the noise, and above what if that is one number, as `signals_of_sizes` does."""
        terms, noisy = self.measured.terms[self.places], self.measured.counts[self.places]
        if not self.measured.noise:
            return noisy > 0, None
        if not self.measured.is_paired:
            margin = self.measured.margins(math.log(rate / self.measured.counts.size), terms)
            return noisy > margin, int(margin[0]) if margin.size == 1 else None
        return signals_of_sizes(noisy, terms, self.measured.every_other, rate, self.measured.margins)


_MEASURED = {
    "tails": "{} noisy numbers of groups of at least some size",
    "sizes": "{} noisy numbers of groups",
    "chain": "{} noisy running sums",
}


class SizesEstimate(Estimate):
    """What is said of numbers of groups, in places and ranges of sizes. A level's intervals follow from the measured level that says most about its places."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._noises = {part.level: part.noise for part in source.levels if part.is_measured}

    def rows(self, level: int) -> Rows:
        """Return all released nodes of a level in the order of their codes."""
        source, stated = self.source, self.source.intervals
        released = ReleasedSizes(self._counts(level), self._measured(level), stated.confidence, is_total=not level)
        tails = [released.log_tail]
        if stated.simultaneous:
            tails.append(released.simultaneous_log_tail(len(source.levels)))
        step = self._step(level)
        bounds = [end for tail in tails for end in rounded_outwards(*released.intervals(tail), step)]
        signal, above = released.signals(stated.signal_rate)
        marked, widths = int(signal.sum()), [released.widest(tail) for tail in tails]
        self._known[level] = Known(
            promise="rows",
            half_width=widths[0],
            simultaneous_half_width=widths[1] if stated.simultaneous else None,
            signal=Signal(rows=marked, above=above) if marked else None,
        )
        place, size = released.places
        areas = areas_of(source.tree, source.tree.axis_levels(level), place)
        return Rows((*areas, size), released.counts[place, size], tuple(bounds), signal)

    def _counts(self, level: int) -> IntArray:
        """Return the released numbers of groups of a level, shape (places, sizes); of level 0 there is one of each."""
        nodes, tree = self.source.nodes(level), self.source.tree
        counts = np.zeros((places_of(tree, level), tree.sizes(level)[-1]), dtype=np.int64)
        counts[numbered(tree, tree.axis_levels(level), nodes.areas), nodes.areas[-1]] = nodes.counts
        return counts

    def cells(self, number: int) -> tuple[Rows, Known]:
        """Return all cells of a view, zeros too, in the order of their areas, and what is known of them."""
        counts, areas = self.source.counts(number), self.source.partition(number).cells().areas
        found, source, caps = self._in_cells(self.source.view(number))
        log_tail, noise = math.log((1 - self._confidence(None)) / 2), self._noises[source]
        margin = each(found.terms, lambda many: noise.quantile(log_tail, many))
        bounds = rounded_outwards(*intervals(found.counts, margin, caps, counts), self._step(number))
        return Rows(areas, counts, bounds), Known(promise="cells")

    def _in_cells(self, view: View) -> tuple[SizesNoisy, int, IntArray]:
        """Return the noisy numbers of groups of all cells of a view, at which level they were measured, and the most that cells count by a public list."""
        tree, statistic, has_list = self.source.tree, self.source.statistic, self.source.has_groups
        number, cells, terms = source_of_view(tree, view, statistic, self._noises, has_list=has_list)
        groups, counts, caps = None, np.zeros_like(terms), np.full_like(terms, 0 if has_list else NO_CAP)
        if has_list:
            groups = self._counts(number).sum(axis=1)[in_tree_order(tree, number)]
            place, cell = np.divmod(np.unique(np.arange(len(cells))[:, None] * len(terms) + cells), len(terms))
            np.add.at(caps, cell, groups[place])
        measured = MeasuredSizes(
            statistic, by_place(tree, number, self.source.noisy(number)), self._noises[number], groups
        )
        np.add.at(counts, cells, measured.counts)
        return SizesNoisy(counts, terms), number, caps

    def measured(self, boxes: Boxes) -> Measured | None:
        """Return what was measured of some sizes, or all, in places; None without noisy counts, or if the sums run through the places."""
        if not self.folder.manifest.noisy_counts or self.source.statistic == "chain":
            return None
        measured, places, number = self._measured_in(self.folder.level_of(boxes), boxes, simultaneous=False)
        noisy, terms = self._noisy_in(measured, places, boxes)
        return Measured(number, noisy, terms, most=None if measured.groups is None else measured.groups[places])

    def ranges(self, levels: AxisLevels, count: IntArray) -> tuple[IntArray, IntArray, IntArray] | None:
        """Return low and high of all ranges of sizes in each place, and their draws; None without noisy counts; arguments as in `Estimate.ranges`."""
        tree = self.folder.tree
        if not self.folder.manifest.noisy_counts:
            return None
        numbers = np.arange(len(count))
        boxes = Boxes(levels, (*areas_of(tree, levels, numbers), 0 * numbers))
        measured, places, _ = self._measured_in(self.folder.level_of(boxes), boxes, simultaneous=False)
        of_ranges = [
            measured.between(first, last + 1) for first, last in combinations_with_replacement(range(measured.sizes), 2)
        ]
        noisy, terms = (
            np.array(of)[:, places].T for of in ([one.counts for one in of_ranges], [one.terms for one in of_ranges])
        )
        margin = measured.margins(math.log((1 - self._confidence(None)) / 2), terms)
        cap = NO_CAP if measured.groups is None else measured.groups[places][:, None]
        return *intervals(noisy, margin, cap, count), terms

    def _measured(self, level: int) -> MeasuredSizes:
        """Return what was measured of all places of a level, or of everything."""
        tree = self.source.tree
        groups = self._counts(max(level, 1)).sum(axis=1) if self.source.has_groups else None
        source = source_of(tree, level, self.source.statistic, self._noises)
        measured = self._sums(tree.axis_levels(level), source, groups)
        return measured if level else measured.of_everything()

    def _sums(self, levels: AxisLevels, source: int, groups: IntArray | None = None) -> MeasuredSizes:
        """Return what a source says of all places at some axis levels."""
        tree, statistic, finer = self.source.tree, self.source.statistic, self.source.tree.axis_levels(source)
        in_order = in_tree_order(tree, source)
        noisy = by_place(tree, source, self.source.noisy(source))
        areas = areas_of(tree, finer, in_order)
        held = numbered(tree, levels, lifted(tree, finer, (*areas, 0 * in_order), levels))
        inside = np.bincount(held)
        if statistic == "chain" and not np.array_equal(held, np.arange(len(held))):
            # sums that run through other places too: each number of groups follows from two
            noisy, inside = MeasuredSizes(statistic, noisy, self._noises[source], groups).from_chain, 2 * inside
            statistic = "sizes"
        order = np.argsort(held, kind="stable")
        begins = np.append(0, np.cumsum(np.bincount(held))[:-1])
        sums = np.add.reduceat(noisy[order], begins, axis=0)
        return MeasuredSizes(statistic, sums, self._noises[source], groups, inside)

    def _sum_in(self, box: Boxes, source: int, groups: IntArray | None) -> MeasuredSizes:
        """Return what a source says of all places of a single box together, as one; only their noisy counts are read."""
        tree, finer = self.source.tree, self.source.tree.axis_levels(source)
        places = [
            areas_at(axis, areas, own, at)
            for axis, areas, own, at in zip(tree.axes[:-1], box.areas, box.levels, finer, strict=False)
        ]
        inside, sizes = math.prod(map(len, places)), tree.axes[-1].areas(1)
        cells = self.folder.noisy(source, [*places, np.arange(sizes)])
        noisy = cells.reshape(sizes, inside).sum(axis=1)[None]
        return MeasuredSizes(self.source.statistic, noisy, self._noises[source], groups, np.array([inside]))

    def _said_of(self, boxes: Boxes, confidence: float | None, *, simultaneous: bool) -> Answers:
        """Return what is said of some sizes, or all, in places."""
        source = self.folder
        level = len(source.levels) - 1 if boxes.codes else source.level_of(boxes)
        met = source.rows_met(source.manifest.levels[level], boxes)
        count = met.sums(COUNT)
        if not source.manifest.noisy_counts:
            kind = SIMULTANEOUS if simultaneous else INTERVAL
            others = without_intervals(count, NO_NOISY)
            is_cell = boxes.cells == 1 and boxes.levels == source.folder.reached(level)
            return self._with_rows(boxes, others, kind) if is_cell else others
        measured, places, number = self._measured_in(level, boxes, simultaneous=simultaneous)
        noisy, terms = self._noisy_in(measured, places, boxes)
        alpha, noise = 1 - self._confidence(confidence), measured.noise
        if simultaneous:
            draws = sum(part.cells for part in source.levels if not part.summed)
            margin = terms * noise.quantile(math.log(alpha / (2 * draws)))
        else:
            margin = measured.margins(math.log(alpha / 2), terms)
        cap = NO_CAP if measured.groups is None else measured.groups[places]
        low, high = intervals(noisy, margin, cap, count)
        return Answers(
            count, low, high, np.ones(len(boxes), dtype=bool), lambda box: self._how([number], int(terms[box]))
        )

    def _sum_of(self, parts: Sequence[Boxes], confidence: float | None, *, simultaneous: bool) -> Answers:
        """Return what is said of the sum of single boxes: what is in different places, or measured at different levels, is independent."""
        source, log_tail = self.folder, math.log((1 - self._confidence(confidence)) / 2)
        if not source.manifest.noisy_counts:
            return super()._sum_of(parts, confidence, simultaneous=simultaneous)
        count, noisy, cap, draws = np.zeros(1, dtype=np.int64), 0, 0, dict[int, tuple[LevelNoise, int]]()
        for box in parts:
            level = len(source.levels) - 1 if box.codes else source.level_of(box)
            count += source.rows_met(source.manifest.levels[level], box).sums(COUNT)
            if box.codes:
                of_box, terms, most, number = self._of_codes(box)
            else:
                measured, places, number = self._measured_in(level, box, simultaneous=simultaneous)
                of_box, terms = measured.of_set(places, box.areas[-1] if box.levels[-1] else np.arange(measured.sizes))
                most = NO_CAP if measured.groups is None else int(measured.groups[places].sum())
            noise = self._noises[number]
            draws[number] = noise, terms + draws.get(number, (noise, 0))[1]
            noisy, cap = noisy + of_box, cap + most
        if simultaneous:
            log_tail -= math.log(sum(part.cells for part in source.levels if not part.summed))
            margin = sum(terms * noise.quantile(log_tail) for noise, terms in draws.values())
        else:
            margin = quantile_of_sum(draws.values(), log_tail)
        low, high = intervals(np.array([noisy]), margin, min(cap, NO_CAP), count)
        how = self._how([*draws], sum(terms for _, terms in draws.values()))
        drawn = Drawn(noisy, draws, is_of_cells=False)
        return Answers(count, low, high, np.ones(1, dtype=bool), lambda _: how, drawn=drawn)

    def _of_codes(self, box: Boxes) -> tuple[int, int, int, int]:
        """Return the noisy number of groups of a single box with codes of derived columns, how many draws it bears, the most that it counts, and where it was measured."""
        columns = tuple(self.folder.folder.derived[name].with_as_one(codes) for name, codes in box.codes.items())
        view = View(-1, box.levels, dict.fromkeys(box.codes, ""), columns)
        found, number, caps = self._in_cells(view)
        cells = Partition(self.folder.tree, view).cells()
        inside = np.ones(len(cells), dtype=bool)
        for own, areas in zip(cells.areas, box.areas, strict=True):
            inside &= np.isin(own, areas)
        for of in columns:
            inside &= of.is_in(box.codes[of.name], cells.codes[of.name])
        most = sum(caps[inside].tolist())
        return int(found.counts[inside].sum()), int(found.terms[inside].sum()), min(most, NO_CAP), number

    def _measured_in(self, level: int, boxes: Boxes, *, simultaneous: bool) -> tuple[MeasuredSizes, IntArray, int]:
        """Return what was measured of places, the number of the place of each box in it, and the level at which that was.

        Intervals that hold at once hold for every draw, and many draws that reach so far reach further than one: they take the
        places themselves. Sums that run through the places need all of them. The places of a single box are one otherwise.
        """
        source, statistic, tree = self.folder, self.source.statistic, self.folder.tree
        own, levels = own_source(level, self._noises), (*boxes.levels[:-1], 0)
        number = own if simultaneous else source_of(tree, level, statistic, self._noises, levels)
        if boxes.within is not None and statistic != "chain":
            of_all = Boxes(levels, (*boxes.areas[:-1], np.zeros(1, dtype=np.int64)), (*boxes.within[:-1], ()))
            groups = self._groups_in(level, of_all) if source.has_groups else None
            return self._sum_in(boxes, number, groups), np.zeros(1, dtype=np.int64), number
        areas = boxes.areas
        if boxes.within is not None:
            areas = tuple(of.ravel() for of in np.meshgrid(*areas, indexing="ij"))
        places, groups = numbered(tree, levels, areas), None
        if source.has_groups:
            many = math.prod(axis.areas(own) for axis, own in zip(tree.axes[:-1], levels, strict=False))
            groups = np.zeros(many, dtype=np.int64)
            groups[places] = self._groups_in(level, Boxes(levels, (*areas[:-1], 0 * places)))
        return self._sums(levels, number, groups), places, number

    def _groups_in(self, level: int, boxes: Boxes) -> IntArray:
        """Return how many groups there are in boxes of all sizes, int64, shape (boxes,), as a public list has them."""
        return self.folder.rows_met(self.folder.manifest.levels[level], boxes).sums(COUNT)

    def _noisy_in(self, measured: MeasuredSizes, places: IntArray, boxes: Boxes) -> tuple[IntArray, IntArray]:
        """Return the noisy numbers of groups of the sizes of boxes, and how many draws each bears, int64, shape (boxes,) each."""
        first = boxes.areas[-1] if boxes.levels[-1] else np.zeros_like(places)
        stop = first + 1 if boxes.levels[-1] else first + measured.sizes
        noisy, terms = (np.zeros(len(boxes), dtype=np.int64) for _ in range(2))
        for begin, end in {*zip(first.tolist(), stop.tolist(), strict=True)}:
            chosen, of_sizes = (first == begin) & (stop == end), measured.between(begin, end)
            noisy[chosen], terms[chosen] = of_sizes.counts[places[chosen]], of_sizes.terms[places[chosen]]
        return noisy, terms

    def _how(self, sources: Sequence[int], terms: int) -> str:
        """Return from what an interval follows, in words."""
        if not terms:
            return "all groups of the public list" if self.source.has_groups else NO_CELL
        of = _MEASURED[self.source.statistic].format("one of the" if terms == 1 else f"{terms:,}")
        where = f"level{'s' * (len(sources) > 1)} {', '.join(map(str, sorted(sources)))}"
        return f"sum of rows; the interval follows from {of}, measured at {where}"
