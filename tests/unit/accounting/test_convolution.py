"""δ by summing over outcomes: against every outcome one by one, against normal noise, and against composed distributions."""

import math
from itertools import product

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from tasks.accounting.convolution import summed_delta
from tasks.accounting.pld import _delta


def enumerated(events: list[tuple[float, int]], epsilon: float) -> float:
    """Return δ by going through every combination of outcomes, and comparing its probability on both sides."""
    scales = [sigma for sigma, times in events for _ in range(times)]
    sides = []
    for sigma in scales:
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


@pytest.mark.parametrize(
    "events",
    [
        [(1.0, 1)],
        [(0.6, 3)],
        [(1.5, 2)],
        [(0.7, 1), (1.3, 1)],
        [(0.5, 2), (1.1, 1)],
        [(2.0, 1), (0.4, 2)],
        [(0.9, 1), (0.5, 2), (0.7, 1)],
    ],
)
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 4.0])
def test_it_is_what_all_outcomes_say(events: list[tuple[float, int]], epsilon: float) -> None:
    """By enumeration: never below, and no further above than is stated."""
    found, true = summed_delta(events, epsilon), enumerated(events, epsilon)
    assert found is not None
    assert true * (1 - 1e-12) <= found <= true * (1 + 2e-9) + 1e-15


@pytest.mark.parametrize(
    ("events", "epsilon"),
    [
        ([(0.4, 1)], 3.0),
        ([(0.5, 12)], 6.0),
        ([(0.7, 2), (2.5, 4)], 4.0),
        pytest.param([(1.3, 3)], 0.7, marks=pytest.mark.thorough),
        pytest.param([(6.0, 5)], 1.5, marks=pytest.mark.thorough),
        ([(9.0, 12), (30.0, 6)], 0.4),
    ],
)
def test_composed_distributions_are_at_most_a_little_larger(events: list[tuple[float, int]], epsilon: float) -> None:
    """Losses that are rounded up to a grid give a larger δ, by about what the grid allows; never a smaller one."""
    found, composed = summed_delta(events, epsilon), _delta(tuple(events), epsilon)
    assert found is not None
    assert found > 1e-12
    assert found <= composed * (1 + 1e-6) + 1e-13
    assert composed <= found * 1.2 + 1e-9


def test_the_library_on_a_finer_grid_comes_nearer() -> None:
    """The difference is the grid's: a tenth of the interval leaves about a tenth of it."""
    events, epsilon = ((18.97, 12),), 1.0
    found = summed_delta(events, epsilon)
    assert found is not None
    off = []
    for interval in (1e-3, 1e-4):
        losses = pld.from_discrete_gaussian_mechanism(
            18.97, value_discretization_interval=interval, pessimistic_estimate=True
        ).self_compose(12)
        off.append(losses.get_delta_for_epsilon(epsilon) - found)
    assert 0 < off[1] < off[0] / 5


def test_much_noise_is_like_normal_noise() -> None:
    """With a large σ δ is that of the normal law."""
    sigma, times, epsilon = 60.0, 8, 0.2
    mu = math.sqrt(times) / sigma
    normal = phi(mu / 2 - epsilon / mu) - math.exp(epsilon) * phi(-mu / 2 - epsilon / mu)
    assert summed_delta([(sigma, times)], epsilon) == pytest.approx(normal, rel=0.01)


def phi(x: float) -> float:
    """Return the distribution function of the normal law."""
    return math.erfc(-x / math.sqrt(2)) / 2


def test_what_is_too_large_is_left_to_the_library() -> None:
    """Sums with too many values, of one scale or of several together, are not summed; then `pld_holds` composes."""
    assert summed_delta([(20.0, 1), (21.0, 1), (22.0, 1)], 1.0) is None
    assert summed_delta([(5000.0, 12)], 1.0) is None
    assert summed_delta([], 1.0) is None
