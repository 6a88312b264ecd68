"""Synthetic sets as a user makes them: drawn, and ready to release."""

from typing import TYPE_CHECKING

import polars as pl
import pytest

if TYPE_CHECKING:
    from tests.support.user import User


def test_a_drawn_set_is_ready_to_release(newcomer: "User"):
    """The command writes tables, a README and a spec, and a rehearsal of the spec's release finds nothing wrong."""
    said = newcomer.run("synthesise", "random", "--density", "sparse", "--out", "set", "--seed", "7", "--json")
    assert said.code == 0, said.stderr
    answer = said.json()
    trips = pl.read_csv(newcomer.folder / "set" / "data" / "trips.csv")
    assert answer == {
        "set": "random sparse",
        "seed": 7,
        "spec": "set/spec.yaml",
        "areas": 435,
        "pairs": 1892,
        "people": trips["people"].sum(),
    }
    assert trips.height == 1892
    assert "Synthetic" in (newcomer.folder / "set" / "data" / "README.md").read_text()
    rehearsed = newcomer.run("release", answer["spec"], "--dry-run", "--json")
    assert rehearsed.code == 0, rehearsed.stderr
    assert rehearsed.json()["name"] == "random-sparse"
    assert len(rehearsed.json()["levels"]) == 9


def test_a_drawn_country_has_names_and_shapes(newcomer: "User"):
    """Each area has a name and a shape, the spec takes them, and the README says that they are made up too."""
    said = newcomer.run("synthesise", "country", "--out", "set")
    assert said.code == 0, said.stderr
    data = newcomer.folder / "set" / "data"
    assert {path.name for path in data.iterdir()} == {
        "trips.csv",
        "codebook.csv",
        "README.md",
        "names.csv",
        "areas.geojson",
    }
    assert "`names.csv` and `areas.geojson`" in (data / "README.md").read_text()
    checked = newcomer.run("check", "set/spec.yaml")
    assert checked.code == 0, checked.stderr
    assert "origin municipality 200 of 200" in checked.stdout


def test_a_made_up_city_comes_with_three_specs(newcomer: "User"):
    """The command writes trips, public tables and the specs of O3, O4 and O5, and says how many trips of how many types."""
    said = newcomer.run("synthesise", "shuttle", "--out", "city", "--seed", "1", "--json")
    assert said.code == 0, said.stderr
    trips = pl.read_parquet(newcomer.folder / "city" / "trips.parquet")
    assert trips.columns == ["period", "origin", "destination", "trips"]
    assert said.json() == {
        "set": "shuttle",
        "day": "morning",
        "seed": 1,
        "specs": ["city/o3.yaml", "city/o4.yaml", "city/o5.yaml"],
        "stops": 130,
        "zones": 4,
        "trip_types": 67_600,
        "travelled": trips.height,
        "trips": 4_878,
    }
    told = newcomer.run("synthesise", "shuttle", "--day", "weekend", "--out", "weekend").stdout
    assert "SYNTHETIC: the set shuttle (weekend) with seed 2025: 18,000 trips of" in told
    assert "of 811,200 possible ones, between 130 stops in 4 zones" in told
    assert "specs: weekend/o3.yaml, weekend/o4.yaml, weekend/o5.yaml" in told
    names = {path.name for path in (newcomer.folder / "city").iterdir()}
    public = {"stops.csv", "modes.csv", "minutes.csv", "README.md"}
    assert names == public | {"trips.parquet", "o3.yaml", "o4.yaml", "o5.yaml"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "size", "specs"),
    [("households", "300", ["people", "homes", "addresses"]), ("taxis", "20", ["taxis"])],
)
def test_groups_come_with_specs_that_release_them(newcomer: "User", kind: str, size: str, specs: list[str]):
    """The command writes groups of the wanted number and their specs; a rehearsal of each finds nothing wrong."""
    said = newcomer.run("synthesise", kind, "--groups", size, "--regions", "7", "--out", "set", "--json")
    assert said.code == 0, said.stderr
    answer = said.json()
    assert answer["specs"] == [f"set/{name}.yaml" for name in specs]
    assert (answer["set"], answer["regions"]) == (kind, 7)
    assert answer["groups"] >= int(size)
    assert answer["records"] >= answer["groups"]
    for spec in answer["specs"]:
        rehearsed = newcomer.run("release", spec, "--dry-run", "--json")
        assert rehearsed.code == 0, rehearsed.stderr
        assert len(rehearsed.json()["levels"]) == 4


def test_what_cannot_be_drawn_is_refused(newcomer: "User"):
    """A day or a size of a set that has none, a number below 1, a density that is none, a folder that is not empty: nothing is written."""
    before = sorted(newcomer.folder.rglob("*"))
    for options, told in (
        (["country", "--day", "weekday"], "--day is for the set shuttle; the set country has none, got weekday."),
        (
            ["country", "--groups", "5"],
            "--groups is for the sets households and taxis; the set country has none, got 5.",
        ),
        (["taxis", "--regions", "0"], "--regions must be >= 1, got 0."),
        (["binary", "--density", "thick"], "thick"),
        (["binary", "--out", "data"], "--out must be a new or empty folder, got data."),
    ):
        said = newcomer.run("synthesise", *(options if "--out" in options else [*options, "--out", "set"]))
        assert (said.code, told in said.stderr) == (2, True), options
    assert sorted(newcomer.folder.rglob("*")) == before
