"""The publish stage: the folder, written beside its place and renamed: a folder that is there is whole."""

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from storage.columns import flat_features
from storage.database import store
from storage.errors import StoreError, disk_fault
from storage.files import replace, sha256_of_all
from storage.ledger import Head, head
from storage.published import partial_folder
from storage.releases import Release, find_release
from storage.seals import FrontierShard, Seal, level_entries, list_released, list_seals
from tasks.publish.csv import write_csv
from tasks.publish.manifest import LedgerHead, LevelEntry, Manifest, Privacy, SealEntry
from tasks.publish.readme import readme
from tasks.publish.records import finest_columns, record_tables, records_path
from tasks.publish.rows import Rows, in_order
from tasks.publish.tables import level_tables, write_parquet
from tasks.publish.verify import SUMS, verify
from tasks.stage import stage
from tasks.tree.task import load_level, tree_of
from tasks.validate.size import RecordsKind, is_csv_written, records_kind

_MADE_WITH = ("trellis", "opendp", "dp-accounting", "numpy", "polars", "duckdb", "pyarrow", "prefect")


@stage("publish")
def publish(release_id: str) -> None:
    """Write the published folder of a validated release; one that is there and whole is left as it is.

    Raises:
        StoreError: another folder stands in its place, or its disk is full or cannot be written.
    """
    with store() as con:
        release = find_release(con, release_id)
        frontiers, seals = list_released(con, release_id), list_seals(con, release_id)
        levels, ledger = level_entries(con, release), head(con)
    folder = Path(release.folder)
    if folder.exists():
        if verify(folder) or Manifest.model_validate_json((folder / "manifest.json").read_bytes()).id != release.id:
            raise StoreError(f"{folder} exists and is not this release.", field="output", hint="Move it away.")
        return
    with _beside(folder) as partial:
        csv = is_csv_written(release.terms.get("csv"), levels[-1]["nonzero"])
        records = _write_counts(partial, release, frontiers, csv=csv)
        _write_manifest(partial, release, levels, seals, ledger, csv=csv, records=records)
        files = sorted(str(file.relative_to(partial)) for file in partial.rglob("*") if file.is_file())
        sums = zip(sha256_of_all(partial / name for name in files), files, strict=True)
        (partial / SUMS).write_text("".join(f"{sha256}  {name}\n" for sha256, name in sums))
        _make_durable_and_readable(partial)


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """Yield a folder that takes its place once it is written, and is removed where that fails."""
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
        told = disk_fault(fault, "output", str(folder.parent))
        if told is None:
            raise
        raise told from None


def _write_counts(
    folder: Path, release: Release, frontiers: dict[tuple[int, str], FrontierShard], *, csv: bool
) -> RecordsKind | None:
    """Write the tables of all levels, while one is written the next is loaded and sorted; return the kind of the records."""
    (folder / "counts").mkdir()
    tree, flat = tree_of(release), flat_features(release.terms["published_spec"])
    with ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(_load_in_order, release, 0, frontiers)
        for level in range(tree.depth + 1):
            rows = coming.result()
            if level < tree.depth:
                coming = ahead.submit(_load_in_order, release, level + 1, frontiers)
            tables = level_tables(tree, level, rows, flat=flat)
            write_parquet(folder / "counts" / f"level_{level}.parquet", tables, tree.axes[0].name)
    if csv:
        write_csv(folder / "counts.csv", level_tables(tree, tree.depth, rows, flat=flat))
    records = records_kind(int(rows.counts.sum())) if release.terms.get("records") else None
    if records in {"csv", "parquet"}:
        tables = record_tables(level_tables(tree, tree.depth, rows, flat=flat), finest_columns(tree, flat))
        if records == "csv":
            write_csv(records_path(folder, records), tables)
        else:
            write_parquet(records_path(folder, records), tables, tree.axes[0].name)
    return records


def _load_in_order(release: Release, level: int, frontiers: dict[tuple[int, str], FrontierShard]) -> Rows:
    """Return all released nodes of a level in the order of their codes, areas in half the bytes of a frontier's.

    Raises:
        StoreError: the shards hold more or less nodes than the store has recorded.
    """
    rows = sum(shard.nonzero for (of, _), shard in frontiers.items() if of == level)
    areas = tuple(np.empty(rows, dtype=np.int32) for _ in release.terms["axes"])
    counts, first, end = np.empty(rows, dtype=np.int64), 0, 0
    for part in load_level(release, level, frontiers):
        end = first + len(part)
        if end > rows:
            break
        for column, of_part in zip(areas, part.areas, strict=True):
            column[first:end] = of_part
        counts[first:end] = part.counts
        first = end
    if end != rows:
        raise StoreError(f"Level {level} of {release.id} has not as many nodes as were recorded.")
    return in_order(Rows(areas, counts), tree_of(release).sizes(level))


def _write_manifest(
    folder: Path,
    release: Release,
    levels: list[dict[str, Any]],
    seals: dict[tuple[int, str], Seal],
    ledger: Head,
    *,
    csv: bool,
    records: RecordsKind | None,
) -> None:
    manifest = Manifest(
        id=release.id,
        spec=release.terms["published_spec"],
        privacy=Privacy(**release.terms["privacy"]),
        unprotected=release.terms["unprotected"],
        levels=[LevelEntry(**entry) for entry in levels],
        mechanism=release.terms["mechanism"],
        codebooks=release.terms["codebooks"],
        seals=[SealEntry(level=seal.level, branch=seal.branch, sha256=seal.sha256) for seal in seals.values()],
        ledger=LedgerHead(head=ledger.hash, length=ledger.length, first=ledger.first),
        versions={package: version(package) for package in _MADE_WITH},
        csv=csv,
        waived=release.terms.get("waived", []),
        records=records,
    )
    (folder / "manifest.json").write_text(manifest.text())
    (folder / "README.md").write_text(readme(manifest))


def _make_durable_and_readable(folder: Path) -> None:
    """Force every file to disk and open it to readers: what is published is public."""
    for path in [*folder.rglob("*"), folder]:
        path.chmod(0o755 if path.is_dir() else 0o644)
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
