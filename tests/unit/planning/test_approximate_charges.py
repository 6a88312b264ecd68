"""Charges that are only (ε, δ): reserved, composed with others under one cap, declared as a series, and audited."""

import json
import math
from dataclasses import replace
from fractions import Fraction

import pytest

from flows.answers.audit import audit_answer
from flows.planning.budget import reserve
from flows.planning.composition import cap_of, composed_epsilon, epsilon_beside
from flows.planning.guarantee import holds_together
from storage.database.connections import transaction
from storage.errors import BudgetExceeded
from storage.ledger.accounts import Asked, Charge, Claim, as_charged
from storage.ledger.events import Reservation, hash_of, read_books
from storage.ledger.spending import Contributions, Spending
from storage.releases.parts import Part
from tasks.accounting.conversions import zcdp_epsilon
from tasks.laws.thresholded import THRESHOLDED_LAPLACE
from tests.support.ledger import charges_of

DELTA = 1e-6
THRESHOLDED = THRESHOLDED_LAPLACE.name
CAP = cap_of(3.0, DELTA)
EPSILON, SMALL = 1.0, 1e-7  # of one histogram
ONE_RECORD = Contributions("promise", distinct=None, exact_records_per_unit=True, max_records_per_unit=1)


def histogram(epsilon=EPSILON, delta=SMALL):
    """Return the levels of a histogram: a sum, and the leaves that are measured."""
    total = Part(0, {}, 1, False, Fraction(0), 9.0, 0, None, is_summed=True)
    leaves = replace(total, level=1, possible_cells=9, is_summed=False, sigma=3.0, mechanism=THRESHOLDED)
    return total, replace(leaves, epsilon=epsilon, delta=delta, scale=2.1, threshold=40)


def gaussian(rho):
    """Return the levels of a release that measures one level."""
    return (Part(1, {}, 2, False, rho, 1.5, 2, 3.0),)


def reservation_of(release_id, levels, delta=SMALL):
    """Return a release to be reserved, which states ε of a histogram of itself."""
    claim = Claim(release_id, "jobs", "privacy_map", EPSILON, delta, "jobs.csv", (), (), ONE_RECORD)
    return Reservation(Asked("jobs", "one job", "substitution", CAP), levels, claim)


def reserve_of(con, release_id, levels):
    """Reserve a release."""
    with transaction(con):
        reserve(con, reservation_of(release_id, levels))


def spendings(con):
    """Return what is spent."""
    account = read_books(con).account("jobs")
    return account.spendings


def test_a_histogram_is_charged_at_its_finest_level_alone(con):
    """The sums above it have no charge, and the charge is (ε, δ) with the noise it was told, not ρ."""
    reserve_of(con, "one", histogram())
    charge = Charge("one", 1, "reserved", Fraction(0), 3.0, 0, THRESHOLDED, EPSILON, SMALL, scale=2.1)
    assert charges_of(con, "one") == {1: charge}
    assert spendings(con) == [Spending(Fraction(0), ((EPSILON, SMALL),), EPSILON, SMALL, contributions=ONE_RECORD)]
    [event] = [json.loads(text) for (text,) in con.execute("SELECT event FROM ledger").fetchall()][-1:]
    assert (event["levels"][0]["scale"], event["levels"][0]["threshold"]) == (2.1, 40)
    assert event["levels"][0]["rho"] == "0"


def test_a_release_alone_costs_its_own_epsilon_at_its_own_delta_and_larger_ones():
    """What it states with its δ says nothing at a smaller one, where its ρ decides."""
    alone = Spending(Fraction(1, 8), (), 0.5, DELTA)
    assert composed_epsilon([alone], 2 * DELTA) == composed_epsilon([alone], DELTA) == alone.epsilon
    assert composed_epsilon([alone], DELTA / 2) >= zcdp_epsilon(Fraction(1, 8), DELTA / 2) > 2.0


def test_what_would_pass_the_cap_is_refused(con):
    """Whether by ε, by δ, or by ρ beside them, and nothing of it is recorded; what is left fits."""
    assert epsilon_beside([], CAP, SMALL) == CAP.epsilon
    assert epsilon_beside([], CAP, 2 * DELTA) == 0
    assert epsilon_beside([Spending(CAP.rho, (), 1.0, SMALL)], CAP, SMALL) == 0
    reserve_of(con, "one", histogram())
    reserve_of(con, "two", histogram(1.5, 1e-9))
    before = spendings(con)
    for last in (histogram(0.51), histogram(0.1, 9.1e-7), gaussian(CAP.rho / 2)):
        with pytest.raises(BudgetExceeded):
            reserve_of(con, "three", last)
    assert spendings(con) == before
    fits = epsilon_beside(before, CAP, 1e-9)
    assert fits == pytest.approx(0.5)
    reserve_of(con, "four", histogram(fits, 1e-9))


def test_histograms_hold_together_by_the_sum_of_their_charges(con):
    """What is stated of several holds, also beside ρ, and a little less does not."""
    for release in ("a", "b"):
        reserve_of(con, release, histogram())
    assert composed_epsilon(spendings(con), DELTA) == 2 * EPSILON
    charges = [charge for release in ("a", "b") for charge in charges_of(con, release).values()]
    assert holds_together(charges, {"privacy_map"}, 2 * EPSILON, 2 * SMALL)
    assert not holds_together(charges, {"privacy_map"}, 2 * EPSILON * (1 - 1e-9), DELTA)
    assert not holds_together(charges, {"privacy_map"}, 2 * EPSILON, 2 * SMALL * (1 - 1e-9))
    mixed = [*charges, Charge("c", 1, "released", Fraction(1, 50), 7.1, 2)]
    epsilon = 2 * EPSILON + zcdp_epsilon(Fraction(1, 50), DELTA - 2 * SMALL)
    assert holds_together(mixed, {"pld"}, epsilon * (1 + 1e-9), DELTA)
    assert not holds_together(mixed, {"pld"}, epsilon * (1 - 1e-6), DELTA)
    assert not holds_together([replace(charges[0], epsilon=0.0)], {"privacy_map"}, math.inf, DELTA)


def test_terms_that_differ_from_the_charge_are_noticed(con):
    """A level whose terms were altered in the store is not as charged, and nothing of it would be drawn."""
    reserve_of(con, "one", histogram())
    total, leaves = histogram()
    charge = charges_of(con, "one")[1]
    assert as_charged(leaves, charge)
    assert as_charged(total, None)
    altered = {"epsilon": 0.9, "delta": 1e-9, "mechanism": "discrete_gaussian", "sigma": 1.0, "rho": Fraction(1, 9)}
    for field, value in {**altered, "is_summed": True, "is_invariant": True}.items():
        assert not as_charged(replace(leaves, **{field: value}), charge), field
    assert not as_charged(leaves, None)
    assert not as_charged(total, charge)


def test_the_audit_counts_what_has_no_rho(con):
    """A chain in which a histogram passes the cap, written anew with right hashes, is found by its balance."""
    reserve_of(con, "one", histogram())
    rows = con.execute("SELECT position, event FROM ledger ORDER BY position").fetchall()
    last = ""
    for position, text in rows:
        event = json.loads(text)
        if event["event"] == "reserved":
            event["levels"][0]["epsilon"] = 3.5
            event["epsilon"] = 3.5
        text = json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        last = hash_of(last, text)
        con.execute("UPDATE ledger SET event = ?, hash = ? WHERE position = ?", [text, last, position])
    found = audit_answer().first_bad
    assert "above its cap of 3" in found.reason
