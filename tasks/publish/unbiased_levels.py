"""Levels and views of which every node was measured, as they are published: unbiased counts, with intervals by their exact variances."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from storage.releases.parts import Part
from storage.releases.shards import TRUNK
from storage.releases.terms import GRID, ViewTerms
from tasks.format.manifest import Signal
from tasks.format.noisy_counts import NoisyCounts
from tasks.format.rows import Rows, in_order
from tasks.laws.named import noise_of
from tasks.publish.published_levels import KnownAfter
from tasks.publish.settled_levels import view_table
from tasks.tree.axis import IntArray
from tasks.tree.frontier import CHUNK_CELLS, expand, taking
from tasks.tree.job import Job
from tasks.tree.leaves import joined, nodes_above, root_of
from tasks.unbiased.released import ReleasedCounts, released_counts
from tasks.uncertainty.shares import Shares


@dataclass(slots=True)
class UnbiasedLevels:
    """The levels of a release of which every node was measured, and the views of a grid.

    Attributes:
        job: the work on the validated release.
        sink: receives the noisy counts of what was measured; None if they are not needed.
    """

    job: Job
    sink: NoisyCounts | None = None
    _counts: ReleasedCounts = field(init=False)
    _known: dict[int, KnownAfter] = field(default_factory=dict)  # of the levels read so far

    def __post_init__(self) -> None:
        """Compute the variances of all levels."""
        record, terms = self.job.record, self.job.record.release.terms
        measured = [
            (self.job.view(of.level).axis_levels, noise_of(of) if of.is_measured else None)
            for of in record.release.parts
        ]
        total = (
            int(self.job.nodes(record.shards["counts"][0, TRUNK]).counts[0]) if self._levels[0].is_invariant else None
        )
        self._counts = released_counts(
            self.job.tree, measured, terms.intervals.confidence, total, is_grid=terms.covariance == GRID
        )

    def rows(self, level: int) -> Rows:
        """Return all released nodes of a level in the order of their codes."""
        terms, tree = self.job.record.release.terms.intervals, self.job.tree
        nodes, levels = joined(level, self.job.level(level, self.job.record.shards["counts"])), tree.axis_levels(level)
        ordered = in_order(Rows(nodes.areas, nodes.counts), tree.sizes(level))
        estimates = self._counts.estimates(levels, [of.astype(np.int64) for of in ordered.areas], ordered.counts)
        bounds = self._counts.intervals(levels, estimates, simultaneous=terms.simultaneous)
        signal, above = estimates.signals(terms.signal_rate)
        widths = self._counts.half_widths(levels, len(ordered))
        marked = int(signal.sum())
        self._give(level)
        self._known[level] = KnownAfter(
            bias=None,
            bound=None,
            promise="cells" if self._counts.is_grid else "rows",
            half_width=widths[0],
            cap_margin=None,
            simultaneous_half_width=widths[1] if terms.simultaneous else None,
            signal=Signal(rows=marked, above=above) if marked else None,
            shares=estimates.shares(),
            deviations=self._counts.deviations(levels),
        )
        return Rows(ordered.areas, ordered.counts, bounds, signal)

    def shares(self, level: int) -> Shares | None:
        """Return how much of a level's rows is noise, once it is read."""
        return self._known[level].shares

    def known_after(self) -> list[KnownAfter]:
        """Return, per level, what is known after all levels were read."""
        return [self._known[level] for level in range(len(self._levels))]

    def view_table(self, view: ViewTerms, flat: frozenset[str]) -> pa.Table:
        """Return a view of a grid as it is published; as `tasks.publish.settled_levels.view_table`."""
        partition, counts = self.job.partition(view.number), self.job.counts(view.number)
        if self.sink and (view.number, TRUNK) in self.job.record.shards["noisy"]:
            noisy, terms = self.job.all_noisy(view.number), self.job.record.release.parts[view.number]
            self.sink.add_view(view.name, partition, noisy, terms)
        estimates = self._counts.estimates(view.levels, partition.cells().areas, counts)
        return view_table(partition, flat, counts, self._counts.cell_intervals(estimates))

    def half_width(self, view: ViewTerms) -> int | None:
        """Return z of the intervals of a view; None where its cells have different ones."""
        return self._counts.cell_half_width(view.levels)

    def deviations(self, view: ViewTerms) -> tuple[float, float] | None:
        """Return the least and the most standard deviation of a released count of a view, records."""
        return self._counts.deviations(view.levels)

    @property
    def _levels(self) -> tuple[Part, ...]:
        return self.job.record.release.levels

    def _give(self, level: int) -> None:
        """Give the noisy counts of a level to the sink."""
        if self.sink is None or not self._levels[level].is_measured:
            return
        take = taking(self.job.noisy(level, TRUNK))
        for areas in self._measured_areas(level):
            self.sink.add(level, areas, take(len(areas[0])))

    def _measured_areas(self, level: int) -> Iterator[Sequence[IntArray]]:
        """Yield the areas of all cells of a level, in the order in which they were measured, in parts."""
        tree = self.job.tree
        if self._counts.is_grid:
            yield self.job.partition(level).cells().areas
        elif level:
            yield from (expand(tree, above).areas for above in nodes_above(tree, level, CHUNK_CELLS))
        else:
            yield root_of(tree, 0).areas
