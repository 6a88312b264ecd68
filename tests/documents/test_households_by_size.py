"""docs/how-to/households-by-size.md: its commands work and print what the page shows, and its spec is the one that is drawn."""

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from flows.api import release
from flows.synthetic import synthesise_groups_answer
from tasks.verify.folder import verify
from tests.support.households import COUNTIES, draw_homes, people_of
from tests.support.pages import blocks_of, run_blocks, words
from tests.support.user import REPOSITORY

if TYPE_CHECKING:
    from tests.support.user import User

PAGE = (REPOSITORY / "docs" / "how-to" / "households-by-size.md").read_text(encoding="utf-8")
BLOCKS = blocks_of(PAGE)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, settle: Callable[[Path], "User"]) -> "User":
    """Return somebody who follows the page."""
    return settle(tmp_path_factory.mktemp("reader"))


def test_every_command_works_and_prints_what_is_shown(reader: "User") -> None:
    """No command fails, and each line shown is printed, but for numbers that are noise."""
    printed = run_blocks(BLOCKS, reader.folder, reader.environment | {"COLUMNS": "200"})
    assert sum(bool(block.shown) for block in BLOCKS) == 3
    missing = []
    for block, text in zip(BLOCKS, printed, strict=True):
        lines = {words(line, is_exact=block.is_exact) for line in text.splitlines()}
        missing += [line for line in block.shown if words(line, is_exact=block.is_exact) not in lines]
    assert missing == []


def test_the_spec_of_the_page_is_the_one_that_is_drawn(tmp_path: Path) -> None:
    """The page shows the spec that `trellis synthesise households` writes."""
    synthesise_groups_answer("households", 50, 3, tmp_path / "country", seed=2025)
    (shown,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert yaml.safe_load(shown) == yaml.safe_load((tmp_path / "country" / "people.yaml").read_text())


def test_the_example_spec_is_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """deployments/specs/households-by-size.yaml releases a table of its form."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    homes = draw_homes(200)
    with gzip.open(tmp_path / "people.csv.gz", "wb") as file:
        people_of(homes).write_csv(file)
    (tmp_path / "counties.csv").write_text("state,county\n" + "".join(f"{a},{b}\n" for a, b in COUNTIES))
    spec = tmp_path / "spec.yaml"
    spec.write_text((REPOSITORY / "deployments" / "specs" / "households-by-size.yaml").read_text())
    found = release(spec)
    assert verify(found.folder) == []
    (row,) = found.query(size="5..", region="A").to_dicts()
    assert row["low"] <= row["count"] <= row["high"]
