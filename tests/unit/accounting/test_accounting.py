"""From (ε, δ) to ρ and back by every accountant, ρ's shares, and the scale that a share buys."""

import math
import re
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import ndtr

from flows.planning.guarantee import Guarantee, guarantee_of
from flows.planning.shares import scheme_of
from flows.specification.sections.privacy import PrivacyKeys
from storage.errors import SpecError
from tasks.accounting.accountants import ACCOUNTANTS, delta_left
from tasks.accounting.allocation import (
    LARGEST_SCALE,
    Allocation,
    Measurement,
    geometric,
    rho_of,
    scale_for,
    shares_of,
    uniform,
)
from tasks.accounting.conversions import (
    epsilon_from_rho,
    renyi_epsilon,
    renyi_order,
    rho_from_epsilon,
    zcdp_epsilon,
    zcdp_rho,
)
from tasks.accounting.opendp import privacy_map
from tasks.accounting.pld import LARGEST_PLD_SCALE, LEAST_PLD_DELTA, check_pld
from tasks.accounting.sensitivity import square_root_up
from tasks.mechanisms import MECHANISMS

epsilons = st.floats(1e-9, 1e3)
deltas = st.floats(1e-15, 0.5)
rhos = st.floats(1e-16, 1e3).map(Fraction)


def lemma(rho, delta):
    """Return ρ + 2 √(ρ ln 1/δ) to a hundred digits."""
    with localcontext(prec=100):
        exact = Decimal(rho.numerator) / Decimal(rho.denominator)
        return exact + 2 * (exact * (1 / Decimal(delta)).ln()).sqrt()


@given(epsilon=epsilons, delta=deltas)
def test_rho_is_the_largest_float_within_epsilon(epsilon, delta):
    """ρ + 2 √(ρ ln 1/δ) is at most ε, and the next float above ρ exceeds it."""
    rho = rho_from_epsilon(epsilon, delta)
    assert lemma(rho, delta) <= Decimal(epsilon) < lemma(Fraction(math.nextafter(float(rho), math.inf)), delta)


@given(rho=rhos, delta=deltas)
def test_epsilon_is_the_least_float_that_rho_allows(rho, delta):
    """The ε stated for a ρ is never under-stated, and the next float below it would be; nothing spent is ε = 0."""
    epsilon = epsilon_from_rho(rho, delta)
    assert Decimal(math.nextafter(epsilon, 0.0)) < lemma(rho, delta) <= Decimal(epsilon)
    assert epsilon_from_rho(Fraction(0), delta) == 0


@given(
    ratio=st.fractions(Fraction(1, 100), 100, max_denominator=1_000),
    listed=st.lists(st.fractions(Fraction(1, 10**9), 10**9), min_size=1, max_size=40),
)
def test_shares_are_in_proportion_exactly(ratio, listed):
    """Shares are to each other as the weights and add up to 1, not to a rounding of it: equal, by a ratio, or listed."""
    # No weight may be 0 or less.
    levels = len(listed)
    by_ratio = [ratio**level for level in range(levels)]
    for shares, weights in (
        (uniform(levels), [1] * levels),
        (geometric(ratio, levels), by_ratio),
        (shares_of(listed), listed),
    ):
        assert sum(shares) == 1
        assert [share * sum(weights) for share in shares] == weights
    for wrong in (0, -listed[0]):
        with pytest.raises(ValueError, match=r"^every share must be > 0"):
            shares_of([*listed, Fraction(wrong)])


