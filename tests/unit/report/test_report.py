"""The report of a published folder: what is collected of the counts, and what the page says, whatever was released."""

import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from html import escape
from html.parser import HTMLParser
from itertools import pairwise, product
from typing import Any

import numpy as np
import polars as pl
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

import tasks.report.facts
from storage.releases.register import CheckResult
from storage.releases.terms import COUNTS_POSITIVE, FIXED_TOTAL, RELEASED_CODES, LevelTerms
from tasks.atlas.names import Names
from tasks.atlas.shapes import GEOMETRY, Shapes
from tasks.format.manifest import Intervals
from tasks.format.rows import Rows
from tasks.report.charts import sizes_picture
from tasks.report.facts import CLASSES, MOST_SHOWN, Collector, Facts
from tasks.report.frame import page, table
from tasks.report.readme.page import readme
from tasks.report.release_page import passed_checks, report
from tasks.report.sections.largest import MOST_LARGEST, LargeCount
from tasks.report.sections.totals import Ranges
from tasks.tree.axis import Axis, axis_from_codebook
from tasks.tree.order import Tree, alternate, in_sequence
from tasks.tree.ordered import ordered_axis
from tasks.words.epsilon import epsilon_in_words, format_right_guess
from tests.support.facts import (
    ENDS,
    PRIVACY,
    facts_of,
    manifest_of,
    rows_of,
    shares_of,
    terms_of,
    tree_of_features,
    tree_of_trips,
)
from tests.support.universe import Universe

Path = tuple[str, ...]  # the codes of an area, coarse to fine
PICKED = "of a level's rows on average. These rows are chosen because they are large, so fewer of theirs may cover"


