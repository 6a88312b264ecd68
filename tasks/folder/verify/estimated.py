"""The checks of published noisy counts, and of rows against what follows from them."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel

from storage.errors import TrellisError
from storage.tables import NOISY, SIGNAL, VARIANCE
from tasks.format.entries import LevelEntry, ViewEntry
from tasks.format.manifest import Manifest
from tasks.format.noisy_counts import (
    CODEBOOK,
    CODEBOOK_SCHEMA,
    FOLDER,
    noisy_counts_path,
    noisy_schema,
    noisy_view_path,
)
from tasks.format.tables import UNREADABLE, SlicedRows, level_paths
from tasks.released.families import estimate_of
from tasks.released.sources.folder import PublishedFolder
from tasks.released.sources.protocol import Misfit, measured_cells
from tasks.released.sources.published import FolderSource
from tasks.tree.axis import FloatArray, IntArray
from tasks.tree.frontier import CHUNK_CELLS, taking
from tasks.tree.order import Tree
from tasks.unbiased.variance import portions_in, variances_of
from tasks.uncertainty.sources import own_levels

_BATCH_ROWS = 500_000  # rows read at once


def noisy_counts_failures(folder: Path, manifest: Manifest) -> list[str]:
    """Return what is wrong with the noisy counts of a published folder on their own, one sentence per failure."""
    try:
        if not pq.read_schema(folder / CODEBOOK).equals(CODEBOOK_SCHEMA):
            return [f"{CODEBOOK} must have the columns {', '.join(CODEBOOK_SCHEMA.names)}."]
        last = pl.read_parquet(folder / CODEBOOK, glob=False).group_by("axis", "level").agg(pl.col("area").max())
        areas = {(axis, level): area + 1 for axis, level, area in last.rows()}
    except UNREADABLE:
        return [f"{CODEBOOK} is missing or is not a Parquet file."]
    failures = []
    expected = partial(_variances, manifest, PublishedFolder(folder, manifest).tree if manifest.cascades else None)
    for entry in (entry for entry in manifest.levels if not entry.summed):
        path = noisy_counts_path(folder, entry.level)
        try:
            failure = _level_failure(path, entry, areas, expected, is_complete=0 < entry.level <= manifest.complete)
        except UNREADABLE:
            failure = "is missing or is not a Parquet file."
        failures += [f"{FOLDER}/level_{entry.level}.parquet {failure}"] if failure else []
    try:
        return failures + _view_failures(folder, manifest, expected)
    except UNREADABLE:
        return [*failures, f"a table of {FOLDER} is missing or is not a Parquet file."]


_Expected = Callable[[LevelEntry, Mapping[str, IntArray], int], FloatArray]


def _variances(
    manifest: Manifest, tree: Tree | None, entry: LevelEntry, areas: Mapping[str, IntArray], rows: int
) -> FloatArray:
    """Return the variances that follow from the manifest's σ, float64, shape (rows,), given the areas by axis; without a tree all are alike."""
    is_level = not isinstance(entry, ViewEntry)
    if tree is None or not (is_level or manifest.is_grid):
        return np.full(rows, entry.noise.variance)
    at = tuple((axis.level_names.index(own) + 1 if (own := entry.axes.get(axis.name)) else 0) for axis in tree.axes)
    portions = portions_in(tree, at, entry.level if is_level and not manifest.is_grid else None)
    return variances_of(
        entry.noise, portions, [areas.get(axis.name, np.zeros(rows, dtype=np.int64)) for axis in tree.axes]
    )


def _level_failure(
    path: Path, entry: LevelEntry, areas: dict[tuple[str, str], int], expected: _Expected, *, is_complete: bool
) -> str:
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
            for axis, level in refined.items():
                numbers = batch.column(axis).to_numpy()
                if len(numbers) and not (numbers.min() >= 0 and numbers.max() < areas.get((axis, level), 0)):
                    return f"names an area of {axis} that is not in its codebook."
            variances = expected(entry, {axis: batch.column(axis).to_numpy() for axis in refined}, len(batch))
            if not np.isclose(batch.column(VARIANCE).to_numpy(), variances, rtol=1e-9, atol=0).all():
                return "has a variance that does not follow from the manifest's sigma."
    if rows != entry.cells:
        return f"has {rows} rows, but the manifest says {entry.cells}."
    if is_complete and rows != math.prod(areas.get(of, 0) for of in refined.items()):
        return "must have a row for every cell of the level, as the manifest says."
    return ""


def _view_failures(folder: Path, manifest: Manifest, expected: _Expected) -> list[str]:
    """Return which noisy counts of views are not those that the manifest describes."""
    failures = []
    for view in (view for view in manifest.own_views if not view.summed):
        table = pl.read_parquet(noisy_view_path(folder, view.name), glob=False)
        if table.height != view.cells or table[NOISY].null_count():
            failures.append(
                f"noisy_counts/view_{view.name}.parquet must have {view.cells} rows without a missing value."
            )
            continue
        variances = expected(view, {axis: table[axis].to_numpy() for axis, own in view.axes.items() if own}, len(table))
        if not np.isclose(table[VARIANCE].to_numpy(), variances, rtol=1e-9, atol=0).all():
            failures.append(
                f"noisy_counts/view_{view.name}.parquet has a variance that does not follow from the manifest's sigma."
            )
    return failures


