"""Releases that promise different numbers of records per unit: what they cost one unit together.

What a unit with more records costs an earlier release is compared with an enumeration of everything that such a unit can
move. Two releases, of which the second is chosen after seeing the first, are enumerated outcome by outcome, and their real δ
is compared with the cap's. Last, releases are drawn, and an attack tries to refute the claim that the ledger makes.
"""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, product
from types import SimpleNamespace

import numpy as np
import pytest

from flows.answers.ledger import ledger_answer
from flows.planning.admission import admission
from flows.planning.budget import check_fits, reserve
from flows.planning.composition import cap_of, composed_epsilon, epsilon_beside, standing_of
from flows.planning.plan import make_plan
from flows.specification.file import load_spec
from storage.database.connections import store, transaction
from storage.errors import BudgetExceeded, SpecError
from storage.ledger.accounts import DatasetTerms
from storage.ledger.spending import Contributions, Spending, claimed_units, for_one_unit, growth, weakest_promise
from tasks.accounting.sensitivity import ADD_REMOVE, SUBSTITUTION, l2_sensitivity_squared
from tasks.laws.samplers import discrete_gaussian
from tests.support.attacks import FALSE_ALARM, Claim, lower_bound, rehearsed
from tests.support.keys import PRIVACY
from tests.support.neighbours import contributions, holds, moves
from tests.support.spec import spec_in

LEAVES = list(product("ab", "12"))  # two areas of two places
PARTITIONS = {"root": 0, "area": 1, "place": 2}  # how much of a leaf's path a level keeps
CAP = cap_of(1.0, 1e-3)


def promise(m, distinct=None, *, exact=False, cells=None):
    """Return the data owner's promise of at most m records, or exactly m."""
    return Contributions("promise", distinct, exact, m, (distinct or "") if cells is None else cells)


def enforced(m):
    """Return a bound of m records that ingest ensures."""
    return Contributions("ingest", None, exact_records_per_unit=False, max_records_per_unit=m)


def furthest(neighbours, most, distinct, level):
    """Return Δ₂² of a level by enumeration of everything that a unit with at most so many records can contribute."""
    cells = [leaf[: PARTITIONS[distinct]] for leaf in LEAVES] if distinct else None
    changes = moves(neighbours, contributions(len(LEAVES), most, cells=cells))
    return int(((changes @ holds([leaf[: PARTITIONS[level]] for leaf in LEAVES])) ** 2).sum(axis=1).max())


@pytest.mark.parametrize("neighbours", [ADD_REMOVE, SUBSTITUTION])
@pytest.mark.parametrize("level", PARTITIONS)
@pytest.mark.parametrize(("charged_for", "kept"), [(None, None), ("area", "area"), ("place", "place"), ("place", None)])
def test_what_a_release_costs_a_larger_unit_is_never_too_little(neighbours, level, charged_for, kept):
    """For all units with at most M records, no level moves further than its charge for m records, grown; without distinct it is exact."""
    below = {"area": {"root": 2, "area": 1, "place": 1}, "place": {"root": 4, "area": 2, "place": 1}}
    for m, most in combinations(range(1, 5), 2):
        most_distinct = below[charged_for][level] if charged_for else None
        square = l2_sensitivity_squared(neighbours, m, most_distinct, is_root=level == "root")
        grown = square * growth(promise(m, charged_for), promise(most, kept))
        real = furthest(neighbours, most, kept, level)
        assert real <= grown
        assert charged_for or real == grown


def test_who_enforces_a_bound_is_not_asked_for_more():
    """A release whose bound ingest ensures costs every unit the same; its bound is nobody's promise."""
    one, five = Spending(CAP.rho / 20, (), 0.1, 1e-3, contributions=enforced(1)), Fraction(1)
    assert growth(enforced(1), promise(5)) == five
    assert for_one_unit([one, replace(one, contributions=promise(5))])[0] == one
    assert weakest_promise([enforced(7), promise(2), None]) == promise(2)
    assert weakest_promise([enforced(7), None]) is None
    assert weakest_promise([promise(3, "place"), promise(2, "area")]) == promise(3)
    assert weakest_promise([promise(2, "area"), promise(3, "area")]) == promise(3, "area")
    for cells in ("of another codebook", ""):  # a level of the same name, and one of which no more was recorded
        assert weakest_promise([promise(3, "area"), promise(3, "area", cells=cells)]) == promise(3)
    assert weakest_promise([promise(3, "area", cells="")] * 2) == promise(3)
    assert weakest_promise([promise(3, "area", cells="")]) == promise(3, "area", cells="")


