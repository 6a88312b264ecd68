"""CSV of every level, and the metadata about it, held to a validator of the vocabulary (CSVW)."""

import csv
import json
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from csvw import CSVW
from polars.testing import assert_frame_equal

from storage.database.connections import store
from tasks.format.metadata import metadata_failures
from tasks.validate.size import disk_size
from tasks.verify.folder import verify
from tests.support.folders import published, with_sums

# codes that CSV must quote, or readers would spoil
ODD = ["007", "a,b", 'q"q', "n\nl", "c\rr", "é", " s ", "#1", "null", "-"]
REGIONS = ["01", "#2"]
PRIVACY = {
    "unit": "one made-up person",
    "neighbours": "substitution",
    "max_records_per_unit": 1,
    "epsilon": 50.0,
    "delta": 1.0e-8,
    "accountant": "zcdp",
}
BUDGET = {"epsilon": 100.0, "delta": 1.0e-7}
TRIPS: dict[str, Any] = {
    "name": "trips",
    "dataset": "trips",
    "input": {"table": "trips.parquet", "origin": "home", "destination": "work"},
    "hierarchy": {"table": "areas.parquet", "levels": ["the region", "place-of"]},
    "release": {"tree": "destination", "finest": "place-of", "csv": "every_level", "records": True},
    "privacy": PRIVACY,
    "budget": BUDGET,
}
FEATURES: dict[str, Any] = {
    "name": "people",
    "dataset": "people",
    "input": {"table": "people.parquet", "features": ["_sex", "native country", "odd.one"]},
    "hierarchy": {"_sex": {"values": 2}, "native country": ODD, "odd.one": ["x", "y"]},
    "release": {"order": ["native country", "_sex", "odd.one"], "csv": True},
    "privacy": PRIVACY,
    "budget": BUDGET,
}


