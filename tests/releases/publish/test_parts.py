"""Large levels are published in parts: the same rows as in one file, whoever reads them, and `verify` finds what was done to a part."""

import functools
import json
import shutil
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest
import yaml
from polars.testing import assert_frame_equal

from flows.answers.query import query_answer
from flows.api import release
from flows.run import driver
from storage import tables
from storage.database.connections import store
from tasks.folder.publish import task
from tasks.folder.publish.task import publish
from tasks.folder.verify.folder import verify
from tasks.format.manifest import Manifest
from tests.support.folders import with_sums
from tests.support.spec import SPEC, spec_in

FORMATS = ["xlsx", "omx", "sdmx"]
SPECS = {
    "inftda": {"release": {"csv": "every_level", "records": True, "formats": FORMATS, "rows": "signal"}},
    "laplace": {
        "mechanism": "inftda_reconciled",
        "noise": {"law": "laplace"},
        "privacy": {"accountant": None},
        "release": {"intervals": {"simultaneous": True}},
    },
    "stability_histogram": {"mechanism": "stability_histogram", "privacy": {"accountant": None}},
    "invariants": {"mechanism": "inftda_shrunk", "privacy": {"invariants": ["region"], "i_accept_unprotected": True}},
    "rounded": {"keep_noisy_counts": False, "release": {"views": "margins"}},
}
FEW = ("inftda", "stability_histogram")
DEPTH = 6


PART_ROWS = 20  # so that small releases have parts


def both(spec, aside):
    """Publish a release twice from the same sealed measurements, and return both folders."""
    # Once with large levels in parts, by several threads, and aside with every level in one file, by one thread.
    close = driver.close_the_books

    def publish_again(made, **keys):
        folder = Path(made.folder)
        folder.rename(folder.with_name("in-parts"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tables, "PART_ROWS", 10**9)
            patch.setattr(task, "cores", lambda: 1)
            publish.fn(made.id)
        folder.rename(aside)
        folder.with_name("in-parts").rename(folder)
        return close(made, **keys)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "PART_ROWS", PART_ROWS)
        patch.setattr(task, "cores", lambda: 4)
        patch.setattr(driver, "close_the_books", publish_again)
        return Path(release(spec, different_people=True).folder), aside


def manifest_of(folder):
    """Return the manifest of a folder."""
    return Manifest.model_validate_json((folder / "manifest.json").read_bytes())


def level_of(folder, level):
    """Return the rows of a level of a published folder, from its files in the order of their names."""
    parts = sorted((folder / "counts" / f"level_{level}").glob("*"))
    assert len(parts) == manifest_of(folder).levels[level].parts
    return pl.read_parquet(parts or folder / "counts" / f"level_{level}.parquet", glob=False)


