"""The law of the noise in a plan: how ε is shared, what `auto` takes, what is refused, and what either law costs in the cap."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from flows.console.plan_view import show_plan
from flows.forecast.answer import plan_answer
from flows.mechanisms import MECHANISMS
from flows.planning.admission import check_budget
from flows.planning.composition import cap_of, composed_epsilon, epsilon_beside, releases_within, standing_of
from flows.planning.guarantee import epsilon_of_series, holds_together
from flows.planning.plan import Plan, make_plan
from flows.spec.file import load_spec
from storage.errors import BudgetExceeded, SpecError
from storage.ledger.books import Charge
from storage.ledger.events import read_books
from storage.ledger.spending import Spending
from tasks.laws.laplace import LAPLACE, standard_deviation
from tasks.laws.table_sampler import LARGEST_TAU
from tasks.unbiased.task import Unbiased

PLANNED = Callable[..., Plan]
LAW = {"law": "laplace"}
FIVE = ["a", "b", "c", "d"]  # and the total


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PLANNED:
    """Return what makes plans of so many features of two values each, with keys that a test gives."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    (tmp_path / "people.csv").touch()
    common = {"unit": "one person", "neighbours": "add_remove", "max_records_per_unit": 1, "epsilon": 1.0}

    def plan(
        noise: dict[str, str] | None = None,
        features: list[str] = FIVE,
        privacy: dict[str, Any] | None = None,
        **keys: Any,
    ) -> Plan:
        of_privacy = common | {"delta": 1e-8} | (privacy or {})
        spec = {
            "name": "planned",
            "dataset": "made-up",
            "input": {"table": "people.csv", "features": features},
            "hierarchy": {name: {"values": 2} for name in features},
            "release": {"order": features},
            "privacy": {key: value for key, value in of_privacy.items() if value is not None},
            "budget": {"epsilon": 10.0, "delta": 1e-7},
            "mechanism": "inftda",
            **({"noise": noise} if noise else {}),
        }
        (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec | keys))
        return make_plan(load_spec(tmp_path / "spec.yaml"))

    return plan


@pytest.mark.parametrize(
    ("split", "sampler"),
    [("uniform", "table"), ({"finest": 3.0}, "opendp"), ({"geometric": 0.3}, "table"), ([1, 2, 3, 5, 7], "opendp")],
)
def test_epsilon_is_shared_like_rho_and_never_exceeded(planned: PLANNED, split: Any, sampler: str) -> None:
    """Every level is charged its share of ε and no δ or ρ, the shares are those of ρ, and exactly added they stay within ε."""
    plan = planned({"law": "laplace", "sampler": sampler}, privacy={"split": split})
    shares = plan.scheme.allocation.shares
    assert shares == planned(privacy={"split": split}).scheme.allocation.shares
    assert [level.mechanism for level in plan.levels] == [LAPLACE.name] * 5
    assert {(level.rho, level.delta, level.l2_sensitivity_squared) for level in plan.levels} == {(0, 0.0, 0)}
    assert sum(Fraction(level.epsilon) for level in plan.levels) <= 1
    for level, share in zip(plan.levels, shares, strict=True):
        assert level.epsilon == pytest.approx(float(share), rel=1e-14)
        assert level.sigma == standard_deviation(level.scale)
        assert level.tau == (LARGEST_TAU if sampler == "table" else 0)
    assert (plan.guarantee.rho, plan.guarantee.epsilon, plan.guarantee.accountant.name) == (0, 1.0, "privacy_map")


