"""What a release says where levels and views were settled together: counts, with intervals from what was measured of their cells.

Every cell of what was measured has a noisy count. A box is the sum of whole cells of some of these levels and views; each of
them gives an interval, by the noise of one draw for each of its cells in the box. So is the part of a box with some codes of derived columns: of a level or
view that has the codes on which such a column depends, it is the cells that the table of the column names. Where noisy counts are not
published, the intervals of a view's rows are widened until all hold at once, and added up. Which measurement is taken follows from the
question and the codebooks: that with the least variance. So the interval covers the true count of a box that is fixed beforehand with the
stated probability.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from storage.tables import COUNT, HIGH, LOW, NOISY
from tasks.format.entries import LevelEntry, Signal, ViewEntry
from tasks.format.published_tree import derived_places
from tasks.format.tables import Rows
from tasks.laws.law import LevelNoise, quantile_of_sum
from tasks.released.boxes import Boxes, Met, areas_met, each, possible_cells
from tasks.released.estimate import NO_CELL, Answers, Drawn, Estimate, Known, Measured
from tasks.released.explanations import describe_level, explain_missing_simultaneous
from tasks.released.sources.published import PLACE
from tasks.tree.axis import BoolArray, IntArray
from tasks.tree.views import ViewCells
from tasks.uncertainty.intervals import rounded_outwards, row_log_tail
from tasks.uncertainty.sources import MeasuredSums, below_zero, best_source, measured_sums, single

Ends = tuple[IntArray, IntArray]


_SAYS_MOST = ": of what was measured, it says most about this question"
_AT_MOST_ALL = "sum of rows; the noisy counts are not published, so all that is known is that it is at most the total"


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Boxes as sums of the cells of one level or view, shape (boxes,) each.

    Attributes:
        is_known: whether an interval follows from these cells.
        cells: how many of them make up the box.
        noisy: the sum of their noisy counts, records; None where noisy counts are not published.
        count: what the table counts, records.
        rows: the sums of the ends of the published intervals of the cells; looked at where `noisy` is None.
        noise: of one cell.
        where: the level or view, in words.
        number: where its cells were measured.
    """

    is_known: BoolArray
    cells: IntArray
    noisy: IntArray | None
    count: IntArray
    rows: Ends
    noise: LevelNoise
    where: str
    number: int

    @property
    def variance(self) -> NDArray[np.float64]:
        """The variance of the noise of the cells, infinite where no interval follows from them."""
        return np.where(self.is_known, self.cells * self.noise.variance, np.inf)

    def how(self, box: int) -> str:
        """Return of what a box is made, in words."""
        return _in_words(self.where, int(self.cells[box]))


def _in_words(where: str, cells: int) -> str:
    return f"the cell of {where}" if cells == 1 else f"sum of {cells:,} cells of {where}"


