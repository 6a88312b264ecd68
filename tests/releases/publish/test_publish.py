"""The published folder: what is in it, and that `verify` finds whatever was done to it since."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from flows.answers.verify import verify_answer
from storage.database.connections import store
from storage.errors import StoreError
from tasks.format.csv import csv_failures
from tasks.publish.task import publish
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tasks.verify.folder import verify
from tests.support.folders import published, with_sums
from tests.support.user import REPOSITORY

SPEC = {
    "name": "synthetic",
    "dataset": "synthetic-country",
    "input": {"table": "data/trips.csv", "origin": "home", "destination": "work", "count": "people"},
    "hierarchy": {"table": "data/codebook.csv", "levels": ["region", "province", "municipality"]},
    "release": {"tree": "destination", "finest": "municipality"},
    "mechanism": "inftda",
    "privacy": {
        "unit": "one made-up commuter",
        "neighbours": "substitution",
        "max_records_per_unit": 1,
        "epsilon": 40.5,  # so much that every level keeps many rows
        "delta": 3.0e-9,
    },
    "budget": {"epsilon": 100.0, "delta": 1.0e-7},
}
PEOPLE = 500
DEPTH = 6  # three levels at either end
COUNTS = [f"counts/level_{level}.parquet" for level in range(DEPTH + 1)]
NOISY = [f"noisy_counts/level_{level}.parquet" for level in range(DEPTH + 1)]
TEXTS = ["metadata.json", "manifest.json", "README.md", "report.html", "explorer.html", "SHA256SUMS"]
OTHERS = ["noisy_counts/level_3.parquet", "noisy_counts/codebook.parquet", "counts.csv", *TEXTS]
FILES = [*COUNTS, *NOISY, "noisy_counts/codebook.parquet", "counts.csv", *TEXTS]
NUMBERS = ["count", "low", "high", "signal"]

LEVEL_COLUMNS = [
    [],
    ["destination_region"],
    ["origin_region", "destination_region"],
    ["origin_region", "destination_region", "destination_province"],
    ["origin_region", "origin_province", "destination_region", "destination_province"],
    [
        *("origin_region", "origin_province"),
        *("destination_region", "destination_province", "destination_municipality"),
    ],
    [
        *("origin_region", "origin_province", "origin_municipality"),
        *("destination_region", "destination_province", "destination_municipality"),
    ],
]


@dataclass(frozen=True)
class Folder:
    """A published folder that may be spoilt.

    Attributes:
        path: of the folder.
    """

    path: Path

    def table(self, level: int) -> pl.DataFrame:
        """Return the table of a level."""
        return pl.read_parquet(self.path / COUNTS[level])

    def put(self, level: int, table: pl.DataFrame) -> None:
        """Replace the table of a level, and where it is the finest `counts.csv` too, so that these two agree.

        Intervals are widened where counts have left them.
        """
        if {"count", "low", "high"} <= set(table.columns):
            table = table.with_columns(low=pl.min_horizontal("low", "count"), high=pl.max_horizontal("high", "count"))
        table.write_parquet(self.path / COUNTS[level])
        if level == DEPTH:
            table.write_csv(self.path / "counts.csv")

    def manifest(self) -> dict[str, Any]:
        """Return the manifest."""
        manifest: dict[str, Any] = json.loads((self.path / "manifest.json").read_text())
        return manifest

    def put_manifest(self, manifest: dict[str, Any]) -> None:
        """Replace the manifest."""
        (self.path / "manifest.json").write_text(json.dumps(manifest))

    def failures(self) -> list[str]:
        """Write fitting checksums, and return what `verify` says all the same."""
        with_sums(self.path)
        return verify(self.path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Release a made-up country and return the published folder; its store is at TRELLIS_HOME meanwhile."""
    place = tmp_path_factory.mktemp("made")
    country = draw_country(
        regions=2, provinces=4, municipalities=12, people=PEOPLE, generator=np.random.default_rng(20)
    )
    write_country(country, place / "data")
    (place / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        yield published(place / "spec.yaml")


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """Return a copy of the published folder on its own: no store, no codebook, no confidential table."""
    copy = tmp_path / "elsewhere" / made.name
    shutil.copytree(made, copy)
    monkeypatch.setenv("TRELLIS_HOME", "/proc/nowhere")  # where no store can be made either
    return Folder(copy)


def plus(table: pl.DataFrame, row: int, records: int) -> pl.DataFrame:
    """Return a table with so many records more in one of its rows."""
    at_row = pl.int_range(pl.len()) == row
    return table.with_columns(pl.when(at_row).then(pl.col("count") + records).otherwise("count").alias("count"))


def test_the_folder_is_whole_wherever_it_is(made, folder):
    """The folder verifies as it was published, and alone, on another disk and by another name, without the store."""
    assert verify(made) == []
    assert folder.failures() == []
    assert verify(folder.path.rename(folder.path.with_name("handed [on] by * the office"))) == []


def test_folder_holds_these_files(made):
    """A folder holds its tables, manifest, README and checksums, readable by all, and nothing is left beside it."""
    assert sorted(str(file.relative_to(made)) for file in made.rglob("*") if file.is_file()) == sorted(FILES)
    assert {file.stat().st_mode & 0o777 for file in made.rglob("*") if file.is_file()} == {0o644}
    assert {file.stat().st_mode & 0o777 for file in (made, made / "counts", made / "noisy_counts")} == {0o755}
    assert [file.name for file in made.parent.iterdir()] == [made.name]


def test_tables_are_as_promised(made):
    """A level has a text column per axis and level reached, then count, low, high and signal; sorted, without zeros, adding up."""
    for level, codes in enumerate(LEVEL_COLUMNS):
        table = Folder(made).table(level)
        assert table.columns == [*codes, *NUMBERS]
        assert table.dtypes == [pl.String] * len(codes) + [pl.Int64] * 3 + [pl.Boolean]
        assert ((table["low"] >= 0) & (table["low"] <= table["count"]) & (table["count"] <= table["high"])).all()
        assert table["count"].sum() == PEOPLE
        assert (table["count"] > 0).all()
        if level:
            assert_frame_equal(table, table.sort(codes))
            assert table.height > 1  # there is something for the other tests to spoil
    assert Folder(made).table(0).rows() == [(PEOPLE, PEOPLE, PEOPLE, True)]


def test_csv_is_the_finest_level(made):
    """`counts.csv` holds the finest level, leading zeros included."""
    csv = pl.read_csv(made / "counts.csv", infer_schema=False)
    numbers = csv.with_columns(pl.col(NUMBERS[:-1]).cast(pl.Int64), signal=pl.col("signal") == "true")
    assert_frame_equal(numbers, Folder(made).table(DEPTH))
    assert csv["origin_municipality"].str.starts_with("0").all()


def test_manifest_says_what_was_done(made):
    """The manifest has the promised keys, and in them what the spec asked for and what the tables hold."""
    manifest = Folder(made).manifest()
    assert list(manifest) == [
        *("id", "spec", "privacy", "unprotected", "levels", "mechanism", "codebooks", "seals", "ledger", "versions"),
        *("intervals", "noisy_counts", "poor_margins", "pages"),
    ]
    assert manifest["intervals"] == {"confidence": 0.9, "simultaneous": False, "rounded": False, "signal_rate": 0.1}
    assert manifest["noisy_counts"] is True
    assert manifest["id"] == made.name
    assert manifest["mechanism"] == "inftda"
    asked = {key: SPEC["privacy"][key] for key in ("unit", "neighbours", "max_records_per_unit", "epsilon", "delta")}
    statement, rho = manifest["privacy"]["statement"], manifest["privacy"]["rho"]
    assert statement.startswith("(40.5, 3e-09)-differentially private for one made-up commuter, which has exactly one")
    assert manifest["privacy"] == asked | {
        "exact_records_per_unit": True,
        "distinct": None,
        "bounded_by": "promise",
        "rho": rho,
        "accountant": "pld",
        "sampler": "opendp",
        "tau": 0.0,
        "statement": statement,
    }
    assert manifest["spec"]["input"] == SPEC["input"] | {"table": "trips.csv"}
    assert manifest["spec"]["hierarchy"]["table"] == "codebook.csv"
    sha256 = hashlib.sha256((made.parents[1] / "data" / "codebook.csv").read_bytes()).hexdigest()
    assert manifest["codebooks"] == {"origin": sha256, "destination": sha256}
    assert {"trellis", "opendp", "duckdb", "polars"} <= manifest["versions"].keys()
    assert [(seal["level"], seal["branch"]) for seal in manifest["seals"]] == [(k, "trunk") for k in range(DEPTH + 1)]
    assert all(len(seal["sha256"]) == 64 for seal in manifest["seals"])


def test_manifest_lists_every_level(made):
    """Each level has its axes, cells, rows, share of the budget, noise and bound; level 0 is exact."""
    manifest = Folder(made).manifest()
    assert [level["level"] for level in manifest["levels"]] == list(range(DEPTH + 1))
    for level in manifest["levels"]:
        assert list(level) == [
            *("level", "axes", "cells", "nonzero", "rho", "sigma", "l2_sensitivity", "derivation", "bound"),
            *(["scale"] if level["level"] else []),  # the noise is so little that it deviates by less
            *("bound_after", "bias", "half_width", "cap_margin", "intervals", "signal", "noise_rows", "above_noise"),
        ]
        assert level["intervals"] == {"confidence": 0.9, "promise": "rows"}
        assert level["nonzero"] == Folder(made).table(level["level"]).height <= level["cells"]
        reached = {f"{axis}_{name}" for axis, name in level["axes"].items() if name}
        assert reached <= set(LEVEL_COLUMNS[level["level"]])
    first, *others = manifest["levels"]
    assert first["derivation"] == "published exactly"
    assert all(level["derivation"].endswith("Δ₂² = 2·(1·1²) = 2") for level in others)
    assert (first["rho"], first["sigma"], first["bound"]) == (0, 0, 0)
    assert all(level["rho"] > 0 and level["sigma"] > 0 and level["bound"] > 0 for level in others)
    assert sum(level["rho"] for level in others) == pytest.approx(manifest["privacy"]["rho"])


def test_manifest_names_a_head_of_the_ledger(made):
    """The ledger's length and hash in the manifest are those of an event that reserved this release, or a later one."""
    ledger = Folder(made).manifest()["ledger"]
    with store() as con:
        events = con.execute("SELECT event, hash FROM ledger ORDER BY position").fetchall()
    assert events[ledger["length"] - 1][1] == ledger["head"]
    before = [json.loads(event) for event, _ in events[: ledger["length"]]]
    assert made.name in [event.get("release") for event in before if event["event"] == "reserved"]


def test_readme_says_what_matters(made):
    """The README names the unit, epsilon, delta, what is not protected, and every level with its noise."""
    readme, manifest = (made / "README.md").read_text(), Folder(made).manifest()
    assert made.name in readme
    assert "one made-up commuter" in readme
    assert "ε = 40.5" in readme
    assert "δ = 3e-09" in readme
    assert manifest["unprotected"]
    assert all(f"- {statement}\n" in readme for statement in manifest["unprotected"])
    rows = [[cell.strip() for cell in line.split("|")] for line in readme.splitlines() if line.startswith("| ")]
    for level in manifest["levels"]:
        row = next(row for row in rows if row[1] == str(level["level"]))
        noise = f"{level['sigma']:.2f}" if level["level"] else "exact"
        assert row[2:6] == [*(name or "all" for name in level["axes"].values()), f"{level['nonzero']:,}", noise]
    assert all(name in readme for name in ("manifest.json", "counts.csv", "SHA256SUMS", "level_<k>.parquet"))


def test_checksums_are_those_of_sha256sum(made):
    """`SHA256SUMS` names every other file, sorted, in the format of `sha256sum --check`."""
    lines = [line.split("  ") for line in (made / "SHA256SUMS").read_text().splitlines()]
    assert [name for _, name in lines] == sorted(file for file in FILES if file != "SHA256SUMS")
    assert all(hashlib.sha256((made / name).read_bytes()).hexdigest() == sha256 for sha256, name in lines)


def test_publishing_again_leaves_the_folder_alone(made):
    """A release that is out stays as it is, to the byte and the second."""
    before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in made.rglob("*") if file.is_file()}
    publish.fn(made.name)
    assert {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in before} == before


