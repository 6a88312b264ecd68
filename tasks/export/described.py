"""The CSV files of a published folder, and what `metadata.json` says of them."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from storage.counts.columns import SIGNAL
from storage.counts.tables import files_there, level_csv
from tasks.format.csv import csv_header, names_in
from tasks.format.manifest import Manifest
from tasks.format.metadata import CsvFile, csv_file, metadata_text
from tasks.format.synthetic_records import records_path

VIEWS = "views"


def metadata_of(folder: Path, manifest: Manifest) -> str | None:
    """Return the text of `metadata.json` of a folder; None where it has no CSV file to describe.

    Raises:
        OSError: a Parquet file beside a CSV file is missing.
        pyarrow.ArrowInvalid: it is not one.
    """
    names = names_in(folder)
    files = list(_of_counts(folder, manifest, names))
    for of in manifest.signal_tables:
        files += _beside_parquet(folder, f"{SIGNAL}/level_{of.level}", of.level, names, of_signal=True)
    for view in manifest.views:
        files += _beside_parquet(folder, f"{VIEWS}/{view.name}", view.level, names, view=view.name)
    return metadata_text(manifest, files) if files else None


def _of_counts(folder: Path, manifest: Manifest, names: Sequence[pl.DataFrame]) -> Iterator[CsvFile]:
    """Yield those of the counts, level by level, then the finest level by itself and the synthetic records."""
    finest = len(manifest.levels) - 1
    schemas = {level: pq.read_schema(files_there(folder, level)[0]) for level in range(finest + 1)}
    for url, level in ({level_csv(level): level for level in schemas} | {"counts.csv": finest}).items():
        if (folder / url).exists():
            yield csv_file(url, level, schemas[level], names=names)
    records = records_path(folder, "csv")
    if records.exists():
        yield CsvFile(records.name, finest, tuple(csv_header(records)))


def _beside_parquet(
    folder: Path, table: str, level: int, names: Sequence[pl.DataFrame], view: str = "", *, of_signal: bool = False
) -> Iterator[CsvFile]:
    """Yield that of a table, where it is there as CSV too."""
    if (folder / f"{table}.csv").exists():
        schema = pq.read_schema(folder / f"{table}.parquet")
        yield csv_file(f"{table}.csv", level, schema, view, of_signal=of_signal, names=names)
