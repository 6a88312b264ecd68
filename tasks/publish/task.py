"""The publish stage: the folder, written beside its place and renamed: a folder that is there is whole."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from storage.database import store
from storage.errors import StoreError, disk_fault
from storage.files import replace, sha256_of
from storage.ledger import Head, head
from storage.published import partial_folder
from storage.releases import Release, find_release
from storage.seals import FrontierShard, Seal, level_entries, list_frontiers, list_seals
from tasks.publish.manifest import LedgerHead, LevelEntry, Manifest, Privacy, SealEntry
from tasks.publish.readme import readme
from tasks.publish.tables import level_table
from tasks.publish.verify import SUMS, verify
from tasks.stage import stage
from tasks.tree.task import load_level, tree_of

_MADE_WITH = ("trellis", "opendp", "dp-accounting", "numpy", "polars", "duckdb", "pyarrow", "prefect")


@stage("publish")
def publish(release_id: str) -> None:
    """Write the published folder of a validated release; one that is there and whole is left as it is.

    Raises:
        StoreError: another folder stands in its place, or its disk is full or cannot be written.
    """
    with store() as con:
        release = find_release(con, release_id)
        frontiers, seals = list_frontiers(con, release_id), list_seals(con, release_id)
        levels, ledger = level_entries(con, release), head(con)
    folder = Path(release.folder)
    if folder.exists():
        if verify(folder) or Manifest.model_validate_json((folder / "manifest.json").read_bytes()).id != release.id:
            raise StoreError(f"{folder} exists and is not this release.", field="output", hint="Move it away.")
        return
    with _beside(folder) as partial:
        _write_counts(partial, release, frontiers)
        _write_manifest(partial, release, levels, seals, ledger)
        files = sorted(str(file.relative_to(partial)) for file in partial.rglob("*") if file.is_file())
        (partial / SUMS).write_text("".join(f"{sha256_of(partial / name)}  {name}\n" for name in files))
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


def _write_counts(folder: Path, release: Release, frontiers: dict[tuple[int, str], FrontierShard]) -> None:
    (folder / "counts").mkdir()
    tree = tree_of(release)
    for level in range(tree.depth + 1):
        table = level_table(tree, load_level(release, level, frontiers))
        table.write_parquet(folder / "counts" / f"level_{level}.parquet")
    table.write_csv(folder / "counts.csv")


def _write_manifest(
    folder: Path,
    release: Release,
    levels: list[dict[str, Any]],
    seals: dict[tuple[int, str], Seal],
    ledger: Head,
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
    )
    (folder / "manifest.json").write_text(json.dumps(manifest.model_dump(), indent=2, ensure_ascii=False) + "\n")
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
