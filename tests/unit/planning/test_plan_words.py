"""What the page of a plan says, in words, of releases of many kinds."""

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.api import plan_page
from tasks.words.numbers import rounded_up
from tests.support.spec import SPEC

CODEBOOK = "region,province,municipality\nr1,r1p1,r1p1m1\nr1,r1p1,r1p1m2\nr1,r1p2,r1p2m1\nr2,r2p1,r2p1m1\n"
PRIVACY = SPEC["privacy"] | {"epsilon": 1.0}
ADDED = {key: value for key, value in PRIVACY.items() if key != "accountant"} | {"neighbours": "add_remove"}
SIZES = {
    "input": {"table": "people.csv", "group": "address"},
    "hierarchy": {"region": {"table": "counties.csv", "levels": ["state", "county"]}},
    "release": {"group_sizes": {"region": "county", "largest": 20}},
    "mechanism": "group_sizes",
    "privacy": ADDED,
}
AGES = {
    "input": {"table": "people.csv", "features": ["age"]},
    "hierarchy": {"age": {"ordered": 101}},
    "release": {"order": ["age"]},
    "mechanism": "unbiased_tree",
    "privacy": ADDED,
}
TARGETS = {key: value for key, value in ADDED.items() if key != "epsilon"}


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


def words_in(page: str) -> str:
    """Return the text of a page, as a reader sees it."""
    body = page.split("<body>")[1].split("<script")[0]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split())


def words_of(folder: Path, **more: Any) -> str:
    """Return the text of the page of a plan."""
    return words_in(page_of(folder, **more))


def test_a_page_says_what_the_spec_tells_readers(tmp_path: Path) -> None:
    """The title heads the page, with what is counted and by whom; levels have the words of readers, and the name stays findable."""
    told = {"title": "Commuters", "description": "All who commute by train.", "source": "The railway"}
    hierarchy = SPEC["hierarchy"] | {"called": {"municipality": "town", "region": "county"}}
    invariant = {"invariants": ["region"], "i_accept_unprotected": True}
    page = page_of(tmp_path, **told, hierarchy=hierarchy, privacy=PRIVACY | invariant)
    assert "<h1>Commuters</h1>" in page
    assert "<title>Commuters: plan</title>" in page
    words = words_in(page)
    assert "Each count but those of levels 0 to 2 gets noise" in words
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


def test_a_guess_of_groups_is_of_groups(tmp_path: Path) -> None:
    """Where groups are counted by their size, what is guessed, counted and uneven is groups."""
    words = words_of(tmp_path, **SIZES, expected_total=3006)
    assert "With 3,006 groups (a guess from the spec)" in words
    assert "of the finest level's groups, typically" in words
    assert "It shows a guess of the number of groups" in words
    assert "no guess of the number of groups" in words_of(tmp_path, **SIZES)
    worth = words.split("What the numbers will be worth")[1].split("What ε means")[0]
    assert "records" not in worth


@pytest.mark.parametrize(
    ("split", "told"),
    [
        ({"targets": {"age": 6}}, "Only level 7 is measured, and all measurements together give each count"),
        ({"targets": {"age": 6, "age_1": 4}}, "Only levels 1 and 7 are measured, and"),
        ({"workload": "ranges"}, "Every level is measured, and all measurements together give each count"),
    ],
)
def test_only_the_levels_that_are_measured_are_called_so(split: dict[str, Any], told: str, tmp_path: Path) -> None:
    """The text names the same levels as measured as the table does; with targets these may be few."""
    privacy = (TARGETS if "targets" in split else ADDED) | {"split": split}
    words = words_of(tmp_path, **AGES | {"privacy": privacy})
    assert told in words
    table = words.split("possible counts how")[1].split("Possible counts are")[0]
    measured = re.findall(r"(\d) (?:everything|age(?: age_\d)?) \d+ measured with noise", table)
    numbers = re.findall(r"\d", told) or [str(level) for level in range(8)]
    assert measured == numbers
    assert "Each count gets noise on purpose" in words


