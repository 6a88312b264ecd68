"""What is stated is checked: a release by its accountant's own computation, a series by its charges."""

import json
import math
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest

from flows.planning.guarantee import DELTAS, epsilon_of_series, guarantee_of, holds_together
from flows.planning.shares import scheme_of
from flows.specification.sections.privacy import PrivacyKeys
from storage.errors import StoreError
from storage.ledger.accounts import Charge
from tasks.accounting import pld
from tasks.accounting.accountants import ACCOUNTANTS
from tasks.accounting.allocation import Measurement
from tasks.mechanisms import MECHANISMS
from tests.support.keys import features_of, planned_of
from tests.support.largest import changes, delta_of

DELTA = 1e-3
TARGET = {"level": "level_2", "max_error": 30.0, "confidence": 0.9}


# a series --------------------------------------------------------------------------------------------------------------


def charges_of(squares):
    """Return the charges of a series: a release of one level per Δ₂², each at ρ = 1."""
    return [
        Charge(f"release {number}", 1, "released", Fraction(1), math.sqrt(square / 2), square)
        for number, square in enumerate(squares)
    ]


@cache
def stated_of(squares):
    """Return the ε that pld states of such charges: as if every unit moved as many counts as Δ₂² says, each by one."""
    measurements = [Measurement(of.rho, of.sigma, of.l2_sensitivity_squared) for of in charges_of(squares)]
    return ACCOUNTANTS["pld"].least_epsilon(measurements, DELTA)


def delta_by_outcomes(sigma, moved, releases, epsilon):
    """Return δ at ε of releases of one count that a unit moves by some records, summed over all outcomes."""
    reach = math.ceil(14 * sigma) + moved
    outcomes = np.arange(-reach, reach + 1)
    law = np.exp(-((outcomes / sigma) ** 2) / 2)
    law /= law.sum()
    one = other = np.ones(1)
    for _ in range(releases):
        one, other = np.outer(one, np.roll(law, moved)).ravel(), np.outer(other, law).ravel()
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


@pytest.mark.parametrize("squares", [(4, 4), (2, 3)])
def test_pld_holds_no_series_together_in_which_a_unit_moves_more_than_two_counts(squares):
    """With one charge of Δ₂² above 2, what pld states does not hold, and the larger ε of zCDP does."""
    charges, stated = charges_of(squares), stated_of(squares)
    assert not holds_together(charges, {"pld"}, stated * (1 + 1e-9), DELTA)
    by_rho = ACCOUNTANTS["zcdp"].least_epsilon([Measurement(Fraction(len(squares)), 1.0, 1)], DELTA)
    assert stated < by_rho
    assert holds_together(charges, {"pld"}, by_rho, DELTA)
    if squares == (4, 4):  # summed over all outcomes, two such releases need a fifth more δ than pld says
        assert delta_by_outcomes(charges[0].sigma, 2, 2, stated) > 1.2 * DELTA


@pytest.mark.parametrize("squares", [(2, 2), (1, 2)])
def test_pld_holds_a_series_together_in_which_a_unit_moves_two_counts_at_most(squares):
    """With Δ₂² of 1 and 2 what pld states holds, a thousandth less does not, and under another accountant neither."""
    charges, stated = charges_of(squares), stated_of(squares)
    assert holds_together(charges, {"pld"}, stated * (1 + 1e-9), DELTA)
    assert not holds_together(charges, {"pld"}, stated * 0.999, DELTA)
    assert not holds_together(charges, {"pld", "zcdp"}, stated * (1 + 1e-9), DELTA)


# an accountant that errs ------------------------------------------------------------------------------------------------


@pytest.fixture
def scheme(universe_of):
    """Return the maker of what a release of four areas measures, with other keys of the spec."""

    def make(by, **keys):
        tree = universe_of([[("a", "1"), ("a", "2"), ("b", "1"), ("b", "2")]], (0, 0)).tree
        plain = {"unit": "one", "neighbours": "add_remove", "max_records_per_unit": 1, "delta": 1e-6, "accountant": by}
        return scheme_of(PrivacyKeys(**(plain | keys)), tree, tree, MECHANISMS["inftda"], "opendp")

    return make


@pytest.mark.parametrize("releases", [1, 2])
def test_a_series_states_what_its_charges_hold_beside_a_measured_total(scheme, releases):
    """Also of one release, whose own statement is less: a ledger does not know which of its measurements is the total."""
    measured = scheme("pld", epsilon=1.0, neighbours="substitution", exact_records_per_unit=False)
    guarantee = guarantee_of(measured)
    every = product(range(releases), enumerate(guarantee.measurements))
    charges = [
        Charge(f"release {n}", k, "released", of.rho, of.sigma, of.l2_sensitivity_squared) for n, (k, of) in every
    ]
    stated = epsilon_of_series(guarantee, releases, 1e-6)
    assert holds_together(charges, {"pld"}, stated * (1 + 1e-9), 1e-6)
    assert not holds_together(charges, {"pld"}, guarantee.epsilon, 1e-6)


@pytest.mark.parametrize("by", ["lemma", "zcdp", "pld"])
def test_noise_that_an_accountant_thinks_enough_is_checked(scheme, monkeypatch, by):
    """An accountant that errs in ρ by a thousandth, upwards, has its noise refused; downwards, it is granted."""
    right = ACCOUNTANTS[by]

    def erring(factor):
        wrong = replace(right, largest_rho=lambda *given: factor * right.largest_rho(*given))
        monkeypatch.setitem(ACCOUNTANTS, by, wrong)

    erring(Fraction(1001, 1000))
    with pytest.raises(StoreError, match=f"the noise does not give epsilon 1 by accountant {by}"):
        guarantee_of(scheme(by, epsilon=1.0)).check()
    erring(Fraction(999, 1000))
    granted = guarantee_of(scheme(by, epsilon=1.0))
    granted.check()
    assert granted.epsilon == 1.0


