"""Intervals and error bounds: quantiles of noise are exact, every fixed cell is covered as often as is promised, and where counts stand above noise."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from tasks.laws.gaussian import GAUSSIAN, gaussian_log_kappa, gaussian_quantile
from tasks.laws.law import NO_NOISE, LevelNoise
from tasks.tree.views import level_view
from tasks.uncertainty import intervals
from tasks.uncertainty.bounds import (
    CONFIDENCE,
    UNEVEN,
    Moves,
    bounds_after,
    chebyshev_bounds,
    finest_above_noise,
    reach_after,
    records_above_noise,
)
from tasks.uncertainty.sources import best_source
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


sigmas = st.floats(0.01, 1e9)
cells = st.integers(1, 10**15)
confidences = st.floats(0.01, 0.999_999)
measured_levels = st.lists(st.tuples(sigmas, cells), min_size=1, max_size=12)


def noise_of_one(sigma, events, beta):
    """Return √(2σ² ln(2n/β)), which n Gaussians keep within but for a probability of β."""
    return math.sqrt(2 * sigma**2 * math.log(2 * events / beta))


@given(root=sigmas, exact=st.integers(0, 5), below=measured_levels, confidence=confidences, data=st.data())
def test_bounds_are_those_of_the_formula(root, exact, below, confidence, data):
    """e_k is 2√(2σ_l² ln(2nN_l/β)) for each of n levels with noise down to k, but √(2σ₀² ln(2n/β)) for the root."""
    # Levels that are exact have no error, and below them e_k is as if they were not there: n is k − K, not k + 1.
    beta = 1 - confidence
    above = data.draw(st.lists(cells, min_size=exact - 1, max_size=exact - 1)) if exact else []
    scales = [*([0.0] * exact or [root]), *(sigma for sigma, _ in below)]
    bounds = chebyshev_bounds(gaussians(scales), [1, *above, *(many for _, many in below)], confidence)
    assert len(bounds) == len(scales)
    assert bounds[:exact] == [0.0] * exact
    for measured, bound in enumerate(bounds[exact:], 1):
        expected = 0.0 if exact else noise_of_one(root, measured, beta)
        noisy = below[: measured - (not exact)]
        expected += sum(2 * noise_of_one(sigma, measured * many, beta) for sigma, many in noisy)
        assert math.isclose(bound, expected, rel_tol=1e-12)


@pytest.mark.parametrize(("total", "scales", "possible", "threshold", "finest"), [
    (1_000, [0.0, 5.0, 5.0, 5.0], [1, 10, 100, 1_000], 0, 2),  # exactly 2σ is enough
    (99, [5.0, 5.0, 5.0], [1, 10, 100], 0, None),
    (100, [0.0, 1.0, 50.0, 1.0], [1, 2, 4, 8], 0, 1),  # a gap is the end
    (300, [0.0, 0.1], [1, 10], 30, 1),
    (299, [0.0, 0.1], [1, 10], 30, None),
    *((10**9, [0.0, 0.1], [1, None], threshold, None) for threshold in (0, 30)),  # nobody knows how many cells there are
])  # fmt: skip
def test_sums_stand_as_long_as_a_leaf_reaches_the_threshold(total, scales, possible, threshold, finest):
    """With a threshold it is the finest level or none, whatever σ; without one levels stand down to where a gap is."""
    assert finest_above_noise(total, scales, possible, threshold) == finest


@given(levels=measured_levels, total=st.integers(1, 2**40))
def test_the_finest_level_above_noise_has_typical_counts_of_two_sigmas(levels, total):
    """With more records it is as fine or finer; down to it every level's even share of the total is 2σ at least."""
    scales, possible = [0.0, *(sigma for sigma, _ in levels)], [1, *(many for _, many in levels)]
    found, more = (finest_above_noise(many, scales, possible) for many in (total, 2 * total))
    assert (found or 0) <= (more or 0)
    after = (found or 0) + 1
    if after < len(scales):
        assert total / possible[after] < 2 * scales[after] * (1 + 1e-12)
    for level in range(1, after):
        assert total / possible[level] >= 2 * scales[level] * (1 - 1e-12)