def test_a_cost_has_the_same_digits_everywhere(tmp_path: Path) -> None:
    """What is spent stands on the page several times, in six digits, rounded up, and in full only where the fingerprint is."""
    page = page_of(tmp_path)
    after, words = stated_in(page)["budget"]["after"], words_in(page)
    assert "Each count but those of level 0 gets noise on purpose" in words  # the total is public
    shown = re.findall(r"\d+\.\d+", words.split("What exactly was planned")[0])
    near = [of for of in shown if float(of) == pytest.approx(after, rel=2e-3)]
    assert len(near) >= 4
    assert set(near) == {rounded_up(after)}
    assert "<h1>synthetic</h1>" in page  # the name, where there is no title
    assert 'class="about"' not in page
    assert "Source:" not in page


def test_an_epsilon_that_protects_nobody_is_called_that(tmp_path: Path) -> None:
    """Counts that have hardly any noise are not called exact, and no limit is stated where there is none."""
    words = words_of(tmp_path, privacy=PRIVACY | {"epsilon": 900.0}, budget={"epsilon": 1000.0, "delta": 1e-7})
    assert "nearly always" not in words
    assert "guess right at most" not in words
    assert "Hardly any protection. With ε = 900, whoever reads the tables may guess right every time." in words
    assert "Hardly any noise. Of levels 1 to 6, 19 of 20 counts are measured without any error" in words
    assert "ε is so large that it limits nothing that matters" in words
    assert "6 origin municipality, destination municipality 16 measured with hardly any noise" in words
    assert "6 origin municipality, destination municipality ± 0 ± 0 ± 0" in words
    assert "0 origin all, destination all exact exact exact" in words
    assert not re.search(r"destination (region|province|municipality) exact", words)


def test_synthetic_records_are_not_called_nobodys(tmp_path: Path) -> None:
    """A synthetic record may be equal to a real one; none is copied. A promise about a level has the word of readers for it."""
    privacy = {key: value for key, value in PRIVACY.items() if key != "accountant"}
    privacy |= {"max_records_per_unit": 2, "distinct": "municipality"}
    hierarchy = SPEC["hierarchy"] | {"called": {"municipality": "town"}}
    release = SPEC["release"] | {"records": True}
    words = words_of(tmp_path, release=release, privacy=privacy, hierarchy=hierarchy)
    assert "no row is copied from a record of the table, but a row may be equal to one by chance" in words
    assert "nobody" not in words.split("The files")[1].split("What the numbers")[0]
    assert "different cells of level town." in words


def stated_in(page: str) -> dict[str, Any]:
    """Return the approval in a page, as JSON has it."""
    return json.loads(re.findall(r'id="approval" data-sha256="\w+">(.*?)</script>', page, re.DOTALL)[0])


def leaves(value: Any, path: str = "") -> Iterator[str]:
    """Yield the keys that lead to each value in a value of JSON."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path else key)
    else:
        yield path


def test_the_table_of_the_fingerprint_states_what_is_hashed(tmp_path: Path) -> None:
    """Everything that the fingerprint covers is a row of the table, in full, and nothing else is one."""
    page = page_of(tmp_path, expected_total=3000)
    stated = stated_in(page)
    table = page.split("What the fingerprint covers, in full</caption>")[1].split("</table>")[0].replace("<wbr>", "")
    rows = dict(re.findall(r'<th scope="row">(.*?)</th><td><code>(.*?)</code></td>', table))
    assert list(rows) == [path for path in leaves(stated) if path not in {"fingerprint", "made", "trellis"}]
    assert rows["spec"] == stated["spec"]
    assert rows["places.input.table"] == stated["places"]["input.table"]
    assert rows["keys.privacy.epsilon"] == "1"
    assert json.loads(html.unescape(rows["keys.hierarchy.levels"])) == stated["keys"]["hierarchy"]["levels"]
    assert float(rows["budget.after"]) == stated["budget"]["after"]
    assert rows["budget.releases"] == rows["tables"] == "none"


def test_a_long_list_in_a_spec_is_cut_on_the_page_alone(tmp_path: Path) -> None:
    """A feature with thousands of codes does not fill the page; what is cut is said, and the data in the file have it."""
    codes = [f"code-{number}" for number in range(2000)]
    keys = {
        "input": {"table": "people.csv", "features": ["age"]},
        "hierarchy": {"age": {"values": codes}},
        "release": {"order": ["age"]},
        "privacy": ADDED,
    }
    page = page_of(tmp_path, **keys)
    assert stated_in(page)["keys"]["hierarchy"]["age"]["values"] == codes
    assert "more characters, which the data in this file have" in page
    assert "code-1999" not in page.split("<script")[0]
