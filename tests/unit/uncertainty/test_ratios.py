"""Intervals of shares: every bound holds with its probability, by all values that the noise can have, and the ends are those of all shares allowed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.laplace import LAPLACE
from tasks.laws.law import NO_NOISE, Law, LevelNoise
from tasks.tree.axis import FloatArray
from tasks.uncertainty.ratios import Draws, reaches_of, share_ends
from tests.support.laws import sampler_of

ALPHA = 0.1


def law_of(draws: Draws) -> tuple[FloatArray, FloatArray]:
    """Return the values of a sum of draws and their probabilities, by convolution."""
    together = np.ones(1)
    for noise, cells in draws:
        values = np.arange(-int(12 * noise.scale) - 3, int(12 * noise.scale) + 4)
        logs = -((values / noise.scale) ** 2) / 2 if noise.law is GAUSSIAN else -np.abs(values) / noise.scale
        for _ in range(cells * noise.terms):
            together = np.convolve(together, np.exp(logs) / np.exp(logs).sum())
    half = len(together) // 2
    return np.arange(-half, half + 1.0), together


NOISES = [
    ([(1.5, 1)], [(1.5, 3)]),
    ([(4.0, 2)], [(2.0, 1), (6.0, 1)]),
    ([(0.4, 1)], [(0.6, 2)]),
    ([(8.0, 1)], [(0.5, 1)]),
]


@pytest.mark.parametrize("law", [GAUSSIAN, LAPLACE])
@pytest.mark.parametrize("is_inside", [True, False])
@pytest.mark.parametrize(("one", "other"), NOISES)
def test_each_bound_holds_with_its_probability(law: Law, is_inside: bool, one: list, other: list) -> None:
    """For every share, |u X − v Y| goes beyond each of the bounds with a probability of α at most: by all pairs of values.

    The least of them is not much larger than need be where there is noise: two thirds of it fail.
    """
    part, rest = ([(LevelNoise(law, scale), cells) for scale, cells in of] for of in (one, other))
    reaches = reaches_of(part, rest, ALPHA, is_inside=is_inside, is_independent=True)
    (x, of_x), (y, of_y) = law_of(part), law_of(rest)
    together = np.outer(of_x, of_y)
    for share in np.linspace(0, 1, 9):
        noise = np.abs((1 - share if is_inside else 1.0) * x[:, None] - share * y)
        least = min(reach(share) for reach in reaches)
        assert together[noise > least + 1e-9].sum() <= ALPHA
        if law is GAUSSIAN and noise[together > 1e-4].max() > 20:
            assert together[noise > 2 * least / 3].sum() > ALPHA


def test_normal_noise_is_hardly_overestimated() -> None:
    """Of much noise, the least bound is within 4% of the normal quantile; what is not independent has the bounds by parts alone."""
    part, rest = [(LevelNoise(GAUSSIAN, 40.0), 3)], [(LevelNoise(GAUSSIAN, 40.0), 9)]
    reaches = reaches_of(part, rest, ALPHA, is_inside=True, is_independent=True)
    for share in (0.1, 0.3, 0.6):
        normal = 1.6449 * 40 * np.sqrt(3 * (1 - share) ** 2 + 9 * share**2)
        assert normal < min(reach(share) for reach in reaches) < 1.04 * normal
    apart = reaches_of(part, rest, ALPHA, is_inside=True, is_independent=False)
    assert len(apart) == len(reaches) - 3
    assert all(reach(0.3) > normal / 1.3 for reach in apart)


@settings(max_examples=60)
@given(st.floats(-30, 120), st.floats(-30, 120), st.floats(0, 30), st.floats(0, 30), st.floats(0, 5))
def test_the_ends_are_those_of_all_shares_that_are_allowed(
    part: float, whole: float, one: float, other: float, more: float
) -> None:
    """No share outside is allowed by all tests, whatever the noisy numbers are, also below 0; inside the ends of one test, its ends are allowed."""
    reaches = [lambda r: float(np.hypot((1 - r) * one, r * other)) + more, lambda r: one + 2 * r * other + more]
    low, high = share_ends(part, whole, reaches)
    shares = np.linspace(0, 1, 501)
    allowed = [share for share in shares if all(abs(part - share * whole) <= reach(share) for reach in reaches)]
    assert all(low - 1e-9 <= share <= high + 1e-9 for share in allowed)
    alone = share_ends(part, whole, reaches[:1])
    for end, limit in zip(alone, (0.0, 1.0), strict=True):
        if allowed and end != limit:
            assert abs(part - end * whole) == pytest.approx(reaches[0](end), abs=1e-6)


def test_without_noise_a_share_is_exact() -> None:
    """The ends are the share itself; where all of the whole may be noise, nothing is known; a whole that is exact leaves α to the part."""
    exact = reaches_of([], [(NO_NOISE, 1)], ALPHA, is_inside=False, is_independent=True)
    assert share_ends(20, 80, exact) == pytest.approx((0.25, 0.25), abs=1e-12)
    noise = LevelNoise(GAUSSIAN, 5.0)
    [reach] = reaches_of([(noise, 2)], [(NO_NOISE, 1)], ALPHA, is_inside=False, is_independent=True)
    z = noise.quantile(np.log(ALPHA / 2), 2)
    assert reach(0.7) == z
    assert share_ends(20, 80, [reach]) == pytest.approx((max(20 - z, 0) / 80, (20 + z) / 80))
    assert share_ends(3, 4, reaches_of([(noise, 1)], [(noise, 1)], ALPHA, is_inside=False, is_independent=True)) == (
        0,
        1,
    )


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("is_inside", [True, False])
def test_shares_are_covered(law: str, is_inside: bool) -> None:
    """Of 300 draws of all noise, the interval of the share covers it in 90% less 4.75 standard errors at least.

    An interval by a third of the bounds does not: the check can fail.
    """
    noise, runs = LevelNoise(GAUSSIAN if law == "gaussian" else LAPLACE, 6.0), 300
    few, many = [(noise, 2)], [(noise, 5)]
    reaches = reaches_of(few, many, ALPHA, is_inside=is_inside, is_independent=True)
    thirds = [lambda r, of=reach: of(r) / 3 for reach in reaches]
    draw = sampler_of(law, 11)
    part, rest = (
        draw(np.zeros(cells * runs, dtype=np.int64), 6.0).reshape(runs, cells).sum(axis=1) for cells in (2, 5)
    )
    noisy_part = 60 + part
    noisy_whole = 200 + rest + (part if is_inside else 0)
    hits = [0, 0]
    for of_part, of_whole in zip(noisy_part.tolist(), noisy_whole.tolist(), strict=True):
        for number, of in enumerate((reaches, thirds)):
            low, high = share_ends(of_part, of_whole, of)
            hits[number] += low <= 0.3 <= high
    least = 0.9 - 4.75 * np.sqrt(0.09 / runs)
    assert hits[0] / runs >= least
    assert hits[1] / runs < least - 0.1
