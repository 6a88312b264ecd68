"""What a sampler that is only close to its law costs: (1 + e^ε) τ of δ, in statements, caps and manifests; and what little noise states."""

import json
import math
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.answers.audit import audit_answer
from flows.answers.verify import verify_answer
from flows.forecast.answer import plan_answer
from flows.planning.composition import cap_of, composed_epsilon, standing_of
from flows.planning.guarantee import epsilon_of_series, guarantee_of, holds_together
from flows.planning.plan import make_plan
from flows.planning.shares import scheme_of
from flows.specification.file import load_spec
from flows.specification.sections.privacy import PrivacyKeys
from storage.database.connections import store
from storage.errors import SpecError
from storage.ledger.accounts import Charge
from storage.ledger.events import read_books
from storage.ledger.spending import Spending
from tasks.accounting.accountants import ACCOUNTANTS, delta_left
from tasks.accounting.allocation import Allocation, rho_of, tau_of, uniform
from tasks.laws.gaussian import GAUSSIAN, gaussian_variance
from tasks.laws.samplers import LARGEST_TAU
from tasks.mechanisms import MECHANISMS
from tests.support.folders import published, rewrite
from tests.support.office import ROWS, Office
from tests.support.spec import SPEC

DELTA = 1e-8
EXACT = Allocation(uniform(6), (2,) * 6)
FELT = Fraction(1, 10**12)  # a τ that takes less than a thousandth of δ, and is felt
LARGE = Fraction(1, 10**10)  # one that takes more
accountants = pytest.mark.parametrize("by", ["lemma", "zcdp", "pld"])


def inexact(tau):
    """Return the allocation with a sampler whose draws are within τ of their law, over all levels."""
    return replace(EXACT, taus=(tau / 6,) * 6)


def cost(epsilon, tau):
    """Return (1 + e^ε) τ to a hundred digits."""
    with localcontext(prec=100):
        return (1 + Fraction(Decimal(epsilon).exp())) * tau


@given(
    epsilon=st.floats(1e-3, 30), delta=st.floats(1e-12, 0.5), tau=st.fractions(Fraction(1, 2**130), Fraction(1, 2**60))
)
def test_what_is_left_of_delta_is_never_too_much(epsilon, delta, tau):
    """What is left and what τ costs are together at most δ, and one part in 10¹⁴ more would not be."""
    left = Fraction(delta_left(delta, epsilon, tau))
    assert left + cost(epsilon, tau) <= Fraction(delta)
    assert left + cost(epsilon, tau) > Fraction(delta) * (1 - Fraction(1, 10**14)) - cost(epsilon, tau) / 10**12


def hockey_stick(one, other, epsilon):
    """Return the least δ at which (ε, δ) holds between two distributions over the same outcomes."""
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("digits", [1, 2, 3])
def test_a_coarse_table_costs_no_more_than_its_tau(digits, epsilon):
    """Noise whose probabilities are rounded to a few digits loses, by enumeration, at most (1 + e^ε) τ of δ, and some."""
    outcomes = np.arange(-40, 41)
    law = np.exp(-(outcomes**2) / (2 * 2.0**2))
    law /= law.sum()
    table = np.floor(law * 10**digits) / 10**digits
    table[40] += 1 - table.sum()
    tau = np.abs(table - law).sum() / 2
    exact, coarse = (hockey_stick(noise, np.roll(noise, 1), epsilon) for noise in (law, table))
    assert exact < coarse <= exact + (1 + math.exp(epsilon)) * tau


@accountants
def test_tau_is_taken_off_delta_before_the_noise_is_solved(by):
    """With a τ that is felt ρ is that of the δ that is left: it holds, the exact sampler's ρ would not."""
    accountant, epsilon = ACCOUNTANTS[by], 1.0
    rho = accountant.largest_rho(inexact(FELT), epsilon, DELTA)
    assert rho == accountant.largest_rho(EXACT, epsilon, delta_left(DELTA, epsilon, FELT))
    assert rho < accountant.largest_rho(EXACT, epsilon, DELTA)
    assert accountant.holds(inexact(FELT).measurements(rho), epsilon, DELTA)
    # what is composed on a grid leaves less than that
    too_much = inexact(FELT).measurements(rho * Fraction(1002, 1000))
    assert not accountant.holds(too_much, epsilon, DELTA)


