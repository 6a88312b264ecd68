"""The pages about releases: the report, what is collected for it, the README, the page of a comparison, and how numbers are said."""

import re
from dataclasses import replace
from fractions import Fraction
from html import escape
from itertools import product

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tasks.pages.facts
from storage.releases.register import CheckResult
from storage.releases.terms import Intervals
from tasks.format.entries import DerivedEntry, Difference, PoorMargin, Rounding, ViewEntry
from tasks.mechanisms import MECHANISMS
from tasks.pages.comparison import comparison_page
from tasks.pages.facts import CLASSES, MOST_SHOWN, Collector
from tasks.pages.report import report
from tasks.pages.statements import formulas_in, readme
from tasks.pages.trial_results import ComparedLevel, MechanismResult, Spread
from tasks.released.query.summaries import MOST_LARGEST, LargeCount
from tasks.tree.axis import axis_from_codebook
from tasks.tree.order import Tree
from tasks.words.areas import Names
from tasks.words.numbers import (
    format_bound,
    format_noise_rows,
    format_percent,
    format_probability,
    format_rounded,
    format_short,
    format_sigma,
)
from tasks.words.protection import epsilon_in_words, format_right_guess
from tests.support.comparisons import level_result, results_of
from tests.support.facts import (
    PRIVACY,
    facts_of,
    manifest_of,
    rows_of,
    shares_of,
    terms_of,
    tree_of_features,
    tree_of_trips,
)
from tests.support.reports import read

PICKED = "of a level's rows on average. These rows are chosen because they are large, so fewer of theirs may cover"


def reported(tree, leaves, terms=None, half_width=2, **manifest):
    """Return what is collected of a tree's counts, the report of it, and what a browser reads of that."""
    terms = terms or terms_of(tree)
    facts = facts_of(tree, leaves, terms, half_width)
    text = report(manifest_of(terms, facts, **manifest), facts, [])
    return facts, text, read(text)


# --- what is collected


@settings(max_examples=25)
@given(data=st.data())
def test_facts_are_those_of_the_rows(data, universes):
    """Rows, areas, sizes, extremes and widths of each level, matrix and largest counts are those found one by one."""
    universe = data.draw(universes)
    tree, chunk = universe.tree, tasks.pages.facts.CHUNK
    finest = product(*(range(size) for size in tree.sizes(tree.depth)))
    leaves = {leaf: data.draw(st.integers(-3, 12)) for leaf in finest}
    tasks.pages.facts.CHUNK = data.draw(st.integers(1, 5))
    try:
        facts = facts_of(tree, leaves, terms_of(tree, sigma=data.draw(st.sampled_from([0.1, 100.0]))))
    finally:
        tasks.pages.facts.CHUNK = chunk
    assert facts.total == sum(leaves.values())
    for level, known in enumerate(facts.levels):
        rows = rows_of(tree, leaves, level)
        assert known.rows == len(rows)
        edges = [-np.inf, *CLASSES, np.inf]
        assert known.sizes == tuple(np.histogram(rows.counts, edges)[0])
        assert known.most == max(rows.counts, default=0)
        refined = [number for number, own in enumerate(tree.axis_levels(level)) if own]
        areas = [(len(set(rows.areas[number].tolist())), tree.sizes(level)[number]) for number in refined]
        assert [(of.left, of.possible) for of in known.areas] == areas
        if len(rows):
            assert known.half_width == pytest.approx(np.mean(rows.bounds[1] - rows.bounds[0]) / 2)
    _check_matrix(tree, leaves, facts)
    _check_largest(tree, leaves, facts)


