r"""The checks of the tables beside the levels: views, and the rows that stand out.

Levels 1 to T have such a table each. A marked row of a level takes its count off the nearest row above it that is marked, or off the
total if none is. What is left of a row once the marked rows of all levels down to k have taken theirs is its remainder at level k:

.. math:: r_k(a) = c(a) - \sum_{m} c(m)

over the marked rows m of the levels below a, down to k, of which a is the nearest above. The table of level k has the marked rows of the
level, and every remainder that is not 0 of the total and of the marked rows above. So it adds up to the total, and each row of the table
above is the sum of the marked rows that took from it and of its remainder.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from storage.releases.terms import COUNTS_POSITIVE
from storage.tables import COUNT, HIGH, INTERVAL, LOW, REMAINDER, SIGNAL, SIMULTANEOUS
from tasks.format.csv import csv_failures, names_in
from tasks.format.entries import LevelEntry, SignalTable, ViewEntry
from tasks.format.manifest import Manifest
from tasks.format.published_tree import derived_path, derived_places, view_columns, view_of
from tasks.format.tables import UNREADABLE, has_columns, scan_level
from tasks.laws.law import LevelNoise
from tasks.tree.views import Derived
from tasks.uncertainty.intervals import rounding_step, row_log_tail

FOLDER = SIGNAL

_TAKEN = "\0taken"  # no column of codes ends so


def signal_path(folder: Path, level: int) -> Path:
    """Return the path of the table of a level's rows that stand out, in a published folder."""
    return folder / FOLDER / f"level_{level}.parquet"


def signal_tables(folder: Path, manifest: Manifest) -> Iterator[tuple[SignalTable, pl.DataFrame]]:
    """Yield the table of each level from 1 on, and what the manifest states about it.

    Its columns are the codes of the level, the count, the ends of intervals, and whether the row is a remainder. First come the
    marked rows as in the full table, then the remainders, those of the finest rows first. A remainder has the codes of the row of
    which it is left, and no others. Of the full tables, only marked rows are in memory.

    Args:
        folder: with the full tables, which are correct.
        manifest: what it states about levels and intervals.
    Raises:
        UNREADABLE: a full table cannot be read.
    """
    at_once = [name for name in manifest.bounds if name in SIMULTANEOUS]
    everything = scan_level(folder, manifest.levels[0]).collect()
    left, total = [everything.select(COUNT, *at_once)], int(everything[COUNT].item())
    for entry in manifest.levels[1:]:
        marked = scan_level(folder, entry).filter(pl.col(SIGNAL)).collect()
        codes = marked.columns[: marked.columns.index(COUNT)]
        _take_off(left, marked, at_once)
        width = _half_width(manifest, entry)
        stands_out = _with_intervals(marked, manifest, entry, width, total)
        parts = [stands_out.with_columns(pl.lit(value=False).alias(REMAINDER))]
        parts += [_remainders(above, at_once) for above in reversed(left)]
        rows = pl.concat(parts, how="diagonal").select(*codes, COUNT, *manifest.bounds, REMAINDER)
        stated = SignalTable(
            level=entry.level, rows=rows.height, remainders=rows.height - marked.height, half_width=width
        )
        yield stated, rows
        left.append(marked.select(*codes, COUNT, *at_once))


