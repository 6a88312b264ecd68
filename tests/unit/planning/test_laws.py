"""The noise of a plan: how ε is shared, which law `auto` takes, what it costs in the cap, and what other ε would be worth."""

import math
from fractions import Fraction

import numpy as np
import pytest

from flows.console.plan_view import show_plan
from flows.forecast.answer import plan_answer
from flows.forecast.worth import further_releases, worth_at_three
from flows.planning.composition import cap_of, composed_epsilon, epsilon_beside, releases_within, standing_of
from flows.planning.guarantee import epsilon_of_series, holds_together
from flows.specification.sections.privacy import Target
from storage.errors import UsageError
from storage.ledger.spending import Spending
from tasks.laws.laplace import LAPLACE, standard_deviation
from tasks.laws.samplers import LARGEST_TAU
from tasks.mechanisms import MECHANISMS
from tasks.unbiased.task import Unbiased
from tests.support.keys import ABSENT, features_of, planned_of

FIVE = ["a", "b", "c", "d"]  # and the total


@pytest.fixture
def planned(tmp_path, own_home):
    """Return what makes plans of so many features of two values each, with a law and other keys that a test gives."""

    def plan(law="", features=FIVE, **keys):
        noise = {"noise.law": law} if law else {}
        changes = {key.replace("__", "."): value for key, value in keys.items()}
        features = features if isinstance(features, dict) else dict.fromkeys(features, 2)
        return planned_of(tmp_path, features_of(features), noise | changes)

    return plan


@pytest.mark.parametrize(
    ("split", "sampler"),
    [("uniform", "table"), ({"finest": 3.0}, "opendp"), ({"geometric": 0.3}, "table"), ([1, 2, 3, 5, 7], "opendp")],
)
def test_epsilon_is_shared_like_rho_and_never_exceeded(planned, split, sampler):
    """Every level is charged its share of ε and no δ or ρ, the shares are those of ρ, and exactly added they stay within ε."""
    plan = planned("laplace", noise__sampler=sampler, privacy__split=split)
    shares = plan.scheme.allocation.shares
    assert shares == planned(privacy__split=split).scheme.allocation.shares
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
def test_the_scale_is_what_all_records_of_a_unit_move(planned, neighbours, records, levels, l1, times):
    """A unit's records come or go, or leave and enter; then four levels move as far as they can, and the total rests."""
    plan = planned("laplace", privacy__neighbours=neighbours, privacy__max_records_per_unit=records)
    measured = [level for level in plan.levels if level.is_charged]
    assert len(measured) == levels
    assert [level.scale for level in measured] == pytest.approx([of * times for of in l1], rel=1e-14)
    assert all(f"= {of}" in level.derivation for level, of in zip(measured, l1, strict=True))


def test_a_promise_of_distinct_records_does_not_change_laplace_noise(planned):
    """The ℓ₁ norm counts records, wherever they are; the Euclidean norm is smaller where they lie apart."""
    (anywhere, smaller), (apart, least) = (
        [planned(law, privacy__max_records_per_unit=4, privacy__distinct=of).levels for law in ("laplace", "gaussian")]
        for of in (ABSENT, "d")
    )
    assert [level.scale for level in anywhere] == [level.scale for level in apart]
    assert least[-1].sigma < smaller[-1].sigma


@pytest.mark.parametrize(("law", "power"), [("laplace", 2), ("gaussian", 1)])
def test_minimised_shares_have_the_least_error_under_the_law(planned, law, power):
    """Of two leaves and the view cell that holds them, no share of the view in hundredths has less variance: 1 / σ² is s² under Laplace noise, s under Gaussian."""
    split = {"minimise": {"own": 1.0, "leaves": 1.0}}
    release = {"order": ["a", "b"], "views": {"own": {"a": "a"}}}
    plan = planned(law, ["a", "b"], privacy__split=split, mechanism="cbdp", release=release)
    view = np.linspace(0.01, 0.89, 89)
    of_view, of_leaf = view**power, (1 - view) ** power  # 1 / σ²
    together = 1 / (of_view + of_leaf / 2)  # the variance of the sum of both leaves
    error = together + (together / 4 + 1 / of_leaf / 2)  # and of a leaf: half of the sum, and half of the difference
    own, leaves = plan.scheme.allocation.shares
    assert float(own) == pytest.approx(float(view[error.argmin()]), abs=0.011)
    assert leaves + own == 1