def test_what_costs_epsilon_grows_as_group_privacy_says():
    """ε of noise without ρ grows as Δ₁ does, δ with it in whole steps, τ by the cells that are touched; the order is none."""
    first = Spending(Fraction(0), ((0.1, 0.0), (0.2, 1e-6)), 0.3, 1e-3, Fraction(1, 2**90), promise(2))
    more = replace(first, contributions=promise(5))
    grown, same = for_one_unit([first, more])
    assert same == more
    assert for_one_unit([more, first]) == [same, grown]
    assert for_one_unit([grown, same]) == [grown, same]
    (pure, none), (epsilon, delta) = grown.approximate
    assert (pure, none) == (pytest.approx(0.25), 0.0)
    assert Fraction(pure) >= Fraction(0.1) * 5 / 2
    assert epsilon == pytest.approx(0.6)
    assert delta == pytest.approx(1e-6 * (1 + math.exp(0.2) + math.exp(0.4)))
    assert grown.tau == 3 * first.tau
    assert math.isinf(grown.epsilon)


def spent_on(spending):
    """Return an account of which so much was spent."""
    return SimpleNamespace(spendings=[spending])


def law(scale, mean, reach):
    """Return the probabilities of a discrete Gaussian around a count, from −reach to reach."""
    weights = np.exp(-((np.arange(-reach, reach + 1) - mean) ** 2) / (2 * scale**2))
    return weights / weights.sum()


def real_delta(first, left_after, most, epsilon):
    """Return δ at ε of two counts of a unit's records, the second of which spends by what the first has shown.

    Args:
        first: ρ of the first release, charged for one record.
        left_after: ρ that the second may spend, charged for `most` records: all of it if the first count is high, otherwise half.
        most: records of the unit.
        epsilon: ε.
    """
    sigma = math.sqrt(1 / (2 * float(first)))
    reach = math.ceil(12 * sigma) + most
    of_first = law(sigma, most, reach), law(sigma, 0, reach)
    worst = 0.0
    for one, other in ((0, 1), (1, 0)):
        delta = 0.0
        for seen, part in ((True, 1.0), (False, 0.5)):
            chosen = (np.arange(-reach, reach + 1) > most / 2) == seen
            scale = math.sqrt(most**2 / (2 * part * float(left_after)))
            width = math.ceil(12 * scale) + most
            then = law(scale, most, width), law(scale, 0, width)
            likely, unlikely = (np.outer(of_first[table][chosen], then[table]) for table in (one, other))
            delta += float(np.clip(likely - math.exp(epsilon) * unlikely, 0, None).sum())
        worst = max(worst, delta)
    return worst


@pytest.mark.parametrize("most", [2, 5])
def test_the_cap_holds_for_a_unit_with_all_that_is_promised(most):
    """By enumeration of all outcomes, what the grown charges leave keeps the cap's δ; what plain charges leave does not."""
    rho = CAP.rho * Fraction(9, 10) / most**2
    first = Spending(rho, (), math.inf, CAP.delta, contributions=promise(1))
    grown, _ = for_one_unit([first, Spending(Fraction(0), (), 0.0, 0.0, contributions=promise(most))])
    honest, plain = standing_of([grown], CAP).left_rho, standing_of([first], CAP).left_rho
    assert honest == pytest.approx(float(CAP.rho / 10))
    assert real_delta(rho, honest, most, CAP.epsilon) <= CAP.delta
    assert real_delta(rho, plain, most, CAP.epsilon) > CAP.delta


def test_a_later_promise_is_admitted_by_what_the_earlier_releases_cost_it():
    """A release that promises more records is refused with both figures, and the order of the two does not matter."""
    terms = DatasetTerms("trips", "one person", ADD_REMOVE, CAP)
    small = Spending(CAP.rho / 10, (), math.inf, CAP.delta, contributions=promise(1))
    large = Spending(CAP.rho / 10, (), math.inf, CAP.delta, contributions=promise(5))
    for before, asked in ((small, large), (large, small)):
        with pytest.raises(BudgetExceeded, match="every unit with at most 5 records") as refused:
            check_fits(spent_on(before), terms, asked)
        charged = composed_epsilon([before], CAP.delta, CAP)
        assert (f"promised, epsilon {charged:.8g} is spent" in str(refused.value)) == (before == small)
    assert check_fits(spent_on(replace(small, rho=CAP.rho / 30)), terms, large).epsilon <= CAP.epsilon


def test_exactly_and_at_most_do_not_go_together():
    """A total that was published exactly holds no promise of fewer records; where ingest bounds one of them, both may be."""
    terms = DatasetTerms("trips", "one person", SUBSTITUTION, CAP)
    exact = Spending(CAP.rho / 100, (), 0.1, 1e-3, contributions=promise(1, exact=True))
    at_most = replace(exact, contributions=promise(1))
    for before, asked, says in ((exact, at_most, "true"), (at_most, exact, "false")):
        with pytest.raises(SpecError, match=f"exact_records_per_unit must be {says}") as refused:
            check_fits(spent_on(before), terms, asked)
        assert refused.value.field == "privacy.exact_records_per_unit"
    beside = replace(at_most, contributions=enforced(3))
    assert check_fits(spent_on(exact), terms, beside)
    assert claimed_units([exact.contributions, beside.contributions]).endswith("tables with the same number of units")
    assert claimed_units([exact.contributions]) == "every unit with exactly 1 record, as the data owner promises"


