"""The checks of a folder whose measurements were settled together: what follows from its noisy counts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from storage.counts.columns import COUNT, HIGH, LOW, NOISY, SIGNAL
from tasks.format.batches import scan_level
from tasks.format.manifest import LevelEntry, Manifest, ViewEntry
from tasks.format.noisy_counts import CODEBOOK, noisy_counts_path, noisy_view_path
from tasks.format.published_tree import (
    areas_of_rows,
    derived_columns,
    tree_of_codebook,
    view_of,
)
from tasks.laws.named import noise_of
from tasks.tree.axis import IntArray
from tasks.tree.order import Tree
from tasks.tree.views import Derived, Partition, ViewCells
from tasks.uncertainty.intervals import row_log_tail
from tasks.uncertainty.sources import MeasuredSums, below_zero, measured_sums, single
from tasks.verify.measured.stated_shares import states_shares
from tasks.verify.views import best_source_failures, noisy_view_failures, view_table


@dataclass(slots=True)
class Settled:
    """A folder with noisy counts, whose measurements were settled together. Its tables are correct on their own.

    Attributes:
        folder: the folder.
        manifest: its manifest.
    """

    folder: Path
    manifest: Manifest
    _tree: Tree = field(init=False)
    _derived: Mapping[str, Derived] = field(init=False)
    _sources: dict[int, tuple[Partition, IntArray]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the tree and the derived columns."""
        self._tree = tree_of_codebook(self.manifest, pl.read_parquet(self.folder / CODEBOOK, glob=False))
        self._derived = derived_columns(self.folder, self.manifest)

    def source_failures(self) -> list[str]:
        """Return which sources of intervals are not the measurements that say most about their levels and views."""
        return best_source_failures(self.manifest, self._derived, self._tree)

    def misfit(self, entry: LevelEntry) -> str:
        """Return how the rows of a level contradict the noisy counts, as the end of a sentence; empty if they agree."""
        table = scan_level(self.folder, entry).collect()
        partition, sums = self._measured(entry)
        rows, counts = self._places(partition, table), table[COUNT].to_numpy()
        low, high = sums.row_intervals(rows, counts, self._confidence, self._total)
        if not _equal(table, low, high):
            return "does not have the intervals that follow from the noisy counts."
        if entry.half_width != single(sums.margin(row_log_tail(len(sums), len(rows), self._confidence))):
            return "does not have the half_width that the manifest states."
        bias = (int(counts.sum()) - int(sums.noisy.sum())) / max(len(sums), 1)
        if entry.bias is None or not math.isclose(entry.bias, bias, abs_tol=1e-9):
            return "does not have the bias that the manifest states."
        signal, _ = sums.signals(rows, self.manifest.intervals.signal_rate)
        if not np.array_equal(signal, table[SIGNAL].to_numpy()):
            return f"does not mark the rows as {SIGNAL} that stand out."
        if not states_shares(entry, sums.shares(rows)):
            return "does not agree with noise_rows or above_noise of the manifest."
        return ""

    def view_misfit(self, view: ViewEntry) -> str:
        """Return how the cells of a view contradict the noisy counts, as the end of a sentence; empty if they agree."""
        table = view_table(self.folder, view)
        _, sums = self._measured(view)
        low, high = sums.cell_intervals(table[COUNT].to_numpy(), self._confidence, self._total)
        if not _equal(table, low, high):
            return "does not have the intervals that follow from the noisy counts."
        of_cells = single(sums.margin(math.log((1 - self._confidence) / 2)))
        return "" if view.half_width == of_cells else "does not have the half_width that the manifest states."

    @property
    def _confidence(self) -> float:
        return self.manifest.intervals.confidence

    @property
    def _total(self) -> int | None:
        """The exact count of everything; None where it is not published exactly."""
        if self.manifest.levels[0].sigma:
            return None
        return int(scan_level(self.folder, self.manifest.levels[0]).collect()[COUNT].item())

    def _measured(self, entry: LevelEntry) -> tuple[Partition, MeasuredSums]:
        """Return the cells of a level or view, and what was measured of them."""
        parts = {part.level: part for part in self.manifest.parts}
        source = parts[entry.level if entry.source is None else entry.source]
        partition = Partition(self._tree, view_of(self.manifest, entry, self._derived))
        of_source, noisy = self._source(source)
        if not len(noisy):  # level 1 of a total of 0
            _, total = self._source(parts[0])
            return partition, below_zero(len(partition), int(total[0]), noise_of(parts[0]))
        return partition, measured_sums(partition, of_source, noisy, noise_of(source))

    def _source(self, entry: LevelEntry) -> tuple[Partition, IntArray]:
        """Return the cells of what was measured, and their noisy counts in the order of their areas."""
        if entry.level not in self._sources:
            partition = Partition(self._tree, view_of(self.manifest, entry, self._derived))
            is_level = entry.level <= self._tree.depth
            path = (
                noisy_counts_path(self.folder, entry.level)
                if is_level
                else noisy_view_path(self.folder, self._name(entry))
            )
            self._sources[entry.level] = partition, pl.read_parquet(path, glob=False)[NOISY].to_numpy()
        return self._sources[entry.level]

    def _name(self, entry: LevelEntry) -> str:
        """Return the name of a view by its number."""
        return next(view.name for view in self.manifest.own_views if view.level == entry.level)

    def _places(self, partition: Partition, table: pl.DataFrame) -> IntArray:
        """Return the cells that are rows of a level's table."""
        levels = partition.view.axis_levels
        return partition.places(ViewCells(levels, areas_of_rows(self.manifest, self._tree, levels, table)))


def settled_failures(folder: Path, manifest: Manifest) -> list[str]:
    """Return which tables do not follow from the published noisy counts, one sentence each."""
    settled = Settled(folder, manifest)
    failures = noisy_view_failures(folder, manifest)
    failures += settled.source_failures() if manifest.is_settled_together else []
    if failures or manifest.intervals.rounded:
        return failures
    for entry in manifest.levels if manifest.is_settled_together else []:
        failures += [f"{entry.path} {wrong}"] if (wrong := settled.misfit(entry)) else []
    for view in manifest.views:
        failures += [f"views/{view.name}.parquet {wrong}"] if (wrong := settled.view_misfit(view)) else []
    return failures


def _equal(table: pl.DataFrame, low: IntArray, high: IntArray) -> bool:
    return np.array_equal(table[LOW].to_numpy(), low) and np.array_equal(table[HIGH].to_numpy(), high)
