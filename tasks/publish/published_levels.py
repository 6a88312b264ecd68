"""The levels of a release as they are published: its counts, with intervals that follow from its sealed noisy counts."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from storage.counts.columns import interval_columns
from storage.counts.shards import frontier_name
from storage.errors import StoreError
from storage.record import Record
from storage.releases.register import Release
from storage.releases.seals import TRUNK
from storage.releases.terms import IntervalTerms, LevelTerms
from tasks.format.rows import Rows, in_order
from tasks.laws.named import noise_of
from tasks.tree.axis import IntArray
from tasks.tree.frontier import CHUNK_CELLS, Frontier, cell_counts, cells_of, chunks, expand, taking
from tasks.tree.job import Job, job_of
from tasks.tree.leaves import nodes_above_leaves
from tasks.tree.order import Tree
from tasks.validate.intervals import (
    NO_CAP,
    Margins,
    caps,
    intervals,
    margins_of,
    rounded_outwards,
    rounding_step,
    simultaneous_margins,
    sum_margins,
)

_NOTHING = np.zeros(0, dtype=np.int64)

Sink = Callable[
    [int, Sequence[IntArray], IntArray], None
]  # gets a level, and the areas and noisy counts of cells in it


def margins_by_level(levels: Sequence[LevelTerms], terms: IntervalTerms) -> list[list[Margins]]:
    """Return, per kind of interval, the margins of levels 0 to T; empty unless every level is measured."""
    if any(level.is_summed for level in levels):
        return []
    noises = [noise_of(level) for level in levels]
    kinds = [margins_of(noises, terms.confidence)]
    if terms.simultaneous:
        kinds.append(simultaneous_margins(noises, [level.possible_cells or 1 for level in levels], terms.confidence))
    return kinds


@dataclass(frozen=True, slots=True)
class PublishedIntervals:
    """What is known about a level once all levels are read; None where it is not stated.

    Attributes:
        bias: released minus noisy counts, the mean over the measured cells, records.
        half_width: z of the interval around a cell's noisy count, records.
        cap_margin: z', the margin above the noisy count of a cell that limits the cells inside it, records.
        simultaneous_half_width: z of the simultaneous intervals, records.
    """

    bias: float | None
    half_width: int | None
    cap_margin: int | None
    simultaneous_half_width: int | None


@dataclass(slots=True)
class ReleasedLevels:
    """The levels of a release, read one after the other from level 0 on.

    Attributes:
        record: the record of the validated release.
        tree: its tree.
        sink: receives the measured cells as they are read, in the order of the tree; None if they are not needed.
        bias: released minus noisy counts, the mean over the measured cells, records, for each level read so far that has one.
    """

    record: Record
    tree: Tree
    sink: Sink | None = None
    bias: dict[int, float] = field(default_factory=dict)
    _margins: list[list[Margins]] = field(init=False)
    _caps: dict[str, list[IntArray]] = field(default_factory=dict)  # by branch, of the nodes kept of the level before

    def __post_init__(self) -> None:
        """Compute the margins of all levels."""
        self._margins = margins_by_level(self._release.levels, self._terms)

    @property
    def _job(self) -> Job:
        return job_of(self.record)

    @property
    def _release(self) -> Release:
        return self.record.release

    @property
    def _terms(self) -> IntervalTerms:
        return self._release.terms.intervals

    def rows(self, level: int) -> Rows:
        """Return all released nodes of a level in the order of their codes; areas take half the bytes of a frontier's.

        Raises:
            StoreError: the shards hold more or fewer nodes than the store recorded.
        """
        parts = self._measured(level) if self._margins else self._leaves(level)
        size = sum(shard.nonzero for (of, _), shard in self.record.released.items() if of == level)
        areas = tuple(np.empty(size, dtype=np.int32) for _ in self.tree.axes)
        ends = tuple(np.empty(size, dtype=np.int64) for _ in interval_columns(simultaneous=self._terms.simultaneous))
        counts, first, end, is_stated = np.empty(size, dtype=np.int64), 0, 0, True
        for part in parts:
            end = first + len(part)
            if end > size:
                break
            counts[first:end] = part.counts
            for area, of_part in zip(areas, part.areas, strict=True):
                area[first:end] = of_part
            is_stated = is_stated and bool(part.bounds)
            for column, of_part in zip(ends if part.bounds else (), part.bounds, strict=True):
                column[first:end] = of_part
            first = end
        if end != size:
            raise StoreError(f"Level {level} of {self._release.id} does not have as many nodes as the store recorded.")
        return in_order(Rows(areas, counts, ends if is_stated else ()), self.tree.sizes(level))

    def stated_intervals(self) -> list[PublishedIntervals]:
        """Return, per level, its bias and the margins of its intervals, after all levels were read."""
        # the bias and the counts together reveal the sum of the noisy counts
        bias = {} if self._terms.rounded else self.bias
        own, simultaneous = (self._margins + [[]] * 2)[:2]
        return [
            PublishedIntervals(
                bias.get(level),
                own[level].own if own else None,
                own[level].cap if own else None,
                simultaneous[level].own if simultaneous else None,
            )
            for level in range(len(self._release.levels))
        ]

    def _measured(self, level: int) -> Iterator[Rows]:
        """Yield a measured level branch by branch, and keep the caps of its nodes for the next level."""
        self._give(level, [_NOTHING] * len(self.tree.axes), _NOTHING)
        above, self._caps = self._caps, {}
        noisy_sum = cells = 0
        released_sum = 0
        margins = [of_kind[level] for of_kind in self._margins]
        for (of, branch), shard in self.record.frontiers.items():
            if of != level:
                continue
            kept = self._job.nodes(shard)
            noisy, caps_above, seen, measured = self._of_nodes(level, branch, kept, above)
            noisy_sum, cells = noisy_sum + seen, cells + measured
            self._caps[branch] = [
                caps(noisy, margin.cap, of_kind) for margin, of_kind in zip(margins, caps_above, strict=True)
            ]
            rows, counts = self._released_of(level, branch, kept)
            released_sum += int(counts.sum())
            bounds: list[IntArray] = []
            for margin, of_kind in zip(margins, caps_above, strict=True):
                bounds += self._rounded(level, *intervals(noisy[rows], margin.own, of_kind[rows], counts))
            yield Rows(tuple(column[rows] for column in kept.areas), counts, tuple(bounds))
        self.bias[level] = (released_sum - noisy_sum) / cells if cells else 0.0

    def _of_nodes(
        self, level: int, branch: str, kept: Frontier, above: Mapping[str, list[IntArray]]
    ) -> tuple[IntArray, list[IntArray], int, int]:
        """Return the noisy counts of a branch's kept nodes, the caps of their parents by kind, and two totals.

        The totals are the sum and the number of all noisy counts of the branch. The sink gets these counts.
        """
        parts = self._job.noisy(level, branch)
        if level == 0:
            noisy = next(parts)
            self._give(level, kept.areas, noisy)
            return noisy, [np.full(1, NO_CAP) for _ in self._margins], int(noisy.sum()), 1
        parents = self._job.parents(level, branch)
        first_kept, cell = cells_of(self.tree, parents, kept)
        of_cells = cell_counts(self.tree, parents)
        take, before, noisy_sum = taking(parts), 0, 0
        of_nodes = np.empty(len(kept), dtype=np.int64)
        for nodes in chunks(of_cells, CHUNK_CELLS):
            chunk = take(int(of_cells[nodes].sum()))
            rows = slice(first_kept[nodes.start], first_kept[nodes.stop])
            of_nodes[rows] = chunk[cell[rows] - before]
            if self.sink:
                self._give(level, expand(self.tree, parents[nodes]).areas, chunk)
            before, noisy_sum = before + len(chunk), noisy_sum + int(chunk.sum())
        parent = np.repeat(np.arange(len(parents)), np.diff(first_kept))
        return of_nodes, [of_kind[parent] for of_kind in self._caps_of_parents(branch, level, above)], noisy_sum, before

    def _caps_of_parents(self, branch: str, level: int, above: Mapping[str, list[IntArray]]) -> list[IntArray]:
        """Return, by kind, the caps of the nodes above a level of a branch."""
        cut = self.record.branches.get(branch)
        if cut is None or cut.cut_level != level - 1:
            return above[branch]
        return [of_kind[cut.first_node : cut.end_node] for of_kind in above[cut.parent]]

    def _released_of(self, level: int, branch: str, kept: Frontier) -> tuple[slice | IntArray, IntArray]:
        """Return which of the kept nodes are released, and their counts."""
        shard = self.record.released[level, branch]
        if not shard.is_settled:
            return slice(None), kept.counts
        columns = self._job.shelf.columns(frontier_name(shard), shard.sha256)
        return columns["row"], columns["count"]

    def _leaves(self, level: int) -> Iterator[Rows]:
        """Yield a level of a mechanism that measures leaves only, with intervals where they can be stated."""
        finest = self._release.levels[-1]
        is_finest, noise = level == self.tree.depth, noise_of(finest)
        if is_finest and not finest.threshold:
            self.bias[level] = 0.0
            self._give_leaves(level)
        for part in self._job.level(level, self.record.frontiers):
            areas, counts = part.areas, part.counts
            bounds: list[IntArray] = []
            for log_tail in self._log_tails(level):
                margin: int | IntArray = (
                    noise.quantile(log_tail)
                    if is_finest
                    else sum_margins(noise, self.tree.leaves_below(level, areas), log_tail)
                )
                bounds += intervals(counts, margin, NO_CAP, counts)
            yield Rows(areas, counts, tuple(bounds))

    def _log_tails(self, level: int) -> list[float]:
        """Return, per kind of interval, the logarithm of the probability on one side; empty if none can be stated."""
        terms, finest = self._release.levels[level], self._release.levels[-1]
        if finest.threshold and level < finest.level:
            return []
        kinds = [math.log((1 - self._terms.confidence) / 2)]
        if self._terms.simultaneous:
            levels = 1 if finest.threshold else len(self._release.levels)
            if terms.possible_cells is None:
                return []
            kinds.append(kinds[0] - math.log(levels * terms.possible_cells))
        return kinds

    def _give_leaves(self, level: int) -> None:
        """Pass the noisy counts of all leaves to the sink."""
        if self.sink is None:
            return
        take = taking(self._job.noisy(level, TRUNK))
        for parents in nodes_above_leaves(self.tree, CHUNK_CELLS):
            cells = expand(self.tree, parents)
            self._give(level, cells.areas, take(len(cells)))

    def _give(self, level: int, areas: Sequence[IntArray], noisy: IntArray) -> None:
        if self.sink:
            self.sink(level, areas, noisy)

    def _rounded(self, level: int, low: IntArray, high: IntArray) -> tuple[IntArray, IntArray]:
        if not self._terms.rounded:
            return low, high
        return rounded_outwards(low, high, rounding_step(self._release.levels[level].sigma))
