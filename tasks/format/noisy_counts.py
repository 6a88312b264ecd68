"""The published noisy counts: unbiased, with their variance, for readers who make their own estimates."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from storage.releases.parts import Part
from storage.tables import NOISY, VARIANCE
from tasks.laws.named import noise_of
from tasks.tree.axis import Axis, IntArray
from tasks.tree.order import Tree
from tasks.tree.views import Partition
from tasks.unbiased.variance import portions_in, variances_of

FOLDER = "noisy_counts"
CODEBOOK = f"{FOLDER}/codebook.parquet"
CODEBOOK_SCHEMA = pa.schema(
    [("axis", pa.string()), ("level", pa.string()), ("area", pa.int32()), ("parent", pa.int32()), ("code", pa.string())]
)

_ROW_GROUP = 500_000  # the fewest rows of a row group, except the last


def noisy_counts_path(folder: Path, level: int) -> Path:
    """Return the path of a level's noisy counts in a published folder."""
    return folder / FOLDER / f"level_{level}.parquet"


def noisy_view_path(folder: Path, name: str) -> Path:
    """Return the path of a view's noisy counts in a published folder."""
    return folder / FOLDER / f"view_{name}.parquet"


def noisy_schema(axes: Sequence[str]) -> pa.Schema:
    """Return the columns of a level's noisy counts: the area's number per refined axis, the noisy count, its variance."""
    return pa.schema([*((axis, pa.int32()) for axis in axes), (NOISY, pa.int64()), (VARIANCE, pa.float64())])


class NoisyCounts:
    """Writes the noisy counts of a release as they come: level by level from 0 on, cells in the order of the tree."""

    def __init__(self, folder: Path, tree: Tree, levels: Sequence[Part], *, is_grid: bool) -> None:
        """Write the codebook into the folder being published, and get ready for the counts; summed levels have none."""
        self._folder, self._tree, self._levels, self._is_grid = folder, tree, levels, is_grid
        self._portions = np.ones((1,) * len(tree.axes))  # of the level that is being written
        self._writer: pq.ParquetWriter | None = None
        self._level = -1
        self._waiting: list[pa.Table] = []
        (folder / FOLDER).mkdir()
        tables = [_codebook(axis) for axis in tree.axes]
        pq.write_table(pa.concat_tables(tables), folder / CODEBOOK, compression="zstd", store_schema=False)

    def add(self, level: int, areas: Sequence[IntArray], noisy: IntArray) -> None:
        """Add cells of a level: the numbers of their areas, shape (cells,) each, and their counts; also for a level without cells."""
        if level != self._level:
            self.close()
            self._level = level
            self._portions = portions_in(self._tree, self._tree.axis_levels(level), None if self._is_grid else level)
        axes = [axis for axis, reached in enumerate(self._tree.axis_levels(level)) if reached]
        schema = noisy_schema([self._tree.axes[axis].name for axis in axes])
        if self._writer is None:
            path = noisy_counts_path(self._folder, level)
            self._writer = pq.ParquetWriter(path, schema, compression="zstd", compression_level=1, store_schema=False)
        columns: list[Any] = [areas[axis].astype(np.int32) for axis in axes]
        variance = variances_of(noise_of(self._levels[level]), self._portions, areas)
        self._waiting.append(pa.table([*columns, noisy, variance], schema=schema))
        if sum(map(len, self._waiting)) >= _ROW_GROUP:
            self._flush()

    def add_view(self, name: str, partition: Partition, noisy: IntArray, terms: Part) -> None:
        """Write the noisy counts of all cells of a view, shape (cells,), with areas by their numbers and derived columns by their codes."""
        cells = partition.cells()
        columns: dict[str, Any] = {
            axis.name: areas.astype(np.int32)
            for axis, areas, level in zip(self._tree.axes, cells.areas, cells.levels, strict=True)
            if level
        }
        for column in partition.view.derived:
            columns[column.name] = column.codes.to_arrow().cast(pa.string()).take(pa.array(cells.codes[column.name]))
        portions = portions_in(self._tree, cells.levels, None) if self._is_grid else np.ones((1,) * len(cells.areas))
        columns |= {NOISY: noisy, VARIANCE: variances_of(noise_of(terms), portions, cells.areas)}
        table = pa.table(columns)
        path = noisy_view_path(self._folder, name)
        pq.write_table(table, path, compression="zstd", compression_level=1, store_schema=False)

    def close(self) -> None:
        """Write the waiting rows and close the file of the level."""
        self._flush()
        if self._writer:
            self._writer.close()
            self._writer = None

    def _flush(self) -> None:
        if self._writer and any(map(len, self._waiting)):
            self._writer.write_table(pa.concat_tables(self._waiting), row_group_size=2 * _ROW_GROUP)
        self._waiting = []


def _codebook(axis: Axis) -> pa.Table:
    """Return the areas of all levels of an axis, with their numbers."""
    parts = []
    for level, (name, parent, codes) in enumerate(zip(axis.level_names, axis.parent, axis.codes, strict=True), 1):
        areas = axis.areas(level)
        columns = [
            pa.array([axis.name]).take(pa.array(np.zeros(areas, dtype=np.int32))),
            pa.array([name]).take(pa.array(np.zeros(areas, dtype=np.int32))),
            pa.array(np.arange(areas, dtype=np.int32)),
            pa.array(parent.astype(np.int32)),
            codes.to_arrow().cast(pa.string()),
        ]
        parts.append(pa.table(columns, schema=CODEBOOK_SCHEMA))
    return pa.concat_tables(parts)
