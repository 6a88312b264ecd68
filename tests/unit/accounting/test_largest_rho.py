"""The largest ρ that holds against an exhaustive search, and δ by summing over outcomes against every outcome one by one."""

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from tasks.accounting.accountants import ACCOUNTANTS
from tasks.accounting.allocation import Allocation, Measurement, cost_of, rho_of, uniform, ways_of
from tasks.accounting.convolution import summed_delta
from tasks.accounting.pld import _delta
from tests.support.largest import changes, delta_of, exhaustive

PLD = ACCOUNTANTS["pld"]
SQUARES = [(1,), (2,), (1, 1), (2, 2), (1, 1, 1), (2, 2, 2, 2)]
WITH_TOTAL = Allocation(uniform(3), (1, 2, 2), total=0)


PLAIN = [Allocation(uniform(len(of)), of) for of in SQUARES]  # of one to four measurements of equal noise
THOROUGH = [*product(PLAIN[1:4], (1e-12, 0.1)), (WITH_TOTAL, 1e-12)]


@pytest.mark.parametrize(("allocation", "delta"), [
    *(*product(PLAIN, (1e-8, 1e-3)), (WITH_TOTAL, 1e-3)),
    *(pytest.param(*of, marks=pytest.mark.thorough) for of in THOROUGH),
])  # fmt: skip
def test_the_largest_rho_is_found_wherever_delta_has_teeth(allocation, delta):
    """From ε = 100 down to where noise is as good as normal noise, no ε is refused, its ρ holds, and no ρ that is 1% larger does."""
    epsilons = [epsilon for epsilon in np.geomspace(100, 3, 8).tolist() if 10 * delta <= min(epsilon, 1)]
    for epsilon, most in zip(epsilons, exhaustive(allocation, delta, epsilons, step=2e-3), strict=True):
        rho = PLD.largest_rho(allocation, epsilon, delta)
        assert PLD.holds(allocation.measurements(rho), epsilon, delta)
        assert max(delta_of(events, epsilon) for events in changes(allocation, float(rho))) <= delta * (1 + 1e-6)
        assert rho > 0.99 * most


def delta_by_outcomes(sigmas, change, epsilon):
    """Return δ of discrete Gaussian noise on counts that change as they are said to, over every combination of outcomes."""
    here = there = np.ones(1)
    for sigma, moved in zip(sigmas, change, strict=True):
        outcomes = np.arange(-math.ceil(9 * sigma) - 2, math.ceil(9 * sigma) + 3)
        one, other = (np.exp(-(((outcomes - by) / sigma) ** 2) / 2) for by in (0, moved))
        whole = one.sum()
        here = np.multiply.outer(here, one / whole).ravel()
        there = np.multiply.outer(there, other / whole).ravel()
    return float(np.maximum(here - math.exp(epsilon) * there, 0).sum())


@pytest.mark.parametrize("share", [Fraction(1, 10), Fraction(1, 3), Fraction(4, 5)])
@pytest.mark.parametrize("epsilon", [2.0, 6.0])
def test_no_pair_of_tables_needs_more_delta_than_a_measured_total_is_charged(share, epsilon):
    """Two cells below a total: whatever one unit does, δ is as stated at most, and for the costliest unit not a hundredth less."""
    delta = 1e-3
    allocation = Allocation((share, 1 - share), (1, 2), total=0)
    measurements = allocation.measurements(PLD.largest_rho(allocation, epsilon, delta))
    sigmas = [measurements[0].sigma, measurements[1].sigma, measurements[1].sigma]
    units = [(0, 0), (1, 0), (0, 1)]  # no record, or one in either cell
    found = [
        delta_by_outcomes(sigmas, (sum(one) - sum(other), one[0] - other[0], one[1] - other[1]), epsilon)
        for one, other in product(units, units)
    ]
    assert delta * 0.99 < max(found) <= delta * (1 + 1e-9)


@pytest.mark.parametrize("share", [Fraction(1, 50), Fraction(1, 3), Fraction(2, 3), Fraction(1)])
def test_what_levels_are_charged_is_what_the_costliest_unit_costs(share):
    """By the scales, the larger of what a unit costs that stays and one that comes or goes is ρ, to the last digits."""
    shares, squares = ((share, 1 - share), (9, 18)) if share < 1 else ((share,), (9,))
    measurements = Allocation(shares, squares, total=0).measurements(Fraction(1, 50))
    assert rho_of(measurements) == Fraction(1, 50)
    assert Fraction(1, 50) * (1 - Fraction(1, 10**12)) < cost_of(measurements) <= Fraction(1, 50)


def test_a_measurement_that_is_no_total_is_moved_by_every_unit():
    """Only what is known to be the total rests when a unit is replaced by another."""
    plain = Measurement(Fraction(1), 1.0, 1), Measurement(Fraction(1), 1.0, 2)
    assert ways_of(plain) == ((1, 2),)
    assert ways_of((Measurement(Fraction(1), 1.0, 1, is_total=True), plain[1])) == ((0, 2), (1, 1))


def enumerated(events, epsilon):
    """Return δ by going through every combination of outcomes, and comparing its probability on both sides."""
    sides = []
    for sigma in [sigma for sigma, times in events for _ in range(times)]:
        reach = math.ceil(9 * sigma) + 1
        outcomes = np.arange(-reach, reach + 2)
        all_of_it = sum(math.exp(-((x / sigma) ** 2) / 2) for x in range(-4 * reach, 4 * reach + 1))
        sides.append([np.exp(-(((outcomes - moved) / sigma) ** 2) / 2) / all_of_it for moved in (0, 1)])
    delta = 0.0
    for combination in product(*(range(len(one)) for one, _ in sides)):
        one = math.prod(side[0][at] for side, at in zip(sides, combination, strict=True))
        other = math.prod(side[1][at] for side, at in zip(sides, combination, strict=True))
        delta += max(one - math.exp(epsilon) * other, 0.0)
    return delta


@pytest.mark.parametrize("events", [
    [(1.0, 1)], [(0.6, 3)], [(1.5, 2)], [(0.7, 1), (1.3, 1)],
    [(0.5, 2), (1.1, 1)], [(2.0, 1), (0.4, 2)], [(0.9, 1), (0.5, 2), (0.7, 1)],
])  # fmt: skip
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 4.0])
def test_it_is_what_all_outcomes_say(events, epsilon):
    """By enumeration: never below, and no further above than is stated."""
    found, true = summed_delta(events, epsilon), enumerated(events, epsilon)
    assert true * (1 - 1e-12) <= found <= true * (1 + 2e-9) + 1e-15


@pytest.mark.parametrize(("events", "epsilon"), [
    ([(0.4, 1)], 3.0),
    ([(0.5, 12)], 6.0),
    ([(0.7, 2), (2.5, 4)], 4.0),
    pytest.param([(1.3, 3)], 0.7, marks=pytest.mark.thorough),
    pytest.param([(6.0, 5)], 1.5, marks=pytest.mark.thorough),
    ([(9.0, 12), (30.0, 6)], 0.4),
])  # fmt: skip
def test_composed_distributions_are_at_most_a_little_larger(events, epsilon):
    """Losses that are rounded up to a grid give a larger δ, by about what the grid allows; never a smaller one."""
    found, composed = summed_delta(events, epsilon), _delta(tuple(events), epsilon)
    assert found > 1e-12
    assert found <= composed * (1 + 1e-6) + 1e-13
    assert composed <= found * 1.2 + 1e-9
