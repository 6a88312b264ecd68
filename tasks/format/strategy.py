"""The published strategies of axes: the whole weights of all codes of an axis in each number that was measured."""

from collections.abc import Collection
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.tree.axis import IntArray

STRATEGY = "strategy.parquet"  # of a release of a single axis


def strategy_file(axis: str, axes: Collection[str]) -> str:
    """Return the name of the file with the strategy of one of the axes of a release."""
    return STRATEGY if len(axes) == 1 else f"strategy_{axis}.parquet"


_WEIGHTS = "weights"
_SCHEMA = pa.schema([(_WEIGHTS, pa.list_(pa.int32()))])


def write_strategy(path: Path, rows: IntArray) -> None:
    """Write the weights of all codes, in their order, a row per measured number, int64, shape (rows, leaves)."""
    flat = pa.array(rows.ravel().astype(np.int32))
    ends = pa.array(np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1])
    table = pa.table([pa.ListArray.from_arrays(ends, flat)], schema=_SCHEMA)
    pq.write_table(table, path, compression="zstd", store_schema=False)


def read_strategy(path: Path) -> IntArray:
    """Return the weights, int64, shape (rows, leaves).

    Raises:
        OSError: the file is missing; or a PolarsError: it is no Parquet file.
        ValueError: its rows have not all a whole number for every code.
    """
    table = pl.read_parquet(path, glob=False)
    lists = table[_WEIGHTS] if table.schema == {_WEIGHTS: pl.List(pl.Int32)} else pl.Series(dtype=pl.List(pl.Int32))
    weights = lists.explode()
    if lists.is_empty() or weights.null_count() or lists.list.len().n_unique() > 1:
        raise ValueError(f"must have the column {_WEIGHTS}, and in each row a whole number for every code.")
    rows: IntArray = weights.to_numpy().astype(np.int64).reshape(len(lists), -1)
    return rows