@pytest.mark.parametrize(("split", "shares"), [
    ("uniform", [Fraction(1, 3)] * 3),
    ({"geometric": 0.1}, [Fraction(100, 111), Fraction(10, 111), Fraction(1, 111)]),
    ({"finest": 1.5}, [Fraction(2, 7), Fraction(2, 7), Fraction(3, 7)]),
    ([0.1, 0.2, 0.7], [Fraction(1, 10), Fraction(1, 5), Fraction(7, 10)]),
    ([1, 1, 2], [Fraction(1, 4), Fraction(1, 4), Fraction(1, 2)]),
], ids=["uniform", "geometric", "finest", "list", "list of weights"])  # fmt: skip
def test_a_split_means_the_numbers_that_are_written(universe_of, split, shares):
    """A spec's 0.1 is a tenth, not the float next to it, and each measured level gets its share of ρ."""
    tree = universe_of([[("a", "1"), ("a", "2"), ("b", "1")]], (0, 0)).tree
    keys = {"unit": "one", "neighbours": "add_remove", "max_records_per_unit": 2, "delta": 1e-8}

    def scheme(split):
        return scheme_of(PrivacyKeys(**keys, epsilon=1.0, split=split), tree, tree, MECHANISMS["inftda"], "opendp")

    assert list(scheme(split).allocation.shares) == shares
    guarantee = guarantee_of(scheme(split))
    assert [measurement.rho for measurement in guarantee.measurements] == [share * guarantee.rho for share in shares]
    with pytest.raises(SpecError, match=r"^privacy.split must list 3 shares, one per measured level, got 2\.(\n|$)"):
        scheme([1, 1])


@settings(max_examples=30)
@given(
    rho=st.floats(1e-12, 1e2).map(Fraction),
    weights=st.lists(st.fractions(Fraction(1, 1_000), 1_000), min_size=1, max_size=12),
    data=st.data(),
)
def test_charges_add_up_to_rho_exactly(rho, weights, data):
    """The charges of all levels are ρ exactly, and each level's noise costs no more than its charge."""
    squares = data.draw(st.tuples(*(st.sampled_from([1, 2, 9, 18]) for _ in weights)))
    measurements = Allocation(shares_of(weights), squares).measurements(rho)
    assert rho_of(measurements) == rho
    for measurement, square in zip(measurements, squares, strict=True):
        assert measurement.l2_sensitivity_squared == square
        assert Fraction(privacy_map(measurement.sigma, square_root_up(square))) <= measurement.rho


@given(square=st.integers(0, 2**100) | st.fractions(0, 2**60) | st.floats(0, 1e30).map(Fraction))
def test_square_roots_are_rounded_up(square):
    """The root is the least float whose square, computed exactly, is not below the number."""
    root = square_root_up(square)
    assert Fraction(root) ** 2 >= square
    assert root == 0 or Fraction(math.nextafter(root, 0.0)) ** 2 < square


@settings(max_examples=40)
@given(rho=rhos, l2_sensitivity_squared=st.sampled_from([1, 2, 3, 4, 8, 1_000]))
def test_the_scale_is_the_least_that_stays_within_rho(rho, l2_sensitivity_squared):
    """OpenDP's privacy map of σ is at most ρ, and that of the next float below σ exceeds it."""
    sensitivity = square_root_up(l2_sensitivity_squared)
    scale = scale_for(rho, l2_sensitivity_squared)
    assert Fraction(privacy_map(scale, sensitivity)) <= rho
    assert Fraction(privacy_map(math.nextafter(scale, 0.0), sensitivity)) > rho
    assert math.isclose(scale**2 * 2 * float(rho), l2_sensitivity_squared, rel_tol=1e-13)


def test_no_scale_is_beyond_the_largest():
    """A share that buys a σ just below 2**32 is granted; with a larger one arithmetic on noise could overflow."""
    assert LARGEST_SCALE * 0.999 < scale_for(Fraction(1001, 1000) / 2**64, 2) <= LARGEST_SCALE
    for rho in (Fraction(999, 1000) / 2**64, Fraction(1, 2**66), Fraction(1, 10**300)):
        with pytest.raises(ValueError, match=r"^sigma must be <= 2\*\*32"):
            scale_for(rho, 2)


def test_an_epsilon_far_too_small_is_refused_by_name():
    """An ε > 0 gives a ρ > 0 or is refused, not with an arithmetic error: a level with ρ = 0 would be published exactly."""
    for epsilon in (1e-160, 1e-162, 1e-200, 5e-324):
        with suppress(ValueError):
            assert rho_from_epsilon(epsilon, 1e-8) > 0
        with pytest.raises(ValueError, match="epsilon"):
            scale_for(rho_from_epsilon(epsilon, 1e-8), 2)


