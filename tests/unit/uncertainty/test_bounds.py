"""Error bounds before anything is drawn: the published formula, what it promises, and where counts stand above noise."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.mechanisms import MECHANISMS
from flows.planning.shares import scheme_of
from flows.spec.sections.privacy import PrivacyKeys
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import LevelNoise
from tasks.uncertainty.bounds import CONFIDENCE, UNEVEN, chebyshev_bounds, finest_above_noise, records_above_noise
from tests.support.laws import gaussians

sigmas = st.floats(0.01, 1e9)
cells = st.integers(1, 10**15)
confidences = st.floats(0.01, 0.999_999)
measured_levels = st.lists(st.tuples(sigmas, cells), min_size=1, max_size=12)


def noise_of_one(sigma: float, events: float, beta: float) -> float:
    """Return √(2σ² ln(2n/β)), which n Gaussians keep within but for a probability of β."""
    return math.sqrt(2 * sigma**2 * math.log(2 * events / beta))


@given(root=sigmas, exact=st.integers(0, 5), below=measured_levels, confidence=confidences, data=st.data())
def test_bounds_are_those_of_the_formula(root, exact, below, confidence, data) -> None:
    """e_k is 2√(2σ_l² ln(2nN_l/β)) for each of n levels with noise down to k, but √(2σ₀² ln(2n/β)) for the root.

    Levels that are exact have no error, and below them e_k is as if they were not there: n is k − K, not k + 1.
    """
    beta = 1 - confidence
    above = data.draw(st.lists(cells, min_size=exact - 1, max_size=exact - 1)) if exact else []
    scales = [*([0.0] * exact or [root]), *(sigma for sigma, _ in below)]
    bounds = chebyshev_bounds(gaussians(scales), [1, *above, *(many for _, many in below)], confidence)
    assert len(bounds) == len(scales)
    assert bounds[:exact] == [0.0] * exact
    for measured, bound in enumerate(bounds[exact:], 1):
        expected = 0.0 if exact else noise_of_one(root, measured, beta)
        expected += sum(
            2 * noise_of_one(sigma, measured * many, beta) for sigma, many in below[: measured - (not exact)]
        )
        assert math.isclose(bound, expected, rel_tol=1e-12)


@pytest.mark.parametrize(
    ("scales", "possible", "bounds"),
    [
        ([10.0], [1], [27.162]),
        ([0.0, 10.0], [1, 4], [0.0, 63.719]),
        ([0.0, 10.0, 20.0], [1, 4, 16], [0.0, 63.719, 67.931 + 151.310]),
        ([10.0, 10.0], [1, 4], [27.162, 29.604 + 67.931]),
        ([0.0, 0.0, 10.0], [1, 4, 16], [0.0, 0.0, 71.897]),
    ],
    ids=["root", "one level", "two levels", "measured root", "exact levels"],
)
def test_bounds_have_the_values_worked_out_by_hand(scales, possible, bounds) -> None:
    """At 95 %, which is the usual confidence, to the third decimal: twice √(2·10² ln 160) = 63.719, √(2·10² ln 40) = 27.162, and so on."""
    assert CONFIDENCE == 0.95
    assert chebyshev_bounds(gaussians(scales), possible) == pytest.approx(bounds, abs=1e-3)


@given(levels=measured_levels, lower=confidences, higher=confidences, factor=st.floats(1.01, 100))
def test_bounds_grow_with_depth_confidence_and_noise(levels, lower, higher, factor) -> None:
    """Finer levels, more confidence and more cells widen bounds; so many times the noise widens them so many times."""
    scales, possible = [sigma for sigma, _ in levels], [many for _, many in levels]
    lower, higher = sorted((lower, higher))
    bounds = chebyshev_bounds(gaussians(scales), possible, lower)
    assert bounds == sorted(bounds)
    assert all(
        ours <= more for ours, more in zip(bounds, chebyshev_bounds(gaussians(scales), possible, higher), strict=True)
    )
    doubled = chebyshev_bounds(gaussians(scales), [2 * many for many in possible], lower)
    assert all(ours < more for ours, more in zip(bounds, doubled, strict=True))
    noisier = chebyshev_bounds(gaussians([factor * sigma for sigma in scales]), possible, lower)
    assert all(math.isclose(factor * ours, more, rel_tol=1e-9) for ours, more in zip(bounds, noisier, strict=True))


ORIGIN = [("a", "1"), ("a", "2"), ("b", "1")]
DESTINATION = [("p", "1"), ("q", "1"), ("q", "2"), ("q", "3")]


@pytest.mark.parametrize(
    ("privacy", "first"),
    [
        ({"neighbours": "substitution"}, 1),
        ({"neighbours": "substitution", "exact_records_per_unit": False}, 0),
        ({"neighbours": "add_remove"}, 0),
        ({"neighbours": "substitution", "invariants": "level_1", "i_accept_unprotected": True}, 3),
    ],
    ids=["public total", "at most", "add_remove", "exact levels"],
)
def test_a_release_is_bounded_by_the_scales_of_all_its_levels(universe_of, privacy, first) -> None:
    """A plan's bounds put 0 for σ where a level is exact, and the cells of every level where they belong."""
    tree = universe_of([ORIGIN, DESTINATION], (1, 0, 1, 0)).tree
    keys = PrivacyKeys(unit="one", max_records_per_unit=1, rho=0.5, delta=1e-8, accountant="zcdp", **privacy)
    scheme = scheme_of(keys, tree, tree, MECHANISMS["inftda"], "opendp")
    measurements = scheme.allocation.measurements(keys.rho)
    measured = [LevelNoise(GAUSSIAN, of.sigma) for of in measurements]
    scales = [noise.sigma for noise in scheme.noises(measured)]
    assert scheme.first_measured == first
    assert [sigma > 0 for sigma in scales] == [level >= first for level in range(5)]
    assert scheme.bounds(measured, 0.9) == chebyshev_bounds(gaussians(scales), [1, 2, 4, 8, 12], 0.9)


