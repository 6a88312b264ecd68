"""Made-up households, taxis, a survey, and the city with its shuttle and its days: their numbers, tables and specs, which a seed draws again."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml
from polars.testing import assert_frame_equal

from flows.planning.plan import make_plan
from flows.specification.file import load_spec
from flows.synthetic import synthesise_answer
from storage.errors import UsageError
from tasks.ingest.codebook import read_codebook
from tasks.ingest.sources.files import FileTable
from tasks.synthesize.city import PEAKS, draw_day
from tasks.synthesize.country import SURVEY_AREAS, SURVEY_TRIPS, draw_survey
from tasks.synthesize.households import draw_households, draw_taxis
from tasks.synthesize.shuttle import MODES, ON_FOOT, STOPS, ZONES, draw_city, draw_trips
from tests.support.spec import spec_in


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


VIEWS = {
    "total": {},
    "by_period": {"period": "period"},
    "by_zones": {"period": "period", "origin": "zone", "destination": "zone"},
    "by_mode": {"period": "period", "mode": "mode"},
}
MOST_VIEWS = {"o3": 2, "o4": 3, "o5": 4}
MORNING = ["08:00", "08:30", "09:00", "09:30"]


def drawn(seed, day):
    """Return the city and the trips that a seed draws."""
    generator = np.random.default_rng(seed)
    city = draw_city(generator=generator)
    return city, draw_trips(city, day, generator=generator)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return the folder of a morning with seed 1, and its description."""
    folder = tmp_path_factory.mktemp("shuttle") / "set"
    return folder, synthesise_answer("shuttle", folder, 1)


@pytest.mark.parametrize("seed", [1, 4])
def test_a_morning_is_the_morning_of_its_weekday(seed):
    """Equal seeds draw equal trips, sorted, without repeated types; a weekday has 37,714, a weekend day 18,000."""
    # The 4,878 from 08:00 to 10:00 are those of the weekday: of one type in a hundred, a few of which have many, and most to the centre.
    (city, weekday), (of_morning, morning) = drawn(seed, "weekday"), drawn(seed, "morning")
    assert [weekday["trips"].sum(), drawn(seed, "weekend")[1]["trips"].sum()] == [37_714, 18_000]
    assert_frame_equal(weekday.filter(pl.col("period").is_in(MORNING)), morning)
    assert (city.modes() == of_morning.modes()).all()
    assert (city.place == of_morning.place).all()
    assert not weekday.equals(drawn(seed + 1, "weekday")[1])
    types = ["period", "origin", "destination"]
    assert_frame_equal(weekday, weekday.sort(types))
    assert not weekday.select(types).is_duplicated().any()
    assert weekday.schema == {**dict.fromkeys(types, pl.String), "trips": pl.Int64}
    assert morning["trips"].sum() == 4_878
    assert (morning["trips"] >= 1).all()
    assert (morning["origin"] != morning["destination"]).all()
    assert 500 < morning.height < 680
    assert 40 < morning["trips"].max() < 300
    assert morning.filter(pl.col("destination").str.starts_with("centre"))["trips"].sum() > 4_878 / 2
    if seed == 1:  # what the documentation states
        assert (morning.height, morning["trips"].max()) == (588, 84)


def test_tables_fit_together(written):
    """The public tables list every ordered pair of stops once, with its mode and minutes; Trellis reads the stops as a codebook."""
    # The README says that nobody made these trips, and that the groupings do not depend on them.
    folder, _ = written
    ends = frozenset({"period", "origin", "destination"})
    source = FileTable("hierarchy.origin.table", folder / "stops.csv")
    codebook = read_codebook(source, ["zone", "stop"], by_path=False, not_all_of=ends)
    assert (codebook.height, codebook["zone"].n_unique()) == (130, 4)
    stops, (city, _) = pl.read_csv(folder / "stops.csv"), drawn(1, "morning")
    every = stops.select(origin="stop").join(stops.select(destination="stop"), how="cross")
    modes, minutes = (pl.read_csv(folder / f"{name}.csv") for name in ("modes", "minutes"))
    for table in (modes, minutes):
        assert_frame_equal(table.select("origin", "destination"), every, check_row_order=False)
    assert (minutes["minutes"].to_numpy() == city.minutes().ravel()).all()
    assert (modes["mode"].to_numpy() == np.array(MODES)[city.modes().ravel()]).all()
    trips = pl.read_parquet(folder / "trips.parquet")
    for end in ("origin", "destination"):
        assert trips[end].is_in(codebook["stop"].implode()).all()
    readme = " ".join((folder / "README.md").read_text(encoding="utf-8").split())
    for words in ("nobody made these trips", "4,878 trips of 588 types", "as confidential as the trips"):
        assert words in readme


