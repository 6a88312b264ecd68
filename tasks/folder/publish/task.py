"""The publish stage: it writes the folder beside its final place and renames it, so that a folder is always complete."""

import dataclasses
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from storage import tables
from storage.counts.published import partial_folder, store_table
from storage.database.connections import store
from storage.errors import StoreError, TrellisError, disk_fault
from storage.ledger.events import Head, head
from storage.machine.files import force, replace, sha256_of_all
from storage.machine.home import subfolder
from storage.record import Record, load_record
from storage.releases.register import REPORT, Release, list_checks
from storage.tables import SIGNAL, column_name, flat_features, interval_columns
from tasks.folder.export.formats import metadata_of, write_formats
from tasks.folder.export.tables import PublishedTables
from tasks.folder.publish.cumulative import cumulative_job
from tasks.folder.publish.views import derived_entries, poor_margins, rounding_of, write_signal_tables, write_views
from tasks.folder.verify.folder import SUMS, verify
from tasks.format.csv import NAMES, finest_columns, names_in, record_tables, records_path, write_csv
from tasks.format.entries import DaysEntry, LevelEntry, Rounding, ViewEntry
from tasks.format.manifest import CUMULATIVE, LedgerHead, Manifest, SealEntry, entry_fields
from tasks.format.metadata import METADATA
from tasks.format.noisy_counts import NoisyCounts
from tasks.format.published_tree import BOUNDARIES, names_path, shapes_path
from tasks.format.strategy import strategy_file, write_strategy
from tasks.format.tables import LevelTables, SlicedRows, slices, write_level, write_parquet
from tasks.pages.explorer.page import EXPLORER, explorer
from tasks.pages.facts import Collector
from tasks.pages.report import report
from tasks.pages.statements import formulas_in, readme, workbook_words
from tasks.released.families import estimate_of
from tasks.released.query.overview import ends_of_groups, ranges_of_areas
from tasks.released.sources.folder import PublishedFolder
from tasks.released.sources.job import JobSource
from tasks.released.sources.published import FolderSource
from tasks.tree.job import Job, job_of, names_of, shapes_of, tree_of
from tasks.tree.order import Tree
from tasks.tree.ordered import ordered_axes
from tasks.unbiased.dense import strategies_of
from tasks.validate.size import CsvKind, RecordsKind, are_noisy_counts_published, csv_kind, records_kind
from tasks.words.areas import GEOMETRY, Names, Shapes, geo_metadata, name_column
from tasks.work.capacity import cores, memory_of
from tasks.work.stage import stage

_MADE_WITH = ("trellis", "opendp", "dp-accounting", "numpy", "polars", "duckdb", "pyarrow", "prefect")

_BYTES_OF_PART = 256 * tables.PART_ROWS  # while it is written: its columns, their codes, and its pages


@stage("publish")
def publish(release_id: str) -> bool:
    """Write the published folder of a validated release, unless the complete folder exists already.

    Returns:
        Whether the rows of its levels are in the store too, as `store_table` leaves them.
    Raises:
        StoreError: another folder is in its place, or the disk is full or cannot be written.
    """
    with store() as con:
        record, ledger = load_record(con, release_id), head(con)
        checks = list_checks(con, release_id)
    release = record.release
    folder = Path(release.folder)
    if folder.exists():
        if verify(folder) or Manifest.model_validate_json((folder / "manifest.json").read_bytes()).id != release.id:
            raise StoreError(f"{folder} already exists and is not this release.", field="output", hint="Move it away.")
        return False
    with _beside(folder) as beside:
        csv = csv_kind(release.terms.csv, record.released_levels()[-1].nonzero)
        cells = sum(seal.rows for seal in record.shards["noisy"].values())
        noisy = are_noisy_counts_published(release.terms.noisy_counts, cells)
        tree, names, shapes = tree_of(release), names_of(release), shapes_of(release)
        listed = write_areas(beside, tree, names, shapes, flat_features(release.terms.published_spec))
        ordered = ordered_axes(release.terms.published_spec)
        collector = Collector(tree, release.levels, ordered, names=names, shapes=shapes)
        formulas = formulas_in(tree, names)
        for axis, strategy in strategies_of(release.terms.strategy).items():
            write_strategy(beside / strategy_file(release.terms.axes[axis], release.terms.axes), strategy.rows)
        with ThreadPoolExecutor(2) as threads, ThreadPoolExecutor(1) as storing:
            stored = list[Future[None]]()

            def begin_storing(level: int) -> None:
                stored.append(storing.submit(_store_rows, release, beside, level))

            written = _write_counts(beside, job_of(record), collector, begin_storing, csv=csv, noisy=noisy)
            in_csv = threads.submit(written.write_csv)
            manifest = _write_manifest(beside, record, written, listed, ledger, csv=csv, noisy=noisy)
            if record.runs:
                _write_cumulative(beside, record, ledger, noisy=noisy)
            exploring = threads.submit(explorer, PublishedFolder(beside, manifest))
            how_counted = release.terms.how_counted
            (beside / "README.md").write_text(readme(manifest, how_counted, formulas))
            asked = estimate_of(FolderSource(PublishedFolder(beside, manifest)))
            facts = collector.facts(partial(ranges_of_areas, asked), partial(ends_of_groups, asked))
            page = report(manifest, facts, checks, how_counted, formulas)
            (beside / REPORT).write_text(page, encoding="utf-8")
            (beside / EXPLORER).write_text(exploring.result(), encoding="utf-8")
            in_csv.result()
        if (described := metadata_of(beside, manifest)) is not None:
            (beside / METADATA).write_text(described, encoding="utf-8")
        files = sorted(str(file.relative_to(beside)) for file in beside.rglob("*") if file.is_file())
        sums = zip(sha256_of_all(beside / name for name in files), files, strict=True)
        (beside / SUMS).write_text("".join(f"{sha256}  {name}\n" for sha256, name in sums))
        _make_durable_and_readable(beside)
        return _is_stored(stored)


