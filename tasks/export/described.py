"""The CSV files of a published folder, and what `metadata.json` says of them."""

from collections.abc import Iterator
from pathlib import Path

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
    files = [*_of_counts(folder, manifest), *_of_signal(folder, manifest), *_of_views(folder, manifest)]
    return metadata_text(manifest, files) if files else None


def _of_counts(folder: Path, manifest: Manifest) -> Iterator[CsvFile]:
    """Yield those of the counts, level by level, then the finest level by itself and the synthetic records."""
    finest = len(manifest.levels) - 1
    schemas = {level: pq.read_schema(files_there(folder, level)[0]) for level in range(finest + 1)}
    names = names_in(folder)
    for url, level in ({level_csv(level): level for level in schemas} | {"counts.csv": finest}).items():
        if (folder / url).exists():
            yield csv_file(url, level, schemas[level], names=names)
    records = records_path(folder, "csv")
    if records.exists():
        yield CsvFile(records.name, finest, tuple(csv_header(records)))


def _of_signal(folder: Path, manifest: Manifest) -> Iterator[CsvFile]:
    """Yield those of the rows that stand out."""
    names = names_in(folder)
    for of in manifest.signal_tables:
        path = folder / SIGNAL / f"level_{of.level}.parquet"
        if path.with_suffix(".csv").exists():
            yield csv_file(
                f"{SIGNAL}/level_{of.level}.csv", of.level, pq.read_schema(path), of_signal=True, names=names
            )


def _of_views(folder: Path, manifest: Manifest) -> Iterator[CsvFile]:
    names = names_in(folder)
    for view in manifest.views:
        url = f"{VIEWS}/{view.name}.csv"
        if (folder / url).exists():
            schema = pq.read_schema(folder / VIEWS / f"{view.name}.parquet")
            yield csv_file(url, view.level, schema, view.name, names=names)
