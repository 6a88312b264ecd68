"""Names of areas: read from codebooks or tables of their own, published beside the codes, and taken by queries."""

import json
import re
import shutil
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
import yaml
from csvw import CSVW

from flows.answers.query import query_answer
from flows.spec.file import load_spec
from storage.errors import InputError, SpecError, UsageError
from tasks.explore.payload import payload
from tasks.ingest.task import names_of, read_ends
from tasks.query.folder import open_folder
from tasks.tabulate.largest import largest_counts
from tasks.verify.folder import verify
from tests.support.folders import published, with_sums

AREAS = pl.DataFrame(
    {
        "county": ["01", "01", "02", "02"],
        "county called": ["Ashford", "Ashford", "  Bel\tmont ", "  Bel\tmont "],
        "town": ["0101", "0102", "0201", "0202"],
        "town called": ["Ashford", "Mill, Old", "=Mill", ""],
    }
)
WORDS = {"title": "Made-up trips", "description": "Only of people who are <made up>.", "source": "Nobody's survey"}
SPEC: dict[str, Any] = {
    "name": "named",
    **WORDS,
    "dataset": "named",
    "input": {"table": "trips.csv", "origin": "home", "destination": "work"},
    "hierarchy": {
        "table": "areas.csv",
        "levels": ["county", "town"],
        "called": {"county": "shire"},
        "labels": {"county": "county called", "town": "town called"},
    },
    "release": {"tree": "destination", "finest": "town", "csv": "every_level", "rows": "signal"},
    "privacy": {
        "unit": "one made-up person",
        "neighbours": "substitution",
        "max_records_per_unit": 1,
        "epsilon": 20.0,
        "delta": 1e-8,
    },
    "budget": {"epsilon": 1000.0, "delta": 1e-5},
}