class Seen(HTMLParser):
    """A page as a browser reads it: its text, what it would load, and whether every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.loaded: list[str] = []
        self.open: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what is opened, and addresses other than those of the page itself."""
        self.tags.append(tag)
        if tag not in {"meta", "link", "br", "img"}:
            self.open.append(tag)
        self.handle_startendtag(tag, attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep addresses other than those of the page itself, and scripts; the link to the explorer loads nothing."""
        if tag == "a" and dict(attrs).get("href") == "explorer.html":
            return
        named = [value or "" for name, value in attrs if name in {"src", "href", "xlink:href", "data", "action"}]
        self.loaded += [value for value in named if not value.startswith(("#", "data:image/png"))]
        self.loaded += [tag] if tag in {"script", "iframe", "object", "link"} else []

    def handle_endtag(self, tag: str) -> None:
        """Close the last tag, which is to be the same."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keep what is read."""
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        """What is read, in one line."""
        return " ".join(" ".join(self.words).split())


def read(text: str) -> Seen:
    """Return a page that is whole and loads nothing."""
    seen = Seen(text)
    assert seen.open == []
    assert seen.loaded == []
    assert not re.search(r"url\((?!#)|@import|https?://(?!www\.w3\.org/)", text)
    assert "nan" not in seen.text.split()
    return seen


def reported(
    tree: Tree,
    leaves: dict[tuple[int, ...], int],
    terms: list[LevelTerms] | None = None,
    half_width: int | None = 2,
    **manifest: Any,
) -> tuple[Facts, str, Seen]:
    """Return what is collected of a tree's counts, the report of it, and what a browser reads of that."""
    terms = terms or terms_of(tree)
    facts = facts_of(tree, leaves, terms, half_width)
    text = report(manifest_of(terms, facts, **manifest), facts, {})
    return facts, text, read(text)


# --- what is collected


@settings(max_examples=25)
@given(data=st.data())
def test_facts_are_those_of_the_rows(data: st.DataObject, universes: st.SearchStrategy[Universe]) -> None:
    """Rows, areas, sizes, extremes and widths of each level, matrix and largest counts are those found one by one."""
    universe = data.draw(universes)
    tree, chunk = universe.tree, tasks.report.facts.CHUNK
    finest = product(*(range(size) for size in tree.sizes(tree.depth)))
    leaves = {leaf: data.draw(st.integers(-3, 12)) for leaf in finest}
    tasks.report.facts.CHUNK = data.draw(st.integers(1, 5))
    try:
        facts = facts_of(tree, leaves, terms_of(tree, sigma=data.draw(st.sampled_from([0.1, 100.0]))))
    finally:
        tasks.report.facts.CHUNK = chunk
    assert facts.total == sum(leaves.values())
    for level, known in enumerate(facts.levels):
        rows = rows_of(tree, leaves, level)
        assert known.rows == len(rows)
        edges = [-np.inf, *CLASSES, np.inf]
        assert known.sizes == tuple(np.histogram(rows.counts, edges)[0])
        assert (known.least, known.most) == ((min(rows.counts), max(rows.counts)) if len(rows) else (0, 0))
        refined = [number for number, own in enumerate(tree.axis_levels(level)) if own]
        assert [(areas.left, areas.possible) for areas in known.areas] == [
            (len(set(rows.areas[number].tolist())), tree.sizes(level)[number]) for number in refined
        ]
        if len(rows):
            assert known.half_width == pytest.approx(np.mean(rows.bounds[1] - rows.bounds[0]) / 2)
    _check_matrix(tree, leaves, facts)
    _check_largest(tree, leaves, facts)


def _check_matrix(tree: Tree, leaves: dict[tuple[int, ...], int], facts: Facts) -> None:
    matrix = facts.matrix
    assert matrix is not None
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


def _check_largest(tree: Tree, leaves: dict[tuple[int, ...], int], facts: Facts) -> None:
    level, rows = facts.largest_level, rows_of(tree, leaves, facts.largest_level)
    assert level == (facts.finest_above_noise or (facts.matrix.level if facts.matrix else 0))
    in_size = sorted(range(len(rows)), key=lambda row: (-rows.counts[row], row))[:MOST_LARGEST]
    assert facts.largest == tuple(
        LargeCount(
            _named(tree, level, rows, row, _shortest),
            rows.counts[row],
            rows.bounds[0][row],
            rows.bounds[1][row],
            _named(tree, level, rows, row, _path),
        )
        for row in in_size
    )


def _named(tree: Tree, level: int, rows: Rows, row: int, name: Callable[[Axis, int, int], Path]) -> tuple[Path, ...]:
    reached = zip(tree.axes, tree.axis_levels(level), rows.areas, strict=True)
    return tuple(name(axis, own, int(areas[row])) for axis, own, areas in reached if own)


def _path(axis: Axis, level: int, area: int) -> Path:
    return tuple(
        axis.codes[own - 1][int(axis.ancestors(np.array([area]), level, own)[0])] for own in range(1, level + 1)
    )


def _shortest(axis: Axis, level: int, area: int) -> Path:
    path, codes = _path(axis, level, area), axis.codes[level - 1].to_list()
    return path[-1:] if len(set(codes)) == len(codes) else path


def test_areas_of_the_largest_counts_are_told_by_one_code_where_it_is_theirs_alone(
    axis_of: Callable[..., Axis],
) -> None:
    """A code that no other area of the level has stands alone; where another has it too, its whole path does, for all areas."""
    axes = (axis_of("home", [("a", "1"), ("b", "1")]), axis_of("work", [("a", "11"), ("b", "12")]))
    tree = Tree(axes, alternate([2, 2], 1))
    facts, text, _ = reported(tree, {(0, 1): 30, (1, 0): 20}, terms_of(tree, sigma=0.1))
    assert facts.largest_level == tree.depth
    assert [large.codes for large in facts.largest] == [(("a", "1"), ("12",)), (("b", "1"), ("11",))]
    assert '<th scope="row">a › 1</th><td>12</td><td><b>30</b></td>' in text


def test_of_many_areas_the_largest_are_shown(axis_of: Callable[..., Axis]) -> None:
    """A matrix has no more than forty areas at either end, those with the largest sums, in the order of the codebook."""
    tree = tree_of_trips(axis_of, 1, areas=60)
    facts, _, seen = reported(tree, {(home, 59): 100 + (home * 7) % 60 for home in range(60)})
    matrix = facts.matrix
    assert matrix is not None
    assert matrix.left == (60, 1)
    assert matrix.counts.shape == (MOST_SHOWN, 1)
    largest = sorted(range(60), key=lambda home: (home * 7) % 60)[-MOST_SHOWN:]
    assert [code for (code,) in matrix.codes[0]] == [f"{home:03}" for home in sorted(largest)]
    assert "Shown: the 40 largest of 60 areas of origin." in seen.text


# --- what the page says


@pytest.mark.parametrize("depth", [1, 2, 7])
def test_trips_are_reported_at_any_depth(depth: int, axis_of: Callable[..., Axis]) -> None:
    """The page of trips names every file with its columns, rows, noise, bound and checks, and draws every picture."""
    tree = tree_of_trips(axis_of, depth)
    terms = terms_of(tree)
    facts = facts_of(tree, {(0, 0): 900, (0, 1): 90, (1, 1): 11}, terms)
    passed = passed_checks(
        [CheckResult(name, level, passed=True) for level in range(2 * depth + 1) for name in ("one", "two")]
    )
    text = report(manifest_of(terms, facts), facts, passed)
    seen = read(text)
    assert seen.tags.count("svg") == 5
    assert [f"counts/level_{level}.parquet" in seen.text for level in range(2 * depth + 2)] == [True] * (
        2 * depth + 1
    ) + [False]
    assert seen.text.count("2 of 2") >= 2 * depth + 1
    assert "1,001 records counted by origin and destination" in seen.text
    assert f"± {20 * depth}" in seen.text
    assert f"<td>± {8 * depth}</td>" in text
    assert text.count("<td>2%, at most 10%</td>") == 2 * depth + 1
    assert text.count("<td>25%, 75%</td>") == 2 * depth
    assert f"origin_level_{depth}" in seen.text
    assert f"The intervals cover at least 90% {PICKED}" in seen.text
    assert text.count("<td>−0.25</td>") == 2 * depth + 1
    largest, within = text.index("The largest flows"), text.index("The largest counts within one area")
    assert largest < text.index("<b>90</b>", largest) < within < text.index("<b>900</b>", largest)
    assert "Flows within one area are left out: 911 of 1,001 records." in seen.text
    assert "<td>898</td><td>902</td>" in text


@pytest.mark.parametrize("features", [1, 2, 60])
def test_features_are_reported_however_many(features: int, axis_of: Callable[..., Axis]) -> None:
    """From one feature, which has no matrix but a line, to sixty, whose columns and universe are told in short."""
    tree = tree_of_features(axis_of, features)
    facts, text, seen = reported(tree, {(0,) * features: 50, (1,) * features: 70})
    assert len(text) < 400_000
    assert facts.matrix is not None
    assert facts.matrix.counts.tolist() == ([[50, 70]] if features == 1 else [[50, 0], [0, 70]])
    assert f"f{features - 1:02}" in seen.text
    assert ("the 59 columns of the level above, and f59" in seen.text) == (features == 60)
    if features == 60:
        assert f"of {2.0**60:.3e} possible" in seen.text


@pytest.mark.parametrize(
    ("sigma", "told"),
    [
        (1.0, "At every level, most counts are large beside their noise."),
        (
            5.0,
            "Below level 4 (f00 level_1, f01 level_1, f02 level_1, f03 level_1), most counts are small beside their noise.",
        ),
        (500.0, "Below the total, most counts are small beside their noise."),
    ],
)
def test_the_line_below_which_counts_are_noise(axis_of: Callable[..., Axis], sigma: float, told: str) -> None:
    """The page says it in words, in the picture and in both tables; where no level is noise it draws no line."""
    tree = tree_of_features(axis_of, 6)
    _, text, seen = reported(tree, dict.fromkeys(product((0, 1), repeat=6), 3), terms_of(tree, sigma))
    has_line = told.startswith("Below")
    assert told in seen.text
    assert text.count("▼ Below this line,") == 2 * has_line
    assert ("small beside noise →" in text) == has_line


def test_sums_of_noisy_leaves_are_reported(axis_of: Callable[..., Axis]) -> None:
    """Of `gaussian`, counts and a total below zero are shown, and it is said what a summed level is."""
    tree = tree_of_trips(axis_of, 1, areas=3)
    terms = [replace(level, is_summed=level.level < 2, is_invariant=False, sigma=4.0) for level in terms_of(tree)]
    leaves, waived = {(0, 0): -9, (1, 2): 4, (2, 2): -1}, [COUNTS_POSITIVE, FIXED_TOTAL]
    facts, text, seen = reported(tree, leaves, terms, mechanism="gaussian", waived=waived)
    for told in ("-6 records", "the sum of noisy counts", "−9", "or is below zero"):
        assert told in seen.text
    assert "<td>summed</td>" in text
    assert facts.finest_above_noise is None


def test_largest_counts_have_the_intervals_that_hold_at_once(axis_of: Callable[..., Axis]) -> None:
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
    text = report(manifest_of(terms, facts, intervals=Intervals(confidence=0.9, simultaneous=True)), facts, {})
    assert "<td>493</td><td>509</td>" in text
    assert "low (90%, all at once)" in read(text).text
    assert PICKED not in read(text).text


@pytest.mark.parametrize(("leaf", "unlisted"), [(30, False), (900, False), (900, True)])
def test_a_threshold_is_reported(leaf: int, unlisted: bool, axis_of: Callable[..., Axis]) -> None:
    """Sums have no noise, bound or interval; the threshold is told, and of unlisted codes that nobody knows how many."""
    tree = tree_of_trips(axis_of, 1, areas=3)
    if unlisted:
        tree = Tree(tuple(replace(axis, is_listed=False) for axis in tree.axes), tree.steps)
    *sums, finest = terms_of(tree, threshold=30, epsilon=1.0, scale=2.0, sigma=2.8, rho=Fraction(0), is_summed=False)
    terms = [replace(level, is_summed=True, is_invariant=False, sigma=0.0, bound=None) for level in sums]
    terms.append(replace(finest, bound=None))
    codebooks = dict.fromkeys(ENDS, RELEASED_CODES if unlisted else "0")
    manifest = {"mechanism": "stability_histogram", "codebooks": codebooks, "waived": [FIXED_TOTAL]}
    facts, _, seen = reported(tree, {(0, 0): leaf, (1, 2): 40}, terms, None, **manifest)
    assert facts.largest_level == tree.depth  # rows above a threshold are no noise, at whatever level
    assert leaf > 30 or facts.finest_above_noise is None
    assert [(large.count, large.low, large.high) for large in facts.largest] == [(40, None, None)]
    assert [(large.count, large.low, large.high) for large in facts.within] == [(leaf, None, None)]
    assert "Smallest count kept 30" in seen.text
    assert ("No codebook lists origin, destination" in seen.text) == unlisted
    assert ("the number possible is unknown" in seen.text) == unlisted
    assert ("Most pairs are left out" in seen.text) == (leaf == 30)
    assert ("A count of the mean size is published." in seen.text) == (not unlisted and leaf == 900)
    assert "small beside" not in seen.text
    assert seen.tags.count("svg") == (4 if unlisted else 5)


def test_levels_that_are_exact_are_reported(axis_of: Callable[..., Axis]) -> None:
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


def test_a_release_of_nothing_is_reported(axis_of: Callable[..., Axis]) -> None:
    """A total of zero, below which there is no row, has a page without matrix and largest counts."""
    facts, _, seen = reported(tree_of_trips(axis_of, 3), {})
    assert [level.rows for level in facts.levels] == [1] + [0] * 6
    assert "0 records counted by" in seen.text
    assert "Below the total, most counts are small beside their noise" in seen.text
    assert "The largest" not in seen.text


def test_very_large_numbers_are_reported(axis_of: Callable[..., Axis]) -> None:
    """Counts near the end of 64 bits, and noise, bounds and universes beyond what is read, break nothing."""
    tree = tree_of_trips(axis_of, 1)
    terms = [replace(level, sigma=2.5e39 * bool(level.level), bound=1e41) for level in terms_of(tree)]
    terms[-1] = replace(terms[-1], possible_cells=10**400)
    privacy = PRIVACY.model_copy(update={"epsilon": 5000.0})
    _, _, seen = reported(tree, {(0, 0): 2**62 - 9, (1, 1): 5}, terms, privacy=privacy)
    assert f"{2**62 - 4:,} records" in seen.text
    assert "1.000e+400" in seen.text
    assert "inf" not in seen.text.split()


HOSTILE = [
    "<script>alert(1)</script>",
    "a & b",
    '"quoted"',
    "$x_{",
    "$\\frac$",
    "'",
    "東京",
    "\\",
    "{x}",
    "%s",
    "`*a*`",
]
HOSTILE += ["e\u0301"]


def test_everything_is_escaped(axis_of: Callable[..., Axis]) -> None:
    """Codes, names, units and statements are text, whatever they look like, in tables and in pictures."""
    tree, odd = tree_of_trips(axis_of, 1, areas=len(HOSTILE), codes=HOSTILE), '<img src="x">'
    _, _, seen = reported(
        tree,
        {(area, area): 100 + area for area in range(len(HOSTILE))},
        id=f"odd{odd}",
        spec={"name": odd},
        supersedes=f"older{odd}",
        privacy=PRIVACY.model_copy(update={"unit": odd, "statement": odd}),
        unprotected=[odd],
        mechanism=odd,
        versions={"trellis": odd},
    )
    assert {"img", "script"}.isdisjoint(seen.tags)
    for code in HOSTILE:  # in the largest counts, and at both ends of the matrix unless it is long
        assert seen.text.count(code) >= 3 - (len(code) > 18), code
    assert f"older{odd}" in seen.text


def test_a_mechanism_without_a_bound_shows_noise_alone(axis_of: Callable[..., Axis]) -> None:
    """Where no bound is stated the picture has none; where no level has intervals, no word is about any."""
    tree = tree_of_trips(axis_of, 1)
    terms = [replace(level, bound=None) for level in terms_of(tree)]
    _, _, seen = reported(tree, {(0, 1): 40}, terms, None, mechanism="inftda_reconciled")
    assert "noise (σ)" in seen.text
    for told in ("error bound (95%)", "half of the interval", PICKED):
        assert told not in seen.text


def test_a_page_is_the_same_each_time_and_says_on_top_what_it_supersedes(axis_of: Callable[..., Axis]) -> None:
    """The same facts make the same page, to the byte; an older release is named above everything else, if there is one."""
    tree = tree_of_trips(axis_of, 2)
    one, again, newer = (
        reported(tree, {(0, 1): 40, (1, 1): 3}, supersedes=older)[1] for older in (None, None, "jobs-1")
    )
    assert one == again
    assert newer.index("This release supersedes <code>jobs-1</code>:") < newer.index("43 records")
    assert "supersedes" not in one
    assert "On the map" not in one


def test_sizes_are_told_apart_without_colour(axis_of: Callable[..., Axis]) -> None:
    """The shades of the size classes are darker for more, by steps that can be seen in grey."""
    tree = tree_of_trips(axis_of, 1, areas=8)
    terms = terms_of(tree)
    facts = facts_of(tree, {(area, area): 5 * 10**area for area in range(7)}, terms)
    legend = sizes_picture(facts).partition('id="legend_1"')[2]
    shades = [_luminance(colour) for colour in re.findall(r"fill: (#\w{6}); stroke", legend)]
    assert len(shades) == 7
    assert all(one - other > 0.05 for one, other in pairwise(shades))


def _luminance(colour: str) -> float:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue


def test_checks_are_counted_by_level() -> None:
    """Passed checks are set beside all that there were."""
    found = [CheckResult(name, level, passed=(name, level) != ("b", 1)) for name in "ab" for level in (0, 1)]
    assert passed_checks(found) == {0: (2, 2), 1: (1, 2)}


def test_pages_have_one_frame() -> None:
    """A title is text, a table scrolls by itself, and one cell spans its columns."""
    text = page("<a> & b", table(["x", "y"], [["1", "2"], ["all"]], caption="told", kind="k"), "q { color: red }\n")
    assert "<title>&lt;a&gt; &amp; b</title>" in text
    assert (
        '<div class="scroll" role="region" tabindex="0" aria-label="told"><table class="k"><caption>told</caption>'
        in text
    )
    assert '<td colspan="2" class="line">all</td>' in text
    assert "q { color: red }\n</style>" in text


@pytest.mark.parametrize(
    ("epsilon", "neighbours"),
    [(0.1, "add_remove"), (1.2, "substitution"), (20.0, "substitution"), (20.0, "add_remove")],
)
def test_pages_claim_no_more_privacy_than_the_guarantee_gives(
    axis_of: Callable[..., Axis], epsilon: float, neighbours: str
) -> None:
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


@pytest.mark.parametrize(("statistic", "what", "other"), [("", "records", "groups"), ("tails", "groups", "records")])
def test_a_report_names_what_it_counts(axis_of: Callable[..., Axis], statistic: str, what: str, other: str) -> None:
    """A report of group sizes counts groups wherever another one counts records: in its lead, its cards and its pictures."""
    sizes = {"hierarchy": {}, "release": {"group_sizes": {"region": "county", "largest": 20}}}
    spec = {"name": "jobs"} | (sizes if statistic else {})
    leaves = {(0, 1): 40, (2, 3): 9}
    _, _, told = reported(tree_of_trips(axis_of, 2, areas=4), leaves, statistic=statistic, spec=spec)
    assert f"49 {what} counted by" in told.text
    for label in ("{}, on a logarithmic scale", "Released counts, in {}", "{} 49"):
        cased = str.capitalize if label.startswith("{}") else str
        assert label.format(cased(what)) in told.text
        assert label.format(cased(other)) not in told.text


def test_the_counts_along_an_ordered_axis_are_drawn() -> None:
    """The finest level that refines an ordered axis alone is kept, with a 0 for an area without a row; no other axis has a line."""
    axis = axis_from_codebook("age", ordered_axis("age", {"ordered": 5}).codebook())
    tree = Tree((axis,), (0,) * axis.depth)
    terms, leaves = terms_of(tree), {(0,): 50, (3,): 4}
    found = []
    for ordered in ([], ["age"]):
        collector = Collector(tree, terms, ordered)
        for level in terms:
            rows = rows_of(tree, leaves, level.level)
            collector.take(rows, shares_of(rows, level))
        found.append(collector.facts())
    assert found[0].series == ()
    (series,) = found[1].series
    assert (series.axis, series.source, series.codes) == ("age", "level 3", ("0", "1", "2", "3", "4"))
    assert series.counts.tolist() == [50, 0, 0, 4, 0]
    assert np.isnan(series.low).tolist() == [False, True, True, False, True]
    pages = [report(manifest_of(terms, facts), facts, {}) for facts in found]
    assert ["Along age" in page for page in pages] == [False, True]


# --- areas: names, maps, and flows within one area


def test_flows_within_one_area_have_a_table_of_their_own(axis_of: Callable[..., Axis]) -> None:
    """The largest flows lead from area to area, at the finest level above the noise that refines both ends alike."""
    tree = tree_of_trips(axis_of, 2, areas=3)
    leaves, terms = {(0, 0): 900, (1, 2): 300, (2, 2): 500, (2, 0): 200}, terms_of(tree, sigma=0.1)
    facts = facts_of(tree, leaves, terms)
    assert tree.axis_levels(facts.largest_level) == (2, 2)
    assert [large.count for large in facts.largest] == [300, 200]
    assert [large.count for large in facts.within] == [900, 500]
    assert facts.within_records == 1400
    facts = facts_of(tree, leaves, [replace(level, sigma=1e6) if level.level == 4 else level for level in terms])
    assert facts.finest_above_noise == 3  # which refines one end further
    assert (facts.largest_level, tree.axis_levels(2)) == (2, (1, 1))
    axes = (axis_of("origin", [("1",), ("2",)]), axis_of("destination", [("1",), ("3",)]))  # a code of two codebooks
    tree = Tree(tuple(replace(axis, level_names=(f"{axis.name} zone",)) for axis in axes), alternate([1, 1], 1))
    facts = facts_of(tree, {(0, 0): 900, (1, 1): 300}, terms_of(tree, sigma=0.1))
    assert ([large.count for large in facts.largest], facts.within) == ([900, 300], ())


def _of_towns(
    axis_of: Callable[..., Axis],
    counts: list[int],
    sigma: float,
    half_widths: list[int] | None = None,
    finest: dict[str, Any] | None = None,
) -> tuple[list[LevelTerms], Facts]:
    """Return what is collected of five towns in a row that have names and, but for the last one, shapes."""
    codes = [f"t<{number}" for number in range(5)]
    tree = Tree((axis_of("home", [(code,) for code in codes]),), in_sequence([1], [(0, 1)]))
    wkb = pl.Series([shapely.to_wkb(shapely.box(at, 50, at + 1, 51)) for at in range(4)], dtype=pl.Binary)
    shapes = Shapes({("home", 1): pl.DataFrame({"code_1": codes[:4], GEOMETRY: wkb})})
    names = Names({("home", 1): pl.DataFrame({"code_1": codes[:4], "name": ["A & B", "Bee", "Sea", "Dee"]})})
    terms = terms_of(tree, sigma, **finest or {})
    collector = Collector(tree, terms, names=names, shapes=shapes)
    for level in range(2):
        rows = rows_of(tree, {(number,): count for number, count in enumerate(counts)}, level)
        collector.take(rows, shares_of(rows, terms[level]))
    if half_widths is None:
        return terms, collector.facts()
    of, wide = np.array(counts), np.array(half_widths)
    return terms, collector.facts(lambda *_: Ranges(of, of - wide, of + wide))


def _shades(report: str) -> dict[str, str]:
    """Return how the areas of the map are drawn, by the first letters of their names."""
    drawn = report[report.index('<svg class="map"') : report.index('<ul class="key">')]
    return {
        name[0]: shade
        for shade, name in re.findall(r'<path class="(\w+)"[^>]*><title>([^:]*): -?[\d,]+</title>', drawn)
    }


def test_a_map_goes_by_intervals_where_they_are_known(axis_of: Callable[..., Axis]) -> None:
    """An area is hatched if and only if its interval reaches 0, blank at 0, shaded if exact; the table has the ends."""
    terms, facts = _of_towns(axis_of, [500, 20, 0, 90, 3], sigma=200.0, half_widths=[499, 20, 0, 91, 0])
    text = report(manifest_of(terms, facts), facts, {})
    shades = _shades(text)
    assert (shades.pop("A")[0], shades) == ("c", {"B": "n", "S": "z", "D": "n"})
    told = (
        "Hatched areas may be noise: the 90% intervals of their totals reach 0. Each area is judged by itself. 1 of 5"
    )
    assert told in read(text).text
    key = text[text.index('<ul class="key">') :].partition("</ul>")[0]
    told = re.findall(r"</i>([^<]*)", key)
    assert (told[0], told[1], told[-1]) == ("may be noise", "under 100", "counts 0")
    assert '<th scope="row">Dee (t&lt;3)</th><td>90</td><td>-1</td><td>181</td>' in text
    assert '<th scope="row">t&lt;4</th><td>3</td><td>3</td><td>3</td>' in text
    clear = _of_towns(axis_of, [500, 20, 40, 90, 3], sigma=200.0, half_widths=[1] * 5)[1]
    text = report(manifest_of(terms, clear), clear, {})
    assert re.search(r"Released records by [^.]*\. Each area is judged by itself\. 1 of 5 areas", read(text).text)
    assert set("nz").isdisjoint(_shades(text).values())


@pytest.mark.parametrize(("count", "half_width"), [(3, 3), (0, 0)])
def test_a_map_speaks_only_of_what_it_draws(axis_of: Callable[..., Axis], count: int, half_width: int) -> None:
    """An area without a shape may be noise, or count 0: neither caption nor key explains what nobody sees."""
    terms, facts = _of_towns(axis_of, [500, 20, 40, 90, count], sigma=1.0, half_widths=[1, 1, 1, 1, half_width])
    text = report(manifest_of(terms, facts), facts, {})
    told = text[text.index('<ul class="key">') :].partition("</figcaption>")[0]
    assert "noise" not in told
    assert "counts 0" not in told


@pytest.mark.parametrize("what", [{"threshold": 5}, {"is_summed": True}])
def test_a_map_states_no_noise_that_it_does_not_know(axis_of: Callable[..., Axis], what: dict[str, Any]) -> None:
    """Where leaves are missing, or the level was not measured itself, the σ of the level says nothing of the totals."""
    terms, facts = _of_towns(axis_of, [500, 20, 0, 90, 3], sigma=200.0, finest=what)
    text = report(manifest_of(terms, facts), facts, {})
    assert "No interval is stated here for these totals." in read(text).text
    assert "twice the noise of such a sum" not in read(text).text
    assert _shades(text)["S"] == "z"
    assert "n" not in _shades(text).values()
    assert '<th scope="row">Bee (t&lt;1)</th><td>20</td></tr>' in text
    assert "<td>exact</td>" in text[text.index("The numbers behind this chart") :].partition("</details>")[0]


def test_a_map_tells_noise_from_signal(axis_of: Callable[..., Axis]) -> None:
    """An area is hatched if and only if its total is at most twice its noise; the table of the map has every number."""
    terms, facts = _of_towns(axis_of, [500, 20, 40, 90, 3], sigma=10.0)
    text = report(manifest_of(terms, facts), facts, {})
    seen, shades = read(text), _shades(text)
    assert shades.pop("B") == "n"
    assert shades["A"] > shades["D"] > shades["S"]
    assert shades.keys() == set("ADS")
    assert "n" not in shades.values()
    assert "Hatched areas may be noise: their totals are at most 20, twice the noise of such a sum." in seen.text
    assert "1 of 5 areas have no shape." in seen.text
    assert '<th scope="row">Bee (t&lt;1)</th><td>20</td><td>no</td>' in text
    assert '<th scope="row">t&lt;4</th><td>3</td><td>no</td>' in text
    assert '<th scope="row">A &amp; B <small>t&lt;0</small></th><td><b>500</b></td>' in text
    terms, facts = _of_towns(axis_of, [5, 2, 4, 9, 3], sigma=10.0)  # where no total stands out, no shade is explained
    text = report(manifest_of(terms, facts), facts, {})
    assert text.count('<path class="n"') == 4
    assert text[text.index('<ul class="key">') :].partition("</ul>")[0].count("<li>") == 1


def test_every_chart_has_its_numbers_which_tell_nothing_from_zero(axis_of: Callable[..., Axis]) -> None:
    """A number that nothing states is n/a, a bound of an exact level is none, and a cell of the matrix without a row has no row."""
    tree = tree_of_trips(axis_of, 1, areas=3)
    _, text, _ = reported(tree, {(0, 1): 900, (1, 2): 90}, terms_of(tree, bound=None))
    assert text.count("<svg") == text.count("The numbers behind this chart") == 5
    assert not re.search(r"<th(?! scope=\"(?:row|col)\")", text.partition("<body>")[2])
    details = text.index("<h2>Details</h2>")
    assert text.index("The tables</h2>") < details < text.index("Pairs that are released")
    behind = [part.partition("</details>")[0] for part in text.split("The numbers behind this chart")[1:]]
    tables = {re.findall(r'<th scope="col">([^<]*)</th>', part)[1]: part for part in behind}
    bounds = re.findall(r"<tr><th scope=\"row\">\d</th>.*?<td>([^<]*)</td></tr>", tables["mean count"])
    assert (bounds[0], bounds[-1]) == ("none", "n/a")
    assert '<tr><th scope="row">0</th><td>n/a</td><td>n/a</td></tr>' in tables["origin"]
    (matrix,) = (part for part in behind if "origin by destination" in part)
    assert matrix.count("<td>no row</td>") == 2  # of the two areas of each end that are left
    assert "none" not in matrix
