"""Synthetic records: the finest level again, with one row for each record that it counts."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from storage.counts.columns import COUNT, column_name
from tasks.format.batches import UNREADABLE, batches
from tasks.format.csv import have_same_rows, open_csv, plain
from tasks.tree.order import Tree

CHUNK_RECORDS = 1_000_000  # records in memory at once


def records_path(folder: Path, kind: str) -> Path:
    """Return the path of the records in a published folder; `kind` is `csv` or `parquet`."""
    return folder / f"records.{kind}"


def finest_columns(tree: Tree, flat: Collection[str]) -> list[str]:
    """Return the columns of records: per axis its finest code, or all its codes if only the path identifies an area.

    Args:
        tree: the tree, which has the axes.
        flat: the features that have one level.
    """
    columns = []
    for axis in tree.axes:
        known = axis.codes[-1].n_unique() == len(axis.codes[-1])
        levels = axis.level_names[-1:] if known else axis.level_names
        columns += [column_name(axis.name, level, flat) for level in levels]
    return columns


def record_tables(tables: Iterable[pa.Table], columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield columns of tables with each row repeated by its count: at least one table, of at most a million rows each.

    Args:
        tables: at least one table, all of one schema, with a column `count` of whole numbers. A count below one gives no record.
        columns: the columns to keep.
    """
    empty = None
    for table in tables:
        ends = np.cumsum(np.maximum(table.column(COUNT).to_numpy(), 0))
        total = int(ends[-1]) if len(ends) else 0
        for first in range(0, total, CHUNK_RECORDS):
            rows = np.searchsorted(ends, np.arange(first, min(total, first + CHUNK_RECORDS)), side="right")
            yield table.select(columns).take(pa.array(rows))
            empty = False
        if empty is None:
            empty = table.select(columns)[:0]
    if isinstance(empty, pa.Table):
        yield empty


def records_failures(folder: Path, kind: str, finest: Sequence[Path], axes: Sequence[Sequence[str]]) -> list[str]:
    """Return one sentence if the records differ from those that the finest level counts, otherwise nothing.

    Args:
        folder: the published folder.
        kind: `csv` or `parquet`.
        finest: the files of the table of the finest level, which is correct.
        axes: per axis, its columns, coarse to fine.
    """
    path = records_path(folder, kind)
    try:
        if kind == "csv":
            reader = open_csv(path, pq.read_schema(finest[0]))
            names, there = reader.schema.names, (pa.Table.from_batches([batch]) for batch in reader)
        else:
            names = pq.read_schema(path).names
            there = (plain(pa.Table.from_batches([batch])) for batch in batches([path]))
        if not _are_finest(names, axes):
            return [f"{path.name} must have the columns of the finest codes."]
        counted = (pa.Table.from_batches([batch]) for batch in batches(finest))
        expected = (plain(table) for table in record_tables(counted, names))
        same = have_same_rows(expected, there)
    except UNREADABLE:
        return [f"{path.name} is missing or is not a readable file of records."]
    return [] if same else [f"{path.name} does not hold the records that the finest level counts."]


def _are_finest(names: Sequence[str], axes: Sequence[Sequence[str]]) -> bool:
    """Return whether the columns are, for each axis in turn, its finest code or its whole path."""
    rest = list(names)
    for columns in axes:
        taken = len(columns) if rest[: len(columns)] == list(columns) else 1
        if rest[:taken] not in (list(columns), [columns[-1]]):
            return False
        rest = rest[taken:]
    return not rest
