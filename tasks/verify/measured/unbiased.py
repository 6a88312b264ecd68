"""The checks of a folder of which every node was measured: its counts and intervals follow from its noisy counts."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from storage.counts.columns import COUNT, INTERVAL, NOISY, SIGNAL
from storage.releases.terms import GRID
from tasks.format.batches import scan_level
from tasks.format.manifest import LevelEntry, Manifest, ViewEntry
from tasks.format.noisy_counts import CODEBOOK, noisy_counts_path, noisy_view_path
from tasks.format.published_tree import areas_of_rows, axes_of, released_of, tree_of_codebook, tree_of_spec, view_of
from tasks.laws.named import noise_of
from tasks.tree.axis import IntArray
from tasks.tree.frontier import CHUNK_CELLS, expand, taking
from tasks.tree.leaves import nodes_above
from tasks.tree.views import Partition, leaves_of, level_view
from tasks.unbiased.grid import grid_of
from tasks.unbiased.least_squares import least_squares, precisions_of
from tasks.unbiased.released import ReleasedCounts, pair_precisions
from tasks.unbiased.variance import tree_variances
from tasks.verify.measured.stated_shares import states_shares
from tasks.verify.views import noisy_view_failures

_CLOSE = 1e-6  # records: by how much sums of floats on another machine may differ

_FLOATS = 2.0**-46  # of the records: likewise


def unbiased_failures(folder: Path, manifest: Manifest) -> list[str]:
    """Return which tables do not follow from the noise, and from the noisy counts where they are published, one sentence each.

    Without noisy counts the tree must follow from the spec.

    Raises:
        UNREADABLE: a table cannot be read.
        polars.exceptions.PolarsError: likewise.
    """
    if not _has_parts_of(manifest):
        return [
            "manifest.json: covariance must be grid where, and only where, all pairs of levels of two axes are levels or views."
        ]
    unbiased = Unbiased(folder, manifest)
    failures = [f"{entry.path} {wrong}" for entry in manifest.levels if (wrong := unbiased.misfit(entry))]
    failures += noisy_view_failures(folder, manifest) if manifest.noisy_counts else []
    failures += [
        f"views/{view.name}.parquet {wrong}" for view in manifest.views if (wrong := unbiased.view_misfit(view))
    ]
    if failures or not manifest.noisy_counts:
        return failures
    return [wrong] if (wrong := unbiased.out_of_order() or unbiased.unsettled()) else []


def _has_parts_of(manifest: Manifest) -> bool:
    """Return whether the levels and views are those that the rule of the variances needs: all pairs of a grid, or no view."""
    if manifest.covariance != GRID:
        return not manifest.views
    axes = axes_of(manifest)
    pairs = [view_of(manifest, entry, {}).axis_levels for entry in manifest.parts]
    every = product(*(range(len(names) + 1) for names in axes.values()))
    return len(axes) == 2 and sorted(pairs) == list(every)


@dataclass(slots=True)
class Unbiased:
    """A folder of which every node, or every pair of nodes, was measured. Its tables are correct on their own.

    Attributes:
        folder: the folder.
        manifest: its manifest.
    """

    folder: Path
    manifest: Manifest
    _released: ReleasedCounts = field(init=False)

    def __post_init__(self) -> None:
        """Read the tree, and compute the variances."""
        tree = None if self.manifest.noisy_counts else tree_of_spec(self.manifest)
        tree = tree or tree_of_codebook(self.manifest, pl.read_parquet(self.folder / CODEBOOK, glob=False))
        self._released = released_of(self.manifest, tree, int(self._table(self.manifest.levels[0])[COUNT].item()))

    def misfit(self, entry: LevelEntry) -> str:
        """Return how the rows of a level contradict their variances, as the end of a sentence; empty if they agree."""
        table, stated, tree = self._table(entry), self.manifest.intervals, self._released.tree
        levels = tree.axis_levels(entry.level)
        areas = areas_of_rows(self.manifest, tree, levels, table)
        estimates = self._released.estimates(levels, areas, table[COUNT].to_numpy())
        ends = self._released.intervals(levels, estimates, simultaneous=stated.simultaneous)
        if not all(np.array_equal(table[name].to_numpy(), end) for name, end in zip(stated.columns, ends, strict=True)):
            return "does not have the intervals that follow from the noise of the levels."
        widths = self._released.half_widths(levels, table.height)
        if (entry.half_width, entry.simultaneous_half_width) != (widths[0], widths[1] if stated.simultaneous else None):
            return "does not have the half_width that the manifest states."
        if not self._has_deviations(entry, levels):
            return "does not have the deviations that the manifest states."
        signal, above = estimates.signals(stated.signal_rate)
        if not np.array_equal(signal, table[SIGNAL].to_numpy()) or (entry.signal and entry.signal.above != above):
            return f"does not mark the rows as {SIGNAL} that stand out."
        if not states_shares(entry, estimates.shares()):
            return "does not agree with noise_rows or above_noise of the manifest."
        return ""

    def view_misfit(self, view: ViewEntry) -> str:
        """Return how the cells of a view contradict their variances, as the end of a sentence; empty if they agree."""
        table = pl.read_parquet(self.folder / "views" / f"{view.name}.parquet", glob=False)
        levels = view_of(self.manifest, view, {}).axis_levels
        areas = areas_of_rows(self.manifest, self._released.tree, levels, table)
        estimates = self._released.estimates(levels, areas, table[COUNT].to_numpy())
        ends = self._released.cell_intervals(estimates)
        if not all(np.array_equal(table[name].to_numpy(), end) for name, end in zip(INTERVAL, ends, strict=True)):
            return "does not have the intervals that follow from the noise of all pairs of levels."
        if view.half_width != self._released.cell_half_width(levels):
            return "does not have the half_width that the manifest states."
        return "" if self._has_deviations(view, levels) else "does not have the deviations that the manifest states."

    def _has_deviations(self, entry: LevelEntry, levels: tuple[int, ...]) -> bool:
        """Return whether the manifest states the standard deviations that follow from the noise."""
        found, stated = self._released.deviations(levels), entry.deviations
        return stated is not None and np.allclose((stated.least, stated.most), found, rtol=1e-9, atol=0)

    def out_of_order(self) -> str:
        """Return which noisy counts do not list every cell in their order, in a sentence; empty if none."""
        tree = self._released.tree
        for entry in self.manifest.parts:
            if entry.summed or not entry.level:
                continue
            refined = [number for number, own in enumerate(view_of(self.manifest, entry, {}).axis_levels) if own]
            path = self._noisy_path(entry)
            take = [taking(_column(path, tree.axes[number].name)) for number in refined]
            for cells in self._cells(entry):
                if not all(
                    np.array_equal(of(len(cells[0])), cells[number]) for of, number in zip(take, refined, strict=True)
                ):
                    order = "its areas" if self._released.is_grid else "the tree"
                    return f"{path.relative_to(self.folder)} must list every cell in the order of {order}."
        return ""

    def unsettled(self) -> str:
        """Return how the counts of the leaves differ from least squares over the noisy counts, in a sentence; empty if they agree."""
        tree, finest = self._released.tree, self.manifest.levels[-1]
        table, leaves = self._table(finest), Partition(tree, level_view(tree, tree.depth))
        counts = np.zeros(len(leaves), dtype=np.int64)
        areas = areas_of_rows(self.manifest, tree, tree.axis_levels(tree.depth), table)
        counts[leaves.places(leaves_of(tree, areas))] = table[COUNT].to_numpy()
        is_settled = self._is_settled_grid(counts) if self._released.is_grid else self._is_settled_tree(counts, leaves)
        return "" if is_settled else f"{finest.path} is not what the noisy counts are settled to."

    def _is_settled_tree(self, counts: IntArray, leaves: Partition) -> bool:
        """Return whether the sums over the first leaves are those of least squares, rounded."""
        tree, levels = self._released.tree, self.manifest.levels
        precisions = precisions_of([None if entry.summed else noise_of(entry) for entry in levels])
        values = least_squares(
            tree_variances(tree, precisions),
            precisions,
            lambda level: taking(_column(self._noisy_path(levels[level]), NOISY)),
        )
        places = (leaves.places(leaves_of(tree, cells)) for cells in self._cells(levels[-1]))
        take, off = taking(places), 0.0
        for part in values:
            moved = off + np.cumsum(counts[take(len(part))] - part)
            if (abs(moved) > 0.5 + _CLOSE + _FLOATS * abs(part).sum()).any():
                return False
            off = float(moved[-1])
        return True

    def _is_settled_grid(self, counts: IntArray) -> bool:
        """Return whether the sums over the first rows and columns are those of least squares, rounded."""
        tree = self._released.tree
        of_pair = {view_of(self.manifest, entry, {}).axis_levels: entry for entry in self.manifest.parts}
        noises = [(levels, None if entry.summed else noise_of(entry)) for levels, entry in of_pair.items()]

        def noisy(above: int, below: int) -> IntArray:
            sizes = tree.axes[0].areas(above), tree.axes[1].areas(below)
            return np.concatenate([*_column(self._noisy_path(of_pair[above, below]), NOISY)]).reshape(sizes)

        values = grid_of(tree, pair_precisions(noises), self._released.total).settle(noisy)
        moved = (counts.reshape(values.shape) - values).cumsum(axis=0).cumsum(axis=1)
        return bool((abs(moved) <= 0.5 + _CLOSE + _FLOATS * abs(values).sum()).all())

    def _cells(self, entry: LevelEntry) -> Iterator[tuple[IntArray, ...]]:
        """Yield the areas of all cells of a level (> 0) or view, per axis, in the order in which they were measured, in parts."""
        tree = self._released.tree
        if self._released.is_grid:
            yield Partition(tree, view_of(self.manifest, entry, {})).cells().areas
            return
        for parents in nodes_above(tree, entry.level, CHUNK_CELLS):
            yield expand(tree, parents).areas

    def _noisy_path(self, entry: LevelEntry) -> Path:
        if isinstance(entry, ViewEntry):
            return noisy_view_path(self.folder, entry.name)
        return noisy_counts_path(self.folder, entry.level)

    def _table(self, entry: LevelEntry) -> pl.DataFrame:
        return scan_level(self.folder, entry).collect()


def _column(path: Path, name: str) -> Iterator[IntArray]:
    """Yield a column of some noisy counts, in parts."""
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(CHUNK_CELLS, columns=[name]):
            yield batch.column(name).to_numpy().astype(np.int64)