ONE_RECORD = {  # allocations for one record per unit, to which every accountant applies
    "substitution": Allocation(uniform(6), (2,) * 6),
    "add_remove": Allocation(uniform(4), (1,) * 4),
    "measured root": Allocation(geometric(Fraction(4), 2), (1, 2)),
}
MANY_RECORDS = {"m = 3": Allocation(uniform(3), (9, 9, 3)), "m = 3, substitution": Allocation(uniform(2), (9, 18))}
ALLOCATIONS = ONE_RECORD | MANY_RECORDS
AT_ANY = [*product(("lemma", "zcdp"), ALLOCATIONS), ("pld", "substitution"), ("pld", "measured root")]

every_allocation = pytest.mark.parametrize(("by", "relation"), AT_ANY)


def with_noise(measurements, factor):
    """Return measurements with so many times the noise, and what those cost."""
    changed = [replace(of, sigma=factor * of.sigma) for of in measurements]
    costs = [privacy_map(of.sigma, square_root_up(of.l2_sensitivity_squared)) for of in changed]
    return tuple(replace(of, rho=Fraction(cost)) for of, cost in zip(changed, costs, strict=True))


def gaussian_delta(rho, epsilon):
    """Return the exact δ of Gaussian noise on real numbers that costs ρ (Balle and Wang, 2018)."""
    mu = math.sqrt(2 * rho)
    return float(ndtr(-epsilon / mu + mu / 2) - math.exp(epsilon) * ndtr(-epsilon / mu - mu / 2))


@every_allocation
def test_the_noise_that_is_chosen_holds_and_less_would_not(by, relation):
    """What an accountant chooses for (ε, δ) holds by its own computation; with 1 % less noise it does not."""
    allocation, epsilon, delta = ALLOCATIONS[relation], 1.0, 1e-8
    rho = ACCOUNTANTS[by].largest_rho(allocation, epsilon, delta)
    measurements = allocation.measurements(rho)
    assert rho_of(measurements) == rho
    assert ACCOUNTANTS[by].holds(measurements, epsilon, delta)
    assert ACCOUNTANTS[by].holds(with_noise(measurements, 1.01), epsilon, delta)
    assert not ACCOUNTANTS[by].holds(with_noise(measurements, 0.99), epsilon, delta)


@every_allocation
def test_a_stated_epsilon_is_never_under_stated(by, relation):
    """The ε that is stated for measurements holds, and a thousandth less of it does not."""
    # δ(ε) is the least δ at which ε holds: a millionth more of it holds, a fiftieth less does not. pld states it by a grid of losses and
    # checks it by sums over outcomes: the grid makes it a hundredth larger.
    accountant, measurements = ACCOUNTANTS[by], ALLOCATIONS[relation].measurements(Fraction(1, 50))
    epsilon = accountant.least_epsilon(measurements, 1e-8)
    assert accountant.holds(measurements, epsilon, 1e-8)
    assert not accountant.holds(measurements, 0.999 * epsilon, 1e-8)
    for epsilon in (0.4, 1.1):
        delta = accountant.least_delta(measurements, epsilon)
        assert delta > LEAST_PLD_DELTA
        assert accountant.holds(measurements, epsilon, delta * (1 + 1e-6))
        assert not accountant.holds(measurements, epsilon, delta * 0.98)
    curve = Guarantee(accountant, 1.0, 1e-8, measurements).curve()
    assert [point.epsilon for point in curve] == [0.25, 0.5, 0.75, 1.0, 1.25]
    assert all(1 >= one.delta > other.delta > 0 for one, other in pairwise(curve))
    assert all(accountant.holds(measurements, point.epsilon, point.delta * (1 + 1e-6)) for point in curve)


def optimal_delta(rho, epsilon):
    """Return δ of ρ-zCDP at ε by Canonne, Kamath and Steinke's Proposition 12, minimised over α afresh."""

    def log_delta(log_excess):
        excess = math.exp(log_excess)  # α − 1
        return excess * ((1 + excess) * rho - epsilon) - (1 + excess) * math.log1p(1 / excess) + math.log(1 / excess)

    best = minimize_scalar(log_delta, bounds=(-15, 15), method="bounded", options={"xatol": 1e-10})
    return math.exp(best.fun)


@settings(max_examples=8)
@given(epsilon=st.floats(0.01, 50), log_delta=st.floats(-30, -3))
def test_zcdp_is_the_optimal_conversion(epsilon, log_delta):
    """The δ of the ρ that zcdp allows is the asked one by the published formula, computed independently."""
    delta = 10**log_delta
    assert math.isclose(optimal_delta(float(zcdp_rho(epsilon, delta)), epsilon), delta, rel_tol=1e-5)


