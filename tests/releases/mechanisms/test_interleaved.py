"""Releases of features whose levels take turns: from the spec to the verified folder, its files and its answers."""

import json
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from flows.answers.verify import verify_answer
from flows.api import PublishedRelease, release
from flows.spec.file import load_spec
from flows.trials.comparison import make_comparison, trials_of
from storage.counts.columns import SIGNAL
from tests.support.folders import page_of
from tests.support.passes import check_rows, try_spec
from tests.support.spec import SPEC

ORDER = ["from.district", "to.district", "from.zone", "to.zone", "mode", "hour"]
REFINED = ["from district", "to district", "from zone", "to zone", "mode", "hour"]
COLUMNS = {  # in the order in which the tables show them
    "from.district": "from_district",
    "from.zone": "from_zone",
    "to.district": "to_district",
    "to.zone": "to_zone",
    "mode": "mode",
    "hour": "hour",
}
ZONES = [("A", "A1"), ("A", "A2"), ("B", "B1"), ("B", "B2"), ("B", "B3")]
TRIPS = 3_000
NO_NOISE = 5000.0  # an ε at which no draw but one in 10**200 is not 0


@dataclass
class City:
    """A folder with trips between zones, and what is true of them."""

    folder: Path
    true: pl.DataFrame

    def spec(self, order: list[str], epsilon: float, **keys: Any) -> Path:
        """Write a spec with an order."""
        codebook = {"table": "zones.csv", "levels": ["district", "zone"]}
        spec = {
            "name": "trips",
            "dataset": "made-up-city",
            "input": {"table": "trips.csv", "features": ["from", "to", "mode", "hour"]},
            "hierarchy": {"from": codebook, "to": codebook, "mode": ["car", "bus"], "hour": {"values": 3}},
            "release": {"order": order, "csv": "every_level", "records": True, "noisy_counts": True},
            "privacy": SPEC["privacy"] | {"unit": "one trip", "epsilon": epsilon},
            "budget": {"epsilon": 1e5, "delta": 1e-6},
            "run": {"prefect": False},
            **keys,
        }
        path = self.folder / "spec.yaml"
        path.write_text(yaml.safe_dump(spec))
        return path

    def marginal(self, order: list[str]) -> pl.DataFrame:
        """Return the true counts of what some entries refine, sorted by their codes."""
        columns = [column for entry, column in COLUMNS.items() if entry in order]
        if not columns:
            return pl.DataFrame({"count": [TRIPS]}, schema={"count": pl.Int64})
        return self.true.group_by(columns).agg(pl.len().cast(pl.Int64).alias("count")).sort(columns)


