"""The checks of the views of a folder: their cells and counts, their noisy counts where these are published, and the sources of intervals."""

import math
from pathlib import Path

import numpy as np
import polars as pl

from storage.counts.columns import COUNT, HIGH, LOW
from storage.releases.terms import COUNTS_POSITIVE
from tasks.format.batches import scan_level
from tasks.format.manifest import LevelEntry, Manifest, ViewEntry
from tasks.format.published_tree import derived_path, derived_places, view_columns, view_of
from tasks.laws.law import LevelNoise
from tasks.laws.named import noise_of
from tasks.tree.views import Derived

_BY_VIEW = "by view"
_NO_CODES = pl.Series([], dtype=pl.String), np.zeros(0, dtype=np.int32)


def view_failures(folder: Path, manifest: Manifest) -> list[str]:
    """Return what is wrong with the views of a folder and with the sources of intervals, from its tables alone.

    Each view must be the sums of the finest level.

    Where the finest level was only calibrated to views, these must add up along their axes, and be as far from its sums as is stated.

    Raises:
        UNREADABLE: a table cannot be read.
        polars.exceptions.PolarsError: likewise.
    """
    failures = []
    finest = scan_level(folder, manifest.levels[-1]).collect()
    for name, entry in manifest.derived.items():
        listed = pl.read_parquet(derived_path(folder, name), glob=False)
        if not {*entry.of, name} <= set(listed.columns) or listed.select(entry.of).is_duplicated().any():
            return [f"derived/{name}.parquet must list each combination of {', '.join(entry.of)} once."]
        finest = finest.join(listed.select(*entry.of, name), on=entry.of, how="left")
    for view in manifest.views:
        failure = _view_failure(folder, manifest, view, finest)
        failures += [f"views/{view.name}.parquet {failure}"] if failure else []
    if failures or manifest.is_unbiased:
        return failures
    return source_failures(manifest, finest) if manifest.has_sources else _axis_failures(folder, manifest)


def _axis_failures(folder: Path, manifest: Manifest) -> list[str]:
    """Return which views that were measured by themselves do not say so, or do not add up to others of their axis, or to levels."""
    own = manifest.own_views
    if others := [view.name for view in own if view.source != view.level]:
        return [f"manifest.json: view {others[0]} must be its own source."]
    tables = {f"views/{view.name}.parquet": (view, view_table(folder, view)) for view in own}
    levels = {entry.path: (entry, scan_level(folder, entry).collect()) for entry in manifest.levels}
    failures = []
    for fine, (view, table) in tables.items():
        for coarse, (entry, totals) in (levels | tables).items():
            codes = view_columns(manifest, entry)
            if (
                entry is not view
                and set(codes) <= set(view_columns(manifest, view))
                and not _adds_up(table, totals, codes)
            ):
                failures.append(f"{fine} does not add up to {coarse}.")
    return failures


def _adds_up(table: pl.DataFrame, totals: pl.DataFrame, codes: list[str]) -> bool:
    """Return whether the counts of a table add up to those of a coarser one with these codes; a missing row is a 0."""
    if not codes:
        return int(table[COUNT].sum()) == int(totals[COUNT].sum())
    sums = table.group_by(codes).agg(pl.col(COUNT).sum()).filter(pl.col(COUNT) != 0).sort(codes)
    return sums.equals(totals.select(*codes, COUNT).filter(pl.col(COUNT) != 0).sort(codes))


