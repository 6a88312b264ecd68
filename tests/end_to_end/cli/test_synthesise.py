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
    names = {path.name for path in (newcomer.folder / "city").iterdir()}
    public = {"stops.csv", "modes.csv", "minutes.csv", "README.md"}
    assert names == public | {"trips.parquet", "o3.yaml", "o4.yaml", "o5.yaml"}


def test_people_read_what_the_city_holds(newcomer: "User"):
    """Without --json, the command tells the trips of the chosen day, their types, and where the specs are."""
    said = newcomer.run("synthesise", "shuttle", "--day", "weekend", "--out", "city")
    assert said.code == 0, said.stderr
    assert "SYNTHETIC: the set shuttle (weekend) with seed 2025: 18,000 trips of" in said.stdout
    assert "of 811,200 possible ones, between 130 stops in 4 zones" in said.stdout
    assert "specs: city/o3.yaml, city/o4.yaml, city/o5.yaml" in said.stdout


def test_a_day_is_for_the_city_alone(newcomer: "User"):
    """A day is refused for a set that has none, and nothing is written."""
    said = newcomer.run("synthesise", "country", "--day", "weekday", "--out", "set")
    assert said.code == 2
    assert "--day is for the set shuttle; the set country has none, got weekday." in said.stderr
    assert not (newcomer.folder / "set").exists()


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


def test_sizes_are_for_groups_alone(newcomer: "User"):
    """A number of groups is refused for a set that has none, and so is a number below 1."""
    said = newcomer.run("synthesise", "country", "--groups", "5", "--out", "set")
    assert said.code == 2
    assert "--groups is for the sets households and taxis; the set country has none, got 5." in said.stderr
    said = newcomer.run("synthesise", "taxis", "--regions", "0", "--out", "set")
    assert said.code == 2
    assert "--regions must be >= 1, got 0." in said.stderr


def test_a_folder_with_something_in_it_is_left_alone(newcomer: "User"):
    """A set is never drawn over what is there already."""
    before = sorted(newcomer.folder.rglob("*"))
    said = newcomer.run("synthesise", "binary", "--out", "data")
    assert said.code == 2
    assert "--out must be a new or empty folder, got data." in said.stderr
    assert sorted(newcomer.folder.rglob("*")) == before


def test_an_unknown_density_is_refused(newcomer: "User"):
    """Only the paper's three densities are drawn."""
    said = newcomer.run("synthesise", "binary", "--density", "thick", "--out", "set")
    assert said.code == 2
    assert "thick" in said.stderr
    assert not (newcomer.folder / "set").exists()
