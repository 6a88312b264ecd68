"""The verdict of a comparison: who leads in leaves, margins and ranges, by how much, and what limits that."""

from itertools import combinations, product

import numpy as np
import polars as pl
import pytest

from flows.trials.in_memory import public_table
from flows.trials.verdict import lead_of, verdict_of
from tasks.tree.axis import Axis
from tasks.tree.frontier import Frontier
from tasks.tree.order import Tree
from tasks.validate.sums import RECTANGLES, margins, ranges
from tasks.validate.utility import UtilityTerms

FAR, NEAR = [100.0, 102.0, 98.0], [50.0, 51.0, 49.0]


def test_one_mechanism_that_leads_in_all_is_named_once():
    """Its lead is said for each question as a ratio to the next one; where all leads are clear, that is the second sentence."""
    scores = {question: {"far": FAR, "near": NEAR} for question in ("leaves", "margins", "ranges")}
    verdict = verdict_of(1.0, scores, {"far", "near"}, 3)
    assert verdict.text == (
        "At ε = 1, near has the least error in leaves (50% less than far), in margins (50% less than far) and"
        " in ranges (50% less than far). Every lead is more than two standard errors of the 3 runs, and hardly chance."
    )
    assert verdict.leads["leaves"].ratio == pytest.approx(0.5)


def test_what_the_winner_of_leaves_loses_and_what_may_be_chance_is_said():
    """Another winner is named beside it; a lead within two standard errors is no lead, and one run tells none."""
    scores = {
        "leaves": {"a": NEAR, "b": FAR},
        "margins": {"a": FAR, "b": NEAR},
        "ranges": {"a": NEAR, "b": [50, 53, 48]},
    }
    text = verdict_of(0.1, scores, {"a", "b"}, 3).text
    assert text == (
        "At ε = 0.1, a has the least error in leaves (50% less than b), and b in margins (50% less than a). The 3 runs do not tell"
        " a and b apart in ranges: the differences are within two standard errors; in margins a has 2.0 times the least error."
    )
    once = verdict_of(1.0, {"leaves": {"a": [1.0], "b": [9.0]}}, {"a", "b"}, 1)
    assert once.text == "At ε = 1, one run does not tell a lead from chance."
    assert not once.leads["leaves"].is_clear
    known = verdict_of(1.0, scores, {"a", "b"}, 3, {"a": 8.0, "b": 6.0})
    assert (known.leads["ranges"].best, known.leads["ranges"].ratio, known.leads["ranges"].is_clear) == (
        "b",
        0.75,
        True,
    )
    assert "apart" not in known.text
    assert "b has the least standard deviation of a range, 6 in the mean of squares (25% less than a)." in known.text
    some = verdict_of(1.0, scores, {"a", "b"}, 3, {"b": 6.0})  # of a nothing is known, so the runs decide
    assert "a and b apart in ranges" in some.text


def test_what_makes_no_release_is_not_the_best():
    """A baseline may have less error, and the verdict says so; where nothing else was tried, the best of them leads."""
    scores = {key: {"hay": NEAR, "inftda": FAR, "tda_l2": [200.0, 201.0, 199.0]} for key in ("leaves", "margins")}
    verdict = verdict_of(1.0, scores, {"inftda", "tda_l2"}, 3)
    assert (verdict.leads["leaves"].best, verdict.leads["leaves"].next) == ("inftda", "tda_l2")
    assert verdict.text.endswith("No release is made by hay, which would have less error in leaves and margins.")
    assert lead_of({"hay": NEAR, "laplace": FAR}, set()).best == "hay"


@pytest.mark.parametrize(
    "scores",
    [{"leaves": {"a": FAR}}, {"leaves": {"a": [0.0, 0.0], "b": [0.0, 0.0]}}, {"leaves": {"a": FAR}, "ranges": {}}],
)
def test_nothing_to_compare_is_said(scores):
    """With one mechanism nothing is best, and without any error there is no ratio."""
    verdict = verdict_of(1.0, scores, {"a", "b"}, 2)
    assert "least error" not in verdict.text
    assert verdict.leads["leaves"].ratio is None


# margins and ranges ----------------------------------------------------------------------------------------------------


def axis_of(name, counts, *, is_ordered=False):
    """Return an axis with so many areas at each level, spread evenly."""
    sizes = [1, *counts]
    parents = [np.arange(below) * above // below for above, below in zip(sizes, counts, strict=False)]
    first = [np.searchsorted(parent, np.arange(above + 1)) for parent, above in zip(parents, sizes, strict=False)]
    levels = tuple(f"{name}{level}" for level in range(len(counts))) if len(counts) > 1 else (name,)
    codes = tuple(pl.Series([str(area) for area in range(many)]) for many in counts)
    return Axis(name, levels, tuple(first), tuple(parents), codes, is_ordered=is_ordered)


def test_margins_and_ranges_are_those_of_a_brute_force():
    """Of two ordered axes and one of areas, with signed errors, every total and every range is added up one by one."""
    tree = Tree(
        (axis_of("zone", [2, 6]), axis_of("age", [2, 5], is_ordered=True), axis_of("hour", [4], is_ordered=True)),
        (0, 0, 1, 1, 2),
    )
    generator = np.random.default_rng(3)
    true, found = generator.integers(1, 9, (2, 6, 5, 4))
    areas = tuple(of.ravel() for of in np.indices(true.shape))
    tables = [Frontier(5, areas, of.ravel()) for of in (true, found)]
    apart = found - true
    zone, age, hour = (np.abs(apart.sum(axis=rest)) for rest in ((1, 2), (0, 2), (0, 1)))
    assert margins(tree, *tables, UtilityTerms()) == pytest.approx(
        {
            "zone.zone0": np.abs(apart.sum(axis=(1, 2)).reshape(2, 3).sum(axis=1)).mean(),
            "zone.zone1": zone.mean(),
            "age.age1": age.mean(),
            "hour": hour.mean(),
        }
    )
    by_brute_force = {
        name: np.mean([abs(totals[i:j].sum()) for i in range(len(totals)) for j in range(i + 1, len(totals) + 1)])
        for name, totals in (("age", apart.sum(axis=(0, 2))), ("hour", apart.sum(axis=(0, 1))))
    }
    rectangles = apart.sum(axis=0)
    starts, ends = (list(combinations(range(size), 2)) for size in (6, 5))
    every = [abs(rectangles[i:j, k:m].sum()) for (i, j), (k, m) in product(starts, ends)]
    said = ranges(tree, *tables, UtilityTerms())
    assert said.pop("age × hour") == pytest.approx(np.mean(every), abs=5 * np.std(every) / np.sqrt(RECTANGLES))
    assert said == pytest.approx(by_brute_force)


def test_leaves_and_everything_are_no_margins():
    """A single axis has no totals but those of the levels above its leaves, and without an order there are no ranges."""
    tree = Tree((axis_of("zone", [1, 3, 3, 6]),), (0, 0, 0, 0))
    table = public_table(tree, [np.arange(6)], np.arange(1, 7))
    leaves = Frontier(4, table.levels[-1].areas, table.levels[-1].true_counts)
    nothing = Frontier(4, tuple(of[:0] for of in leaves.areas), leaves.counts[:0])
    assert margins(tree, leaves, nothing, UtilityTerms()) == {"zone.zone1": 7.0}
    assert ranges(tree, leaves, nothing, UtilityTerms()) == {}