@pytest.mark.parametrize(("neighbours", "records", "levels", "l1", "times"), [
    ("add_remove", 1, 5, [1, 1, 1, 1, 1], 5), ("add_remove", 3, 5, [3, 3, 3, 3, 3], 5),
    ("substitution", 1, 4, [2, 2, 2, 2], 4), ("substitution", 3, 5, [3, 6, 6, 6, 6], 4),
])  # fmt: skip
def test_the_scale_is_what_all_records_of_a_unit_move(
    planned: PLANNED, neighbours: str, records: int, levels: int, l1: list[int], times: int
) -> None:
    """A unit's records come or go, or leave and enter; then four levels move as far as they can, and the total rests."""
    plan = planned({"law": "laplace"}, privacy={"neighbours": neighbours, "max_records_per_unit": records})
    measured = [level for level in plan.levels if level.is_charged]
    assert len(measured) == levels
    assert [level.scale for level in measured] == pytest.approx([of * times for of in l1], rel=1e-14)
    assert all(f"= {of}" in level.derivation for level, of in zip(measured, l1, strict=True))


def test_a_promise_of_distinct_records_does_not_change_laplace_noise(planned: PLANNED) -> None:
    """The ℓ₁ norm counts records, wherever they are; the Euclidean norm is smaller where they lie apart."""
    privacy = {"max_records_per_unit": 4}
    apart = privacy | {"distinct": "d"}
    scales = [[level.scale for level in planned({"law": "laplace"}, privacy=of).levels] for of in (privacy, apart)]
    assert scales[0] == scales[1]
    assert planned(privacy=apart).levels[-1].sigma < planned(privacy=privacy).levels[-1].sigma


@pytest.mark.parametrize(("law", "power"), [("laplace", 2), ("gaussian", 1)])
def test_minimised_shares_have_the_least_error_under_the_law(planned: PLANNED, law: str, power: int) -> None:
    """Of two leaves and the view cell that holds them, no share of the view in hundredths has less variance: 1 / σ² is s² under Laplace noise, s under Gaussian."""
    split = {"minimise": {"own": 1.0, "leaves": 1.0}}
    release = {"order": ["a", "b"], "views": {"own": {"a": "a"}}}
    plan = planned({"law": law}, ["a", "b"], {"split": split}, mechanism="cbdp", release=release)
    view = np.linspace(0.01, 0.89, 89)
    of_view, of_leaf = view**power, (1 - view) ** power  # 1 / σ²
    together = 1 / (of_view + of_leaf / 2)  # the variance of the sum of both leaves
    error = together + (together / 4 + 1 / of_leaf / 2)  # and of a leaf: half of the sum, and half of the difference
    own, leaves = plan.scheme.allocation.shares
    assert float(own) == pytest.approx(float(view[error.argmin()]), abs=0.011)
    assert leaves + own == 1


def test_auto_takes_less_noise_and_gaussian_with_a_schedule(planned: PLANNED) -> None:
    """Of few levels Laplace has less noise and of many the Gaussian; a schedule, or a key of ρ alone, decides for the latter."""
    auto = {"law": "auto"}
    many = [f"f{number}" for number in range(20)]
    assert planned(auto).law == "laplace"
    assert planned(auto, many).law == "gaussian"
    assert planned(auto, schedule={"cron": "0 3 1 * *", "until": "3 releases"}).law == "gaussian"
    assert planned(auto, schedule={"cron": "0 3 1 * *"}).law == "gaussian"
    assert planned(auto, privacy={"accountant": "zcdp"}).law == "gaussian"
    assert planned(auto, privacy={"epsilon": None, "rho": 0.02}).law == "gaussian"
    assert planned(auto, mechanism="stability_histogram").levels[-1].mechanism == "thresholded_discrete_laplace"
    assert planned().law == "gaussian"


@pytest.mark.parametrize(("levels", "times"), [(5, 0.62), (13, 1.0)])
def test_standard_deviations_are_as_far_apart_as_the_docs_say(planned: PLANNED, levels: int, times: float) -> None:
    """At (1, 1e-8) under add_remove Laplace noise is 0.62 times as large at five levels, and as large at thirteen."""
    features = [f"f{number}" for number in range(levels - 1)]
    of_laplace, of_gaussian = (planned({"law": law}, features).levels[-1].sigma for law in ("laplace", "gaussian"))
    assert of_laplace / of_gaussian == pytest.approx(times, abs=0.01)


