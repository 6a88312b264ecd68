"""Levels of group sizes, as they are published: whole numbers of groups, with intervals by what was measured of each size."""

from dataclasses import dataclass, field

import numpy as np

from storage.releases.parts import Part
from storage.releases.shards import TRUNK
from tasks.format.manifest import Signal
from tasks.format.noisy_counts import NoisyCounts
from tasks.format.rows import Rows
from tasks.groups.released import MeasuredSizes, ReleasedSizes
from tasks.groups.sources import measured_sizes
from tasks.laws.named import noise_of
from tasks.publish.published_levels import KnownAfter
from tasks.tree.axis import IntArray
from tasks.tree.frontier import CHUNK_CELLS, expand, taking
from tasks.tree.job import Job
from tasks.tree.leaves import joined, nodes_above
from tasks.uncertainty.intervals import rounded_outwards, rounding_step
from tasks.uncertainty.shares import Shares


@dataclass(slots=True)
class SizeLevels:
    """The levels of a release of group sizes.

    Attributes:
        job: the work on the validated release.
        sink: receives what was measured; None if it is not needed.
    """

    job: Job
    sink: NoisyCounts | None = None
    _known: dict[int, KnownAfter] = field(default_factory=dict)  # of the levels read so far

    def rows(self, level: int) -> Rows:
        """Return all released nodes of a level in the order of their codes."""
        terms = self.job.record.release.terms.intervals
        released = ReleasedSizes(self._counts(level), self._measured(level), terms.confidence, is_total=not level)
        tails = [released.log_tail]
        if terms.simultaneous:
            tails.append(released.simultaneous_log_tail(len(self._levels)))
        step = rounding_step(self._levels[level].sigma) if terms.rounded else 1
        bounds = [end for tail in tails for end in rounded_outwards(*released.intervals(tail), step)]
        signal, above = released.signals(terms.signal_rate)
        marked, widths = int(signal.sum()), [released.widest(tail) for tail in tails]
        self._known[level] = KnownAfter(
            bias=None,
            bound=None,
            promise="rows",
            half_width=widths[0],
            cap_margin=None,
            simultaneous_half_width=widths[1] if terms.simultaneous else None,
            signal=Signal(rows=marked, above=above) if marked else None,
            shares=None,
        )
        self._give(level)
        region, size = released.places
        return Rows((region, size), released.counts[region, size], tuple(bounds), signal)

    def shares(self, level: int) -> Shares | None:
        """Return how much of a level's rows is noise: that is not estimated where adjacent sizes share noise."""
        return self._known[level].shares

    def known_after(self) -> list[KnownAfter]:
        """Return, per level, what is known after all levels were read."""
        return [self._known[level] for level in range(len(self._levels))]

    @property
    def _levels(self) -> tuple[Part, ...]:
        return self.job.record.release.levels

    def _counts(self, level: int) -> IntArray:
        """Return the released numbers of groups of a level, shape (regions, sizes); of level 0 there is one of each."""
        nodes, tree = joined(level, self.job.level(level, self.job.record.shards["counts"])), self.job.tree
        counts = np.zeros(tree.sizes(level), dtype=np.int64)
        counts[nodes.areas] = nodes.counts
        return counts

    def _measured(self, level: int) -> MeasuredSizes:
        """Return what was measured of the regions of a level."""
        job, tree = self.job, self.job.tree
        groups = None
        if job.load_groups() is not None:
            groups = self._counts(max(level, 1)).sum(axis=1)  # the public numbers, which counts add up to
        noises = {of.level: noise_of(of) for of in self._levels if of.is_measured}
        found = measured_sizes(tree, level, job.record.release.terms.statistic, noises, job.all_noisy, groups)
        return found if level else found.of_everything()

    def _give(self, level: int) -> None:
        """Give what was measured of a level to the sink."""
        if self.sink is None or not self._levels[level].is_measured:
            return
        take = taking(self.job.noisy(level, TRUNK))
        for above in nodes_above(self.job.tree, level, CHUNK_CELLS):
            areas = expand(self.job.tree, above).areas
            self.sink.add(level, areas, take(len(areas[0])))
