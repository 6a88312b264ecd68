"""From (ε, δ) to ρ and back. The one room in which budgets are computed.

ρ is an exact fraction from here on. Rounding never under-states what is spent: ρ from ε is rounded down, ε from ρ up.
An accountant checks a release with `holds`, the very computation by which it has chosen the noise.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

from tasks.noise.allocation import Allocation, Measurement
from tasks.noise.samplers import opendp
from tasks.noise.sensitivity import square_root_up

LEAST_PLD_DELTA = 1e-12  # below it the truncated tails of composed privacy loss distributions would tell
LARGEST_PLD_EPSILON = (
    100.0  # above it, and with delta above epsilon, they take gigabytes and nobody would call it privacy
)

LARGEST_PLD_SCALE = 2.0**14  # above it the noise has too many values to list

_NOTHING = 1e-300  # a δ of 0, where its logarithm is taken
_LARGEST_EXPONENT = 700.0  # with an ε beyond it, what any sampler lacks costs more than any δ
_DIGITS = 60  # of the decimal arithmetic; the results are floats with 17


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


def rho_of(measurements: Sequence[Measurement]) -> Fraction:
    """Return what measurements cost together."""
    return sum((measurement.rho for measurement in measurements), Fraction(0))


def tau_of(measurements: Sequence[Measurement]) -> Fraction:
    """Return how far all draws that one unit can touch may be from the noise that is accounted, in total variation."""
    return sum((measurement.tau for measurement in measurements), Fraction(0))


# samplers that are close to the noise they stand for ------------------------------------------------------------------


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
    with localcontext(prec=_DIGITS):
        exact = Decimal(min(epsilon, _LARGEST_EXPONENT)).exp()
        return (1 + Fraction(_round(exact, math.inf))) * tau


def least_with_tau(least_epsilon: Callable[[float], float], delta: float, tau: Fraction) -> float:
    """Return an ε at δ for noise that a sampler within total variation τ draws.

    Args:
        least_epsilon: of the exact noise, at a δ.
        delta: in (0, 1).
        tau: >= 0.
    Returns:
        The ε that `least_epsilon` has at the `delta_left` of a slightly larger ε; infinite where τ takes up a
        thousandth of δ.
    """
    if not tau:
        return least_epsilon(delta)
    spared = _least_left(delta)
    left = delta_left(delta, least_epsilon(spared), tau)
    return least_epsilon(left) if left >= spared else math.inf


def _least_left(delta: float) -> float:
    """Return what must be left of δ: a sampler that takes more than a thousandth of it is not close to its law."""
    return delta * (1 - 2**-10)


# lemma: the papers' conversion ---------------------------------------------------------------------------------------


def rho_from_epsilon(epsilon: float, delta: float) -> Fraction:
    r"""Return the largest float ρ (as a fraction) with ρ + 2 √(ρ ln 1/δ) ≤ ε.

    .. math:: \rho = \left(\frac{\epsilon}{\sqrt{\ln 1/\delta + \epsilon} + \sqrt{\ln 1/\delta}}\right)^2

    Args:
        epsilon: > 0, finite.
        delta: in (0, 1).
    Raises:
        ValueError: epsilon or delta is out of range, or epsilon so small that no float ρ > 0 fits.
    Source:
        Bun and Steinke (2016), Proposition 1.3: ρ-zCDP implies (ρ + 2 √(ρ ln 1/δ), δ)-DP.
    """
    _check_epsilon(epsilon)
    _check_delta(delta)
    with localcontext(prec=_DIGITS):
        log = -Decimal(delta).ln()
        exact = (Decimal(epsilon) / ((log + Decimal(epsilon)).sqrt() + log.sqrt())) ** 2
        rho = Fraction(_round(exact, -math.inf))
    if rho == 0:
        raise ValueError(f"epsilon must be large enough for a rho above 0, got {epsilon:g}.")
    return rho


def epsilon_from_rho(rho: Fraction, delta: float) -> float:
    """Return the least float ε with ρ + 2 √(ρ ln 1/δ) ≤ ε.

    Args:
        rho: >= 0.
        delta: in (0, 1).
    Raises:
        ValueError: rho or delta is out of range.
    Source:
        Bun and Steinke (2016), Proposition 1.3.
    """
    if rho < 0:
        raise ValueError(f"rho must be >= 0, got {rho}.")
    _check_delta(delta)
    with localcontext(prec=_DIGITS):
        exact_rho = Decimal(rho.numerator) / Decimal(rho.denominator)
        exact = exact_rho + 2 * (exact_rho * -Decimal(delta).ln()).sqrt()
        return _round(exact, math.inf)


def _lemma_delta(rho: Fraction, epsilon: float) -> float:
    """Return the least float δ with ρ + 2 √(ρ ln 1/δ) ≤ ε; 1 where ρ alone exceeds ε."""
    if rho >= Fraction(epsilon):
        return 1.0
    with localcontext(prec=_DIGITS):
        exact_rho = Decimal(rho.numerator) / Decimal(rho.denominator)
        return _round((-((Decimal(epsilon) - exact_rho) ** 2) / (4 * exact_rho)).exp(), math.inf)


# zcdp: the optimal conversion ----------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def zcdp_epsilon(rho: Fraction, delta: float) -> float:
    """Return an ε such that every ρ-zCDP mechanism is (ε, δ)-differentially private; 0 where δ alone covers ρ.

    Args:
        rho: >= 0.
        delta: in (0, 1).
    Raises:
        ValueError: rho or delta is out of range.
    Source:
        Canonne, Kamath and Steinke (2020); OpenDP's conversion, which rounds up. Where its arithmetic
        overflows (ρ far above any use) the lemma's ε stands, which is never less.
    """
    lemma = epsilon_from_rho(rho, delta)
    return min(lemma, _converted(lambda: _zcdp_profile(rho).epsilon(delta), lemma))


def zcdp_rho(epsilon: float, delta: float) -> Fraction:
    """Return the largest float ρ (as a fraction) whose `zcdp_epsilon` stays within ε.

    Raises:
        ValueError: epsilon or delta is out of range.
    """
    _check_epsilon(epsilon)
    _check_delta(delta)
    return _largest(lambda rho: zcdp_epsilon(Fraction(rho), delta) <= epsilon, float(rho_from_epsilon(epsilon, delta)))


@cache
def renyi_order(rho: Fraction, delta: float) -> float:
    """Return the order α > 1 at which `renyi_epsilon` of ρ-zCDP, α ρ, is least at δ; ρ > 0."""
    from scipy.optimize import minimize_scalar

    def converted(log_excess: float) -> float:
        order = 1 + math.exp(log_excess)
        return renyi_epsilon(order * float(rho), order, delta)

    return 1 + math.exp(float(minimize_scalar(converted, bounds=(-20.0, 60.0), method="bounded").x))


def renyi_epsilon(loss: float, order: float, delta: float) -> float:
    r"""Return an ε at δ of what is (α, τ)-Rényi differentially private, at least 0.

    .. math:: \epsilon = \tau + \frac{\ln(1/\delta) + (\alpha - 1) \ln(1 - 1/\alpha) - \ln \alpha}{\alpha - 1}

    Args:
        loss: τ, >= 0.
        order: α, > 1.
        delta: in (0, 1).
    Source:
        Canonne, Kamath and Steinke (2020), Proposition 12.
    """
    excess = order - 1
    spread = (-math.log(delta) + excess * (math.log(excess) - math.log(order)) - math.log(order)) / excess
    return max(0.0, (loss + spread) * (1 + 2**-40))  # rounded up, generously


def _zcdp_delta(rho: Fraction, epsilon: float) -> float:
    lemma = _lemma_delta(rho, epsilon)
    return min(lemma, _converted(lambda: _zcdp_profile(rho).delta(epsilon), lemma))


def _zcdp_profile(rho: Fraction) -> Any:  # OpenDP's curve of (ε, δ) of a ρ-zCDP mechanism
    return _gaussian_profile().map(square_root_up(2 * rho))


@cache
def _gaussian_profile() -> Any:  # an OpenDP measurement of scale 1: it costs ρ = d²/2 at distance d
    dp = opendp()
    histograms = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    return dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*histograms, scale=1.0, MO="ZeroConcentratedDivergence"))


def _converted(conversion: Callable[[], float], otherwise: float) -> float:
    """Return a conversion of OpenDP's, or what is safe instead where its floats overflow."""
    try:
        value = float(conversion())
    except opendp().OpenDPException:
        return otherwise
    return value if value >= 0 else otherwise  # a value that is not a number too


