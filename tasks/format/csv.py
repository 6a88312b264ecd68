"""Levels as CSV: written, and compared with their tables, a part at a time."""

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from tasks.format.batches import UNREADABLE, batches

_BLOCK = 2**24  # bytes of CSV that are read at once
_ROWS = 500_000  # that are compared at once


def write_csv(path: Path, tables: Iterable[pa.Table]) -> None:
    """Write tables of one schema as one CSV, with a header, a table at a time."""
    with path.open("wb") as file:
        for number, table in enumerate(tables):
            pl.DataFrame(plain(table)).write_csv(file, include_header=number == 0)


def csv_failures(path: Path, table: Path, level: str = "the finest level") -> list[str]:
    """Return whether a CSV is something else than a level, in a sentence.

    Args:
        path: of the CSV.
        table: of the level's table, which is right.
        level: what it is called.
    """
    expected = (plain(pa.Table.from_batches([batch])) for batch in batches(table))
    schema = pq.read_schema(table)
    try:
        reader = open_csv(path, schema)
        same = reader.schema.names == schema.names
        there = (pa.Table.from_batches([batch]) for batch in reader)
        same = same and all(
            one is not None and other is not None and one.equals(other)
            for one, other in zip_longest(of_rows(expected), of_rows(there))
        )
    except UNREADABLE:
        return [f"{path.name} is missing or not what it should be."]
    return [] if same else [f"{path.name} is not {level}."]


def open_csv(path: Path, schema: pa.Schema) -> csv.CSVStreamingReader:
    """Return a reader of a CSV, whose columns are whole numbers, or nothing, where those of a table are, and otherwise text.

    Raises:
        UNREADABLE: it is no CSV.
    """
    kinds = {field.name: pa.int64() if pa.types.is_integer(field.type) else pa.string() for field in schema}
    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=_BLOCK),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(column_types=kinds, null_values=[""]),
    )


def csv_header(path: Path) -> list[str]:
    """Return the columns of a CSV.

    Raises:
        UNREADABLE: it is no CSV.
    """
    with csv.open_csv(path, parse_options=csv.ParseOptions(newlines_in_values=True)) as reader:
        return list(reader.schema.names)


def plain(table: pa.Table) -> pa.Table:
    """Return a table with its dictionaries as text."""
    columns = [column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column for column in table.columns]
    return pa.table(columns, names=table.column_names)


def of_rows(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield the same rows, so many at a time."""
    waiting, rows = [], 0
    for table in tables:
        waiting.append(table)
        rows += len(table)
        while rows >= _ROWS:
            together = pa.concat_tables(waiting)
            yield together[:_ROWS]
            waiting, rows = [together[_ROWS:]], rows - _ROWS
    if rows:
        yield pa.concat_tables(waiting)
