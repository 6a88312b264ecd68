"""A published table, read a batch at a time, so that its size does not matter."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

BATCH_ROWS = 1_000_000

UNREADABLE = (OSError, UnicodeDecodeError, pa.ArrowException)  # what a file that is not what it should be raises


def has_columns(path: Path, texts: Sequence[str], numbers: Sequence[str]) -> bool:
    """Return whether a table has columns of text, and then of int64, and no other.

    Raises:
        UNREADABLE: it is no Parquet.
    """
    schema = pq.read_schema(path)
    if schema.names != [*texts, *numbers]:
        return False
    of_texts, of_numbers = schema.types[: len(texts)], schema.types[len(texts) :]
    return all(map(_is_text, of_texts)) and all(kind.equals(pa.int64()) for kind in of_numbers)


def batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table, at least one row at a time, its text as dictionaries; the next ones are read meanwhile.

    Raises:
        UNREADABLE: it cannot be read whole.
    """
    with ThreadPoolExecutor(1) as ahead:
        reading = _batches(path)
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
