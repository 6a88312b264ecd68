"""docs/how-to/margins.md: its table, its specs and its commands work, and print what the page shows; so does the example spec."""

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
import yaml

from flows.api import PublishedRelease, release
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from tests.support.pages import blocks_of, run_blocks, words
from tests.support.user import REPOSITORY

if TYPE_CHECKING:
    from tests.support.user import User

PAGE = (REPOSITORY / "docs" / "how-to" / "margins.md").read_text(encoding="utf-8")
BLOCKS = blocks_of(PAGE)
SPECS = ("margins", "groupings")


def fenced(kind: str) -> list[str]:
    """Return the blocks of a kind that the page shows."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, settle: Callable[[Path], "User"]) -> "User":
    """Return somebody who has saved the script and the two specs of the page."""
    user = settle(tmp_path_factory.mktemp("reader"))
    (script,) = fenced("python")
    (user.folder / "make_trips.py").write_text(script)
    for text in fenced("yaml"):
        keys = yaml.safe_load(text)
        if "name" in keys:
            (user.folder / f"{keys['name']}.yaml").write_text(text)
    return user


@pytest.fixture(scope="module")
def printed(reader: "User") -> list[str]:
    """Run the commands of the page, in a terminal that holds its lines."""
    return run_blocks(BLOCKS, reader.folder, reader.environment | {"COLUMNS": "200"})


def test_every_command_works_and_prints_what_is_shown(printed: list[str]) -> None:
    """No command fails; each line shown is printed, but for numbers that are noise. The plan's are the same each time."""
    assert sum(bool(block.shown) for block in BLOCKS) == 8
    missing = []
    for block, text in zip(BLOCKS, printed, strict=True):
        lines = {words(line, is_exact=block.is_exact) for line in text.splitlines()}
        missing += [line for line in block.shown if words(line, is_exact=block.is_exact) not in lines]
    assert missing == []


def test_the_views_are_as_near_as_the_page_says(reader: "User", printed: list[str]) -> None:
    """The table of modes has every mode, adds up to the trips, and is far nearer to the truth than a sum of small cells."""
    assert printed
    (table,) = (reader.folder / "out").glob("margins-*/views/mode.parquet")
    modes = pl.read_parquet(table)
    trips = pl.read_csv(reader.folder / "trips.csv", infer_schema=False)
    true = trips.group_by("mode").len().sort("mode")["len"]
    assert int(modes["count"].sum()) == trips.height
    assert (modes.sort("mode")["count"].cast(int) - true.cast(int)).abs().max() < 100  # σ is 20.6


def test_the_tree_pays_as_much_as_the_page_says(reader: "User", printed: list[str]) -> None:
    """The σ of the levels without views is the one that the page names, and the ratio follows from the plan's."""
    assert printed
    keys = yaml.safe_load((reader.folder / "margins.yaml").read_text())
    del keys["release"]["views"]
    (reader.folder / "plain.yaml").write_text(yaml.safe_dump(keys))
    sigmas = [
        make_plan(load_spec(reader.folder / f"{name}.yaml")).guarantee.noises[0].sigma for name in ("plain", "margins")
    ]
    assert f"σ = {sigmas[0]:.3f}" in PAGE
    assert f"{sigmas[1] / sigmas[0]:.2f} times the noise" in PAGE


def test_a_split_may_name_views(reader: "User", printed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The split that the page shows is one for its spec, and gives `modes` two of the eight parts."""
    assert printed
    monkeypatch.chdir(reader.folder)
    monkeypatch.setenv("TRELLIS_HOME", str(reader.folder / "split"))
    (piece,) = (keys for text in fenced("yaml") if "name" not in (keys := yaml.safe_load(text)))
    keys = yaml.safe_load((reader.folder / "groupings.yaml").read_text())
    keys["privacy"] |= piece["privacy"]
    (reader.folder / "split.yaml").write_text(yaml.safe_dump(keys))
    plan = make_plan(load_spec(reader.folder / "split.yaml"))
    scheme = plan.scheme
    share = dict(zip(scheme.measured, scheme.allocation.shares, strict=True))
    by_name = {name: share[number] for number, name in scheme.names.items()}
    assert by_name["modes"] * 8 == 2
    assert by_name["leaving"] * 8 == by_name["distances"] * 8 == 1


def test_the_example_of_both_marginals_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """deployments/specs/ri-both-marginals.yaml publishes its four views: its table of bands lists every pair of counties."""
    folder = tmp_path / "lodes_ri_2019"
    folder.mkdir()
    counties = sorted({line.partition(",")[0] for line in BANDS.read_text().splitlines()[1:]})
    blocks = [f"{county}{tract:06}1001" for county in counties for tract in (100, 200)]
    rows = [f"{block},{block[:12]},{block[:11]},{block[:5]}" for block in blocks]
    _zip(folder / "ri_xwalk.csv.gz", ["tabblk2010,bgrp,trct,cty", *rows])
    jobs = [f"{home},{work},{3 + len(home)}" for home in blocks for work in blocks]
    _zip(folder / "ri_od_main_JT00_2019.csv.gz", ["h_geocode,w_geocode,S000", *jobs])
    monkeypatch.setenv("TRELLIS_DATA", str(tmp_path))
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    made: PublishedRelease = release(EXAMPLE, output=tmp_path / "out")
    found = {path.stem: pl.read_parquet(path) for path in (made.folder / "views").glob("*.parquet")}
    assert {name: table.height for name, table in found.items()} == {
        "counties": 36,
        "living": 12,
        "working": 12,
        "far": 18,
    }
    assert len({int(table["count"].sum()) for table in found.values()}) == 1


EXAMPLE = REPOSITORY / "deployments" / "specs" / "ri-both-marginals.yaml"
BANDS = EXAMPLE.with_name("ri-bands.csv")


def _zip(path: Path, lines: list[str]) -> None:
    with gzip.open(path, "wt") as file:
        file.write("\n".join(lines) + "\n")
