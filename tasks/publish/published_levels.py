"""The levels of a release as they are published: its counts, with intervals that follow from its sealed noisy counts."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from storage.counts import tables
from storage.counts.columns import interval_columns
from storage.errors import StoreError
from storage.record import Record
from storage.releases.register import Release
from storage.releases.shards import TRUNK, Shard
from storage.releases.terms import IntervalTerms, LevelTerms
from tasks.capacity import side_by_side
from tasks.format.manifest import Promise, Signal
from tasks.format.rows import Rows, SlicedRows, in_order
from tasks.laws.named import noise_of
from tasks.publish.rows_on_disk import RowsOnDisk, fit_on_disk, sorted_run
from tasks.tree.axis import BoolArray, IntArray
from tasks.tree.frontier import CHUNK_CELLS, Frontier, cell_counts, cells_of, chunks, expand, taking
from tasks.tree.job import Job
from tasks.tree.keys import AreaArray
from tasks.tree.leaves import nodes_above
from tasks.tree.order import Tree
from tasks.uncertainty.intervals import (
    NO_CAP,
    Margins,
    caps,
    intervals,
    margins_of,
    rounded_outwards,
    rounding_step,
    row_log_tail,
    row_margins,
    simultaneous_margins,
    sum_margins,
)
from tasks.uncertainty.moves import Moves, bounds_after, reach_after
from tasks.uncertainty.repeated import for_every_level, own_levels
from tasks.uncertainty.selection import tails_of
from tasks.uncertainty.shares import EXACT, SeenCounts, Shares, shares_of_sums
from tasks.uncertainty.signals import signal_tail, signals

T = TypeVar("T")

_NOTHING = np.zeros(0, dtype=np.int64)

Sink = Callable[
    [int, Sequence[IntArray], IntArray], None
]  # gets a level, and the areas and noisy counts of cells in it


def margins_by_level(record: Record) -> list[list[Margins]]:
    """Return, per kind of interval in the tables, the margins of levels 0 to T; empty unless every level is measured."""
    levels, terms = record.release.levels, record.release.terms.intervals
    if any(level.is_summed for level in levels):
        return []
    own = own_levels(levels)
    noises = [noise_of(level) for level in own]
    cells = [record.cells_of(level.level)[0] for level in own]
    rows = [record.rows_of(level.level) for level in own]
    kinds = [row_margins(noises, cells, rows, terms.confidence)]
    if terms.simultaneous:
        kinds.append(simultaneous_margins(noises, [_listed(level) for level in own], terms.confidence))
    return [for_every_level(levels, of_kind) for of_kind in kinds]


def _find_tails(record: Record, threads: int) -> None:
    """Find the tails of the intervals and the marks of all levels side by side; `tails_of` then has them, and takes no time."""
    levels, terms = record.release.levels, record.release.terms.intervals
    shares = (1 - terms.confidence, terms.signal_rate)
    if not any(level.is_summed for level in levels):
        asked = [(max(record.cells_of(own.level)[0], 1), share) for own in own_levels(levels) for share in shares]
        for _ in side_by_side(lambda of: tails_of(*of), asked, threads):
            pass


def _listed(terms: LevelTerms) -> int:
    """Return how many cells a level can have. Only a mechanism that shows codes may not know them, and needs no such number."""
    if terms.possible_cells is None:
        raise StoreError(f"Level {terms.level} has codes that no codebook lists, so no interval can be stated.")
    return terms.possible_cells


@dataclass(frozen=True, slots=True)
class KnownAfter:
    """What is known about a level once all levels are read; None where it is not stated.

    Attributes:
        bias: released minus noisy counts, the mean over the measured cells, records.
        bound: what the error of no count at the level exceeds, with the confidence of `tasks.uncertainty.bounds`, records.
        promise: what `low` and `high` promise.
        half_width: z of the interval around a row's noisy count, records.
        cap_margin: z', the margin above the noisy count of a cell that limits the cells inside it, in questions that are fixed
            beforehand, records.
        simultaneous_half_width: z of the simultaneous intervals, records.
        signal: the rows that stand out from the noise; None where no row does.
        shares: how much of its rows is noise, and how much stands above it.
        deviations: the least and the most standard deviation of a released count, records, where they are known.
    """

    bias: float | None
    bound: int | None
    promise: Promise | None
    half_width: int | None
    cap_margin: int | None
    simultaneous_half_width: int | None
    signal: Signal | None
    shares: Shares | None
    deviations: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Nodes:
    """The kept nodes of a level of a branch.

    Attributes:
        noisy: shape (nodes,), records.
        caps: per kind of interval, the most that they can count, shape (nodes,), records.
    """

    noisy: IntArray
    caps: Sequence[IntArray]

    def __getitem__(self, which: slice | IntArray) -> "_Nodes":
        return _Nodes(self.noisy[which], [of_kind[which] for of_kind in self.caps])


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """What was read of a level of a branch, besides its rows.

    Attributes:
        nodes: its kept nodes.
        seen: its noisy counts; None where the level is exact.
        moves: how far the repair has moved them.
    """

    nodes: _Nodes
    seen: SeenCounts | None
    moves: Moves


@dataclass(frozen=True, slots=True, eq=False)
class _Repeated:
    """The rows of a level each of whose cells is the one cell that a row of the level above holds.

    Attributes:
        above: the rows of the level above.
        axis: the axis that is refined, by its number.
        child: of each of its areas, the one that it holds.
    """

    above: SlicedRows
    axis: int
    child: IntArray

    def __len__(self) -> int:
        return len(self.above)

    def __getitem__(self, rows: slice) -> Rows:
        found = self.above[rows]
        areas = (
            self.child[of].astype(np.int32) if number == self.axis else of for number, of in enumerate(found.areas)
        )
        return Rows(tuple(areas), found.counts, found.bounds, found.signal)


@dataclass(slots=True)
class ReleasedLevels:
    """The levels of a release, read one after the other from level 0 on.

    Attributes:
        job: the work on the validated release.
        sink: receives the measured cells as they are read, in the order of the tree; None if they are not needed.
        disk: a folder with room for the rows of a large level; None to have all rows in memory.
        threads: how many branches are read at once, where there is no sink.
        bias: released minus noisy counts, the mean over the measured cells, records, for each level read so far that has one.
    """

    job: Job
    sink: Sink | None = None
    disk: Path | None = None
    threads: int = 1
    bias: dict[int, float] = field(default_factory=dict)
    _tree: Tree = field(init=False)
    _margins: list[list[Margins]] = field(init=False)
    _marked: dict[int, Signal | None] = field(default_factory=dict)  # of the levels read so far
    _shares: dict[int, Shares | None] = field(default_factory=dict)  # likewise
    _moves: list[Moves] = field(default_factory=list)  # likewise, where every level is measured
    _above: dict[str, _Nodes] = field(default_factory=dict)  # by branch, the nodes kept of the level before
    _rows: SlicedRows | None = None  # of the level before, where the next one repeats it

    def __post_init__(self) -> None:
        """Load the tree, and compute the margins of all levels."""
        self._tree = self.job.tree
        _find_tails(self.record, self.threads)
        self._margins = margins_by_level(self.record)

    @property
    def record(self) -> Record:
        """The record of the release."""
        return self.job.record

    @property
    def _release(self) -> Release:
        return self.record.release

    @property
    def _terms(self) -> IntervalTerms:
        return self._release.terms.intervals

    def rows(self, level: int) -> Rows:
        """Return all released nodes of a level in the order of their codes, in memory; as `in_slices`."""
        return self.in_slices(level)[:]

    def in_slices(self, level: int) -> SlicedRows:
        """Return all released nodes of a level in the order of their codes; areas take half the bytes of a frontier's.

        Raises:
            StoreError: the shards hold more or fewer nodes than the store recorded.
        """
        if self._release.levels[level].same_as is not None:
            return self._repeated(level)
        is_large = self.record.rows_of(level) > tables.PART_ROWS
        if self.disk is not None and self._margins and is_large and fit_on_disk(self._tree.sizes(level)):
            return self._kept_for(level + 1, self._on_disk(level, self.disk))
        return self._kept_for(level + 1, self._in_memory(level))

    def _on_disk(self, level: int, disk: Path) -> RowsOnDisk:
        """Return the rows of a large level that is measured, and keep how many of them stand out."""
        found, terms = RowsOnDisk(disk, self._tree.sizes(level)), self._release.levels[level]
        sizes = self._tree.sizes(level)
        for run in self._measured(level, lambda rows, noisy: sorted_run(rows, noisy, sizes)):
            found.add(run)
        if len(found) != self.record.rows_of(level):
            raise self._other_rows(level)
        margin: int | None = 0
        if not terms.is_invariant:
            noise, cells = noise_of(terms), self.record.cells_of(level)[0]
            log_tail = signal_tail(
                len(found), cells, self._terms.signal_rate, lambda tail: found.count_above(noise.quantile(tail))
            )
            margin = None if log_tail is None else noise.quantile(log_tail)
        found.mark(margin)
        rows_that_do = 0 if margin is None else found.count_above(margin)
        above = None if terms.is_invariant else margin
        self._marked[level] = Signal(rows=rows_that_do, above=above) if rows_that_do else None
        return found

    def _other_rows(self, level: int) -> StoreError:
        return StoreError(f"Level {level} of {self._release.id} does not have as many nodes as the store recorded.")

    def _in_memory(self, level: int) -> Rows:
        """Return the rows of a level, and keep what is known of them."""
        parts = self._measured(level, lambda *rows: rows) if self._margins else self._leaves(level)
        size = self.record.rows_of(level)
        areas = tuple(np.empty(size, dtype=np.int32) for _ in self._tree.axes)
        ends = tuple(np.empty(size, dtype=np.int64) for _ in interval_columns(simultaneous=self._terms.simultaneous))
        counts, first, end, is_stated = np.empty(size, dtype=np.int64), 0, 0, True
        noisy = np.empty(size, dtype=np.int64)
        for part, noisy_counts in parts:
            end = first + len(part)
            if end > size:
                break
            counts[first:end], noisy[first:end] = part.counts, noisy_counts
            for area, of_part in zip(areas, part.areas, strict=True):
                area[first:end] = of_part
            is_stated = is_stated and bool(part.bounds)
            for column, of_part in zip(ends if part.bounds else (), part.bounds, strict=True):
                column[first:end] = of_part
            first = end
        if end != size:
            raise self._other_rows(level)
        signal = self._signals(level, areas, noisy)
        if not self._margins:
            self._shares[level] = self._shares_of_sums(level, areas, noisy)
        return in_order(Rows(areas, counts, ends if is_stated else (), signal), self._tree.sizes(level))

    def _kept_for(self, level: int, rows: SlicedRows) -> SlicedRows:
        """Return rows, and keep them where the next level repeats them."""
        levels = self._release.levels
        self._rows = rows if level < len(levels) and levels[level].same_as is not None else None
        return rows

    def _repeated(self, level: int) -> SlicedRows:
        """Return the rows of the level above, each with the area of the one cell that it holds; and what is known of them."""
        axis = self._tree.steps[level - 1]
        child = self._tree.axes[axis].first_child[self._tree.axis_levels(level - 1)[axis]]
        if self._rows is None:
            raise StoreError(f"Level {level} of {self._release.id} cannot be read before the level that it repeats.")
        self._marked[level], self._shares[level] = self._marked[level - 1], self._shares[level - 1]
        above, self._above = self._above, {}
        self._give(level, [_NOTHING] * len(self._tree.axes), _NOTHING)
        for (of, branch), shard in self.record.shards["counts"].items():
            if of == level:
                kept, nodes = self.job.nodes(shard), self._of_parents(branch, level, above)
                self._above[branch] = nodes[slice(len(kept))]  # a root of 0 has no cell
                self._give(level, kept.areas, self._above[branch].noisy)
        rows = self._rows
        if level == 1:  # a root of 0 has a row, and no cell
            root = rows[:]
            rows = root[np.flatnonzero(root.counts)]
        return self._kept_for(level + 1, _Repeated(rows, axis, child))

    def _signals(self, level: int, areas: Sequence[AreaArray], noisy: IntArray) -> BoolArray:
        """Return which rows of a level stand out from the noise, and keep how many do.

        Where a level is exact, or only cells with records are measured, every row has a true count.
        """
        of_level, finest = self._release.levels[level], self._release.levels[-1]
        margin: int | IntArray | None = None
        if of_level.is_invariant or finest.threshold:
            signal = noisy > 0
        else:
            noise = noise_of(finest if of_level.is_summed else of_level)
            wide = [of_axis.astype(np.int64) for of_axis in areas] if of_level.is_summed else []
            leaves = self._tree.leaves_below(level, wide) if wide else None
            cells = _listed(of_level) if of_level.is_summed else self.record.cells_of(level)[0]

            def margin_of(log_tail: float) -> int | IntArray:
                return noise.quantile(log_tail) if leaves is None else sum_margins(noise, leaves, log_tail)

            signal, margin = signals(noisy, cells, self._terms.signal_rate, margin_of)
        rows, above = int(np.count_nonzero(signal)), margin if isinstance(margin, int) else None
        self._marked[level] = Signal(rows=rows, above=above) if rows else None
        return signal

    def _shares_of_sums(self, level: int, areas: Sequence[AreaArray], noisy: IntArray) -> Shares | None:
        """Return how much of a level's rows is noise, where only leaves are measured; None where rows are never noise alone."""
        terms, finest = self._release.levels[level], self._release.levels[-1]
        if finest.threshold:
            return None
        leaves = self._tree.leaves_below(level, [of_axis.astype(np.int64) for of_axis in areas])
        return shares_of_sums(noise_of(finest), noisy, leaves, _listed(terms))

    def shares(self, level: int) -> Shares | None:
        """Return how much of a level's rows is noise, once it is read; None where it has no row, or none that may be noise."""
        return self._shares[level]

    def known_after(self) -> list[KnownAfter]:
        """Return, per level, what is known after all levels were read."""
        # the bias and the counts together reveal the sum of the noisy counts
        bias = {} if self._terms.rounded else self.bias
        of_rows, simultaneous = (self._margins + [[]] * 2)[:2]
        levels, confidence = self._release.levels, self._terms.confidence
        own = [noise_of(level) for level in own_levels(levels)]
        fixed = for_every_level(levels, margins_of(own, confidence)) if of_rows else []
        bounds = for_every_level(levels, bounds_after(self._moves)) if self._moves else []
        return [
            KnownAfter(
                bias.get(level),
                self._rounded_up(level, bounds[level]) if bounds else None,
                self._promise(level),
                of_rows[level].own if of_rows else None,
                fixed[level].cap if fixed else None,
                simultaneous[level].own if simultaneous else None,
                self._marked[level],
                self._shares[level],
            )
            for level in range(len(levels))
        ]

    def _promise(self, level: int) -> Promise | None:
        """Return what the intervals of a level promise; None where none are stated."""
        if self._margins:
            return "rows"
        if not self._log_tails(level):
            return None
        return "cells" if self._release.levels[-1].threshold else "rows"

    def _measured(self, level: int, make: Callable[[Rows, IntArray], T]) -> Iterator[T]:
        """Yield what is made of the rows of a measured level and their noisy counts, branch by branch; keep its nodes for the next level."""
        self._give(level, [_NOTHING] * len(self._tree.axes), _NOTHING)
        above, self._above = self._above, {}
        noise = noise_of(self._release.levels[level])
        seen = SeenCounts(noise) if noise else None
        moves = Moves(self._reach(level))
        shards = [shard for (of, _), shard in self.record.shards["counts"].items() if of == level]
        threads = 1 if self.sink else self.threads  # the sink receives cells in their order

        def read_one(shard: Shard) -> tuple[_Read, T]:
            rows, noisy, read = self._read(shard, above)
            return read, make(rows, noisy)

        ahead = side_by_side(read_one, shards, threads, waiting=1)
        for shard, (read, made) in zip(shards, ahead, strict=True):
            self._above[shard.branch] = read.nodes
            moves.add_all(read.moves)
            if seen and read.seen:
                seen.add_all(read.seen)
            yield made
        self.bias[level] = moves.bias
        self._moves.append(moves)
        self._shares[level] = seen.shares() if seen else EXACT if self.record.rows_of(level) else None

    def _read(self, shard: Shard, above: Mapping[str, _Nodes]) -> tuple[Rows, IntArray, _Read]:
        """Return the rows of a level of a branch, their noisy counts, and what else is needed, by the counts that its first pass has left."""
        level, branch = shard.level, shard.branch
        noise = noise_of(self._release.levels[level])
        seen, moves = SeenCounts(noise) if noise else None, Moves(self._reach(level))
        margins = [of_kind[level] for of_kind in self._margins]
        kept = self.job.nodes(shard)
        rows, counts = released = self._released_of(level, branch, kept)
        noisy, parents = self._of_nodes(level, branch, kept, released, above, seen, moves)
        nodes = _Nodes(
            noisy, [caps(noisy, margin.cap, of_kind) for margin, of_kind in zip(margins, parents.caps, strict=True)]
        )
        if seen:
            seen.add_rows(noisy[rows])
        bounds: list[IntArray] = []
        for margin, of_kind in zip(margins, parents.caps, strict=True):
            bounds += self._rounded(level, *intervals(noisy[rows], margin.own, of_kind[rows], counts))
        areas = tuple(column[rows] for column in kept.areas)
        return Rows(areas, counts, tuple(bounds)), noisy[rows], _Read(nodes, seen, moves)

    def _reach(self, level: int) -> int:
        """Return what no noise of a level exceeds, while none of any other level does, with the confidence of bounds."""
        levels, cells = self._release.levels, self.record.cells_of(level)[0]
        return reach_after(noise_of(levels[level]), cells, sum(not of.is_invariant for of in own_levels(levels)))

    def _of_nodes(
        self,
        level: int,
        branch: str,
        kept: Frontier,
        released: tuple[slice | IntArray, IntArray],
        above: Mapping[str, _Nodes],
        seen: SeenCounts | None,
        moves: Moves,
    ) -> tuple[IntArray, _Nodes]:
        """Return the noisy counts of a branch's kept nodes, and what is known of the parent of each.

        All noisy counts of the branch are given to the sink and to what looks at them.
        """
        parts = self.job.noisy(level, branch)
        counts = np.zeros(len(kept), dtype=np.int64)
        counts[released[0]] = released[1]
        if level == 0:
            noisy = next(parts)
            self._give(level, kept.areas, noisy)
            moves.add(noisy, counts)
            parent = _Nodes(np.zeros(1, dtype=np.int64), [np.full(1, NO_CAP) for _ in self._margins])
            if seen:
                seen.add(noisy)
            return noisy, parent
        parents = self.job.parents(level, branch)
        of_parents = self._of_parents(branch, level, above)
        first_kept, cell = cells_of(self._tree, parents, kept)
        of_cells = cell_counts(self._tree, parents)
        take, before = taking(parts), 0
        of_nodes = np.empty(len(kept), dtype=np.int64)
        for nodes in chunks(of_cells, CHUNK_CELLS):
            chunk = take(int(of_cells[nodes].sum()))
            rows = slice(first_kept[nodes.start], first_kept[nodes.stop])
            there = cell[rows] - before
            of_nodes[rows] = chunk[there]
            if self.sink:
                self._give(level, expand(self._tree, parents[nodes]).areas, chunk)
            if seen:
                seen.add(chunk)
            of_chunk = np.zeros(len(chunk), dtype=np.int64)
            of_chunk[there] = counts[rows]
            moves.add(chunk, of_chunk)
            before += len(chunk)
        return of_nodes, of_parents[np.repeat(np.arange(len(parents)), np.diff(first_kept))]

    def _of_parents(self, branch: str, level: int, above: Mapping[str, _Nodes]) -> _Nodes:
        """Return what is known of the nodes above a level of a branch."""
        cut = self.record.branches.get(branch)
        if cut is None or cut.cut_level != level - 1:
            return above[branch]
        return above[cut.parent][slice(cut.first_node, cut.end_node)]

    def _released_of(self, level: int, branch: str, kept: Frontier) -> tuple[slice | IntArray, IntArray]:
        """Return which of the kept nodes are released, and their counts."""
        shard = self.record.released[level, branch]
        if shard.kind == "counts":
            return slice(None), kept.counts
        columns = self.job.shard_store.columns(shard.name, shard.sha256)
        return columns["row"], columns["count"]

    def _leaves(self, level: int) -> Iterator[tuple[Rows, IntArray]]:
        """Yield a level of a mechanism that measures leaves only, with its noisy counts, which are its counts."""
        finest = self._release.levels[-1]
        is_finest, noise = level == self._tree.depth, noise_of(finest)
        if is_finest and not finest.threshold:
            self.bias[level] = 0.0
            self._give_leaves(level)
        for part in self.job.level(level, self.record.shards["counts"]):
            areas, counts = part.areas, part.counts
            bounds: list[IntArray] = []
            for log_tail in self._log_tails(level):
                margin: int | IntArray = (
                    noise.quantile(log_tail)
                    if is_finest
                    else sum_margins(noise, self._tree.leaves_below(level, areas), log_tail)
                )
                bounds += intervals(counts, margin, NO_CAP, counts)
            yield Rows(areas, counts, tuple(bounds)), counts

    def _log_tails(self, level: int) -> list[float]:
        """Return, per kind of interval, the logarithm of the probability on one side; empty if none can be stated.

        Every cell of a level is a sum of measured leaves, and no two share one. Where only leaves with records are measured,
        their number is secret, and the interval is that of a leaf that is fixed beforehand.
        """
        terms, finest = self._release.levels[level], self._release.levels[-1]
        if finest.threshold and level < finest.level:
            return []
        fixed = math.log((1 - self._terms.confidence) / 2)
        if finest.threshold:
            kinds = [fixed]
        else:
            kinds = [row_log_tail(_listed(terms), self.record.rows_of(level), self._terms.confidence)]
        if self._terms.simultaneous:
            levels = 1 if finest.threshold else len(self._release.levels)
            if terms.possible_cells is None:
                return []
            kinds.append(fixed - math.log(levels * terms.possible_cells))
        return kinds

    def _give_leaves(self, level: int) -> None:
        """Pass the noisy counts of all leaves to the sink."""
        if self.sink is None:
            return
        take = taking(self.job.noisy(level, TRUNK))
        for parents in nodes_above(self._tree, self._tree.depth, CHUNK_CELLS):
            cells = expand(self._tree, parents)
            self._give(level, cells.areas, take(len(cells)))

    def _give(self, level: int, areas: Sequence[IntArray], noisy: IntArray) -> None:
        if self.sink:
            self.sink(level, areas, noisy)

    def _rounded_up(self, level: int, bound: int) -> int:
        return int(self._rounded(level, *np.array([[0], [bound]]))[1][0])

    def _rounded(self, level: int, low: IntArray, high: IntArray) -> tuple[IntArray, IntArray]:
        if not self._terms.rounded:
            return low, high
        return rounded_outwards(low, high, rounding_step(self._release.levels[level].sigma))
