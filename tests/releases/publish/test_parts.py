"""Large levels are published in parts: the same rows as in one file, whoever reads them, and `verify` finds what was done to a part."""

import functools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
import yaml
from polars.testing import assert_frame_equal

from flows.answers.query import query_answer
from flows.api import release
from flows.execution import driver
from storage.counts import tables
from storage.database.connections import store
from storage.releases.register import Release
from tasks.format.manifest import Manifest
from tasks.publish import task
from tasks.publish.task import publish
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tasks.verify.folder import verify
from tests.support.folders import with_sums
from tests.support.spec import SPEC
from tests.support.town import Town

FORMATS = ["xlsx", "omx", "sdmx"]
SPECS: dict[str, dict[str, Any]] = {
    "inftda": {"release": {"csv": "every_level", "records": True, "formats": FORMATS, "rows": "signal"}},
    "laplace": {
        "mechanism": "inftda_reconciled",
        "noise": {"law": "laplace"},
        "privacy": {"accountant": None},
        "release": {"intervals": {"simultaneous": True}},
    },
    "stability_histogram": {"mechanism": "stability_histogram", "privacy": {"accountant": None}},
    "invariants": {"mechanism": "inftda_shrunk", "privacy": {"invariants": ["region"], "i_accept_unprotected": True}},
    "rounded": {"keep_noisy_counts": False},
}
FEW = ("inftda", "stability_histogram")
DEPTH = 6


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
    """Publish a release twice from the same sealed measurements: with large levels in parts, and with every level in one file.

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


def spec_of(folder: Path, **changes: Any) -> Path:
    """Write a made-up country, and a spec with other keys, those of sections one by one; return the spec's path."""
    country = draw_country(regions=2, provinces=4, municipalities=12, people=500, generator=np.random.default_rng(20))
    write_country(country, folder / "data")
    written: dict[str, Any] = SPEC | {"privacy": SPEC["privacy"] | {"epsilon": 9.0}, "run": {"prefect": False}}
    for key, value in changes.items():
        written[key] = written[key] | value if isinstance(value, dict) and key in written else value
    written["privacy"] = {key: value for key, value in written["privacy"].items() if value is not None}
    (folder / "spec.yaml").write_text(yaml.safe_dump(written))
    return folder / "spec.yaml"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give the releases of this module a store."""
    place = tmp_path_factory.mktemp("parts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        yield place


@pytest.fixture(scope="module")
def published(home: Path) -> Callable[[str], tuple[Path, Path]]:
    """Return what makes a release with levels in parts, and the same in one file each, once."""

    @functools.cache
    def of(name: str) -> tuple[Path, Path]:
        spec = spec_of(home / name, **SPECS[name] | {"dataset": name.replace("_", "-")})
        return both(lambda: Path(release(spec, different_people=True).folder), home / name / "whole")

    return of


@pytest.fixture(
    params=[name if name in FEW else pytest.param(name, marks=pytest.mark.thorough) for name in SPECS],
)
def twice(request: pytest.FixtureRequest, published: Callable[[str], tuple[Path, Path]]) -> tuple[Path, Path]:
    """Return each of the releases."""
    return published(request.param)


@pytest.fixture
def made(published: Callable[[str], tuple[Path, Path]]) -> Path:
    """Return a release with levels in parts."""
    return published("inftda")[0]


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """Return a copy of a release with levels in parts."""
    return Path(shutil.copytree(made, tmp_path / made.name))


def manifest_of(folder: Path) -> Manifest:
    """Return the manifest of a folder."""
    return Manifest.model_validate_json((folder / "manifest.json").read_bytes())


def parts_of(folder: Path) -> list[Path]:
    """Return the parts of the finest level."""
    return sorted((folder / "counts" / f"level_{DEPTH}").iterdir())


def test_levels_in_parts_have_the_same_rows(twice):
    """A level in parts has the rows of the level in one file, in its order; each part but no level has few rows."""
    parted, whole = twice
    levels = manifest_of(parted).levels
    for entry in levels:
        assert_frame_equal(level_of(parted, entry.level), level_of(whole, entry.level))
        rows = [pq.read_metadata(parted / name).num_rows for name in entry.files]
        assert max(rows) <= PART_ROWS
        assert entry.parts == (0 if entry.nonzero <= PART_ROWS else -(-entry.nonzero // PART_ROWS))
    assert levels[-1].parts > 1


def test_what_else_is_published_is_the_same(twice):
    """CSV, records, other formats, noisy counts and what the manifest states are those of the release in one file."""
    parted, whole = twice
    stated, other = (json.loads((folder / "manifest.json").read_text()) for folder in (parted, whole))
    assert [level.pop("parts", 0) > 0 for level in stated["levels"]][-1]
    stated.get("left_out", {}).clear()
    other.get("left_out", {}).clear()
    assert stated | {"ledger": 0} == other | {"ledger": 0}
    of_counts = {f"counts/level_{level}.parquet" for level in range(DEPTH + 1)}
    texts = {"manifest.json", "README.md", "report.html", "explorer.html", "SHA256SUMS", "trellis.xlsx"}
    files = {str(path.relative_to(whole)) for path in whole.rglob("*") if path.is_file()} - of_counts - texts
    assert len(files) > 1
    for name in files:
        assert (parted / name).read_bytes() == (whole / name).read_bytes(), name


def test_readers_and_queries_know_no_difference(twice):
    """Nothing is wrong with either folder, however many threads look, and questions get the same answers."""
    parted, whole = twice
    assert verify(parted, workers=1) == verify(parted, workers=3) == verify(whole) == []
    assert _answers(parted) == _answers(whole)


def _answers(folder: Path) -> list[Any]:
    """Return what is answered about everything, and about the pairs of three rows of the finest level."""
    rows = level_of(folder, DEPTH)
    asked = [("all", "all"), *rows[[0, -1, len(rows) // 2]]["origin_municipality", "destination_municipality"].rows()]
    return [query_answer(folder, *ends, [], simultaneous=False) for ends in asked]


def test_the_store_has_all_rows(made):
    """The tables for SQL have the rows of all parts, in their order."""
    with store() as con:
        for entry in manifest_of(made).levels:
            found = con.execute(f'SELECT * FROM "{made.name}".level_{entry.level}').fetchall()
            assert found == level_of(made, entry.level).rows()


@pytest.mark.thorough
def test_the_bytes_do_not_depend_on_the_threads(home):
    """A release that is read and written by two threads or by one is the same bytes."""
    spec = spec_of(home / "threads", dataset="threads")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task, "cores", lambda: 4)
        one, other = both(
            lambda: Path(release(spec, different_people=True).folder),
            home / "threads" / "again",
            change=lambda again: again.setattr(task, "cores", lambda: 1),
        )
    assert len(parts_of(one)) > 1
    assert (one / "SHA256SUMS").read_bytes() == (other / "SHA256SUMS").read_bytes()


def without_a_part(folder: Path) -> None:
    """Delete a part."""
    parts_of(folder)[1].unlink()


def with_an_extra_part(folder: Path) -> None:
    """Add a part after the last one."""
    parts = parts_of(folder)
    shutil.copy(parts[0], parts[0].with_name(f"part-{len(parts):04}.parquet"))


def with_a_part_twice(folder: Path) -> None:
    """Put a part in the place of another one."""
    shutil.copy(parts_of(folder)[0], parts_of(folder)[1])


def with_parts_swapped(folder: Path) -> None:
    """Swap two parts."""
    one, other = parts_of(folder)[:2]
    one.rename(one.with_name("aside"))
    other.rename(one)
    one.with_name("aside").rename(other)


def with_a_count_changed(folder: Path) -> None:
    """Take a record off the largest row of a part."""
    path = parts_of(folder)[1]
    table = pl.read_parquet(path, glob=False)
    less = pl.col("count") - (pl.int_range(pl.len()) == table["count"].arg_max()).cast(int)
    table.with_columns(less, low=pl.min_horizontal("low", less)).write_parquet(path)


def with_a_part_that_is_text(folder: Path) -> None:
    """Write text in place of a part."""
    parts_of(folder)[1].write_text("no table")


def with_one_file_besides(folder: Path) -> None:
    """Put the level in one file beside its parts."""
    level_of(folder, DEPTH).write_parquet(folder / "counts" / f"level_{DEPTH}.parquet")


PART = f"counts/level_{DEPTH}/part-"
SPOILT: list[tuple[Callable[[Path], None], str]] = [
    (without_a_part, f"level_{DEPTH}/part-0001.parquet is missing or is not a Parquet file."),
    (with_an_extra_part, f"{PART}{{parts:04}}.parquet is no file of this release."),
    (with_a_part_twice, f"level_{DEPTH}: two rows have the same codes."),
    (with_parts_swapped, f"level_{DEPTH}: rows must be sorted by their codes."),
    (with_a_count_changed, f"level_{DEPTH}: the counts do not add up to those of the level above."),
    (with_a_part_that_is_text, f"level_{DEPTH}/part-0001.parquet is missing or is not a Parquet file."),
    (with_one_file_besides, f"counts/level_{DEPTH}.parquet is no file of this release."),
]


@pytest.mark.parametrize(("spoil", "failure"), SPOILT, ids=[spoil.__name__ for spoil, _ in SPOILT])
def test_verify_finds_what_was_done_to_a_part(folder, spoil, failure):
    """A part that is missing, extra, doubled, swapped, changed or no table is found even where the checksums fit; else by these too."""
    parts = len(parts_of(folder))
    spoil(folder)
    named = [found for found in verify(folder) if PART in found or f"level_{DEPTH}.parquet" in found]
    assert named  # by the checksums
    with_sums(folder)
    found = verify(folder, workers=1)
    assert failure.format(parts=parts) in found
    assert verify(folder, workers=3) == found


def test_a_level_that_repeats_another_one_is_in_parts_too(home):
    """A level of which every cell above holds one has parts where it is large, and the rows of the level above."""
    place = home / "repeated"
    spec = spec_of(place, dataset="repeated")
    towns = [(f"T{k:02}", f"R{k:02}") for k in range(24)]
    (place / "areas.csv").write_text("town,street\n" + "".join(f"{town},{street}\n" for town, street in towns))
    trips = [f"R{k * 7 % 24:02},R{k * k % 24:02}\n" for k in range(4_000)]
    (place / "trips.csv").write_text("home,work\n" + "".join(trips))
    keys = yaml.safe_load(spec.read_text()) | {
        "input": {"table": "trips.csv", "origin": "home", "destination": "work"},
        "hierarchy": {"table": "areas.csv", "levels": ["town", "street"]},
        "release": {"tree": "destination", "finest": "street"},
    }
    spec.write_text(yaml.safe_dump(keys))
    parted, whole = both(lambda: Path(release(spec, different_people=True).folder), place / "whole")
    levels = manifest_of(parted).levels
    assert {entry.level: entry.same_as for entry in levels if entry.parts} == {2: None, 3: 2, 4: 2}
    for entry in levels:
        assert_frame_equal(level_of(parted, entry.level), level_of(whole, entry.level))
    assert verify(parted) == verify(whole) == []


@pytest.mark.thorough
def test_views_are_one_file(tmp_path, monkeypatch):
    """Levels of a release with views are in parts, and its views are one file each."""
    town = Town(tmp_path)
    monkeypatch.setenv("TRELLIS_HOME", str(town.home))
    parted, whole = both(town.release, tmp_path / "whole", part_rows=2)
    assert verify(parted) == verify(whole) == []
    assert manifest_of(parted).levels[-1].parts > 1
    for path in sorted((whole / "views").glob("*")):
        assert (parted / "views" / path.name).read_bytes() == path.read_bytes()


def test_a_level_of_few_rows_is_one_file():
    """A level has parts only where it has more rows than a part may have; their names sort in their order."""
    assert tables.part_count(0) == tables.part_count(tables.PART_ROWS) == 0
    assert tables.part_count(tables.PART_ROWS + 1) == 2
    assert tables.level_files(7, 0) == ["counts/level_7.parquet"]
    assert tables.level_files(7, 2) == ["counts/level_7/part-0000.parquet", "counts/level_7/part-0001.parquet"]
    many = tables.level_files(7, 12_345)
    assert many == sorted(many)
