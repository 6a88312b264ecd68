"""The finest level as CSV: written and compared a part at a time."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from storage.columns import NUMBERS
from tasks.publish.reading import UNREADABLE, batches

_BLOCK = 2**24  # bytes of CSV that are read at once
_ROWS = 500_000  # that are compared at once


def write_csv(path: Path, tables: Iterable[pa.Table]) -> None:
    """Write tables of one schema as one CSV, with a header, a table at a time."""
    with path.open("wb") as file:
        for number, table in enumerate(tables):
            pl.DataFrame(plain(table)).write_csv(file, include_header=number == 0)


def csv_failures(path: Path, finest: Path) -> list[str]:
    """Return whether `counts.csv` is something else than the finest level, in a sentence.

    Args:
        path: of the CSV.
        finest: of the table of the finest level, which is right.
    """
    expected = (plain(pa.Table.from_batches([batch])) for batch in batches(finest))
    names = pq.read_schema(finest).names
    try:
        reader = open_csv(path, names)
        same = reader.schema.names == names
        there = (pa.Table.from_batches([batch]) for batch in reader)
        same = same and all(
            one is not None and other is not None and one.equals(other)
            for one, other in zip_longest(of_rows(expected), of_rows(there))
        )
    except UNREADABLE:
        return ["counts.csv is missing or not what it should be."]
    return [] if same else ["counts.csv is not the finest level."]


def open_csv(path: Path, names: Sequence[str]) -> csv.CSVStreamingReader:
    """Return a reader of a CSV, in which columns of these names are text, and those of `NUMBERS` whole numbers.

    Raises:
        UNREADABLE: it is no CSV.
    """
    kinds = dict.fromkeys(names, pa.string()) | dict.fromkeys(NUMBERS, pa.int64())
    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=_BLOCK),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(column_types=kinds),
    )


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
