"""docs/how-to/ages-hours-days.md: its table, its spec and its commands work, and print what the page shows; so do the example specs."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
import yaml

from flows.api import PublishedRelease, release
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from tasks.tree.ordered import ordered_codes
from tasks.verify.folder import verify
from tests.support.pages import blocks_of, run_blocks, words
from tests.support.user import REPOSITORY

if TYPE_CHECKING:
    from tests.support.user import User

PAGE = (REPOSITORY / "docs" / "how-to" / "ages-hours-days.md").read_text(encoding="utf-8")
BLOCKS = blocks_of(PAGE)
SPECS = REPOSITORY / "deployments" / "specs"


def fenced(kind: str) -> str:
    """Return the one block of a kind that the page shows."""
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    return found


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, settle: Callable[[Path], "User"]) -> "User":
    """Return somebody who has saved the script and the spec of the page."""
    user = settle(tmp_path_factory.mktemp("reader"))
    (user.folder / "make_people.py").write_text(fenced("python"))
    (user.folder / "ages.yaml").write_text(fenced("yaml"))
    return user


def test_every_command_works_and_prints_what_is_shown(reader: "User") -> None:
    """No command fails; each line shown is printed, but for numbers that are noise: standard deviations are none."""
    printed = run_blocks(BLOCKS, reader.folder, reader.environment | {"COLUMNS": "200"})
    assert sum(bool(block.shown) for block in BLOCKS) == 2
    missing = []
    for block, text in zip(BLOCKS, printed, strict=True):
        lines = {words(line, is_exact=block.is_exact) for line in text.splitlines()}
        missing += [line for line in block.shown if words(line, is_exact=block.is_exact) not in lines]
    assert missing == []
    exact = [line for block in BLOCKS for line in block.shown if line.startswith("standard deviation")]
    assert exact
    assert {*exact} <= {line for text in printed for line in text.splitlines()}


@pytest.mark.parametrize(
    "split",
    [split for split in re.findall(r"^\| `(.+?)`(?:, `(.+?)`)? \|", PAGE, re.MULTILINE) for split in split if split],
)
def test_every_split_is_one(reader: "User", split: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each split in the table of the page can be planned, targets without epsilon."""
    monkeypatch.setenv("TRELLIS_HOME", str(reader.folder / "splits"))
    (reader.folder / "people.csv").touch()
    keys = yaml.safe_load(fenced("yaml"))
    keys["privacy"]["split"] = yaml.safe_load(split)
    if "targets" in split:
        del keys["privacy"]["epsilon"]
    (reader.folder / "split.yaml").write_text(yaml.safe_dump(keys))
    assert make_plan(load_spec(reader.folder / "split.yaml")).guarantee.rho > 0


def example(name: str, folder: Path, table: pl.DataFrame, file: str) -> PublishedRelease:
    """Release an example spec over a table."""
    table.write_csv(folder / file)
    (folder / f"{name}.yaml").write_text((SPECS / f"{name}.yaml").read_text())
    return release(folder / f"{name}.yaml")


def test_the_example_specs_are_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ages, zones by hour, hours by day, and daily counts of three years, each verified and asked for a range."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    generator = np.random.default_rng(2)
    ages = pl.DataFrame({"age": generator.integers(0, 101, 5000)})
    found = example("ages", tmp_path, ages, "people.csv")
    assert verify(found.folder) == []
    (row,) = found.query(age="18..24").to_dicts()
    assert abs(row["count"] - ages.filter(pl.col("age").is_between(18, 24)).height) < 7 * row["sd"]
    zones = pl.DataFrame({"district": ["A", "A", "B"], "zone": ["A1", "A2", "B1"]})
    zones.write_csv(tmp_path / "zones.csv")
    departures = pl.DataFrame(
        {"zone": generator.choice(zones["zone"].to_numpy(), 3000), "hour": generator.integers(0, 24, 3000)}
    )
    found = example("zone-hour", tmp_path, departures, "departures.csv")
    assert verify(found.folder) == []
    (row,) = found.query(hour="7..9", zone="district=A").to_dicts()
    inside = departures.filter(pl.col("hour").is_between(7, 9), pl.col("zone") != "B1").height
    assert abs(row["count"] - inside) < 7 * row["sd"]
    events = pl.DataFrame(
        {
            "hour": generator.integers(0, 24, 4000),
            "day": generator.choice(ordered_codes({"first": "2026-01-01", "last": "2026-06-30"}), 4000),
        }
    )
    found = example("hour-day", tmp_path, events, "events.csv")
    assert verify(found.folder) == []
    (row,) = found.query(hour="7..9", day="2026-01-10..2026-02-20").to_dicts()
    inside = events.filter(
        pl.col("hour").is_between(7, 9), pl.col("day").is_between(*map(pl.lit, ("2026-01-10", "2026-02-20")))
    ).height
    assert abs(row["count"] - inside) < 7 * row["sd"]
    days = np.array(ordered_codes({"first": "2024-01-01", "last": "2026-12-31"}))
    found = example("daily-counts", tmp_path, pl.DataFrame({"day": generator.choice(days, 8000)}), "visits.csv")
    assert verify(found.folder) == []
    (row,) = found.query(day="2025-03..2025-05").to_dicts()
    assert 0 < row["sd"] < 3 * 10
    most = {entry.axes["day"]: entry.deviations.most for entry in found.manifest.levels if entry.deviations}
    assert most["month"] <= 10 + 1e-6
    assert most["day"] <= 12 + 1e-6
