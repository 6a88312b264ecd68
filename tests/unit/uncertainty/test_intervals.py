"""Intervals: the quantiles of noise are exact, and every fixed cell is covered as often as is promised."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from tasks.laws.gaussian import gaussian_log_kappa, gaussian_quantile
from tasks.uncertainty import estimates, intervals
from tests.support.laws import gaussians


def gaussian(sigma, terms=1):
    """Return the probabilities of the sum of discrete Gaussians, by convolution, and where 0 is among them."""
    reach = math.ceil(40 * sigma) + 3
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-((values / sigma) ** 2) / 2)
    one, together = weights / weights.sum(), np.ones(1)
    for _ in range(terms):
        together = np.convolve(together, one)
    return together, (len(together) - 1) // 2


def least_beyond(probabilities, zero, tail):
    """Return the least z >= 0 that is exceeded with at most a probability."""
    beyond = np.cumsum(probabilities[::-1])[::-1]
    return next(z for z in range(len(probabilities)) if beyond[zero + z + 1] <= tail)


SUMS = [*product([1, 1.5, 4.836], [2, 3, 10, 40]), *product([0.02, 0.2, 0.3, 0.7], [2, 5, 30])]


@pytest.mark.parametrize(("sigma", "terms"), SUMS)
def test_the_quantile_of_a_sum_is_at_most_one_too_large(sigma, terms):
    """The bound on the tail of a sum never falls short, and is at most 1 above the quantile by convolution, unless noise is mostly 0."""
    probabilities, zero = gaussian(sigma, terms)
    for tail in (0.05, 0.025, 1e-3, 1e-4, 1e-7):
        exact = least_beyond(probabilities, zero, tail)
        found = gaussian_quantile(sigma, math.log(tail), terms)
        assert exact <= found
        assert found <= exact + 1 or sigma < 1


@pytest.mark.parametrize("sigma", [0.1, 0.2, 0.25, 0.5, 0.8, 1.0, 2.5])
@pytest.mark.parametrize("terms", [1, 2, 1_000, 100_000])
def test_what_the_bound_on_sums_is_multiplied_by_is_right(sigma, terms):
    """κ is P[S = 0] σ √(2πn), by summing up the whole circle at more points than the sum has values."""
    values = np.arange(-math.ceil(40 * sigma) - 1, math.ceil(40 * sigma) + 2)
    weights = np.exp(-((values / sigma) ** 2) / 2)
    points = max(4096, math.ceil(40 * sigma * math.sqrt(terms)))
    angles = 2 * np.pi * np.arange(points) / points
    characteristic = sum(weight * np.cos(value * angles) for value, weight in zip(values, weights, strict=True))
    at_zero = np.mean((characteristic / weights.sum()) ** terms)
    kappa = at_zero * sigma * math.sqrt(2 * math.pi * terms)
    assert math.exp(gaussian_log_kappa(((sigma, terms),))) == pytest.approx(kappa, rel=1e-8)


def test_the_quantile_of_much_noise_is_that_of_the_normal_distribution():
    """Beyond what can be listed, down to e^(-5000), the quantile is at most 1 above the one by summing up its probabilities."""
    sigma = 9000.0
    listed = least_beyond(*gaussian(sigma), 0.05)
    assert listed <= gaussian_quantile(sigma, math.log(0.05)) <= listed + 1
    assert 99 * 5 < gaussian_quantile(5.0, -5000.0) < 100 * 5 + 1


def test_alpha_is_shared_out_as_is_said():
    """Each noisy level above takes δ, the cell keeps the rest, the finest α/2; with one noisy level that keeps all."""
    sigmas = [0.0, 4.0, 4.0, 6.0, 6.0]
    assert intervals.above_share(gaussians(sigmas), 0.9) == pytest.approx(0.05 / 3)
    margins = intervals.margins_of(gaussians(sigmas), 0.9)
    for level, (sigma, above) in enumerate(zip(sigmas[1:], range(4), strict=True), 1):
        own, cap = margins[level].own, margins[level].cap
        assert own == gaussian_quantile(sigma, math.log((0.1 - above * 0.05 / 3) / 2))
        assert cap == gaussian_quantile(sigma, math.log(0.05 / 3))
    assert margins[0] == intervals.Margins(0, 0)
    assert margins[4].own == gaussian_quantile(6.0, math.log(0.025))
    assert intervals.margins_of(gaussians([0.0, 4.0]), 0.9)[1].own == gaussian_quantile(4.0, math.log(0.05))


def test_simultaneous_margins_share_alpha_among_all_cells():
    """Both sides of all cells of all levels with noise add up to α at most, and hardly less; an exact level has no margin."""
    noises, cells = gaussians([0.0, 40.0, 30.0, 20.0]), [1, 10, 200, 5_000]
    margins = [margin.own for margin in intervals.simultaneous_margins(noises, cells, 0.9)]
    sigmas = np.array([noise.sigma for noise in noises[1:]])
    assert margins[0] == 0
    assert 0.08 < (2 * np.array(cells[1:]) * ndtr(-(np.array(margins[1:]) + 0.5) / sigmas)).sum() <= 0.1
    of_estimates = estimates.simultaneous_margins_of_estimates(np.array([0.0, 40.0]), math.log(1e4))
    assert of_estimates[0] == 0
    assert ndtr(-of_estimates[1] / 40.0) <= 1e-4  # to either side


def test_rows_hold_what_is_said_of_their_cells():
    """However few or many rows there are, the interval of a row is no narrower than that of its cell, were it fixed beforehand."""
    noises, cells = gaussians([0.0, 4.0, 4.0, 6.0]), [1, 4, 40, 1000]
    fixed = intervals.margins_of(noises, 0.9)
    for rows in (cells, [1, 2, 5, 30], [1] * 4):
        of_rows = intervals.row_margins(noises, cells, rows, 0.9)
        assert all(row.own >= cell.own for row, cell in zip(of_rows, fixed, strict=True))


@given(st.integers(-(10**6), 10**6), st.integers(0, 10**6), st.integers(1, 1000))
def test_rounded_intervals_hold_what_they_are_made_from(low, width, step):
    """Their ends are multiples of the step, outside of the interval, and by less than a step."""
    ends = intervals.rounded_outwards(np.array([low]), np.array([low + width]), step)
    assert (ends[0] % step, ends[1] % step) == (0, 0)
    assert 0 <= low - ends[0] < step
    assert 0 <= ends[1] - low - width < step


@given(data=st.data())
def test_counts_lie_in_their_intervals(data):
    """0 <= low <= count <= high, a count below 0 as 0; low is at most what was measured less its margin, high the caps or the count."""
    cells = data.draw(st.integers(1, 6))
    numbers = st.lists(st.integers(-50, 500), min_size=cells, max_size=cells).map(np.array)
    noisy, counts, above = data.draw(numbers), data.draw(numbers), np.abs(data.draw(numbers))
    margin = data.draw(st.integers(0, 30))
    low, high = intervals.intervals(noisy, margin, above, counts)
    inside = np.maximum(counts, 0)
    assert ((low >= 0) & (low <= inside) & (inside <= high)).all()
    assert (low <= np.maximum(noisy - margin, 0)).all()
    assert (high == np.maximum(np.minimum(np.maximum(noisy + margin, 0), above), inside)).all()


def test_margins_of_sums_are_those_of_as_many_leaves_or_a_few_more():
    """Few leaves are taken as they are; of many, the margin is at least that of so many and at most two per cent above."""
    leaves = np.array([1, 2, 99, 100, 101, 150, 5_000, 10**8, 2])
    log_tail = math.log(0.05)
    margins = intervals.sum_margins(*gaussians([3.0]), leaves, log_tail)
    exact = np.array([gaussian_quantile(3.0, log_tail, int(number)) for number in leaves])
    assert (margins[:4] == exact[:4]).all()
    assert margins[8] == exact[8]
    assert ((margins >= exact) & (margins <= 1.02 * exact + 1)).all()
