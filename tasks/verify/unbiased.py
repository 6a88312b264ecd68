"""The checks of a folder of which every node was measured: its counts and intervals follow from its noisy counts."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from storage.counts.columns import COUNT, NOISY, SIGNAL
from tasks.format.manifest import LevelEntry, Manifest
from tasks.format.noisy_counts import CODEBOOK, noisy_counts_path
from tasks.format.published_tree import areas_of_rows, tree_of_codebook
from tasks.laws.named import noise_of
from tasks.tree.axis import IntArray
from tasks.tree.frontier import CHUNK_CELLS, expand, taking
from tasks.tree.leaves import nodes_above
from tasks.tree.views import Partition, leaves_of, level_view
from tasks.unbiased.least_squares import least_squares, precisions_of
from tasks.unbiased.released import ReleasedTree

_CLOSE = 1e-6  # records: by how much sums of floats on another machine may differ

_FLOATS = 2.0**-46  # of the records: likewise


def unbiased_failures(folder: Path, manifest: Manifest) -> list[str]:
    """Return which tables do not follow from the published noisy counts, one sentence each.

    Raises:
        UNREADABLE: a table cannot be read.
        polars.exceptions.PolarsError: likewise.
    """
    unbiased = Unbiased(folder, manifest)
    failures = [
        f"counts/level_{entry.level}.parquet {wrong}" for entry in manifest.levels if (wrong := unbiased.misfit(entry))
    ]
    if failures:
        return failures
    return [wrong] if (wrong := unbiased.out_of_order() or unbiased.unsettled()) else []


@dataclass(slots=True)
class Unbiased:
    """A folder with the noisy counts of every node. Its tables are correct on their own.

    Attributes:
        folder: the folder.
        manifest: its manifest.
    """

    folder: Path
    manifest: Manifest
    _released: ReleasedTree = field(init=False)
    _precisions: list[float] = field(init=False)

    def __post_init__(self) -> None:
        """Read the tree, and compute the variances."""
        tree = tree_of_codebook(self.manifest, pl.read_parquet(self.folder / CODEBOOK, glob=False))
        levels, stated = self.manifest.levels, self.manifest.intervals
        self._precisions = precisions_of([None if entry.summed else noise_of(entry) for entry in levels])
        total = None if levels[0].sigma or levels[0].summed else int(self._table(levels[0])[COUNT].item())
        self._released = ReleasedTree(tree, self._precisions, stated.confidence, stated.signal_rate, total)

    def misfit(self, entry: LevelEntry) -> str:
        """Return how the rows of a level contradict their variances, as the end of a sentence; empty if they agree."""
        table, stated, tree = self._table(entry), self.manifest.intervals, self._released.tree
        areas = areas_of_rows(self.manifest, tree, tree.axis_levels(entry.level), table)
        estimates = self._released.estimates(entry.level, areas, table[COUNT].to_numpy())
        ends = self._released.intervals(entry.level, estimates, simultaneous=stated.simultaneous)
        if not all(np.array_equal(table[name].to_numpy(), end) for name, end in zip(stated.columns, ends, strict=True)):
            return "does not have the intervals that follow from the noise of the levels."
        widths = self._released.half_widths(entry.level, table.height)
        if (entry.half_width, entry.simultaneous_half_width) != (widths[0], widths[1] if stated.simultaneous else None):
            return "does not have the half_width that the manifest states."
        deviations = self._released.deviations(entry.level)
        if entry.deviations is None or not np.allclose(
            (entry.deviations.least, entry.deviations.most), deviations, rtol=1e-9, atol=0
        ):
            return "does not have the deviations that the manifest states."
        signal, above = estimates.signals(stated.signal_rate)
        if not np.array_equal(signal, table[SIGNAL].to_numpy()) or (entry.signal and entry.signal.above != above):
            return f"does not mark the rows as {SIGNAL} that stand out."
        shares = estimates.shares()
        if (entry.noise_rows.at_most if entry.noise_rows else None) != (shares.noise_at_most if shares else None):
            return "does not agree with noise_rows of the manifest."
        return ""

    def out_of_order(self) -> str:
        """Return which noisy counts do not list every cell in the order of the tree, in a sentence; empty if none."""
        tree = self._released.tree
        for entry in self.manifest.levels:
            if entry.summed or not entry.level:
                continue
            refined = [number for number, own in enumerate(tree.axis_levels(entry.level)) if own]
            take = [taking(self._column(entry.level, tree.axes[number].name)) for number in refined]
            for cells in _cells(self._released, entry.level):
                if not all(
                    np.array_equal(of(len(cells[0])), cells[number]) for of, number in zip(take, refined, strict=True)
                ):
                    return f"noisy_counts/level_{entry.level}.parquet must list every cell in the order of the tree."
        return ""

    def unsettled(self) -> str:
        """Return how the counts of the leaves differ from least squares over the noisy counts, in a sentence; empty if they agree."""
        tree, finest = self._released.tree, self.manifest.levels[-1]
        table, leaves = self._table(finest), Partition(tree, level_view(tree, tree.depth))
        counts = np.zeros(len(leaves), dtype=np.int64)
        areas = areas_of_rows(self.manifest, tree, tree.axis_levels(tree.depth), table)
        counts[leaves.places(leaves_of(tree, areas))] = table[COUNT].to_numpy()
        values = least_squares(
            self._released.variances, self._precisions, lambda level: taking(self._column(level, NOISY))
        )
        places = (leaves.places(leaves_of(tree, cells)) for cells in _cells(self._released, tree.depth))
        take, off = taking(places), 0.0
        for part in values:
            moved = off + np.cumsum(counts[take(len(part))] - part)
            if (abs(moved) > 0.5 + _CLOSE + _FLOATS * abs(part).sum()).any():
                return f"counts/level_{finest.level}.parquet is not what the noisy counts are settled to."
            off = float(moved[-1])
        return ""

    def _table(self, entry: LevelEntry) -> pl.DataFrame:
        return pl.read_parquet(self.folder / "counts" / f"level_{entry.level}.parquet", glob=False)

    def _column(self, level: int, name: str) -> Iterator[IntArray]:
        """Yield a column of the noisy counts of a level, in parts."""
        with pq.ParquetFile(noisy_counts_path(self.folder, level)) as file:
            for batch in file.iter_batches(CHUNK_CELLS, columns=[name]):
                yield batch.column(name).to_numpy().astype(np.int64)


def _cells(released: ReleasedTree, level: int) -> Iterator[tuple[IntArray, ...]]:
    """Yield the areas of all cells of a level (> 0), per axis, in the order of the tree, in parts."""
    for parents in nodes_above(released.tree, level, CHUNK_CELLS):
        yield expand(released.tree, parents).areas
