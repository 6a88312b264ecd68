"""What is known of the numbers of groups of one level: their noisy counts, by what was measured, and intervals."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tasks.groups.adjacent import row_log_tail, signals
from tasks.laws.law import LevelNoise
from tasks.tree.axis import BoolArray, IntArray
from tasks.uncertainty.intervals import NO_CAP, intervals


@dataclass(frozen=True, slots=True)
class SizesNoisy:
    """Noisy numbers of groups of some sizes, by region.

    Attributes:
        counts: int64, shape (regions,), groups.
        terms: how many draws each bears, int64, shape (regions,); 0 where it is exact.
    """

    counts: IntArray
    terms: IntArray


@dataclass(frozen=True)
class MeasuredSizes:
    """What was measured of one level of regions.

    Attributes:
        statistic: what was measured of each region and size: `tails`, the groups of at least this size; `sizes`, those of this size;
            `chain`, the groups of a larger size, or of this size in this region or a later one.
        noisy: int64, shape (regions, sizes), groups.
        noise: of one of these.
        groups: how many groups there are in each region, empty ones too, int64, shape (regions,), where a public list says so: then the
            first column, of size 0, is not looked at. None where the number of groups is protected.
        inside: how many measured regions are added up in each, int64, shape (regions,); None where all were measured themselves.
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
        regions = len(self.noisy)
        if size >= self.sizes:
            return SizesNoisy(np.zeros(regions, dtype=np.int64), np.zeros(regions, dtype=np.int64))
        if self.groups is not None and size == 0:
            return SizesNoisy(self.groups, np.zeros(regions, dtype=np.int64))
        if self.statistic == "tails":
            return SizesNoisy(self.noisy[:, size], self._draws(1))
        found = self.noisy[:, size:] if self.statistic == "sizes" else self._from_chain[:, size:]
        many = self._draws(found.shape[1])
        if self.statistic == "sizes":
            return SizesNoisy(found.sum(axis=1), many)
        if regions == 1:  # the sums between the first and the last one cancel out
            return SizesNoisy(found.sum(axis=1), np.ones(1, dtype=np.int64))
        many *= 2
        many[-1] -= 1  # nothing comes after the last sum
        return SizesNoisy(found.sum(axis=1), many)

    def between(self, first: int, stop: int) -> SizesNoisy:
        """Return the noisy number of groups of sizes from one place among the sizes to another, which is not included."""
        if self.statistic != "tails" and not (self.groups is not None and first == 0):
            larger, all_larger = self.at_least(stop), self.at_least(first)
            return SizesNoisy(all_larger.counts - larger.counts, self._terms_between(first, stop))
        one, other = self.at_least(first), self.at_least(stop)
        return SizesNoisy(one.counts - other.counts, one.terms + other.terms)

    def _draws(self, of_one: int) -> IntArray:
        """Return how many draws a number of each region bears, given that of a region that was measured itself; int64, shape (regions,)."""
        many = np.full(len(self.noisy), of_one, dtype=np.int64)
        return many if self.inside is None else many * self.inside

    def _terms_between(self, first: int, stop: int) -> IntArray:
        regions = len(self.noisy)
        if self.statistic == "chain" and regions == 1:
            return np.full(1, 1 if stop >= self.sizes else 2, dtype=np.int64)
        terms = self._draws((stop - first) * (2 if self.statistic == "chain" else 1))
        if self.statistic == "chain" and stop >= self.sizes:
            terms[-1] -= 1
        return terms

    @cached_property
    def counts(self) -> IntArray:
        """The noisy number of groups of each size, int64, shape (regions, sizes)."""
        if self.statistic == "tails":
            tails = self.noisy if self.groups is None else np.column_stack((self.groups, self.noisy[:, 1:]))
            return tails - np.pad(tails[:, 1:], ((0, 0), (0, 1)))
        found = self.noisy if self.statistic == "sizes" else self._from_chain
        if self.groups is None:
            return found
        return np.column_stack((self.groups - found[:, 1:].sum(axis=1), found[:, 1:]))

    @cached_property
    def terms(self) -> IntArray:
        """How many draws each of `counts` bears, int64, shape (regions, sizes): of the first, the last, and those between, all alike."""
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
    def _from_chain(self) -> IntArray:
        """The differences of the running sums, int64, shape (regions, sizes): the sums run through the sizes, region by region."""
        skipped = 0 if self.groups is None else 1
        sums = self.noisy[:, skipped:].T.ravel()
        of_size = (sums - np.append(sums[1:], 0)).reshape(-1, len(self.noisy)).T
        return np.pad(of_size, ((0, 0), (skipped, 0)))

    def margins(self, log_tail: float, terms: IntArray) -> IntArray:
        """Return what the noise of cells exceeds with at most a given probability, int64, of the shape of `terms`, groups."""
        kinds, which = np.unique(terms, return_inverse=True)
        of_kind = [self.noise.quantile(log_tail, int(kind)) if kind else 0 for kind in kinds]
        return np.array(of_kind, dtype=np.int64)[which].reshape(terms.shape)

    def of_everything(self) -> "MeasuredSizes":
        """Return what this says of everything, where it is of one region: the number of groups, as the only size."""
        found = self.at_least(0)
        if self.groups is not None:
            return MeasuredSizes("tails", found.counts[:, None], replace(self.noise, law=None), self.groups)
        return MeasuredSizes("tails", found.counts[:, None], replace(self.noise, terms=int(found.terms[0])))


@dataclass(frozen=True)
class ReleasedSizes:
    """The released numbers of groups of one level, with what was measured of it.

    Attributes:
        counts: int64, shape (regions, sizes), groups, >= 0.
        measured: of the level.
        confidence: 1 − α, of intervals.
        is_total: whether it is the number of all groups, which has its row whatever it is.
    """

    counts: IntArray
    measured: MeasuredSizes
    confidence: float
    is_total: bool = False

    @cached_property
    def places(self) -> tuple[IntArray, IntArray]:
        """The regions and the sizes of the rows, in the order of the table: the cells that count something."""
        region, size = np.nonzero(np.ones_like(self.counts) if self.is_total else self.counts)
        return region, size

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
            of_rows = row_log_tail(measured.every_other, len(self.places[0]), self.confidence)
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
        """Return which rows stand out from the noise, and above what if that is one number, as `adjacent.signals` does."""
        terms, noisy = self.measured.terms[self.places], self.measured.counts[self.places]
        if not self.measured.noise:
            return noisy > 0, None
        if not self.measured.is_paired:
            margin = self.measured.margins(math.log(rate / self.measured.counts.size), terms)
            return noisy > margin, int(margin[0]) if margin.size == 1 else None
        return signals(noisy, terms, self.measured.every_other, rate, self.measured.margins)