@accountants
def test_statements_of_an_inexact_sampler_agree_with_each_other(by):
    """The ε and the δ that are stated hold, and a little less of either does not; both are more than the exact sampler's."""
    accountant = ACCOUNTANTS[by]
    exact, felt = (allocation.measurements(Fraction(1, 60)) for allocation in (EXACT, inexact(FELT)))
    epsilon = accountant.least_epsilon(felt, DELTA)
    assert accountant.least_epsilon(exact, DELTA) < epsilon
    assert accountant.holds(felt, epsilon * (1 + 1e-9), DELTA)
    assert not accountant.holds(felt, 0.999 * epsilon, DELTA)
    delta = accountant.least_delta(felt, epsilon)
    of_tau = float(cost(epsilon, tau_of(felt)))
    assert delta == pytest.approx(accountant.least_delta(exact, epsilon) + of_tau, rel=1e-12)


@accountants
def test_a_tau_that_takes_more_than_a_thousandth_of_delta_is_refused(by):
    """Where ε is so large, or δ so small, that τ costs that much, the sampler is refused by its name, and nothing holds."""
    with pytest.raises(ValueError, match=r"noise\.sampler table needs more delta"):
        ACCOUNTANTS[by].largest_rho(inexact(LARGE), 5.0, DELTA)
    with pytest.raises(ValueError, match=r"noise\.sampler table needs more delta"):
        ACCOUNTANTS[by].least_epsilon(inexact(LARGE).measurements(Fraction(1, 2)), DELTA)
    assert not ACCOUNTANTS[by].holds(inexact(LARGE).measurements(Fraction(1, 10**6)), 5.0, DELTA)


def test_the_taus_of_many_releases_add_up():
    """Composed releases pay for all their τ at once; enough of them take all of δ, and nothing finite is promised."""
    rho, tau = Fraction(1, 500), Fraction(1, 10**13)

    def spent(tau):
        return Spending(rho, (), math.inf, DELTA, tau)

    exact, felt = ([spent(one)] * 3 for one in (Fraction(0), tau))
    epsilon = composed_epsilon(felt, DELTA)
    assert composed_epsilon(exact, DELTA) < epsilon
    assert composed_epsilon(exact, delta_left(DELTA, epsilon, 3 * tau)) == pytest.approx(epsilon, rel=1e-9)
    assert math.isinf(composed_epsilon([spent(tau)] * 400, DELTA))
    cap = cap_of(1.0, DELTA)
    assert standing_of(felt, cap).left_rho < standing_of(exact, cap).left_rho
    assert standing_of([spent(LARGE)] * 40, cap).left_rho == 0
    for cap in (cap_of(epsilon, 1e-6) for epsilon in (1.0, 20.0, 66.0, 69.9)):
        before = Spending(cap.rho / 50, (), math.inf, cap.delta, 40 * LARGEST_TAU)
        left = standing_of([before], cap).left_rho
        assert left > cap.rho * Fraction(7, 10)
        assert composed_epsilon([before, replace(before, rho=left, tau=Fraction(0))], cap.delta, cap) <= cap.epsilon


def keys(**changed):
    """Return the privacy of a spec."""
    plain = {"unit": "one", "neighbours": "substitution", "max_records_per_unit": 1, "delta": DELTA, "epsilon": 1.0}
    return PrivacyKeys(**(plain | changed))


def tree_of_two(universe_of):
    """Return a tree of two levels per axis."""
    return universe_of([[("a", "1"), ("a", "2"), ("b", "1")]], (0, 0)).tree


@pytest.mark.parametrize(("privacy", "touched"), [
    ({}, [2, 2]),
    ({"neighbours": "add_remove"}, [1, 1, 1]),
    ({"max_records_per_unit": 3}, [1, 6, 6]),
    ({"max_records_per_unit": 3, "neighbours": "add_remove"}, [1, 3, 3]),
])  # fmt: skip
def test_every_cell_that_a_unit_touches_is_counted(universe_of, privacy, touched):
    """τ of a level is that of one draw times the cells that one unit can touch there; the root is one cell."""
    tree = tree_of_two(universe_of)
    allocation = scheme_of(keys(**privacy), tree, tree, MECHANISMS["inftda"], "table").allocation
    per_draw = GAUSSIAN.samplers["table"].tau
    assert [tau / per_draw for tau in allocation.taus] == touched
    assert 0 < allocation.tau < Fraction(1, 2**80)
    assert scheme_of(keys(**privacy), tree, tree, MECHANISMS["inftda"], "opendp").allocation.tau == 0


