"""The check of a folder against its estimate: rows, views and statements that follow from noise and noisy counts."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel

from storage.counts.columns import INTERVAL, SIGNAL
from storage.errors import TrellisError
from tasks.format.batches import UNREADABLE, level_paths
from tasks.format.manifest import LevelEntry, Manifest, ViewEntry
from tasks.format.noisy_counts import noisy_counts_path, noisy_view_path
from tasks.format.rows import SlicedRows
from tasks.released.families import estimate_of
from tasks.released.sources.folder import PublishedFolder
from tasks.released.sources.protocol import Misfit, measured_cells
from tasks.released.sources.published import FolderSource
from tasks.tree.frontier import CHUNK_CELLS, taking
from tasks.uncertainty.repeated import own_levels

# by which estimates of shares that were made on another machine may differ, and other numbers
_APART, _CLOSE = {"estimate": 0.002, "rows": 0.002, "records": 0.002}, 1e-9

_OF_LEVELS = (
    *("half_width", "cap_margin", "simultaneous_half_width", "bias", "bound_after", "signal"),
    *("noise_rows", "above_noise", "deviations"),
)


def estimate_failures(folder: Path, manifest: Manifest, workers: int) -> list[str]:
    """Return which rows, views and statements do not follow from the noise and the noisy counts, one sentence each.

    Args:
        folder: the folder, whose tables are correct on their own.
        manifest: its manifest.
        workers: how many files are read at once.
    """
    own, failures = {entry.level for entry in own_levels(manifest.levels)}, list[str]()
    if any(entry.same_as not in {None, *own} for entry in manifest.levels):
        return []  # `verify` has said so
    try:
        for failure in _failures(FolderSource(PublishedFolder(folder, manifest), workers)):
            failures.append(failure)
    except TrellisError as fault:
        failures.append(str(fault))
    except (*UNREADABLE, pl.exceptions.PolarsError):
        failures.append("a table of noisy_counts or a derived column is missing or is not a Parquet file.")
    except (ValueError, LookupError):
        failures.append("manifest.json states levels, views or rules that do not fit the tables.")
    return failures


def _failures(source: FolderSource) -> Iterator[str]:
    """Yield what is wrong.

    Raises:
        Misfit: noisy counts do not fit the rows, so that nothing else can be compared.
        UNREADABLE: a table cannot be read.
        polars.exceptions.PolarsError: likewise.
    """
    manifest, confidence = source.manifest, source.manifest.intervals.confidence
    estimate = estimate_of(source)
    if source.has_whole_parts and manifest.noisy_counts:
        for entry in manifest.parts:
            _check_order(source, entry)
    for entry in manifest.levels:
        rows = estimate.rows(entry.level)
        wrong = _row_failure(source, entry, rows)
        wrong = wrong or _other_statement(entry, estimate.known(entry.level).stated(confidence), _OF_LEVELS)
        if wrong:
            yield f"{entry.path} {wrong}"
        source.forget()
    for view in manifest.views:
        cells, known = estimate.cells(view.level)
        table = source.table(view).columns
        wrong = _other_statement(view, known.stated(confidence), ("half_width", "deviations"))
        if not all(
            np.array_equal(table[name].to_numpy(), end) for name, end in zip(INTERVAL, cells.bounds, strict=True)
        ):
            wrong = _NO_INTERVALS
        if wrong:
            yield f"views/{view.name}.parquet {wrong}"
    yield from estimate.unsettled()


_NO_INTERVALS = "does not have the intervals that follow from the noise."


def _row_failure(source: FolderSource, entry: LevelEntry, rows: SlicedRows) -> str:
    """Return how the table of a level differs from rows, as the end of a sentence; empty if it does not."""
    first = 0
    for batch in _batches(level_paths(source.folder.path, entry), [*source.manifest.bounds, SIGNAL]):
        found, first = rows[first : first + len(batch)], first + len(batch)
        columns = dict(zip(source.manifest.bounds, found.bounds, strict=False))
        if not all(np.array_equal(batch.column(name).to_numpy(), of) for name, of in columns.items()):
            return _NO_INTERVALS
        marks = batch.column(SIGNAL).to_numpy(zero_copy_only=False)
        if found.signal is None or not np.array_equal(marks, found.signal):
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
