"""The tables beside the levels as they are published: views, derived columns, and the rows that stand out."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from storage.record import ReleasedPart
from storage.releases.register import Release
from storage.releases.shards import TRUNK, shard_name
from storage.releases.terms import ViewTerms
from storage.tables import BOUNDS, COUNT, column_name, flat_features
from tasks.folder.export.formats import VIEWS
from tasks.folder.verify.views import FOLDER, signal_path, signal_tables
from tasks.format.csv import names_in, write_csv
from tasks.format.entries import DerivedEntry, Difference, PoorMargin, Rounding, SignalTable, ViewEntry
from tasks.format.manifest import Manifest, entry_fields
from tasks.format.published_tree import DERIVED, derived_path
from tasks.format.tables import ROW_GROUP, Rows, write_parquet
from tasks.laws.named import noise_of
from tasks.pages.facts import Collector
from tasks.released.estimate import Estimate, Known
from tasks.released.sources.job import JobSource
from tasks.tree.axis import IntArray
from tasks.tree.job import Job
from tasks.tree.views import Partition, have_same_cells, margin, sums_of_leaves, unnumbered
from tasks.uncertainty.sources import expected_error
from tasks.validate.size import CsvKind


def write_signal_tables(folder: Path, manifest: Manifest, *, csv: CsvKind) -> list[SignalTable]:
    """Write the tables of the rows that stand out, and return what the manifest states about each.

    Args:
        folder: the folder being published, with the full tables.
        manifest: what it states so far.
    """
    (folder / FOLDER).mkdir()
    axis, stated = next(iter(manifest.levels[0].axes)), []
    for entry, rows in signal_tables(folder, manifest):
        path = signal_path(folder, entry.level)
        write_parquet(path, _row_groups(rows), axis)
        if csv:
            write_csv(path.with_suffix(".csv"), _row_groups(rows), names_in(folder))
        stated.append(entry)
    return stated


def _row_groups(rows: pl.DataFrame) -> Iterator[pa.Table]:
    """Yield rows one row group at a time, at least one, with text as readers of the full tables get it."""
    for first in range(0, max(len(rows), 1), ROW_GROUP):
        part = rows[first : first + ROW_GROUP].to_arrow()
        fields = [of.with_type(pa.string()) if rows.schema[of.name] == pl.String else of for of in part.schema]
        yield part.cast(pa.schema(fields))


def write_views(
    folder: Path, source: JobSource, estimate: Estimate, collector: Collector, *, csv: CsvKind
) -> list[ViewEntry]:
    """Write the tables of all views and derived columns, and return what the manifest states about each view.

    Args:
        collector: receives the counts of each view, for the report.
    """
    job, release = source.job, source.job.record.release
    flat, entries = flat_features(release.terms.published_spec), []
    (folder / VIEWS).mkdir()
    for view, made in zip(release.terms.views, job.record.released_views(), strict=True):
        rows, known = estimate.cells(view.number)
        if view.number > job.record.finest:
            source.give(view.number)
        table = view_table(job.partition(view.number), flat, rows)
        path = folder / VIEWS / f"{view.name}.parquet"
        pq.write_table(table, path, compression="zstd", compression_level=1, store_schema=False)
        if csv:
            write_csv(path.with_suffix(".csv"), [table], names_in(folder))
        entries.append(_entry(job, made, view, rows.counts, known))
        if not view.derived:
            collector.take_view(view.name, view.levels, rows)
    for number, column in enumerate(release.terms.derived):
        if not number:
            (folder / DERIVED).mkdir()
        finest = [0] * len(job.tree.axes)
        for axis, level in column.of:
            finest[axis] = level
        every = Partition(job.tree, unnumbered(finest))
        derived = job.load_derived()[column.name]
        columns = _code_columns(every, flat)
        columns[column.name] = derived.codes.to_arrow().cast(pa.string()).take(pa.array(derived.code_of))
        path = derived_path(folder, column.name)
        pq.write_table(pa.table(columns), path, compression="zstd", compression_level=1, store_schema=False)
    return entries


def poor_margins(job: Job) -> list[PoorMargin]:
    """Return the totals of one axis that nothing measures by itself; none where no codebook lists some codes, or nothing is settled."""
    release, tree, flat = job.record.release, job.tree, flat_features(job.record.release.terms.published_spec)
    terms, adds_up = release.terms, release.levels[0].is_summed and release.levels[0].source is None
    if terms.unlisted or terms.is_unbiased or terms.counts_groups or adds_up:
        return []
    measured = {terms.level: (job.view(terms.level), noise_of(terms)) for terms in release.parts if not terms.is_summed}
    poor = []
    for number, axis in enumerate(tree.axes):
        for level in range(1, axis.depth + 1):
            totals = margin(tree, number, level)
            if not any(have_same_cells(tree, view, totals) for view, _ in measured.values()):
                name = column_name(axis.name, axis.level_names[level - 1], flat)
                poor.append(PoorMargin(margin=name, expected_error=expected_error(totals, measured, tree)))
    return poor


def derived_entries(release: Release) -> dict[str, DerivedEntry]:
    """Return what the manifest states about derived columns."""
    flat, terms = flat_features(release.terms.published_spec), release.terms
    columns = [
        [column_name(axis, name, flat) for name in dict.fromkeys(level.axes[axis] for level in release.levels) if name]
        for axis in terms.axes
    ]
    return {
        derived.name: DerivedEntry(of=[columns[axis][level - 1] for axis, level in derived.of], sha256=derived.sha256)
        for derived in terms.derived
    }


def _entry(job: Job, made: ReleasedPart, view: ViewTerms, counts: IntArray, known: Known) -> ViewEntry:
    """Return what the manifest states about a view."""
    record, difference = job.record, None
    if record.shards["calibrated"] and made.same_as is None:  # its counts need not be the sums of the released leaves
        distance, partition = counts.copy(), job.partition(view.number)
        for leaves in job.level(record.finest, record.released):
            distance -= sums_of_leaves(partition, leaves)
        distance = np.abs(distance)
        difference = Difference(largest=int(distance.max()), mean=float(distance.mean()))
    stated = known.stated(record.release.terms.intervals.confidence)
    own = {
        "name": view.name,
        "level": view.number,
        "axes": {name: level for name, level in made.axes.items() if level},
        "cells": len(counts),
        "nonzero": int((counts != 0).sum()),
        "derivation": made.derivation if made.same_as is None else f"same as level {made.same_as}",
        "differs": difference,
        "view": "",  # its name says that
    }
    return ViewEntry(
        **entry_fields(made) | own | {name: stated[name] for name in ("half_width", "deviations", "intervals")}
    )


def rounding_of(job: Job) -> Rounding | None:
    """Return how far rounding has moved all that was measured; None where it was not settled together."""
    record, finest = job.record, job.record.finest
    if record.release.levels[0].source is None:
        return None
    shard = record.shards["estimates"][finest, TRUNK]
    deviations = job.shard_store.columns(shard_name("estimates", finest, TRUNK), shard.sha256)["deviation"].tolist()
    names = {view.number: view.name for view in record.release.terms.views if view.number > finest}
    measured = [*sorted({number for number, _ in record.shards["noisy"]} - {finest}), finest]
    stated = {names.get(of, f"level_{of}"): moved for of, moved in zip(measured, deviations, strict=True)}
    return Rounding(exact=max(deviations) < 1, deviation=stated)


def view_table(partition: Partition, flat: frozenset[str], rows: Rows) -> pa.Table:
    """Return a view as it is published: a row for every cell, zeros too, in the order of their codes.

    Its columns are those of the codes of its axes, coarse to fine, and of its derived columns; then the count, low and high, and
    the ends of the simultaneous interval, if the tables of levels have them.

    Args:
        rows: all its cells, in the order of their areas.
    """
    numbers = zip((COUNT, *BOUNDS[: len(rows.bounds)]), (rows.counts, *rows.bounds), strict=True)
    return pa.table(_code_columns(partition, flat) | dict(numbers))


def _code_columns(partition: Partition, flat: frozenset[str]) -> dict[str, pa.Array]:
    """Return the columns of codes of the cells of a view, by their names."""
    columns, cells = dict[str, pa.Array](), partition.cells()
    for axis, areas, level in zip(partition.tree.axes, cells.areas, cells.levels, strict=True):
        for own in range(1, level + 1):
            codes = axis.codes[own - 1].to_arrow().cast(pa.string())
            name = column_name(axis.name, axis.level_names[own - 1], flat)
            columns[name] = codes.take(pa.array(axis.ancestors(areas, level, own)))
    for column in partition.view.derived:
        codes = column.codes.to_arrow().cast(pa.string())
        columns[column.name] = codes.take(pa.array(cells.codes[column.name]))
    return columns
