"""Made-up households, taxis, trips of a survey, and the city: their tables fit together, and a seed draws them again."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from flows.specification.file import load_spec
from flows.synthetic import synthesise_answer
from storage.errors import UsageError
from tasks.synthesize.country import SURVEY_AREAS, SURVEY_TRIPS, draw_survey
from tasks.synthesize.households import draw_households, draw_taxis
from tasks.synthesize.shuttle import MODES, ON_FOOT, STOPS, ZONES, draw_city


def test_households_live_at_addresses_in_counties():
    """Each has one address of its own, in a county of the codebook; some addresses are empty; the most have two people."""
    many = {"states": 3, "counties": 7, "households": 3_000, "outliers": 4}
    drawn, again = (draw_households(**many, generator=np.random.default_rng(5)) for _ in range(2))
    assert drawn.homes.equals(again.homes)
    assert drawn.addresses.equals(again.addresses)
    assert (drawn.codebook.columns, drawn.codebook.height) == (["state", "county"], 7)
    assert drawn.codebook["state"].n_unique() == 3
    assert drawn.codebook["county"].is_unique().all()
    assert (drawn.homes.height, drawn.addresses.height) == (3_004, 3_304)
    assert drawn.addresses["address"].is_unique().all()
    assert drawn.homes.join(drawn.addresses, on=["address", "county"]).height == drawn.homes.height
    assert set(drawn.homes["county"]) <= set(drawn.codebook["county"])
    assert drawn.homes["people"].mode().to_list() == [2]
    assert drawn.homes["people"].max() >= 10
    people = drawn.people()
    assert people.height == drawn.homes["people"].sum()
    by_address = people.group_by("address", "county").len().sort("address")["len"]
    assert by_address.equals(drawn.homes["people"].cast(pl.get_index_type()))


@pytest.mark.parametrize("roaming", [0.0, 0.6])
def test_taxis_pick_up_in_zones(roaming):
    """All pickups are there; a taxi that does not roam has one zone."""
    many = {"boroughs": 2, "zones": 9, "taxis": 50, "pickups": 4_000, "roaming": roaming}
    drawn, again = (draw_taxis(**many, generator=np.random.default_rng(5)) for _ in range(2))
    assert drawn.pickups.equals(again.pickups)
    assert drawn.codebook.height == drawn.codebook["zone"].n_unique() == 9
    assert drawn.codebook["borough"].n_unique() == 2
    assert drawn.pickups["pickups"].sum() == drawn.trips().height == 4_000
    assert drawn.pickups["medallion"].n_unique() == 50
    assert drawn.pickups.select("medallion", "zone").is_unique().all()
    assert (drawn.pickups.height == 50) == (roaming == 0)


def test_a_survey_comes_with_a_spec(tmp_path):
    """150 zones in nested areas, 45,000 trips, fewer than half of the pairs; equal seeds draw equal surveys; the spec is ready."""
    drawn, again = (draw_survey(generator=np.random.default_rng(3)) for _ in range(2))
    assert [codes.n_unique() for codes in drawn.codebook] == list(SURVEY_AREAS.values())
    assert drawn.codebook.columns == list(SURVEY_AREAS)
    assert drawn.trips["people"].sum() == SURVEY_TRIPS
    assert 0.2 < drawn.trips.height / SURVEY_AREAS["zone"] ** 2 < 0.5
    assert again.trips.equals(drawn.trips)
    written = synthesise_answer("survey", tmp_path / "survey", 1)
    spec = load_spec(Path(written.spec)).spec
    assert (written.set, written.areas, written.people) == ("survey", 150, SURVEY_TRIPS)
    assert (spec.name, spec.privacy.unit, spec.public_data) == ("survey", "one respondent", True)
    with pytest.raises(UsageError, match="a survey has none, got dense"):
        synthesise_answer("survey", tmp_path / "other", 1, density="dense")


@pytest.mark.parametrize("seed", range(10))
def test_a_city_has_the_papers_numbers(seed):
    """There are 130 stops in four uneven zones and ten hubs, and each of the twelve modes serves some pair of stops."""
    # Each mode has a shuttle where a stop is far from its hub, and as many buses as the lines of the two hubs require. Minutes of a
    # shuttle grow with the distance.
    city = draw_city(generator=np.random.default_rng(seed))
    assert np.bincount(city.zone).tolist() == list(STOPS)
    assert len(city.zone) == 130
    assert len(ZONES) == 4
    assert len(set(city.hubs.tolist())) == len(city.hubs) == len(city.line) == 10
    minutes = city.minutes()
    assert (minutes == minutes.T).all()
    assert set(np.diag(minutes).tolist()) == {2}
    assert (np.diff(minutes.ravel()[np.argsort(city.kilometres().ravel())]) >= 0).all()
    modes = city.modes()
    assert np.unique(modes).tolist() == list(range(12))
    assert len(set(MODES)) == 12
    away = np.linalg.norm(city.place[:, None] - city.place[city.hubs], axis=2)
    hub, is_far = away.argmin(axis=1), away.min(axis=1) > ON_FOOT
    for origin, destination in np.random.default_rng(seed).integers(130, size=(100, 2)):
        one, other = hub[origin], hub[destination]
        lines = {int(city.line[one]), int(city.line[other])} - {-1}
        buses = 0 if one == other else max(len(lines), 1)
        ends = ["shuttle" if is_far[stop] else "walk" for stop in (origin, destination)]
        legs = [ends[0], *["bus"] * buses, ends[1]]
        if legs[0] == legs[1]:  # without a bus, and both ends alike: one leg
            legs = legs[:1]
        assert MODES[modes[origin, destination]] == "-".join(legs)
