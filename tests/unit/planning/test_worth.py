"""What a release would be worth at other ε: the noise of the plan that asks for that ε, and nothing spent."""

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.forecast.worth import further_releases, worth_at_three
from flows.planning.composition import cap_of, composed_epsilon
from flows.planning.plan import Plan, make_plan
from flows.spec.file import parse_spec
from storage.ledger.spending import Spending

FEATURES = {
    "input": {"table": "people.csv", "features": ["home", "age"]},
    "hierarchy": {"home": {"values": 3}, "age": {"ordered": 20}},
    "release": {"order": ["home", "age"]},
}
KINDS: dict[str, dict[str, Any]] = {
    "inftda": {},
    "inftda with Laplace noise": {"mechanism": "inftda", "noise": {"law": "laplace"}},
    "unbiased": {"mechanism": "unbiased_tree"},
    "views": {"release": {"order": ["home", "age"], "views": "margins"}, "mechanism": "inftda_reconciled"},
    "leaves": {"mechanism": "stability_histogram"},
}


@pytest.fixture(autouse=True)
def _table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let there be a table, and a store of the test's own."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    (tmp_path / "people.csv").write_text("home,age\n0,3\n")


def planned(folder: Path, epsilon: float = 1.0, **more: Any) -> Plan:
    """Return the plan of a small release of features at an ε."""
    keys: dict[str, Any] = {
        "name": "small",
        "dataset": "small",
        "mechanism": "inftda",
        "privacy": {
            "unit": "one person",
            "neighbours": "add_remove",
            "max_records_per_unit": 1,
            "epsilon": epsilon,
            "delta": 1e-6,
        },
        "budget": {"epsilon": 10.0, "delta": 1e-5},
        **FEATURES,
        **more,
    }
    return make_plan(parse_spec(yaml.safe_dump(keys), folder / "spec.yaml"))


@pytest.mark.parametrize(
    "kind",
    ["inftda", "leaves", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in [*KINDS][1:4])],
)
def test_half_and_double_are_the_plans_of_those_epsilons(kind: str, tmp_path: Path) -> None:
    """Every level is worth at half and at double the ε what the plan of a spec with that ε says it is worth."""
    cap = cap_of(10.0, 1e-5)
    plan = planned(tmp_path, 1.0, **KINDS[kind])
    low, same, high = worth_at_three(plan, [], cap, 500)
    assert [worth.epsilon for worth in (low, same, high)] == pytest.approx([0.5, 1.0, 2.0])
    assert [worth.is_planned for worth in (low, same, high)] == [False, True, False]
    for worth in (low, high):
        asked = planned(tmp_path, worth.epsilon, **KINDS[kind])
        (_, alone, _) = worth_at_three(asked, [], cap, 500)
        assert worth.levels == alone.levels
        assert worth.finest_above == alone.finest_above
        assert worth.after == pytest.approx(alone.after)
    noises = [level.within for level in same.levels if level.within is not None]
    assert noises
    for at_low, at_high in zip(low.levels, high.levels, strict=True):
        if at_low.within:
            assert at_high.within is not None
            assert at_low.within > at_high.within


def test_of_twenty_counts_nineteen_are_within(tmp_path: Path) -> None:
    """The stated distance is the least that holds for 95% of the noise, and a count past the other number is hardly noise."""
    plan = planned(tmp_path)
    (_, same, _) = worth_at_three(plan, [], cap_of(10.0, 1e-5), None)
    for terms, worth in zip(plan.levels, same.levels, strict=True):
        if terms.same_as is not None:
            continue
        weights = {value: math.exp(-(value**2) / (2 * terms.sigma**2)) for value in range(-400, 401)}
        whole = sum(weights.values())

        def outside(reach: int, weights: dict[int, float] = weights, whole: float = whole) -> float:
            return sum(weight for value, weight in weights.items() if abs(value) > reach) / whole

        assert worth.within is not None
        assert outside(worth.within) <= 0.05 * (1 + 1e-9)
        assert outside(worth.within - 1) > 0.05 * (1 - 1e-2)
        assert worth.more_than_noise is not None
        assert terms.possible_cells is not None
        assert terms.possible_cells * outside(worth.more_than_noise) / 2 <= 1
        assert same.finest_above is None


def test_unbiased_counts_stand_above_their_own_deviation(tmp_path: Path) -> None:
    """Down to which level the mean count is twice the noise is told by the deviations of counts, not by the noise of measurements."""
    plan, cap = planned(tmp_path, mechanism="unbiased_tree"), cap_of(10.0, 1e-5)
    depth = len(plan.levels) - 1
    cells = {of.level: of.possible_cells for of in plan.levels if of.possible_cells}
    total = math.ceil(max(2 * plan.deviations[level] * cells[level] for level in range(1, depth + 1)))
    (_, same, _) = worth_at_three(plan, [], cap, total)
    assert same.finest_above == depth
    assert any(total < 2 * of.sigma * cells[of.level] for of in plan.levels[1:])
    (_, fewer, _) = worth_at_three(plan, [], cap, total - 1)
    assert (fewer.finest_above or 0) < depth


def test_an_epsilon_that_the_cap_does_not_allow_is_marked(tmp_path: Path) -> None:
    """With what was spent before, double the ε is over the cap, and what would be spent says so."""
    cap = cap_of(1.8, 1e-5)
    before = [planned(tmp_path, 1.0).spending]
    low, same, high = worth_at_three(planned(tmp_path), before, cap, None)
    assert (low.fits, same.fits, high.fits) == (True, True, False)
    assert high.after > cap.epsilon >= same.after


@pytest.mark.thorough
def test_further_releases_fit_and_one_more_does_not(tmp_path: Path) -> None:
    """So many more releases like the planned one keep within the cap, and the next would pass it."""
    one, cap = planned(tmp_path).spending, cap_of(4.0, 1e-5)
    further = further_releases(one, [], cap)
    assert further > 0
    assert composed_epsilon([one] * (further + 1), cap.delta, cap) <= cap.epsilon
    assert composed_epsilon([one] * (further + 2), cap.delta, cap) > cap.epsilon
    tiny = Spending(Fraction(1, 10**12), (), 1e-6, 1e-6)
    assert further_releases(tiny, [], cap) == 100
