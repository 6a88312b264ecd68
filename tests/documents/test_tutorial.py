"""docs/tutorial.md: each of its commands works, and prints what the page shows."""

import gzip
import os
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import polars as pl
import pytest

from tests.support.pages import blocks_of, not_printed, run_blocks
from tests.support.user import REPOSITORY, User

PAGE = (REPOSITORY / "docs" / "tutorial.md").read_text(encoding="utf-8")
COMMANDS = blocks_of(PAGE)
TRIPS, BLOCKS = "od/ri_od_main_JT00_2019.csv.gz", "ri_xwalk.csv.gz"  # below the address that the page has


def made_up(folder: Path) -> None:
    """Write tables with the columns of the real ones: six counties of two tracts of two blocks, and 400,000 jobs."""
    tracts = [f"44{county:03d}{tract:06d}" for county in (1, 3, 5, 7, 9, 11) for tract in (100, 200)]
    blocks = pl.DataFrame({"tabblk2010": [f"{tract}100{block}" for tract in tracts for block in (1, 2)]})
    codes = {"cty": 5, "trct": 11, "bgrp": 12}
    blocks = blocks.with_columns(pl.col("tabblk2010").str.head(digits).alias(name) for name, digits in codes.items())
    jobs = np.random.default_rng(7).multinomial(400_000, np.full(len(blocks) ** 2, len(blocks) ** -2.0))
    trips = blocks.select(w_geocode="tabblk2010").join(blocks.select(h_geocode="tabblk2010"), how="cross")
    for table, name in ((trips.with_columns(S000=pl.Series(jobs)), TRIPS), (blocks, BLOCKS)):
        (folder / name).write_bytes(gzip.compress(table.write_csv().encode()))


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing of requests."""


@pytest.fixture(scope="module")
def real() -> Path | None:
    """Return the folder of the real tables; None without TRELLIS_DATA, and the page's commands take made-up ones."""
    if not os.environ.get("TRELLIS_DATA"):
        return None
    folder = Path(os.environ["TRELLIS_DATA"]) / "lodes_ri_2019"
    return folder if folder.is_dir() else None


@pytest.fixture(scope="module")
def address(real: Path | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve the two files that the page downloads, below one address of this machine."""
    folder = tmp_path_factory.mktemp("lodes")
    (folder / "od").mkdir()
    if real:
        for name in (TRIPS, BLOCKS):
            shutil.copy(real / Path(name).name, folder / name)
    else:
        made_up(folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def printed(address: str, tmp_path_factory: pytest.TempPathFactory, settle: Callable[[Path], User]) -> list[str]:
    """Run the commands of the page in one shell, which ends at the first that fails; return what each block prints."""
    if not shutil.which("curl"):
        pytest.skip("no download: there is no curl")
    user = settle(tmp_path_factory.mktemp("learner"))
    return run_blocks(COMMANDS, user.folder, user.environment | {"LODES": address})


@pytest.mark.thorough
@pytest.mark.heavy("each command of the page is a process")
def test_every_command_works_and_prints_what_is_shown(printed: list[str], real: Path | None) -> None:
    """No command fails; each line shown is printed, but for numbers where they are noise or made up; `ls` shows each file of the folder."""
    assert len(printed) == len(COMMANDS) > 8
    assert not_printed(COMMANDS, printed, are_real=real is not None) == []
    (listed,) = [number for number, block in enumerate(COMMANDS) if "ls" in block.commands.splitlines()]
    there, shown = (
        sorted(line for line in lines if re.fullmatch(r"[\w.]+", line))
        for lines in (printed[listed].splitlines(), COMMANDS[listed].shown)
    )
    assert shown == there
    assert "report.html" in shown


def test_no_line_of_a_file_is_shown_by_its_number() -> None:
    """What a starter spec explains at which line changes with it, and the page would not."""
    assert re.findall(r"\(line \d+\)", PAGE) == []


def test_most_blocks_show_what_they_print() -> None:
    """The commands that plan, release, verify and tell what was spent are followed by what they print."""
    shown = "".join(block.commands for block in COMMANDS if block.shown)
    assert [of for of in ("plan", "release", "verify", "ledger") if f"trellis {of}" not in shown] == []


def test_the_how_to_on_epsilon_quotes_what_the_tutorial_prints() -> None:
    """The answer of `plan --for` that it shows is one that the tutorial's commands print."""
    how_to = (REPOSITORY / "docs" / "how-to" / "choose-epsilon.md").read_text(encoding="utf-8")
    quoted = re.findall(r"^    (.* takes ε = .*)$", how_to, flags=re.MULTILINE)
    assert len(quoted) == 1
    assert quoted[0] in {line for block in COMMANDS if block.is_exact for line in block.shown}
