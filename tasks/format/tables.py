"""Published tables: their rows as numbers, read a batch at a time or whole, and written one row group or one part at a time."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from storage.tables import COUNT, SIGNAL, column_name, level_files, level_path, part_count
from tasks.format.entries import LevelEntry
from tasks.tree.axis import Axis, BoolArray, IntArray
from tasks.tree.keys import AreaArray, order_of
from tasks.tree.order import Tree
from tasks.work.capacity import side_by_side


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of one level.

    Attributes:
        areas: per axis, integers, shape (rows,): the number of the area at the axis level that the tree level has reached.
        counts: int64, shape (rows,), records.
        bounds: the ends of the intervals, int64, shape (rows,) each: low and high, then those of the simultaneous intervals if
            the spec asks for them. Empty where no interval is stated.
        signal: which rows stand out from the noise, bool, shape (rows,); None where nobody needs it.
    """

    areas: tuple[AreaArray, ...]
    counts: IntArray
    bounds: tuple[IntArray, ...] = ()
    signal: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, rows: "slice | IntArray") -> "Rows":
        bounds = tuple(ends[rows] for ends in self.bounds)
        signal = None if self.signal is None else self.signal[rows]
        return Rows(tuple(areas[rows] for areas in self.areas), self.counts[rows], bounds, signal)


class SlicedRows(Protocol):
    """Rows of one level in the order of their codes, of which slices can be had: in memory, or on disk."""

    def __len__(self) -> int:
        """Return how many rows there are."""

    def __getitem__(self, rows: slice, /) -> Rows:
        """Return the rows of a slice, whose step is 1."""


def slices(rows: SlicedRows, size: int) -> Iterator[Rows]:
    """Yield rows in slices of `size` rows; the last may have fewer. Nothing is yielded if there are none."""
    return (rows[first : first + size] for first in range(0, len(rows), size))


def joined(parts: Sequence[Rows]) -> Rows:
    """Return the rows of one or more parts, one part after the other."""
    if len(parts) == 1:
        return parts[0]
    areas = tuple(np.concatenate(columns) for columns in zip(*(part.areas for part in parts), strict=True))
    bounds = tuple(np.concatenate(columns) for columns in zip(*(part.bounds for part in parts), strict=True))
    signals = [part.signal for part in parts if part.signal is not None]
    signal = np.concatenate(signals) if len(signals) == len(parts) else None
    return Rows(areas, np.concatenate([part.counts for part in parts]), bounds, signal)


def in_order(rows: Rows, sizes: Sequence[int]) -> Rows:
    """Return rows in the order of their areas' numbers, first axis first; `sizes` gives the number of areas per axis."""
    return rows[order_of(rows.areas, sizes)]


BATCH_ROWS = 1_000_000

# raised by a file with other content than it should have
UNREADABLE = (OSError, UnicodeDecodeError, pa.ArrowException, pl.exceptions.PolarsError)


def level_paths(folder: Path, entry: LevelEntry) -> list[Path]:
    """Return the files of a level of a published folder, in the order of their rows."""
    return [folder / name for name in entry.files]


def scan_level(folder: Path, entry: LevelEntry) -> pl.LazyFrame:
    """Return the table of a level of a published folder, as a lazy scan."""
    return pl.scan_parquet(level_paths(folder, entry), glob=False)


def has_columns(path: Path, texts: Sequence[str], numbers: Sequence[str], flag: str) -> bool:
    """Return whether a table has exactly these columns: first text, then int64, last one of true and false.

    Raises:
        UNREADABLE: the file is not Parquet.
    """
    schema = pq.read_schema(path)
    if schema.names != [*texts, *numbers, flag]:
        return False
    *kinds, last = schema.types
    of_texts, of_numbers = kinds[: len(texts)], kinds[len(texts) :]
    are_numbers = all(kind.equals(pa.int64()) for kind in of_numbers)
    return all(map(_is_text, of_texts)) and are_numbers and last.equals(pa.bool_())