def _check_matrix(tree, leaves, facts):
    matrix = facts.matrix
    level = matrix.level
    refined = sum(own > 0 for own in tree.axis_levels(level))
    assert refined == min(2, len(tree.axes)) > sum(own > 0 for own in tree.axis_levels(level - 1))
    rows = rows_of(tree, leaves, level)
    found = {
        tuple(codes[place] for codes, place in zip(matrix.codes, at[2 - refined :], strict=True)): matrix.counts[at]
        for at in zip(*np.nonzero(matrix.is_released), strict=True)
    }
    assert found == {_named(tree, level, rows, row, _path): rows.counts[row] for row in range(len(rows))}
    assert not matrix.counts[~matrix.is_released].any()
    may_be_zero = np.zeros(len(rows), dtype=bool)
    if rows.bounds:
        may_be_zero = (rows.bounds[0] <= 0) & (rows.bounds[1] > 0) | (rows.counts < 0)
    assert matrix.may_be_zero.sum() == may_be_zero.sum()
    assert (matrix.counts[matrix.may_be_zero] <= rows.counts[may_be_zero].max(initial=0)).all()


def _check_largest(tree, leaves, facts):
    level, rows = facts.largest_level, rows_of(tree, leaves, facts.largest_level)
    assert level == (facts.finest_above_noise or (facts.matrix.level if facts.matrix else 0))
    in_size = sorted(range(len(rows)), key=lambda row: (-rows.counts[row], row))[:MOST_LARGEST]
    named = [[_named(tree, level, rows, row, name) for name in (_shortest, _path)] for row in in_size]
    expected = zip(named, rows.counts[in_size], rows.bounds[0][in_size], rows.bounds[1][in_size], strict=True)
    assert facts.largest == tuple(LargeCount(short, *numbers, path) for (short, path), *numbers in expected)


def _named(tree, level, rows, row, name):
    reached = zip(tree.axes, tree.axis_levels(level), rows.areas, strict=True)
    return tuple(name(axis, own, int(areas[row])) for axis, own, areas in reached if own)


def _path(axis, level, area):
    above = (axis.ancestors(np.array([area]), level, own) for own in range(1, level + 1))
    return tuple(codes[int(of)] for codes, (of,) in zip(axis.codes, above, strict=False))


def _shortest(axis, level, area):
    path, codes = _path(axis, level, area), axis.codes[level - 1].to_list()
    return path[-1:] if len(set(codes)) == len(codes) else path


def test_of_many_areas_the_largest_are_shown(axis_of):
    """A matrix has no more than forty areas at either end, those with the largest sums, in the order of the codebook."""
    tree = tree_of_trips(axis_of, 1, areas=60)
    facts, _, seen = reported(tree, {(home, 59): 100 + (home * 7) % 60 for home in range(60)})
    matrix = facts.matrix
    assert matrix.left == (60, 1)
    assert matrix.counts.shape == (MOST_SHOWN, 1)
    largest = sorted(range(60), key=lambda home: (home * 7) % 60)[-MOST_SHOWN:]
    assert [code for (code,) in matrix.codes[0]] == [f"{home:03}" for home in sorted(largest)]
    assert "Shown: the 40 largest of 60 areas of origin." in seen.text


# --- what the page says


@pytest.mark.parametrize("depth", [1, 7])
def test_trips_are_reported_at_any_depth(depth, axis_of):
    """The page of trips names every file with its columns, rows, noise, bound and checks, and draws every picture."""
    terms = terms_of(tree := tree_of_trips(axis_of, depth))
    facts, levels = facts_of(tree, {(0, 0): 900, (0, 1): 90, (1, 1): 11}, terms), range(2 * depth + 1)
    checks = [CheckResult(name, level, passed=(name, level) != ("b", 1)) for name in "ab" for level in levels]
    text = report(manifest_of(terms, facts), facts, checks)
    seen = read(text)
    assert seen.tags.count("svg") == 5
    ids = re.findall(r' id="([^"]*)"', text)
    assert len(set(ids)) == len(ids)
    assert all(f"counts/level_{level}.parquet" in seen.text for level in levels)
    assert seen.text.count("2 of 2") >= 2 * depth
    assert seen.text.count("1 of 2") == 1
    shares = {f"± {8 * depth}": 1, "2%, at most 10%": 2 * depth + 1, "25%, 75%": 2 * depth, "−0.25": 2 * depth + 1}
    assert all(text.count(f"<td>{cell}</td>") >= many for cell, many in shares.items())
    assert "1,001 records counted by origin and destination" in seen.text
    assert f"The intervals cover at least 90% {PICKED}" in seen.text
    assert "Flows within one area are left out: 911 of 1,001 records." in seen.text
    assert f"± {20 * depth}" in seen.text
    assert f"origin_level_{depth}" in seen.text
    largest, within = text.index("The largest flows"), text.index("The largest counts within one area")
    assert largest < text.index("<b>90</b>", largest) < within < text.index("<b>900</b>", largest)
    assert "<td>898</td><td>902</td>" in text