def test_another_folder_in_its_place_is_left_alone(made, tmp_path):
    """What stands where a release is to be published is neither replaced nor merged with."""
    aside = made.rename(tmp_path / made.name)
    try:
        made.mkdir()
        (made / "thesis.txt").write_text("the only copy")
        with pytest.raises(StoreError, match="is not this release") as refused:
            publish.fn(made.name)
        assert refused.value.field == "output"
        assert [file.name for file in made.iterdir()] == ["thesis.txt"]
    finally:
        shutil.rmtree(made)
        aside.rename(made)


def test_altered_files_are_found(folder):
    """One bit of one file is enough: of all files that have one bit changed, each is named."""
    for name in FILES:
        content = bytearray((folder.path / name).read_bytes())
        content[0] ^= 1
        if name != "SHA256SUMS":
            (folder.path / name).write_bytes(content)
    failures = verify(folder.path)
    assert {f"{name} is not the file that was published." for name in FILES if name != "SHA256SUMS"} <= {*failures}


@pytest.mark.parametrize("name", ["counts/level_3.parquet", *OTHERS])
def test_longer_and_removed_files_are_found(folder, name):
    """A line more at the end of a file is found, also one that readers pass over; a file that is gone is missed by its name."""
    with (folder.path / name).open("ab") as file:
        file.write(b"0  README\n" if name == "SHA256SUMS" else b"\n")
    assert verify(folder.path) != []
    (folder.path / name).unlink()
    assert f"{name} is missing." in verify(folder.path)