def signal_failures(folder: Path, manifest: Manifest) -> list[str]:
    """Return what is wrong with the tables of the rows that stand out and their CSV, one sentence per failure.

    Args:
        folder: the folder, whose full tables are correct.
    """
    of_release = manifest.spec.get("release")
    is_asked = isinstance(of_release, dict) and of_release.get("rows") == SIGNAL
    if not is_asked and (manifest.signal_tables or (folder / FOLDER).exists()):
        return [f"{FOLDER}/ must be left out: the spec does not ask for it."]
    if not is_asked:
        return []
    if [of.level for of in manifest.signal_tables] != [entry.level for entry in manifest.levels[1:]]:
        return ["manifest.json: signal_tables must list the levels from 1 to the finest."]
    failures = []
    for (expected, rows), stated in zip(signal_tables(folder, manifest), manifest.signal_tables, strict=True):
        path, name = signal_path(folder, expected.level), f"{FOLDER}/level_{expected.level}.parquet"
        texts = rows.columns[: rows.columns.index(COUNT)]
        try:
            if not has_columns(path, texts, [COUNT, *manifest.bounds], REMAINDER):
                of_codes = f"{', '.join(texts)} (text), "
                numbers = ", ".join([COUNT, *manifest.bounds])
                failures.append(f"{name}: columns must be {of_codes}{numbers} (int64) and {REMAINDER} (bool).")
            elif not pl.read_parquet(path, glob=False).equals(rows):
                failures.append(
                    f"{name}: the rows are not those that stand out in the full tables, with what they leave of the counts above."
                )
            elif manifest.csv or path.with_suffix(".csv").exists():
                of_rows = f"the rows that stand out at level {expected.level}"
                failures += csv_failures(path.with_suffix(".csv"), [path], of_rows, names_in(folder))
        except UNREADABLE:
            failures.append(f"{name} is missing or is not a Parquet file.")
        if stated != expected:
            failures.append(f"manifest.json: signal_tables does not state level {expected.level} as it is.")
    return failures


def _take_off(left: list[pl.DataFrame], marked: pl.DataFrame, at_once: Sequence[str]) -> None:
    """Take the marked rows of a level off the rows above: each off the nearest that is marked, or off the total.

    What is left of an interval that holds for all cells at once holds too: it ends where the least is left of the most, and the
    most of the least.

    Args:
        left: per level above, what is left of the total and of its marked rows; replaced.
        marked: the rows.
        at_once: the columns of such intervals, low and high.
    """
    rest, others = marked, {COUNT: COUNT} | dict(zip(at_once, reversed(at_once), strict=True))
    for level in reversed(range(len(left))):
        above = left[level]
        codes = above.columns[: above.columns.index(COUNT)]
        if rest.is_empty():
            return
        if above.is_empty():
            continue
        sums = [pl.col(name).sum().name.suffix(_TAKEN) for name in others]
        if codes:
            taken = rest.group_by(codes).agg(sums)
            joined = above.join(taken, on=codes, how="left", maintain_order="left")
            rest = rest.join(above, on=codes, how="anti")
        else:
            joined = above.join(rest.select(sums), how="cross")
        left[level] = joined.select(
            *codes, *(pl.col(name) - pl.col(f"{other}{_TAKEN}").fill_null(0) for name, other in others.items())
        )


def _remainders(left: pl.DataFrame, at_once: Sequence[str]) -> pl.DataFrame:
    """Return the remainder rows of a level: what is left there, if anything is; no true count is below 0."""
    ends = [
        pl.min_horizontal(pl.max_horizontal(name, 0), COUNT) if name == at_once[0] else pl.max_horizontal(name, COUNT)
        for name in at_once
    ]
    return left.filter(pl.col(COUNT) != 0).with_columns(*ends, pl.lit(value=True).alias(REMAINDER))


def _half_width(manifest: Manifest, entry: LevelEntry) -> int | None:
    """Return z of the intervals of a level's marked rows, records; None where none follows from the manifest.

    The promise for all rows of a level says little of those that are marked: where few are, all rows that miss their true counts may
    be among these. But whoever chooses cells may take the tail that belongs to their number (`tasks.uncertainty.signals`).
    """
    own = next((of for of in manifest.levels if of.level == entry.same_as), entry)
    has_margin = own.half_width is not None and own.cap_margin is not None  # of independent noises, one law for all
    if not has_margin or entry.signal is None:
        return None
    log_tail = row_log_tail(own.cells, entry.signal.rows, manifest.intervals.confidence)
    return max(own.noise.quantile(log_tail), own.half_width or 0)


