"""docs/how-to/trips-by-mode-and-hour.md: its table, its spec and its commands work, and print what the page shows."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
import yaml

from flows.api import PublishedRelease, release
from tests.support.pages import blocks_of, run_blocks, words
from tests.support.user import REPOSITORY

if TYPE_CHECKING:
    from tests.support.user import User

PAGE = (REPOSITORY / "docs" / "how-to" / "trips-by-mode-and-hour.md").read_text(encoding="utf-8")
BLOCKS = blocks_of(PAGE)
INTERVAL = re.compile(r"([\d,]+) to ([\d,]+) \(level (\d)\)")


def fenced(kind: str) -> str:
    """Return the only block of a kind that the page shows."""
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    return str(found)


def table() -> list[list[str]]:
    """Return the rows of the table of orders, its heading first, without the line below the heading."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|")]
    return [row for row in rows if not row[0].startswith("---")]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, settle: Callable[[Path], "User"]) -> "User":
    """Return somebody who has saved the script and the spec of the page."""
    user = settle(tmp_path_factory.mktemp("reader"))
    (user.folder / "make_trips.py").write_text(fenced("python"))
    (user.folder / "spec.yaml").write_text(fenced("yaml"))
    return user


@pytest.fixture(scope="module")
def printed(reader: "User") -> list[str]:
    """Run the commands of the page, in a terminal that holds its lines."""
    return run_blocks(BLOCKS, reader.folder, reader.environment | {"COLUMNS": "200"})


@pytest.fixture(scope="module")
def released(reader: "User", printed: list[str]) -> list[PublishedRelease]:
    """Release the page's trips in each order of its table, in a store that the page's commands have not charged."""
    assert printed
    keys = yaml.safe_load(fenced("yaml"))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(reader.folder)
        patch.setenv("TRELLIS_HOME", str(reader.folder / "orders"))
        made = []
        for heading in table()[0][2:]:
            order = re.findall(r"[\w.]+", heading.split("`")[1])
            made.append(release(keys | {"release": {"order": order}, "budget": {"epsilon": 20, "delta": 1e-7}}))
        return made


def test_every_command_works_and_prints_what_is_shown(printed: list[str]) -> None:
    """No command fails; each line shown is printed, but for numbers that are noise. The plan's are the same each time."""
    assert sum(bool(block.shown) for block in BLOCKS) == 3
    missing = []
    for block, text in zip(BLOCKS, printed, strict=True):
        lines = {words(line, is_exact=block.is_exact) for line in text.splitlines()}
        missing += [line for line in block.shown if words(line, is_exact=block.is_exact) not in lines]
    assert missing == []


def test_the_first_order_of_the_table_is_that_of_the_spec() -> None:
    """The order with attributes last is the one that the page's spec has, and the others list the same entries."""
    orders = [re.findall(r"[\w.]+", heading.split("`")[1]) for heading in table()[0][2:]]
    assert orders[0] == yaml.safe_load(fenced("yaml"))["release"]["order"]
    assert all(sorted(order) == sorted(orders[0]) for order in orders)


def test_each_order_answers_as_the_table_says(reader: "User", released: list[PublishedRelease]) -> None:
    """Each question has the true count that the table shows, and in each order the level, and an interval about as wide."""
    trips = pl.read_csv(reader.folder / "trips.csv", infer_schema=False)
    for question, true, *shown in table()[1:]:
        areas = dict(part.split("=", 1) for part in question.strip("`").split())
        of_codes = (
            pl.col(axis).str.starts_with(area.rpartition("=")[2]) for axis, area in areas.items() if axis != "hour"
        )
        hours = [pl.col("hour") == areas["hour"]] if "hour" in areas else []
        assert trips.filter(*of_codes, *hours).height == number(true)
        for made, cell in zip(released, shown, strict=True):
            interval = INTERVAL.fullmatch(cell)
            assert interval
            low, high, level = map(number, interval.groups())
            (answer,) = made.query(areas).to_dicts()
            assert answer["level"] == level
            assert 0.4 < (answer["high"] - answer["low"]) / (high - low) < 2.5, (question, cell)


def test_attributes_first_are_better_for_totals_and_worse_for_pairs(released: list[PublishedRelease]) -> None:
    """Totals by mode and hour have intervals at least ten times narrower with attributes first, pairs of zones likewise with them last."""
    last, between, first = released

    def width(made: PublishedRelease, **areas: str) -> int:
        (answer,) = made.query({axis.rstrip("_"): area for axis, area in areas.items()}).to_dicts()
        return int(answer["high"] - answer["low"])

    for total in ({"mode": "bus"}, {"mode": "bus", "hour": "8"}):
        assert width(first, **total) * 10 < width(last, **total)
    assert width(first, mode="bus") < width(between, mode="bus") < width(last, mode="bus")
    for places in ({"from_": "E3", "to": "A5"}, {"from_": "A1"}):
        assert width(last, **places) * 10 < width(first, **places)


def number(text: str) -> int:
    """Return a number of the page."""
    return int(text.replace(",", ""))