def test_added_files_are_found(folder):
    """A file that was not published is found wherever it lies."""
    added = [".hidden", "counts/level_7.parquet", "counts/old/level_6.parquet", "notes.txt"]
    (folder.path / "counts" / "old").mkdir()
    for name in added:
        (folder.path / name).touch()
    assert verify(folder.path) == [f"{name} is not listed in SHA256SUMS." for name in added]


@pytest.mark.parametrize(
    ("level", "records"), [*((level, (-1) ** level) for level in range(DEPTH + 1)), (DEPTH, -1), (DEPTH, 10**12)]
)
def test_a_changed_count_does_not_add_up(folder, level, records):
    """With checksums that fit, a count that was changed at any level still disagrees with another level."""
    table = folder.table(level)
    row = table["count"].arg_max()
    assert row is not None
    folder.put(level, plus(table, row, records))
    assert folder.failures() != []


@pytest.mark.parametrize("level", range(2, DEPTH + 1))
def test_a_record_moved_to_another_parent_does_not_add_up(folder, level):
    """A record moved between areas with different parents is found although the total stays."""
    table = folder.table(level)
    parents = LEVEL_COLUMNS[level - 1]
    first = table.row(0, named=True)
    others = table.with_row_index().filter(pl.any_horizontal(pl.col(code) != first[code] for code in parents))
    folder.put(level, plus(plus(table, 0, 1), others.sort("count")["index"][-1], -1))
    assert folder.table(level)["count"].sum() == PEOPLE
    assert any("add up" in failure for failure in folder.failures())