@pytest.mark.parametrize("features", [1, 60])
def test_features_are_reported_however_many(features, axis_of):
    """From one feature, which has no matrix but a line, to sixty, whose columns and universe are told in short."""
    tree = tree_of_features(axis_of, features)
    facts, text, seen = reported(tree, {(0,) * features: 50, (1,) * features: 70})
    assert len(text) < 400_000
    assert facts.matrix.counts.tolist() == ([[50, 70]] if features == 1 else [[50, 0], [0, 70]])
    for told in ("the 59 columns of the level above, and f59", f"of {2.0**60:.3e} possible"):
        assert (told in seen.text) == (features == 60)


def test_largest_counts_have_the_intervals_that_hold_at_once(axis_of):
    """Where there are such intervals, the largest counts have those, and widths are still those of one cell at a time."""
    tree = tree_of_trips(axis_of, 1)
    terms, leaves = terms_of(tree), {(0, 1): 500, (1, 0): 40}
    collector = Collector(tree, terms)
    for level in terms:
        rows = rows_of(tree, leaves, level.level)
        at_once = (*rows.bounds, rows.counts - 7, rows.counts + 9)
        collector.take(replace(rows, bounds=at_once), shares_of(rows, level))
    facts = collector.facts()
    assert [(large.low, large.high) for large in facts.largest] == [(493, 509), (33, 49)]
    assert [level.half_width for level in facts.levels] == [2.0] * 3
    text = report(manifest_of(terms, facts, intervals=Intervals(confidence=0.9, simultaneous=True)), facts, [])
    assert "<td>493</td><td>509</td>" in text
    assert "low (90%, all at once)" in read(text).text
    assert PICKED not in read(text).text


def test_levels_that_are_exact_are_reported(axis_of):
    """An exact level has neither noise nor bound; what is not protected is said in full, and the claim is limited to the rest."""
    tree = tree_of_trips(axis_of, 1)
    terms = terms_of(tree)
    terms[1] = replace(terms[1], is_invariant=True, rho=Fraction(0), sigma=0.0, bound=0.0)
    told = "level 1: in which destination <a> a unit is"
    _, text, seen = reported(tree, {(0, 1): 40, (1, 1): 12}, terms, unprotected=[told])
    assert f"<li>{escape(told)}</li>" in text
    assert "<b>Levels 0 to 1 are published exactly" in text
    assert text.count("<td>exact</td>") >= 4
    assert f"reveal about {PRIVACY.unit}, but for what is published exactly." in seen.text
    assert "holds only between tables that agree on every count that is published exactly" in seen.text
    assert "instead of 50" not in seen.text


def test_nothing_and_very_large_numbers_are_reported(axis_of):
    """A total of zero has a page without largest counts; counts near the end of 64 bits, and noise beyond what is read, break nothing."""
    facts, _, seen = reported(tree_of_trips(axis_of, 3), {})
    assert [level.rows for level in facts.levels] == [1] + [0] * 6
    assert "Below the total, most counts are small beside their noise" in seen.text
    assert "The largest" not in seen.text
    tree = tree_of_trips(axis_of, 1)
    terms = [replace(level, sigma=2.5e39 * bool(level.level), bound=1e41) for level in terms_of(tree)]
    terms[-1] = replace(terms[-1], possible_cells=10**400)
    privacy = PRIVACY.model_copy(update={"epsilon": 5000.0})
    _, _, seen = reported(tree, {(0, 0): 2**62 - 9, (1, 1): 5}, terms, privacy=privacy)
    assert f"{2**62 - 4:,} records" in seen.text
    assert "1.000e+400" in seen.text
    assert "inf" not in seen.text.split()


