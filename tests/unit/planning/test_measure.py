"""Which cells of a tree a plan measures: what the spec asks for, and what follows from public sizes."""

from dataclasses import replace

import pytest

from flows.forecast.answer import plan_answer
from storage.errors import SpecError
from tasks.mechanisms import MECHANISMS, measuring
from tasks.validate.size import expected_cells
from tests.support.keys import ABSENT, PRIVACY, features_of, planned_of
from tests.support.universe import universe_of

pytestmark = pytest.mark.usefixtures("own_home")

BINARY = universe_of([[(a, b, c) for a in "12" for b in "12" for c in "12"]], [0, 0, 0]).tree
FLAT = universe_of([[(a,) for a in "12345678"]], [0]).tree
OPEN = replace(MECHANISMS["inftda_reconciled"], measure="auto")
VIEWS = {"release.views": "margins"}
TABLE = {"noise.sampler": "table"}


def keys_of(codes=8):
    """Return the keys of a spec of two ordered axes with so many codes each, which are refined in turns."""
    axes = features_of(dict.fromkeys("ab", 1), hierarchy={name: {"ordered": codes} for name in "ab"})
    return axes | {"mechanism": "inftda_reconciled", "privacy": PRIVACY | {"accountant": "zcdp"}}


def plan_of(folder, codes=8, **changes):
    """Return the plan of such a spec with changes."""
    return planned_of(folder, keys_of(codes), changes)


@pytest.mark.parametrize(("tree", "most", "chosen"), [
    *((BINARY, *of) for of in [(8, "all"), (7, "above"), (4, "above"), (3, "survivors"), (1, "survivors")]),
    *((FLAT, *of) for of in [(8, "all"), (7, "survivors")]),  # there is no level above to measure
])  # fmt: skip
def test_the_rule_is_by_the_cells_of_the_two_finest_levels(tree, most, chosen):
    """All cells are measured where the finest level has few enough, all above it where the level above has, else survivors'."""
    assert measuring(OPEN, tree, most).measure == chosen
    assert measuring(MECHANISMS["inftda_reconciled"], tree, most).measure == "survivors"


@pytest.mark.parametrize(("codes", "keys", "asked", "chosen"), [
    (1000, {}, "auto", "all"), (1010, {}, "auto", "above"), (3000, {}, "auto", "survivors"), (3000, {}, "all", "all"),
    (3000, TABLE, "auto", "all"), (4000, TABLE, "auto", "above"), (7000, TABLE, "auto", "survivors"),
    (8, {}, ABSENT, "survivors"), (8, {"mechanism": "inftda_lenient"}, "auto", "all"),
])  # fmt: skip
def test_a_plan_states_what_is_measured(codes, keys, asked, chosen, tmp_path):
    """Ten million cells of a level are measured whatever survives, or one million where OpenDP draws them unasked."""
    plan = plan_of(tmp_path, codes, **keys, measure=asked)
    stated = plan_answer(plan).measure
    assert stated is not None
    asked = "survivors" if asked is ABSENT else asked
    assert (stated.asked, stated.chosen, plan.terms.measure) == (asked, chosen, chosen)
    cells = [level.possible_cells or 0 for level in plan.levels]
    assert stated.measured_cells == (sum(cells) if chosen == "all" else None)
    if asked == "survivors":
        assert "at most" not in stated.rule
    else:
        limit = 1_000_000 if asked == "auto" and keys != TABLE else 10_000_000
        assert f"{asked} measures every cell of a level of at most {limit:,}" in stated.rule


def test_all_cells_may_be_asked_for_as_far_as_there_is_room(tmp_path):
    """Settled with views all are measured anyway; beside a large tree all above the finest level; too many are refused."""
    plan = plan_of(tmp_path, measure="all", **VIEWS)
    assert plan.mechanism.settles_together
    assert plan_answer(plan).measure is None
    plan = plan_of(tmp_path, 4000, measure="all", **VIEWS)
    assert plan.mechanism.second_pass is not None
    assert plan.terms.measure == "above"
    for mechanism, measure in (("inftda", "survivors"), ("cascade", "all"), ("gaussian", "auto")):  # without a choice
        plan = plan_of(tmp_path, mechanism=mechanism, measure=measure, privacy=PRIVACY)
        assert (plan_answer(plan).measure, plan.terms.measure) == (None, "survivors")
    with pytest.raises(SpecError, match="not be all where the level above the finest has more than 10,000,000"):
        plan_of(tmp_path, 7000, measure="all")


def test_the_forecast_counts_all_cells(tmp_path):
    """Down to the complete level the measured cells are the possible ones; below it, of rows and on the disk, they are as elsewhere."""
    possible, sigmas = [1, 10, 100, 1000], [0.0, 5.0, 5.0, 5.0]
    for total in (None, 40):
        plain = expected_cells(possible, sigmas, total)
        assert [of.measured for of in expected_cells(possible, sigmas, total, 3)] == possible
        above = expected_cells(possible, sigmas, total, 2)
        assert [of.measured for of in above] == [*possible[:3], plain[3].measured]
        assert [of.nonzero for of in above] == [of.nonzero for of in plain]
    plans = [plan_of(tmp_path, 500, measure=measure, expected_total=1000) for measure in ("all", "survivors")]
    every, surviving = (plan_answer(plan).disk for plan in plans)
    assert every.shards > 2 * surviving.shards