@pytest.mark.parametrize("cells", [1, 1000, 10**9])
def test_the_share_of_records_above_the_noise_is_that_of_lognormal_counts(cells):
    """The range holds the shares of drawn counts; an exact level has all records above, and an empty table none."""
    total, sigma = 50 * cells, 20.0
    least, most = records_above_noise(total, sigma, cells)
    assert 0 <= least <= most <= 1
    for uneven in UNEVEN:
        normal = np.random.default_rng(3).normal(size=200_000)
        share = (normal + uneven > (np.log(2 * sigma / 50) + uneven**2 / 2) / uneven).mean()  # weighted by the count
        assert least - 0.01 <= share <= most + 0.01
    assert records_above_noise(total, 0.0, cells) == (1.0, 1.0)
    assert records_above_noise(0, sigma, cells) == (0.0, 0.0)


REACH = 3


@st.composite
def levels(draw):
    """Draw per level the true, noisy and released counts of all cells of a binary tree; −1 marks cells that are not measured."""
    depth = draw(st.integers(1, 3))
    true = [np.array(draw(st.lists(st.integers(0, 9), min_size=2**depth, max_size=2**depth)))]
    while len(true[0]) > 1:
        true.insert(0, true[0].reshape(-1, 2).sum(axis=1))
    of_levels, kept = [], np.ones(1, dtype=bool)
    for of_level in true:
        measured = np.repeat(kept, 2)[: len(of_level)] if len(of_level) > 1 else kept
        noise = np.array(draw(st.lists(st.integers(-REACH, REACH), min_size=len(of_level), max_size=len(of_level))))
        counts = np.array(draw(st.lists(st.integers(0, 12), min_size=len(of_level), max_size=len(of_level))))
        counts = counts * measured
        kept = counts > 0
        of_levels.append((of_level, np.where(measured, of_level + noise, -(10**6)), counts))
    return of_levels


@given(levels())
def test_every_cell_is_within_the_bound(of_levels):
    """Where all noise is within reach, no released count is further from the truth than its level's bound, 0s included."""
    moves = [Moves(REACH) for _ in of_levels]
    for of_level, (_, noisy, counts) in zip(moves, of_levels, strict=True):
        measured = np.flatnonzero(noisy > -(10**6))
        for part in np.array_split(measured, 2):
            of_level.add(noisy[part], counts[part])
        assert of_level.bias == pytest.approx((counts - noisy)[measured].mean() if len(measured) else 0.0)
    for bound, (true, _, counts) in zip(bounds_after(moves), of_levels, strict=True):
        assert np.abs(counts - true).max() <= bound


ZONES = [(district, district + zone) for district in "AB" for zone in "1234"]


@pytest.mark.parametrize(("scale", "number", "variance"), [
    (6.0, 1, 36.0),  # the districts themselves have less noise than four zones each of σ = 4
    (12.0, 2, 64.0),
    (8.0, 1, 64.0),  # of equals the first
])  # fmt: skip
def test_the_source_has_the_least_variance(universe_of, scale, number, variance):
    """The districts are measured, and so are their zones with a scale of 4, which are added up in fours."""
    tree = universe_of([ZONES], [0, 0]).tree
    measured = {
        1: (level_view(tree, 1), LevelNoise(GAUSSIAN, scale)),
        2: (level_view(tree, 2), LevelNoise(GAUSSIAN, 4.0)),
    }
    found, noise = best_source(level_view(tree, 1), measured, tree)
    assert (found, noise.variance) == (number, variance)
    assert best_source(level_view(tree, 2), measured, tree)[0] == 2


@pytest.mark.parametrize("cells", [1, 50, 10**6])
def test_no_noise_goes_beyond_reach_but_with_the_stated_probability(cells):
    """A union over all cells, both sides and levels leaves what is left over of the confidence; exact levels have no reach."""
    reach, values = reach_after(LevelNoise(GAUSSIAN, 5.0), cells, 4), np.arange(400)
    weights = np.exp(-((values / 5.0) ** 2) / 2)
    beyond, at = (weights[values >= of].sum() / (2 * weights.sum() - 1) for of in (reach + 1, reach))
    assert 8 * cells * beyond <= 1 - CONFIDENCE < 8 * cells * at
    assert reach_after(NO_NOISE, cells, 4) == 0
