"""Composed privacy loss distributions: the least noise of one release that keeps (ε, δ), for one record per unit."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from tasks.accounting.allocation import Allocation, Measurement, rho_of
from tasks.accounting.conversions import (
    check_delta,
    check_epsilon,
    zcdp_epsilon,
    zcdp_rho,
)

LEAST_PLD_DELTA = 1e-12  # below it the truncated tails of composed privacy loss distributions would matter
LARGEST_PLD_EPSILON = 100.0  # above it, and with delta above epsilon, they take gigabytes, and give no privacy
LARGEST_PLD_SCALE = 2.0**14  # above it the noise has too many values to list

_NOTHING = 1e-300  # a δ of 0, where its logarithm is taken


def pld_delta(measurements: Sequence[Measurement], epsilon: float) -> float:
    """Return δ of the composed privacy loss distribution of a release's discrete Gaussians, for one record per unit.

    With one record per unit, Δ₂² is the number of counts of the level that change, each by one: two under substitution, one
    under add_remove and at a measured root. Each is a discrete Gaussian of sensitivity 1.

    Source:
        Koskela, Jälkö and Honkela (2020); Doroshenko et al. (2022); Google's dp-accounting, pessimistic estimates. The
        interval, at most min(1e-4, ε/20,000), moves ρ by less than a part in a thousand.
    """
    interval = min(1e-4, epsilon / 20_000)
    events: dict[float, int] = {}
    for measurement in measurements:
        events[measurement.sigma] = events.get(measurement.sigma, 0) + measurement.l2_sensitivity_squared
    composed = None
    for sigma, times in events.items():
        loss = _loss(sigma, interval).self_compose(times)
        composed = loss if composed is None else composed.compose(loss)
    return 0.0 if composed is None else float(composed.get_delta_for_epsilon(epsilon))


def _loss(sigma: float, interval: float) -> Any:  # dp-accounting's PrivacyLossDistribution
    from dp_accounting.pld import privacy_loss_distribution

    return privacy_loss_distribution.from_discrete_gaussian_mechanism(
        sigma, sensitivity=1, value_discretization_interval=interval, pessimistic_estimate=True
    )


def pld_holds(measurements: Sequence[Measurement], epsilon: float, delta: float) -> bool:
    """Return whether measurements are (ε, δ)-differentially private by `pld_delta`."""
    return pld_delta(measurements, epsilon) <= delta


@lru_cache(maxsize=256)
def pld_rho(allocation: Allocation, epsilon: float, delta: float) -> Fraction:
    """Return the largest ρ that holds, to a part in a million."""
    start = float(zcdp_rho(epsilon, delta))
    check_pld(allocation.measurements(Fraction(start)), epsilon, delta)
    return Fraction(_crossing(lambda rho: pld_delta(allocation.measurements(Fraction(rho)), epsilon), delta, start))


def pld_epsilon(measurements: Sequence[Measurement], delta: float) -> float:
    """Return the least ε that holds, to a part in a million."""
    start = min(zcdp_epsilon(rho_of(measurements), delta), LARGEST_PLD_EPSILON)
    check_pld(measurements, start, delta)
    if start == LARGEST_PLD_EPSILON and not pld_holds(measurements, start, delta):
        raise ValueError(f"accountant pld needs epsilon <= {LARGEST_PLD_EPSILON:g}; use zcdp.")
    return 1 / _crossing(lambda inverse: pld_delta(measurements, 1 / inverse), delta, 1 / start)


def _crossing(delta_at: Callable[[float], float], delta: float, start: float) -> float:
    """Return the largest x, to a part in a million, with delta_at(x) <= delta; delta_at grows with x > 0."""
    from scipy.optimize import brentq

    low = start
    while delta_at(low) > delta:
        low /= 1.25
    high = low * 1.25
    while delta_at(high) <= delta:
        low, high = high, high * 1.25
    crossing = float(brentq(lambda x: math.log(max(delta_at(x), _NOTHING) / delta), low, high, rtol=1e-7))
    while delta_at(crossing) > delta:
        crossing *= 1 - 1e-6
    return crossing


def check_pld(measurements: Sequence[Measurement], epsilon: float, delta: float) -> None:
    """Refuse values outside the range for which this module composes privacy loss distributions.

    Raises:
        ValueError: ε, δ or a scale is out of their range.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    least_delta = LEAST_PLD_DELTA * (1 - 2**-9)  # what `least_with_tau` leaves of it
    if not (delta >= least_delta and 10 * delta <= min(epsilon, 1.0) and epsilon <= LARGEST_PLD_EPSILON):
        raise ValueError(
            f"accountant pld needs delta from {LEAST_PLD_DELTA:g} to 0.1, delta at most a tenth of epsilon, and"
            f" epsilon at most {LARGEST_PLD_EPSILON:g}; use zcdp."
        )
    if any(measurement.sigma > LARGEST_PLD_SCALE for measurement in measurements):
        raise ValueError("accountant pld needs noise with sigma <= 2**14; use zcdp.")
