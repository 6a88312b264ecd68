"""CSV: levels with names beside codes, written and compared part by part, codes that a spreadsheet takes for formulas, and synthetic records."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from storage.tables import COUNT, column_name
from tasks.format.tables import UNREADABLE, batches
from tasks.tree.order import Tree

NAMES = "names"  # the folder

_BLOCK = 2**24  # bytes of CSV read at once
_ROWS = 500_000  # rows compared at once


def names_in(folder: Path) -> list[pl.DataFrame]:
    """Return the names of areas that a published folder has: per level of an axis, the codes of each area's path, and its name.

    Raises:
        UNREADABLE: a table of names cannot be read.
    """
    return [pl.read_parquet(path, glob=False) for path in sorted((folder / NAMES).glob("*.parquet"))]


def with_names(table: pa.Table, names: Sequence[pl.DataFrame]) -> pa.Table:
    """Return a table of text and numbers with a column of names beside each column of codes that has names."""
    for areas in names:
        *path, name = areas.columns
        if set(path) <= set(table.column_names):
            place = table.column_names.index(path[-1]) + 1
            called = pl.DataFrame(table.select(path)).join(areas, on=path, how="left", maintain_order="left")[name]
            table = table.add_column(place, name, called.to_arrow().cast(pa.string()))
    return table


def write_csv(path: Path, tables: Iterable[pa.Table], names: Sequence[pl.DataFrame] = ()) -> None:
    """Write tables of one schema to one CSV file with a header, one table at a time; with `names` as in `with_names`."""
    with path.open("wb") as file:
        for number, table in enumerate(tables):
            pl.DataFrame(with_names(plain(table), names)).write_csv(file, include_header=number == 0)


def csv_failures(
    path: Path, table: Sequence[Path], level: str = "the finest level", names: Sequence[pl.DataFrame] = ()
) -> list[str]:
    """Return one sentence if a CSV file differs from the table of its level, otherwise nothing.

    Args:
        table: the files of the table of the level, which is correct.
        level: the words for the level in the sentence.
        names: of the areas, as in `with_names`.
    """
    expected = (with_names(plain(pa.Table.from_batches([batch])), names) for batch in batches(table))
    schema = with_names(pq.read_schema(table[0]).empty_table(), names).schema
    try:
        reader = open_csv(path, schema)
        there = (pa.Table.from_batches([batch]) for batch in reader)
        same = reader.schema.names == schema.names and have_same_rows(expected, there)
    except UNREADABLE:
        return [f"{path.name} is missing or is not a CSV file of {level}."]
    return [] if same else [f"{path.name} differs from the table of {level}."]


def open_csv(path: Path, schema: pa.Schema) -> csv.CSVStreamingReader:
    """Return a reader of a CSV file; columns are whole numbers or true and false where the schema has them, else text.

    What is empty is missing; text that is there and empty is in quotation marks.

    Raises:
        UNREADABLE: the file is not CSV.
    """
    kinds = {field.name: field.type if field.type in {pa.int64(), pa.bool_()} else pa.string() for field in schema}
    return csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=_BLOCK),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=kinds, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )


def csv_header(path: Path) -> list[str]:
    """Return the columns of a CSV file."""
    with csv.open_csv(path, parse_options=csv.ParseOptions(newlines_in_values=True)) as reader:
        return list(reader.schema.names)


def plain(table: pa.Table) -> pa.Table:
    """Return a table with text in place of dictionaries."""
    columns = [column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column for column in table.columns]
    return pa.table(columns, names=table.column_names)


def have_same_rows(tables: Iterable[pa.Table], others: Iterable[pa.Table]) -> bool:
    """Return whether tables have the same rows as others, however they are cut."""
    pairs = zip_longest(of_rows(tables), of_rows(others))
    return all(one is not None and other is not None and one.equals(other) for one, other in pairs)


def of_rows(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the same rows in tables of a fixed number of rows; the last may have fewer."""
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


CHUNK_RECORDS = 1_000_000  # records in memory at once


def records_path(folder: Path, kind: str) -> Path:
    """Return the path of the records in a published folder; `kind` is `csv` or `parquet`."""
    return folder / f"records.{kind}"


def finest_columns(tree: Tree, flat: Collection[str]) -> list[str]:
    """Return the columns of records: per axis its finest code, or all its codes if only the path identifies an area."""
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
