"""The paper's sets as a user makes them: drawn, and ready to release."""

from typing import TYPE_CHECKING

import polars as pl

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
