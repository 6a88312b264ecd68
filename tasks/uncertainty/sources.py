"""What was measured of the cells of a level or view: where everything is settled together, and where a level repeats the one above.

A level or view has a source: a measurement that refines it, or its own. The noisy count of a cell is the sum of the source's noisy
counts in it, however its released count came about. No two cells share a draw, so that what holds for cells with independent
noise holds for them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np

from tasks.laws.law import LevelNoise
from tasks.tree.axis import BoolArray, IntArray
from tasks.tree.order import Tree
from tasks.tree.views import Partition, View
from tasks.uncertainty.intervals import NO_CAP, intervals, row_log_tail, sum_margins
from tasks.uncertainty.noise_rows import EXACT, LOG_TAILS, BeyondMargins, Shares, mixture_of_sums, shares_from
from tasks.uncertainty.signals import signals

V = TypeVar("V")


class MayRepeat(Protocol):
    """A level of a release, in the store or in a manifest."""

    @property
    def level(self) -> int:
        """The number of the level."""

    @property
    def same_as(self) -> int | None:
        """The level above that it repeats; None for a level of its own."""


L = TypeVar("L", bound=MayRepeat)


def own_levels(levels: Sequence[L]) -> list[L]:
    """Return the levels that repeat no other."""
    return [level for level in levels if level.same_as is None]


def for_every_level(levels: Sequence[L], of_own: Sequence[V]) -> list[V]:
    """Return for every level what is known of the level that it repeats, or of itself.

    Args:
        of_own: for those that repeat no other, in the same order.
    """
    by_level = {level.level: value for level, value in zip(own_levels(levels), of_own, strict=True)}
    return [by_level[level.level if level.same_as is None else level.same_as] for level in levels]


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredSums:
    """What was measured of all cells of a level or view, in the order of their areas.

    Attributes:
        noisy: int64, shape (cells,), records.
        terms: int64, shape (cells,): how many noisy counts each is the sum of.
        noise: of one of these; none where they are exact.
    """

    noisy: IntArray
    terms: IntArray
    noise: LevelNoise

    def __len__(self) -> int:
        return len(self.noisy)

    def margin(self, log_tail: float, cells: IntArray | None = None) -> int | IntArray:
        """Return what the noise of the cells, or of some, exceeds with at most a given probability, records.

        Args:
            cells: the places of the cells; all if left out.
        Returns:
            One number where all cells have the same, otherwise int64 of the shape of the cells.
        """
        if not self.noise or not len(self.terms):
            return 0
        if int(self.terms.min()) == int(self.terms.max()):
            return self.noise.quantile(log_tail, int(self.terms[0]))
        return sum_margins(self.noise, self.terms if cells is None else self.terms[cells], log_tail)

    def row_intervals(
        self, rows: IntArray, counts: IntArray, confidence: float, total: int | None
    ) -> tuple[IntArray, IntArray]:
        """Return the intervals of some cells, of which at most a share α is expected not to be covered, however they were chosen.

        Args:
            rows: the places of the cells, shape (rows,).
            counts: as released, shape (rows,), records.
        """
        margin = self.margin(row_log_tail(len(self), len(rows), confidence), rows)
        return intervals(self.noisy[rows], margin, NO_CAP if total is None else total, counts)

    def cell_intervals(self, counts: IntArray, confidence: float, total: int | None) -> tuple[IntArray, IntArray]:
        """Return the intervals of all cells; that of a cell that is fixed beforehand covers it with a probability of 1 − α.

        Args:
            counts: as released, shape (cells,), records.
        """
        margin = self.margin(math.log((1 - confidence) / 2))
        return intervals(self.noisy, margin, NO_CAP if total is None else total, counts)

    def signals(self, rows: IntArray, rate: float) -> tuple[BoolArray, int | IntArray | None]:
        """Return which of some cells stand out from the noise, and above what, as `tasks.uncertainty.signals.signals` does."""
        if not self.noise:
            return self.noisy[rows] > 0, None
        return signals(self.noisy[rows], len(self), rate, lambda log_tail: self.margin(log_tail, rows))

    def shares(self, rows: IntArray) -> Shares | None:
        """Return how much of some cells is noise; None where there is none."""
        if not self.noise:
            return EXACT if len(rows) else None
        mixture = mixture_of_sums(self.noise, self.noisy, self.terms, rows)
        below = [np.count_nonzero(self.noisy < -self.margin(log_tail)) for log_tail in LOG_TAILS]
        within = [np.count_nonzero(self.noisy[rows] <= self.margin(log_tail, rows)) for log_tail in LOG_TAILS]
        return shares_from(mixture, BeyondMargins(np.array(below), np.array(within)), len(self), len(rows))


def best_source(of: View, measured: Mapping[int, tuple[View, LevelNoise]], tree: Tree) -> tuple[int, LevelNoise]:
    """Return the measurement that says most about a level or view, by its number, and the noise of its sum in the widest cell.

    Of all measurements that refine it by the codebooks, it is the one with the least variance there; of equals, the first. Nothing in
    this depends on a count.

    Args:
        measured: what is measured, by number, with the noise of a cell; one of them refines it.
    """
    sources = [
        (number, replace(noise, terms=widest(view, of, tree)) if noise else noise)
        for number, (view, noise) in measured.items()
        if view.lowered(tree).refines(of.lowered(tree))
    ]
    return min(sources, key=lambda source: (source[1].variance, source[0]))


def expected_error(of: View, measured: Mapping[int, tuple[View, LevelNoise]], tree: Tree) -> float:
    """Return the mean absolute noise of the best sum of measurements for a cell of a view, records, before counts are settled.

    It is that of normal noise with the variance of the measurement that says most about the widest cell. A released count is usually
    nearer; it is further off where many small counts end at zero. Arguments are those of `best_source`.
    """
    return math.sqrt(2 / math.pi * best_source(of, measured, tree)[1].variance)


def widest(fine: View, coarse: View, tree: Tree) -> int:
    """Return the most cells of a view that one cell of a coarser one holds, or a little more where there are derived columns."""
    extra = math.prod(len(column.codes) for column in fine.derived if column not in coarse.derived)
    return extra * tree.most_cells_below(coarse.axis_levels, fine.axis_levels)


def measured_sums(partition: Partition, source: Partition, noisy: IntArray, noise: LevelNoise) -> MeasuredSums:
    """Return what was measured of the cells of a level or view.

    Args:
        source: the measured one, which is the same or refines it.
        noisy: of all cells of the source, int64, shape (cells of the source,), records.
        noise: of one of them; none where they are exact.
    """
    place = partition.places(source.cells())
    sums = np.zeros(len(partition), dtype=np.int64)
    np.add.at(sums, place, noisy)
    return MeasuredSums(sums, np.bincount(place, minlength=len(partition)), noise)


def below_zero(cells: int, noisy_total: int, noise: LevelNoise) -> MeasuredSums:
    """Return what is known of the cells of a level of which none was measured, since the total was released as 0.

    None of them counts more than everything, so that the noisy total and its noise hold for each.

    Args:
        cells: how many there are.
        noisy_total: of everything, records.
        noise: of it; none where it is exact.
    """
    return MeasuredSums(np.full(cells, noisy_total), np.ones(cells, dtype=np.int64), noise)


def single(margin: int | IntArray | None) -> int | None:
    """Return a margin that is the same for all cells; None where they have different ones."""
    return int(margin) if isinstance(margin, int | np.integer) else None