@settings(max_examples=20)
@given(rho=st.floats(1e-6, 20).map(Fraction), log_delta=st.floats(-30, -3))
def test_the_conversion_at_the_best_renyi_order_is_that_of_zcdp(rho, log_delta):
    """Of what costs α ρ at the order α, the ε at the best α is that of the whole curve, by OpenDP, and never below it; nor above the lemma's."""
    delta = 10**log_delta
    order, whole = renyi_order(rho, delta), zcdp_epsilon(rho, delta)
    assert whole <= renyi_epsilon(order * float(rho), order, delta) <= whole * (1 + 1e-6) + 1e-9
    assert 0 <= whole <= epsilon_from_rho(rho, delta)


@given(epsilon=st.floats(0.01, 5), tau=st.fractions(Fraction(1, 10**9), Fraction(1, 10**3)))
def test_a_sampler_that_is_not_exact_costs_delta_on_both_sides(epsilon, tau):
    """Within τ of the law on either table, it takes (1 + e^ε) τ off δ, rounded so that no less is taken."""
    with localcontext(prec=60):
        exact = Decimal("0.25") - (1 + Decimal(epsilon).exp()) * tau.numerator / tau.denominator
        left = Decimal(delta_left(0.25, epsilon, tau))
        assert exact - Decimal("1e-15") <= left <= exact


@settings(max_examples=8)
@given(epsilon=st.floats(1e-4, 200), log_delta=st.floats(-100, -4))
def test_the_rho_of_zcdp_is_the_largest_float(epsilon, log_delta):
    """The ε of ρ stays within the asked one, the ε of the next float above ρ does not."""
    delta = 10**log_delta
    rho = zcdp_rho(epsilon, delta)
    assert zcdp_epsilon(rho, delta) <= epsilon
    assert zcdp_epsilon(Fraction(math.nextafter(float(rho), math.inf)), delta) > epsilon
    assert rho >= rho_from_epsilon(epsilon, delta)


@pytest.mark.parametrize("by", ["lemma", "zcdp", "pld"])
def test_no_accountant_takes_what_promises_nothing(by):
    """Every accountant refuses an ε that is not a finite number above zero, and a δ that is not between 0 and 1."""
    allocation, accountant = ONE_RECORD["substitution"], ACCOUNTANTS[by]
    for epsilon in (0, 0.0, -1, -0.5, math.inf, -math.inf, math.nan):
        with pytest.raises(ValueError, match=r"^epsilon must be "):
            accountant.largest_rho(allocation, epsilon, 1e-8)
    for delta in (0, 0.0, 1, 1.0, -1e-8, 2, math.inf, math.nan):
        with pytest.raises(ValueError, match=r"^delta must be "):
            accountant.largest_rho(allocation, 1.0, delta)
        with pytest.raises(ValueError, match=r"^delta must be "):
            accountant.least_epsilon(allocation.measurements(Fraction(1, 100)), delta)


@pytest.mark.parametrize(("relation", "rho", "epsilon"), [
    ("substitution", 2e-3, 0.1), ("substitution", 2e-4, 0.02), ("substitution", 1e-6, 7e-3), ("add_remove", 2e-3, 0.3),
    ("add_remove", 1.9e-2, 0.5), ("measured root", 2e-4, 0.1), ("measured root", 1.9e-2, 0.5),
])  # fmt: skip
def test_with_much_noise_pld_agrees_with_the_analytic_gaussian(relation, rho, epsilon):
    """Where σ is large the discrete noise is as the continuous one, whose δ is known in closed form: to 1 %."""
    measurements = ONE_RECORD[relation].measurements(Fraction(rho))
    assert min(measurement.sigma for measurement in measurements) > 5
    delta = ACCOUNTANTS["pld"].least_delta(measurements, epsilon)
    assert math.isclose(delta, gaussian_delta(rho, epsilon), rel_tol=0.01)


