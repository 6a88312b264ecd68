"""docs/tutorial.md and docs/how-to: scripts, specs and commands of the pages that lead through a release work, and print what is shown."""

import gzip
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
import yaml

from flows.api import release
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.synthetic import synthesise_groups_answer
from tests.support.user import REPOSITORY, TRELLIS, User

END_OF_BLOCK = "=== the end of a block ==="
TRIP_FILE, BLOCK_FILE = "od/ri_od_main_JT00_2019.csv.gz", "ri_xwalk.csv.gz"  # below the address that the tutorial has


class Block(NamedTuple):
    """Commands of a page, what it shows of what they print, and whether the numbers in it are the same each time."""

    commands: str
    shown: list[str]
    is_exact: bool


class Page(NamedTuple):
    """A page that leads through a release, the blocks of commands that show what they print, and the reader's script and specs."""

    name: str
    shown: int
    script: str = ""
    specs: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What it says."""
        return (REPOSITORY / "docs" / f"{self.name}.md").read_text(encoding="utf-8")

    def fenced(self, kind: str) -> list[str]:
        """Return its blocks of a kind."""
        return re.findall(rf"^```{kind}\n(.*?)^```$", self.text, flags=re.MULTILINE | re.DOTALL)

    def listed(self) -> list[dict[str, Any]]:
        """Return its specs."""
        return [yaml.safe_load(text) for text in self.fenced("yaml")]

    def blocks(self) -> list[Block]:
        """Return its commands, with what is printed behind some of them."""
        both = r"^```sh\n(.*?)^```$(?:\n+^```(text|console)\n(.*?)^```$)?"
        found = re.findall(both, self.text, flags=re.MULTILINE | re.DOTALL)
        return [
            Block(commands, [line for line in shown.splitlines() if line != "…"], kind == "text")
            for commands, kind, shown in found
        ]


TUTORIAL = Page("tutorial", 7)
AGES = Page("how-to/ages-hours-days", 2, "make_people.py", ("ages.yaml",))
TRIPS = Page("how-to/trips-by-mode-and-hour", 3, "make_trips.py", ("spec.yaml",))
MARGINS = Page("how-to/margins", 8, "make_trips.py", ("margins.yaml", "groupings.yaml"))
HOUSEHOLDS = Page("how-to/households-by-size", 3)
SPLITS = [of for row in re.findall(r"^\| `(.+?)`(?:, `(.+?)`)? \|", AGES.text, re.MULTILINE) for of in row if of]


class Followed(NamedTuple):
    """What comes of following a page: the folder of the reader, and what each block of commands printed."""

    folder: Path
    printed: list[str]


@pytest.fixture(scope="module")
def real() -> Path | None:
    """Return the folder of the real tables; None without TRELLIS_DATA, and the tutorial's commands take made-up ones."""
    folder = Path(os.environ.get("TRELLIS_DATA") or "/nowhere") / "lodes_ri_2019"
    return folder if folder.is_dir() else None