def _with_intervals(
    marked: pl.DataFrame, manifest: Manifest, entry: LevelEntry, width: int | None, total: int
) -> pl.DataFrame:
    """Return marked rows with the intervals of their tables: those of the full table, moved outwards, but not above an exact total."""
    if width is None:
        return marked.with_columns(pl.lit(None, dtype=pl.Int64).alias(name) for name in INTERVAL)
    step = rounding_step(entry.sigma) if manifest.intervals.rounded else 1
    further = -(-(width - (entry.half_width or 0)) // step) * step
    high, root = pl.col(HIGH) + further, manifest.levels[0]
    if root.is_exact:
        high = pl.min_horizontal(high, pl.max_horizontal(HIGH, total))
    return marked.with_columns(pl.max_horizontal(pl.col(LOW) - further, 0).alias(LOW), high.alias(HIGH))


_BY_VIEW = "by view"
_NO_CODES = pl.Series([], dtype=pl.String), np.zeros(0, dtype=np.int32)


def view_failures(folder: Path, manifest: Manifest) -> list[str]:
    """Return what is wrong with the views of a folder and with the sources of intervals, from its tables alone.

    Each view must be the sums of the finest level.

    Where the finest level was only calibrated to views, these must add up along their axes, and be as far from its sums as is stated.

    Raises:
        UNREADABLE: a table cannot be read.
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
        failures += [f"{view.path} {failure}"] if failure else []
    if failures or manifest.is_unbiased or manifest.counts_groups:
        return failures
    return source_failures(manifest, finest) if manifest.has_sources else _axis_failures(folder, manifest)


def _axis_failures(folder: Path, manifest: Manifest) -> list[str]:
    """Return which views that were measured by themselves do not say so, or do not add up to others of their axis, or to levels."""
    own = manifest.own_views
    if others := [view.name for view in own if view.source != view.level]:
        return [f"manifest.json: view {others[0]} must be its own source."]
    tables = {view.path: (view, view_table(folder, view)) for view in own}
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
    if table.columns != [*codes, COUNT, *manifest.bounds]:
        return f"must have the columns {', '.join([*codes, COUNT, *manifest.bounds])}."
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
    return pl.read_parquet(folder / view.path, glob=False)


def source_failures(manifest: Manifest, finest: pl.DataFrame) -> list[str]:
    """Return which sources cannot be the measurements that say most about their levels and views, as far as that shows without a codebook.

    A source is measured and refines its level or view, and no measurement in between has as little noise. A sum has the noise of a
    whole number of cells of its source.

    Args:
        finest: the released cells of the finest level, with the derived columns.
    """
    derived = {name: Derived(name, of, *_NO_CODES) for name, of in derived_places(manifest).items()}
    measured = {
        part.level: (view_of(manifest, part, derived), part.noise) for part in manifest.parts if not part.summed
    }
    entries = {part.level: part for part in manifest.parts}
    failures = []
    for part in [*manifest.levels, *manifest.views]:
        if part.source not in measured:
            failures.append(f"{named(part)} must have a source that was measured.")
            continue
        own, (source, noise) = view_of(manifest, part, derived), measured[part.source]
        between = [
            number
            for number, (view, other) in measured.items()
            if number != part.source and source.refines(view) and view.refines(own) and other.variance <= noise.variance
        ]
        if not (source.refines(own) or _follows(manifest, part, entries[source.number], finest)):
            failures.append(f"{named(part)} has a source that does not refine it.")
        elif between:
            failures.append(
                f"{named(part)} must have a source that says as much about it as {named(entries[between[0]])}."
            )
        elif part.summed and not _is_sum(part.sigma, noise):
            failures.append(f"{named(part)} has a sigma that is not that of sums of its source.")
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


def named(part: LevelEntry) -> str:
    """Return how a failure names a level or view."""
    return f"manifest.json: view {part.name}" if isinstance(part, ViewEntry) else f"manifest.json: level {part.level}"
