"""deployments/specs: the examples release tables of their form, and questions about them are answered near the truth."""

import shutil

import numpy as np
import polars as pl
import pytest

from flows.api import release
from tasks.folder.verify.folder import verify
from tasks.tree.ordered import ordered_codes
from tests.support.households import COUNTIES, draw_homes, people_of
from tests.support.user import REPOSITORY

SPECS = REPOSITORY / "deployments" / "specs"
CHANCE = np.random.default_rng(2)
HALF_YEAR = np.array(ordered_codes({"first": "2026-01-01", "last": "2026-06-30"}))
THREE_YEARS = np.array(ordered_codes({"first": "2024-01-01", "last": "2026-12-31"}))


def days(start, end):
    """Return which days lie between two."""
    return pl.col("day").is_between(pl.lit(start), pl.lit(end))


HOURS = CHANCE.integers(0, 24, 4000)
MORNING = pl.col("hour").is_between(7, 9)
TABLES = {  # by their files, the first with the records
    "ages": {"people.csv": pl.DataFrame({"age": CHANCE.integers(0, 101, 5000)})},
    "zone-hour": {
        "departures.csv": pl.DataFrame({"zone": CHANCE.choice(["A1", "A2", "B1"], 4000), "hour": HOURS}),
        "zones.csv": pl.DataFrame({"district": ["A", "A", "B"], "zone": ["A1", "A2", "B1"]}),
    },
    "hour-day": {"events.csv": pl.DataFrame({"hour": HOURS, "day": CHANCE.choice(HALF_YEAR, 4000)})},
    "daily-counts": {"visits.csv": pl.DataFrame({"day": CHANCE.choice(THREE_YEARS, 8000)})},
    "households-by-size": {"people.csv.gz": people_of(draw_homes(200)), "counties.csv": pl.DataFrame(COUNTIES, schema=["state", "county"], orient="row")},
}  # fmt: skip
ASKED = {  # what is asked of the release, and which records lie there
    "ages": ({"age": "18..24"}, pl.col("age").is_between(18, 24)),
    "zone-hour": ({"hour": "7..9", "zone": "district=A"}, MORNING & (pl.col("zone") != "B1")),
    "hour-day": ({"hour": "7..9", "day": "2026-01-10..2026-02-20"}, MORNING & days("2026-01-10", "2026-02-20")),
    "daily-counts": ({"day": "2025-03..2025-05"}, days("2025-03-01", "2025-05-31")),
    "households-by-size": ({"size": "5..", "region": "A"}, pl.lit(value=True)),
}
FAST = ["daily-counts", "households-by-size"]


def released(name, tables, folder):
    """Release an example over some tables, and assert that what is published is whole."""
    for file, table in tables.items():
        table.write_csv(folder / file, compression="gzip" if file.endswith(".gz") else "uncompressed")
    for file in (f"{name}.yaml", "ri-bands.csv"):
        shutil.copy(SPECS / file, folder / file)
    found = release(folder / f"{name}.yaml")
    assert verify(found.folder) == []
    return found


@pytest.mark.heavy("the grid of hours and days has many cells")
@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.thorough) for name in TABLES]
)
def test_an_example_is_released(name, tmp_path, own_home):
    """Ages, zones by hour, hours by day, days and households by size are released, and asked for a range."""
    tables, (asked, inside) = TABLES[name], ASKED[name]
    found = released(name, tables, tmp_path)
    (row,) = found.query(asked).to_dicts()
    if name == "households-by-size":  # whose counts have intervals, and no deviations
        assert row["low"] <= row["count"] <= row["high"]
        return
    assert abs(row["count"] - next(iter(tables.values())).filter(inside).height) < 7 * row["sd"]
    if name == "daily-counts":
        assert 0 < row["sd"] < 3 * 10
        most = {entry.axes["day"]: entry.deviations.most for entry in found.manifest.levels if entry.deviations}
        assert most["month"] <= 10 + 1e-6
        assert most["day"] <= 12 + 1e-6


@pytest.mark.thorough
def test_the_example_of_both_marginals_publishes_its_views(tmp_path, monkeypatch):
    """ri-both-marginals.yaml publishes its four views: its table of bands lists every pair of counties."""
    monkeypatch.setenv("TRELLIS_DATA", str(tmp_path))
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    counties = sorted(set(pl.read_csv(SPECS / "ri-bands.csv", infer_schema=False).to_series(0)))
    blocks = pl.DataFrame({"tabblk2010": [f"{of}{tract:06}1001" for of in counties for tract in (100, 200)]})
    cut = {name: pl.col("tabblk2010").str.head(digits) for name, digits in (("bgrp", 12), ("trct", 11), ("cty", 5))}
    jobs = blocks.select(h_geocode="tabblk2010").join(blocks.select(w_geocode="tabblk2010"), how="cross")
    (tmp_path / "lodes_ri_2019").mkdir()
    trips, codes = (f"lodes_ri_2019/{name}.csv.gz" for name in ("ri_od_main_JT00_2019", "ri_xwalk"))
    tables = {trips: jobs.with_columns(S000=pl.lit(18)), codes: blocks.with_columns(**cut)}
    made = released("ri-both-marginals", tables, tmp_path)
    found = {path.stem: pl.read_parquet(path) for path in (made.folder / "views").glob("*.parquet")}
    heights = {name: table.height for name, table in found.items()}
    assert heights == {"counties": 36, "living": 12, "working": 12, "far": 18}
    assert len({int(table["count"].sum()) for table in found.values()}) == 1