HOSTILE = ["<script>alert(1)</script>", "a & b", '"quoted"', "$x_{", "$\\frac$", "'", "東京", "\\"]
HOSTILE += ["{x}", "%s", "`*a*`", "e\u0301"]
ODD = """<script>alert("'1'")</script>"""


def test_everything_is_escaped(axis_of):
    """Codes, names, units, statements and all words of a spec are text, whatever they look like, in tables and in pictures."""
    terms = terms_of(tree := tree_of_trips(axis_of, 1, areas=len(HOSTILE), codes=HOSTILE))
    facts = facts_of(tree, {(area, area): 100 + area for area in range(len(HOSTILE))}, terms)
    called = Names({("origin", 1): pl.DataFrame({"code_1": HOSTILE, "name": [f"{ODD}{code}" for code in HOSTILE]})})
    words = {"title": ODD, "description": ODD, "source": ODD, "hierarchy": {"levels": [], "called": {"level_1": ODD}}}
    made = manifest_of(terms, facts)
    view = ViewEntry(name=ODD, **made.levels[1].model_dump() | {"axes": {ODD: ODD}, "level": 9, "noise_rows": None})
    of_privacy = dict.fromkeys(("unit", "statement", "distinct", "accountant", "neighbours"), ODD)
    odd = {
        "id": f"odd{ODD}", "supersedes": f"older{ODD}", "spec": words, "versions": {"trellis": ODD},
        "privacy": PRIVACY.model_copy(update=of_privacy), "unprotected": [ODD], "mechanism": ODD,
        "views": [view.model_copy(update={"differs": Difference(largest=1, mean=0.5)})],
        "derived": {ODD: DerivedEntry(of=[ODD], sha256="0")},
        "poor_margins": [PoorMargin(margin=ODD, expected_error=1.0)],
        "rounding": Rounding(exact=False, deviation={ODD: 2.0}), "left_out": {"xlsx": [ODD]}, "formats": ["xlsx"],
    }  # fmt: skip
    manifest = made.model_copy(update=odd)
    seen = read(report(manifest, facts, [], ODD, [ODD]))
    assert {"img", "script"}.isdisjoint(seen.tags)
    for code in HOSTILE:  # in the largest counts, and at both ends of the matrix unless it is long
        assert seen.text.count(code) >= 3 - (len(code) > 18), code
    assert seen.text.index(f"This release supersedes older{ODD}") < seen.text.index("records counted by")
    named = read(report(manifest, replace(facts, names=called), [], ODD, [ODD]))
    assert {"img", "script"}.isdisjoint(named.tags)
    assert named.text.count(ODD) > seen.text.count(ODD) > 25
    text = readme(manifest, ODD, [ODD])
    assert text.count(ODD) > 20
    assert "&lt;" not in text


@pytest.mark.parametrize(("epsilon", "neighbours"), [
    (0.1, "add_remove"), (1.2, "substitution"), (20.0, "substitution"), (20.0, "add_remove"),
])  # fmt: skip
def test_pages_claim_no_more_privacy_than_the_guarantee_gives(axis_of, epsilon, neighbours):
    """Report and README give the best guess that ε and δ allow, whatever ε is, and never call what is revealed little."""
    terms = terms_of(tree := tree_of_trips(axis_of, 1))
    privacy = PRIVACY.model_copy(update={"epsilon": epsilon, "neighbours": neighbours})
    facts, _, seen = reported(tree, {(0, 1): 40}, terms, privacy=privacy)
    guess = format_right_guess(epsilon, privacy.delta)
    told, passed_on = seen.text, " ".join(readme(manifest_of(terms, facts, privacy=privacy)).split())
    assert f"equally likely possibilities at most {guess}, instead of 50." in told
    assert epsilon_in_words(epsilon, PRIVACY.delta, PRIVACY.unit, neighbours)[1] in told
    assert f"they guess right at most {guess} with these tables, and 50 of 100 times without" in passed_on
    for claimed in ("almost", "apart from a probability", "holds only between tables"):
        assert claimed not in told + passed_on


