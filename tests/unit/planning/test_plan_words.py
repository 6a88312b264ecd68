"""What the page of a plan says, in words, of releases of many kinds."""

import html
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.api import plan_page
from tests.support.spec import SPEC

CODEBOOK = "region,province,municipality\nr1,r1p1,r1p1m1\nr1,r1p1,r1p1m2\nr1,r1p2,r1p2m1\nr2,r2p1,r2p1m1\n"
PRIVACY = SPEC["privacy"] | {"epsilon": 1.0}


@pytest.fixture(autouse=True)
def _tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be tables of trips and of people, and a store of the test's own."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "trips.csv").write_text("home,work,people\n")
    (tmp_path / "data" / "codebook.csv").write_text(CODEBOOK)
    (tmp_path / "people.csv").write_text("age,county,address\n")
    (tmp_path / "counties.csv").write_text("state,county\ns1,c1\ns1,c2\n")


def page_of(folder: Path, **more: Any) -> str:
    """Return the page of a plan of trips, or of what the keys say in place of them."""
    keys = {"privacy": PRIVACY, **more}
    (folder / "spec.yaml").write_text(yaml.safe_dump(SPEC | keys))
    return plan_page(folder / "spec.yaml")


def words_of(folder: Path, **more: Any) -> str:
    """Return the text of that page, as a reader sees it."""
    body = page_of(folder, **more).split("<body>")[1].split("<script")[0]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


def test_a_page_says_what_the_spec_tells_readers(tmp_path: Path) -> None:
    """The title heads the page, with what is counted and by whom; levels have the words of readers, and the name stays findable."""
    told = {"title": "Commuters", "description": "All who commute by train.", "source": "The railway"}
    hierarchy = SPEC["hierarchy"] | {"called": {"municipality": "town", "region": "county"}}
    invariant = {"invariants": ["region"], "i_accept_unprotected": True}
    page = page_of(tmp_path, **told, hierarchy=hierarchy, privacy=PRIVACY | invariant)
    assert "<h1>Commuters</h1>" in page
    assert "<title>Commuters: plan</title>" in page
    words = words_of(tmp_path, **told, hierarchy=hierarchy, privacy=PRIVACY | invariant)
    assert "All who commute by train. Source: The railway." in words
    assert "Spec synthetic. Dataset synthetic-country." in words
    assert "Decision about Commuters" in words
    for part in (
        "finest level (origin town, destination town)",
        "5 origin province, destination town",
        "level 2 (origin county, destination county): every count, published exactly",
    ):
        assert part in words
    assert "municipality" not in words.split("What exactly was planned")[0]


def test_a_promise_about_a_level_has_its_word(tmp_path: Path) -> None:
    """The level of `privacy.distinct` is named as readers call it."""
    privacy = {key: value for key, value in PRIVACY.items() if key != "accountant"}
    privacy |= {"max_records_per_unit": 2, "distinct": "municipality"}
    hierarchy = SPEC["hierarchy"] | {"called": {"municipality": "town"}}
    assert "different cells of level town." in words_of(tmp_path, hierarchy=hierarchy, privacy=privacy)


def test_a_page_without_a_title_has_the_name(tmp_path: Path) -> None:
    """The name of the spec heads the page, and nothing is said that the spec does not say."""
    page = page_of(tmp_path)
    assert "<h1>synthetic</h1>" in page
    assert 'class="about"' not in page
    assert "Source:" not in page
