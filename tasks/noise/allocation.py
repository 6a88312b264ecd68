"""How a release's ρ is shared among its levels, and the noise scale that each share buys."""

import math
from fractions import Fraction

from tasks.noise.samplers import privacy_map
from tasks.noise.sensitivity import square_root_up

LARGEST_SCALE = 2**32  # with totals up to 2**40 this keeps sums and products of noisy counts inside 64 bits


def uniform(rho: Fraction, levels: int) -> tuple[Fraction, ...]:
    """Return equal shares of ρ, one per measured level; they add up to ρ exactly."""
    return (rho / levels,) * levels


def scale_for(rho: Fraction, l2_sensitivity_squared: int) -> float:
    r"""Return σ, the least float whose privacy map stays within ρ.

    .. math:: \sigma = \sqrt{\Delta_2^2 / (2 \rho)}, \text{ rounded until } \mathrm{map}(\Delta_2; \sigma) \le \rho

    Args:
        rho: the level's share, > 0.
        l2_sensitivity_squared: Δ₂², > 0.
    Raises:
        ValueError: ρ is so small that σ would exceed 2**32, beyond which arithmetic on noisy counts could overflow.
    """
    sensitivity = square_root_up(l2_sensitivity_squared)
    if rho <= 0:
        raise ValueError(f"rho must be > 0, got {rho}.")
    variance = l2_sensitivity_squared / (2 * rho)
    if variance > LARGEST_SCALE**2:
        raise ValueError(f"sigma must be <= 2**32: epsilon is too small to release anything with rho {float(rho):g}.")
    scale = math.sqrt(variance)
    while Fraction(privacy_map(scale, sensitivity)) > rho:
        scale = math.nextafter(scale, math.inf)
    while Fraction(privacy_map(math.nextafter(scale, 0.0), sensitivity)) <= rho:
        scale = math.nextafter(scale, 0.0)
    return scale