# pld: the composed privacy loss distribution ---------------------------------------------------------------------------


def _pld_delta(measurements: Sequence[Measurement], epsilon: float) -> float:
    """Return δ of the composed privacy loss distribution of a release's discrete Gaussians, for one record per unit.

    With one record per unit Δ₂² says how many counts of the level change, each by one: two under substitution, one
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


def _pld_holds(measurements: Sequence[Measurement], epsilon: float, delta: float) -> bool:
    return _pld_delta(measurements, epsilon) <= delta


@lru_cache(maxsize=256)
def _pld_rho(allocation: Allocation, epsilon: float, delta: float) -> Fraction:
    """Return the largest ρ that holds, to a part in a million."""
    start = float(zcdp_rho(epsilon, delta))
    check_pld(allocation.measurements(Fraction(start)), epsilon, delta)
    return Fraction(_crossing(lambda rho: _pld_delta(allocation.measurements(Fraction(rho)), epsilon), delta, start))


def _pld_epsilon(measurements: Sequence[Measurement], delta: float) -> float:
    """Return the least ε that holds, to a part in a million."""
    start = min(zcdp_epsilon(rho_of(measurements), delta), LARGEST_PLD_EPSILON)
    check_pld(measurements, start, delta)
    if start == LARGEST_PLD_EPSILON and not _pld_holds(measurements, start, delta):
        raise ValueError(f"accountant pld needs epsilon <= {LARGEST_PLD_EPSILON:g}; use zcdp.")
    return 1 / _crossing(lambda inverse: _pld_delta(measurements, 1 / inverse), delta, 1 / start)


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
    """Refuse what privacy loss distributions are not composed for.

    Raises:
        ValueError: ε, δ or a scale is out of their range.
    """
    _check_epsilon(epsilon)
    _check_delta(delta)
    least_delta = LEAST_PLD_DELTA * (1 - 2**-9)  # what `least_with_tau` leaves of it
    if not (delta >= least_delta and 10 * delta <= min(epsilon, 1.0) and epsilon <= LARGEST_PLD_EPSILON):
        raise ValueError(
            f"accountant pld needs delta from {LEAST_PLD_DELTA:g} to a tenth, and of epsilon, which is at most"
            f" {LARGEST_PLD_EPSILON:g}; use zcdp."
        )
    if any(measurement.sigma > LARGEST_PLD_SCALE for measurement in measurements):
        raise ValueError("accountant pld needs noise with sigma <= 2**14; use zcdp.")


def _with_tau(exact: Accountant) -> Accountant:
    """Return an accountant that takes the price of inexact samplers off δ before it asks another."""

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
            least_delta=lambda measurements, epsilon: _lemma_delta(rho_of(measurements), epsilon),
        ),
        Accountant(
            name="zcdp",
            holds=lambda measurements, epsilon, delta: zcdp_epsilon(rho_of(measurements), delta) <= epsilon,
            largest_rho=lambda _, epsilon, delta: zcdp_rho(epsilon, delta),
            least_epsilon=lambda measurements, delta: zcdp_epsilon(rho_of(measurements), delta),
            least_delta=lambda measurements, epsilon: _zcdp_delta(rho_of(measurements), epsilon),
        ),
        Accountant(
            name="pld",
            holds=_pld_holds,
            largest_rho=_pld_rho,
            least_epsilon=_pld_epsilon,
            least_delta=_pld_delta,
        ),
    )
}


def _largest(holds: Callable[[float], bool], start: float) -> Fraction:
    """Return the largest float for which something holds that is true up to some float; the search begins at `start`."""
    low, high, step = start, start, 1.25
    while not holds(low):
        low, high, step = low / step, low, step**2
        if low == 0:
            raise ValueError("epsilon must be large enough for a rho above 0.")
    while holds(high):
        low, high, step = high, high * step, step**2
        if math.isinf(high):
            raise ValueError("epsilon must be finite.")
    while low < (middle := low + (high - low) / 2) < high:
        low, high = (middle, high) if holds(middle) else (low, middle)
    return Fraction(low)


def float_above(exact: Fraction) -> float:
    """Return the least float that is not below a number."""
    value = float(exact)
    return math.nextafter(value, math.inf) if Fraction(value) < exact else value


def float_below(exact: Fraction) -> float:
    """Return the largest float that is not above a number."""
    return -float_above(-exact)


def _round(exact: Decimal, toward: float) -> float:
    """Return the float nearest to `exact` on the side of `toward`."""
    value = float(exact)
    wrong_side = Decimal(value) > exact if toward < 0 else Decimal(value) < exact
    return math.nextafter(value, toward) if wrong_side else value


def _check_epsilon(epsilon: float) -> None:
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ValueError(f"epsilon must be a finite number > 0, got {epsilon}.")


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"delta must be between 0 and 1 (both excluded), got {delta}.")
