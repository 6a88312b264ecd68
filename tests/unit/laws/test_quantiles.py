"""Quantiles keep their promise to the last digit, by sums in 60 decimals, also for a sampler that is only close to its law; what noise states of itself."""

import math
from dataclasses import dataclass, replace
from decimal import Decimal, localcontext
from functools import cache
from itertools import count

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtri_exp

from tasks.accounting.pld import _log_below
from tasks.laws.gaussian import GAUSSIAN, gaussian_quantile, normal_quantile
from tasks.laws.laplace import LAPLACE, laplace_quantile
from tasks.laws.law import NO_NOISE, LevelNoise, quantile_of_sum
from tasks.laws.named import GAUSSIAN_OVER_DAYS, LAWS, noise_of
from tasks.laws.samplers import LARGEST_TAU
from tasks.laws.thresholded import THRESHOLDED_LAPLACE
from tasks.uncertainty.intervals import margins_of, simultaneous_margins, sum_margins

DIGITS = 60
ROOM = [-1e-12, -1e-14, 0.0, 1e-15, 3e-14, 2e-13]  # more or less than the logarithm of what is exceeded
ENOUGH = 2e-12  # of room, with which nobody is more careful than need be


def tau():
    """Return how far one draw of the table sampler may be from its law."""
    return Decimal(LARGEST_TAU.numerator) / Decimal(LARGEST_TAU.denominator)


@cache
def gaussian_law(sigma):
    """Return P(noise = k) of the discrete Gaussian for k = 0, 1, 2, … until it is below 1e-60."""
    with localcontext(prec=DIGITS):
        weights = [Decimal(1)]
        for k in count(1):
            weights.append((Decimal(-k * k) / (2 * Decimal(sigma) ** 2)).exp())
            if weights[-1] < Decimal("1e-60"):
                break
        whole = weights[0] + 2 * sum(weights[1:])
        return [weight / whole for weight in weights]


def beyond_gaussian(sigma, z):
    """Return P(noise > z) of the discrete Gaussian."""
    return sum(gaussian_law(sigma)[z + 1 :], Decimal(0))


def beyond_laplace(scale, z):
    """Return P(noise > z) of the discrete Laplace distribution."""
    q = (-1 / Decimal(scale)).exp()
    return q ** (z + 1) / (1 + q)


@pytest.mark.parametrize("room", ROOM)
@pytest.mark.parametrize(
    ("quantile", "beyond", "scale"),
    [
        *((gaussian_quantile, beyond_gaussian, sigma) for sigma in (0.2, 0.5, 0.7, 2.5, 4.836, 31.4)),
        *((laplace_quantile, beyond_laplace, scale) for scale in (0.3, 0.7, 2.0, 5.3)),
    ],
)
def test_noise_within_tau_of_its_law_exceeds_a_quantile_no_more_often_than_is_said(quantile, beyond, scale, room):
    """Asked for just what a whole number is exceeded with, down to 1e-24, no quantile is exceeded more often, τ included."""
    with localcontext(prec=DIGITS):
        for z in count():
            exceeded = beyond(scale, z)
            if exceeded < Decimal("1e-24"):
                break
            log_tail = float(exceeded.ln()) + room
            assert beyond(scale, quantile(scale, log_tail)) + tau() <= Decimal(log_tail).exp()
            assert quantile(scale, float(exceeded.ln()) + ENOUGH) == z


def test_a_law_without_quantiles_states_no_interval():
    """Margins of noise whose law has no quantiles are refused; where only leaves above a threshold are kept, those of a sum are."""
    noise = LevelNoise(replace(GAUSSIAN, quantile=None), 3.0)
    with pytest.raises(ValueError, match="has no quantiles"):
        margins_of([NO_NOISE, noise], 0.9)
    with pytest.raises(ValueError, match="has no quantiles"):
        simultaneous_margins([noise], [4], 0.9)
    with pytest.raises(ValueError, match="has no quantiles"):
        sum_margins(noise, np.array([3]), -3.0)
    noise = LevelNoise(THRESHOLDED_LAPLACE, 2.0)
    assert noise.quantile(-3.0) > 0
    with pytest.raises(ValueError, match="missing"):
        noise.quantile(-3.0, 2)


@dataclass(frozen=True)
class Stated:
    """What a manifest states of the noise of a level."""

    mechanism: str
    sigma: float
    scale: float


