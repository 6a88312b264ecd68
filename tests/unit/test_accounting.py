"""From (ε, δ) to ρ and back, ρ's shares, and the scale that a share buys."""

import math
from contextlib import suppress
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.noise.accounting import epsilon_from_rho, rho_from_epsilon
from tasks.noise.allocation import LARGEST_SCALE, scale_for, uniform
from tasks.noise.samplers import privacy_map
from tasks.noise.sensitivity import square_root_up

epsilons = st.floats(1e-9, 1e3)
deltas = st.floats(1e-15, 0.5)
rhos = st.floats(1e-16, 1e3).map(Fraction)


def lemma(rho: Fraction, delta: float) -> Decimal:
    """Return ρ + 2 √(ρ ln 1/δ) to a hundred digits."""
    with localcontext(prec=100):
        exact = Decimal(rho.numerator) / Decimal(rho.denominator)
        return exact + 2 * (exact * (1 / Decimal(delta)).ln()).sqrt()


@pytest.mark.parametrize(("epsilon", "digits", "rho"), [(1, 6, 0.013215), (0.1, 7, 0.0001353)])
def test_rho_has_the_published_value(epsilon: float, digits: int, rho: float) -> None:
    """At δ = 1e-8 the lemma gives the values of DESIGN.md, to the digits given there."""
    assert round(float(rho_from_epsilon(epsilon, 1e-8)), digits) == rho


@given(epsilon=epsilons, delta=deltas)
def test_rho_is_the_largest_float_within_epsilon(epsilon: float, delta: float) -> None:
    """ρ + 2 √(ρ ln 1/δ) is at most ε, and the next float above ρ exceeds it."""
    rho = rho_from_epsilon(epsilon, delta)
    assert lemma(rho, delta) <= Decimal(epsilon) < lemma(Fraction(math.nextafter(float(rho), math.inf)), delta)


@given(rho=rhos, delta=deltas)
def test_epsilon_is_the_least_float_that_rho_allows(rho: Fraction, delta: float) -> None:
    """The ε stated for a ρ is never under-stated, and the next float below it would be."""
    epsilon = epsilon_from_rho(rho, delta)
    assert Decimal(math.nextafter(epsilon, 0.0)) < lemma(rho, delta) <= Decimal(epsilon)


@given(epsilon=epsilons, delta=deltas)
def test_there_and_back_never_exceeds_epsilon(epsilon: float, delta: float) -> None:
    """The ε of the ρ of an ε is at most that ε, and less by no more than rounding."""
    back = epsilon_from_rho(rho_from_epsilon(epsilon, delta), delta)
    assert epsilon * (1 - 1e-15) <= back <= epsilon


@given(rho=rhos, delta=deltas)
def test_back_and_there_never_loses_rho(rho: Fraction, delta: float) -> None:
    """The ρ of the ε of a ρ is at least that ρ: a release that was charged can be stated."""
    assert rho <= rho_from_epsilon(epsilon_from_rho(rho, delta), delta) <= rho * (1 + Fraction(1, 10**14))


@given(smaller=epsilons, delta=deltas, factor=st.floats(1.001, 10))
def test_rho_grows_with_epsilon_and_with_delta(smaller: float, delta: float, factor: float) -> None:
    """More ε buys more ρ, and so does more δ."""
    rho = rho_from_epsilon(smaller, delta)
    assert rho < rho_from_epsilon(smaller * factor, delta)
    assert rho < rho_from_epsilon(smaller, delta * factor if delta * factor < 1 else math.sqrt(delta))


@given(rho=rhos, delta=deltas, factor=st.floats(1.001, 10))
def test_epsilon_grows_with_rho_and_with_smaller_delta(rho: Fraction, delta: float, factor: float) -> None:
    """More ρ costs more ε, and so does less δ."""
    epsilon = epsilon_from_rho(rho, delta)
    assert epsilon < epsilon_from_rho(rho * Fraction(factor), delta)
    assert epsilon < epsilon_from_rho(rho, delta / factor)


def test_no_rho_costs_no_epsilon() -> None:
    """Nothing spent is ε = 0, whatever δ."""
    assert epsilon_from_rho(Fraction(0), 1e-8) == 0


@pytest.mark.parametrize("epsilon", [0, 0.0, -1, -0.5, math.inf, -math.inf, math.nan])
def test_an_epsilon_that_promises_nothing_is_refused(epsilon: float) -> None:
    """ε must be a finite number above zero."""
    with pytest.raises(ValueError, match=r"^epsilon must be "):
        rho_from_epsilon(epsilon, 1e-8)