@pytest.mark.parametrize("name", MOST_VIEWS)
def test_a_spec_has_the_papers_views(written, name, tmp_path):
    """O3 has the total and the periods, O4 the zones as well, O5 also the modes, which are a public function of the stops."""
    # Without views, utility and mechanism, Trellis reads the spec: half hours, stops, one trip, ε of 1 of a budget of 10.
    keys = yaml.safe_load((written[0] / f"{name}.yaml").read_text(encoding="utf-8"))
    assert (keys["name"], keys["dataset"]) == (f"shuttle-{name}", "synthetic-shuttle-morning-1")
    views = keys["release"].pop("views")
    assert list(views.items()) == list(VIEWS.items())[: MOST_VIEWS[name]]
    mode = {"table": "modes.csv", "of": ["origin.stop", "destination.stop"]}
    assert keys.pop("derived", None) == ({"mode": mode} if name == "o5" else None)
    assert keys.pop("mechanism") == "cbdp"
    fleet = {"period": "period", "minutes": 30, "capacity": 8, "durations": "minutes.csv"}
    assert keys.pop("utility") == {"fleet": fleet}
    spec = load_spec(spec_in(tmp_path, keys)).spec
    assert spec.public_data
    assert [spec.levels(axis) for axis in spec.axes] == [["period"], ["zone", "stop"], ["zone", "stop"]]
    assert keys["hierarchy"]["period"] == {"values": MORNING}
    of = spec.privacy
    assert (of.unit, of.neighbours, of.epsilon, spec.noise.law) == ("one trip", "add_remove", 1.0, "laplace")


def test_choices_of_other_sets_are_refused(tmp_path):
    """A density is for the paper's sets, a day is for the shuttle, and a folder with something in it is left alone."""
    with pytest.raises(UsageError, match="a shuttle has none, got dense"):
        synthesise_answer("shuttle", tmp_path, 1, density="dense")
    with pytest.raises(UsageError, match="the set country has none, got weekend"):
        synthesise_answer("country", tmp_path, 1, day="weekend")
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(UsageError, match="--out must be a new or empty folder"):
        synthesise_answer("shuttle", tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_day_has_six_peaks():
    """Of 200,000 trips between 48 zones in eight districts most are around the hours of the peaks, in three of them most by far."""
    city = draw_day(generator=np.random.default_rng(1))
    trips = city.trips
    assert trips["trips"].sum() == 200_000
    assert not trips.drop("trips").is_duplicated().any()
    assert (city.codebook["zone"].n_unique(), city.codebook["district"].n_unique()) == (48, 8)
    by_hour = np.bincount(trips["hour"].to_numpy(), trips["trips"].to_numpy(), 24)
    assert len(PEAKS) == 6
    for peak in PEAKS:
        lull = min(by_hour[(int(peak.hour) + way * hours) % 24] for way in (-1, 1) for hours in (1, 2, 3))
        assert by_hour[int(peak.hour)] > lull
    assert by_hour[[7, 8, 17]].sum() > 0.25 * by_hour.sum()
    assert by_hour.min() > 0


def test_its_trips_are_trips(tmp_path):
    """The spec has both ends and the attributes, and Trellis chooses the order; equal seeds write equal tables, with names and shapes."""
    found = [synthesise_answer("city", tmp_path / name, 3) for name in ("one", "two")]
    assert (found[0].areas, found[0].people) == (48, 200_000)
    assert (tmp_path / "one/data/trips.csv").read_bytes() == (tmp_path / "two/data/trips.csv").read_bytes()
    plan = make_plan(load_spec(Path(found[0].spec)))
    assert plan.tree.ends == (0, 1)
    assert plan.tree.possible_cells(plan.tree.depth) == 48 * 48 * 4 * 24
    assert " ".join(plan.chosen.order) == "destination.district origin.district destination.zone origin.zone mode hour"
    assert {"origin_zone", "origin_district_by_mode", "mode_by_hour"} <= {view.name for view in plan.named_views}
    assert plan.shaped["origin", 2] == 48