def test_what_would_fit_is_told_for_the_larger_unit():
    """Noise that costs ε alone gets a fifth of what is left where others promise five records, and just fits."""
    before = [Spending(Fraction(0), ((0.5, 0.0),), 0.5, CAP.delta, contributions=promise(5))]
    fits = epsilon_beside(before, CAP, 0.0, contributions=promise(1))
    assert fits == pytest.approx(0.1)
    beside = Spending(Fraction(0), ((fits, 0.0),), fits, 0.0, contributions=promise(1))
    assert composed_epsilon([*before, beside], CAP.delta, CAP) <= CAP.epsilon


# A town of one area, released twice: first for units with one record, then for units with twelve.

RECORDS = 12


@pytest.fixture
def planned(tmp_path, own_home):
    """Return a function from m, ε and a cap to the plan of a release of a small table, in a store of its own."""
    (tmp_path / "trips.csv").write_text("home,work\n" + "a,a\n" * 50)
    (tmp_path / "codebook.csv").write_text("area\na\nb\n")

    def plan(m, epsilon, cap):
        privacy = PRIVACY | {"max_records_per_unit": m, "epsilon": epsilon, "delta": cap.delta, "accountant": "zcdp"}
        spec = {
            "name": f"of-{m}",
            "dataset": "trips",
            "input": {"table": "trips.csv", "origin": "home", "destination": "work"},
            "hierarchy": {"table": "codebook.csv", "levels": ["area"]},
            "release": {"tree": "destination", "finest": "area"},
            "mechanism": "inftda",
            "privacy": privacy,
            "budget": {"epsilon": cap.epsilon, "delta": cap.delta},
        }
        return make_plan(load_spec(spec_in(tmp_path, spec, f"spec-{m}.yaml")))

    return plan


def test_distinct_records_are_so_in_the_same_cells(planned, tmp_path):
    """What a promise of distinct records is about follows from columns, levels and codebooks, not from a level's name alone."""
    plan, trips = planned(2, 0.5, CAP), planned(3, 0.5, CAP)

    def about(of, distinct, promised=(1, 1)):
        privacy = of.file.spec.privacy.model_copy(update={"distinct": distinct})
        spec = of.file.spec.model_copy(update={"privacy": privacy})
        promised = promised if distinct else (0, 0)
        return replace(of, file=replace(of.file, spec=spec), promised=promised).contributions.distinct_cells

    assert about(plan, None) == ""
    assert about(plan, "area") == about(trips, "area") != about(plan, "area", (1, 0))
    (tmp_path / "codebook.csv").write_text("area\na\nb\nc\n")
    assert about(planned(3, 0.5, CAP), "area") != about(plan, "area")


def test_an_attack_refutes_the_sum_of_charges_and_not_the_ledger(planned):
    """Two releases with the noise that was charged tell a unit with twelve records from none better than their charges say."""
    # What the ledger states for units with twelve records is not refuted. The attack sees as many pairs of releases as it needs.
    cap, often = cap_of(40.0, 0.01), 400
    plans = [planned(1, 0.5, cap), planned(RECORDS, 0.1, cap)]
    with store() as con:
        for number, plan in enumerate(plans):
            admission(con, plan, plan.place_of_table).check("budget")
            with transaction(con):
                reserve(con, plan.reservation(f"trips-{number}"))
    (account,) = ledger_answer("trips").datasets
    assert account.max_records_per_unit == RECORDS
    assert account.holds_for == "every unit with at most 12 records, as the data owner promises"
    old = composed_epsilon([replace(plan.spending, contributions=None) for plan in plans], cap.delta, cap)
    assert account.spent.epsilon > 3 * old
    scales = np.array([noise.scale for plan in plans for noise in plan.guarantee.noises])
    tables = np.zeros(len(scales)), np.full(len(scales), float(RECORDS))  # the counts that the unit moves, all levels
    attack = rehearsed(tables, scales, "gaussian", Claim(old, cap.delta), releases=often, false_alarm=FALSE_ALARM)
    assert attack.power > 0.999

    def drawn(counts):
        each = zip(counts, scales, strict=True)
        return np.column_stack([discrete_gaussian(np.full(often, int(of)), scale) for of, scale in each])

    shown = lower_bound(attack.guesses(*map(drawn, tables)), cap.delta, FALSE_ALARM)
    assert old < shown < account.spent.epsilon
