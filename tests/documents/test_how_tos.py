"""docs/tutorial.md and docs/how-to: scripts, specs and commands of the pages that lead through a release work, and print what is shown."""

import gzip
import os
import re
import shutil
import subprocess
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import duckdb
import numpy as np
import polars as pl
import pytest
import yaml

from flows.planning.plan import make_plan
from flows.specification.file import load_spec
from flows.synthetic import synthesise_answer
from tasks.ingest.task import read_in_memory
from tests.support.spec import spec_in
from tests.support.user import REPOSITORY, TRELLIS

END_OF_BLOCK = "=== the end of a block ==="
TRIP_FILE, BLOCK_FILE = "od/ri_od_main_JT00_2019.csv.gz", "ri_xwalk.csv.gz"  # below the address that the tutorial has


class Block(NamedTuple):
    """Commands of a page, what it shows of what they print, and whether the numbers in it are the same each time."""

    commands: str
    shown: list[str]
    is_exact: bool


class Page(NamedTuple):
    """A page that leads through a release, the blocks of commands that show what they print, and the reader's script, specs and views."""

    name: str
    shown: int
    script: str = ""
    specs: tuple[str, ...] = ()
    views: tuple[str, ...] = ()

    @property
    def text(self):
        """What it says."""
        return (REPOSITORY / "docs" / f"{self.name}.md").read_text(encoding="utf-8")

    def fenced(self, kind):
        """Return its blocks of a kind."""
        return re.findall(rf"^```{kind}\n(.*?)^```$", self.text, flags=re.MULTILINE | re.DOTALL)

    def listed(self):
        """Return its specs."""
        return [yaml.safe_load(text) for text in self.fenced("yaml")]

    def blocks(self):
        """Return its commands, with what is printed behind some of them."""
        both = r"^```sh\n(.*?)^```$(?:\n+^```(text|console)\n(.*?)^```$)?"
        found = re.findall(both, self.text, flags=re.MULTILINE | re.DOTALL)
        shown = [(block, kind, [line for line in of.splitlines() if line != "…"]) for block, kind, of in found]
        return [Block(commands, lines, kind == "text") for commands, kind, lines in shown]


TUTORIAL = Page("tutorial", 7)
AGES = Page("how-to/ages-hours-days", 2, "make_people.py", ("ages.yaml", "people-by-zone.yaml"))
TRIPS = Page("how-to/trips-by-mode-and-hour", 2, "make_trips.py", ("spec.yaml",))
OWN = Page("how-to/own-areas", 4)  # of the release of TRIPS
MARGINS = Page("how-to/margins", 8, "make_trips.py", ("margins.yaml", "groupings.yaml"))
SHAPED = ("by_mode", "by_zone", "by_trip")
LISTED = (tuple(f"{of}.{kind}" for of in SHAPED) for kind in ("yaml", "sql"))
SHAPE = Page("how-to/shape-your-table", 2, "make_tables.py", *LISTED)
HOUSEHOLDS = Page("how-to/households-by-size", 4)
SPLITS = [of for row in re.findall(r"^\| `(.+?)`(?:, `(.+?)`)? \|", AGES.text, re.MULTILINE) for of in row if of]


@pytest.fixture
def real():
    """Return the folder of the real tables; None without TRELLIS_DATA, and the tutorial's commands take made-up ones."""
    folder = Path(os.environ.get("TRELLIS_DATA") or "/nowhere") / "lodes_ri_2019"
    return folder if folder.is_dir() else None


@pytest.fixture
def address(real, tmp_path_factory):
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


def followed(page, user, address):
    """Save the script and the specs of a page, run its commands in one shell, which ends at the first that fails, and return what each printed."""
    if page.script:
        (code,) = page.fenced("python")
        (user.folder / page.script).write_text(code)
        for file, sql in zip(page.views, page.fenced("sql"), strict=True):
            (user.folder / file).write_text(sql)
        for file, keys in zip(page.specs, [keys for keys in page.listed() if "name" in keys], strict=True):
            (user.folder / file).write_text(yaml.safe_dump(keys, sort_keys=False))
    script = "".join(f"{block.commands}\necho '{END_OF_BLOCK}'\n" for block in page.blocks())
    environment = {"PATH": f"{TRELLIS.parent}:{os.environ['PATH']}", "LODES": address}
    environment |= {} if page is TUTORIAL else {"COLUMNS": "200"}
    run = partial(subprocess.run, cwd=user.folder, env=user.environment | environment, text=True, check=False)
    shell = run(["bash", "-euc", f"exec 2>&1 </dev/null\n{script}"], stdout=subprocess.PIPE)
    assert shell.returncode == 0, shell.stdout
    return shell.stdout.split(f"{END_OF_BLOCK}\n")[:-1]


def words(text, *, is_exact):
    """Return a text on one line; unless numbers are to be the same, with a # for each, left out or not, and for a share of noise rows."""
    line = " ".join(text.split())
    return line if is_exact else re.sub("(#%, )?at most #%|#%", "#", re.sub(r"\d[\d.,TZ]*|…", "#", line))


