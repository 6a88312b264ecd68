"""The tables of the rows that stand out, as they are published beside the full tables."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.format.csv import names_in, write_csv
from tasks.format.manifest import Manifest, SignalTable
from tasks.format.metadata import CsvFile, csv_file
from tasks.format.tables import ROW_GROUP, write_parquet
from tasks.validate.size import CsvKind
from tasks.verify.signal_tables import FOLDER, signal_path, signal_tables


def write_signal_tables(folder: Path, manifest: Manifest, *, csv: CsvKind) -> list[SignalTable]:
    """Write the tables of the rows that stand out, and return what the manifest states about each.

    Args:
        folder: the folder being published, with the full tables.
        manifest: what it states so far.
        csv: whether tables are published as CSV as well.
    """
    (folder / FOLDER).mkdir()
    axis, stated = next(iter(manifest.levels[0].axes)), []
    for of_level, rows in signal_tables(folder, manifest):
        path = signal_path(folder, of_level.level)
        write_parquet(path, _row_groups(rows), axis)
        if csv:
            write_csv(path.with_suffix(".csv"), _row_groups(rows), names_in(folder))
        stated.append(of_level)
    return stated


def csv_files_of_signal(folder: Path, manifest: Manifest) -> list[CsvFile]:
    """Return the CSV files of these tables that exist."""
    paths = {of.level: signal_path(folder, of.level) for of in manifest.signal_tables}
    names = names_in(folder)
    return [
        csv_file(f"{FOLDER}/level_{level}.csv", level, pq.read_schema(path), of_signal=True, names=names)
        for level, path in paths.items()
        if path.with_suffix(".csv").exists()
    ]


def _row_groups(rows: pl.DataFrame) -> Iterator[pa.Table]:
    """Yield rows one row group at a time, at least one, with text as readers of the full tables get it."""
    for first in range(0, max(len(rows), 1), ROW_GROUP):
        part = rows[first : first + ROW_GROUP].to_arrow()
        kinds = [
            pa.string() if kind == pl.String else of.type for kind, of in zip(rows.dtypes, part.schema, strict=True)
        ]
        yield part.cast(pa.schema(list(zip(part.column_names, kinds, strict=True))))
