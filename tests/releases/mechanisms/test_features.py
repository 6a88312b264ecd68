"""Releases of any features, whose levels may take turns and stand in an order: levels, CSV, records, answers, and the order of rows."""

import re
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import tasks.folder.publish.task
import tasks.format.csv
import tasks.format.tables
import tasks.validate.size
from flows.answers.verify import verify_answer
from flows.api import release
from flows.planning.plan import make_plan
from flows.run.reservation import new_release
from flows.specification.file import load_spec
from storage.errors import StageFailed, TrellisError
from storage.tables import SIGNAL
from tasks.folder.verify.folder import verify
from tests.support.folders import published, with_sums
from tests.support.runs import finish, make
from tests.support.spec import SPEC, spec_in

WITH_PAGES = True

REPOSITORY = Path(__file__).parents[3]
ORDER = ["from.district", "to.district", "from.zone", "to.zone", "area", "hour"]
FINEST = ["from_zone", "to_zone", "area", "hour"]
ZONES = [("A", "A1"), ("A", "A2"), ("B", "B1"), ("B", "B2"), ("B", "B3")]
TRIPS = 3_000
NO_NOISE = SPEC["privacy"] | {"epsilon": 5000.0}  # but for one draw in 10**200
BUDGET = {"epsilon": 1e5, "delta": 1e-6}


@dataclass
class City:
    """A folder with trips between zones, and what is true of them."""

    folder: Path
    true: pl.DataFrame

    def spec(self, **keys):
        """Write a spec of all features, without noise."""
        codebook = {"table": "zones.csv", "levels": ["district", "zone"]}
        spec = {
            "name": "trips",
            "dataset": "made-up-city",
            "input": {"table": "trips.csv", "features": ["from", "to", "area", "hour"]},
            "hierarchy": {"from": codebook, "to": codebook, "area": ["car", "bus"], "hour": {"values": 3}},
            "release": {"order": ORDER, "csv": "every_level", "records": True, "noisy_counts": True},
            "privacy": NO_NOISE,
            "budget": BUDGET,
            **keys,
        }
        return spec_in(self.folder, spec)


@pytest.fixture
def city(tmp_path, own_home):
    """Return a folder with made-up trips, most of them between few zones, and a store of its own."""
    return city_in(tmp_path)


