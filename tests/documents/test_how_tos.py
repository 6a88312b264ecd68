"""docs/how-to: the scripts, specs and commands of the pages that lead through a release work, and print what the pages show."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl
import pytest
import yaml

from flows.api import PublishedRelease, release
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.synthetic import synthesise_groups_answer
from tests.support.pages import blocks_of, fenced, not_printed, run_blocks
from tests.support.user import REPOSITORY

if TYPE_CHECKING:
    from tests.support.user import User

INTERVAL = re.compile(r"([\d,]+) to ([\d,]+) \(level (\d)\)")


class Page(NamedTuple):
    """A page that leads through a release.

    Attributes:
        name: its file in docs/how-to.
        shown: how many of its blocks of commands are followed by what they print.
        script: what the reader calls its Python; empty where it has none.
        specs: what the reader calls its specs, in their order.
    """

    name: str
    shown: int
    script: str = ""
    specs: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What it says."""
        return (REPOSITORY / "docs" / "how-to" / f"{self.name}.md").read_text(encoding="utf-8")

    def keys(self) -> list[dict[str, Any]]:
        """Return its whole specs."""
        return [keys for text in fenced(self.text, "yaml") if "name" in (keys := yaml.safe_load(text))]


AGES = Page("ages-hours-days", 2, "make_people.py", ("ages.yaml",))
TRIPS = Page("trips-by-mode-and-hour", 3, "make_trips.py", ("spec.yaml",))
MARGINS = Page("margins", 8, "make_trips.py", ("margins.yaml", "groupings.yaml"))
HOUSEHOLDS = Page("households-by-size", 3)
SPLITS = [
    split for row in re.findall(r"^\| `(.+?)`(?:, `(.+?)`)? \|", AGES.text, re.MULTILINE) for split in row if split
]
ORDERS = [line.strip("|").split("|") for line in TRIPS.text.splitlines() if line.startswith("|")]


class Followed(NamedTuple):
    """What comes of following a page: the folder of the reader, and what each block of commands printed."""

    folder: Path
    printed: list[str]


@pytest.fixture(scope="module")
def follow(tmp_path_factory: pytest.TempPathFactory, settle: Callable[[Path], "User"]) -> Callable[[Page], Followed]:
    """Return what saves the script and the specs of a page, and runs its commands in a terminal that holds its lines, once."""
    done = dict[str, Followed]()

    def of(page: Page) -> Followed:
        if page.name not in done:
            user = settle(tmp_path_factory.mktemp("reader"))
            if page.script:
                (script,) = fenced(page.text, "python")
                (user.folder / page.script).write_text(script)
                for file, keys in zip(page.specs, page.keys(), strict=True):
                    (user.folder / file).write_text(yaml.safe_dump(keys, sort_keys=False))
            printed = run_blocks(blocks_of(page.text), user.folder, user.environment | {"COLUMNS": "200"})
            done[page.name] = Followed(user.folder, printed)
        return done[page.name]

    return of


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a store of its own, in which tables are looked for."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.thorough
@pytest.mark.heavy("each command of a page is a process")
@pytest.mark.parametrize("page", [AGES, TRIPS, MARGINS, HOUSEHOLDS], ids=lambda page: page.name)
def test_every_command_works_and_prints_what_is_shown(follow: Callable[[Page], Followed], page: Page) -> None:
    """No command fails; each line shown is printed, but for numbers that are noise: those of a plan are none, nor are deviations."""
    blocks, printed = blocks_of(page.text), follow(page).printed
    assert sum(bool(block.shown) for block in blocks) == page.shown
    assert not_printed(blocks, printed) == []
    exact = {line for block in blocks for line in block.shown if line.startswith("standard deviation")}
    assert exact <= {line for text in printed for line in text.splitlines()}
    assert bool(exact) == (page is AGES)


@pytest.mark.parametrize("split", SPLITS)
def test_every_split_is_one(place: Path, split: str) -> None:
    """Each split in the table of the page on ages can be planned, targets without epsilon."""
    (place / "people.csv").touch()
    (keys,) = AGES.keys()
    keys["privacy"]["split"] = yaml.safe_load(split)
    if "targets" in split:
        del keys["privacy"]["epsilon"]
    (place / "split.yaml").write_text(yaml.safe_dump(keys))
    assert make_plan(load_spec(place / "split.yaml")).guarantee.rho > 0


def test_the_spec_of_the_page_is_the_one_that_is_drawn(tmp_path: Path) -> None:
    """The page on households shows the spec that `trellis synthesise households` writes."""
    synthesise_groups_answer("households", 50, 3, tmp_path / "country", seed=2025)
    assert HOUSEHOLDS.keys() == [yaml.safe_load((tmp_path / "country" / "people.yaml").read_text())]


def orders() -> list[list[str]]:
    """Return the orders of which the page on modes and hours has a table."""
    return [re.findall(r"[\w.]+", heading.split("`")[1]) for heading in ORDERS[0][2:]]


