"""The trips of the made-up city: their numbers, where they go, and the tables and specs that are written."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml
from polars.testing import assert_frame_equal

from flows.spec.file import load_spec
from flows.synthetic import SyntheticCity, check_choices, synthesise_city_answer
from storage.errors import UsageError
from tasks.ingest.codebook import read_codebook
from tasks.ingest.sources.files import FileTable
from tasks.synthesize.city import MODES, City, draw_city
from tasks.synthesize.shuttle import PERIODS, Day, draw_trips, periods_of, stop_codes

VIEWS = {
    "total": {},
    "by_period": {"period": "period"},
    "by_zones": {"period": "period", "origin": "zone", "destination": "zone"},
    "by_mode": {"period": "period", "mode": "mode"},
}
MOST_VIEWS = {"o3": 2, "o4": 3, "o5": 4}
MORNING = ["08:00", "08:30", "09:00", "09:30"]


def drawn(seed: int, day: Day) -> tuple[City, pl.DataFrame]:
    """Return the city and the trips that a seed draws."""
    generator = np.random.default_rng(seed)
    city = draw_city(generator=generator)
    return city, draw_trips(city, day, generator=generator)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SyntheticCity]:
    """Return the folder of a morning with seed 1, and its description."""
    folder = tmp_path_factory.mktemp("shuttle") / "set"
    return folder, synthesise_city_answer("morning", folder, 1)


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_morning_is_like_the_papers(seed: int) -> None:
    """4,878 trips, of one type in a hundred and a little less, most to the centre; a few types have many, none has most."""
    city, trips = drawn(seed, "morning")
    assert trips["trips"].sum() == 4_878
    assert 500 < trips.height < 680
    assert (trips["trips"] >= 1).all()
    largest = trips["trips"].sort(descending=True)
    assert 40 < largest[0] < 300
    assert largest.head(trips.height // 10).sum() > 4_878 / 3
    assert trips["period"].unique().sort().to_list() == MORNING
    assert trips.filter(pl.col("destination").str.starts_with("centre"))["trips"].sum() > 4_878 / 2
    assert (trips["origin"] != trips["destination"]).all()
    codes = stop_codes(city).to_list()
    ends = (trips[end].map_elements(codes.index, return_dtype=pl.Int64).to_numpy() for end in ("origin", "destination"))
    by_mode = np.bincount(city.modes()[tuple(ends)], trips["trips"].to_numpy(), minlength=len(MODES))
    assert by_mode.max() > 10 * max(by_mode.min(), 1)
    if seed == 1:  # what the documentation states
        assert (trips.height, trips["trips"].max()) == (588, 84)


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_morning_is_the_morning_of_its_weekday(seed: int) -> None:
    """A weekday has 37,714 trips with a rush in the evening, and its hours from 08:00 to 10:00 are those drawn alone."""
    (city, weekday), (of_morning, morning) = drawn(seed, "weekday"), drawn(seed, "morning")
    assert weekday["trips"].sum() == 37_714
    by_period = dict(weekday.group_by("period").agg(pl.col("trips").sum()).rows())
    assert by_period["17:00"] > 1.2 * by_period["12:00"]
    assert by_period["08:30"] > 20 * by_period.get("03:00", 0)
    assert_frame_equal(weekday.filter(pl.col("period").is_in(MORNING)), morning)
    assert (city.modes() == of_morning.modes()).all()
    assert (city.place == of_morning.place).all()


def test_a_weekend_day_has_no_rush() -> None:
    """A weekend day has 18,000 trips, of which fewer are made from 08:00 to 10:00 than from 12:00 to 14:00."""
    _, trips = drawn(1, "weekend")
    assert trips["trips"].sum() == 18_000
    noon = ["12:00", "12:30", "13:00", "13:30"]
    early, later = (trips.filter(pl.col("period").is_in(of))["trips"].sum() for of in (MORNING, noon))
    assert early < 0.8 * later


def test_a_seed_draws_its_trips_again() -> None:
    """Equal seeds draw equal trips, sorted and without repeated types, and another seed others."""
    one, again, other = (drawn(seed, "weekday")[1] for seed in (4, 4, 5))
    assert_frame_equal(one, again)
    assert not one.equals(other)
    types = ["period", "origin", "destination"]
    assert_frame_equal(one, one.sort(types))
    assert not one.select(types).is_duplicated().any()
    assert one.schema == {**dict.fromkeys(types, pl.String), "trips": pl.Int64}


def test_periods_are_half_hours() -> None:
    """The 48 codes are in the order of the clock, which is that of text, and a morning has four of them."""
    assert (len(PERIODS), PERIODS[0], PERIODS[-1]) == (48, "00:00", "23:30")
    assert sorted(PERIODS) == list(PERIODS)
    assert list(periods_of("morning")) == MORNING
    assert periods_of("weekday") == periods_of("weekend") == PERIODS


def test_every_pair_has_one_mode_and_its_minutes(written: tuple[Path, SyntheticCity]) -> None:
    """The public tables list every ordered pair of stops once, with one of twelve modes and with whole minutes."""
    folder, _ = written
    stops = pl.read_csv(folder / "stops.csv")
    every = (
        stops.select(origin="stop").join(stops.select(destination="stop"), how="cross").sort("origin", "destination")
    )
    modes, minutes = (pl.read_csv(folder / f"{name}.csv") for name in ("modes", "minutes"))
    for table in (modes, minutes):
        assert_frame_equal(table.select("origin", "destination").sort("origin", "destination"), every)
    assert modes.height == 130**2
    assert set(modes["mode"]) == set(MODES)
    city, _ = drawn(1, "morning")
    assert (minutes["minutes"].to_numpy() == city.minutes().ravel()).all()
    assert (modes["mode"].to_numpy() == np.array(MODES)[city.modes().ravel()]).all()


def test_stops_are_a_codebook(written: tuple[Path, SyntheticCity]) -> None:
    """Trellis reads the stops as a codebook of two levels, and the columns with their places do no harm."""
    folder, _ = written
    codes = frozenset({"period", "origin", "destination"})
    codebook = read_codebook(
        FileTable("hierarchy.origin.table", folder / "stops.csv"), ["zone", "stop"], by_path=False, not_all_of=codes
    )
    assert (codebook.height, codebook["zone"].n_unique()) == (130, 4)
    trips = pl.read_parquet(folder / "trips.parquet")
    for end in ("origin", "destination"):
        assert trips[end].is_in(codebook["stop"].implode()).all()


def test_the_readme_says_what_is_made_up(written: tuple[Path, SyntheticCity]) -> None:
    """Whoever finds the folder reads that nobody made these trips, and that the groupings do not depend on them."""
    readme = " ".join((written[0] / "README.md").read_text(encoding="utf-8").split())
    assert "nobody made these trips" in readme
    assert "4,878 trips of 588 types" in readme
    assert "a grouping that is designed on confidential trips is as confidential as the trips" in readme


@pytest.mark.parametrize("name", MOST_VIEWS)
def test_a_spec_has_the_papers_views(written: tuple[Path, SyntheticCity], name: str, tmp_path: Path) -> None:
    """O3 has the total and the periods, O4 the zones as well, O5 also the modes, which are a public function of the stops.

    Without views, utility and mechanism, Trellis reads the spec: half hours, stops, one trip, ε of 1 of a budget of 10.
    """
    keys = yaml.safe_load((written[0] / f"{name}.yaml").read_text(encoding="utf-8"))
    assert (keys["name"], keys["dataset"]) == (f"shuttle-{name}", "synthetic-shuttle-morning-1")
    views = keys["release"].pop("views")
    assert list(views.items()) == list(VIEWS.items())[: MOST_VIEWS[name]]
    mode = {"table": "modes.csv", "of": ["origin.stop", "destination.stop"]}
    assert keys.pop("derived", None) == ({"mode": mode} if name == "o5" else None)
    assert keys.pop("mechanism") == "cbdp"
    fleet = {"period": "period", "minutes": 30, "capacity": 8, "durations": "minutes.csv"}
    assert keys.pop("utility") == {"fleet": fleet}
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(keys), encoding="utf-8")
    spec = load_spec(path).spec
    assert spec.public_data
    assert spec.input.features == spec.release.order == ["period", "origin", "destination"]
    assert spec.input.count == "trips"
    assert [spec.levels(axis) for axis in spec.axes] == [["period"], ["zone", "stop"], ["zone", "stop"]]
    assert keys["hierarchy"]["period"] == {"values": MORNING}
    of = spec.privacy
    assert (of.unit, of.neighbours, of.max_records_per_unit) == ("one trip", "add_remove", 1)
    assert (of.epsilon, of.delta, spec.noise.law) == (1.0, 1e-8, "laplace")
    assert spec.budget is not None
    assert (spec.budget.epsilon, spec.budget.delta) == (10.0, 1e-7)


def test_a_whole_day_is_described(tmp_path: Path) -> None:
    """The answer counts trips and types of trips of the 48 half hours, and names three specs of one dataset."""
    answer = synthesise_city_answer("weekday", tmp_path / "set", 1)
    assert (answer.set, answer.day, answer.seed) == ("shuttle", "weekday", 1)
    assert (answer.stops, answer.zones, answer.trip_types, answer.trips) == (130, 4, 811_200, 37_714)
    assert answer.travelled == pl.read_parquet(tmp_path / "set" / "trips.parquet").height
    assert [Path(spec).name for spec in answer.specs] == ["o3.yaml", "o4.yaml", "o5.yaml"]
    keys = [yaml.safe_load(Path(spec).read_text(encoding="utf-8")) for spec in answer.specs]
    assert {key["dataset"] for key in keys} == {"synthetic-shuttle-weekday-1"}
    assert all(key["hierarchy"]["period"]["values"] == list(PERIODS) for key in keys)


def test_choices_of_other_sets_are_refused(tmp_path: Path) -> None:
    """A density is for the paper's sets, a day is for the shuttle, and a folder with something in it is left alone."""
    with pytest.raises(UsageError, match="a shuttle has none, got dense"):
        check_choices("shuttle", "dense")
    with pytest.raises(UsageError, match="the set country has none, got weekend"):
        check_choices("country", None, "weekend")
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(UsageError, match="--out must be a new or empty folder"):
        synthesise_city_answer("morning", tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
