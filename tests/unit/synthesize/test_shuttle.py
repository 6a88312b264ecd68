"""The trips of the made-up city: their numbers, where they go, and the tables and specs that are written."""

import numpy as np
import polars as pl
import pytest
import yaml
from polars.testing import assert_frame_equal

from flows.specification.file import load_spec
from flows.synthetic import synthesise_answer
from storage.errors import UsageError
from tasks.ingest.codebook import read_codebook
from tasks.ingest.sources.files import FileTable
from tasks.synthesize.shuttle import MODES, draw_city, draw_trips

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
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(keys), encoding="utf-8")
    spec = load_spec(path).spec
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
