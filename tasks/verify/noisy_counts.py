"""The checks of published noisy counts, and of the released rows against them: the same cells, and intervals that follow."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from storage.counts.columns import COUNT, HIGH, LOW, NOISY, SIGNAL, VARIANCE
from tasks.format.batches import UNREADABLE
from tasks.format.manifest import Intervals, LevelEntry, Manifest
from tasks.format.noisy_counts import CODEBOOK, CODEBOOK_SCHEMA, FOLDER, noisy_counts_path, noisy_schema
from tasks.laws.named import noise_of
from tasks.tree.axis import BoolArray, IntArray
from tasks.uncertainty.intervals import NO_CAP, row_log_tail
from tasks.uncertainty.moves import Moves, bounds_after, reach_after
from tasks.uncertainty.noise_rows import LOG_TAILS, beyond
from tasks.uncertainty.shares import share_at_most
from tasks.uncertainty.signals import signals

_BATCH_ROWS = 500_000  # rows read at once
_OWN, _CAP = "\0own", "\0cap"


def noisy_counts_failures(
    folder: Path, manifest: Manifest, totals: Sequence[int], columns: Sequence[Mapping[str, Sequence[str]]]
) -> list[str]:
    """Return what is wrong with the noisy counts of a published folder, one sentence per failure.

    Args:
        folder: the folder.
        manifest: its manifest.
        totals: the sums of the released counts of levels 0 to T, records.
        columns: per level and axis, the columns of codes that its table has, coarse to fine.
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
    failures, exact, moves = [], None, list[Moves]()
    for entry, total in zip(manifest.levels, totals, strict=True):
        if not entry.summed:
            path = noisy_counts_path(folder, entry.level)
            try:
                failure = _level_failure(path, entry, areas, total)
                if not failure and not manifest.intervals.rounded:
                    table = folder / "counts" / path.name
                    rows, measured = _joined(table, path, pl.DataFrame(codebook), columns[entry.level])
                    failure = _misfit(rows, measured, entry, manifest.intervals, exact)
                    if not failure:
                        moves.append(_moves(rows, measured, entry, sum(bool(of.sigma) for of in manifest.levels)))
                    exact = exact if entry.sigma else (table, columns[entry.level])
            except (*UNREADABLE, pl.exceptions.PolarsError):
                failure = "is missing or is not a Parquet file."
            failures += [f"{FOLDER}/level_{entry.level}.parquet {failure}"] if failure else []
    if len(moves) == len(manifest.levels):
        stated = [entry.bound_after for entry in manifest.levels]
        if stated != bounds_after(moves):
            failures.append("manifest.json: bound_after does not follow from the released and the noisy counts.")
    return failures


def _level_failure(path: Path, entry: LevelEntry, areas: dict[tuple[str, str], int], total: int) -> str:
    """Return what is wrong with the noisy counts of a level, given the total of its released counts."""
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
    if entry.bias is not None and rows and not math.isclose(entry.bias, (total - noisy_sum) / rows, abs_tol=1e-9):
        return "does not have the bias that the manifest states."
    return ""


def _half_width(entry: LevelEntry, confidence: float) -> int | None:
    """Return z of the intervals of a level's rows, as the noise and the rows have it; None where none are promised."""
    if entry.intervals is None or entry.intervals.promise != "rows":
        return None
    if entry.half_width is not None:  # the check of the manifest compares it with the noise, the cells and the rows
        return entry.half_width
    return noise_of(entry).quantile(row_log_tail(entry.cells, entry.nonzero, confidence))


