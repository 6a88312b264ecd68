"""Levels and views that were settled together, as they are published: counts, with intervals from what was measured of their cells."""

import math
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from storage.counts.columns import COUNT, INTERVAL, column_name
from storage.releases.parts import Part
from storage.releases.shards import TRUNK, shard_name
from storage.releases.terms import Intervals, ViewTerms
from tasks.format.manifest import Rounding, Signal
from tasks.format.noisy_counts import NoisyCounts
from tasks.format.rows import Rows
from tasks.laws.named import noise_of
from tasks.publish.published_levels import KnownAfter
from tasks.tree.axis import IntArray
from tasks.tree.job import Job
from tasks.tree.views import Partition, ViewCells
from tasks.uncertainty.intervals import rounded_outwards, rounding_step, row_log_tail
from tasks.uncertainty.shares import Shares
from tasks.uncertainty.sources import MeasuredSums, below_zero, measured_sums, single


@dataclass(slots=True)
class SettledLevels:
    """The levels and views of a release whose measurements were settled together; or its views alone, where they were not.

    Attributes:
        job: the work on the validated release.
        sink: receives the noisy counts of what was measured; None if they are not needed.
    """

    job: Job
    sink: NoisyCounts | None = None
    _known: dict[int, KnownAfter] = field(default_factory=dict)  # of the levels read so far

    def rows(self, level: int) -> Rows:
        """Return all released nodes of a level in the order of their codes."""
        shard = self.job.record.shards["counts"][level, TRUNK]
        nodes, partition, sums = self.job.nodes(shard), self.job.partition(level), self._measured(level)
        cells = partition.places(ViewCells(partition.view.axis_levels, nodes.areas))
        bounds = self._rounded(level, *sums.row_intervals(cells, nodes.counts, self._terms.confidence, self._total))
        signal, above = sums.signals(cells, self._terms.signal_rate)
        self._know(level, sums, nodes.counts, cells, int(np.count_nonzero(signal)), above)
        if self.sink:
            self._give(level, partition)
        areas = tuple(of_axis.astype(np.int32) for of_axis in nodes.areas)
        return Rows(areas, nodes.counts, bounds, signal)

    def shares(self, level: int) -> Shares | None:
        """Return how much of a level's rows is noise, once it is read."""
        return self._known[level].shares

    def known_after(self) -> list[KnownAfter]:
        """Return, per level, what is known after all levels were read."""
        return [self._known[level] for level in range(len(self.job.record.release.levels))]

    def view_table(self, view: ViewTerms, flat: frozenset[str]) -> pa.Table:
        """Return a view as it is published; as `view_table`."""
        partition, counts = self.job.partition(view.number), self.job.counts(view.number)
        if (
            self.sink
            and view.number > self.job.record.finest
            and (view.number, TRUNK) in self.job.record.shards["noisy"]
        ):
            self.sink.add_view(view.name, partition, self.job.all_noisy(view.number), self._part(view.number))
        return view_table(partition, flat, counts, self.view_intervals(view))

    def view_intervals(self, view: ViewTerms) -> tuple[IntArray, IntArray]:
        """Return the ends of the intervals of all cells of a view, in the order of their areas."""
        counts, sums = self.job.counts(view.number), self._measured(view.number)
        return self._rounded(view.number, *sums.cell_intervals(counts, self._terms.confidence, self._total))

    def half_width(self, view: ViewTerms) -> int | None:
        """Return z of the intervals of a view; None where its cells have different ones."""
        sums = self._measured(view.number)
        return single(sums.margin(math.log((1 - self._terms.confidence) / 2)))

    def deviations(self, view: ViewTerms) -> tuple[float, float] | None:  # noqa: ARG002
        """Return None: the counts of a view have no stated standard deviation."""
        return None

    def rounding(self) -> Rounding | None:
        """Return how far rounding has moved all that was measured; None where it was not settled together."""
        record, finest = self.job.record, self.job.record.finest
        if record.release.levels[0].source is None:
            return None
        shard = record.shards["estimates"][finest, TRUNK]
        deviations = self.job.shard_store.columns(shard_name("estimates", finest, TRUNK), shard.sha256)[
            "deviation"
        ].tolist()
        names = {view.number: view.name for view in record.release.terms.views if view.number > finest}
        measured = [*sorted({number for number, _ in record.shards["noisy"]} - {finest}), finest]
        stated = {names.get(of, f"level_{of}"): moved for of, moved in zip(measured, deviations, strict=True)}
        return Rounding(exact=max(deviations) < 1, deviation=stated)

    @property
    def _terms(self) -> Intervals:
        return self.job.record.release.terms.intervals

    @property
    def _total(self) -> int | None:
        """The exact count of everything; None where it is not published exactly."""
        release, record = self.job.record.release, self.job.record
        return int(self.job.nodes(record.released[0, TRUNK]).counts[0]) if release.levels[0].is_invariant else None

    def _part(self, number: int) -> Part:
        return self.job.record.release.parts[number]

    def _measured(self, number: int) -> MeasuredSums:
        """Return what was measured of the cells of a level or view: by its source, or by itself where it names none."""
        stated = self._part(number).source
        source = number if stated is None else stated
        partition, noisy = self.job.partition(number), self.job.all_noisy(source)
        if not len(noisy):  # level 1 of a total of 0
            return below_zero(len(partition), int(self.job.all_noisy(0)[0]), noise_of(self._part(0)))
        return measured_sums(partition, self.job.partition(source), noisy, noise_of(self._part(source)))

    def _know(
        self,
        level: int,
        sums: MeasuredSums,
        counts: IntArray,
        cells: IntArray,
        marked: int,
        above: int | IntArray | None,
    ) -> None:
        """Keep what is known of a level."""
        released = int(counts.sum()) - int(sums.noisy.sum())
        bias = None if self._terms.rounded else released / max(len(sums), 1)
        log_tail = row_log_tail(len(sums), len(cells), self._terms.confidence)
        self._known[level] = KnownAfter(
            bias=bias,
            bound=None,
            promise="rows",
            half_width=single(sums.margin(log_tail)),
            cap_margin=None,
            simultaneous_half_width=None,
            signal=Signal(rows=marked, above=single(above)) if marked else None,
            shares=sums.shares(cells),
        )

    def _give(self, level: int, partition: Partition) -> None:
        """Give the noisy counts of a level to the sink, if it was measured."""
        if self.sink and (level, TRUNK) in self.job.record.shards["noisy"]:
            self.sink.add(level, partition.cells().areas, self.job.all_noisy(level))

    def _rounded(self, number: int, low: IntArray, high: IntArray) -> tuple[IntArray, IntArray]:
        if not self._terms.rounded:
            return low, high
        return rounded_outwards(low, high, rounding_step(self._part(number).sigma))


