"""deployments/specs: the examples release tables of their form, and questions about them are answered near the truth."""

import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest

from flows.api import PublishedRelease, release
from tasks.tree.ordered import ordered_codes
from tasks.verify.folder import verify
from tests.support.households import COUNTIES, draw_homes, people_of
from tests.support.user import REPOSITORY

SPECS = REPOSITORY / "deployments" / "specs"
CHANCE = np.random.default_rng(2)
HALF_YEAR = ordered_codes({"first": "2026-01-01", "last": "2026-06-30"})
THREE_YEARS = ordered_codes({"first": "2024-01-01", "last": "2026-12-31"})


class Example(NamedTuple):
    """Tables for an example.

    Attributes:
        tables: by their files; the first has the records.
        asked: of the release.
        inside: which records lie there.
    """

    tables: dict[str, pl.DataFrame]
    asked: dict[str, str]
    inside: pl.Expr


def days(start: str, end: str) -> pl.Expr:
    """Return which days lie between two."""
    return pl.col("day").is_between(pl.lit(start), pl.lit(end))


EXAMPLES = {
    "ages": Example(
        {"people.csv": pl.DataFrame({"age": CHANCE.integers(0, 101, 5000)})},
        {"age": "18..24"},
        pl.col("age").is_between(18, 24),
    ),
    "zone-hour": Example(
        {
            "departures.csv": pl.DataFrame(
                {"zone": CHANCE.choice(["A1", "A2", "B1"], 3000), "hour": CHANCE.integers(0, 24, 3000)}
            ),
            "zones.csv": pl.DataFrame({"district": ["A", "A", "B"], "zone": ["A1", "A2", "B1"]}),
        },
        {"hour": "7..9", "zone": "district=A"},
        pl.col("hour").is_between(7, 9) & (pl.col("zone") != "B1"),
    ),
    "hour-day": Example(
        {
            "events.csv": pl.DataFrame(
                {"hour": CHANCE.integers(0, 24, 4000), "day": CHANCE.choice(np.array(HALF_YEAR), 4000)}
            )
        },
        {"hour": "7..9", "day": "2026-01-10..2026-02-20"},
        pl.col("hour").is_between(7, 9) & days("2026-01-10", "2026-02-20"),
    ),
    "daily-counts": Example(
        {"visits.csv": pl.DataFrame({"day": CHANCE.choice(np.array(THREE_YEARS), 8000)})},
        {"day": "2025-03..2025-05"},
        days("2025-03-01", "2025-05-31"),
    ),
    "households-by-size": Example(
        {
            "people.csv.gz": people_of(draw_homes(200)),
            "counties.csv": pl.DataFrame(COUNTIES, schema=["state", "county"], orient="row"),
        },
        {"size": "5..", "region": "A"},
        pl.lit(value=True),
    ),
}


FAST = ["daily-counts", "households-by-size"]


def released(name: str, tables: dict[str, pl.DataFrame], folder: Path) -> PublishedRelease:
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
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.thorough) for name in EXAMPLES]
)
def test_an_example_is_released(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ages, zones by hour, hours by day, days and households by size are released, and asked for a range."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    example = EXAMPLES[name]
    found = released(name, example.tables, tmp_path)
    (row,) = found.query(example.asked).to_dicts()
    if name == "households-by-size":  # whose counts have intervals, and no deviations
        assert row["low"] <= row["count"] <= row["high"]
        return
    true = next(iter(example.tables.values())).filter(example.inside).height
    assert abs(row["count"] - true) < 7 * row["sd"]
    if name == "daily-counts":
        assert 0 < row["sd"] < 3 * 10
        most = {entry.axes["day"]: entry.deviations.most for entry in found.manifest.levels if entry.deviations}
        assert most["month"] <= 10 + 1e-6
        assert most["day"] <= 12 + 1e-6


@pytest.mark.thorough
def test_the_example_of_both_marginals_publishes_its_views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ri-both-marginals.yaml publishes its four views: its table of bands lists every pair of counties."""
    (tmp_path / "lodes_ri_2019").mkdir()
    monkeypatch.setenv("TRELLIS_DATA", str(tmp_path))
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    bands = pl.read_csv(SPECS / "ri-bands.csv", infer_schema=False)
    blocks = [f"{county}{tract:06}1001" for county in sorted(set(bands.to_series(0))) for tract in (100, 200)]
    block = pl.col("tabblk2010")
    codebook = pl.DataFrame({"tabblk2010": blocks}).with_columns(
        bgrp=block.str.head(12), trct=block.str.head(11), cty=block.str.head(5)
    )
    jobs = [(home, work, 18) for home in blocks for work in blocks]
    trips = pl.DataFrame(jobs, ["h_geocode", "w_geocode", "S000"], orient="row")
    place = "lodes_ri_2019"
    tables = {f"{place}/ri_od_main_JT00_2019.csv.gz": trips, f"{place}/ri_xwalk.csv.gz": codebook}
    made = released("ri-both-marginals", tables, tmp_path)
    found = {path.stem: pl.read_parquet(path) for path in (made.folder / "views").glob("*.parquet")}
    heights = {name: table.height for name, table in found.items()}
    assert heights == {"counties": 36, "living": 12, "working": 12, "far": 18}
    assert len({int(table["count"].sum()) for table in found.values()}) == 1
