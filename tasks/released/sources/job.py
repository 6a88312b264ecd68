"""The sealed shards of a release as the source of an estimate, while its folder is written."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from storage.record import Record
from storage.releases.shards import TRUNK, Shard
from tasks.format.entries import LevelEntry
from tasks.format.manifest import entry_fields
from tasks.format.noisy_counts import NoisyCounts
from tasks.format.tables import Rows, in_order
from tasks.released.sources.protocol import Source, measured_cells
from tasks.released.sources.rows_kept import WalkedRows
from tasks.tree.axis import IntArray
from tasks.tree.frontier import CHUNK_CELLS, Frontier, cell_counts, cells_of, chunks, expand, joined, taking
from tasks.tree.job import Job
from tasks.tree.order import Tree
from tasks.tree.views import View
from tasks.unbiased.dense import Strategies, strategies_of
from tasks.uncertainty.intervals import NO_CAP, Margins, caps
from tasks.work.capacity import side_by_side

_NOTHING = np.zeros(0, dtype=np.int64)


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


class JobSource(Source):
    """What a release has sealed and counted.

    Attributes:
        sink: receives the noisy counts of what was measured, level by level; None if they are not needed.
        threads: how many branches are read at once, where there is no sink.
    """

    def __init__(self, job: Job, sink: NoisyCounts | None = None, disk: Path | None = None, threads: int = 1) -> None:
        self.job, self.sink, self.disk, self.threads = job, sink, disk, threads
        terms = job.record.release.terms
        self.covariance, self.statistic = terms.covariance, terms.statistic
        self.intervals, self.is_in_order = terms.intervals, False
        self.is_together = job.record.release.levels[0].source is not None
        stated = [job.record.released_part(part.level) for part in job.record.release.parts]
        self.parts = {part.level: LevelEntry(**entry_fields(part)) for part in stated}
        self.levels = [self.parts[part.level] for part in job.record.release.levels]
        self._above: dict[str, _Nodes] = {}  # by branch, the nodes kept of the level before

    @cached_property
    def tree(self) -> Tree:
        """The axes and their order."""
        return self.job.tree

    @property
    def has_groups(self) -> bool:
        """Whether a public list says how many groups there are."""
        return self.job.load_groups() is not None

    @property
    def strategies(self) -> Strategies:
        """What is measured of axes in place of the counts of their leaves."""
        return strategies_of(self._record.release.terms.strategy)

    def nodes(self, level: int) -> Rows:
        """Return the released nodes of a level in the order of their codes; areas take half the bytes of a frontier's."""
        nodes = joined(level, self.job.level(level, self._record.released))
        areas = tuple(of.astype(np.int32) for of in nodes.areas)
        return in_order(Rows(areas, nodes.counts), self.tree.sizes(level))

    def counts(self, number: int) -> IntArray:
        """Return the released counts of all cells of a level or view, zeros too, in the order of their areas."""
        return self.job.counts(number)

    def noisy(self, number: int) -> IntArray:
        """Return the noisy counts of a level or view of which every cell was measured, in that order, int64."""
        return self.job.all_noisy(number)

    def view(self, number: int) -> View:
        """Return a level or view as it is measured."""
        return self.job.view(number)

    def give(self, number: int) -> None:
        """Give the noisy counts of a level or view to the sink, if every cell of it was measured; those of others come with their runs."""
        part = self.parts[number]
        if self.sink is None or not part.is_measured or part.threshold or self._is_walked(number):
            return
        if number > self._record.finest:
            terms = self._record.release.parts[number]
            name = next(view.name for view in self._record.release.terms.views if view.number == number)
            self.sink.add_view(name, self.partition(number), self.noisy(number), terms)
            return
        take = taking(self.job.noisy(number, TRUNK))
        for areas in measured_cells(self, number):
            self.sink.add(number, areas, take(len(areas[0])))

    def runs(
        self, level: int, margins: Sequence[Sequence[Margins]], begin: Callable[[], WalkedRows]
    ) -> Iterator[WalkedRows]:
        """Yield the rows of a level that was walked, branch by branch, as in `Source`; several branches are read at once."""
        self._give(level, [_NOTHING] * len(self.tree.axes), _NOTHING)
        above, self._above = self._above, {}
        shards = [shard for (of, _), shard in self._record.shards["counts"].items() if of == level]
        of_level = [of_kind[level] for of_kind in margins]
        threads = 1 if self.sink else self.threads  # the sink receives cells in their order

        def read_one(shard: Shard) -> tuple[_Nodes, WalkedRows]:
            run = begin()
            return self._read(shard, of_level, above, run), run

        for shard, (nodes, run) in zip(shards, side_by_side(read_one, shards, threads, waiting=1), strict=True):
            self._above[shard.branch] = nodes
            yield run

    def repeat(self, level: int) -> None:
        """Go past a level that repeats the one above it."""
        above, self._above = self._above, {}
        self._give(level, [_NOTHING] * len(self.tree.axes), _NOTHING)
        for (of, branch), shard in self._record.shards["counts"].items():
            if of == level:
                kept, nodes = self.job.nodes(shard), self._of_parents(branch, level, above)
                self._above[branch] = nodes[slice(len(kept))]  # a root of 0 has no cell
                self._give(level, kept.areas, self._above[branch].noisy)

    def possible_cells(self, level: int) -> int | None:
        """Return how many cells a level can have; None where no codebook lists them."""
        return self._record.release.levels[level].possible_cells

    @property
    def _record(self) -> Record:
        return self.job.record

    def _is_walked(self, number: int) -> bool:
        """Return whether only some cells of a level were measured: the children of what was left above."""
        return not (self.has_whole_parts or self.levels[0].summed) and number <= self._record.finest

    def _read(self, shard: Shard, margins: Sequence[Margins], above: Mapping[str, _Nodes], run: WalkedRows) -> _Nodes:
        """Read the rows of a level of a branch with what was measured, and return the nodes that its first pass has kept."""
        kept = self.job.nodes(shard)
        rows, counts = self._released_of(shard.level, shard.branch, kept)
        of_kept = np.zeros(len(kept), dtype=np.int64)
        of_kept[rows] = counts
        noisy, parents = self._of_nodes(shard.level, shard.branch, kept, of_kept, above, run.see)
        nodes = _Nodes(
            noisy, [caps(noisy, margin.cap, of_kind) for margin, of_kind in zip(margins, parents.caps, strict=True)]
        )
        areas = tuple(column[rows].astype(np.int32) for column in kept.areas)
        run.read(Rows(areas, counts), noisy[rows], [of_kind[rows] for of_kind in parents.caps])
        return nodes

    def _of_nodes(
        self,
        level: int,
        branch: str,
        kept: Frontier,
        of_kept: IntArray,
        above: Mapping[str, _Nodes],
        see: Callable[[IntArray, IntArray], None],
    ) -> tuple[IntArray, _Nodes]:
        """Return the noisy counts of a branch's kept nodes, and what is known of the parent of each.

        All noisy counts of the branch are given to the sink, and shown with the released counts of their cells, chunk by chunk.
        """
        parts = self.job.noisy(level, branch)
        if level == 0:
            noisy = next(parts)
            self._give(level, kept.areas, noisy)
            see(noisy, of_kept)
            kinds = 2 if self.intervals.simultaneous else 1
            return noisy, _Nodes(np.zeros(1, dtype=np.int64), [np.full(1, NO_CAP)] * kinds)
        parents = self.job.parents(level, branch)
        of_parents = self._of_parents(branch, level, above)
        first_kept, cell = cells_of(self.tree, parents, kept)
        of_cells = cell_counts(self.tree, parents)
        take, before = taking(parts), 0
        of_nodes = np.empty(len(kept), dtype=np.int64)
        for nodes in chunks(of_cells, CHUNK_CELLS):
            chunk = take(int(of_cells[nodes].sum()))
            rows = slice(first_kept[nodes.start], first_kept[nodes.stop])
            there = cell[rows] - before
            of_nodes[rows] = chunk[there]
            if self.sink:
                self._give(level, expand(self.tree, parents[nodes]).areas, chunk)
            of_chunk = np.zeros(len(chunk), dtype=np.int64)
            of_chunk[there] = of_kept[rows]
            see(chunk, of_chunk)
            before += len(chunk)
        return of_nodes, of_parents[np.repeat(np.arange(len(parents)), np.diff(first_kept))]

    def _of_parents(self, branch: str, level: int, above: Mapping[str, _Nodes]) -> _Nodes:
        """Return what is known of the nodes above a level of a branch."""
        cut = self._record.branches.get(branch)
        if cut is None or cut.cut_level != level - 1:
            return above[branch]
        return above[cut.parent][slice(cut.first_node, cut.end_node)]

    def _released_of(self, level: int, branch: str, kept: Frontier) -> tuple[slice | IntArray, IntArray]:
        """Return which of the kept nodes are released, and their counts."""
        shard = self._record.released[level, branch]
        if shard.kind == "counts":
            return slice(None), kept.counts
        columns = self.job.shard_store.columns(shard.name, shard.sha256)
        return columns["row"], columns["count"]

    def _give(self, level: int, areas: Sequence[IntArray], noisy: IntArray) -> None:
        if self.sink:
            self.sink.add(level, areas, noisy)