def test_pld_says_what_it_does_not_apply_to():
    """A δ, an ε or a σ out of the range of privacy loss distributions is refused, and zcdp proposed; the limits are within it."""
    for epsilon, delta, sigma, named in (
        (1.0, 9.9e-13, 10.0, "delta from 1e-12"),
        (1e-3, 2e-3, 10.0, "at most a tenth of epsilon"),
        (100.1, 1e-8, 10.0, "at most 100"),
        (1.0, 1e-8, LARGEST_PLD_SCALE * 1.001, "sigma"),
    ):
        with pytest.raises(ValueError, match=f"{named}.*; use zcdp"):
            check_pld([Measurement(Fraction(1), sigma, 2)], epsilon, delta)
    for epsilon, delta, sigma in ((100.0, 1e-12, LARGEST_PLD_SCALE), (1e-2, 1e-3, 1.0), (1.0, 0.1, 1.0)):
        check_pld([Measurement(Fraction(1), sigma, 2)], epsilon, delta)


FAR_OUT = [
    *((epsilon, 1e-300) for epsilon in (1e-9, 1e-6, 1e-3, 1.0, 1_000.0)),
    *((1e-9, 1e-8), (1e-6, 1e-12), (1e-3, 1e-3), (1.0, 0.6), (100.0, 0.9), (1_000.0, 1e-8), (1_000.0, 0.9)),
]
SLOW = {("pld", 1e-3, 1e-3), ("pld", 1.0, 0.6)}  # they hold, in half a minute
REFUSED = r"^(sigma must be <= 2\*\*32: epsilon is too small|accountant pld needs .*; use zcdp\.$)"


@pytest.mark.parametrize(
    ("by", "epsilon", "delta"), [(by, *point) for by in ACCOUNTANTS for point in FAR_OUT if (by, *point) not in SLOW]
)
def test_far_out_an_accountant_chooses_noise_that_holds_or_refuses(by, epsilon, delta):
    """For the smallest and the largest ε and δ either noise is chosen that holds, or the refusal says why."""
    allocation, accountant = Allocation(uniform(2), (2, 2)), ACCOUNTANTS[by]
    try:
        measurements = allocation.measurements(accountant.largest_rho(allocation, epsilon, delta))
    except ValueError as error:
        refusal = str(error)
    else:
        assert accountant.holds(measurements, epsilon, delta)
        assert not accountant.holds(with_noise(measurements, 0.99), epsilon, delta)
        return
    assert re.match(REFUSED, refusal)
    assert by == "pld" or epsilon == 1e-9


@pytest.mark.parametrize("delta", [1e-300, 1e-8, 0.9])
@pytest.mark.parametrize("rho", [1e-300, 1e6, 1e300])
def test_far_out_the_epsilon_of_zcdp_is_still_a_number(rho, delta):
    """Where OpenDP's floats overflow the lemma's ε stands: a number, never below 0, never above the lemma's."""
    assert 0 <= zcdp_epsilon(Fraction(rho), delta) <= epsilon_from_rho(Fraction(rho), delta) < math.inf
    measurements = (Measurement(Fraction(rho), 1.0, 2),)
    for by in ("lemma", "zcdp"):
        assert 0 <= ACCOUNTANTS[by].least_delta(measurements, 1.0) <= 1


def summed(measurements):
    """Return an error in proportion to the scales, with different weights and rounding at every step."""
    return sum(math.sqrt(2 * math.log(level + 2)) * measurement.sigma for level, measurement in enumerate(measurements))


@settings(max_examples=40)
@given(most=st.floats(1, 1e8), relation=st.sampled_from([*ALLOCATIONS]))
def test_the_rho_for_an_error_is_the_least(most, relation):
    """With the ρ of a target the error stays within it, with the next float below it does not."""
    allocation = ALLOCATIONS[relation]
    rho = allocation.least_rho(summed, most)
    assert summed(allocation.measurements(rho)) <= most
    assert summed(allocation.measurements(Fraction(math.nextafter(float(rho), 0.0)))) > most


@pytest.mark.parametrize("most", [5e-324, 1e-200, 1e-10, 1e12, 1e200, 1.7e308])
def test_an_error_that_no_noise_has_is_refused(most):
    """A target so small or so large that no σ would be of use is refused by a reason, not by an arithmetic error."""
    with pytest.raises(ValueError, match="must be"):
        ONE_RECORD["substitution"].least_rho(summed, most)