# by which estimates of shares that were made on another machine may differ, and other numbers
_APART, _CLOSE = {"estimate": 0.002, "rows": 0.002, "records": 0.002}, 1e-9


def estimate_failures(folder: Path, manifest: Manifest, workers: int) -> list[str]:
    """Return which rows, views and statements do not follow from the noise and the noisy counts, one sentence each.

    Args:
        folder: the folder, whose tables are correct on their own.
    """
    own, failures = {entry.level for entry in own_levels(manifest.levels)}, list[str]()
    if any(entry.same_as not in {None, *own} for entry in manifest.levels):
        return []  # `verify` has said so
    try:
        for failure in _failures(FolderSource(PublishedFolder(folder, manifest), workers)):
            failures.append(failure)
    except TrellisError as fault:
        failures.append(str(fault))
    except UNREADABLE:
        failures.append("a table of noisy_counts or a derived column is missing or is not a Parquet file.")
    except (ValueError, LookupError):
        failures.append("manifest.json states levels, views or rules that do not fit the tables.")
    return failures


def _failures(source: FolderSource) -> Iterator[str]:
    """Yield what is wrong.

    Raises:
        Misfit: noisy counts do not fit the rows, so that nothing else can be compared.
    """
    manifest, confidence = source.manifest, source.manifest.intervals.confidence
    estimate = estimate_of(source)
    if source.has_whole_parts and manifest.noisy_counts:
        for entry in manifest.parts:
            _check_order(source, entry)
    for entry in manifest.levels:
        wrong = _row_failure(source, entry, estimate.rows(entry.level))
        known = estimate.known(entry.level).stated(confidence)
        if wrong := wrong or _other_statement(entry, known, [name for name in known if name != "intervals"]):
            yield f"{entry.path} {wrong}"
        source.forget()
    for view in manifest.views:
        cells, of_view = estimate.cells(view.level)
        ends = zip(source.table(view).columns.select(manifest.bounds), cells.bounds, strict=True)
        wrong = "" if all(np.array_equal(there.to_numpy(), end) for there, end in ends) else _NO_INTERVALS
        if wrong := wrong or _other_statement(view, of_view.stated(confidence), ("half_width", "deviations")):
            yield f"{view.path} {wrong}"
    yield from estimate.unsettled()


_NO_INTERVALS = "does not have the intervals that follow from the noise."


def _row_failure(source: FolderSource, entry: LevelEntry, rows: SlicedRows) -> str:
    """Return how the table of a level differs from rows, as the end of a sentence; empty if it does not."""
    first = 0
    for batch in _batches(level_paths(source.folder.path, entry), [*source.manifest.bounds, SIGNAL]):
        expected, first = rows[first : first + len(batch)], first + len(batch)
        columns = dict(zip(source.manifest.bounds, expected.bounds, strict=False))
        if not all(np.array_equal(batch.column(name).to_numpy(), of) for name, of in columns.items()):
            return _NO_INTERVALS
        marks = batch.column(SIGNAL).to_numpy(zero_copy_only=False)
        if expected.signal is None or not np.array_equal(marks, expected.signal):
            return f"does not mark the rows as {SIGNAL} that stand out."
    return "" if first == len(rows) else "does not have the rows that follow from the noisy counts."


def _other_statement(entry: LevelEntry, known: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return what an entry of the manifest states otherwise, as the end of a sentence; empty if it states all as it is known."""
    wrong = next((name for name in names if not _are_alike(name, getattr(entry, name), known[name])), None)
    return f"does not have the {wrong} that the manifest states." if wrong else ""


def _are_alike(name: str, stated: Any, known: Any) -> bool:
    if isinstance(stated, BaseModel) and isinstance(known, BaseModel):
        return all(_are_alike(field, value, getattr(known, field)) for field, value in stated)
    if isinstance(stated, float) and isinstance(known, float):
        return math.isclose(stated, known, rel_tol=_CLOSE, abs_tol=_APART.get(name, _CLOSE))
    return bool(stated == known)


def _check_order(source: FolderSource, entry: LevelEntry) -> None:
    """Check that noisy counts list every cell in the order in which it was measured; raise Misfit if not."""
    levels, part = source.levels_of(entry.axes), source.parts[entry.level]
    if not part.is_measured or not any(levels):
        return
    path = (
        noisy_view_path(Path(), entry.name) if isinstance(entry, ViewEntry) else noisy_counts_path(Path(), entry.level)
    )
    refined = [number for number, own in enumerate(levels) if own]
    names = [source.tree.axes[number].name for number in refined]
    take = [
        taking(batch.column(0).to_numpy().astype(np.int64) for batch in _batches([source.folder.path / path], [name]))
        for name in names
    ]
    try:
        is_whole = all(
            np.array_equal(of(len(cells[0])), cells[number])
            for cells in measured_cells(source, entry.level)
            for of, number in zip(take, refined, strict=True)
        )
    except StopIteration:
        is_whole = False
    if not is_whole:
        raise Misfit(f"{path} must list every cell in the order in which it was measured.")


def _batches(paths: Sequence[Path], columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield some columns of files, one after the other, in parts."""
    for path in paths:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(CHUNK_CELLS, columns=columns)
