"""What an estimate says: the counts of all parts given what was measured, and what is known of each part."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from storage.tables import HIGH, INTERVAL, LOW
from tasks.format.entries import AboveNoise, Deviations, LevelIntervals, NoiseRows, Promise, Signal
from tasks.format.tables import Rows, SlicedRows
from tasks.laws.law import LevelNoise
from tasks.released.boxes import Boxes, Met, coarsest_boxes, level_of
from tasks.released.explanations import describe_pieces, describe_row, explain_missing_simultaneous
from tasks.released.sources.protocol import Source
from tasks.released.sources.published import FolderSource
from tasks.tree.axis import AxisLevels, BoolArray, FloatArray, IntArray
from tasks.uncertainty.intervals import rounding_step
from tasks.uncertainty.noise_rows import Shares

NO_CELL = "no cell: by the public tables, these codes do not occur together"
NO_NOISY = "sum of rows; no interval follows from them, since the noisy counts are not published"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known of a level or view; None where it is not stated.

    Attributes:
        promise: what `low` and `high` promise.
        half_width: z of the interval around a row's noisy count, records; None where rows have different ones.
        cap_margin: z', the margin above the noisy count of a cell that limits the cells inside it, in questions that are fixed
            beforehand, records.
        simultaneous_half_width: z of the simultaneous intervals, records.
        bias: released minus noisy counts, the mean over the measured cells, records.
        bound: what the error of no count at the level exceeds, with the confidence of `tasks.uncertainty.bounds`, records.
        signal: the rows that stand out from the noise; None where no row does.
        shares: how much of its rows is noise, and how much stands above it.
        deviations: the least and the most standard deviation of a released count, records.
    """

    promise: Promise | None
    half_width: int | None = None
    cap_margin: int | None = None
    simultaneous_half_width: int | None = None
    bias: float | None = None
    bound: int | None = None
    signal: Signal | None = None
    shares: Shares | None = None
    deviations: tuple[float, float] | None = None

    def stated(self, confidence: float) -> Mapping[str, Any]:
        """Return what the manifest states of this, by the names of an entry of a level; of a view it states some of it."""
        shares = self.shares
        return {
            "intervals": LevelIntervals(confidence=confidence, promise=self.promise) if self.promise else None,
            "half_width": self.half_width,
            "cap_margin": self.cap_margin,
            "simultaneous_half_width": self.simultaneous_half_width,
            "bias": self.bias,
            "bound_after": self.bound,
            "signal": self.signal,
            "noise_rows": NoiseRows(estimate=shares.noise, at_most=shares.noise_at_most) if shares else None,
            "above_noise": AboveNoise(rows=shares.rows_above, records=shares.records_above) if shares else None,
            "deviations": Deviations(least=self.deviations[0], most=self.deviations[1]) if self.deviations else None,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """The noisy number behind the interval of a sum: the true count, and independent draws of noise.

    Attributes:
        noisy: records.
        draws: by the number of the level or view where they were drawn, their noise, and how many cells have it.
        is_of_cells: whether each draw is that of a cell inside, added once. Otherwise some are taken off, as in differences of tails.
    """

    noisy: int
    draws: Mapping[int, tuple[LevelNoise, int]]
    is_of_cells: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """What a release says of boxes, shape (boxes,) each.

    Attributes:
        count: the released counts, int64, records.
        low: the lower ends of their intervals, int64, records.
        high: the upper ends, int64, records.
        stated: whether an interval is stated.
        deviation: the standard deviations of the counts; None where they are no unbiased estimates.
        how: from the place of a box to how its count and its interval were put together, in words.
        cells: numbers of cells, each int64, where known: `possible`, `released` (with a count other than 0), `measured`, and `dropped`,
            which were not measured because a cell above them was dropped. Also `dropped_under`, the number of those cells above, and
            `cap`, the most records that they count together; `leaves`; and `added`, the cells whose noisy counts the interval adds up.
        drawn: of a single box or sum, the noisy number behind its interval; None where there is none, or not one alone.
    """

    count: IntArray
    low: IntArray
    high: IntArray
    stated: BoolArray
    how: Callable[[int], str]
    cells: Mapping[str, IntArray] = field(default_factory=dict)
    deviation: FloatArray | None = None
    drawn: Drawn | None = None

    def with_those(self, chosen: IntArray, others: "Answers") -> "Answers":
        """Return these answers, with others in place of the boxes that are `chosen`, where those state an interval."""
        place = np.full(len(self.count), -1)
        place[chosen[others.stated]] = np.flatnonzero(others.stated)
        there = place >= 0

        def both(own: Any, other: Any) -> Any:
            return np.where(there, other[place], own)

        def how(box: int) -> str:
            return others.how(int(place[box])) if there[box] else self.how(box)

        is_known = self.deviation is not None and others.deviation is not None
        return Answers(
            both(self.count, others.count),
            both(self.low, others.low),
            both(self.high, others.high),
            self.stated | there,
            how,
            deviation=both(self.deviation, others.deviation) if is_known else None,
        )

    def ends(self) -> dict[str, list[int | None] | None]:
        """Return low and high as lists, with None for a box without an interval; None in place of lists without any."""
        if not self.stated.any():
            return {LOW: None, HIGH: None}
        stated = self.stated.tolist()
        return {
            end: [value if is_stated else None for value, is_stated in zip(of.tolist(), stated, strict=True)]
            for end, of in ((LOW, self.low), (HIGH, self.high))
        }


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """What was measured of boxes of one kind, so that any of them can be added up.

    Attributes:
        part: the number of the level or view where that was.
        noisy: the sums of the noisy counts of measured cells, int64, shape (boxes,), records.
        draws: how many independent draws of noise they bear, int64, shape (boxes,).
        possible: how many cells could have been measured in each box, where it depends on levels above which were; None where all were. Then
            the noise of different parts is not independent.
        most: what each box counts at most by a public list, int64, shape (boxes,), records; None where there is none.
    """

    part: int
    noisy: IntArray
    draws: IntArray
    possible: IntArray | None = None
    most: IntArray | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LeastSquares:
    """What the variance of any sum of areas follows from, where every node was measured: it is the product of those of some trees.

    Attributes:
        trees: of each the axes in the order in which they are refined, the scale of the noise of levels 0 to T: 0 where a level is exact,
            None where it is not measured, and the portions of its nodes, as `portions_of` has them, with a dimension per axis of the release. Of
            an exact total, what all of them owe to it is taken off.
        views: that were measured beside a single tree: per axis the level, and the scale of the noise; None where the release has no views.
        rounding_variance: what each part of a sum that is rounded apart adds, records squared.
        slack: what rounding adds to the half-width of an interval, records.
        strategies: by the numbers of axes that have no tree, AᵀA of the rows that measured their leaves, whole numbers, shape (leaves, leaves),
            and the scale of the noise.
    """

    trees: Sequence[tuple[Sequence[int], Sequence[float | None], Sequence[FloatArray]]]
    views: Sequence[tuple[AxisLevels, float]] | None
    rounding_variance: float
    slack: int
    strategies: Mapping[int, tuple[FloatArray, float]] = field(default_factory=dict)


def without_intervals(count: IntArray, why: str, cells: Mapping[str, IntArray] | None = None) -> Answers:
    """Return answers that state no interval, for a reason."""
    return Answers(count, count, count, np.zeros(len(count), dtype=bool), lambda _: why, cells or {})


class Estimate(ABC):
    """What a release says about its counts; each family says it in its own way.

    The same code says it of a folder that is being written and of one that was published, and only of that are questions asked. An interval
    covers the true count of a box that is fixed beforehand with the stated probability, or with another one, or together with
    those of all other boxes.
    """

    def __init__(self, source: Source) -> None:
        self.source, self._known = source, dict[int, Known]()

    @abstractmethod
    def rows(self, level: int) -> SlicedRows:
        """Return all released nodes of a level in the order of their codes, with their intervals and marks; levels are read from 0 on.

        Raises:
            StoreError: the source holds more or fewer nodes than are stated.
            Misfit: what was measured does not fit these nodes.
        """

    def cells(self, number: int) -> tuple[Rows, Known]:
        """Return all cells of a view, zeros too, in the order of their areas, and what is known of them.

        Their intervals are those of cells that are fixed beforehand.

        Raises:
            TypeError: releases of this kind have no views, and their specs are refused with some.
        """
        raise TypeError(f"{type(self).__name__} has no views, and so none of number {number}.")

    def known(self, number: int) -> Known:
        """Return what is known of a level or view, once it is read."""
        return self._known[number]

    def unsettled(self) -> Iterator[str]:
        """Yield what else of a published folder does not follow from what was measured, a sentence each; its rows were looked at."""
        yield from ()

    @property
    def folder(self) -> FolderSource:
        """The published folder.

        Raises:
            TypeError: the folder is only being written.
        """
        if not isinstance(self.source, FolderSource):
            raise TypeError("only a published folder answers questions.")
        return self.source

    def answers(self, boxes: Boxes, *, confidence: float | None = None, simultaneous: bool = False) -> Answers:
        """Return what is said of boxes of one kind, with the stated confidence or another one.

        A cell that has a row is answered with the row's interval, as it stands in the table. Of other boxes an only child is the same as its
        parent, and is answered as that; where no interval of the parent is stated, it has its own.
        """
        found = self._said_of(boxes, confidence, simultaneous=simultaneous)
        if confidence is None and not simultaneous:
            if self.has_view_of(boxes):
                return found
            if self.has_rows_of(boxes):
                return replace(self._with_rows(boxes, found), how=found.how)
        for chosen, alike in coarsest_boxes(self.source.tree, boxes) if self.folder.folder.has_tree else ():
            found = found.with_those(chosen, self.answers(alike, confidence=confidence, simultaneous=simultaneous))
        return found

    @abstractmethod
    def _said_of(self, boxes: Boxes, confidence: float | None, *, simultaneous: bool) -> Answers:
        """Return what is said of boxes of one kind by what was measured at their axis levels."""

    def has_view_of(self, boxes: Boxes) -> bool:
        """Return whether boxes are cells of a view, which has a row of each."""
        source, named = self.folder, {*self.folder.folder.axes}
        same = [view for view in source.manifest.views if source.levels_of(view.axes) == boxes.levels]
        is_cell = boxes.cells == 1 and not boxes.codes
        return is_cell and any({name for name, at in view.axes.items() if at} <= named for view in same)

    def has_rows_of(self, boxes: Boxes) -> bool:
        """Return whether boxes are cells of a level whose rows promise intervals; those of a view have its rows."""
        source, level = self.folder, self.folder.level_of(boxes)
        if boxes.codes or boxes.cells != 1 or source.folder.reached(level) != boxes.levels or self.has_view_of(boxes):
            return False
        stated = source.manifest.levels[level].intervals
        return stated is not None and stated.promise == "rows"

    def _with_rows(self, boxes: Boxes, others: Answers, ends: tuple[str, str] = INTERVAL) -> Answers:
        """Return the intervals of their rows for boxes that are cells with a row, and those given for others.

        The row's interval holds that of the question, so that it covers the true count with the probability that a question is promised.
        """
        source, level = self.folder, self.folder.level_of(boxes)
        met = source.rows_met(source.manifest.levels[level], boxes)
        there, has_ends, (low, high) = met.rows > 0, np.zeros(len(boxes), dtype=bool), (others.low, others.high)
        if set(ends) <= set(met.table.columns.columns):
            has_ends = met.sums(met.table.columns[ends[0]].is_not_null().to_numpy().astype(np.int64)) > 0
            low, high = np.where(there, met.sums(ends[0]), low), np.where(there, met.sums(ends[1]), high)
        of_row = describe_row(source.manifest.levels[level])

        def how(box: int) -> str:
            if not there[box]:
                return others.how(box)
            return of_row if has_ends[box] else explain_missing_simultaneous(1)

        return replace(others, low=low, high=high, stated=np.where(there, has_ends, others.stated), how=how)

    def sum_of(self, parts: Sequence[Boxes], *, confidence: float | None = None, simultaneous: bool = False) -> Answers:
        """Return what is said of the sum of single boxes that share nothing, and together are a set of areas of each axis; of one alone as `answers` does."""
        found = self._sum_of(parts, confidence, simultaneous=simultaneous)
        is_row = confidence is None and not simultaneous and len(parts) == 1 and self.has_rows_of(parts[0])
        return replace(self._with_rows(parts[0], found), how=found.how) if is_row else found

    def _sum_of(self, parts: Sequence[Boxes], confidence: float | None, *, simultaneous: bool) -> Answers:
        """Return what is said of a sum by what was measured: each part misses with an equal share of the probability, unless a family knows better."""
        miss = (1 - self._confidence(confidence)) / (1 if simultaneous else len(parts))
        found = [self.answers(box, confidence=1 - miss, simultaneous=simultaneous) for box in parts]
        if len(parts) == 1:
            return found[0]
        count, low, high = np.sum([(of.count, of.low, of.high) for of in found], axis=0)
        is_known = simultaneous or self.folder.manifest.noisy_counts  # otherwise rows have a probability of their own
        without = next((of.how(0) for of in found if not of.stated[0]), None if is_known else NO_NOISY)
        how = without or describe_pieces(len(parts), simultaneous=simultaneous)
        return Answers(count, low, high, np.array([without is None]), lambda _: how)

    def absent_high(self, level: int, most_cells: int) -> int | None:
        """Return what the interval of no cell of a level without a row goes beyond, records; None where none is stated.

        Args:
            most_cells: the most cells that are asked about one by one where no other way is known.
        """
        source = self.folder
        tree, table = source.tree, source.level_table(level)
        sizes = tree.sizes(level)
        if math.prod(sizes) > most_cells:
            return None
        boxes = Boxes(table.levels, tuple(of.ravel() for of in np.indices(sizes)))
        lacks, answers = Met.of(tree, table, boxes).rows == 0, self.answers(boxes)
        return int(answers.high[lacks].max(initial=0)) if answers.stated[lacks].all() else None

    def deviations(self, boxes: Boxes) -> FloatArray | None:  # noqa: ARG002
        """Return the standard deviations of the counts of boxes, float64, shape (boxes,), records; None where they are no unbiased estimates."""
        return None

    def measured(self, boxes: Boxes) -> Measured | None:  # noqa: ARG002
        """Return what was measured of boxes, if sums of them follow from nothing else; None where they do not."""
        return None

    def ranges(self, levels: AxisLevels, count: IntArray) -> tuple[IntArray, IntArray, IntArray | None] | None:  # noqa: ARG002
        """Return low and high of all ranges of sizes, with how many draws each bears, or of codes that a strategy measured; None where they follow otherwise.

        Args:
            levels: of the sizes and of other axes, of which each cell has its own ranges.
            count: of each cell of the others the counts of the ranges, those with the first sizes first, int64, shape (cells, ranges), records.
        """
        return None

    def least_squares(self) -> LeastSquares | None:
        """Return what the variance of any sum of areas follows from; None where not every node was measured."""
        return None

    def rows_added(self, levels: AxisLevels) -> int:
        """Return about how many rows are added up for many boxes of some axis levels."""
        manifest, level = self.folder.manifest, level_of(self.folder.folder.steps, levels)
        parts = manifest.parts if manifest.views else manifest.levels[: level + 1]
        return sum(max(part.cells, part.nonzero) for part in parts)

    def _step(self, number: int) -> int:
        """Return of what the ends of the intervals of a level or view are multiples, records."""
        return rounding_step(self.source.parts[number].sigma) if self.source.intervals.rounded else 1

    def _confidence(self, confidence: float | None) -> float:
        return self.source.intervals.confidence if confidence is None else confidence