def _joined(
    table: Path, noisy: Path, codebook: pl.DataFrame, columns: Mapping[str, Sequence[str]]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows of a level with their noisy counts, missing where a row was not measured, and all measured cells.

    Args:
        table: the table of the level, correct on its own.
        noisy: the noisy counts of the level, correct on their own.
        codebook: the codebook whose numbers the noisy counts use for areas.
        columns: per axis, the columns of codes that the table has, coarse to fine.
    """
    refined = [(axis, names) for axis, names in columns.items() if names]
    numbers = [f"\0{number}" for number in range(len(refined))]  # no column of codes has such a name
    rows = pl.read_parquet(table, glob=False)
    for (axis, names), number in zip(refined, numbers, strict=True):
        rows = rows.join(_paths(codebook, axis, names, number), on=names, how="left")
    measured = pl.read_parquet(noisy, glob=False).rename(
        {axis: number for (axis, _), number in zip(refined, numbers, strict=True)}
    )
    if not numbers:
        return pl.concat([rows, measured], how="horizontal"), measured
    return rows.join(measured, on=numbers, how="left"), measured.join(
        rows.select(*numbers, COUNT), on=numbers, how="left"
    )


def _misfit(
    rows: pl.DataFrame,
    measured: pl.DataFrame,
    entry: LevelEntry,
    terms: Intervals,
    exact: tuple[Path, Mapping[str, Sequence[str]]] | None,
) -> str:
    """Return how the rows of a level contradict its noisy counts, as the end of a sentence; empty if they agree.

    Args:
        rows: of the level, with their noisy counts and with intervals that are not rounded.
        measured: all measured cells.
        entry: the manifest's entry for the level.
        terms: of the intervals and marks.
        exact: the table of the finest exact level above, whose counts are caps, and its columns; None if there is none.
    """
    if rows[NOISY].null_count():
        return "lacks a cell that has a released count."
    if not _is_marked(rows[NOISY].to_numpy(), rows[SIGNAL].to_numpy(), entry, terms.signal_rate):
        return f"does not agree with {SIGNAL} of the released counts, or with what the manifest says of it."
    if not _is_as_noisy(rows[NOISY].to_numpy(), measured[NOISY].to_numpy(), entry):
        return "does not agree with noise_rows of the manifest."
    half_width = _half_width(entry, terms.confidence)
    if half_width is None:
        return ""
    rows = _with_caps(rows, exact)
    low = pl.min_horizontal(pl.max_horizontal(pl.col(NOISY) - half_width, 0), COUNT)
    high = pl.max_horizontal(pl.min_horizontal(pl.max_horizontal(pl.col(NOISY) + half_width, 0), _CAP), COUNT)
    fits = rows.select(((pl.col(LOW) == low) & (pl.col(HIGH) == high)).all()).item()
    return "" if fits else "does not agree with the intervals of the released counts."


def _is_marked(noisy: IntArray, marked: BoolArray, entry: LevelEntry, rate: float) -> bool:
    """Return whether the rows of a level are marked that stand out from the noise, as the manifest says."""
    if entry.threshold or not entry.sigma:
        expected, above = noisy > 0, None
    else:
        expected, above = signals(noisy, entry.cells, rate, noise_of(entry).quantile)
    return bool((marked == expected).all()) and (entry.signal.above if entry.signal else None) == above


def _is_as_noisy(rows: IntArray, measured: IntArray, entry: LevelEntry) -> bool:
    """Return whether the share of noise rows is at most what the manifest states, given the noisy counts of a level."""
    if entry.threshold or not len(rows):
        return entry.noise_rows is None
    stated, noise = entry.noise_rows, noise_of(entry)
    if stated is None or not stated.estimate <= stated.at_most:
        return False
    if not noise:
        return stated.at_most == 0
    seen = beyond(measured, rows, [noise.quantile(log_tail) for log_tail in LOG_TAILS])
    return stated.at_most == share_at_most(seen, entry.cells, entry.nonzero)


def _moves(rows: pl.DataFrame, measured: pl.DataFrame, entry: LevelEntry, levels: int) -> Moves:
    """Return how far the repair has moved the noisy counts of a level, of so many levels that bear noise."""
    moves = Moves(reach_after(noise_of(entry), entry.cells, levels))
    released = measured[COUNT].fill_null(0) if COUNT in measured.columns else rows[COUNT]
    moves.add(measured[NOISY].to_numpy(), released.to_numpy())
    return moves


def _with_caps(rows: pl.DataFrame, exact: tuple[Path, Mapping[str, Sequence[str]]] | None) -> pl.DataFrame:
    """Return the rows of a level with the exact count of the cell above that holds each, where there is one."""
    if exact is None:
        return rows.with_columns(pl.lit(NO_CAP).alias(_CAP))
    table, columns = exact
    names = [name for of_axis in columns.values() for name in of_axis]
    caps = pl.read_parquet(table, glob=False, columns=[*names, COUNT]).rename({COUNT: _CAP})
    if not names:
        return rows.join(caps, how="cross")
    return rows.join(caps, on=names, how="left").with_columns(pl.col(_CAP).fill_null(0))


def _paths(codebook: pl.DataFrame, axis: str, names: Sequence[str], number: str) -> pl.DataFrame:
    """Return the areas of an axis level: their paths of codes, in the named columns, and their numbers."""
    levels = codebook.filter(axis=axis).partition_by("level", maintain_order=True)
    paths = pl.DataFrame({number: [0]}, schema={number: pl.Int32})
    for name, of_level in zip(names, levels, strict=False):
        below = of_level.select(pl.col("area").alias(_OWN), pl.col("parent").alias(number), pl.col("code").alias(name))
        paths = below.join(paths, on=number).drop(number).rename({_OWN: number})
    return paths
