"""Verification of a published folder by itself: no store, no codebook, no network."""

import math
from itertools import chain, pairwise
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from storage.files import sha256_of
from tasks.publish.manifest import LevelEntry, Manifest
from tasks.publish.tables import column_name

SUMS = "SHA256SUMS"


def verify(folder: Path) -> list[str]:
    """Return what is wrong with a published folder, a sentence each; an empty list means that it is whole."""
    if not folder.is_dir():
        return [f"There is no folder {folder}."]
    try:
        failures = _checksums(folder)
    except OSError as fault:
        return [f"{fault.filename} cannot be read ({fault.strerror})."]
    try:
        manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
    except OSError:
        return [*failures, "manifest.json is missing or cannot be read."]
    except ValidationError as fault:
        where = "; ".join(f"{'.'.join(map(str, error['loc'])) or 'file'}: {error['msg']}" for error in fault.errors())
        return [*failures, f"manifest.json is not complete ({where})."]
    failures += _manifest(manifest)
    if [entry.level for entry in manifest.levels] != list(range(len(manifest.levels))):
        return [*failures, "manifest.json does not list the levels 0, 1, 2, … in order."]
    return failures + _tables(folder, manifest)


def _manifest(manifest: Manifest) -> list[str]:
    """Return where the manifest contradicts itself."""
    failures = []
    if not math.isclose(sum(entry.rho for entry in manifest.levels), manifest.privacy.rho, rel_tol=1e-9):
        failures.append("manifest.json: the levels' rho do not add up to the release's.")
    if {seal.level for seal in manifest.seals} != {entry.level for entry in manifest.levels}:
        failures.append("manifest.json: not every level has its seal.")
    for entry in manifest.levels:
        told = f"manifest.json: level {entry.level}"
        if (entry.rho == 0) != (entry.sigma == 0):
            failures.append(f"{told} must have both rho and sigma, or neither.")
        elif entry.rho and not math.isclose(entry.sigma**2, entry.l2_sensitivity**2 / (2 * entry.rho), rel_tol=1e-9):
            failures.append(f"{told} has a sigma that its rho does not buy.")
    return failures


def _checksums(folder: Path) -> list[str]:
    sums = folder / SUMS
    if not sums.is_file():
        return [f"{SUMS} is missing."]
    lines = (line.partition("  ") for line in sums.read_text(errors="replace").splitlines())
    expected = {name: sha256 for sha256, _, name in lines}
    there = {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()} - {SUMS}
    failures = [f"{name} is not in {SUMS}." for name in sorted(there - expected.keys())]
    failures += [f"{name} is missing." for name in sorted(expected.keys() - there)]
    altered = (name for name in sorted(there & expected.keys()) if sha256_of(folder / name) != expected[name])
    return failures + [f"{name} is not the file that was published." for name in altered]


def _tables(folder: Path, manifest: Manifest) -> list[str]:
    tables, failures = [], []
    for entry, columns in zip(manifest.levels, _columns(manifest), strict=True):
        table = _read(folder / "counts" / f"level_{entry.level}.parquet")
        if table is None:
            return [f"level_{entry.level}.parquet is missing or not Parquet."]
        tables.append(table)
        failures += [f"level_{entry.level}: {wrong}" for wrong in _level(entry, columns, table)]
    if failures:
        return failures
    for entry, (parents, children) in zip(manifest.levels[1:], pairwise(tables), strict=True):
        if not _children_add_up(parents, children):
            failures.append(f"level_{entry.level}: children do not add up to their parents.")
    try:
        finest = pl.read_csv(folder / "counts.csv", infer_schema=False, glob=False).cast({"count": pl.Int64})
    except (OSError, pl.exceptions.PolarsError):
        return [*failures, "counts.csv is missing or not what it should be."]
    if not finest.equals(tables[-1]):
        failures.append("counts.csv is not the finest level.")
    return failures


def _columns(manifest: Manifest) -> list[list[str]]:
    """Return, per level, the columns that its table must have: each axis as far as it is refined, coarse to fine."""
    reached: dict[str, list[str]] = {axis: [] for axis in manifest.levels[0].axes}
    columns = []
    for entry in manifest.levels:
        for axis, level in entry.axes.items():
            name = column_name(axis, level) if level else None
            if name and name not in reached.setdefault(axis, []):
                reached[axis].append(name)
        columns.append([*chain.from_iterable(reached.values()), "count"])
    return columns


def _read(path: Path) -> pl.DataFrame | None:
    """Return a table, or None where there is none that can be read whole; Polars would end the process over some."""
    try:
        table = pq.read_table(path, partitioning=None)
        table.validate(full=True)
    except (OSError, pa.ArrowException):
        return None
    return pl.DataFrame(table)


def _level(entry: LevelEntry, columns: list[str], table: pl.DataFrame) -> list[str]:
    """Return what is wrong with one level's table by itself."""
    *codes, _ = columns
    if table.schema != pl.Schema(dict.fromkeys(codes, pl.String) | {"count": pl.Int64}):
        return [
            f"columns must be {', '.join(codes)} (text) and count (int64)." if codes else "the column must be count."
        ]
    failures = []
    if table.height != entry.nonzero:
        failures.append(f"has {table.height} rows, the manifest says {entry.nonzero}.")
    if entry.level == 0 and table.height != 1:
        failures.append("must have one row.")
    if any(series.null_count() for series in table) or (table["count"] < (0 if entry.level == 0 else 1)).any():
        failures.append("counts must be whole and above zero, and no code missing.")
    if codes and table.select(codes).is_duplicated().any():
        failures.append("an area or a pair of areas appears twice.")
    if codes and not table.equals(table.sort(codes)):
        failures.append("rows must be sorted by their codes.")
    return failures


def _children_add_up(parents: pl.DataFrame, children: pl.DataFrame) -> bool:
    codes = parents.columns[:-1]
    if not codes:
        return bool(children["count"].sum() == parents["count"].sum())
    sums = children.group_by(codes).agg(pl.col("count").sum()).sort(codes)
    return sums.equals(parents.sort(codes))