def test_a_plan_states_what_either_law_costs(planned: PLANNED, capsys: pytest.CaptureFixture[str]) -> None:
    """Noise and the releases that the cap holds stand beside one another, with the law that was chosen."""
    forecast = plan_answer(planned({"law": "auto"}))
    found = {law.law: law for law in forecast.laws}
    assert forecast.law == "laplace"
    assert [law.is_chosen for law in forecast.laws] == [False, True]
    assert found["laplace"].releases == 10
    assert 60 < found["gaussian"].releases < 80
    assert found["laplace"].sigma < found["gaussian"].sigma
    assert {(level.law, level.mechanism, level.delta) for level in forecast.levels} == {("laplace", LAPLACE.name, 0.0)}
    assert all(level.scale and level.epsilon for level in forecast.levels)
    show_plan(forecast)
    said = capsys.readouterr().out
    assert "10 releases (this plan)" in said
    assert "gaussian: σ = " in said
    gaussian = plan_answer(planned())
    assert (gaussian.law, gaussian.levels[0].law, gaussian.levels[0].scale) == ("gaussian", "gaussian", None)
    assert gaussian.laws[0].epsilon == found["gaussian"].epsilon
    assert plan_answer(planned(mechanism="stability_histogram")).laws == []


def test_the_cap_holds_as_many_releases_as_it_says(planned: PLANNED) -> None:
    """So many compose within the cap and one more does not, by either law."""
    cap = cap_of(10.0, 1e-7)
    for law in ("laplace", "gaussian"):
        one = planned({"law": law}).spending
        many = releases_within(cap, one)
        assert composed_epsilon([one] * many, cap.delta, cap) <= cap.epsilon
        assert composed_epsilon([one] * (many + 1), cap.delta, cap) > cap.epsilon
    assert releases_within(cap_of(1.0, 1e-8), planned({"law": "gaussian"}).spending) == 1


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"noise": LAW, "privacy": {"epsilon": None, "rho": 0.1}}, "privacy.rho must be left out with noise.law"),
        ({"noise": LAW, "privacy": {"accountant": "zcdp"}}, "privacy.accountant must be left out with noise.law"),
        (
            {"noise": {"law": "gaussian"}, "mechanism": "stability_histogram"},
            "noise.law must be laplace with mechanism",
        ),
        ({"noise": LAW, "privacy": {"epsilon": 1e-9}}, "privacy.epsilon: the noise scale must be"),
        ({"noise": LAW, "privacy": {"epsilon": 1e4}}, "privacy.epsilon: the noise scale must be"),
        ({"noise": {"law": "laplace", "sampler": "table"}, "privacy": {"epsilon": 80.0}}, "needs more delta"),
        ({"noise": {"law": "cauchy"}}, "noise.law"),
    ],
)
def test_what_the_law_cannot_do_is_refused(planned: PLANNED, keys: dict[str, Any], told: str) -> None:
    """ρ and accountants of ρ, another law than the mechanism's, and noise out of range are refused by their keys."""
    with pytest.raises(SpecError, match=told):
        planned(**keys)


@pytest.mark.parametrize("mechanism", ["inftda", "gaussian"])
def test_a_target_is_met_with_the_least_epsilon(planned: PLANNED, mechanism: str) -> None:
    """The bound of the level is the error that is asked for, and a little less ε does not reach it."""
    target = {"level": "c", "max_error": 90, "confidence": 0.95}
    plan = planned({"law": "laplace"}, privacy={"epsilon": None, "target": target}, mechanism=mechanism)
    bound = plan.levels[3].bound
    assert bound is not None
    assert bound <= 90
    less = planned({"law": "laplace"}, privacy={"epsilon": plan.guarantee.epsilon * (1 - 1e-9)}, mechanism=mechanism)
    assert (less.levels[3].bound or 0) > 90
    auto = planned({"law": "auto"}, privacy={"epsilon": None, "target": target}, mechanism=mechanism)
    of_gaussian = planned({"law": "gaussian"}, privacy={"epsilon": None, "target": target}, mechanism=mechanism)
    assert auto.guarantee.epsilon == min(plan.guarantee.epsilon, of_gaussian.guarantee.epsilon)