def test_auto_takes_less_noise_and_gaussian_with_a_schedule(planned):
    """Of few levels Laplace has less noise and of many the Gaussian; a schedule, or a key of ρ alone, decides for the latter."""
    assert planned("auto").law == "laplace"
    assert planned("auto", [f"f{number}" for number in range(20)]).law == "gaussian"
    assert planned("auto", schedule={"cron": "0 3 1 * *", "until": "3 releases"}).law == "gaussian"
    assert planned("auto", schedule={"cron": "0 3 1 * *"}).law == "gaussian"
    assert planned("auto", privacy__accountant="zcdp").law == "gaussian"
    assert planned("auto", privacy__epsilon=ABSENT, privacy__rho=0.02).law == "gaussian"
    assert planned("auto", mechanism="stability_histogram").levels[-1].mechanism == "thresholded_discrete_laplace"
    assert planned().law == "gaussian"


def test_a_plan_states_what_either_law_costs(planned, capsys):
    """Noise and the releases that the cap holds stand beside one another, with the law that was chosen."""
    plan = planned("auto")
    forecast = plan_answer(plan)
    gaussian, laplace = forecast.laws
    assert (gaussian.law, gaussian.is_chosen, laplace.law, laplace.is_chosen) == ("gaussian", False, "laplace", True)
    assert laplace.sigma < gaussian.sigma
    assert {(level.law, level.mechanism, level.delta) for level in forecast.levels} == {("laplace", LAPLACE.name, 0.0)}
    show_plan(forecast)
    said = capsys.readouterr().out
    assert f"{laplace.releases} releases (this plan)" in said
    assert "gaussian: σ = " in said
    other = planned()
    assert plan_answer(other).laws[0].epsilon == gaussian.epsilon
    assert plan_answer(planned(mechanism="stability_histogram")).laws == []
    cap = cap_of(10.0, 1e-7)
    for one, stated in ((plan.spending, laplace.releases), (other.spending, gaussian.releases)):
        assert stated == releases_within(cap, one)
        assert composed_epsilon([one] * stated, cap.delta, cap) <= cap.epsilon
        assert composed_epsilon([one] * (stated + 1), cap.delta, cap) > cap.epsilon


@pytest.mark.parametrize("mechanism", ["inftda", "gaussian"])
def test_a_target_is_met_with_the_least_epsilon(planned, mechanism):
    """The bound of the level is the error that is asked for, and a little less ε does not reach it; written, ε is rounded up."""
    target = {"level": "c", "max_error": 90, "confidence": 0.95}
    laws, keys = ("laplace", "gaussian", "auto"), {"privacy__epsilon": ABSENT, "privacy__target": target}
    plan, of_gaussian, auto = (planned(law, **keys, mechanism=mechanism) for law in laws)
    assert (plan.levels[3].bound or 91) <= 90
    less = planned("laplace", privacy__epsilon=plan.guarantee.epsilon * (1 - 1e-9), mechanism=mechanism)
    assert (less.levels[3].bound or 0) > 90
    assert auto.guarantee.epsilon == min(plan.guarantee.epsilon, of_gaussian.guarantee.epsilon)
    for of in (plan, of_gaussian):
        assert of.guarantee.epsilon <= float(of.statement()[1:].split(",")[0]) < of.guarantee.epsilon * (1 + 1e-5)


