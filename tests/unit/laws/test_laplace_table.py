"""Tables of discrete Laplace noise: bounds of their weights, and the privacy of their own outcomes."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.laws.samplers import laplace_table, laplace_weights_and_sum
from tests.support.noise_tables import DIGITS, WHOLE, decimal, masses_of


@given(scale=st.floats(0.01, 40.0), bits=st.integers(50, 300), reach=st.integers(1, 12))
def test_weights_are_below_and_their_sum_above_the_exact_ones(scale, bits, reach):
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
def test_the_tables_own_outcomes_keep_epsilon_but_for_tau(scale, moved):
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
