"""The checks of a folder of group sizes: its intervals follow from its noisy counts."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from storage.counts.columns import COUNT, NOISY, SIGNAL
from tasks.format.batches import scan_level
from tasks.format.manifest import LevelEntry, Manifest
from tasks.format.noisy_counts import CODEBOOK, noisy_counts_path
from tasks.format.published_tree import areas_of_rows, tree_of_codebook
from tasks.groups.released import MeasuredSizes, ReleasedSizes
from tasks.groups.sources import measured_sizes
from tasks.laws.named import noise_of
from tasks.tree.axis import IntArray
from tasks.tree.order import Tree


def size_failures(folder: Path, manifest: Manifest) -> list[str]:
    """Return which tables do not follow from the published noisy counts, one sentence each.

    Raises:
        UNREADABLE: a table cannot be read.
        polars.exceptions.PolarsError: likewise.
    """
    sizes = Sizes(folder, manifest)
    if wrong := sizes.out_of_order():
        return [wrong]
    return [f"{entry.path} {wrong}" for entry in manifest.levels if (wrong := sizes.misfit(entry))]


@dataclass(slots=True)
class Sizes:
    """A folder of group sizes with its noisy counts. Its tables are correct on their own.

    Attributes:
        folder: the folder.
        manifest: its manifest.
    """

    folder: Path
    manifest: Manifest
    _tree: Tree = field(init=False)

    def __post_init__(self) -> None:
        """Read the tree."""
        self._tree = tree_of_codebook(self.manifest, pl.read_parquet(self.folder / CODEBOOK, glob=False))

    def misfit(self, entry: LevelEntry) -> str:
        """Return how the rows of a level contradict their noisy counts, as the end of a sentence; empty if they agree."""
        table, stated, level = self._table(entry), self.manifest.intervals, entry.level
        released = ReleasedSizes(self._counts(level), self._measured(level), stated.confidence, is_total=not level)
        tails = [released.log_tail]
        if stated.simultaneous:
            tails.append(released.simultaneous_log_tail(len(self.manifest.levels)))
        ends = [end for tail in tails for end in released.intervals(tail)]
        if not all(np.array_equal(table[name].to_numpy(), end) for name, end in zip(stated.columns, ends, strict=True)):
            return "does not have the intervals that follow from the noisy counts."
        widths = [released.widest(tail) for tail in tails]
        if (entry.half_width, entry.simultaneous_half_width) != (widths[0], widths[1] if stated.simultaneous else None):
            return "does not have the half_width that the manifest states."
        signal, above = released.signals(stated.signal_rate)
        if not np.array_equal(signal, table[SIGNAL].to_numpy()) or (entry.signal and entry.signal.above != above):
            return f"does not mark the rows as {SIGNAL} that stand out."
        return ""

    def out_of_order(self) -> str:
        """Return which noisy counts do not list every cell in the order of the tree, in a sentence; empty if none."""
        for entry in self.manifest.levels:
            if entry.summed:
                continue
            regions, sizes = self._tree.sizes(entry.level)
            found = pl.read_parquet(noisy_counts_path(self.folder, entry.level), glob=False)
            of_size, of_region = np.divmod(np.arange(found.height), regions)
            columns = {axis.name: of for axis, of in zip(self._tree.axes, (of_region, of_size), strict=True)}
            there = [
                np.array_equal(found[name].to_numpy(), of) for name, of in columns.items() if name in found.columns
            ]
            if found.height != regions * sizes or not all(there):
                return f"noisy_counts/level_{entry.level}.parquet must list every cell in the order of the tree."
        return ""

    def _measured(self, level: int) -> MeasuredSizes:
        groups = self._counts(max(level, 1)).sum(axis=1) if self.manifest.has_groups else None
        noises = {entry.level: noise_of(entry) for entry in self.manifest.levels if not entry.summed}
        found = measured_sizes(self._tree, level, self.manifest.statistic, noises, self._noisy, groups)
        return found if level else found.of_everything()

    def _noisy(self, level: int) -> IntArray:
        found = pl.read_parquet(noisy_counts_path(self.folder, level), columns=[NOISY], glob=False)
        return found[NOISY].to_numpy()

    def _counts(self, level: int) -> IntArray:
        """Return the released numbers of groups of a level, shape (regions, sizes)."""
        table, tree = self._table(self.manifest.levels[level]), self._tree
        counts = np.zeros(tree.sizes(level), dtype=np.int64)
        counts[areas_of_rows(self.manifest, tree, tree.axis_levels(level), table)] = table[COUNT].to_numpy()
        return counts

    def _table(self, entry: LevelEntry) -> pl.DataFrame:
        return scan_level(self.folder, entry).collect()