def test_every_chart_has_its_numbers_which_tell_nothing_from_zero(axis_of):
    """A number that nothing states is n/a, a bound of an exact level is none, and a cell of the matrix without a row has no row."""
    tree = tree_of_trips(axis_of, 1, areas=3)
    _, text, _ = reported(tree, {(0, 1): 900, (1, 2): 90}, terms_of(tree, bound=None))
    assert text.count("<svg") == text.count("The numbers behind this chart") == 5
    assert not re.search(r"<th(?! scope=\"(?:row|col)\")", text.partition("<body>")[2])
    parts = ["How to read a count</h2>", "<h2>Details</h2>", "The tables</h2>", "Pairs that are released"]
    assert [*map(text.index, parts)] == sorted(map(text.index, parts))
    behind = [part.partition("</details>")[0] for part in text.split("The numbers behind this chart")[1:]]
    tables = {re.findall(r'<th scope="col">([^<]*)</th>', part)[1]: part for part in behind}
    bounds = re.findall(r"<tr><th scope=\"row\">\d</th>.*?<td>([^<]*)</td></tr>", tables["mean count"])
    assert (bounds[0], bounds[-1]) == ("none", "n/a")
    assert '<tr><th scope="row">0</th><td>n/a</td><td>n/a</td></tr>' in tables["origin"]
    (matrix,) = (part for part in behind if "origin by destination" in part)
    assert matrix.count("<td>no row</td>") == 2  # of the two areas of each end that are left
    assert "none" not in matrix


# --- the README, and how numbers are said


@pytest.fixture
def said(axis_of):
    """Return what gives the README of a release of one feature, as one line."""

    def of(mechanism, bound, noise_rows=None, formulas=(), **other):
        terms = terms_of(tree := tree_of_features(axis_of, 1), sigma=7.25)
        made = manifest_of(terms, facts_of(tree, {(0,): 30, (1,): 40}, terms), mechanism=mechanism, **other)
        changed = {"noise_rows": noise_rows, "above_noise": None, "bound_after": None}
        levels = [level.model_copy(update=changed | {"bound": bound and level.level * bound}) for level in made.levels]
        text = readme(made.model_copy(update={"levels": levels}), MECHANISMS[mechanism].how_counted, formulas)
        return " ".join(text.split())

    return of


def test_what_rounding_moves_further_is_named(said):
    """Levels and views of which a count has moved by one record or more are listed; nothing is said where all are nearer."""
    moved = Rounding(exact=False, deviation={"level_0": 0.0, "ways": 1.25, "modes": 2.0, "level_1": 0.9999})
    told = "Rounding has moved counts of these by one record or more, at most: `ways` by 1.25, `modes` by 2."
    assert told in said("cbdp", None, rounding=moved)
    for near in (None, Rounding(exact=True, deviation={"level_0": 0.0, "level_1": 0.9999})):
        assert "Rounding has moved" not in said("cbdp", None, rounding=near)


def test_numbers_are_read_as_they_are():
    """Exact levels, sums without a stated noise and numbers too long for digits are told apart; that all rows may be noise says nothing."""
    assert (format_sigma(0, summed=False), format_sigma(0, summed=True)) == ("exact", "n/a")
    assert (format_sigma(4.8356, summed=False), format_sigma(4.8356, summed=True, digits=2)) == ("4.836", "4.84")
    assert format_sigma(2.5e39, summed=True) == "2.500e+39"
    assert [format_bound(0, bound, summed=False) for bound in (None, 0.0)] == ["exact", "exact"]
    assert [format_bound(sigma, None, summed=True) for sigma in (0, 3.0)] == ["n/a", "n/a"]
    assert [format_bound(3.0, bound, summed=False) for bound in (1234.4, 123_412_345.0)] == ["± 1,234", "± 1.235e+08"]
    shares = [(0.2, 0.5), (None, 0.5), (0.0, 0.0), (0.2, 1.0), (None, 1.0)]
    assert [format_noise_rows(*of) for of in shares] == ["20%, at most 50%", "at most 50%", "0%", "20%", "n/a"]
    counts = {0: "0", -99_999: "-99,999", 999_499: "999k", 999_500: "1M", -12_345_678: "-12.3M", 10**15: "1.00e+15"}
    assert {count: format_short(count) for count in counts} == counts
    values = {0: "0", 0.0001: "1.00e-04", 0.61234: "0.612", 7.971: "7.97", 99.96: "100", 1.5e7: "1.50e+07"}
    assert {value: format_rounded(value) for value in values} == values
    assert [format_percent(share) for share in (0.9, 1 - 0.9, 0.995)] == ["90%", "10%", "99.5%"]