def write_tables(folder: Path) -> None:
    """Write tables with odd codes."""
    regions = [REGIONS[number % 2] for number in range(len(ODD))]
    pl.DataFrame({"the region": regions, "place-of": ODD}).write_parquet(folder / "areas.parquet")
    pairs = [(home, work) for home in ODD for work in ODD[:5]]
    pl.DataFrame(pairs * 2, ["home", "work"], orient="row").write_parquet(folder / "trips.parquet")
    people = [(str(sex), country, "x") for sex in (0, 1) for country in ODD]
    pl.DataFrame(people, ["_sex", "native country", "odd.one"], orient="row").write_parquet(folder / "people.parquet")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Release trips with CSV of every level and synthetic records, and features with the finest level as CSV."""
    place = tmp_path_factory.mktemp("csvw")
    write_tables(place)
    folders = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        for spec in (TRIPS, FEATURES):
            (place / "spec.yaml").write_text(yaml.safe_dump(spec))
            folders[spec["name"]] = published(place / "spec.yaml")
        yield folders


@pytest.fixture
def copy(made: dict[str, Path], tmp_path: Path) -> Path:
    """Return a copy of the trips, to spoil."""
    return Path(shutil.copytree(made["trips"], tmp_path / "copy"))


def warned(folder: Path) -> list[str]:
    """Return what the validator, strictly, has against the metadata of a folder and the CSV that it describes."""
    with warnings.catch_warnings(record=True) as odd:
        warnings.simplefilter("always")
        described = CSVW(str(folder / "metadata.json"), validate=True, strict=True)
        is_valid = described.is_valid
    assert is_valid == (not described.warnings)
    return [str(warning.message) for warning in [*described.warnings, *odd]]


def is_accepted(folder: Path) -> bool:
    """Return whether the validator has nothing against a folder; of the worst it makes an error."""
    try:
        return not warned(folder)
    except ValueError:
        return False


@pytest.mark.parametrize("name", ["trips", "people"])
def test_a_validator_accepts_the_metadata(made: dict[str, Path], name: str) -> None:
    """The validator reads every CSV by its metadata, strictly, and has nothing against it."""
    assert warned(made[name]) == []
    assert verify(made[name]) == []


SPOIL: dict[str, Callable[[dict[str, Any]], object]] = {
    "a column called otherwise": lambda table: table["tableSchema"]["columns"][0].update(titles="other"),
    "a number that is none": lambda table: table["tableSchema"]["columns"][1].update(datatype="integer"),
    "a key that is none": lambda table: table["tableSchema"].update(primaryKey=table["tableSchema"]["primaryKey"][:1]),
}


@pytest.mark.parametrize("spoil", SPOIL)
def test_the_validator_finds_what_is_wrong(copy: Path, spoil: str) -> None:
    """Metadata that does not fit the CSV is refused by the same validator, which therefore looks."""
    content = json.loads((copy / "metadata.json").read_text())
    finest = [table for table in content["tables"] if "primaryKey" in table["tableSchema"]][-1]
    SPOIL[spoil](finest)
    (copy / "metadata.json").write_text(json.dumps(content))
    assert not is_accepted(copy)


def test_readers_of_the_metadata_get_the_codes_as_they_are(made: dict[str, Path]) -> None:
    """By the metadata alone a reader gets every code to the letter, and counts as numbers, level by level."""
    folder = made["trips"]
    tables = {str(table.url): table for table in CSVW(str(folder / "metadata.json")).tables}
    for level in range(5):
        parquet = pl.read_parquet(folder / "counts" / f"level_{level}.parquet")
        rows = list(tables[f"counts/level_{level}.csv"].iterdicts())
        assert [list(row.values()) for row in rows] == [list(row) for row in parquet.rows()]
    codes = {row[-1] for row in csv.reader((folder / "records.csv").open(newline=""))} - {"destination_place-of"}
    assert set(ODD[:5]) <= codes <= set(ODD)  # noise may have brought in others
    assert len(list(tables["records.csv"].iterdicts())) == 100


def test_the_metadata_says_what_was_published(made: dict[str, Path]) -> None:
    """Title, statement, privacy numbers and a description per column are there; a license is left to the publisher."""
    for folder in made.values():
        content, manifest = (json.loads((folder / name).read_text()) for name in ("metadata.json", "manifest.json"))
        assert content["@context"] == ["http://www.w3.org/ns/csvw", {"@language": "en"}]
        assert content["dc:identifier"] == manifest["id"]
        assert content["dc:title"] == manifest["spec"]["dataset"]
        assert content["dc:description"] == manifest["privacy"]["statement"]
        assert content["notes"][0]["epsilon"] == manifest["privacy"]["epsilon"]
        assert "dc:license" not in content
        for table in content["tables"]:
            assert table["notes"][0]["sigma"] == manifest["levels"][table["notes"][0]["level"]]["sigma"]
            columns = table["tableSchema"]["columns"]
            assert all(column["dc:description"] for column in columns)
            texts = [column["name"] for column in columns if column["datatype"] == "string"]
            assert table["tableSchema"].get("primaryKey", []) == (texts if table["url"] != "records.csv" else [])
    names = [column["name"] for column in content["tables"][0]["tableSchema"]["columns"]]
    assert names[:3] == ["%5Fsex", "native%20country", "odd%2Eone"]


def test_every_level_is_csv_where_it_is_asked_for(made: dict[str, Path]) -> None:
    """Beside each Parquet lies the same table as CSV and none of the finest level elsewhere; README and manifest say so."""
    folder = made["trips"]
    assert sorted(path.name for path in folder.rglob("*.csv")) == [*(f"level_{k}.csv" for k in range(5)), "records.csv"]
    for path in sorted((folder / "counts").glob("*.parquet")):
        table = pl.read_parquet(path)
        schema = {name: kind for name, kind in table.schema.items() if kind == pl.String}
        assert_frame_equal(pl.read_csv(path.with_suffix(".csv"), schema_overrides=schema), table, check_dtypes=True)
    assert json.loads((folder / "manifest.json").read_text())["csv"] == "every_level"
    said = (folder / "README.md").read_text()
    assert "`counts/level_<k>.csv`" in said
    assert "counts.csv" not in said
    assert "`metadata.json`" in said


@pytest.mark.parametrize("level", [0, 4])
def test_another_csv_of_a_level_is_found(copy: Path, level: int) -> None:
    """`verify` compares every CSV with its table, whatever the checksums say, and misses one that is gone."""
    path = copy / "counts" / f"level_{level}.csv"
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rindex(b",") + 1] + (b"false\n" if whole.endswith(b"true\n") else b"true\n"))
    with_sums(copy)
    assert verify(copy) == [f"level_{level}.csv differs from the table of level {level}."]
    path.unlink()
    with_sums(copy)
    assert verify(copy) == [f"level_{level}.csv is missing or is not a CSV file of level {level}."]


METADATA: dict[str, Callable[[dict[str, Any]], object]] = {
    "no tables": lambda content: content.pop("tables"),
    "a table less": lambda content: content["tables"].pop(),
    "another file": lambda content: content["tables"][0].update(url="other.csv"),
    "another column": lambda content: content["tables"][0]["tableSchema"]["columns"].pop(),
}


def test_metadata_of_other_files_is_found(made: dict[str, Path], tmp_path: Path) -> None:
    """`verify` finds metadata that lists other CSV files or columns than the folder has."""
    copy = Path(shutil.copytree(made["people"], tmp_path / "copy"))
    path = copy / "metadata.json"
    whole = path.read_text()
    for what, spoil in METADATA.items():
        content = json.loads(whole)
        spoil(content)
        path.write_text(json.dumps(content))
        assert len(metadata_failures(copy)) == 1, what
    with_sums(copy)
    assert verify(copy) == metadata_failures(copy)
    assert "metadata.json" in verify(copy)[0]


def test_levels_have_readable_views_in_the_store(made: dict[str, Path]) -> None:
    """Every level is read by its name as by its number, whatever signs are in it, and `published` lists them all."""
    wanted = {
        "trips": [
            *("total", "all_to_the region", "the region_to_the region", "the region_to_place-of"),
            "place-of_to_place-of",
        ],
        "people": ["total", "by_native country", "by__sex_native country", "by__sex_native country_odd.one"],
    }
    with store() as con:
        for name, folder in made.items():
            rows = con.execute(
                'SELECT level, "view", "rows", sigma, supersedes FROM published WHERE release = ? ORDER BY level',
                [folder.name],
            ).fetchall()
            assert [row[1] for row in rows] == wanted[name]
            for level, view, height, sigma, supersedes in rows:
                table = pl.read_parquet(folder / "counts" / f"level_{level}.parquet")
                assert_frame_equal(con.sql(f'FROM "{folder.name}"."{view}"').pl(), table)
                assert (table.height, sigma > 0, supersedes) == (height, level > 0, None)


def test_the_plan_counts_the_csv_of_every_level() -> None:
    """CSV of every level takes more disk than that of the finest, by what the others hold."""

    def published(csv: Any) -> int:
        levels, sigmas = [1, 10**5, 10**6], [0.0, 1.0, 1.0]
        return disk_size(levels, sigmas, 10**8, finest_areas=[1000, 1000], code_bytes=20.0, csv=csv).published

    without, finest, every = published(False), published(True), published("every_level")
    assert finest - without > 20 * 10**5
    assert 1.05 * (finest - without) < every - without < 1.1 * (finest - without)