@pytest.mark.parametrize("delta", [0, 0.0, 1, 1.0, -1e-8, 2, math.inf, math.nan])
def test_a_delta_that_promises_nothing_is_refused(delta: float) -> None:
    """δ must lie between 0 and 1, both excluded."""
    with pytest.raises(ValueError, match=r"^delta must be "):
        rho_from_epsilon(1.0, delta)


@given(rho=st.fractions(min_value=Fraction(1, 10**30), max_value=1_000), levels=st.integers(1, 60))
def test_uniform_shares_add_up_exactly(rho: Fraction, levels: int) -> None:
    """Every level gets the same share, and the shares are ρ, not a rounding of it."""
    shares = uniform(rho, levels)
    assert len(shares) == levels
    assert len(set(shares)) == 1
    assert sum(shares) == rho


@given(square=st.integers(0, 2**100))
def test_square_roots_are_rounded_up(square: int) -> None:
    """The root is the least float whose square, computed exactly, is not below the number."""
    root = square_root_up(square)
    assert Fraction(root) ** 2 >= square
    assert root == 0 or Fraction(math.nextafter(root, 0.0)) ** 2 < square


@settings(max_examples=40)
@given(rho=rhos, l2_sensitivity_squared=st.sampled_from([1, 2, 3, 4, 8, 1_000]))
def test_the_scale_is_the_least_that_stays_within_rho(rho: Fraction, l2_sensitivity_squared: int) -> None:
    """OpenDP's privacy map of σ is at most ρ, and that of the next float below σ exceeds it."""
    sensitivity = square_root_up(l2_sensitivity_squared)
    scale = scale_for(rho, l2_sensitivity_squared)
    assert Fraction(privacy_map(scale, sensitivity)) <= rho
    assert Fraction(privacy_map(math.nextafter(scale, 0.0), sensitivity)) > rho
    assert math.isclose(scale**2 * 2 * float(rho), l2_sensitivity_squared, rel_tol=1e-13)


@settings(max_examples=20)
@given(epsilon=st.floats(0.01, 20), levels=st.integers(1, 12))
def test_a_release_spends_all_of_its_rho(epsilon: float, levels: int) -> None:
    """The costs of all levels add up to ρ less rounding: with T levels under substitution the variance is T/ρ."""
    rho = rho_from_epsilon(epsilon, 1e-8)
    scales = [scale_for(share, 2) for share in uniform(rho, levels)]
    spent = sum(Fraction(privacy_map(scale, square_root_up(2))) for scale in scales)
    assert rho * (1 - Fraction(1, 10**14)) <= spent <= rho
    assert math.isclose(scales[0] ** 2, levels / float(rho), rel_tol=1e-13)


def test_the_largest_scale_is_still_granted() -> None:
    """A share that buys a σ just below 2**32 is not refused."""
    assert LARGEST_SCALE * 0.999 < scale_for(Fraction(1001, 1000) / 2**64, 2) <= LARGEST_SCALE


@pytest.mark.parametrize("rho", [Fraction(999, 1000) / 2**64, Fraction(1, 2**66), Fraction(1, 10**300)], ids=float)
def test_a_rho_too_small_to_release_anything_is_refused(rho: Fraction) -> None:
    """A share that needs a σ above 2**32 is refused, because arithmetic on such noise could overflow."""
    with pytest.raises(ValueError, match=r"^sigma must be <= 2\*\*32"):
        scale_for(rho, 2)


@pytest.mark.parametrize("epsilon", [1e-162, 1e-200, 5e-324])
def test_no_epsilon_buys_a_rho_of_zero(epsilon: float) -> None:
    """An ε > 0 gives a ρ > 0 or is refused: a level with ρ = 0 is invariant and would be published exactly."""
    with suppress(ValueError):
        assert rho_from_epsilon(epsilon, 1e-8) > 0


@pytest.mark.parametrize("epsilon", [1e-160, 1e-200])
def test_an_epsilon_far_too_small_is_refused_by_name(epsilon: float) -> None:
    """An ε whose σ is not even a float is refused as any other that is too small, not with an arithmetic error."""
    with pytest.raises(ValueError, match="epsilon"):
        scale_for(rho_from_epsilon(epsilon, 1e-8), 2)