SPOIL_TABLE: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "removed": lambda table: table[1:],
    "doubled": lambda table: pl.concat([table[:1], table]),
    "split in two": lambda table: pl.concat([plus(table[:1], 0, -1), table]).with_columns(
        pl.when(pl.int_range(pl.len()) == 1).then(1).otherwise("count").cast(pl.Int64).alias("count")
    ),
    "unsorted": lambda table: table.reverse(),
    "added with a zero": lambda table: pl.concat(
        [table, table[-1:].with_columns(pl.lit("99").alias(table.columns[0]), count=pl.lit(0, pl.Int64))]
    ),
    "negative": lambda table: plus(plus(table, 0, -PEOPLE - 1), 1, PEOPLE + 1),
    "null": lambda table: plus(table, 0, None),  # type: ignore[arg-type]
    "without a code": lambda table: table.with_columns(
        pl.when(pl.int_range(pl.len()) > 0).then(table.columns[0]).alias(table.columns[0])
    ),
    "a code as a number": lambda table: table.with_columns(pl.first().cast(pl.Int64)),
    "small counts": lambda table: table.with_columns(pl.col("count").cast(pl.Int32)),
    "decimal counts": lambda table: table.with_columns(pl.col("count").cast(pl.Float64)),
    "count first": lambda table: table.select("count", pl.exclude("count")),
    "another name": lambda table: table.rename({table.columns[0]: "region"}),
    "a code less": lambda table: table.drop(table.columns[0]),
    "a column more": lambda table: table.insert_column(0, pl.lit("so").alias("note")),
    "no count": lambda table: table.drop("count"),
    "no column": lambda table: table.select([]),
}


