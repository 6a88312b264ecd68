"""Releases over ordered axes by mechanisms that go down any tree: codes stand in their order, and `verify` holds tables to it."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

import tasks.format.batches
from flows.api import PublishedRelease, open_release, release
from storage.counts.columns import column_name, flat_features
from storage.errors import InputError, SpecError
from tasks.verify.folder import verify

PRIVACY = {
    "unit": "one made-up trip",
    "neighbours": "add_remove",
    "max_records_per_unit": 1,
    "epsilon": 5000.0,  # no noise, but for one draw in 10**200
    "delta": 1.0e-8,
    "accountant": "zcdp",
}
SPEC: dict[str, Any] = {
    "name": "days",
    "dataset": "made-up-days",
    "input": {"table": "trips.csv", "features": ["zone", "day", "age"]},
    "hierarchy": {
        "zone": {"values": ["n", "s"]},
        "day": {"ordered": {"first": "2024-01-30", "last": "2024-02-02"}, "calendar": ["month"]},
        "age": {"ordered": 12, "branching": 3},
    },
    "release": {"order": ["age", "day", "zone"], "csv": "every_level"},
    "mechanism": "inftda_reconciled",
    "privacy": PRIVACY,
    "budget": {"epsilon": 1.0e5, "delta": 1.0e-5},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a table of made-up trips."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    generator = np.random.default_rng(5)
    days = np.array(["2024-01-30", "2024-01-31", "2024-02-01", "2024-02-02"])
    trips = pl.DataFrame(
        {
            "zone": generator.choice(["n", "s"], 500),
            "day": generator.choice(days, 500),
            "age": generator.integers(0, 12, 500).astype(str),
        }
    )
    trips.write_csv(tmp_path / "trips.csv")
    return tmp_path


def made(folder: Path, **keys: Any) -> PublishedRelease:
    """Make a release of the trips."""
    (folder / "spec.yaml").write_text(yaml.safe_dump(SPEC | keys))
    return release(folder / "spec.yaml")


@pytest.mark.parametrize("mechanism", [pytest.param("inftda", marks=pytest.mark.thorough), "inftda_reconciled"])
def test_rows_stand_in_the_order_of_the_axis(folder: Path, mechanism: str) -> None:
    """Ages go 0, 1, 2, …, 10, 11, also where text would go 0, 1, 10; made levels are columns under their own names."""
    published = made(folder, mechanism=mechanism)
    assert verify(published.folder) == []
    table = pl.read_parquet(published.folder / "counts" / f"level_{len(published.levels) - 1}.parquet")
    assert table.columns[:6] == ["zone", "day_month", "day", "age_1", "age_2", "age"]
    trips = pl.read_csv(folder / "trips.csv", infer_schema=False)
    true = trips.group_by("zone", "day", "age").len("true").sort("zone", "day", pl.col("age").cast(int))
    assert table.select("zone", "day", "age", true="count").equals(true.cast({"true": pl.Int64}))
    by_age = pl.read_parquet(published.folder / "counts" / "level_3.parquet")
    assert by_age["age"].to_list() == [str(age) for age in range(12)]
    assert by_age["age_1"].unique(maintain_order=True).to_list() == ["0..3", "4..7", "8..11"]


def test_verify_finds_rows_in_the_order_of_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table whose ages are sorted as text is not the one that is stated, within a batch of rows or across batches.

    The folder answers for 4..7 as for the four ages in it.
    """
    published = made(folder)
    ages = pl.read_csv(folder / "trips.csv")["age"]
    found = open_release(published.folder)
    assert found.query(age="4..7")["count"].item() == ages.is_between(4, 7).sum()
    inside = pl.read_csv(folder / "trips.csv").filter(pl.col("day") < "2024-02", age=11)
    assert found.query(day="2024-01", age="11")["count"].item() == inside.height
    path = published.folder / "counts" / "level_3.parquet"
    table = pl.read_parquet(path)
    for batch in (2, 1000):
        monkeypatch.setattr(tasks.format.batches, "BATCH_ROWS", batch)
        table.write_parquet(path)
        assert not any(failure.startswith("level_3: rows") for failure in verify(published.folder))
        table.sort("age").write_parquet(path)
        assert "level_3: rows must be sorted by their codes." in verify(published.folder)
        table.with_columns(age=pl.col("age").replace("3", "three")).write_parquet(path)
        assert any(failure.startswith("level_3") for failure in verify(published.folder))


def test_a_record_with_another_code_is_refused(folder: Path) -> None:
    """The error names the key that lists the codes, and no value."""
    with (folder / "trips.csv").open("a") as file:
        file.write("n,2024-02-03,5\n")
    with pytest.raises(InputError, match=re.escape("column day has codes that hierarchy.day lacks")) as refused:
        made(folder)
    assert "2024-02-03" not in str(refused.value)


def test_a_made_level_may_be_the_finest(folder: Path) -> None:
    """release.finest may stop at a made level; its rows stand in the order of the axis."""
    published = made(folder, release={"order": ["age", "day", "zone"], "finest": {"age": "age_2", "day": "month"}})
    assert verify(published.folder) == []
    table = pl.read_parquet(published.folder / "counts" / f"level_{len(published.levels) - 1}.parquet")
    assert "age" not in table.columns
    assert table["age_2"].unique(maintain_order=True).to_list()[-1] == "10..11"


def test_an_axis_must_not_share_a_column_with_another(folder: Path) -> None:
    """A feature with the name of a made level would give two columns of that name."""
    keys = SPEC | {
        "input": {"table": "trips.csv", "features": ["age", "age_1"]},
        "hierarchy": {"age": {"ordered": 12}, "age_1": {"values": 2}},
        "release": {"order": ["age", "age_1"]},
    }
    with pytest.raises(SpecError, match="two columns of the published tables the name age_1"):
        made(folder, **keys)


def test_only_ordered_features_have_columns_under_their_levels_names() -> None:
    """A codebook whose levels begin with the feature's name keeps the prefix; a feature with one level has its own name."""
    spec = {
        "input": {"features": ["age", "zone", "sex"]},
        "hierarchy": {"age": {"ordered": 9}, "zone": {"table": "z.csv", "levels": ["zone_big", "zone"]}, "sex": ["f"]},
    }
    flat = flat_features(spec)
    named = [("age", "age_1"), ("age", "age"), ("age", "month"), ("zone", "zone_big"), ("zone", "zone"), ("sex", "sex")]
    assert [column_name(axis, level, flat) for axis, level in named] == [
        *("age_1", "age", "age_month", "zone_zone_big", "zone_zone", "sex"),
    ]
