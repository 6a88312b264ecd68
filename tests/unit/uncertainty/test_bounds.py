"""Error bounds before anything is drawn and after, where counts stand above noise, and the source with the least noise."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import NO_NOISE, LevelNoise
from tasks.tree.views import level_view
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