def test_a_table_is_refused_where_epsilon_makes_it_dear(universe_of):
    """At an ε with (1 + e^ε) τ above δ the spec is refused with the way out."""
    tree = tree_of_two(universe_of)
    scheme = scheme_of(keys(epsilon=90.0), tree, tree, MECHANISMS["inftda"], "table")
    with pytest.raises(SpecError, match=r"privacy\.epsilon: noise\.sampler table needs more delta .* use opendp"):
        guarantee_of(scheme)


def charges(measurements):
    """Return measurements as the ledger charges them."""
    return [
        Charge("one", level, "reserved", one.rho, one.sigma, one.l2_sensitivity_squared, tau=one.tau)
        for level, one in enumerate(measurements)
    ]


def test_a_series_pays_for_all_its_taus(universe_of):
    """What is stated of a series holds with the τ of its charges, and not with one so large that it takes all of δ."""
    tree = tree_of_two(universe_of)
    guarantee = guarantee_of(scheme_of(keys(accountant="zcdp"), tree, tree, MECHANISMS["inftda"], "table"))
    epsilon = epsilon_of_series(guarantee, 3, DELTA)
    whole = guarantee.measurements * 3
    assert rho_of(whole) == 3 * guarantee.rho
    assert holds_together(charges(whole), {"zcdp"}, epsilon, DELTA)
    spoiled = [replace(one, tau=Fraction(1, 10**9)) for one in whole]
    assert not holds_together(charges(spoiled), {"zcdp"}, epsilon, DELTA)


# what a release says of it -------------------------------------------------------------------------------------------


@pytest.fixture
def made(library, monkeypatch):
    """Return a release by the table sampler of units with three records; its store is at TRELLIS_HOME meanwhile."""
    kept = library["trips in two passes"]
    monkeypatch.setenv("TRELLIS_HOME", str(kept.home))
    return kept


TOUCHED = [1] + [3] * 6  # the root, and three records on each of six levels
CHARGED = float(sum(TOUCHED) * LARGEST_TAU)


def test_plan_ledger_manifest_and_readme_state_tau(made):
    """All state the same τ; the ledger keeps it by level, the audit agrees, and the folder verifies by itself."""
    assert (made.found.manifest.privacy.sampler, made.found.manifest.privacy.tau) == ("table", CHARGED)
    assert f"τ = {CHARGED:.2g}" in (made.folder / "README.md").read_text()
    plan = plan_answer(make_plan(load_spec(made.spec)))
    assert (plan.sampler, plan.tau) == ("table", CHARGED)
    with store() as con:
        (account,) = read_books(con).accounts.values()
    assert [charge.tau / LARGEST_TAU for charge in account.charges.values()] == TOUCHED
    assert audit_answer().findings == []
    assert verify_answer(made.folder).failures == []


def test_a_manifest_that_hides_its_tau_is_found(made, tmp_path):
    """With τ left out or made less, `verify` says so by the folder alone, and `audit` by the ledger."""
    for tau in (0.0, CHARGED / 2):
        folder = made.copied(tmp_path / str(tau))
        rewrite(folder, lambda manifest, tau=tau: manifest["privacy"].update(tau=tau))
        told = ["manifest.json: its sampler table is further from its law than its tau states."]
        assert verify_answer(folder).failures == told
        reasons = {finding.reason for finding in audit_answer([tmp_path / str(tau)]).findings}
        assert "its manifest states another tau." in reasons


def test_a_release_with_little_noise_states_its_deviation_and_its_scale(tmp_path, own_home):
    """Every level states what its noise deviates by; the charge, the ledger's audit and `verify` go by the scale beside it."""
    (tmp_path / "people.csv").write_text("home,work\n" + ROWS)
    privacy = SPEC["privacy"] | {"neighbours": "add_remove", "epsilon": 90.0, "delta": 1e-6}
    spec = Office(tmp_path).spec("people", "people.csv", privacy=privacy, budget={"epsilon": 100.0, "delta": 1e-6})
    folder = published(spec)
    for level in json.loads((folder / "manifest.json").read_text())["levels"]:
        scale = (level["l2_sensitivity"] ** 2 / (2 * level["rho"])) ** 0.5
        assert level["scale"] == pytest.approx(scale)
        assert level["sigma"] == pytest.approx(gaussian_variance(scale) ** 0.5)
        assert level["sigma"] < level["scale"] / 2
    assert verify_answer(folder).failures == []
    assert audit_answer().ok
