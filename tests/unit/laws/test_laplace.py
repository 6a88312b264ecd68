"""The discrete Laplace law: its quantiles and those of sums against sums of probabilities, its bound, and what it costs."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.accounting.allocation import laplace_map, laplace_scale_for
from tasks.accounting.sensitivity import sensitivity_of
from tasks.laws.laplace import LAPLACE, laplace_quantile, laplace_reach, laplace_variance, log_tail_of_sum
from tasks.laws.law import LevelCost

SUMS = [(0.3, 2), (0.3, 9), (1.0, 2), (1.0, 5), (3.0, 2), (3.0, 3), (3.0, 20), (12.5, 7)]


def tails_of(scale, terms):
    """Return P[S > z] of the sum of some draws for z = 0, 1, …, from its probabilities, the smallest first."""
    q, reach = math.exp(-1 / scale), math.ceil(60 * scale) + 40
    one = (1 - q) / (1 + q) * q ** np.abs(np.arange(-reach, reach + 1))
    law = one
    for _ in range(terms - 1):
        law = np.convolve(law, one)
    return np.cumsum(law[: terms * reach])[::-1]


@pytest.mark.parametrize(("scale", "terms"), SUMS)
def test_tails_quantiles_and_reach_of_sums_are_those_of_the_law(scale, terms):
    """Against the law by convolution, whose smallest probabilities are summed first: tails to ten digits and never too small, least quantiles, and reach."""
    tails = tails_of(scale, terms)
    for z in (0, 1, 2, 5, math.ceil(3 * scale), math.ceil(10 * scale)):
        bound = math.exp(log_tail_of_sum(((scale, terms),), z))
        assert tails[z] * (1 - 1e-12) <= bound <= tails[z] * (1 + 1e-10)
    for tail in (0.49, 0.3, 0.05, 0.01, 1e-4, 1e-9):
        z = laplace_quantile(scale, math.log(tail), terms)
        assert tails[z] <= tail
        assert z == 0 or tails[z - 1] > tail
    for number, beyond in ((1, tails_of(scale, 1)), (terms, tails)):
        for log_odds in (0.7, 3.0, 20.0):
            reached = math.ceil(laplace_reach(scale, number, log_odds) - 1e-9)
            assert beyond[max(reached - 1, 0)] <= math.exp(-log_odds) * (1 + 1e-12)


@pytest.mark.parametrize(("scale", "terms"), [(1e5, 2), (2.0**32, 3), (10.0, 10**8), (0.05, 10**8), (700.0, 64)])
def test_the_quantile_of_what_cannot_be_listed_is_least_too(scale, terms):
    """For much noise, or many draws, the tail at the quantile holds and one step of noise before it does not; Chernoff's bound is hardly more."""
    step = max(1, round(1e-3 * math.sqrt(terms * laplace_variance(scale))))
    for log_tail in (-0.9, -3.0, -30.0):
        z = laplace_quantile(scale, log_tail, terms)
        assert log_tail_of_sum(((scale, terms),), z) <= log_tail
        assert z < step or log_tail_of_sum(((scale, terms),), z - step) > log_tail
    normal = 1.6448536 * math.sqrt(10**8 * laplace_variance(10.0))
    assert laplace_quantile(10.0, math.log(0.05), 10**8) == pytest.approx(normal, rel=1e-4)
    above, below = laplace_quantile(50.0, -499.0, 2), laplace_quantile(50.0, -501.0, 2)
    assert above < below < 1.02 * above
    assert laplace_quantile(3.0, -5000.0) == math.ceil(3.0 * (5000.0 - math.log1p(math.exp(-1 / 3.0)))) - 1


@given(epsilon=st.floats(1e-6, 50.0), l1=st.integers(1, 40))
def test_the_scale_is_the_least_float_within_epsilon(epsilon, l1):
    """OpenDP's map of the scale is within ε, that of the float below is not, and it is Δ₁/ε but for the last digits."""
    scale = laplace_scale_for(epsilon, l1)
    assert laplace_map(scale, l1) <= epsilon < laplace_map(math.nextafter(scale, 0.0), l1)
    assert scale == pytest.approx(l1 / epsilon, rel=1e-14)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, 1e-12, 1e6])
def test_an_epsilon_out_of_range_is_refused(epsilon):
    """No ε, one that makes more noise than 64 bits hold, and one that makes none have no scale."""
    with pytest.raises(ValueError, match="epsilon"):
        laplace_scale_for(epsilon, 1)


@pytest.mark.parametrize(("neighbours", "records", "is_root", "l1"), [
    ("add_remove", 1, False, 1), ("add_remove", 3, False, 3), ("add_remove", 3, True, 3),
    ("substitution", 1, False, 2), ("substitution", 3, False, 6), ("substitution", 3, True, 3),
])  # fmt: skip
def test_the_law_costs_epsilon_by_the_sum_of_all_changes(neighbours, records, is_root, l1):
    """ε is Δ₁/s: all records of a unit, those that leave and those that enter, and no δ; the probabilities agree."""
    sensitivity = sensitivity_of(neighbours, records, is_root=is_root)
    assert sensitivity.l1 == l1
    cost = LAPLACE.cost(4.0, 0, sensitivity)
    assert cost == LevelCost(epsilon=l1 / 4)
    k = np.arange(-400, 401)
    log_odds = (-np.abs(k) + np.abs(k - l1)) / 4.0  # of one cell that moves by all of it, the worst of all
    assert log_odds.max() == pytest.approx(cost.epsilon)