PROBABILITIES = {
    1e-8: "1 in 100 million", 1e-6: "1 in a million", 2.5e-10: "1 in 4 billion", 1e-15: "1 in 1,000 trillion",
    5e-324: "less than 1 in 1,000 trillion", 3e-5: "1 in 33,000", 1 / 3: "33.4%", 1.0: "100%", 0.0: "0",
}  # fmt: skip


@given(st.floats(1e-15, 1.0))
def test_the_words_for_a_probability_never_state_less(probability):
    """What the words state, in a unit that a reader knows, is at least the probability, and at most a ninth more."""
    assert {of: format_probability(of) for of in PROBABILITIES} == PROBABILITIES
    words = format_probability(probability)
    if words.endswith("%"):
        stated = Fraction(words[:-1]) / 100
    else:
        number, _, unit = words.removeprefix("1 in ").replace("a ", "1 ").replace(",", "").partition(" ")
        size = {"": 1, "million": 10**6, "billion": 10**9, "trillion": 10**12}[unit]
        stated = 1 / (Fraction(number) * size)
    exact = Fraction(repr(probability))
    assert exact <= stated < exact * Fraction(10, 9)


def formulas(*codes, called=""):
    """Return what is warned of in a tree of one axis with these codes, and with a name for the first of them."""
    names = {("home", 1): pl.DataFrame({"code_1": codes[:1], "name": [called]})} if called else {}
    return formulas_in(Tree((axis_from_codebook("home", pl.DataFrame({"area": codes})),), (0,)), Names(names))


@pytest.mark.parametrize("text", ["=1+1", "+cmd", "-x", "@SUM(A1)", "\t=1", "-1-1", "=Mill", "+ 1 more", "-other-"])
def test_what_begins_like_a_formula_is_named_and_numbers_are_not(text):
    """A code or a name that a spreadsheet computes is warned of; a number with a sign, or a sign inside, computes nothing."""
    assert formulas("a", text) == formulas("01", "02", called=text) == [text]
    assert formulas("01", "02", called=f"a{text}") == []
    assert formulas("a", "44007", "-5", "+3", "-1.5", "a=b", "a-b", "x@y") == []


# --- the page of a comparison

THIRD = Spread((0.1 + 0.1 + 0.1) / 3, 0.1, 0.1)  # the mean of equal numbers may be above each of them


def test_everything_in_a_comparison_is_escaped():
    """Names of tables, mechanisms, views and measures, reasons and notes are text, whatever they look like, also in pictures."""
    levels = [level_result(0, THIRD, false_rows=THIRD, rows_covered=THIRD)]
    found = [], THIRD, levels, {ODD: {ODD: THIRD}}, {"ranges": 1.0}
    results = [MechanismResult(name, 1.0, *found) for name in (ODD, "b")]
    view = ComparedLevel(0, {ODD: ODD}, None, 0, view=ODD)
    other = {"name": ODD, "neighbours": ODD, "refused": {ODD: ODD}, "notes": {ODD: [ODD]}}
    seen = read(comparison_page(results_of(results, levels=[view], **other)))
    assert {"img", "script"}.isdisjoint(seen.tags)
    assert seen.text.count(ODD) > 20
