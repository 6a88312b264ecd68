"""Noise laws: each is one value with a name, and one that cannot state how far it goes states no interval."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from storage.releases.terms import DISCRETE_GAUSSIAN
from tasks.laws.gaussian import GAUSSIAN, gaussian_quantile
from tasks.laws.law import NO_NOISE, Law, LevelNoise
from tasks.laws.named import LAWS, noise_of
from tasks.laws.thresholded import THRESHOLDED_LAPLACE
from tasks.uncertainty.intervals import margins_of, simultaneous_margins, sum_margins


def test_laws_are_known_by_their_names() -> None:
    """The table has each law under its own name, and what a ledger charges by default is in it."""
    assert [law.name for law in LAWS.values()] == list(LAWS)
    assert LAWS[DISCRETE_GAUSSIAN] is GAUSSIAN


def test_a_law_without_quantiles_states_no_interval() -> None:
    """Margins of noise whose law has no quantiles are refused, and not taken from another law."""
    noise = LevelNoise(replace(GAUSSIAN, quantile=None), 3.0)
    with pytest.raises(ValueError, match="has no quantiles"):
        margins_of([NO_NOISE, noise], 0.9)
    with pytest.raises(ValueError, match="has no quantiles"):
        simultaneous_margins([noise], [4], 0.9)
    with pytest.raises(ValueError, match="has no quantiles"):
        sum_margins(noise, np.array([3]), -3.0)


def test_sums_that_lack_leaves_state_no_interval() -> None:
    """Of noise that keeps only leaves above a threshold, one leaf has a quantile and a sum has none."""
    noise = LevelNoise(THRESHOLDED_LAPLACE, 2.0)
    assert noise.quantile(-3.0) > 0
    with pytest.raises(ValueError, match="missing"):
        noise.quantile(-3.0, 2)


def test_exact_levels_have_no_noise() -> None:
    """No noise is false, has no spread, and goes nowhere."""
    assert not NO_NOISE
    assert (NO_NOISE.sigma, NO_NOISE.variance, NO_NOISE.reach(3.0), NO_NOISE.quantile(-3.0)) == (0.0, 0.0, 0.0, 0)
    assert LevelNoise(GAUSSIAN, 3.0)


@dataclass(frozen=True)
class Stated:
    """What a manifest states of the noise of a level."""

    mechanism: str
    sigma: float
    scale: float


@pytest.mark.parametrize("scale", [0.15, 0.2294157338705618, 0.5, 0.9, 1.0, 1.2, 1.7, 3.0, 40.0])
@pytest.mark.parametrize("law", LAWS.values(), ids=list(LAWS))
def test_what_is_stated_as_sigma_is_the_standard_deviation(law: Law, scale: float) -> None:
    """Little noise is of whole records too: it is nearly always 0, and its deviation far below its scale. Both are stated then."""
    k = np.arange(-math.ceil(60 * scale) - 1, math.ceil(60 * scale) + 2)
    weights = np.exp(-((k / scale) ** 2) / 2 if law.norm == 2 else -np.abs(k) / scale)
    noise = LevelNoise(law, scale)
    assert noise.sigma == pytest.approx(math.sqrt((k**2 * weights).sum() / weights.sum()), rel=1e-9)
    assert noise.variance == pytest.approx(noise.sigma**2, rel=2e-9)
    assert noise_of(Stated(law.name, noise.sigma, noise.stated_scale)) == noise
    assert (noise.stated_scale == 0) == (law is GAUSSIAN and scale >= 1.2)


@pytest.mark.parametrize("scale", [0.01, 0.02])
def test_noise_that_floats_do_not_have_is_still_noise(scale: float) -> None:
    """A level is exact if its σ is 0, so that of noise is never stated as 0."""
    noise = LevelNoise(GAUSSIAN, scale)
    assert 0 < noise.sigma < 1e-6
    assert noise_of(Stated(GAUSSIAN.name, noise.sigma, noise.stated_scale)) == noise


def test_noise_of_several_draws_is_that_of_their_sum() -> None:
    """The noise of a cell that bears several draws has their variance, and goes as far as their sum."""
    several = LevelNoise(GAUSSIAN, 3.0, terms=5)
    assert several.variance == 5 * LevelNoise(GAUSSIAN, 3.0).variance
    assert several.sigma == pytest.approx(3 * math.sqrt(5))
    assert several.quantile(-3.0, 2) == gaussian_quantile(3.0, -3.0, 10)
