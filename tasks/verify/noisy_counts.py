"""The checks of published noisy counts: the cells and the variances that the manifest states."""

import math
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from storage.counts.columns import NOISY, VARIANCE
from tasks.format.batches import UNREADABLE
from tasks.format.manifest import LevelEntry, Manifest
from tasks.format.noisy_counts import (
    CODEBOOK,
    CODEBOOK_SCHEMA,
    FOLDER,
    noisy_counts_path,
    noisy_schema,
    noisy_view_path,
)
from tasks.laws.named import noise_of

_BATCH_ROWS = 500_000  # rows read at once


def noisy_counts_failures(folder: Path, manifest: Manifest) -> list[str]:
    """Return what is wrong with the noisy counts of a published folder on their own, one sentence per failure."""
    try:
        if not pq.read_schema(folder / CODEBOOK).equals(CODEBOOK_SCHEMA):
            return [f"{CODEBOOK} must have the columns {', '.join(CODEBOOK_SCHEMA.names)}."]
        codebook = pq.read_table(folder / CODEBOOK)
        areas = {
            (of["axis"], of["level"]): of["area_max"] + 1
            for of in codebook.group_by(["axis", "level"]).aggregate([("area", "max")]).to_pylist()
        }
    except UNREADABLE:
        return [f"{CODEBOOK} is missing or is not a Parquet file."]
    failures = []
    for entry in (entry for entry in manifest.levels if not entry.summed):
        path = noisy_counts_path(folder, entry.level)
        try:
            failure = _level_failure(path, entry, areas, is_complete=0 < entry.level <= manifest.complete)
        except UNREADABLE:
            failure = "is missing or is not a Parquet file."
        failures += [f"{FOLDER}/level_{entry.level}.parquet {failure}"] if failure else []
    try:
        return failures + _view_failures(folder, manifest)
    except (*UNREADABLE, pl.exceptions.PolarsError):
        return [*failures, f"a table of {FOLDER} is missing or is not a Parquet file."]


def _level_failure(path: Path, entry: LevelEntry, areas: dict[tuple[str, str], int], *, is_complete: bool) -> str:
    """Return what is wrong with the noisy counts of a level, given whether all cells must be there."""
    refined = {axis: level for axis, level in entry.axes.items() if level}
    rows = 0
    with pq.ParquetFile(path) as file:
        if not file.schema_arrow.equals(noisy_schema(list(refined))):
            return f"must have the columns {', '.join(noisy_schema(list(refined)).names)}."
        for batch in file.iter_batches(_BATCH_ROWS):
            rows += len(batch)
            if any(column.null_count for column in batch.columns):
                return "must not have missing values."
            if not np.isclose(batch.column(VARIANCE).to_numpy(), noise_of(entry).variance, rtol=1e-9, atol=0).all():
                return "has a variance that does not follow from the manifest's sigma."
            for axis, level in refined.items():
                numbers = batch.column(axis).to_numpy()
                if len(numbers) and not (numbers.min() >= 0 and numbers.max() < areas.get((axis, level), 0)):
                    return f"names an area of {axis} that is not in its codebook."
    if rows != entry.cells:
        return f"has {rows} rows, but the manifest says {entry.cells}."
    if is_complete and rows != math.prod(areas.get(of, 0) for of in refined.items()):
        return "must have a row for every cell of the level, as the manifest says."
    return ""


def _view_failures(folder: Path, manifest: Manifest) -> list[str]:
    """Return which noisy counts of views are not those that the manifest describes.

    Raises:
        UNREADABLE: a table cannot be read.
        polars.exceptions.PolarsError: likewise.
    """
    failures = []
    for view in (view for view in manifest.own_views if not view.summed):
        table = pl.read_parquet(noisy_view_path(folder, view.name), glob=False)
        if table.height != view.cells or table[NOISY].null_count():
            failures.append(
                f"noisy_counts/view_{view.name}.parquet must have {view.cells} rows without a missing value."
            )
        elif not np.isclose(table[VARIANCE].to_numpy(), noise_of(view).variance, rtol=1e-9, atol=0).all():
            failures.append(
                f"noisy_counts/view_{view.name}.parquet has a variance that does not follow from the manifest's sigma."
            )
    return failures