def spec_of(folder, country, **changes):
    """Write a spec of a made-up country with other keys, those of sections one by one; return its path."""
    shutil.copytree(country, folder / "data")
    written = SPEC | {"privacy": SPEC["privacy"] | {"epsilon": 9.0}, "run": {"prefect": False}}
    for key, value in changes.items():
        written[key] = written[key] | value if isinstance(value, dict) and key in written else value
    written["privacy"] = {key: value for key, value in written["privacy"].items() if value is not None}
    return spec_in(folder, written)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Give the releases of this module a store."""
    place = tmp_path_factory.mktemp("parts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        with store():  # open all the time
            yield place


@pytest.fixture(scope="module")
def published(home, country):
    """Return what makes a release with levels in parts, and the same in one file each, once."""

    @functools.cache
    def of(name):
        spec = spec_of(home / name, country, **SPECS[name] | {"dataset": name.replace("_", "-")})
        return both(spec, home / name / "whole")

    return of


@pytest.fixture
def folder(published, tmp_path):
    """Return a copy of a release with levels in parts."""
    return Path(shutil.copytree(published("inftda")[0], tmp_path / "copy"))


def parts_of(folder):
    """Return the parts of the finest level."""
    return sorted((folder / "counts" / f"level_{DEPTH}").iterdir())


@pytest.mark.parametrize(
    "name", [name if name in FEW else pytest.param(name, marks=pytest.mark.thorough) for name in SPECS]
)
def test_levels_in_parts_are_those_in_one_file(published, name):
    """They have its rows in its order, for SQL too, and few rows a part; all else that is published, and every answer, is the same."""
    parted, whole = published(name)
    levels = manifest_of(parted).levels
    for entry in levels:
        assert_frame_equal(level_of(parted, entry.level), level_of(whole, entry.level))
        assert max(pq.read_metadata(parted / file).num_rows for file in entry.files) <= PART_ROWS
        assert entry.parts == (0 if entry.nonzero <= PART_ROWS else -(-entry.nonzero // PART_ROWS))
        with store() as con:
            found = con.execute(f'SELECT * FROM "{parted.name}".level_{entry.level}').fetchall()
        assert found == level_of(parted, entry.level).rows()
    assert levels[-1].parts > 1
    stated, other = (json.loads((folder / "manifest.json").read_text()) for folder in (parted, whole))
    for of in (stated, other):
        of["left_out"] = of["ledger"] = None
    assert [level.pop("parts", 0) > 0 for level in stated["levels"]][-1]
    assert stated == other
    texts = {"manifest.json", "README.md", "report.html", "explorer.html", "SHA256SUMS", "trellis.xlsx"}
    files = {str(path.relative_to(whole)) for path in whole.rglob("*") if path.is_file()} - texts
    files -= {f"counts/level_{level}.parquet" for level in range(DEPTH + 1)}
    assert len(files) > 1
    for file in files:
        assert (parted / file).read_bytes() == (whole / file).read_bytes(), file
    assert verify(parted, workers=1) == verify(parted, workers=3) == verify(whole) == []
    rows = level_of(parted, DEPTH)
    asked = [("all", "all"), *rows[[0, -1, len(rows) // 2]]["origin_municipality", "destination_municipality"].rows()]
    for ends in asked:
        one, same = (query_answer(folder, *ends, [], simultaneous=False) for folder in (parted, whole))
        assert one == same


def with_parts_swapped(folder):
    """Swap two parts."""
    one, other = (path.read_bytes() for path in parts_of(folder)[:2])
    parts_of(folder)[0].write_bytes(other)
    parts_of(folder)[1].write_bytes(one)


def with_a_count_changed(folder):
    """Take a record off the largest row of a part."""
    path = parts_of(folder)[1]
    table = pl.read_parquet(path, glob=False)
    less = pl.col("count") - (pl.int_range(pl.len()) == table["count"].arg_max()).cast(int)
    table.with_columns(less, low=pl.min_horizontal("low", less)).write_parquet(path)


PART, LEVEL = f"counts/level_{DEPTH}/part-", f"counts/level_{DEPTH}.parquet"
GONE = f"level_{DEPTH}/part-0001.parquet is missing or is not a Parquet file."
SPOILT = {
    "a part less": (lambda folder: parts_of(folder)[1].unlink(), GONE),
    "a part that is text": (lambda folder: parts_of(folder)[1].write_text("no table"), GONE),
    "a part more": (
        lambda folder: shutil.copy(parts_of(folder)[0], folder / f"{PART}9999.parquet"),
        f"{PART}9999.parquet is no file of this release.",
    ),
    "one file besides": (lambda folder: level_of(folder, DEPTH).write_parquet(folder / LEVEL), f"{LEVEL} is no file of this release."),
    "a part twice": (lambda folder: shutil.copy(*parts_of(folder)[:2]), f"level_{DEPTH}: two rows have the same codes."),
    "swapped": (with_parts_swapped, f"level_{DEPTH}: rows must be sorted by their codes."),
    "a count": (with_a_count_changed, f"level_{DEPTH}: the counts do not add up to those of the level above."),
}  # fmt: skip


@pytest.mark.parametrize("spoil", SPOILT)
def test_verify_finds_what_was_done_to_a_part(folder, spoil):
    """A part that is missing, extra, doubled, swapped, changed or no table is found even where the checksums fit; else by these too."""
    change, failure = SPOILT[spoil]
    change(folder)
    assert [found for found in verify(folder) if PART in found or LEVEL in found]  # by the checksums
    with_sums(folder)
    found = verify(folder, workers=1)
    assert failure in found
    assert verify(folder, workers=3) == found


def test_a_level_that_repeats_another_one_is_in_parts_too(home, country):
    """A level of which every cell above holds one has parts where it is large, and the rows of the level above."""
    place = home / "repeated"
    spec = spec_of(place, country, dataset="repeated")
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
    parted, whole = both(spec, place / "whole")
    levels = manifest_of(parted).levels
    assert {entry.level: entry.same_as for entry in levels if entry.parts} == {2: None, 3: 2, 4: 2}
    for entry in levels:
        assert_frame_equal(level_of(parted, entry.level), level_of(whole, entry.level))
    assert verify(parted) == verify(whole) == []