def city_in(folder):
    """Write made-up trips and the codebook of their zones, and return what is true of them, with every level."""
    generator = np.random.default_rng(8)
    ends = {end: generator.choice(5, size=TRIPS, p=[0.5, 0.3, 0.15, 0.05, 0.0]) for end in ("from", "to")}
    levels = product(ends.items(), enumerate(("district", "zone")))
    columns = {f"{end}_{level}": [ZONES[zone][of] for zone in zones] for (end, zones), (of, level) in levels}
    modes = generator.choice(["car", "bus"], size=TRIPS, p=[0.8, 0.2])
    hours = generator.choice(3, size=TRIPS, p=[0.6, 0.4, 0.0]).astype(str)
    true = pl.DataFrame(columns | {"area": modes, "hour": hours})
    true.select(FINEST).rename({"from_zone": "from", "to_zone": "to"}).write_csv(folder / "trips.csv")
    pl.DataFrame(ZONES, ["district", "zone"], orient="row").write_csv(folder / "zones.csv")
    return City(folder, true)


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    """Return a city and its release without noise."""
    city = city_in(tmp_path_factory.mktemp("city"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(city.folder / "home"))
        return city, release(city.spec())


def text_csv(path):
    """Return a CSV with every column as text."""
    return pl.read_csv(path, infer_schema=False)


def test_a_query_takes_the_level_that_answers_it_best(exact):
    """A pair of districts is a cell of the level of pairs of districts, although both ends are refined further below."""
    city, made = exact
    (pair,) = made.query({"from": "district=A", "to": "district=B"}).to_dicts()
    assert (pair["level"], pair["how"]) == (2, "the cell of level 2 (from district, to district)")
    assert pair["count"] == city.true.filter(pl.col("from_district") == "A", pl.col("to_district") == "B").height
    (zone,) = made.query({"from": "A1"}).to_dicts()
    assert (zone["level"], zone["how"]) == (3, "sum of 2 cells of level 3 (from zone, to district)")
    assert zone["count"] == city.true.filter(pl.col("from_zone") == "A1").height
    by_area = made.query(area=["car", "bus"])
    assert by_area["level"].to_list() == [5, 5]
    assert by_area["count"].sum() == TRIPS
    assert set(made.query({"from": "A1", "to": "A2"}, hour=["0", "1", "2"])["level"]) == {6}


@pytest.mark.parametrize(
    ("column", "code"), [("hour", "3"), ("hour", " 1"), ("from", "Zebedee"), ("area", "tram-4711")]
)
def test_a_value_outside_its_domain_is_refused(city, column, code):
    """A code that a domain lacks is refused by the name of its column, and nobody learns which code or row it was."""
    trips = text_csv(city.folder / "trips.csv")
    pl.concat([trips, trips[:2].with_columns(pl.lit(code).alias(column))]).write_csv(city.folder / "trips.csv")
    lacking = "the codebook" if column == "from" else rf"hierarchy\.{column}"  # where the spec itself lists them
    told = rf"^input.table: column {column} has codes that {lacking} lacks\.(\n|$)"
    with pytest.raises(TrellisError, match=told) as refused:
        release(city.spec())
    assert refused.value.field == "input.features"
    assert re.match(rf"Add every possible code to {lacking}", refused.value.hint)
    assert len(code) < 3 or code not in f"{refused.value} {refused.value.hint}"
    assert not (city.folder / "out").exists()


def spoilt(folder, records, kind):
    """Return what `verify` says of a folder with other records, without checksums."""
    path = folder / f"records.{kind}"
    if kind == "csv":
        records.write_csv(path)
    else:
        records.write_parquet(path)
    with_sums(folder)
    return verify(folder)


@pytest.mark.heavy("a release fails, and is finished")
@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_records_survive_a_failure_and_are_verified(city, monkeypatch, kind):
    """A rerun publishes the records that were asked for, and `verify` finds whatever was done to them since."""
    if kind == "parquet":
        monkeypatch.setattr(tasks.validate.size, "MOST_CSV_ROWS", TRIPS - 1)
    monkeypatch.setattr(tasks.format.csv, "CHUNK_RECORDS", 70)

    def fail(*_):
        raise RuntimeError

    plan = make_plan(load_spec(city.spec()))
    made = new_release(plan)
    with monkeypatch.context() as patch:
        patch.setattr(tasks.folder.publish.task, "record_tables", fail)
        with pytest.raises(StageFailed):
            make(plan, made)
    folder = Path(made.folder)
    assert not folder.exists()
    finish(made.id)
    assert verify_answer(folder).failures == []
    assert {path.name for path in folder.glob("records.*")} == {f"records.{kind}"}
    assert f"`records.{kind}`" in (folder / "README.md").read_text()
    records = text_csv(folder / "records.csv") if kind == "csv" else pl.read_parquet(folder / "records.parquet")
    assert_frame_equal(records, city.true.select(FINEST).sort(FINEST))
    wrongs = (records[1:], pl.concat([records, records[-1:]]), records.with_columns(hour=pl.lit("1")), records[:0])
    for wrong in wrongs:
        assert spoilt(folder, wrong, kind) == [
            f"records.{kind} does not hold the records that the finest level counts."
        ]
    for wrong in (records.select(FINEST[::-1]), records.drop("hour")):
        assert spoilt(folder, wrong, kind) == [f"records.{kind} must have the columns of the finest codes."]
    (folder / f"records.{kind}").write_text("")
    with_sums(folder)
    assert verify(folder) == [f"records.{kind} is missing or is not a readable file of records."]


def test_trips_have_records_too(tmp_path, own_home):
    """Trips are records with the whole path of both ends where the code alone tells no area."""
    codes = [("a", "1"), ("a", "2"), ("b", "1")]
    pl.DataFrame(codes, ["region", "town"], orient="row").write_csv(tmp_path / "codebook.csv")
    trips = [(*home, *work, 1 + number) for number, (home, work) in enumerate(zip(codes, codes[::-1], strict=True))]
    pl.DataFrame(trips, ["hr", "ht", "wr", "wt", "n"], orient="row").write_csv(tmp_path / "trips.csv")
    ends = {"origin": ["hr", "ht"], "destination": ["wr", "wt"]}
    spec = SPEC | {
        "input": {"table": "trips.csv", "count": "n", **ends},
        "hierarchy": {"table": "codebook.csv", "levels": ["region", "town"]},
        "release": {"tree": "origin", "finest": "town", "records": True},
        "privacy": NO_NOISE,
        "budget": BUDGET,
    }
    folder = published(spec_in(tmp_path, spec))
    records, counts = text_csv(folder / "records.csv"), text_csv(folder / "counts.csv").drop("low", "high", SIGNAL)
    assert records.columns == counts.columns[:-1]
    assert records.rows() == [row[:-1] for row in counts.rows() for _ in range(int(row[-1]))]
    assert records.height == 6
    assert verify(folder) == []


@pytest.mark.thorough
@pytest.mark.heavy("sixty-two levels, each a task run of three")
def test_sixty_features(tmp_path, own_home):
    """Sixty binary features, 2**60 cells, and one of nine values are 62 consistent levels in at most 200 task runs."""
    generator, names = np.random.default_rng(5), [f"f{number:02d}" for number in range(59)] + ["more"]
    groups = generator.random((4, 60)).round()
    rows = np.abs(groups[generator.integers(0, 4, size=300)] - (generator.random((300, 60)) < 0.1)).astype(int)
    rows[:, -1] = generator.integers(0, 20, size=300)
    pl.DataFrame(rows, names, orient="row").write_csv(tmp_path / "people.csv")
    spec = SPEC | {
        "input": {"table": "people.csv", "features": names},
        "hierarchy": {name: {"values": 2} for name in names} | {"more": {"values": 20}},  # 2**59 * 20 > 2**63
        "release": {"order": names[::-1]},
        "privacy": NO_NOISE | {"epsilon": 50.0},
        "noise": {"sampler": "table"},
        "budget": BUDGET,
    }
    plan, stages = make_plan(load_spec(spec_in(tmp_path, spec))), list[str]()
    made = new_release(plan)

    def counted(stage, arguments):
        stages.append(stage.name)
        return stage.fn(*arguments)

    make(plan, made, counted)
    assert len(stages) <= 200
    folder = Path(made.folder)
    assert verify_answer(folder).failures == []
    paths = [folder / "counts" / f"level_{level}.parquet" for level in range(61)]
    levels = [pl.read_parquet(path).drop("low", "high", SIGNAL) for path in paths]
    for number, (above, level) in enumerate(pairwise(levels)):
        columns, total = names[60 - number :], pl.col("count").sum()
        assert above.columns == [*columns, "count"]
        together = level.group_by(columns).agg(total).sort(columns) if columns else level.select(total)
        assert_frame_equal(together, above)
    assert levels[0]["count"].item() == 300
    assert levels[-1].height > 4


def test_adult(real_data, newcomer):
    """UCI Adult is released by the spec that comes with the project, and its records read like the table."""
    if not (real_data / "adult").is_dir():
        pytest.skip(f"no real data: there is no {real_data / 'adult'}")
    spec = REPOSITORY / "deployments" / "specs" / "adult.yaml"
    output = str(newcomer.folder / "out")
    said = newcomer.run("release", str(spec), "--output", output, "--json", TRELLIS_DATA=str(real_data))
    assert (said.code, said.stderr) == (0, "")
    folder = Path(said.json()["folder"])
    assert verify_answer(folder).failures == []
    true, records = text_csv(real_data / "adult" / "adult.csv"), text_csv(folder / "records.csv")
    assert records.columns == ["sex", "race", "education-num_grade", "occupation"]
    assert records.height == true.height == 48_842
    for feature in ("sex", "race", "occupation"):
        released, really = (dict(table[feature].value_counts().iter_rows()) for table in (records, true))
        assert set(released) == set(really)
        assert max(abs(released[code] - really[code]) for code in really) < 300


DAYS = ["2024-01-30", "2024-01-31", "2024-02-01", "2024-02-02"]


@pytest.fixture(scope="module")
def ordered(tmp_path_factory):
    """Return trips by days and ages, which have an order, and their release without noise by a mechanism that goes down any tree."""
    folder, generator = tmp_path_factory.mktemp("ordered"), np.random.default_rng(5)
    columns = {"zone": generator.choice(["n", "s"], 500), "day": generator.choice(DAYS, 500)}
    trips = pl.DataFrame(columns | {"age": generator.integers(0, 12, 500).astype(str)})
    trips.write_csv(folder / "trips.csv")
    spec = SPEC | {
        "input": {"table": "trips.csv", "features": ["zone", "day", "age"]},
        "hierarchy": {
            "zone": {"values": ["n", "s"]},
            "day": {"ordered": {"first": DAYS[0], "last": DAYS[-1]}, "calendar": ["month"]},
            "age": {"ordered": 12, "branching": 3},
        },
        "release": {"order": ["age", "day", "zone"], "csv": "every_level"},
        "mechanism": "inftda_reconciled",
        "privacy": NO_NOISE,
        "budget": BUDGET,
    }
    path = spec_in(folder, spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(folder / "home"))
        return trips, release(path)


def test_rows_stand_in_the_order_of_the_axis(ordered):
    """Ages go 0, 1, 2, …, 10, 11, also where text would go 0, 1, 10; made levels are columns under their own names, and are asked for."""
    trips, made = ordered
    assert verify(made.folder) == []
    table = made.table(len(made.levels) - 1)
    assert table.columns[:6] == ["zone", "day_month", "day", "age_1", "age_2", "age"]
    true = trips.group_by("zone", "day", "age").len("true").sort("zone", "day", pl.col("age").cast(int))
    assert table.select("zone", "day", "age", true="count").equals(true.cast({"true": pl.Int64}))
    by_age = made.table(3)
    assert by_age["age"].to_list() == [str(age) for age in range(12)]
    assert by_age["age_1"].unique(maintain_order=True).to_list() == ["0..3", "4..7", "8..11"]
    assert made.query(age="4..7")["count"].item() == trips["age"].cast(int).is_between(4, 7).sum()
    inside = trips.filter(pl.col("day") < "2024-02", age="11")
    assert made.query(day="2024-01", age="11")["count"].item() == inside.height
    assert made.query(day="2024-01..2024-02", age="11")["count"].item() == trips.filter(age="11").height


def test_verify_finds_rows_in_the_order_of_text(ordered, monkeypatch):
    """A table whose ages are sorted as text is not the one that is stated, within a batch of rows or across batches."""
    folder = ordered[1].folder
    path = folder / "counts" / "level_3.parquet"
    before, table = path.read_bytes(), pl.read_parquet(path)
    changes = {
        "": lambda of: of,
        "level_3: rows must be sorted by their codes.": lambda of: of.sort("age"),
        "level_3": lambda of: of.with_columns(age=pl.col("age").replace("3", "three")),
    }
    for batch in (2, 1000):
        monkeypatch.setattr(tasks.format.tables, "BATCH_ROWS", batch)
        for told, change in changes.items():
            change(table).write_parquet(path)
            found = [failure for failure in verify(folder) if failure.startswith("level_3")]
            assert any(failure.startswith(told) for failure in found) if told else found == []
    path.write_bytes(before)