class TogetherEstimate(Estimate):
    """What is said of levels and views that were settled together; or of views alone, where levels were not."""

    def rows(self, level: int) -> Rows:
        """Return all released nodes of a level in the order of their codes."""
        source, terms = self.source, self.source.intervals
        nodes, partition, sums = source.nodes(level), source.partition(level), self._measured(level)
        wide = tuple(of.astype(np.int64) for of in nodes.areas)
        cells = partition.places(ViewCells(partition.view.axis_levels, wide))
        bounds = sums.row_intervals(cells, nodes.counts, terms.confidence, source.total)
        signal, above = sums.signals(cells, terms.signal_rate)
        marked, moved = int(np.count_nonzero(signal)), int(nodes.counts.sum()) - int(sums.noisy.sum())
        log_tail = row_log_tail(len(sums), len(cells), terms.confidence)
        self._known[level] = Known(
            promise="rows",
            half_width=single(sums.margin(log_tail)),
            bias=None if terms.rounded else moved / max(len(sums), 1),
            signal=Signal(rows=marked, above=single(above)) if marked else None,
            shares=sums.shares(cells),
        )
        areas = tuple(of.astype(np.int32) for of in nodes.areas)
        return Rows(areas, nodes.counts, rounded_outwards(*bounds, self._step(level)), signal)

    def cells(self, number: int) -> tuple[Rows, Known]:
        """Return all cells of a view, zeros too, in the order of their areas, and what is known of them."""
        source, confidence, sums = self.source, self.source.intervals.confidence, self._measured(number)
        counts = source.counts(number)
        bounds = sums.cell_intervals(counts, confidence, source.total)
        width = single(sums.margin(math.log((1 - confidence) / 2)))
        areas = source.partition(number).cells().areas
        known = Known(promise="cells", half_width=width)
        return Rows(areas, counts, rounded_outwards(*bounds, self._step(number))), known

    def unsettled(self) -> Iterator[str]:
        """Yield which sources are not the measurements that say most about their levels and views, by the published codebook."""
        folder, manifest = self.folder, self.folder.manifest
        measured = {part.level: (folder.view_of(part), part.noise) for part in manifest.parts if not part.summed}
        for entry in [*manifest.levels, *manifest.views]:
            number, noise = best_source(folder.view_of(entry), measured, folder.tree)
            name = f"view {entry.name}" if isinstance(entry, ViewEntry) else f"level {entry.level}"
            if entry.source != number:
                yield f"manifest.json: {name} must have source {number}, which says most about it."
            elif entry.summed and not math.isclose(entry.sigma, noise.sigma, rel_tol=1e-9):
                yield f"manifest.json: {name} has a sigma that is not that of sums of its source."

    def _measured(self, number: int) -> MeasuredSums:
        """Return what was measured of the cells of a level or view: by its source, or by itself where it names none."""
        source, stated = self.source, self.source.parts[number].source
        of = number if stated is None else stated
        partition, noisy = source.partition(number), source.noisy(of)
        if not len(noisy):  # level 1 of a total of 0
            return below_zero(len(partition), int(source.noisy(0)[0]), source.parts[0].noise)
        return measured_sums(partition, source.partition(of), noisy, source.parts[of].noise)

    def has_rows_of(self, boxes: Boxes) -> bool:
        """Return whether boxes are cells of a level with noisy counts; without, those that lack a row are answered by other noise."""
        return self.folder.manifest.noisy_counts and super().has_rows_of(boxes)

    def _said_of(self, boxes: Boxes, confidence: float | None, *, simultaneous: bool) -> Answers:
        """Return what is said of boxes, by the part that has the least variance of each."""
        source, manifest = self.folder, self.folder.manifest
        parts = self.sums_of(boxes, [*manifest.levels, *manifest.views])
        count = parts[0].count  # the leaves make up every box, with whatever codes
        everything = int(source.table(manifest.levels[0]).column(HIGH)[0])
        variance = np.array([part.variance for part in parts])
        best, is_known = variance.argmin(axis=0), np.isfinite(variance.min(axis=0))
        low, high, added = np.zeros_like(count), np.maximum(everything, count), np.zeros_like(count)
        for number in np.unique(best[is_known]).tolist():
            chosen, part = (best == number) & is_known, parts[number]
            ends = self.interval([part], count, self._confidence(confidence))
            low, high = np.where(chosen, ends[0], low), np.where(chosen, ends[1], high)
            added = np.where(chosen, part.cells, added)

        def how(box: int) -> str:
            if simultaneous:
                return explain_missing_simultaneous(int(added[box]))
            if not is_known[box]:
                return _AT_MOST_ALL
            return f"{parts[best[box]].how(box)}{_SAYS_MOST}" if added[box] else NO_CELL

        stated = np.full(len(boxes), not simultaneous)
        return Answers(np.where(is_known & (added == 0), 0, count), low, high, stated, how, {"added": added})

    def _sum_of(self, parts: Sequence[Boxes], confidence: float | None, *, simultaneous: bool) -> Answers:
        """Return what is said of the sum of single boxes, each by the part that has the least variance of it.

        Boxes share no cell of a part, and different parts are measured by themselves: the noise is one sum of independent draws.
        """
        manifest = self.folder.manifest
        every = [self.sums_of(box, [*manifest.levels, *manifest.views]) for box in parts]
        best = [min(of, key=lambda part: float(part.variance[0])) for of in every]
        count = np.sum([of[0].count for of in every], axis=0)  # the leaves make up every box, with whatever codes
        if not simultaneous and all(np.isfinite(of.variance[0]) for of in best):
            return self.said(best, count, self._confidence(confidence), _SAYS_MOST)
        added = sum(int(of.cells[0]) for of in best if np.isfinite(of.variance[0]))
        how = explain_missing_simultaneous(added) if simultaneous else _AT_MOST_ALL
        high, stated = self.folder.table(manifest.levels[0]).column(HIGH), np.array([not simultaneous])
        return Answers(count, 0 * count, np.maximum(high, count), stated, lambda _: how, {"added": np.array([added])})

    def said(self, sums: Sequence[Sums], count: IntArray, confidence: float, why: str) -> Answers:
        """Return what is said of the sum of single boxes by sums of cells; `why` ends how it was put together, in words."""
        draws, cells_of = dict[int, tuple[LevelNoise, int]](), Counter[str]()
        for of in sums:
            draws[of.number] = of.noise, draws.get(of.number, (of.noise, 0))[1] + int(of.cells[0])
            cells_of[of.where] += int(of.cells[0])
        low, high = self.interval(sums, count, confidence)
        noisy, added = [int(of.noisy[0]) for of in sums if of.noisy is not None], np.array([cells_of.total()])
        drawn = Drawn(sum(noisy), draws) if len(noisy) == len(sums) else None
        how = " and ".join(_in_words(*of) for of in cells_of.items()).replace(" and sum of ", " and ")
        how = f"{how}{why}" if added[0] else NO_CELL
        stated = np.ones(1, dtype=bool)
        return Answers(np.where(added, count, 0), low, high, stated, lambda _: how, {"added": added}, drawn=drawn)

    def sums_of(self, boxes: Boxes, parts: list[LevelEntry] | list[ViewEntry]) -> list[Sums]:
        """Return boxes as sums of cells of each of some parts whose whole cells make them up."""
        return [self._sums_of(part, boxes) for part in parts if self._makes_up(part, boxes)]

    def _makes_up(self, part: LevelEntry, boxes: Boxes) -> bool:
        """Return whether boxes are made of whole cells of a part, each of which has one code of every column that is asked for."""
        reached, places = self.folder.levels_of(part.axes), derived_places(self.folder.manifest)
        return all(asked <= own for asked, own in zip(boxes.levels, reached, strict=True)) and all(
            name in part.axes or all(reached[axis] >= level for axis, level in places[name]) for name in boxes.codes
        )

    def measured(self, boxes: Boxes) -> Measured | None:
        """Return what was measured of boxes by the part that has the least variance of all of them; None without noisy counts."""
        manifest = self.folder.manifest
        parts = [part for part in self.sums_of(boxes, [*manifest.levels, *manifest.views]) if part.noisy is not None]
        best = min(parts, key=lambda part: float(part.variance.sum()), default=None)
        if best is None or best.noisy is None:
            return None
        return Measured(best.number, best.noisy, best.cells)

    def _sums_of(self, part: LevelEntry, boxes: Boxes) -> Sums:
        """Return boxes as sums of cells of a level or view.

        A view lists all its cells, so that its rows are the cells of a box. A level leaves out those that count 0, and is asked by its
        noisy counts, or by the row of its one cell. A view that is not measured has the cells of a level that is.
        """
        source, has_noisy = self.folder, self.folder.manifest.noisy_counts
        met = source.rows_met(part, boxes)
        cells, noisy, where, is_known = met.rows, None, "", np.zeros(len(boxes), dtype=bool)
        if isinstance(part, ViewEntry):
            where = f"view {part.name}"
            if has_noisy and part.is_measured:
                of_view = source.noisy(part.level)
                noisy = met.sums(of_view if boxes.within is None else of_view[met.table.column(PLACE)])
            is_known[:] = noisy is not None or part.source == part.level or part.summed
        elif not part.summed:
            where = describe_level(part)
            if has_noisy:
                cells, noisy = self._noisy_sums(part.level, boxes)
                is_known[:] = True
            else:
                is_cell = source.levels_of(part.axes) == boxes.levels and part.source == part.level and boxes.cells == 1
                is_known = (cells == 1) & is_cell
        ends, noise = (met.sums(LOW), met.sums(HIGH)), source.parts[part.level].noise
        number = part.level if part.same_as is None else part.same_as
        return Sums(is_known, cells, noisy, met.sums(COUNT), ends, noise, where, number)

    def _noisy_sums(self, level: int, boxes: Boxes) -> tuple[IntArray, IntArray]:
        """Return how many cells of a level are in boxes and have their codes, and the sums of their noisy counts; all are measured."""
        source, tree = self.folder, self.source.tree
        if boxes.codes:
            cells = source.cells_met(level, boxes)
            asked = np.ones(len(cells), dtype=bool)
            for name, codes in boxes.codes.items():
                column = source.folder.derived[name]
                asked &= column.is_in(codes, column.at(tree, tree.axis_levels(level), cells.areas))
            met = Met.whole(cells, asked)
            return met.rows, met.sums(NOISY)
        many = possible_cells(tree, level, boxes).astype(np.int64)
        if boxes.within is None:
            return many, Met.of(tree, source.cells(level), boxes).sums(NOISY)
        return many, np.array([source.noisy(level, areas_met(tree, level, boxes)).sum()])

    def interval(self, sums: Sequence[Sums], count: IntArray, confidence: float) -> Ends:
        """Return the intervals that parts give, with the released counts inside, and no further than an exact total; several give that of their sum.

        Without noisy counts, the intervals of the rows of n cells are widened until each misses with 1/n of the probability.
        """
        log_tail, cells = math.log((1 - confidence) / 2), np.sum([of.cells for of in sums], axis=0)
        if any(of.noisy is None for of in sums):
            low, high = np.sum([of.rows for of in sums], axis=0)
            stated = math.log((1 - self.source.intervals.confidence) / 2)
            for noise, own in ((of.noise, of.cells) for of in sums):
                z = each(cells, lambda n: noise.quantile(log_tail - math.log(n)) if n else 0)  # noqa: B023
                further = own * (z - noise.quantile(stated))
                low, high = np.maximum(low - further, 0), high + further
        else:
            noisy = np.sum([of.noisy for of in sums if of.noisy is not None], axis=0)
            draws = [(of.noise, int(of.cells[0])) for of in sums[1:]]
            z = each(sums[0].cells, lambda n: quantile_of_sum([(sums[0].noise, n), *draws], log_tail))
            low, high = np.maximum(noisy - z, 0), np.maximum(noisy + z, 0)
            if (total := self.source.total) is not None:
                high = np.minimum(high, total)
        low, high = np.minimum(low, count), np.maximum(high, count)
        return np.where(cells > 0, low, 0), np.where(cells > 0, high, 0)
