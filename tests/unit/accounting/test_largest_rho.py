"""The ρ that privacy loss distributions allow: the largest that holds, against an exhaustive search that shares no code with it."""

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from tasks.accounting.accountants import ACCOUNTANTS
from tasks.accounting.allocation import Allocation, Measurement, cost_of, geometric, rho_of, uniform, ways_of
from tasks.accounting.few_values import has_few_values
from tasks.accounting.pld import _ways, pld_delta
from tests.support.largest import changes, delta_of, exhaustive

PLD = ACCOUNTANTS["pld"]
SQUARES = [(1,), (2,), (1, 1), (2, 2), (1, 1, 1), (2, 2, 2, 2)]
WITH_TOTAL = Allocation(uniform(3), (1, 2, 2), total=0)


TRIED = [  # of one to four measurements of equal noise, and with a measured total
    *((Allocation(uniform(len(of)), of), delta) for of in SQUARES for delta in (1e-8, 1e-3)),
    (WITH_TOTAL, 1e-3),
    *(
        pytest.param(allocation, delta, marks=pytest.mark.thorough)
        for allocation, delta in [
            *((Allocation(uniform(len(of)), of), delta) for of in SQUARES[1:4] for delta in (1e-12, 0.1)),
            (WITH_TOTAL, 1e-12),
        ]
    ),
]


@pytest.mark.parametrize(("allocation", "delta"), TRIED)
def test_the_largest_rho_is_found_wherever_delta_has_teeth(allocation: Allocation, delta: float) -> None:
    """From ε = 100 down to where noise is as good as normal noise, no ε is refused, its ρ holds, and no ρ that is 1% larger does."""
    epsilons = [epsilon for epsilon in np.geomspace(100, 3, 8).tolist() if 10 * delta <= min(epsilon, 1)]
    for epsilon, most in zip(epsilons, exhaustive(allocation, delta, epsilons, step=2e-3), strict=True):
        rho = PLD.largest_rho(allocation, epsilon, delta)
        assert PLD.holds(allocation.measurements(rho), epsilon, delta)
        assert max(delta_of(events, epsilon) for events in changes(allocation, float(rho))) <= delta * (1 + 1e-6)
        assert rho > 0.99 * most


@pytest.mark.parametrize("squares", [(1,), (2,)])
@pytest.mark.parametrize("epsilon", [10.0, 25.0, 35.0, 38.0, 40.0, 45.0, 50.0, 60.0, 80.0])
def test_an_epsilon_that_was_refused_is_planned(squares: tuple[int, ...], epsilon: float) -> None:
    """Noise whose δ jumps as an outcome begins to count is planned: where no noise at all is needed for ε, ρ is ε."""
    rho = float(PLD.largest_rho(Allocation(uniform(1), squares), epsilon, 1e-8))
    losses = [epsilon / (1 - 2 * outcome / squares[0]) for outcome in range(-100, 1)]
    assert min(abs(rho / at - 1) for at in losses) < 1e-3
    if epsilon >= 50:
        assert rho == pytest.approx(epsilon, abs=1e-7)


def test_with_least_noise_epsilon_and_rho_follow_from_each_other() -> None:
    """The least ε of the noise that an ε allows is that ε, also where δ has teeth."""
    for squares, epsilon in product([(1,), (2,), (2, 2)], [3.0, 10.0, 25.0, 70.0]):
        allocation = Allocation(uniform(len(squares)), squares)
        measurements = allocation.measurements(PLD.largest_rho(allocation, epsilon, 1e-8))
        assert PLD.least_epsilon(measurements, 1e-8) == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.thorough
def test_both_computations_agree_where_few_values_matter() -> None:
    """Composed on a grid of losses, δ is no smaller than summed over outcomes, and larger by what a shift of losses by the grid makes."""
    of_three_scales = Allocation(geometric(Fraction(3), 3), (1, 1, 1))
    for allocation, epsilon in product([Allocation(uniform(1), (1,)), WITH_TOTAL, of_three_scales], (6.0, 20.0)):
        measurements = allocation.measurements(PLD.largest_rho(allocation, epsilon, 1e-6))
        events = _ways(measurements)
        assert has_few_values(events)
        composed = max(composed_delta(of, epsilon + 1e-3) for of in events)
        assert composed <= pld_delta(measurements, epsilon) <= max(composed_delta(of, epsilon) for of in events) + 1e-15


def composed_delta(events: Sequence[tuple[float, int]], epsilon: float) -> float:
    """Return δ by Google's dp-accounting."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    composed = pld.identity(value_discretization_interval=1e-4)
    for sigma, times in events:
        one = pld.from_discrete_gaussian_mechanism(sigma, sensitivity=1, value_discretization_interval=1e-4)
        composed = composed.compose(one.self_compose(times))
    return float(composed.get_delta_for_epsilon(epsilon))


# a measured total, which not every unit moves ---------------------------------------------------------------------------


def delta_by_outcomes(sigmas: Sequence[float], change: Sequence[int], epsilon: float) -> float:
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
def test_no_pair_of_tables_needs_more_delta_than_a_measured_total_is_charged(share: Fraction, epsilon: float) -> None:
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
def test_what_levels_are_charged_is_what_the_costliest_unit_costs(share: Fraction) -> None:
    """By the scales, the larger of what a unit costs that stays and one that comes or goes is ρ, to the last digits."""
    shares, squares = ((share, 1 - share), (9, 18)) if share < 1 else ((share,), (9,))
    measurements = Allocation(shares, squares, total=0).measurements(Fraction(1, 50))
    assert (
        rho_of(measurements) == Fraction(1, 50) >= cost_of(measurements) > Fraction(1, 50) * (1 - Fraction(1, 10**12))
    )


def test_a_measurement_that_is_no_total_is_moved_by_every_unit() -> None:
    """Only what is known to be the total rests when a unit is replaced by another."""
    plain = Measurement(Fraction(1), 1.0, 1), Measurement(Fraction(1), 1.0, 2)
    assert ways_of(plain) == ((1, 2),)
    assert ways_of((Measurement(Fraction(1), 1.0, 1, is_total=True), plain[1])) == ((0, 2), (1, 1))