def _view_failure(folder: Path, manifest: Manifest, view: ViewEntry, finest: pl.DataFrame) -> str:
    table, codes = view_table(folder, view), view_columns(manifest, view)
    if table.columns != [*codes, COUNT, LOW, HIGH]:
        return f"must have the columns {', '.join([*codes, COUNT, LOW, HIGH])}."
    if table.height != view.cells or (table[COUNT] != 0).sum() != view.nonzero:
        return f"must have {view.cells} rows, {view.nonzero} of them with a count, as the manifest says."
    if sum(map(int, table.null_count().row(0))) or (codes and table.select(codes).is_duplicated().any()):
        return "must have each cell once, and no missing value."
    if COUNTS_POSITIVE not in manifest.waived and not (table[COUNT] >= 0).all():
        return "must have counts >= 0."
    inside = table[COUNT].clip(0)  # no true count is below 0
    if not ((table[LOW] <= inside) & (inside <= table[HIGH])).all():
        return "must have counts that lie between low and high."
    if not codes:
        return "" if int(table[COUNT].sum()) == int(finest[COUNT].sum()) else _NO_SUM
    sums = finest.group_by(codes).agg(pl.col(COUNT).sum().alias(_BY_VIEW))
    joined = table.join(sums, on=codes, how="full")
    if not joined[COUNT].null_count():
        distance = (joined[COUNT] - joined[_BY_VIEW].fill_null(0)).abs().to_numpy()
        if not view.differs:
            return "" if not distance.any() else _NO_SUM
        as_stated = distance.max() == view.differs.largest and math.isclose(distance.mean(), view.differs.mean)
        if as_stated and not manifest.has_sources:
            return ""
    return (
        _NO_SUM if view.differs is None else "does not differ from the sums of the finest level as the manifest says."
    )


_NO_SUM = "does not add up the counts of the finest level."


def view_table(folder: Path, view: ViewEntry) -> pl.DataFrame:
    """Return the published table of a view."""
    return pl.read_parquet(folder / "views" / f"{view.name}.parquet", glob=False)


def source_failures(manifest: Manifest, finest: pl.DataFrame) -> list[str]:
    """Return which sources cannot be the measurements that say most about their levels and views, as far as that shows without a codebook.

    A source is measured and refines its level or view, and no measurement in between has as little noise. A sum has the noise of a
    whole number of cells of its source.

    Args:
        manifest: the manifest.
        finest: the released cells of the finest level, with the derived columns.
    """
    derived = {name: Derived(name, of, *_NO_CODES) for name, of in derived_places(manifest).items()}
    measured = {
        part.level: (view_of(manifest, part, derived), noise_of(part)) for part in manifest.parts if not part.summed
    }
    entries = {part.level: part for part in manifest.parts}
    failures = []
    for part in [*manifest.levels, *manifest.views]:
        if part.source not in measured:
            failures.append(f"{_named(part)} must have a source that was measured.")
            continue
        own, (source, noise) = view_of(manifest, part, derived), measured[part.source]
        between = [
            number
            for number, (view, other) in measured.items()
            if number != part.source and source.refines(view) and view.refines(own) and other.variance <= noise.variance
        ]
        if not (source.refines(own) or _follows(manifest, part, entries[source.number], finest)):
            failures.append(f"{_named(part)} has a source that does not refine it.")
        elif between:
            failures.append(
                f"{_named(part)} must have a source that says as much about it as {_named(entries[between[0]])}."
            )
        elif part.summed and not _is_sum(part.sigma, noise):
            failures.append(f"{_named(part)} has a sigma that is not that of sums of its source.")
    return failures


def _follows(manifest: Manifest, part: LevelEntry, source: LevelEntry, finest: pl.DataFrame) -> bool:
    """Return whether the codes of a level or view follow from those of its source in every released cell, as codebooks may make them."""
    of_source = view_columns(manifest, source)
    both = list(dict.fromkeys([*of_source, *view_columns(manifest, part)]))
    cells = finest.select(of_source).n_unique() if of_source else min(finest.height, 1)
    return finest.select(both).n_unique() == cells


def _is_sum(sigma: float, noise: LevelNoise) -> bool:
    """Return whether a σ is that of a sum of a whole number of cells with some noise."""
    if not noise:
        return sigma == 0
    terms = (sigma / noise.sigma) ** 2
    return terms > 0.5 and math.isclose(terms, round(terms), rel_tol=1e-9)


def _named(part: LevelEntry) -> str:
    """Return how a failure names a level or view."""
    return f"manifest.json: view {part.name}" if isinstance(part, ViewEntry) else f"manifest.json: level {part.level}"
