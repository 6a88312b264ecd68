"""Releases that are published twice from the same sealed measurements: with large levels in parts, and in one file each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.execution import driver
from storage.counts import tables
from storage.releases.register import Release
from tasks.format.manifest import Manifest
from tasks.publish.task import publish

PART_ROWS = 20  # so that small releases have parts


def in_one_file(patch: pytest.MonkeyPatch) -> None:
    """Let levels of any size be one file."""
    patch.setattr(tables, "PART_ROWS", 10**9)


def both(
    make: Callable[[], Path],
    aside: Path,
    part_rows: int = PART_ROWS,
    change: Callable[[pytest.MonkeyPatch], None] = in_one_file,
) -> tuple[Path, Path]:
    """Make a release, and return the folder that has levels in parts, and the same release with every level in one file.

    Args:
        make: makes the release and returns its folder.
        aside: where the second one goes.
        part_rows: the most rows of a part.
        change: what is other when the second one is published.
    """
    close = driver.close_the_books

    def publish_again(release: Release, **keys: bool) -> Any:
        folder = Path(release.folder)
        folder.rename(folder.with_name("in-parts"))
        with pytest.MonkeyPatch.context() as patch:
            change(patch)
            publish.fn(release.id)
        folder.rename(aside)
        folder.with_name("in-parts").rename(folder)
        return close(release, **keys)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "PART_ROWS", part_rows)
        patch.setattr(driver, "close_the_books", publish_again)
        return make(), aside


def level_of(folder: Path, level: int) -> pl.DataFrame:
    """Return the rows of a level of a published folder, from its files in the order of their names."""
    manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
    parts = sorted((folder / "counts" / f"level_{level}").glob("*"))
    assert len(parts) == manifest.levels[level].parts
    return pl.read_parquet(parts or folder / "counts" / f"level_{level}.parquet", glob=False)
