"""The files that a release publishes, by its manifest: a folder has no others."""

from collections.abc import Iterator
from pathlib import Path

from storage.counts.columns import SIGNAL
from storage.counts.tables import level_csv
from storage.releases.register import REPORT
from tasks.export.formats import KINDS
from tasks.format.csv import NAMES
from tasks.format.manifest import Manifest
from tasks.format.metadata import METADATA
from tasks.format.noisy_counts import CODEBOOK, FOLDER
from tasks.format.published_tree import BOUNDARIES, DERIVED

_OF_EVERY_RELEASE = ("README.md", REPORT, "manifest.json", "SHA256SUMS", METADATA, "counts.csv", "explorer.html")


def unknown_files(folder: Path, manifest: Manifest) -> list[str]:
    """Return the files of a folder that no release with this manifest has, by their paths.

    Names, shapes, the kinds in `formats`, and folders that should not be there are left to their own checks, which compare them with
    the manifest.
    """
    known = set(_known(manifest))
    elsewhere = {kind.files.partition("/")[0] for kind in KINDS.values()} | {NAMES, BOUNDARIES}
    elsewhere |= {
        place for place, is_there in ((FOLDER, manifest.noisy_counts), (SIGNAL, manifest.signal_tables)) if not is_there
    }
    there = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return [str(path) for path in there if str(path) not in known and path.parts[0] not in elsewhere]


def _known(manifest: Manifest) -> Iterator[str]:
    yield from _OF_EVERY_RELEASE
    levels = [f"level_{of.level}" for of in manifest.levels]
    views = [of.name for of in manifest.views]
    with_csv = {SIGNAL: [f"level_{of.level}" for of in manifest.signal_tables], "views": views}
    for place, names in with_csv.items():
        for name in names:
            yield from (f"{place}/{name}.parquet", f"{place}/{name}.csv")
    for entry in manifest.levels:
        yield from (*entry.files, level_csv(entry.level))
    yield from (f"{DERIVED}/{name}.parquet" for name in manifest.derived)
    if manifest.records in {"csv", "parquet"}:
        yield f"records.{manifest.records}"
    if manifest.noisy_counts:
        yield CODEBOOK
        yield from (f"{FOLDER}/{name}.parquet" for name in [*levels, *(f"view_{view}" for view in views)])