def write(folder: Path, spec: dict[str, Any], areas: pl.DataFrame = AREAS) -> Path:
    """Write the tables and a spec of them, and return the spec."""
    folder.mkdir(parents=True, exist_ok=True)
    areas.write_csv(folder / "areas.csv")
    pairs = [(home, work) for home in AREAS["town"] for work in AREAS["town"]] * 30
    pl.DataFrame(pairs, ["home", "work"], orient="row").write_csv(folder / "trips.csv")
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec))
    return folder / "spec.yaml"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the published folder of the spec above."""
    place = tmp_path_factory.mktemp("named")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        yield published(write(place, SPEC))


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a release with more noise, whose names come from a table of their own; two of its towns are called alike."""
    place = tmp_path_factory.mktemp("noisy")
    (place / "secret place").mkdir()
    names = {"level": "town", "code": AREAS["town"], "name": ["Springfield", "Mill", "Springfield", "Hill"]}
    pl.DataFrame(names).write_csv(place / "secret place" / "names.csv")
    keys = {"privacy": SPEC["privacy"] | {"epsilon": 0.3}, "mechanism": "inftda"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        yield published(write(place, with_labels("secret place/names.csv") | keys))


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """Return a copy of the folder that a test may change."""
    shutil.copytree(folder, tmp_path / "copy")
    return tmp_path / "copy"


def named(spec: dict[str, Any], folder: Path, areas: pl.DataFrame = AREAS) -> dict[tuple[str, int], list[Any]]:
    """Return the names that ingest would keep, by axis and level."""
    source = load_spec(write(folder, spec, areas)).source()
    return {place: names.rows() for place, names in names_of(source, read_ends(source)).items()}


def with_labels(labels: object, **hierarchy: object) -> dict[str, Any]:
    """Return the spec with other labels, or other keys of its hierarchy."""
    return SPEC | {"hierarchy": SPEC["hierarchy"] | {"labels": labels} | hierarchy}


def test_every_csv_has_names_beside_codes(folder: Path) -> None:
    """A column of names follows each column of codes that has names, in the tables of levels and of the rows that stand out."""
    calls = dict(AREAS.select("town", pl.Series("name", ["Ashford", "Mill, Old", "=Mill", None])).iter_rows())
    for name in ("counts/level_4.csv", "signal/level_4.csv"):
        table = pl.read_csv(folder / name, infer_schema=False)
        axes = [
            f"{end}_{level}{of}"
            for end in ("origin", "destination")
            for level in ("county", "town")
            for of in ("", "_name")
        ]
        assert table.columns[:8] == axes
        rows = table.filter(pl.col("origin_town").is_not_null() & (pl.col("origin_town") != ""))
        assert rows.height
        assert rows["origin_town_name"].to_list() == [calls[code] for code in rows["origin_town"]]
        assert set(rows["origin_county_name"]) == {"Ashford", "Bel mont"}
    assert "origin_county_name" not in pl.read_parquet(folder / "counts/level_4.parquet").columns


def test_every_page_says_what_is_counted_and_by_whom(folder: Path) -> None:
    """Title, description and source stand in README, report, explorer and metadata, where levels have the words of the spec."""
    readme, report = (folder / "README.md").read_text(), (folder / "report.html").read_text()
    assert readme.startswith("# Made-up trips\n")
    said = "Only of people who are <made up>. Source: Nobody's survey."
    assert said in readme
    assert f'<p class="about">{escape(said)}</p>' in report
    assert "origin shire, destination shire" in report
    shown = payload(open_folder(folder))
    assert {key: shown["release"][key] for key in WORDS} == WORDS
    assert [level["called"] for level in shown["axes"][0]["levels"]] == ["shire", "town"]
    metadata = json.loads((folder / "metadata.json").read_text())
    assert (metadata["dc:title"], metadata["dc:source"]) == (WORDS["title"], WORDS["source"])
    assert metadata["dc:description"].startswith(WORDS["description"])
    assert metadata["tables"][2]["dc:title"] == "Level 2: origin shire, destination shire"
    for page in (readme, report):  # since the CSV files have them as the codebook does
        assert "takes codes and names that begin with" in page
        assert re.search("compute[^.]*=Mill", page)


def test_tables_of_names_join_by_their_codes(folder: Path) -> None:
    """The tables of names have the columns of codes of the counts, so that a natural join adds the names."""
    names = pl.read_parquet(folder / "names/origin_town.parquet")
    assert names.rows() == [("01", "0101", "Ashford"), ("01", "0102", "Mill, Old"), ("02", "0201", "=Mill")]
    with duckdb.connect() as con:
        joined = con.sql(
            f"SELECT origin_town_name FROM '{folder}/counts/level_4.parquet' NATURAL LEFT JOIN '{folder}/names/origin_town.parquet'"
        ).fetchall()
    assert {name for (name,) in joined} == {"Ashford", "Mill, Old", "=Mill", None}


def test_the_metadata_describes_names(folder: Path) -> None:
    """The validator of CSVW accepts the metadata; names are no part of the key, and may be missing."""
    described = CSVW(str(folder / "metadata.json"), validate=True, strict=True)
    assert described.is_valid
    tables = {
        table["url"]: table["tableSchema"] for table in json.loads((folder / "metadata.json").read_text())["tables"]
    }
    schema = tables["counts/level_4.csv"]
    assert schema["primaryKey"] == ["origin_county", "origin_town", "destination_county", "destination_town"]
    columns = {column["name"]: column for column in schema["columns"]}
    assert columns["origin_town_name"]["required"] is False
    assert "origin_town" in columns["origin_town_name"]["dc:description"]


def test_the_manifest_publishes_no_path_of_names(folder: Path, noisy: Path) -> None:
    """The manifest lists the levels that have names, and the spec in it has columns, or the name of a file without its folder."""
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["names"] == {"origin": ["county", "town"], "destination": ["county", "town"]}
    assert manifest["spec"]["hierarchy"]["labels"] == SPEC["hierarchy"]["labels"]
    manifest = json.loads((noisy / "manifest.json").read_text())
    assert manifest["names"] == {"origin": ["town"], "destination": ["town"]}
    assert manifest["spec"]["hierarchy"]["labels"] == "names.csv"
    assert verify(folder) == verify(noisy) == []


@pytest.mark.parametrize(
    ("asked", "path", "name"),
    [
        ("bel mont", ["02"], "Bel mont"),
        ("Mill,  OLD", ["01", "0102"], "Mill, Old"),
        ("town=ashford", ["01", "0101"], "Ashford"),
        ("county=Ashford", ["01"], "Ashford"),
        ("county=Bel mont,town==Mill", ["02", "0201"], "=Mill"),
        ("0202", ["02", "0202"], None),
    ],
)
def test_areas_are_found_by_their_names(folder: Path, asked: str, path: list[str], name: str | None) -> None:
    """A name stands for a code, whatever its case and blanks; the answer has code and name, and is that of the code."""
    told = query_answer(folder, asked, None, [], simultaneous=False)
    assert told.where["origin"] is not None
    assert (told.where["origin"].path, told.where["origin"].name) == (path, name)
    assert told.count == query_answer(folder, path[-1], None, [], simultaneous=False).count


@pytest.mark.parametrize(
    ("asked", "told", "hint"),
    [
        ("Ashford", "origin: 2 areas are called Ashford.", "Write county=01 or county=01,town=0101."),
        ("mill", "origin: no level has an area mill.", "Did you mean =Mill (town=0201) or Mill, Old (town=0102)?"),
        ("Ashfrod", "origin: no level has an area Ashfrod.", "Did you mean Ashford (county=01)"),
        ("county=Mill, Old", "origin: there is no area county=Mill, Old.", "Did you mean Mill, Old"),
    ],
)
def test_a_name_that_is_not_one_areas_is_refused(folder: Path, asked: str, told: str, hint: str) -> None:
    """Several areas of one name, a part of a name and a misspelt name are refused with the areas that may be meant."""
    with pytest.raises(UsageError) as refusal:
        query_answer(folder, asked, None, [], simultaneous=False)
    assert str(refusal.value) == told
    assert refusal.value.hint.startswith(hint)


def test_several_areas_of_a_level_and_a_name_are_told_apart(noisy: Path) -> None:
    """A name that two areas of the level have is refused as a name, with what to write in its place; codes settle it."""
    with pytest.raises(UsageError, match=r"^origin: 2 areas are called Springfield\.(\n|$)") as refusal:
        query_answer(noisy, "town=Springfield", None, [], simultaneous=False)
    assert refusal.value.hint == "Write county=01,town=0101 or county=02,town=0201."
    told = query_answer(noisy, "county=02,town=Springfield", None, [], simultaneous=False)
    assert told.where["origin"] is not None
    assert told.where["origin"].path == ["02", "0201"]


def test_the_largest_counts_are_called_by_their_names(folder: Path) -> None:
    """The largest counts are of the finest level that refines both ends alike, without trips that stay within one area."""
    found = largest_counts(open_folder(folder), 5)
    assert found is not None
    assert (found.level, found.axes, found.without_within) == (4, ("origin", "destination"), True)
    table = pl.read_parquet(folder / "counts/level_4.parquet").filter(
        (pl.col("origin_county") != pl.col("destination_county"))
        | (pl.col("origin_town") != pl.col("destination_town"))
    )
    assert [count for _, count in found.rows] == table["count"].sort(descending=True).head(5).to_list()
    calls = {"Ashford (0101)", "Mill, Old (0102)", "=Mill (0201)", "0202"}
    assert {name for names, _ in found.rows for name in names} <= calls


def test_report_explorer_and_prefect_begin_with_one_level(folder: Path, noisy: Path) -> None:
    """The largest flows are everywhere those of the finest level down to which most rows stand above the noise."""
    for place, level in ((folder, 4), (noisy, 2)):
        found = largest_counts(open_folder(place), 5)
        assert found is not None
        titled = re.search(r"<h3>The largest flows \(level (\d+):", (place / "report.html").read_text())
        assert titled is not None
        assert (found.level, payload(open_folder(place))["first"], int(titled[1])) == (level, level, level)


def _rename(folder: Path) -> None:
    path = folder / "names/origin_town.parquet"
    pl.read_parquet(path).with_columns(pl.lit("Elsewhere").alias("origin_town_name")).write_parquet(path)


def _twice(folder: Path) -> None:
    path = folder / "names/origin_county.parquet"
    areas = pl.read_parquet(path)
    pl.concat([areas, areas[:1]]).sort("origin_county").write_parquet(path)


SPOILT = {
    "other names than in the CSV": (_rename, "level_4.csv differs from the table of level 4."),
    "an area with two rows": (
        _twice,
        "names/origin_county.parquet does not name each area once, in the order of codes.",
    ),
    "a table less": (
        lambda folder: (folder / "names/origin_town.parquet").unlink(),
        "names/ does not hold the tables that manifest.json lists.",
    ),
    "no table": (
        lambda folder: (folder / "names/origin_town.parquet").write_text("none"),
        "A table of names/ is not a Parquet file.",
    ),
}


@pytest.mark.parametrize("spoil", SPOILT)
def test_verify_reads_names(copy: Path, spoil: str) -> None:
    """Names that differ from the CSV, or are not as the manifest says, are found though all checksums fit."""
    change, failure = SPOILT[spoil]
    change(copy)
    with_sums(copy)
    assert failure in verify(copy)


def test_names_come_from_a_table_of_their_own(tmp_path: Path) -> None:
    """A table of codes and names names the areas of each level that it has; other codes in it do not matter."""
    labels = pl.DataFrame(
        {"level": ["town", "county", "town", "block"], "code": ["0201", "01", "9", "01"], "name": ["A", "B", "C", "D"]}
    )
    (tmp_path / "names").mkdir()
    labels.write_csv(tmp_path / "names/names.csv")
    found = named(with_labels("names/names.csv"), tmp_path)
    assert found["origin", 1] == found["destination", 1] == [("01", "B")]
    assert found["origin", 2] == [("02", "0201", "A")]


def test_a_feature_takes_a_table_of_codes_and_names(tmp_path: Path) -> None:
    """Values that the spec lists have one level, which the table need not name."""
    pl.DataFrame({"code": ["f", "m"], "name": ["women", "men"]}).write_csv(tmp_path / "sexes.csv")
    pl.DataFrame({"sex": ["f", "m"]}).write_csv(tmp_path / "people.csv")
    spec = SPEC | {
        "input": {"table": "people.csv", "features": ["sex"]},
        "hierarchy": {"sex": {"values": ["m", "f"], "labels": "sexes.csv"}},
        "release": {"order": ["sex"]},
    }
    assert named(spec, tmp_path) == {("sex", 1): [("f", "women"), ("m", "men")]}


def of_ages(folder: Path, labels: dict[str, list[str]], **release: Any) -> dict[tuple[str, int], list[Any]]:
    """Return the names that ingest would keep of an ordered feature, given the table of its names."""
    pl.DataFrame(labels).write_csv(folder / "called.csv")
    pl.DataFrame({"age": ["0", "5"]}).write_csv(folder / "people.csv")
    spec = SPEC | {
        "input": {"table": "people.csv", "features": ["age"]},
        "hierarchy": {"age": {"ordered": 8, "labels": "called.csv"}},
        "release": {"order": ["age"]} | release,
    }
    return named(spec, folder)


def test_single_codes_of_an_ordered_feature_take_a_table_of_codes_and_names(tmp_path: Path) -> None:
    """Without a column of levels a table names single codes, which are the finest level; with one, areas of any level."""
    assert of_ages(tmp_path, {"code": ["0", "7"], "name": ["Newborn", "Seven"]}) == {
        ("age", 3): [("0..3", "0..1", "0", "Newborn"), ("4..7", "6..7", "7", "Seven")]
    }
    every = {"level": ["age", "age_1"], "code": ["7", "0..3"], "name": ["Seven", "Small"]}
    assert of_ages(tmp_path, every) == {("age", 1): [("0..3", "Small")], ("age", 3): [("4..7", "6..7", "7", "Seven")]}


@pytest.mark.parametrize(
    ("labels", "release", "told"),
    [
        (
            {"code": ["7"], "name": ["Seven"]},
            {"finest": {"age": "age_2"}},
            "hierarchy.age.labels: called.csv names areas of level age, and so names none of the released levels.",
        ),
        (
            {"level": ["aeg"], "code": ["7"], "name": ["Seven"]},
            {},
            "hierarchy.age.labels: column level of called.csv names none of the released levels.",
        ),
    ],
)
def test_names_of_other_levels_are_refused(
    tmp_path: Path, labels: dict[str, list[str]], release: dict[str, Any], told: str
) -> None:
    """A table that names areas of no released level is refused by its levels, which the hint lists, and not by its codes."""
    with pytest.raises(InputError) as refusal:
        of_ages(tmp_path, labels, **release)
    assert str(refusal.value) == told
    assert refusal.value.field == "hierarchy.age.labels"
    assert refusal.value.hint.startswith("These are age_1, age_2")
    assert "zeros" not in refusal.value.hint


def test_an_area_that_stands_alone_keeps_its_name_at_the_level_above(tmp_path: Path) -> None:
    """With blank: own_area, an area without a county is its own county, and is called there as it is at its own level."""
    areas = AREAS.with_columns(
        pl.Series("county", ["01", "01", "02", None]), pl.Series("town called", ["Ashford", "Old", "Mill", "Free"])
    )
    found = named(with_labels(SPEC["hierarchy"]["labels"], blank="own_area"), tmp_path, areas)
    assert ("0202", "Free") in found["origin", 1]
    assert ("0202", "0202", "Free") in found["origin", 2]


@pytest.mark.parametrize(
    ("labels", "areas", "told"),
    [
        ({"county": "called"}, AREAS, ": areas.csv has no column called."),
        ({"county": "town called"}, AREAS, ": the area county=01 has two names."),
        (
            {"town": "town called"},
            AREAS.with_columns(pl.lit(" ").alias("town called")),
            ": no code of the codebook that has a name is a code of the axis.",
        ),
        (
            "trips.csv",
            AREAS,
            " must not be the confidential table or a view of it, nor in a file with it: its areas would reveal who is in it.",
        ),
    ],
)
def test_names_that_break_a_rule_are_refused(tmp_path: Path, labels: object, areas: pl.DataFrame, told: str) -> None:
    """A missing column, two names of one area, no name at all, and the confidential table are refused with the key."""
    with pytest.raises(InputError) as refusal:
        named(with_labels(labels), tmp_path, areas)
    assert str(refusal.value) == f"hierarchy.labels{told}"
    assert refusal.value.field == "hierarchy.labels"


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"labels": {"block": "x"}}, "hierarchy.labels must name levels (county, town), got block."),
        ({"called": {"block": "block"}}, "hierarchy.called must name levels (county, town), got block."),
        ({"code": "GEOID"}, "hierarchy.code must be left out without boundaries, whose property it names."),
        ({"boundaries": {"block": "x.geojson"}}, "hierarchy.boundaries must name levels (county, town), got block."),
    ],
)
def test_keys_that_name_no_level_are_refused(tmp_path: Path, keys: dict[str, Any], told: str) -> None:
    """Names and boundaries are of levels that the hierarchy has."""
    with pytest.raises(SpecError) as refusal:
        load_spec(write(tmp_path, SPEC | {"hierarchy": {"table": "areas.csv", "levels": ["county", "town"]} | keys}))
    assert str(refusal.value) == told