def charges_of(plan: Plan, release: str) -> list[Charge]:
    """Return the charges that a plan reserves."""
    return plan.reservation(release).charges


@pytest.mark.parametrize("sampler", ["opendp", "table"])
def test_a_series_adds_epsilon_up(planned: PLANNED, sampler: str) -> None:
    """Declared together, releases are ε times their number; that holds by their charges, and a little less does not."""
    plan = planned({"law": "laplace", "sampler": sampler})
    charges = [charge for number in range(3) for charge in charges_of(plan, f"r{number}")]
    whole = plan.spending_of_series(3, 1e-7)
    assert whole.epsilon == epsilon_of_series(plan.guarantee, 3, 1e-7)
    assert 3 - 1e-12 < whole.epsilon <= 3
    assert holds_together(charges, {"privacy_map"}, whole.epsilon, 1e-7)
    assert not holds_together(charges, {"privacy_map"}, whole.epsilon * (1 - 1e-12), 1e-7)
    assert holds_together(charges, {"privacy_map"}, whole.epsilon, 1e-34) == (sampler == "opendp")


def test_charges_without_delta_compose(planned: PLANNED) -> None:
    """Releases that cost ε alone add up beside nothing, beside ρ, and beside an inexact sampler, whose τ needs some δ."""
    one, cap = planned({"law": "laplace"}).spending, cap_of(3.0, 1e-8)
    assert 2 - 1e-12 < composed_epsilon([one, one], 1e-8) <= 2
    assert standing_of([one, one], cap).epsilon <= 2
    assert epsilon_beside([one, one], cap, 0.0) == pytest.approx(1.0)
    of_rho = Spending(Fraction(1, 200), (), 0.5, 1e-8)
    assert composed_epsilon([one, of_rho], 1e-8) > composed_epsilon([one], 1e-8)
    inexact = planned({"law": "laplace", "sampler": "table"}).spending
    assert inexact.tau == 5 * LARGEST_TAU
    assert composed_epsilon([inexact, inexact], 1e-8) == composed_epsilon([one, one], 1e-8)
    assert composed_epsilon([inexact, inexact], 1e-34) == float("inf")
    assert epsilon_beside([one], cap, 0.0, Fraction(1, 10**9)) == 0.0


def test_what_does_not_fit_is_told_which_epsilon_would(planned: PLANNED) -> None:
    """A release beyond the cap is refused before anything is recorded, and the hint names the cap's ε, which fits alone."""
    from storage.database.connections import store

    plan = planned({"law": "laplace"}, privacy={"epsilon": 11.0})
    with store() as con:
        books = read_books(con)
    with pytest.raises(BudgetExceeded) as refused:
        check_budget(plan, books)
    assert "enough for ε = 10" in refused.value.hint


def test_every_mechanism_with_noise_on_any_cell_has_both_laws() -> None:
    """Whatever can use the Gaussian can use the Laplace law, and the Gaussian is the default, but for group sizes."""
    unbiased = {name for name, recipe in MECHANISMS.items() if isinstance(recipe.finish, Unbiased)}
    assert all(list(MECHANISMS[name].laws) == ["gaussian"] for name in unbiased)  # by which their counts deviate
    both = {name for name, recipe in MECHANISMS.items() if "gaussian" in recipe.laws} - unbiased
    assert both == set(MECHANISMS) - unbiased - {"stability_histogram"}
    of_sizes = {name for name, recipe in MECHANISMS.items() if recipe.is_of_sizes}
    assert all(list(MECHANISMS[name].laws) == ["gaussian", "laplace"] for name in both - of_sizes)
    assert all(list(MECHANISMS[name].laws) == ["laplace", "gaussian"] for name in of_sizes)
