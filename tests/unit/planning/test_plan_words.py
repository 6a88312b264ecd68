"""What the page of a plan says, in words, of releases of many kinds."""

import html
import json
import re

import pytest

from flows.api import plan_page
from tests.support.keys import ABSENT, changed, features_of, paths_of
from tests.support.spec import SPEC, spec_in

CODEBOOK = "region,province,municipality\nr1,r1p1,r1p1m1\nr1,r1p1,r1p1m2\nr1,r1p2,r1p2m1\nr2,r2p1,r2p1m1\n"
TRIPS = changed(SPEC, {"privacy.epsilon": 1.0})
AGES = features_of({"age": {"ordered": 101}}, mechanism="unbiased_tree")


@pytest.fixture(autouse=True)
def _tables(tmp_path, own_home):
    """Let there be tables of trips and of people, and a store of the test's own."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "trips.csv").write_text("home,work,people\n")
    (tmp_path / "data" / "codebook.csv").write_text(CODEBOOK)
    (tmp_path / "people.csv").write_text("age\n")


def page_of(folder, keys, changes=None):
    """Return the page of a plan, its text as a reader sees it, and the approval in it."""
    page = plan_page(spec_in(folder, changed(keys, changes or {})))
    body = page.split("<body>")[1].split("<script")[0]
    stated = json.loads(re.findall(r'id="approval">(.*?)</script>', page, re.DOTALL)[0])
    return page, " ".join(html.unescape(re.sub(r"<[^>]*>", " ", body)).split()), stated


def test_a_page_says_what_the_spec_tells_readers(tmp_path):
    """The title heads the page, with what is counted and by whom; levels have the words of readers, and the name stays findable."""
    told = {"title": "Commuters", "description": "All who commute by train.", "source": "The railway"}
    told |= {"hierarchy.called": {"municipality": "town", "region": "county"}, "privacy.invariants": ["region"]}
    page, words, _ = page_of(tmp_path, TRIPS, told | {"privacy.i_accept_unprotected": True})
    assert "<h1>Commuters</h1>" in page
    assert "<title>Commuters: plan</title>" in page
    for part in (
        "Each count but those of levels 0 to 2 gets noise",
        "All who commute by train. Source: The railway.",
        "Spec synthetic. Dataset synthetic-country.",
        "Decision about Commuters",
        "finest level (origin town, destination town)",
        "5 origin province, destination town",
        "level 2 (origin county, destination county): every count, published exactly",
    ):
        assert part in words
    assert "municipality" not in words.split("What exactly was planned")[0]


def test_all_words_of_a_spec_are_escaped(tmp_path):
    """Titles, descriptions, sources, units, words for levels, names of tables and of the spec are text, whatever they look like."""
    odd = """<script>alert("'1'")<b title='x'>"""
    (tmp_path / "data" / "<b>'x'.csv").write_text("home,work,people\n")
    told = dict.fromkeys(("title", "description", "source", "privacy.unit"), odd) | {"input.table": "data/<b>'x'.csv"}
    told |= {"hierarchy.called": {"municipality": odd, "region": odd}, "expected_total": 3000}
    page, words, _ = page_of(tmp_path, TRIPS, told)
    assert page.count("<script") == 1  # that of the approval, which browsers do not run
    assert "<b>'x'.csv" in words
    assert words.count(odd) > 30
    assert "<b title" not in page


@pytest.mark.parametrize(("split", "told"), [
    ({"targets": {"age": 6}}, "Only level 7 is measured, and all measurements together give each count"),
    pytest.param({"targets": {"age": 6, "age_1": 4}}, "Only levels 1 and 7 are measured, and", marks=pytest.mark.thorough),
    ("uniform", "Every level is measured, and all measurements together give each count"),
])  # fmt: skip
def test_only_the_levels_that_are_measured_are_called_so(split, told, tmp_path):
    """The text names the same levels as measured as the table does; with targets these may be few."""
    by_error = {"privacy.epsilon": ABSENT} if "targets" in split else {}
    _, words, _ = page_of(tmp_path, AGES, by_error | {"privacy.split": split})
    assert told in words
    table = words.split("possible counts how")[1].split("Possible counts are")[0]
    measured = re.findall(r"(\d) (?:everything|age(?: age_\d)?) \d+ measured with noise", table)
    assert measured == (re.findall(r"\d", told) or [str(level) for level in range(8)])


def test_an_epsilon_that_protects_nobody_is_called_that(tmp_path):
    """Counts that have hardly any noise are not called exact, and no limit is stated where there is none."""
    _, words, _ = page_of(tmp_path, TRIPS, {"privacy.epsilon": 900.0, "budget.epsilon": 1000.0})
    assert "guess right at most" not in words
    assert "Hardly any protection. With ε = 900, whoever reads the tables may guess right every time." in words
    assert "Hardly any noise. Of levels 1 to 6, 19 of 20 counts are measured without any error" in words
    assert "ε is so large that it limits nothing that matters" in words
    assert "6 origin municipality, destination municipality ± 0 ± 0 ± 0" in words
    assert "0 origin all, destination all exact exact exact" in words
    assert not re.search(r"destination (region|province|municipality) exact", words)


def test_synthetic_records_are_not_called_nobodys(tmp_path):
    """A synthetic record may be equal to a real one; none is copied. A promise about a level has the word of readers for it."""
    promise = {"privacy.max_records_per_unit": 2, "privacy.distinct": "municipality", "privacy.accountant": ABSENT}
    called = {"hierarchy.called": {"municipality": "town"}, "release.records": True}
    _, words, _ = page_of(tmp_path, TRIPS, promise | called)
    assert "no row is copied from a record of the table, but a row may be equal to one by chance" in words
    assert "nobody" not in words.split("The files")[1].split("What the numbers")[0]
    assert "different cells of level town." in words


def test_the_table_of_the_fingerprint_states_what_is_hashed(tmp_path):
    """Everything that the fingerprint covers is a row of the table, in full, and nothing else is one."""
    page, _, stated = page_of(tmp_path, TRIPS, {"expected_total": 3000})
    covered = page.split("What the fingerprint covers, in full</span></caption>")[1]
    table = covered.split("</table>")[0].replace("<wbr>", "")
    rows = dict(re.findall(r'<th scope="row">(.*?)</th><td><code>(.*?)</code></td>', table))
    paths = [*paths_of(stated)]
    leaves = [path for path in paths if not any(other.startswith(f"{path}.") for other in paths)]
    assert list(rows) == [path for path in leaves if path not in {"fingerprint", "made", "trellis"}]
    assert rows["spec"] == stated["spec"]
    assert rows["places.input.table"] == stated["places"]["input.table"]
    assert rows["keys.privacy.epsilon"] == "1"
    assert json.loads(html.unescape(rows["keys.hierarchy.levels"])) == stated["keys"]["hierarchy"]["levels"]
    assert float(rows["budget.after"]) == stated["budget"]["after"]
    assert rows["budget.releases"] == rows["tables"] == "none"
