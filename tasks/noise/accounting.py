"""From (ε, δ) to ρ and back. The one room in which budgets are computed.

ρ is an exact fraction from here on. Rounding never under-states what is spent: ρ from ε is rounded down, ε from ρ up.
"""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

ACCOUNTANT = "lemma"

_DIGITS = 60  # of the decimal arithmetic; the results are floats with 17


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