@pytest.mark.parametrize(
    ("level", "spoil"),
    [(level, spoil) for number, spoil in enumerate(SPOIL_TABLE) for level in {1 + number % (DEPTH - 1), DEPTH}],
)
def test_spoilt_tables_are_found(folder, level, spoil):
    """Rows removed, doubled, split, out of order, empty or negative are found, also if the manifest counts them; so are other columns."""
    folder.put(level, SPOIL_TABLE[spoil](folder.table(level)))
    manifest = folder.manifest()
    manifest["levels"][level]["nonzero"] = folder.table(level).height
    folder.put_manifest(manifest)
    assert folder.failures() != []


@pytest.mark.parametrize(("level", "content"), [(0, b""), (3, b"not Parquet"), (DEPTH, b"PAR1" + bytes(100) + b"PAR1")])
def test_what_is_no_parquet_is_found(folder, level, content):
    """A table that cannot be read is a failure with its name, and no crash."""
    (folder.path / COUNTS[level]).write_bytes(content)
    assert any(f"level_{level}.parquet" in failure for failure in folder.failures())


SPOIL_CSV: dict[str, Callable[[str], str]] = {
    "a count changed": lambda text: text[:-2] + ("1" if text[-2] != "1" else "2") + "\n",
    "a leading zero lost": lambda text: text.replace("\n0", "\n", 1),
    "a row less": lambda text: text[: text[:-1].rindex("\n") + 1],
    "a row twice": lambda text: text + text[text[:-1].rindex("\n") + 1 :],
    "no header": lambda text: text.partition("\n")[2],
    "another header": lambda text: text.replace("count", "people", 1),
    "no number": lambda text: text[:-2] + "x\n",
    "a decimal point": lambda text: text[:-1] + ".0\n",
    "nothing": lambda _: "",
}


def test_another_csv_is_found(folder):
    """`counts.csv` that is not the finest level is found, however it differs."""
    path, finest = folder.path / "counts.csv", [folder.path / COUNTS[DEPTH]]
    whole = path.read_text()
    for what, spoil in SPOIL_CSV.items():
        path.write_text(spoil(whole))
        assert csv_failures(path, finest) != [], what
    assert any("counts.csv" in failure for failure in folder.failures())
    path.write_text(whole)
    assert csv_failures(path, finest) == []