@pytest.fixture(scope="module")
def address(real: Path | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the two files that the tutorial downloads; made up, they have six counties of two tracts of two blocks, and 400,000 jobs."""
    folder = tmp_path_factory.mktemp("lodes")
    (folder / "od").mkdir()
    if real:
        for name in (TRIP_FILE, BLOCK_FILE):
            shutil.copy(real / Path(name).name, folder / name)
    else:
        tracts = [f"44{county:03d}{tract:06d}" for county in (1, 3, 5, 7, 9, 11) for tract in (100, 200)]
        blocks = pl.DataFrame({"tabblk2010": [f"{tract}100{block}" for tract in tracts for block in (1, 2)]})
        codes = {"cty": 5, "trct": 11, "bgrp": 12}
        blocks = blocks.with_columns(pl.col("tabblk2010").str.head(digits).alias(of) for of, digits in codes.items())
        jobs = np.random.default_rng(7).multinomial(400_000, np.full(len(blocks) ** 2, len(blocks) ** -2.0))
        trips = blocks.select(w_geocode="tabblk2010").join(blocks.select(h_geocode="tabblk2010"), how="cross")
        for table, name in ((trips.with_columns(S000=pl.Series(jobs)), TRIP_FILE), (blocks, BLOCK_FILE)):
            (folder / name).write_bytes(gzip.compress(table.write_csv().encode()))
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def follow(
    tmp_path_factory: pytest.TempPathFactory, settle: Callable[[Path], User], address: str
) -> Callable[[Page], Followed]:
    """Return what saves the script and the specs of a page, and runs its commands in one shell, which ends at the first that fails, once."""
    done = dict[Page, Followed]()

    def of(page: Page) -> Followed:
        if page in done:
            return done[page]
        user = settle(tmp_path_factory.mktemp("reader"))
        if page.script:
            (code,) = page.fenced("python")
            (user.folder / page.script).write_text(code)
            for file, keys in zip(page.specs, [keys for keys in page.listed() if "name" in keys], strict=True):
                (user.folder / file).write_text(yaml.safe_dump(keys, sort_keys=False))
        script = "".join(f"{block.commands}\necho '{END_OF_BLOCK}'\n" for block in page.blocks())
        environment = {"PATH": f"{TRELLIS.parent}:{os.environ['PATH']}", "LODES": address}
        if page is not TUTORIAL:
            environment["COLUMNS"] = "200"
        shell = subprocess.run(
            ["bash", "-eu", "-c", script],
            cwd=user.folder,
            env=user.environment | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert shell.returncode == 0, shell.stdout
        done[page] = Followed(user.folder, shell.stdout.split(f"{END_OF_BLOCK}\n")[:-1])
        return done[page]

    return of


def words(text: str, *, is_exact: bool) -> str:
    """Return a text on one line; unless numbers are to be the same, with a # for each, and for each that is left out.

    Likewise for a share of noise rows: whether there are any, and whether it is estimated, depends on the noise.
    """
    line = " ".join(text.split())
    return line if is_exact else re.sub("(#%, )?at most #%|#%", "#", re.sub(r"\d[\d.,TZ]*|…", "#", line))


@pytest.mark.thorough
@pytest.mark.heavy("each command of a page is a process")
@pytest.mark.parametrize("page", [TUTORIAL, AGES, TRIPS, MARGINS, HOUSEHOLDS], ids=lambda page: page.name)
def test_every_command_works_and_prints_what_is_shown(
    follow: Callable[[Page], Followed], page: Page, real: Path | None
) -> None:
    """No command fails; each line shown is printed, but for numbers that are noise or made up: those of a plan are none, nor are deviations."""
    if page is TUTORIAL and not shutil.which("curl"):
        pytest.skip("no download: there is no curl")
    missing = list[str]()
    for block, printed in zip(page.blocks(), follow(page).printed, strict=True):
        is_exact = block.is_exact and (page is not TUTORIAL or real is not None)
        lines = {words(line, is_exact=is_exact) for line in printed.splitlines()}
        missing += [line for line in block.shown if words(line, is_exact=is_exact) not in lines]
        deviations = {line for line in block.shown if page is AGES and line.startswith("standard deviation")}
        missing += deviations - set(printed.splitlines())
        if "ls" in block.commands.splitlines():  # every file of the folder
            shown, there = (
                {of for of in all_ if re.fullmatch(r"[\w.]+", of)} for all_ in (block.shown, printed.splitlines())
            )
            assert shown == there >= {"report.html"}
    assert missing == []
    assert sum(bool(block.shown) for block in page.blocks()) == page.shown


def test_the_how_to_on_epsilon_quotes_what_the_tutorial_prints() -> None:
    """The answer of `plan --for` that it shows is one that the tutorial's commands print."""
    (quoted,) = re.findall(r"^    (.* takes ε = .*)$", Page("how-to/choose-epsilon", 0).text, flags=re.MULTILINE)
    assert quoted in {line for block in TUTORIAL.blocks() if block.is_exact for line in block.shown}


@pytest.mark.parametrize("split", SPLITS)
def test_every_split_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: str) -> None:
    """Each split in the table of the page on ages can be planned, targets without epsilon."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    (tmp_path / "people.csv").touch()
    (keys,) = AGES.listed()
    keys["privacy"]["split"] = yaml.safe_load(split)
    if "targets" in split:
        del keys["privacy"]["epsilon"]
    (tmp_path / "split.yaml").write_text(yaml.safe_dump(keys))
    assert make_plan(load_spec(tmp_path / "split.yaml")).guarantee.rho > 0


def test_the_spec_of_the_page_is_the_one_that_is_drawn(tmp_path: Path) -> None:
    """The page on households shows the spec that `trellis synthesise households` writes."""
    synthesise_groups_answer("households", 50, 3, tmp_path / "country", seed=2025)
    assert HOUSEHOLDS.listed() == [yaml.safe_load((tmp_path / "country" / "people.yaml").read_text())]


def number(text: str) -> int:
    """Return a number of a page."""
    return int(text.replace(",", ""))


@pytest.mark.thorough
@pytest.mark.heavy("three releases of many cells")
def test_each_order_answers_as_the_table_says(
    follow: Callable[[Page], Followed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page's spec has the first; each question has the true count, and in each order the level, and an interval about as wide."""
    folder, (keys,) = follow(TRIPS).folder, TRIPS.listed()
    heads, _, *rows = [line.strip("|").split("|") for line in TRIPS.text.splitlines() if line.startswith("|")]
    orders = [re.findall(r"[\w.]+", head.split("`")[1]) for head in heads[2:]]
    assert orders[0] == keys["release"]["order"]
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TRELLIS_HOME", str(folder / "orders"))  # which the page's commands have not charged
    keys["budget"] = {"epsilon": 20, "delta": 1e-7}
    releases = [release(keys | {"release": {"order": order}}) for order in orders]
    trips = pl.read_csv("trips.csv", infer_schema=False)
    for question, true, *shown in rows:
        areas = dict(part.split("=", 1) for part in question.strip(" `").split())
        is_inside = [
            pl.col(axis) == area if axis == "hour" else pl.col(axis).str.starts_with(area.rpartition("=")[2])
            for axis, area in areas.items()
        ]
        assert trips.filter(*is_inside).height == number(true)
        for made, cell in zip(releases, shown, strict=True):
            ((low, high, level),) = re.findall(r"([\d,]+) to ([\d,]+) \(level (\d)\)", cell)
            (answer,) = made.query(areas).to_dicts()
            assert answer["level"] == number(level)
            width = (answer["high"] - answer["low"]) / (number(high) - number(low))
            assert 0.4 < width < 2.5, (question, cell)


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
    assert ((modes.sort("mode")["count"].cast(int) - true.cast(int)).abs() < 100).all()  # σ is 20.6

    monkeypatch.setenv("TRELLIS_HOME", str(folder / "plans"))
    with_views, groupings, piece = MARGINS.listed()
    plain = with_views | {"release": {key: of for key, of in with_views["release"].items() if key != "views"}}
    plans = []
    for keys in (plain, with_views, groupings | {"privacy": groupings["privacy"] | piece["privacy"]}):
        (folder / "planned.yaml").write_text(yaml.safe_dump(keys, sort_keys=False))
        plans.append(make_plan(load_spec(folder / "planned.yaml")))
    sigmas = [made.guarantee.noises[0].sigma for made in plans[:2]]
    assert f"σ = {sigmas[0]:.3f}" in MARGINS.text
    assert f"{sigmas[1] / sigmas[0]:.2f} times the noise" in MARGINS.text
    scheme = plans[2].scheme
    share = dict(zip(scheme.measured, scheme.allocation.shares, strict=True))
    by_name = {name: share[at] * 8 for at, name in scheme.names.items()}
    assert [by_name[name] for name in ("modes", "leaving", "distances")] == [2, 1, 1]