@pytest.mark.parametrize(("keys", "level", "told", "next_step"), [
    ({"mechanism": "inftda_reconciled"}, "a", "--for: mechanism inftda_reconciled states no error bound.", "such as mechanism: inftda."),
    (
        {"release__views": "margins"},
        "a",
        "--for: mechanism inftda states no error bound with release.views.",
        "such as mechanism: inftda without release.views.",
    ),
    ({}, "county", "--for must be one of the released levels a, b, c, d, got county.", ""),
])  # fmt: skip
def test_a_bound_that_cannot_be_had_is_told_once(planned, keys, level, told, next_step):
    """The option is named, and not the spec's key, which is not there; what to do next is not lost."""
    with pytest.raises(UsageError) as refused:
        plan_answer(planned(**keys), Target(level=level, max_error=9, confidence=0.9))
    assert (str(refused.value), refused.value.field) == (told, "--for")
    assert refused.value.hint.endswith(next_step)


@pytest.mark.parametrize("sampler", ["opendp", "table"])
def test_a_series_adds_epsilon_up(planned, sampler):
    """Declared together, releases are ε times their number; that holds by their charges, and a little less does not."""
    plan = planned("laplace", noise__sampler=sampler)
    charges = [charge for number in range(3) for charge in plan.reservation(f"r{number}").charges]
    whole = plan.spending_of_series(3, 1e-7)
    assert whole.epsilon == epsilon_of_series(plan.guarantee, 3, 1e-7)
    assert 3 - 1e-12 < whole.epsilon <= 3
    assert holds_together(charges, {"privacy_map"}, whole.epsilon, 1e-7)
    assert not holds_together(charges, {"privacy_map"}, whole.epsilon * (1 - 1e-12), 1e-7)
    assert holds_together(charges, {"privacy_map"}, whole.epsilon, 1e-34) == (sampler == "opendp")
    assert whole.approximate == plan.spending.approximate * 3
    assert composed_epsilon([whole], 1e-7) == whole.epsilon
    histogram = planned(mechanism="stability_histogram")
    delta = histogram.guarantee.delta
    assert histogram.spending_of_series(3, 4 * delta).approximate == histogram.spending.approximate * 3
    assert histogram.spending_of_series(3, delta).epsilon == math.inf


def test_charges_without_delta_compose(planned):
    """Releases that cost ε alone add up beside nothing, beside ρ, and beside an inexact sampler, whose τ needs some δ."""
    one, cap = planned("laplace").spending, cap_of(3.0, 1e-8)
    assert 2 - 1e-12 < composed_epsilon([one, one], 1e-8) <= 2
    assert standing_of([one, one], cap).epsilon <= 2
    assert epsilon_beside([one, one], cap, 0.0) == pytest.approx(1.0)
    of_rho = Spending(Fraction(1, 200), (), 0.5, 1e-8)
    assert composed_epsilon([one, of_rho], 1e-8) > composed_epsilon([one], 1e-8)
    inexact = planned("laplace", noise__sampler="table").spending
    assert inexact.tau == 5 * LARGEST_TAU
    assert composed_epsilon([inexact, inexact], 1e-8) == composed_epsilon([one, one], 1e-8)
    assert composed_epsilon([inexact, inexact], 1e-34) == float("inf")
    assert epsilon_beside([one], cap, 0.0, Fraction(1, 10**9)) == 0.0


def test_every_mechanism_with_noise_on_any_cell_has_both_laws():
    """Whatever can use the Gaussian can use the Laplace law, and the Gaussian is the default, but for group sizes."""
    for name, recipe in MECHANISMS.items():
        if isinstance(recipe.finish, Unbiased):
            assert list(recipe.laws) == ["gaussian"]  # by which their counts deviate
        elif name != "stability_histogram":
            assert list(recipe.laws) == (["laplace", "gaussian"] if recipe.counts_groups else ["gaussian", "laplace"])


# what other ε would be worth -----------------------------------------------------------------------------------------

KINDS = {
    "inftda": {},
    "inftda with Laplace noise": {"noise__law": "laplace"},
    "unbiased": {"mechanism": "unbiased_tree"},
    "views": {"release__views": "margins", "mechanism": "inftda_reconciled"},
    "leaves": {"mechanism": "stability_histogram"},
}
CAP = cap_of(10.0, 1e-5)


