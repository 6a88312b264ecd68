"""From (ε, δ) to ρ and back: by the papers' formula (`lemma`), by the optimal conversion (`zcdp`), and at one Rényi order. Floats are rounded to the safe side.

ρ is an exact fraction. Rounding never understates the cost: ρ from ε is rounded down, ε from ρ is rounded up.
"""

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

from tasks.accounting.opendp import gaussian_measurement, opendp
from tasks.accounting.sensitivity import square_root_up

DIGITS = 60  # of the decimal arithmetic; the results are floats with 17


def float_above(exact: Fraction) -> float:
    """Return the least float that is not below a number."""
    value = float(exact)
    return math.nextafter(value, math.inf) if Fraction(value) < exact else value


def float_below(exact: Fraction) -> float:
    """Return the largest float that is not above a number."""
    return -float_above(-exact)


def least_float(holds: Callable[[float], bool], start: float) -> float:
    """Return the least float for which a condition holds that is true from some float on; `start` is a few floats away at most."""
    while not holds(start):
        start = math.nextafter(start, math.inf)
    while holds(below := math.nextafter(start, 0.0)):
        start = below
    return start


def rounded_toward(exact: Decimal, toward: float) -> float:
    """Return the float nearest to `exact` on the side of `toward`."""
    value = float(exact)
    wrong_side = Decimal(value) > exact if toward < 0 else Decimal(value) < exact
    return math.nextafter(value, toward) if wrong_side else value


_GOLDEN = (math.sqrt(5) - 1) / 2
_NEAR_ORDER = 1e-6  # of the logarithm of α - 1; at the least ε an order so near costs nothing


def rho_from_epsilon(epsilon: float, delta: float) -> Fraction:
    r"""Return the largest float ρ (as a fraction) with ρ + 2 √(ρ ln 1/δ) ≤ ε.

    .. math:: \rho = \left(\frac{\epsilon}{\sqrt{\ln 1/\delta + \epsilon} + \sqrt{\ln 1/\delta}}\right)^2

    Raises:
        ValueError: epsilon or delta is out of range, or epsilon so small that no float ρ > 0 fits.
    Source:
        Bun and Steinke (2016), Proposition 1.3: ρ-zCDP implies (ρ + 2 √(ρ ln 1/δ), δ)-DP.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    with localcontext(prec=DIGITS):
        log = -Decimal(delta).ln()
        exact = (Decimal(epsilon) / ((log + Decimal(epsilon)).sqrt() + log.sqrt())) ** 2
        rho = Fraction(rounded_toward(exact, -math.inf))
    if rho == 0:
        raise ValueError(f"epsilon must be large enough for a rho above 0, got {epsilon:g}.")
    return rho


def epsilon_from_rho(rho: Fraction, delta: float) -> float:
    """Return the least float ε with ρ + 2 √(ρ ln 1/δ) ≤ ε.

    Source:
        Bun and Steinke (2016), Proposition 1.3.
    """
    if rho < 0:
        raise ValueError(f"rho must be >= 0, got {rho}.")
    check_delta(delta)
    with localcontext(prec=DIGITS):
        exact_rho = Decimal(rho.numerator) / Decimal(rho.denominator)
        exact = exact_rho + 2 * (exact_rho * -Decimal(delta).ln()).sqrt()
        return rounded_toward(exact, math.inf)


def lemma_delta(rho: Fraction, epsilon: float) -> float:
    """Return the least float δ with ρ + 2 √(ρ ln 1/δ) ≤ ε; 1 where ρ alone exceeds ε."""
    if rho >= Fraction(epsilon):
        return 1.0
    with localcontext(prec=DIGITS):
        exact_rho = Decimal(rho.numerator) / Decimal(rho.denominator)
        return rounded_toward((-((Decimal(epsilon) - exact_rho) ** 2) / (4 * exact_rho)).exp(), math.inf)


@lru_cache(maxsize=4096)
def zcdp_epsilon(rho: Fraction, delta: float) -> float:
    """Return an ε such that every ρ-zCDP mechanism is (ε, δ)-differentially private; 0 where δ alone covers ρ.

    Source:
        Canonne, Kamath and Steinke (2020); OpenDP's conversion, which rounds up. Where its arithmetic
        overflows (ρ far above any use) the lemma's ε stands, which is never less.
    """
    lemma = epsilon_from_rho(rho, delta)
    return min(lemma, _converted(lambda: _zcdp_profile(rho).epsilon(delta), lemma))


@lru_cache(maxsize=4096)
def zcdp_rho(epsilon: float, delta: float) -> Fraction:
    """Return the largest float ρ (as a fraction) whose `zcdp_epsilon` stays within ε."""
    check_epsilon(epsilon)
    check_delta(delta)
    start = _nearly_zcdp_rho(epsilon, delta, float(rho_from_epsilon(epsilon, delta)))
    return _largest(lambda rho: zcdp_epsilon(Fraction(rho), delta) <= epsilon, start)


def _nearly_zcdp_rho(epsilon: float, delta: float, lemma: float) -> float:
    """Return the same to about ten digits, by a formula that takes less time than OpenDP's search; `lemma` is a lower bound."""
    low, high = 0.0, math.log(8)  # the lemma is never so far away
    while high - low > 1e-11:
        middle = (low + high) / 2
        rho = lemma * math.exp(middle)
        order = _order(rho, delta)
        low, high = (middle, high) if renyi_epsilon(order * rho, order, delta) <= epsilon else (low, middle)
    return lemma * math.exp(low)


