"""Reading a published table, of one file or of parts: one batch at a time, so that its size does not matter, or whole."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.format.manifest import LevelEntry

BATCH_ROWS = 1_000_000

UNREADABLE = (OSError, UnicodeDecodeError, pa.ArrowException)  # raised by a file with other content than it should have


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
