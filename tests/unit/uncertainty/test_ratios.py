"""Intervals of shares: the bound holds with its probability, by all values that the noise can have, and the ends are those of all shares allowed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from tasks.laws.gaussian import normal_quantile
from tasks.uncertainty.ratios import reach_of, share_ends, spread

ALPHA = 0.1


def law_of(draws):
    """Return the values of a sum of discrete Gaussians and their probabilities, by convolution."""
    together = np.ones(1)
    for scale, cells in draws:
        values = np.arange(-int(12 * scale) - 3, int(12 * scale) + 4)
        weights = np.exp(-((values / scale) ** 2) / 2)
        for _ in range(cells):
            together = np.convolve(together, weights / weights.sum())
    half = len(together) // 2
    return np.arange(-half, half + 1.0), together


@pytest.mark.parametrize("is_inside", [True, False])
@pytest.mark.parametrize(("part", "rest"), [
    (((1.5, 1),), ((1.5, 3),)),
    (((4.0, 2),), ((2.0, 1), (6.0, 1))),
    (((0.4, 1),), ((0.6, 2),)),
    (((8.0, 1),), ((0.5, 1),)),
])  # fmt: skip
def test_the_bound_holds_with_its_probability(is_inside, part, rest):
    """For every share, |u X − v Y| goes beyond it with a probability of α at most: by all pairs of values. Where there is noise, two thirds of it fail."""
    reach, (x, of_x), (y, of_y) = reach_of(part, rest, ALPHA, is_inside=is_inside), law_of(part), law_of(rest)
    together = np.outer(of_x, of_y)
    for share in np.linspace(0, 1, 9):
        noise = np.abs((1 - share if is_inside else 1.0) * x[:, None] - share * y)
        assert together[noise > reach(share) + 1e-9].sum() <= ALPHA
        if noise[together > 1e-4].max() > 20:
            assert together[noise > 2 * reach(share) / 3].sum() > ALPHA


@pytest.mark.parametrize("normal", [0.3, 2.0, 10.0])
@pytest.mark.parametrize("draws", [((0.4, 1),), ((1.5, 3),), ((4.0, 2), (8.0, 1))])
def test_normal_noise_and_draws_are_bounded_together(normal, draws):
    """A normal error and a sum of discrete Gaussians go beyond it together with a probability of α at most, by all values of the sum; seldom by far less."""
    (variance, further), (values, law) = spread(draws), law_of(draws)
    reach = normal_quantile(np.log(ALPHA / 2) - further) * np.hypot(normal, np.sqrt(variance)) + 0.5
    missed = law @ (norm.sf((reach - values) / normal) + norm.sf((reach + values) / normal))
    assert ALPHA / 2 * (variance > 50) < missed <= ALPHA


def test_normal_noise_is_hardly_overestimated():
    """Of much noise, the bound is within 4% of the normal quantile."""
    reach = reach_of(((40.0, 3),), ((40.0, 9),), ALPHA, is_inside=True)
    for share in (0.1, 0.3, 0.6):
        normal = 1.6449 * 40 * np.sqrt(3 * (1 - share) ** 2 + 9 * share**2)
        assert normal < reach(share) < 1.04 * normal


@settings(max_examples=60)
@given(st.floats(-30, 120), st.floats(-30, 120), st.floats(0, 30), st.floats(0, 30), st.floats(0, 5))
def test_the_ends_are_those_of_all_shares_that_are_allowed(part, whole, one, other, more):
    """No share outside is allowed, whatever the noisy numbers are, also below 0; the ends are allowed, and hardly anything beyond them."""

    def reach(share):
        return float(np.hypot((1 - share) * one, share * other)) + more

    low, high = share_ends(part, whole, reach)
    allowed = [share for share in np.linspace(0, 1, 501) if abs(part - share * whole) <= reach(share)]
    assert all(low - 1e-9 <= share <= high + 1e-9 for share in allowed)
    for end, limit in ((low, 0.0), (high, 1.0)):
        if allowed and end != limit:
            assert abs(part - end * whole) == pytest.approx(reach(end), abs=1e-6)