@pytest.fixture
def city(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> City:
    """Return a folder with made-up trips, most of them between few zones, and a store of its own."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    return city_in(tmp_path)


def city_in(folder: Path) -> City:
    """Write made-up trips and the codebook of their zones, and return what is true of them, with every level."""
    generator = np.random.default_rng(8)
    from_, to = (generator.choice(5, size=TRIPS, p=[0.5, 0.3, 0.15, 0.05, 0.0]) for _ in "ab")
    true = pl.DataFrame(
        {
            **{f"from_{level}": [ZONES[zone][of] for zone in from_] for of, level in enumerate(("district", "zone"))},
            **{f"to_{level}": [ZONES[zone][of] for zone in to] for of, level in enumerate(("district", "zone"))},
            "mode": generator.choice(["car", "bus"], size=TRIPS, p=[0.8, 0.2]),
            "hour": generator.choice(3, size=TRIPS, p=[0.6, 0.4, 0.0]).astype(str),
        }
    )
    true.select(pl.col("from_zone").alias("from"), pl.col("to_zone").alias("to"), "mode", "hour").write_csv(
        folder / "trips.csv"
    )
    pl.DataFrame(ZONES, ["district", "zone"], orient="row").write_csv(folder / "zones.csv")
    return City(folder, true)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[City, PublishedRelease]:
    """Return a city and its release without noise."""
    city = city_in(tmp_path_factory.mktemp("city"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(city.folder / "home"))
        return city, release(city.spec(ORDER, NO_NOISE))


@pytest.mark.thorough
def test_each_entry_is_a_level_of_the_release(published: tuple[City, PublishedRelease]) -> None:
    """Without noise level k is the true table of what the first k entries refine; every file of the folder fits."""
    city, folder = published[0], published[1].folder
    for level in range(len(ORDER) + 1):
        table = pl.read_parquet(folder / "counts" / f"level_{level}.parquet").drop("low", "high", SIGNAL)
        assert_frame_equal(table, city.marginal(ORDER[:level]))
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["spec"]["release"]["order"] == ORDER
    assert [level["axes"] for level in manifest["levels"]][2:4] == [
        {"from": "district", "to": "district", "mode": None, "hour": None},
        {"from": "zone", "to": "district", "mode": None, "hour": None},
    ]
    readme, report = (folder / "README.md").read_text(), page_of(folder)
    for level, refined in enumerate(REFINED, 1):
        assert f"| {level} | {refined} | " in readme
        assert refined in report
    assert verify_answer(folder).failures == []


def test_the_csv_files_and_records_show_the_levels_in_the_order_of_the_features(
    published: tuple[City, PublishedRelease],
) -> None:
    """Each CSV and its CSVW description have the columns of its level; the records have one per finest code."""
    city, folder = published[0], published[1].folder
    described = {table["url"]: table for table in json.loads((folder / "metadata.json").read_text())["tables"]}
    for level in range(1, len(ORDER) + 1):
        name = next(name for name in described if f"level_{level}." in name or (level == 6 and name == "counts.csv"))
        columns = [column for entry, column in COLUMNS.items() if entry in ORDER[:level]]
        assert pl.read_csv(folder / name, infer_schema=False).columns == [*columns, "count", "low", "high", SIGNAL]
        assert [column["name"] for column in described[name]["tableSchema"]["columns"]][: len(columns)] == columns
    records = pl.read_csv(folder / "records.csv", infer_schema=False)
    wanted = city.true.select("from_zone", "to_zone", "mode", "hour")
    assert_frame_equal(records.sort(records.columns), wanted.sort(wanted.columns))


def test_a_query_takes_the_level_that_answers_it_best(published: tuple[City, PublishedRelease]) -> None:
    """A pair of districts is a cell of the level of pairs of districts, although both ends are refined further below."""
    city, made = published
    (pair,) = made.query({"from": "district=A", "to": "district=B"}).to_dicts()
    assert (pair["level"], pair["how"]) == (2, "the cell of level 2 (from district, to district)")
    assert pair["count"] == city.true.filter(pl.col("from_district") == "A", pl.col("to_district") == "B").height
    (zone,) = made.query({"from": "A1"}).to_dicts()
    assert (zone["level"], zone["how"]) == (3, "sum of 2 cells of level 3 (from zone, to district)")
    assert zone["count"] == city.true.filter(pl.col("from_zone") == "A1").height
    by_mode = made.query(mode=["car", "bus"])
    assert by_mode["level"].to_list() == [5, 5]
    assert by_mode["count"].sum() == TRIPS
    assert set(made.query({"from": "A1", "to": "A2"}, hour=["0", "1", "2"])["level"]) == {6}


def test_orders_are_compared_as_they_are_released(city: City) -> None:
    """The trials of a comparison have the levels of the order, and without noise no error at any of them."""
    comparison = make_comparison(
        load_spec(city.spec(ORDER, NO_NOISE, public_data=True)), ["inftda_reconciled", "tda_l2"], [NO_NOISE], 1
    )
    assert [entry.name for entry in comparison.entries] == ["inftda_reconciled", "tda_l2"]
    for entry in comparison.entries:
        errors = [(row["level"], row["max_absolute"]) for row in trials_of(comparison, entry, range(1))]
        assert errors == [(level, 0) for level in range(len(ORDER) + 1)]
        sizes = [nodes.true_counts.size for nodes in comparison.table.levels]
        assert sizes == [len(city.marginal(ORDER[:level])) for level in range(len(ORDER) + 1)]


@settings(max_examples=20)
@given(data=st.data())
def test_whatever_takes_turns_adds_up(data: st.DataObject) -> None:
    """However the levels of features take turns, noisy counts add up from level to level, and lie within their intervals."""
    axes = data.draw(st.permutations([entry.partition(".")[0] for entry in ORDER]))
    seen: Counter[str] = Counter()
    order = []
    for axis in axes:
        levels = [entry for entry in COLUMNS if entry.partition(".")[0] == axis]
        order.append(levels[seen[axis]])
        seen[axis] += 1
    mechanism = data.draw(st.sampled_from(["inftda_reconciled", "inftda", "gaussian"]))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", f"{folder}/home")
        path = city_in(Path(folder)).spec(order, 1.0, mechanism=mechanism, release={"order": order})
        plan, _, trial = try_spec(path)
    assert [level.axes for level in plan.levels] == [reached(order[:level]) for level in range(len(order) + 1)]
    check_rows(trial)
    # of gaussian the total is a sum of noisy counts
    assert trial.released[0].counts.tolist() == [TRIPS] or mechanism == "gaussian"


def reached(order: list[str]) -> dict[str, str | None]:
    """Return, per feature, the finest level that some entries have refined; None where they have not."""
    levels: dict[str, str | None] = dict.fromkeys(("from", "to", "mode", "hour"))
    return levels | {entry.partition(".")[0]: entry.rpartition(".")[2] for entry in order}
