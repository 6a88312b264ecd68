"""The views of a published folder: a table for each, and one for each derived column."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from storage.counts.columns import COUNT, INTERVAL, column_name, flat_features
from storage.record import ReleasedLevel
from storage.releases.register import Release
from storage.releases.terms import DISCRETE_GAUSSIAN, ViewTerms
from tasks.export.described import VIEWS
from tasks.format.csv import names_in, write_csv
from tasks.format.manifest import DerivedEntry, Deviations, Difference, LevelIntervals, PoorMargin, ViewEntry
from tasks.format.published_tree import DERIVED, derived_path
from tasks.format.rows import Rows
from tasks.laws.named import noise_of
from tasks.pages.facts import Collector
from tasks.publish.settled_levels import SettledLevels, code_columns
from tasks.publish.unbiased_levels import UnbiasedLevels
from tasks.tree.axis import IntArray
from tasks.tree.job import Job
from tasks.tree.views import Partition, have_same_cells, margin, sums_of_leaves, unnumbered
from tasks.uncertainty.sources import expected_error
from tasks.validate.size import CsvKind


def write_views(
    folder: Path, job: Job, settled: SettledLevels | UnbiasedLevels, collector: Collector, *, csv: CsvKind
) -> list[ViewEntry]:
    """Write the tables of all views and derived columns, and return what the manifest states about each view.

    Args:
        folder: the folder being published.
        job: the work on the release.
        settled: its levels and views.
        collector: receives the counts of each view, for the report.
        csv: whether tables are published as CSV as well.
    """
    release = job.record.release
    flat, entries = flat_features(release.terms.published_spec), []
    (folder / VIEWS).mkdir()
    for view, made in zip(release.terms.views, job.record.released_views(), strict=True):
        table = settled.view_table(view, flat)
        path = folder / VIEWS / f"{view.name}.parquet"
        pq.write_table(table, path, compression="zstd", compression_level=1, store_schema=False)
        if csv:
            write_csv(path.with_suffix(".csv"), [table], names_in(folder))
        entries.append(_entry(made, settled, view))
        if not view.derived:
            cells = job.partition(view.number).cells().areas
            ends = tuple(table.column(name).to_numpy() for name in INTERVAL)
            collector.take_view(view.name, view.levels, Rows(cells, table.column(COUNT).to_numpy(), ends))
    for number, column in enumerate(release.terms.derived):
        if not number:
            (folder / DERIVED).mkdir()
        finest = [0] * len(job.tree.axes)
        for axis, level in column.of:
            finest[axis] = level
        every = Partition(job.tree, unnumbered(finest))
        derived = job.load_derived()[column.name]
        columns = dict(code_columns(every, flat))
        columns[column.name] = derived.codes.to_arrow().cast(pa.string()).take(pa.array(derived.code_of))
        path = derived_path(folder, column.name)
        pq.write_table(pa.table(columns), path, compression="zstd", compression_level=1, store_schema=False)
    return entries


def poor_margins(job: Job) -> list[PoorMargin]:
    """Return the totals of one axis that nothing measures by itself; none where no codebook lists some codes, or nothing is settled."""
    release, tree, flat = job.record.release, job.tree, flat_features(job.record.release.terms.published_spec)
    terms, adds_up = release.terms, release.levels[0].is_summed and release.levels[0].source is None
    if terms.unlisted or terms.covariance or terms.statistic or adds_up:
        return []
    measured = {terms.level: (job.view(terms.level), noise_of(terms)) for terms in release.parts if not terms.is_summed}
    found = []
    for number, axis in enumerate(tree.axes):
        for level in range(1, axis.depth + 1):
            totals = margin(tree, number, level)
            if not any(have_same_cells(tree, view, totals) for view, _ in measured.values()):
                name = column_name(axis.name, axis.level_names[level - 1], flat)
                found.append(PoorMargin(margin=name, expected_error=expected_error(totals, measured, tree)))
    return found


def derived_entries(release: Release) -> dict[str, DerivedEntry]:
    """Return what the manifest states about derived columns."""
    flat, terms = flat_features(release.terms.published_spec), release.terms
    names = {axis: dict.fromkeys(level.axes[axis] for level in release.levels) for axis in terms.axes}
    found = {}
    for column in terms.derived:
        of = []
        for axis, level in column.of:
            name = [own for own in names[terms.axes[axis]] if own][level - 1]
            of.append(column_name(terms.axes[axis], name, flat))
        found[column.name] = DerivedEntry(of=of, sha256=column.sha256)
    return found


def _difference(job: Job, number: int, counts: IntArray) -> Difference:
    """Return how far the counts of a view are from the sums of the released leaves."""
    record, partition = job.record, job.partition(number)
    distance = counts.copy()
    for leaves in job.level(record.finest, record.released):
        distance -= sums_of_leaves(partition, leaves)
    distance = np.abs(distance)
    return Difference(largest=int(distance.max()), mean=float(distance.mean()))


def _entry(made: ReleasedLevel, settled: SettledLevels | UnbiasedLevels, view: ViewTerms) -> ViewEntry:
    """Return what the manifest states about a view."""
    counts, terms = settled.job.counts(view.number), settled.job.record.release.terms
    deviations = settled.deviations(view)
    differs = settled.job.record.shards["calibrated"] and made.same_as is None
    return ViewEntry(
        name=view.name,
        level=view.number,
        axes={name: level for name, level in made.axes.items() if level},
        cells=len(counts),
        nonzero=int((counts != 0).sum()),
        rho=made.rho,
        sigma=made.sigma,
        l2_sensitivity=made.l2_sensitivity,
        derivation=made.derivation if made.same_as is None else f"same as level {made.same_as}",
        bound=made.bound,
        summed=bool(made.summed),
        same_as=made.same_as,
        differs=_difference(settled.job, view.number, counts) if differs else None,
        half_width=settled.half_width(view),
        deviations=Deviations(least=deviations[0], most=deviations[1]) if deviations else None,
        intervals=LevelIntervals(confidence=terms.intervals.confidence, promise="cells"),
        source=made.source,
        mechanism=made.mechanism or DISCRETE_GAUSSIAN,
        scale=made.scale or 0.0,
        epsilon=made.epsilon or 0.0,
        delta=made.delta or 0.0,
    )