MANIFEST_KEYS = [
    *("id", "spec", "privacy", "unprotected", "levels", "mechanism", "codebooks", "seals", "ledger", "versions"),
    *(
        f"privacy.{key}"
        for key in ("unit", "neighbours", "max_records_per_unit", "epsilon", "delta", "rho", "accountant")
    ),
    *(f"levels.3.{key}" for key in ("level", "axes", "cells", "nonzero", "rho", "sigma", "l2_sensitivity", "bound")),
    *("seals.0.level", "seals.0.branch", "seals.0.sha256", "ledger.head", "ledger.length"),
]


def part_of(manifest: Any, name: str) -> tuple[Any, str]:
    """Return the part of a manifest that holds a key, by its dotted name, and the key."""
    *above, key = name.split(".")
    for step in above:
        manifest = manifest[int(step) if step.isdigit() else step]
    return manifest, key


UNKNOWN_KEYS = ["note", "privacy.note", "levels.3.true_total", "seals.0.note", "ledger.events", "levels.0.note"]


def test_a_manifest_with_a_key_less_or_more_is_found(folder):
    """A manifest without one of its keys, or with an unknown one, of which nobody knows whether it may be public, is told by that key."""
    for name in [*MANIFEST_KEYS, *UNKNOWN_KEYS]:
        manifest = folder.manifest()
        part, key = part_of(manifest, name)
        if name in MANIFEST_KEYS:
            del part[key]
        else:
            part[key] = 1
        whole = folder.manifest()
        folder.put_manifest(manifest)
        assert any("manifest.json is not valid" in failure and name in failure for failure in folder.failures()), name
        folder.put_manifest(whole)


@pytest.mark.parametrize(("level", "more"), [(0, 1), (3, -1), (DEPTH, 1)])
def test_a_wrong_number_of_rows_is_found(folder, level, more):
    """A manifest that counts the rows of a level wrongly is found, by the level."""
    manifest = folder.manifest()
    manifest["levels"][level]["nonzero"] += more
    folder.put_manifest(manifest)
    assert [failure for failure in folder.failures() if f"level_{level}" in failure] != []


SPOIL_MANIFEST: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no spec": lambda manifest: manifest | {"spec": {}},
    "no seals": lambda manifest: manifest | {"seals": []},
    "a seal less": lambda manifest: manifest | {"seals": manifest["seals"][1:]},
    "no versions": lambda manifest: manifest | {"versions": {}},
    "another rho": lambda manifest: (
        manifest | {"privacy": manifest["privacy"] | {"rho": manifest["privacy"]["rho"] / 2}}
    ),
    "another sigma": lambda manifest: (
        manifest | {"levels": [level | {"sigma": level["sigma"] * 0.9} for level in manifest["levels"]]}
    ),
    "a level less": lambda manifest: manifest | {"levels": manifest["levels"][:-1]},
    "no level": lambda manifest: manifest | {"levels": []},
    "levels out of order": lambda manifest: manifest | {"levels": manifest["levels"][::-1]},
    "a level twice": lambda manifest: manifest | {"levels": manifest["levels"][:1] + manifest["levels"]},
    "another axis": lambda manifest: json.loads(json.dumps(manifest).replace('"origin": "region"', '"home": "region"')),
    "another level name": lambda manifest: json.loads(json.dumps(manifest).replace('"region"}', '"state"}')),
    "a list": lambda manifest: [manifest],
    "nothing": lambda _: None,
}


@pytest.mark.parametrize("spoil", SPOIL_MANIFEST)
def test_another_manifest_is_found(folder, spoil):
    """A manifest that is not the one of these tables is found."""
    folder.put_manifest(SPOIL_MANIFEST[spoil](folder.manifest()))
    assert folder.failures() != []


def test_a_manifest_that_is_no_json_is_found(folder):
    """A manifest that cannot be read is a failure and no crash."""
    for content in (b"", b"{", b"\xff\xfe", b'{"id": NaN}'):
        (folder.path / "manifest.json").write_bytes(content)
        assert any("manifest.json" in failure for failure in folder.failures())