def batches(paths: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table in batches of one row or more, with text as dictionaries; read the next batch meanwhile.

    Args:
        paths: its files, in the order of their rows.
    Raises:
        UNREADABLE: the table cannot be read to its end.
    """
    with ThreadPoolExecutor(1) as ahead:
        reading = (batch for path in paths for batch in _batches(path))
        coming = ahead.submit(next, reading, None)
        while (batch := coming.result()) is not None:
            coming = ahead.submit(next, reading, None)
            yield batch


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    schema = pq.read_schema(path)
    texts = [field.name for field in schema if _is_text(field.type)]
    with pq.ParquetFile(path, read_dictionary=texts) as file:
        for batch in file.iter_batches(BATCH_ROWS):
            batch.validate(full=True)
            columns = [column.dictionary_encode() if _is_text(column.type) else column for column in batch.columns]
            if batch.num_rows:
                yield pa.record_batch(columns, names=batch.schema.names)


def _is_text(kind: pa.DataType) -> bool:
    return kind in {pa.string(), pa.large_string(), pa.string_view()}


ROW_GROUP = 1_000_000  # rows

_CODES = pa.dictionary(pa.int32(), pa.string())


class LevelTables:
    """The tables of a level as it is published, from its rows."""

    def __init__(self, tree: Tree, level: int, flat: Collection[str] = (), bounds: Sequence[str] = ()) -> None:
        """Look up the codes of the level, given the features that have one level, and the columns for the ends of intervals."""
        reached = tree.axis_levels(level)
        self._codes = {
            column_name(axis.name, axis.level_names[own_level - 1], flat): (
                number,
                _Codes(axis, reached[number], own_level),
            )
            for number, axis in enumerate(tree.axes)
            for own_level in range(1, reached[number] + 1)
        }
        self._bounds = bounds
        numbers = [(name, pa.int64()) for name in (COUNT, *bounds)]
        self._schema = pa.schema([(name, _CODES) for name in self._codes] + numbers + [(SIGNAL, pa.bool_())])

    def of(self, rows: SlicedRows, row_group: int = ROW_GROUP) -> Iterator[pa.Table]:
        """Yield rows as they are published, one row group at a time, at least one.

        Args:
            rows: nodes of the level with a count above zero, in the order of their areas, which is the order of their codes.
            row_group: the largest number of rows in a row group.
        Yields:
            One text column per axis and axis level reached, named by `column_name`, coarse to fine, then `count` and the bounds,
            int64, which are missing if the rows have no intervals, then `signal`, bool, missing if the rows do not have it; one row
            per node with a count above zero. Level 0 has no codes and one row. Text is encoded as a dictionary that has each
            occurring code once.
        """
        for first in range(0, max(len(rows), 1), row_group):
            yield self._table(rows[first : first + row_group])

    def _table(self, rows: Rows) -> pa.Table:
        texts = [codes.text(rows.areas[axis]) for axis, codes in self._codes.values()]
        nothing = pa.nulls(len(rows), pa.int64())
        ends = [pa.array(end) for end in rows.bounds] if rows.bounds else [nothing] * len(self._bounds)
        signal = pa.nulls(len(rows), pa.bool_()) if rows.signal is None else pa.array(rows.signal)
        return pa.table([*texts, pa.array(rows.counts), *ends, signal], schema=self._schema)


def write_level(folder: Path, level: int, rows: SlicedRows, tables: LevelTables, sorted_by: str, threads: int) -> None:
    """Write all rows of a level of a published folder: of a large one in parts, `threads` of them at once, each in memory by itself."""
    parts = part_count(len(rows))
    if not parts:
        write_parquet(folder / level_path(level, 0), tables.of(rows), sorted_by)
        return
    (folder / level_path(level, parts)).mkdir()

    def write(number: int) -> None:
        part = rows[number * len(rows) // parts : (number + 1) * len(rows) // parts]
        write_parquet(folder / level_files(level, parts)[number], tables.of(part), sorted_by)

    for _ in side_by_side(write, range(parts), threads):
        pass


def write_parquet(path: Path, tables: Iterable[pa.Table], sorted_by: str) -> None:
    """Write tables of one schema as the row groups of one file; readers see its dictionaries as plain text.

    Args:
        tables: the tables, from `LevelTables`.
        sorted_by: the first axis. The file has statistics of its codes and of the counts, by which readers skip row groups. The
            codes of the other axes range over nearly the whole axis in every row group.
    """
    tables = iter(tables)
    first = next(tables)
    own = column_name(sorted_by, "")
    known = [name for name in first.column_names if name.startswith(own) or name in {sorted_by, COUNT}]
    with pq.ParquetWriter(
        path,
        first.schema,
        compression="zstd",
        compression_level=1,
        dictionary_pagesize_limit=2**30,  # a full dictionary would make the rest of the column plain text
        write_statistics=known,
        store_schema=False,  # otherwise readers would take the codes for categories
    ) as writer:
        writer.write_table(first)
        for table in tables:
            writer.write_table(table)


class _Codes:
    """The codes of one axis level, ready to write for areas of the same or a finer level."""

    def __init__(self, axis: Axis, level: int, own_level: int) -> None:
        distinct = axis.codes[own_level - 1].to_arrow().cast(pa.string()).dictionary_encode()  # a code may occur twice
        held_by = axis.ancestors(np.arange(axis.areas(level)), level, own_level)
        self._of_area: NDArray[np.int32] = distinct.indices.to_numpy()[held_by]
        self._codes = distinct.dictionary

    def text(self, areas: AreaArray) -> pa.DictionaryArray:
        """Return the codes of areas as indices into a dictionary of the codes that occur."""
        codes = self._of_area[areas]
        occurs = np.zeros(len(self._codes), dtype=bool)
        occurs[codes] = True
        position = np.cumsum(occurs, dtype=np.int32) - 1
        return pa.DictionaryArray.from_arrays(position[codes], self._codes.filter(pa.array(occurs)))