@pytest.mark.parametrize(
    ("total", "scales", "possible", "finest"),
    [
        (1_000, [0.0, 5.0, 5.0, 5.0], [1, 10, 100, 1_000], 2),
        (999, [0.0, 5.0, 5.0, 5.0], [1, 10, 100, 1_000], 1),
        (100, [0.0, 5.0, 5.0], [1, 10, 100], 1),
        (99, [0.0, 5.0, 5.0], [1, 10, 100], None),
        (99, [5.0, 5.0, 5.0], [1, 10, 100], None),
        (10**9, [5.0, 5.0, 5.0], [1, 10, 100], 2),
        (1, [0.0, 0.0, 5.0], [1, 10, 100], 1),
        (100, [0.0, 50.0, 1.0, 50.0], [1, 2, 4, 8], None),
        (100, [0.0, 1.0, 50.0, 1.0], [1, 2, 4, 8], 1),
        (100, [1.0], [1], None),
    ],
)
def test_the_finest_level_above_noise_has_typical_counts_of_two_sigmas(total, scales, possible, finest) -> None:
    """Down to it every level's even share of the total is at least 2σ; exactly 2σ is enough, and a gap is the end."""
    assert finest_above_noise(total, scales, possible) == finest


@pytest.mark.parametrize(
    ("total", "possible", "threshold", "finest"),
    [(300, [1, 10], 30, 1), (299, [1, 10], 30, None), (10**9, [1, None], 30, None), (10**9, [1, None], 0, None)],
)
def test_sums_stand_as_long_as_a_leaf_reaches_the_threshold(total, possible, threshold, finest) -> None:
    """With a threshold it is the finest level or none, whatever σ; where it is unknown how many cells there are, none."""
    assert finest_above_noise(total, [0.0, 0.1], possible, threshold) == finest


@given(levels=measured_levels, total=st.integers(1, 2**40))
def test_more_records_never_lift_the_finest_level_above_noise(levels, total) -> None:
    """With more records the level that stands above the noise is as fine or finer; it always does, the next ones do not."""
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