@cache
def renyi_order(rho: Fraction, delta: float) -> float:
    """Return the order α > 1 at which `renyi_epsilon` of ρ-zCDP, α ρ, is least at δ; ρ > 0."""
    return _order(float(rho), delta)


def _order(rho: float, delta: float) -> float:
    """Return the same for a float, by golden section: the curve has one minimum."""

    def converted(log_excess: float) -> float:
        order = 1 + math.exp(log_excess)
        return renyi_epsilon(order * rho, order, delta)

    low, high = -20.0, 60.0
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = converted(left), converted(right)
    while high - low > _NEAR_ORDER:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = converted(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = converted(right)
    return 1 + math.exp((low + high) / 2)


def renyi_epsilon(loss: float, order: float, delta: float) -> float:
    r"""Return an ε at δ of what is (α, τ)-Rényi differentially private, at least 0.

    .. math:: \epsilon = \tau + \frac{\ln(1/\delta) + (\alpha - 1) \ln(1 - 1/\alpha) - \ln \alpha}{\alpha - 1}

    Args:
        loss: τ, >= 0.
        order: α, > 1.
    Source:
        Canonne, Kamath and Steinke (2020), Proposition 12.
    """
    excess = order - 1
    spread = (-math.log(delta) + excess * (math.log(excess) - math.log(order)) - math.log(order)) / excess
    return max(0.0, (loss + spread) * (1 + 2**-40))  # rounded up, generously


def zcdp_delta(rho: Fraction, epsilon: float) -> float:
    """Return a δ at ε of every ρ-zCDP mechanism; never more than `lemma_delta`."""
    lemma = lemma_delta(rho, epsilon)
    return min(lemma, _converted(lambda: _zcdp_profile(rho).delta(epsilon), lemma))


def _zcdp_profile(rho: Fraction) -> Any:  # OpenDP's curve of (ε, δ) of a ρ-zCDP mechanism
    return _gaussian_profile().map(square_root_up(2 * rho))


@cache
def _gaussian_profile() -> Any:  # an OpenDP measurement of scale 1: it costs ρ = d²/2 at distance d
    return opendp().c.make_zCDP_to_approxDP(gaussian_measurement(1.0))


def _converted(conversion: Callable[[], float], otherwise: float) -> float:
    """Return the result of an OpenDP conversion, or a safe value where its floats overflow."""
    try:
        value = float(conversion())
    except opendp().OpenDPException:
        return otherwise
    return value if value >= 0 else otherwise  # false for NaN too


def _largest(holds: Callable[[float], bool], start: float) -> Fraction:
    """Return the largest float for which `holds` is true, given that it is true up to some float. Searches from `start`."""
    low, high, step = start, start, 1 + 2.0**-32
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


def check_epsilon(epsilon: float) -> None:
    """Refuse an ε that is not finite and > 0, with a ValueError."""
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ValueError(f"epsilon must be a finite number > 0, got {epsilon}.")


def check_delta(delta: float) -> None:
    """Refuse a δ outside (0, 1), with a ValueError."""
    if not 0 < delta < 1:
        raise ValueError(f"delta must be between 0 and 1 (both excluded), got {delta}.")
