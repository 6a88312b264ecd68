"""Tables of discrete Laplace noise: the same construction, its distance from the law, and the privacy of its own outcomes."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import tasks.laws.table_sampler as table_module
from tasks.laws.table_sampler import (
    LARGEST_LAPLACE_SCALE,
    LARGEST_TAU,
    laplace_by_table,
    laplace_table,
    laplace_weights_and_sum,
)
from tasks.tree.axis import IntArray
from tests.support.noise_tables import DIGITS, UNIT, WHOLE, decimal, distance, masses_of

SCALES = [0.05, 0.5, 1.0, 3.7, 40.0]
every_scale = pytest.mark.parametrize("scale", SCALES)


def exact_law(scale: float) -> list[Decimal]:
    """Return P(noise = k) for k = 0, 1, …, until it is far below 2**-192; in a context of many digits."""
    q = (-1 / Decimal(scale)).exp()
    at_zero, law = (1 - q) / (1 + q), []
    while not law or law[-1] > UNIT / 2**20:
        law.append(at_zero * q ** len(law))
    return law


@every_scale
def test_tau_bounds_the_total_variation_distance_from_the_exact_law(scale: float) -> None:
    """The distance, summed over all outcomes with 150 digits, is at most τ, hardly less, and below 2**-120."""
    with localcontext(prec=DIGITS):
        table = laplace_table(scale)
        true, tau = distance(table, exact_law(scale)), decimal(table.tau)
        assert 0 < true <= tau <= Decimal("1.01") * true + 4 * UNIT
        assert table.tau < LARGEST_TAU
        assert distance(table, exact_law(math.nextafter(scale, 1e9))) > 2**40 * tau


@given(scale=st.floats(0.01, 60.0))
@example(scale=5e-324)
@example(scale=LARGEST_LAPLACE_SCALE)
def test_laws_of_every_table(scale: float) -> None:
    """A table is symmetric, reaches 84 scales at most, every outcome can occur, and τ is below 2**-120."""
    table = laplace_table(scale)
    masses = masses_of(table)
    assert masses == masses[::-1]
    assert min(masses) > 0
    assert sum(masses) == WHOLE
    assert table.furthest <= math.ceil(84 * scale)
    assert 0 < table.tau < LARGEST_TAU


@given(scale=st.floats(0.01, 40.0), bits=st.integers(50, 300), reach=st.integers(1, 12))
def test_weights_are_below_and_their_sum_above_the_exact_ones(scale: float, bits: int, reach: int) -> None:
    """No weight is above exp(−k/s), each lacks 2k units at most, and the sum is above that over all integers, hardly more."""
    with localcontext(prec=DIGITS):
        K = math.ceil(reach * scale)
        weights, total = laplace_weights_and_sum(Fraction(scale), K, bits)
        q = (-1 / Decimal(scale)).exp()
        for k, weight in enumerate(weights, 1):
            assert 0 <= q**k * (1 << bits) - weight <= 2 * k
        exact = (1 + q) / (1 - q) * (1 << bits)
        slack = 6 * (K + 2) ** 2 + 6 * (K + 2) / (1 - q) ** 2
        assert exact <= total <= exact + slack


@pytest.mark.parametrize("scale", [0.5, 1.0, 3.7])
@pytest.mark.parametrize("moved", [1, 2, 5])
def test_the_tables_own_outcomes_keep_epsilon_but_for_tau(scale: float, moved: int) -> None:
    """Summed over all outcomes, what the noise of a moved count exceeds e^ε times the other by is at most (1 + e^ε) τ."""
    with localcontext(prec=DIGITS):
        table = laplace_table(scale)
        masses, K = masses_of(table), table.furthest
        factor = (Decimal(moved) / Decimal(scale)).exp()
        of = {k: Decimal(mass) / WHOLE for k, mass in zip(range(-K, K + 1), masses, strict=True)}
        delta = sum(max(mass - factor * of.get(k - moved, Decimal(0)), Decimal(0)) for k, mass in of.items())
        tau = decimal(table.tau)
        assert delta <= (1 + factor) * tau
        less = (Decimal(moved) / Decimal(scale) * Decimal("0.99")).exp()
        assert sum(max(mass - less * of.get(k - moved, Decimal(0)), Decimal(0)) for k, mass in of.items()) > 10**9 * tau


def test_beyond_the_limit_opendp_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the largest scale a table draws, and above it OpenDP; a scale that is not a positive number draws nothing."""
    asked: list[float] = []

    def opendp(true_counts: IntArray, scale: float) -> IntArray:
        asked.append(scale)
        return true_counts

    monkeypatch.setattr(table_module, "discrete_laplace", opendp)
    nothing = np.zeros(3, dtype=np.int64)
    laplace_by_table(nothing, LARGEST_LAPLACE_SCALE)
    assert asked == []
    laplace_by_table(nothing, math.nextafter(LARGEST_LAPLACE_SCALE, math.inf))
    laplace_by_table(nothing, math.inf)
    assert len(asked) == 2
    for scale in (0.0, -1.0):
        with pytest.raises(ValueError, match="scale must be > 0"):
            laplace_by_table(nothing, scale)