def test_what_other_code_wrote_is_compared_by_checksum_alone_as_the_page_says(folder):
    """Where other code made a folder, new checksums hide changed texts and pictures, but neither other data in the explorer nor other columns."""
    page = (REPOSITORY / "docs" / "how-to" / "publish.md").read_text()
    assert "compared only the data in the explorer and the files and columns in `metadata.json`" in page
    folder.put_manifest(folder.manifest() | {"pages": folder.manifest()["pages"] | {"code": "0" * 64}})
    for name in ("README.md", "report.html"):
        assert f"`{name}`" in page
        (folder.path / name).write_text("All is exact.")
    explorer = (folder.path / "explorer.html").read_text()
    (folder.path / "explorer.html").write_text(explorer.replace("</body>", "<p>All is exact.</p></body>"))
    described = json.loads((folder.path / "metadata.json").read_text())
    (folder.path / "metadata.json").write_text(json.dumps(described | {"dc:description": "All is exact."}))
    assert folder.failures() == []
    found = verify_answer(folder.path)
    assert found.ok
    assert "other code of Trellis wrote them" in found.unread[0]
    (folder.path / "explorer.html").write_text(explorer.replace('"signal_rate":0.1', '"signal_rate":0.2'))
    assert folder.failures() == []
    assert verify_answer(folder.path).failures == ["explorer.html does not show what the tables hold."]
    described["tables"].pop()
    (folder.path / "metadata.json").write_text(json.dumps(described))
    assert "metadata.json does not list the CSV files and their columns as they are." in folder.failures()


def test_what_is_no_published_folder_is_found(tmp_path):
    """A folder that is not there, a file, and an empty folder fail in a sentence."""
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for name in ("nothing", "file", "empty"):
        assert verify(tmp_path / name) != []


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["counts.csv", "manifest.json", "SHA256SUMS"]),  # of other texts only the checksums are read
    place=st.floats(0, 1, exclude_max=True),
    other=st.integers(128, 255),
)
def test_no_byte_of_a_text_can_be_changed(folder, name, place, other):
    """Whichever byte of a text is changed, and to whatever, `verify` says so and does not crash."""
    path = folder.path / name
    content = path.read_bytes()
    at = int(place * len(content))
    path.write_bytes(content[:at] + bytes([content[at] ^ other]) + content[at + 1 :])
    try:
        assert verify(folder.path) != []
    finally:
        path.write_bytes(content)


# In a process of its own: a reader of Parquet that believes a damaged length may take its process down with it.
DAMAGE = """
import sys
from pathlib import Path
from tasks.verify.folder import verify

folder, many = Path(sys.argv[1]), int(sys.argv[2])
for name in sys.argv[3:]:
    content = (folder / name).read_bytes()
    size, footer = len(content), len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    ends = {0, 4, footer - 1, footer, size - 8, size - 5, size - 1}  # of the magic, the data, the footer and its length
    for at in sorted(ends | {*range(0, size, 1 + size // many)}):
        (folder / name).write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        try:
            whole = not verify(folder, workers=1)
        except BaseException as fault:
            sys.exit(f"{name}, byte {at}: {type(fault).__name__}")
        if whole:
            sys.exit(f"{name}, byte {at}: not found")
    (folder / name).write_bytes(content)
"""


@pytest.mark.parametrize(
    "many", [6, pytest.param(100, marks=[pytest.mark.thorough, pytest.mark.heavy("it verifies 200 times")])]
)
def test_a_damaged_table_is_found(folder, many):
    """One bit changed in a table, be it in its first bytes, its data or its footer, is a failure and no crash."""
    done = subprocess.run(
        [sys.executable, "-c", DAMAGE, str(folder.path), str(many), COUNTS[0], COUNTS[DEPTH]],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr[-300:]) == (0, "")
