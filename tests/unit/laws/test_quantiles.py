"""Quantiles keep their promise to the last digit, also for a sampler that is only close to its law.

Probabilities are computed a second time here, in decimals of 60 digits, by summing up the law.
"""

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from functools import cache
from itertools import count

import pytest

from tasks.laws.gaussian import _log_kappa, gaussian_quantile
from tasks.laws.laplace import laplace_quantile
from tasks.laws.table_sampler import LARGEST_TAU

DIGITS = 60
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
ROOM = [-1e-12, -1e-14, 0.0, 1e-15, 3e-14, 2e-13]  # more or less than the logarithm of what is exceeded
ENOUGH = 2e-12  # of room, with which nobody is more careful than need be


def tau() -> Decimal:
    """Return how far one draw of the table sampler may be from its law."""
    return Decimal(LARGEST_TAU.numerator) / Decimal(LARGEST_TAU.denominator)


@cache
def gaussian_law(sigma: float) -> list[Decimal]:
    """Return P(noise = k) of the discrete Gaussian for k = 0, 1, 2, … until it is below 1e-60."""
    with localcontext(prec=DIGITS):
        weights = [Decimal(1)]
        for k in count(1):
            weights.append((Decimal(-k * k) / (2 * Decimal(sigma) ** 2)).exp())
            if weights[-1] < Decimal("1e-60"):
                break
        whole = weights[0] + 2 * sum(weights[1:])
        return [weight / whole for weight in weights]


def beyond_gaussian(sigma: float, z: int) -> Decimal:
    """Return P(noise > z) of the discrete Gaussian."""
    return sum(gaussian_law(sigma)[z + 1 :], Decimal(0))


def beyond_laplace(scale: float, z: int) -> Decimal:
    """Return P(noise > z) of the discrete Laplace distribution."""
    q = (-1 / Decimal(scale)).exp()
    return q ** (z + 1) / (1 + q)


@pytest.mark.parametrize("room", ROOM)
@pytest.mark.parametrize(
    ("quantile", "beyond", "scale"),
    [
        *((gaussian_quantile, beyond_gaussian, sigma) for sigma in (0.7, 2.5, 4.836, 31.4)),
        *((laplace_quantile, beyond_laplace, scale) for scale in (0.7, 2.0, 5.3)),
    ],
)
def test_noise_within_tau_of_its_law_exceeds_a_quantile_no_more_often_than_is_said(
    quantile: Callable[[float, float], int], beyond: Callable[[float, int], Decimal], scale: float, room: float
) -> None:
    """Asked for just what a whole number is exceeded with, down to 1e-24, no quantile is exceeded more often, τ included."""
    with localcontext(prec=DIGITS):
        for z in count():
            exceeded = beyond(scale, z)
            if exceeded < Decimal("1e-24"):
                break
            log_tail = float(exceeded.ln()) + room
            assert beyond(scale, quantile(scale, log_tail)) + tau() <= Decimal(log_tail).exp()
            assert quantile(scale, float(exceeded.ln()) + ENOUGH) == z


@pytest.mark.parametrize("sigma", [1.0, 1.3, 2.5, 4.836, 31.4, 99.0])
@pytest.mark.parametrize("terms", [1, 2])
def test_what_the_bound_on_sums_is_multiplied_by_is_never_too_small(sigma: float, terms: int) -> None:
    """κ = P[S = 0] σ √(2πn), summed up for one term and for two, is at most what is computed, and no 1e-11 less."""
    law = gaussian_law(sigma)
    with localcontext(prec=DIGITS):
        at_zero = law[0] if terms == 1 else law[0] ** 2 + 2 * sum(one**2 for one in law[1:])
        exact = (at_zero * Decimal(sigma) * (2 * PI * terms).sqrt()).ln()
        assert exact <= Decimal(_log_kappa(sigma, terms)) <= exact + Decimal("1e-11")


@pytest.mark.parametrize("log_tail", [-3.0, -40.0, -800.0])
@pytest.mark.parametrize("terms", [2, 3, 7])
@pytest.mark.parametrize("sigma", [0.02, 0.0237])
def test_noise_that_floats_do_not_have_has_quantiles_of_sums(sigma: float, terms: int, log_tail: float) -> None:
    """Where no draw but 0 has a probability that floats can hold, the sum exceeds the quantile with at most the probability."""
    z = gaussian_quantile(sigma, log_tail, terms)
    ones = z + 1  # the likeliest way to more than z: so many draws of 1 or -1
    assert 0 <= z <= terms
    if ones <= terms:
        assert math.log(math.comb(terms, ones)) + ones * (math.log(2) - 1 / (2 * sigma**2)) <= log_tail