def _is_stored(levels: Iterable[Future[None]]) -> bool:
    """Return whether the rows of all levels are stored. A folder stays without: who closes the books stores them then, or says why not."""
    try:
        for level in levels:
            level.result()
    except TrellisError:
        return False
    return True


def _store_rows(release: Release, folder: Path, level: int) -> None:
    """Store the rows of a level of a release, whose table is complete."""
    with store() as con:
        store_table(con, release.id, folder, level, memory_of(release.terms.run))


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder that becomes `folder` once it is written; remove it if writing fails."""
    partial = partial_folder(folder)
    try:
        if not folder.parent.exists():
            folder.parent.mkdir(parents=True)
            folder.parent.chmod(0o755)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        yield partial
        replace(partial, folder)
    except BaseException as fault:
        shutil.rmtree(partial, ignore_errors=True)
        refusal = disk_fault(fault, "output", str(folder.parent))
        if refusal is None:
            raise
        raise refusal from None


@dataclass(frozen=True, slots=True)
class _Written:
    """What is written of the tables.

    Attributes:
        levels: what the manifest states of each level; likewise `views`.
        rounding: how far rounding has moved the counts; None where they were not settled together.
        write_csv: writes `counts.csv`, if the folder has it; it may run beside whatever else is written.
    """

    levels: list[LevelEntry]
    views: list[ViewEntry]
    rounding: Rounding | None
    records: RecordsKind | None
    write_csv: Callable[[], None]


def _write_cumulative(folder: Path, record: Record, ledger: Head, *, noisy: bool) -> None:
    """Write the counts of all days of a series until now, settled from the sums of their noisy counts, as a folder of their own."""
    job, place = cumulative_job(job_of(record)), folder / CUMULATIVE
    place.mkdir()
    collector = Collector(job.tree, job.record.release.levels, {})
    written = _write_counts(place, job, collector, lambda _: None, csv=False, noisy=noisy)
    of_day = dataclasses.replace(job.record, shards={**job.record.shards, "noisy": record.shards["noisy"]})
    _write_manifest(
        place, of_day, written, {NAMES: {}, BOUNDARIES: {}}, ledger, csv=False, noisy=noisy, cumulative=True
    )


def _write_counts(
    folder: Path,
    job: Job,
    collector: Collector,
    begin_storing: Callable[[int], None],
    *,
    csv: CsvKind,
    noisy: bool,
) -> _Written:
    """Write the tables of all levels and views, and begin to store each level that is complete.

    While one level is written, read the next, and collect facts for the report.
    """
    (folder / tables.COUNTS).mkdir()
    record, terms, tree = job.record, job.record.release.terms, job.tree
    bounds = interval_columns(simultaneous=terms.intervals.simultaneous)
    sink = NoisyCounts(folder, tree, record.release.levels, is_grid=terms.is_grid) if noisy else None
    source = JobSource(job, sink, subfolder("tmp"), cores())
    estimate = estimate_of(source)

    def read(level: int) -> SlicedRows:
        rows = estimate.rows(level)
        source.give(level)
        return rows

    names, flat = names_in(folder), flat_features(terms.published_spec)
    threads = max(1, min(cores(), memory_of(terms.run) // _BYTES_OF_PART))
    with closing(sink) if sink else nullcontext(), ThreadPoolExecutor(2) as beside:
        coming = beside.submit(read, 0)
        for level in range(tree.depth + 1):
            rows = coming.result()
            if level < tree.depth:
                coming = beside.submit(read, level + 1)
            table = LevelTables(tree, level, flat, bounds)
            looking = beside.submit(collector.take, rows, estimate.known(level).shares)
            write_level(folder, level, rows, table, tree.axes[0].name, threads)
            begin_storing(level)
            if csv == "every_level":
                write_csv(folder / tables.level_csv(level), table.of(rows, tables.PART_ROWS), names)
            looking.result()
        views = write_views(folder, source, estimate, collector, csv=csv) if terms.views else []

    def write_finest() -> None:
        if csv is True:
            write_csv(folder / "counts.csv", table.of(rows, tables.PART_ROWS), names)

    records = _write_records(folder, tree, rows, table, finest_columns(tree, flat)) if terms.records else None
    levels = [
        LevelEntry(
            parts=tables.part_count(level.nonzero),
            **entry_fields(level),
            **estimate.known(level.level).stated(terms.intervals.confidence),
        )
        for level in record.released_levels()
    ]
    return _Written(levels, views, rounding_of(job), records, write_finest)


def _write_records(folder: Path, tree: Tree, rows: SlicedRows, table: LevelTables, columns: list[str]) -> RecordsKind:
    """Write a row for each record that the finest level counts, unless there are too many, and return the kind of the file."""
    kind = records_kind(sum(int(part.counts.sum()) for part in slices(rows, tables.PART_ROWS)))
    if kind == "csv":
        write_csv(records_path(folder, kind), record_tables(table.of(rows), columns))
    elif kind == "parquet":
        write_parquet(records_path(folder, kind), record_tables(table.of(rows), columns), tree.axes[0].name)
    return kind


def _write_manifest(
    folder: Path,
    record: Record,
    written: _Written,
    listed: Mapping[str, dict[str, list[str]]],
    ledger: Head,
    *,
    csv: CsvKind,
    noisy: bool,
    cumulative: bool = False,
) -> Manifest:
    """Write the manifest, and before it what follows from the tables, given what is written of them and which areas are `listed`."""
    release, terms = record.release, record.release.terms
    manifest = Manifest(
        id=release.id,
        spec=dict(terms.published_spec),
        privacy=terms.privacy,
        unprotected=list(terms.unprotected),
        levels=written.levels,
        mechanism=terms.mechanism,
        mechanism_reason=terms.mechanism_reason,
        codebooks=dict(terms.codebooks),
        seals=[
            SealEntry(level=seal.level, branch=seal.branch, sha256=seal.sha256)
            for seal in record.shards["noisy"].values()
        ],
        ledger=LedgerHead(head=ledger.hash, length=ledger.length, first=ledger.first),
        versions={package: version(package) for package in _MADE_WITH},
        csv=csv,
        waived=list(terms.waived),
        **terms.rules,
        measure=terms.measure,
        records=written.records,
        intervals=terms.intervals,
        noisy_counts=noisy,
        supersedes=release.supersedes,
        views=written.views,
        derived=derived_entries(release),
        poor_margins=poor_margins(job_of(record)),
        rounding=written.rounding,
        days=DaysEntry(
            weights=list(terms.days), runs=list(record.runs), since=record.since, missing=list(record.missing)
        )
        if record.runs
        else None,
        cumulative=cumulative,
        names=listed[NAMES],
        boundaries=listed[BOUNDARIES],
    )
    if terms.rows == SIGNAL:
        of_signal = write_signal_tables(folder, manifest, csv=csv)
        manifest = manifest.model_copy(update={"signal_tables": of_signal})
    if terms.formats:
        manifest = manifest.model_copy(update={"formats": list(terms.formats)})
        words = workbook_words(manifest, terms.how_counted)
        left_out = write_formats(PublishedTables(folder, manifest), terms.formats, tree_of(release), words)
        manifest = manifest.model_copy(update={"left_out": left_out})
    (folder / "manifest.json").write_text(manifest.text())
    return manifest


def _make_durable_and_readable(folder: Path) -> None:
    """Force every file to disk, and let everybody read it, because what is published is public."""
    for path in [*folder.rglob("*"), folder]:
        path.chmod(0o755 if path.is_dir() else 0o644)
        force(path)


def write_areas(
    folder: Path, tree: Tree, names: Names, shapes: Shapes, flat: Collection[str]
) -> dict[str, dict[str, list[str]]]:
    """Write the names and the shapes of areas, a table of each for each level that has some, and return per axis these levels, as the manifest lists them."""
    listed = dict[str, dict[str, list[str]]]()
    for place, of_areas in ((NAMES, names), (BOUNDARIES, shapes)):
        listed[place] = {
            axis.name: [axis.level_names[level - 1] for level in levels]
            for axis in tree.axes
            if (levels := of_areas.levels(axis.name))
        }
        if of_areas:
            (folder / place).mkdir()
    for axis in tree.axes:
        columns = [column_name(axis.name, level, flat) for level in axis.level_names]
        for level in names.levels(axis.name):
            areas = names.tables[axis.name, level]
            published = dict(zip(areas.columns, [*columns[:level], name_column(columns[level - 1])], strict=True))
            areas.rename(published).write_parquet(names_path(folder, columns[level - 1]))
        for level in shapes.levels(axis.name):
            *codes, geometries = shapes.tables[axis.name, level].get_columns()
            table = {column: of.to_arrow().cast(pa.string()) for column, of in zip(columns, codes, strict=False)}
            table[GEOMETRY] = geometries.to_arrow().cast(pa.binary())
            metadata = geo_metadata(GEOMETRY, geometries.to_list())
            path = shapes_path(folder, columns[level - 1])
            pq.write_table(pa.table(table, metadata=metadata), path, compression="zstd")
    return listed