def of_two(planned, epsilon=1.0, **changes):
    """Return the plan of a small release of two features at an ε."""
    features = {"home": 3, "age": {"ordered": 20}}
    return planned(features=features, **{"privacy__epsilon": epsilon, "privacy__delta": 1e-6} | changes)


@pytest.mark.parametrize("kind", ["leaves", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in [*KINDS][:4])])
def test_half_and_double_are_the_plans_of_those_epsilons(kind, planned):
    """Every level is worth at half and at double the ε what the plan of a spec with that ε says it is worth."""
    low, same, high = worth_at_three(of_two(planned, **KINDS[kind]), [], CAP, 500)
    assert [worth.epsilon for worth in (low, same, high)] == pytest.approx([0.5, 1.0, 2.0])
    assert [worth.is_planned for worth in (low, same, high)] == [False, True, False]
    for worth in (low, high):
        (_, alone, _) = worth_at_three(of_two(planned, worth.epsilon, **KINDS[kind]), [], CAP, 500)
        assert (worth.levels, worth.finest_above) == (alone.levels, alone.finest_above)
        assert worth.after == pytest.approx(alone.after)
    assert any(level.within for level in same.levels)
    for at_low, at_high in zip(low.levels, high.levels, strict=True):
        assert not at_low.within or at_low.within > (at_high.within or 0)


def test_of_twenty_counts_nineteen_are_within(planned):
    """The stated distance is the least that holds for 95% of the noise, and a count past the other number is hardly noise."""
    plan = of_two(planned)
    (_, same, _) = worth_at_three(plan, [], CAP, None)
    assert same.finest_above is None
    for terms, worth in zip(plan.levels, same.levels, strict=True):
        if terms.same_as is not None:
            continue
        weights = {value: math.exp(-(value**2) / (2 * terms.sigma**2)) for value in range(-400, 401)}
        least, past = worth.within or 0, worth.more_than_noise or 0
        outside, less, hardly = (
            sum(weight for value, weight in weights.items() if abs(value) > reach) / sum(weights.values())
            for reach in (least, least - 1, past)
        )
        assert outside <= 0.05 * (1 + 1e-9)
        assert less > 0.05 * (1 - 1e-2)
        assert (terms.possible_cells or math.inf) * hardly / 2 <= 1


def test_unbiased_counts_stand_above_their_own_deviation(planned):
    """Down to which level the mean count is twice the noise is told by the deviations of counts, not by the noise of measurements."""
    plan = of_two(planned, mechanism="unbiased_tree")
    depth = len(plan.levels) - 1
    cells = {of.level: of.possible_cells for of in plan.levels if of.possible_cells}
    total = math.ceil(max(2 * plan.deviations[level] * cells[level] for level in range(1, depth + 1)))
    (_, same, _), (_, fewer, _) = (worth_at_three(plan, [], CAP, of) for of in (total, total - 1))
    assert same.finest_above == depth > (fewer.finest_above or 0)
    assert any(total < 2 * of.sigma * cells[of.level] for of in plan.levels[1:])


def test_an_epsilon_that_the_cap_does_not_allow_is_marked(planned):
    """With what was spent before, double the ε is over the cap, and what would be spent says so."""
    cap, one = cap_of(1.8, 1e-5), of_two(planned)
    low, same, high = worth_at_three(one, [one.spending], cap, None)
    assert (low.fits, same.fits, high.fits) == (True, True, False)
    assert high.after > cap.epsilon >= same.after


@pytest.mark.thorough
def test_further_releases_fit_and_one_more_does_not(planned):
    """So many more releases like the planned one keep within the cap, and the next would pass it."""
    one, cap = of_two(planned).spending, cap_of(4.0, 1e-5)
    further = further_releases(one, [], cap)
    assert further > 0
    assert composed_epsilon([one] * (further + 1), cap.delta, cap) <= cap.epsilon
    assert composed_epsilon([one] * (further + 2), cap.delta, cap) > cap.epsilon
    tiny = Spending(Fraction(1, 10**12), (), 1e-6, 1e-6)
    assert further_releases(tiny, [], cap) == 100