def view_table(
    partition: Partition, flat: frozenset[str], counts: IntArray, ends: tuple[IntArray, IntArray]
) -> pa.Table:
    """Return a view as it is published: a row for every cell, zeros too, in the order of their codes.

    Its columns are those of the codes of its axes, coarse to fine, and of its derived columns; then the count, low and high.

    Args:
        partition: the view.
        flat: the features that have one level.
        counts: of all cells, in the order of their areas, int64, shape (cells,), records.
        ends: low and high of each, of the same shape.
    """
    columns = dict(code_columns(partition, flat))
    return pa.table(columns | dict(zip((COUNT, *INTERVAL), (counts, *ends), strict=True)))


def code_columns(
    partition: Partition, flat: frozenset[str], cells: IntArray | None = None
) -> list[tuple[str, pa.Array]]:
    """Return the columns of codes of the cells of a view, of all or of some by their places, each with its name.

    Args:
        partition: the view.
        flat: the features that have one level.
        cells: the places of the cells.
    """
    found, of_cells = list[tuple[str, pa.Array]](), partition.cells(cells)
    for axis, areas, level in zip(partition.tree.axes, of_cells.areas, of_cells.levels, strict=True):
        for own in range(1, level + 1):
            codes = axis.codes[own - 1].to_arrow().cast(pa.string())
            found.append(
                (
                    column_name(axis.name, axis.level_names[own - 1], flat),
                    codes.take(pa.array(axis.ancestors(areas, level, own))),
                )
            )
    for column in partition.view.derived:
        codes = column.codes.to_arrow().cast(pa.string())
        found.append((column.name, codes.take(pa.array(of_cells.codes[column.name]))))
    return found