def test_the_first_order_of_the_table_is_that_of_the_spec() -> None:
    """The order with attributes last is the one that the page's spec has, and the others list the same entries."""
    (keys,) = TRIPS.keys()
    assert orders()[0] == keys["release"]["order"]
    assert all(sorted(order) == sorted(orders()[0]) for order in orders())


@pytest.fixture(scope="module")
def ordered(follow: Callable[[Page], Followed]) -> list[PublishedRelease]:
    """Release the page's trips in each order of its table, in a store that the page's commands have not charged."""
    folder = follow(TRIPS).folder
    (keys,) = TRIPS.keys()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("TRELLIS_HOME", str(folder / "orders"))
        budget = {"epsilon": 20, "delta": 1e-7}
        return [release(keys | {"release": {"order": order}, "budget": budget}) for order in orders()]


@pytest.mark.thorough
@pytest.mark.heavy("three releases of many cells")
def test_each_order_answers_as_the_table_says(
    follow: Callable[[Page], Followed], ordered: list[PublishedRelease]
) -> None:
    """Each question has the true count that the table shows, and in each order the level, and an interval about as wide."""
    trips = pl.read_csv(follow(TRIPS).folder / "trips.csv", infer_schema=False)
    for question, true, *shown in ORDERS[2:]:
        areas = dict(part.split("=", 1) for part in question.strip(" `").split())
        is_inside = [
            pl.col(axis) == area if axis == "hour" else pl.col(axis).str.starts_with(area.rpartition("=")[2])
            for axis, area in areas.items()
        ]
        assert trips.filter(*is_inside).height == number(true)
        for made, cell in zip(ordered, shown, strict=True):
            interval = INTERVAL.fullmatch(cell.strip())
            assert interval
            low, high, level = map(number, interval.groups())
            (answer,) = made.query(areas).to_dicts()
            assert answer["level"] == level
            assert 0.4 < (answer["high"] - answer["low"]) / (high - low) < 2.5, (question, cell)


@pytest.mark.thorough
@pytest.mark.heavy("the page is followed first")
def test_attributes_first_are_better_for_totals_and_worse_for_pairs(ordered: list[PublishedRelease]) -> None:
    """Totals by mode and hour have intervals at least ten times narrower with attributes first, pairs of zones likewise with them last."""
    last, between, first = ordered

    def width(made: PublishedRelease, areas: dict[str, str]) -> int:
        (answer,) = made.query(areas).to_dicts()
        return int(answer["high"] - answer["low"])

    for total in ({"mode": "bus"}, {"mode": "bus", "hour": "8"}):
        assert width(first, total) * 10 < width(last, total)
    assert width(first, {"mode": "bus"}) < width(between, {"mode": "bus"}) < width(last, {"mode": "bus"})
    for places in ({"from": "E3", "to": "A5"}, {"from": "A1"}):
        assert width(last, places) * 10 < width(first, places)


def number(text: str) -> int:
    """Return a number of a page."""
    return int(text.replace(",", ""))


@pytest.mark.thorough
@pytest.mark.heavy("the page is followed first")
def test_views_are_as_near_and_cost_as_much_as_the_page_says(
    follow: Callable[[Page], Followed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modes add up to the trips and are near the truth; without views σ is the one that is named; the split gives `modes` two of eight parts."""
    folder = follow(MARGINS).folder
    (table,) = (folder / "out").glob("margins-*/views/mode.parquet")
    modes = pl.read_parquet(table)
    trips = pl.read_csv(folder / "trips.csv", infer_schema=False)
    true = trips.group_by("mode").len().sort("mode")["len"]
    assert int(modes["count"].sum()) == trips.height
    assert (modes.sort("mode")["count"].cast(int) - true.cast(int)).abs().max() < 100  # σ is 20.6

    monkeypatch.setenv("TRELLIS_HOME", str(folder / "plans"))
    plain, groupings = MARGINS.keys()
    views = plain["release"].pop("views")
    (piece,) = (keys for text in fenced(MARGINS.text, "yaml") if "name" not in (keys := yaml.safe_load(text)))
    groupings["privacy"] |= piece["privacy"]
    with_views = plain | {"release": plain["release"] | {"views": views}}
    plans = []
    for keys in (plain, with_views, groupings):
        (folder / "planned.yaml").write_text(yaml.safe_dump(keys, sort_keys=False))
        plans.append(make_plan(load_spec(folder / "planned.yaml")))
    sigmas = [made.guarantee.noises[0].sigma for made in plans[:2]]
    assert f"σ = {sigmas[0]:.3f}" in MARGINS.text
    assert f"{sigmas[1] / sigmas[0]:.2f} times the noise" in MARGINS.text
    scheme = plans[2].scheme
    share = dict(zip(scheme.measured, scheme.allocation.shares, strict=True))
    by_name = {name: share[number] for number, name in scheme.names.items()}
    assert by_name["modes"] * 8 == 2
    assert by_name["leaving"] * 8 == by_name["distances"] * 8 == 1
