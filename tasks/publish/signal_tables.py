"""The tables of the rows that stand out, as they are published beside the full tables."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa

from tasks.format.csv import names_in, write_csv
from tasks.format.manifest import Manifest, SignalTable
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


def _row_groups(rows: pl.DataFrame) -> Iterator[pa.Table]:
    """Yield rows one row group at a time, at least one, with text as readers of the full tables get it."""
    for first in range(0, max(len(rows), 1), ROW_GROUP):
        part = rows[first : first + ROW_GROUP].to_arrow()
        kinds = [
            pa.string() if kind == pl.String else of.type for kind, of in zip(rows.dtypes, part.schema, strict=True)
        ]
        yield part.cast(pa.schema(list(zip(part.column_names, kinds, strict=True))))
