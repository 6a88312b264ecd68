"""The checks of published noisy counts: the cells and the variances that the manifest states, and what follows for the rows."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from storage.counts.columns import NOISY, VARIANCE
from tasks.format.batches import UNREADABLE
from tasks.format.manifest import LevelEntry, Manifest
from tasks.format.noisy_counts import CODEBOOK, CODEBOOK_SCHEMA, FOLDER, noisy_counts_path, noisy_schema
from tasks.laws.named import noise_of
from tasks.verify.measured.released_rows import ReleasedRows
from tasks.verify.measured.settled import settled_failures
from tasks.verify.measured.sizes import size_failures
from tasks.verify.measured.unbiased import unbiased_failures

_BATCH_ROWS = 500_000  # rows read at once


def noisy_counts_failures(
    folder: Path,
    manifest: Manifest,
    totals: Sequence[int],
    columns: Sequence[Mapping[str, Sequence[str]]],
    workers: int,
) -> list[str]:
    """Return what is wrong with the noisy counts of a published folder, one sentence per failure.

    Args:
        folder: the folder.
        manifest: its manifest.
        totals: the sums of the released counts of levels 0 to T, records.
        columns: per level and axis, the columns of codes that its table has, coarse to fine.
        workers: how many parts of a table are read at once.
    """
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
    is_settled = manifest.is_settled_together or manifest.covariance or manifest.statistic
    failures, released = [], ReleasedRows(folder, manifest, pl.DataFrame(codebook), columns, workers)
    for entry, total in zip(manifest.levels, totals, strict=True):
        path = noisy_counts_path(folder, entry.level)
        try:
            is_complete = 0 < entry.level <= manifest.complete
            failure = "" if entry.summed else _level_failure(path, entry, areas, total, is_complete=is_complete)
            if not failure and not manifest.intervals.rounded and not is_settled:
                failure = released.misfit(entry)
        except (*UNREADABLE, pl.exceptions.PolarsError):
            failure = "is missing or is not a Parquet file."
        where = entry.path if entry.summed else f"{FOLDER}/level_{entry.level}.parquet"
        failures += [f"{where} {failure}"] if failure else []
    if (manifest.views or manifest.covariance or manifest.statistic) and not failures:
        failures = _settled(folder, manifest)
    if not failures and not is_settled and not released.has_bounds():
        failures.append("manifest.json: bound_after does not follow from the released and the noisy counts.")
    return failures


def _settled(folder: Path, manifest: Manifest) -> list[str]:
    try:
        if manifest.statistic:
            return size_failures(folder, manifest)
        return (unbiased_failures if manifest.covariance else settled_failures)(folder, manifest)
    except (*UNREADABLE, pl.exceptions.PolarsError):
        return [f"a table of {FOLDER} or a derived column is missing or is not a Parquet file."]


def _level_failure(
    path: Path, entry: LevelEntry, areas: dict[tuple[str, str], int], total: int, *, is_complete: bool
) -> str:
    """Return what is wrong with the noisy counts of a level, given the total of its released counts, and whether all cells must be there."""
    refined = {axis: level for axis, level in entry.axes.items() if level}
    rows = noisy_sum = 0
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
            noisy_sum += int(batch.column(NOISY).to_numpy().sum())
    if rows != entry.cells:
        return f"has {rows} rows, but the manifest says {entry.cells}."
    if is_complete and rows != math.prod(areas.get(of, 0) for of in refined.items()):
        return "must have a row for every cell of the level, as the manifest says."
    is_own = entry.source in {
        None,
        entry.level,
    }  # otherwise its bias is that against the noisy counts of another level or view
    if (
        is_own
        and entry.bias is not None
        and rows
        and not math.isclose(entry.bias, (total - noisy_sum) / rows, abs_tol=1e-9)
    ):
        return "does not have the bias that the manifest states."
    return ""