@pytest.mark.parametrize("scale", [0.15, 0.2294157338705618, 0.5, 0.9, 1.0, 1.2, 1.7, 3.0, 40.0])
@pytest.mark.parametrize(
    "law", [law for law in LAWS.values() if law is not GAUSSIAN_OVER_DAYS], ids=lambda law: law.name
)
def test_what_is_stated_as_sigma_is_the_standard_deviation(law, scale):
    """Little noise is of whole records too: it is nearly always 0, and its deviation far below its scale. Both are stated then."""
    k = np.arange(-math.ceil(60 * scale) - 1, math.ceil(60 * scale) + 2)
    weights = np.exp(-((k / scale) ** 2) / 2 if law.norm == 2 else -np.abs(k) / scale)
    noise = LevelNoise(law, scale)
    assert noise.sigma == pytest.approx(math.sqrt((k**2 * weights).sum() / weights.sum()), rel=1e-9)
    assert noise.variance == pytest.approx(noise.sigma**2, rel=2e-9)
    assert noise_of(Stated(law.name, noise.sigma, noise.stated_scale)) == noise
    assert (noise.stated_scale == 0) == (law is GAUSSIAN and scale >= 1.2)


def test_noise_that_floats_do_not_have_is_still_noise():
    """A level is exact if its σ is 0, so that of noise is never stated as 0."""
    for scale in (0.01, 0.02):
        noise = LevelNoise(GAUSSIAN, scale)
        assert 0 < noise.sigma < 1e-6
        assert noise_of(Stated(GAUSSIAN.name, noise.sigma, noise.stated_scale)) == noise


def test_noise_of_several_draws_is_that_of_their_sum():
    """The noise of a cell that bears several draws has their variance, and goes as far as their sum."""
    several = LevelNoise(GAUSSIAN, 3.0, terms=5)
    assert several.variance == 5 * LevelNoise(GAUSSIAN, 3.0).variance
    assert several.sigma == pytest.approx(3 * math.sqrt(5))
    assert several.quantile(-3.0, 2) == gaussian_quantile(3.0, -3.0, 10)


def probabilities_of(law, draws):
    """Return the probabilities of all values of a sum of draws, by convolution, float64, of an odd length with 0 in its middle."""
    together = np.ones(1)
    for scale, terms in draws:
        values = np.arange(-math.ceil(45 * scale), math.ceil(45 * scale) + 1)
        weights = np.exp(-((values / scale) ** 2) / 2 if law is GAUSSIAN else -np.abs(values) / scale)
        for _ in range(terms):
            together = np.convolve(together, weights / weights.sum())
    return together


MIXED = [((1.0, 2), (3.5, 1)), ((2.0, 1), (9.0, 4)), ((0.4, 3), (6.0, 2)), ((1.5, 1), (2.5, 1), (4.0, 1))]


@pytest.mark.parametrize("law", [GAUSSIAN, LAPLACE])
@pytest.mark.parametrize("draws", MIXED)
def test_draws_of_several_scales_are_added_up_exactly(law, draws):
    """The quantile of their sum is exceeded with at most the probability, and by the next smaller but one more often; single margins go no less far."""
    probabilities = probabilities_of(law, draws)
    beyond, middle = np.cumsum(probabilities[::-1])[::-1], len(probabilities) // 2
    for tail in (0.3, 0.05, 1e-3, 1e-6):
        z = law.sum_quantile(draws, math.log(tail))
        assert beyond[middle + z + 1] <= tail
        assert z < 2 or beyond[middle + z - 1] > tail
        noises = [(LevelNoise(law, scale), terms) for scale, terms in draws]
        assert quantile_of_sum([*noises, (NO_NOISE, 4)], math.log(tail)) == z
        assert z <= sum(law.quantile(scale, math.log(tail), terms) for scale, terms in draws)
        assert tail > 0.1 or beyond[middle + law.quantile(draws[0][0], math.log(tail), 1) + 1] > tail


def test_noise_that_is_alike_is_added_up_as_one():
    """Several parts of one scale are that many draws; no noise goes nowhere; and sums lack what is below a threshold."""
    gaussian, log_tail = LevelNoise(GAUSSIAN, 3.0), math.log(0.05)
    assert quantile_of_sum([(gaussian, 1), (NO_NOISE, 3), (gaussian, 2)], log_tail) == gaussian.quantile(log_tail, 3)
    assert quantile_of_sum([(NO_NOISE, 3), (gaussian, 0)], log_tail) == 0
    with pytest.raises(ValueError, match="no quantiles of sums"):
        quantile_of_sum([(LevelNoise(THRESHOLDED_LAPLACE, of), 1) for of in (2.0, 3.0)], log_tail)


def test_normal_tails_are_those_of_scipy():
    """Probabilities below a value, and values by a probability beyond them, are SciPy's to the last digits, near and far."""
    far = np.concatenate((-np.geomspace(1e6, 1e-3, 400), np.geomspace(1e-3, 8, 50)))
    np.testing.assert_allclose([_log_below(x) for x in far], log_ndtr(far), rtol=1e-13)
    tails = -np.geomspace(math.log(2), 2000, 400)
    np.testing.assert_allclose([normal_quantile(tail) for tail in tails], -ndtri_exp(tails), rtol=1e-13, atol=1e-13)