@pytest.mark.thorough
@pytest.mark.heavy("each command of a page is a process")
@pytest.mark.parametrize("page", [TUTORIAL, AGES, TRIPS, MARGINS, HOUSEHOLDS, SHAPE], ids=lambda page: page.name)
def test_every_command_works_and_prints_what_is_shown(page, newcomer, real, address):
    """No command fails; each line shown is printed, but for numbers that are noise or made up: those of a plan are none, nor are deviations."""
    if page is TUTORIAL and not shutil.which("curl"):
        pytest.skip("no download: there is no curl")
    missing, pages = list[str](), (TRIPS, OWN) if page is TRIPS else (page,)
    blocks = [block for of in pages for block in of.blocks()]
    for block, printed in zip(blocks, [text for of in pages for text in followed(of, newcomer, address)], strict=True):
        is_exact = block.is_exact and (page is not TUTORIAL or real is not None)
        lines = {words(line, is_exact=is_exact) for line in printed.splitlines()}
        missing += [line for line in block.shown if words(line, is_exact=is_exact) not in lines]
        deviations = {line for line in block.shown if page is AGES and line.startswith("standard deviation")}
        missing += deviations - set(printed.splitlines())
        if "ls" in block.commands.splitlines():  # every file of the folder
            both = (block.shown, printed.splitlines())
            shown, there = ({of for of in all_ if re.fullmatch(r"[\w.]+", of)} for all_ in both)
            assert shown == there >= {"report.html"}
    assert missing == []
    assert sum(bool(block.shown) for block in blocks) == sum(of.shown for of in pages)


def test_the_how_to_on_epsilon_quotes_what_the_tutorial_prints():
    """The answer of `plan --for` that it shows is one that the tutorial's commands print."""
    (quoted,) = re.findall(r"^    (.* takes ε = .*)$", Page("how-to/choose-epsilon", 0).text, flags=re.MULTILINE)
    assert quoted in {line for block in TUTORIAL.blocks() if block.is_exact for line in block.shown}


@pytest.mark.parametrize("split", SPLITS)
def test_every_split_is_one(tmp_path, own_home, split):
    """Each split in the table of the page on ages can be planned, targets without epsilon."""
    (tmp_path / "people.csv").touch()
    keys, *_ = AGES.listed()
    keys["privacy"]["split"] = yaml.safe_load(split)
    if "targets" in split:
        del keys["privacy"]["epsilon"]
    assert make_plan(load_spec(spec_in(tmp_path, keys, "split.yaml"))).guarantee.rho > 0


def test_every_view_has_each_record_once(tmp_path, monkeypatch):
    """The views of the page on shapes, as they stand there, are ingested by its specs: all counts of a wide table, trips that are no test, whole trips."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    (script,) = SHAPE.fenced("python")
    exec(compile(script, SHAPE.script, "exec"), {})  # noqa: S102 (the page's own)
    for sql in SHAPE.fenced("sql"):
        with duckdb.connect("shaped.duckdb") as con:
            con.execute(sql)
    found = dict[str, int]()
    for name, keys in zip(SHAPED, (keys for keys in SHAPE.listed() if "name" in keys), strict=True):
        plan = make_plan(load_spec(spec_in(tmp_path, keys, f"{name}.yaml")))
        found[name] = int(read_in_memory(plan.source, plan.units, plan.promised)[2].sum())
    counts = [row.split(",")[2:] for row in Path("wide.csv").read_text().splitlines()[1:]]
    purposes = [row.split(",")[2] for row in Path("trips.csv").read_text().splitlines()[1:]]
    trips = {row.split(",")[1] for row in Path("legs.csv").read_text().splitlines()[1:]}
    expected = (sum(map(int, np.ravel(counts))), len(purposes) - purposes.count("test"), len(trips))
    assert found == dict(zip(SHAPED, expected, strict=True))


def test_a_look_up_with_a_code_twice_is_refused_when_the_view_is_made(tmp_path, monkeypatch):
    """The look-up of the page on shapes has a primary key, so that no record is repeated."""
    monkeypatch.chdir(tmp_path)
    Path("blocks.csv").write_text("block,zone\n01,N1\n01,N2\n")
    Path("trips.csv").write_text("from_block,to_block,purpose\n01,01,work\n")
    (sql,) = [sql for sql in SHAPE.fenced("sql") if "PRIMARY KEY" in sql]
    with duckdb.connect() as con, pytest.raises(duckdb.ConstraintException):
        con.execute(sql)


def test_the_spec_of_the_page_is_the_one_that_is_drawn(tmp_path):
    """The page on households shows the spec that `trellis synthesise households` writes."""
    synthesise_answer("households", tmp_path / "country", 2025, groups=50, regions=3)
    assert HOUSEHOLDS.listed()[:1] == [yaml.safe_load((tmp_path / "country" / "people.yaml").read_text())]
