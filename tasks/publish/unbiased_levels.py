"""Levels of which every node was measured, as they are published: unbiased counts, with intervals by their exact variances."""

from dataclasses import dataclass, field

import numpy as np

from storage.releases.seals import TRUNK
from storage.releases.terms import LevelTerms
from tasks.format.manifest import Signal
from tasks.format.noisy_counts import NoisyCounts
from tasks.format.rows import Rows, in_order
from tasks.laws.named import noise_of
from tasks.publish.published_levels import KnownAfter
from tasks.tree.frontier import CHUNK_CELLS, expand, taking
from tasks.tree.job import Job
from tasks.tree.leaves import joined, nodes_above, root_of
from tasks.unbiased.least_squares import precisions_of
from tasks.unbiased.released import ReleasedTree
from tasks.uncertainty.shares import Shares


@dataclass(slots=True)
class UnbiasedLevels:
    """The levels of a release of which every node was measured.

    Attributes:
        job: the work on the validated release.
        sink: receives the noisy counts of what was measured; None if they are not needed.
    """

    job: Job
    sink: NoisyCounts | None = None
    _tree: ReleasedTree = field(init=False)
    _known: dict[int, KnownAfter] = field(default_factory=dict)  # of the levels read so far

    def __post_init__(self) -> None:
        """Compute the variances of all levels."""
        record, terms = self.job.record, self.job.record.release.terms.intervals
        noises = [noise_of(of) if of.is_measured else None for of in self._levels]
        total = int(self.job.nodes(record.frontiers[0, TRUNK]).counts[0]) if self._levels[0].is_invariant else None
        self._tree = ReleasedTree(self.job.tree, precisions_of(noises), terms.confidence, terms.signal_rate, total)

    def rows(self, level: int) -> Rows:
        """Return all released nodes of a level in the order of their codes."""
        terms, tree = self.job.record.release.terms.intervals, self.job.tree
        nodes = joined(level, self.job.level(level, self.job.record.frontiers))
        ordered = in_order(Rows(nodes.areas, nodes.counts), tree.sizes(level))
        estimates = self._tree.estimates(level, [of.astype(np.int64) for of in ordered.areas], ordered.counts)
        bounds = self._tree.intervals(level, estimates, simultaneous=terms.simultaneous)
        signal, above = estimates.signals(terms.signal_rate)
        widths = self._tree.half_widths(level, len(ordered))
        marked = int(signal.sum())
        self._known[level] = KnownAfter(
            bias=self._give(level, int(ordered.counts.sum())),
            bound=None,
            promise="rows",
            half_width=widths[0],
            cap_margin=None,
            simultaneous_half_width=widths[1] if terms.simultaneous else None,
            signal=Signal(rows=marked, above=above) if marked else None,
            shares=estimates.shares(),
            deviations=self._tree.deviations(level),
        )
        return Rows(ordered.areas, ordered.counts, bounds, signal)

    def shares(self, level: int) -> Shares | None:
        """Return how much of a level's rows is noise, once it is read."""
        return self._known[level].shares

    def known_after(self) -> list[KnownAfter]:
        """Return, per level, what is known after all levels were read."""
        return [self._known[level] for level in range(len(self._levels))]

    @property
    def _levels(self) -> tuple[LevelTerms, ...]:
        return self.job.record.release.levels

    def _give(self, level: int, released: int) -> float | None:
        """Give the noisy counts of a level to the sink, and return by how much the released ones are above them; None without any."""
        if not self._levels[level].is_measured:
            return None
        tree, take, noisy_sum = self.job.tree, taking(self.job.noisy(level, TRUNK)), 0
        parts = (expand(tree, above).areas for above in nodes_above(tree, level, CHUNK_CELLS)) if level else None
        for areas in parts or [root_of(tree, 0).areas]:
            noisy = take(len(areas[0]))
            noisy_sum += int(noisy.sum())
            if self.sink:
                self.sink.add(level, areas, noisy)
        return (released - noisy_sum) / tree.possible_cells(level)
