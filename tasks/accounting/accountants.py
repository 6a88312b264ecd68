"""Accountants: from the noise of a release to what it states, and back. All budgets are computed in this package.

An accountant checks a release with `holds`, the same computation by which it chose the noise.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction

from tasks.accounting.allocation import Allocation, Measurement, rho_of, tau_of
from tasks.accounting.conversions import (
    DIGITS,
    epsilon_from_rho,
    float_above,
    float_below,
    lemma_delta,
    rho_from_epsilon,
    rounded_toward,
    zcdp_delta,
    zcdp_epsilon,
    zcdp_rho,
)
from tasks.accounting.pld import pld_delta, pld_epsilon, pld_holds, pld_rho

PRIVACY_MAP = "privacy_map"  # in place of an accountant: a mechanism that is charged the (ε, δ) of its own privacy map

_LARGEST_EXPONENT = 700.0  # with a larger ε, (1 + e^ε) τ of any inexact sampler exceeds every δ


@dataclass(frozen=True, slots=True)
class Accountant:
    """A way to turn the noise of a release into a statement, and a statement into noise.

    Attributes:
        name: as the spec names it.
        holds: whether measurements are (ε, δ)-differentially private, by this accountant.
        largest_rho: from an allocation, ε and δ to the largest ρ that holds.
        least_epsilon: from measurements and δ to the least ε that holds.
        least_delta: from measurements and ε to the least δ that holds.
    """

    name: str
    holds: Callable[[Sequence[Measurement], float, float], bool]
    largest_rho: Callable[[Allocation, float, float], Fraction]
    least_epsilon: Callable[[Sequence[Measurement], float], float]
    least_delta: Callable[[Sequence[Measurement], float], float]


def delta_left(delta: float, epsilon: float, tau: Fraction) -> float:
    r"""Return the δ that exact noise must keep, so that a sampler within total variation τ of it keeps (ε, δ).

    .. math:: \delta' = \delta - (1 + e^\epsilon) \tau

    With M the exact mechanism and M' the sampled one, P[M'(x) ∈ S] ≤ P[M(x) ∈ S] + τ ≤ e^ε P[M(y) ∈ S] + δ' + τ ≤
    e^ε P[M'(y) ∈ S] + δ' + (1 + e^ε) τ, where the cells that no neighbour changes are drawn by the same law on both sides.

    Returns:
        δ', rounded down; at most 0 where τ is too large for ε and δ.
    """
    return float_below(Fraction(delta) - _cost_of_tau(epsilon, tau)) if tau else delta


def _cost_of_tau(epsilon: float, tau: Fraction) -> Fraction:
    """Return (1 + e^ε) τ, rounded up."""
    with localcontext(prec=DIGITS):
        exact = Decimal(min(epsilon, _LARGEST_EXPONENT)).exp()
        return (1 + Fraction(rounded_toward(exact, math.inf))) * tau


def least_with_tau(least_epsilon: Callable[[float], float], delta: float, tau: Fraction) -> float:
    """Return an ε at δ for noise that a sampler within total variation τ draws.

    Args:
        least_epsilon: of the exact noise, at a δ.
        tau: >= 0.
    Returns:
        The ε that `least_epsilon` gives at the `delta_left` of a slightly larger ε; infinite where τ takes more than
        about a thousandth of δ.
    """
    if not tau:
        return least_epsilon(delta)
    spared = _least_left(delta)
    left = delta_left(delta, least_epsilon(spared), tau)
    return least_epsilon(left) if left >= spared else math.inf


def _least_left(delta: float) -> float:
    """Return the least δ that must be left. A sampler that takes more than about a thousandth is too far from its law."""
    return delta * (1 - 2**-10)


def within_tau(epsilon: float, delta: float, tau: Fraction) -> tuple[float, float]:
    """Return the largest ε, at most a given one, at which τ takes no more than about a thousandth of δ, and the δ that it leaves.

    Returns:
        ε and δ'; both 0 where no ε > 0 leaves so much.
    """
    if not tau:
        return epsilon, delta
    spared = _least_left(delta)
    cost = max(float_below((Fraction(delta) - Fraction(spared)) / tau) - 1, 1.0)
    epsilon = min(epsilon, math.log(cost) * (1 - 2**-40))
    left = delta_left(delta, epsilon, tau)
    return (epsilon, left) if epsilon > 0 and left >= spared else (0.0, 0.0)


def _with_tau(exact: Accountant) -> Accountant:
    """Return an accountant that subtracts the cost of inexact samplers from δ, and then asks another accountant."""

    def least_epsilon(measurements: Sequence[Measurement], delta: float) -> float:
        tau = tau_of(measurements)
        epsilon = least_with_tau(lambda left: exact.least_epsilon(measurements, left), delta, tau)
        if tau and math.isinf(epsilon):
            raise ValueError(f"noise.sampler table needs more delta than {delta:g} for so little noise; use opendp.")
        return epsilon

    def largest_rho(allocation: Allocation, epsilon: float, delta: float) -> Fraction:
        left = delta_left(delta, epsilon, allocation.tau)
        if allocation.tau and not left >= _least_left(delta):
            raise ValueError(f"noise.sampler table needs more delta than {delta:g} at epsilon {epsilon:g}; use opendp.")
        return exact.largest_rho(allocation, epsilon, left)

    def holds(measurements: Sequence[Measurement], epsilon: float, delta: float) -> bool:
        tau = tau_of(measurements)
        left = delta_left(delta, epsilon, tau)
        return (not tau or left >= _least_left(delta)) and exact.holds(measurements, epsilon, left)

    def least_delta(measurements: Sequence[Measurement], epsilon: float) -> float:
        least = exact.least_delta(measurements, epsilon)
        tau = tau_of(measurements)
        return float_above(Fraction(least) + _cost_of_tau(epsilon, tau)) if tau else least

    return Accountant(exact.name, holds, largest_rho, least_epsilon, least_delta)


ACCOUNTANTS = {
    accountant.name: _with_tau(accountant)
    for accountant in (
        Accountant(
            name="lemma",
            holds=lambda measurements, epsilon, delta: epsilon_from_rho(rho_of(measurements), delta) <= epsilon,
            largest_rho=lambda _, epsilon, delta: rho_from_epsilon(epsilon, delta),
            least_epsilon=lambda measurements, delta: epsilon_from_rho(rho_of(measurements), delta),
            least_delta=lambda measurements, epsilon: lemma_delta(rho_of(measurements), epsilon),
        ),
        Accountant(
            name="zcdp",
            holds=lambda measurements, epsilon, delta: zcdp_epsilon(rho_of(measurements), delta) <= epsilon,
            largest_rho=lambda _, epsilon, delta: zcdp_rho(epsilon, delta),
            least_epsilon=lambda measurements, delta: zcdp_epsilon(rho_of(measurements), delta),
            least_delta=lambda measurements, epsilon: zcdp_delta(rho_of(measurements), epsilon),
        ),
        Accountant(name="pld", holds=pld_holds, largest_rho=pld_rho, least_epsilon=pld_epsilon, least_delta=pld_delta),
    )
}