@pytest.mark.parametrize(
    ("by", "asked"),
    [("lemma", {"rho": 0.02}), ("zcdp", {"rho": 0.02}), ("pld", {"rho": 0.02}), ("zcdp", {"target": TARGET})],
    ids=["lemma", "zcdp", "pld", "a target"],
)
def test_an_epsilon_that_an_accountant_states_is_checked(scheme, monkeypatch, by, asked):
    """An accountant that errs in ε by a thousandth, downwards, is refused; upwards, what it states is stated."""
    right = cache(ACCOUNTANTS[by].least_epsilon)

    def erring(factor):
        wrong = replace(ACCOUNTANTS[by], least_epsilon=lambda *given: factor * right(*given))
        monkeypatch.setitem(ACCOUNTANTS, by, wrong)

    erring(1.0)
    epsilon = guarantee_of(scheme(by, **asked)).epsilon
    erring(0.999)
    with pytest.raises(StoreError, match=f"the noise does not give epsilon .* by accountant {by}"):
        guarantee_of(scheme(by, **asked)).check()
    erring(1.001)
    granted = guarantee_of(scheme(by, **asked))
    granted.check()
    assert granted.epsilon == 1.001 * epsilon


# what is remembered -----------------------------------------------------------------------------------------------------


def test_what_was_computed_is_remembered_by_the_next_process(scheme, monkeypatch, tmp_path):
    """A second process plans the same noise and composes nothing, unless what is kept cannot be read or is of another version."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path))

    def planned_anew():
        return _as_a_new_process(monkeypatch, lambda: guarantee_of(scheme("pld", epsilon=0.125)))

    first = planned_anew()
    kept = (tmp_path / DELTAS).read_text()
    assert json.loads(kept)["deltas"]
    for spoilt in (kept[1:], kept.replace('"version": "', '"version": "0.')):
        (tmp_path / DELTAS).write_text(spoilt)
        assert planned_anew() == first
        assert (tmp_path / DELTAS).read_text() == kept
    monkeypatch.setattr(pld, "_composed", pytest.fail)
    assert planned_anew().measurements == first.measurements


def test_noise_that_is_remembered_wrongly_is_not_charged(scheme, monkeypatch, tmp_path):
    """A file that says every δ is small makes the noise too small; the check before the charge finds it, and says what to do."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path))
    asked = scheme("pld", epsilon=0.125)
    with monkeypatch.context() as wrong:
        wrong.setattr(pld, "_delta", lambda events, epsilon, right=pld._delta: right(events, epsilon) / 1000)
        _as_a_new_process(wrong, lambda: guarantee_of(asked))
    planned = _as_a_new_process(monkeypatch, lambda: guarantee_of(asked))
    with pytest.raises(StoreError, match=r"does not give epsilon 0\.125") as refusal:
        planned.check()
    assert DELTAS in refusal.value.hint
    (tmp_path / DELTAS).unlink()
    _as_a_new_process(monkeypatch, lambda: guarantee_of(asked)).check()


def _as_a_new_process(monkeypatch, make):
    """Return what is made where nothing of this process is remembered."""
    monkeypatch.setattr(pld, "_remembered", {})
    pld.pld_rho.cache_clear()
    return make()


# every (ε, δ) of a grid -------------------------------------------------------------------------------------------------

TEETH = [0.5, 10.0, 25.0, 35.0, 50.0, 80.0, 100.0]  # δ jumps with ρ where few outcomes matter


@pytest.mark.parametrize("delta", [1e-12, pytest.param(1e-8, marks=pytest.mark.thorough), 1e-3])
@pytest.mark.parametrize(("mechanism", "law", "codes"), [
    ("gaussian", "gaussian", ["A", "B"]), ("gaussian", "gaussian", ["A"]),
    ("gaussian", "auto", ["A", "B", "C"]), ("inftda", "gaussian", ["A", "B"]),
    ("inftda", "laplace", ["A", "B"]), ("inftda_reconciled", "auto", ["A", "B", "C", "D"]),
    ("unbiased_tree", "gaussian", ["A", "B"]), ("stability_histogram", "laplace", ["A", "B"]),
])  # fmt: skip
@pytest.mark.parametrize("neighbours", ["add_remove", "substitution"])
def test_no_epsilon_and_delta_of_a_grid_are_refused(tmp_path, own_home, mechanism, law, codes, delta, neighbours):
    """Each gives a plan whose guarantee holds, by the accountant and by comparing all outcomes, and which spends more than nothing."""
    keys = {"mechanism": mechanism, "noise.law": law, "privacy.delta": delta, "privacy.neighbours": neighbours}
    cap = {"budget": {"epsilon": 200.0, "delta": 0.01}}
    for epsilon in TEETH:
        plan = planned_of(tmp_path, features_of({"k": codes}), keys | cap | {"privacy.epsilon": epsilon})
        guarantee = plan.guarantee
        guarantee.check()
        assert guarantee.epsilon == epsilon
        if guarantee.measurements:
            assert 0 < guarantee.rho < 2 * epsilon + 10
            ways = changes(plan.scheme.allocation, float(guarantee.rho))
            assert max(delta_of(events, epsilon) for events in ways) <= delta * (1 + 1e-6)
        else:
            assert 0 < sum(Fraction(of.cost.epsilon) for of in guarantee.by_map) <= epsilon
