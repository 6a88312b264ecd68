"""How a release's ρ is shared among its levels, and the noise scale that each share buys."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from tasks.accounting.opendp import privacy_map
from tasks.accounting.sensitivity import square_root_up

LEAST_SCALE = 0.01  # below it the noise is 0 except in one draw in 10**2171
LARGEST_SCALE = 2**32  # with totals up to 2**40 this keeps sums and products of noisy counts inside 64 bits


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured level: discrete Gaussian noise on its histogram.

    Attributes:
        rho: its cost, > 0, exact.
        sigma: the scale of the noise, records.
        l2_sensitivity_squared: Δ₂² of the level.
        tau: how far, in total variation, the sampler's draws may be from that noise, over all the cells of the level that
            one unit can touch; 0 for an exact sampler.
    """

    rho: Fraction
    sigma: float
    l2_sensitivity_squared: int
    tau: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Allocation:
    """How any ρ would be shared among the measured levels of a release.

    Attributes:
        shares: the share of ρ per measured level, > 0; they add up to 1 exactly.
        squares: Δ₂² per measured level.
        taus: the sampler's total variation per measured level, over the cells that one unit can touch; empty where it
            is exact.
    """

    shares: tuple[Fraction, ...]
    squares: tuple[int, ...]
    taus: tuple[Fraction, ...] = ()

    @property
    def tau(self) -> Fraction:
        """The sampler's total variation over all levels, whatever ρ is."""
        return sum(self.taus, Fraction(0))

    def measurements(self, rho: Fraction) -> tuple[Measurement, ...]:
        """Return the measurement of every level, given ρ; their costs add up to ρ exactly.

        Raises:
            ValueError: ρ is so small or so large that some σ would be out of range.
        """
        taus = self.taus or (Fraction(0),) * len(self.shares)
        return tuple(
            Measurement(rho * share, scale_for(rho * share, square), square, tau)
            for share, square, tau in zip(self.shares, self.squares, taus, strict=True)
        )

    def least_rho(self, error: Callable[[tuple[Measurement, ...]], float], most: float) -> Fraction:
        """Return the least float ρ with which an error that is proportional to the scales stays within a bound.

        Args:
            error: from measurements to the error, records; > 0.
            most: the largest error that is allowed, records, > 0.
        Raises:
            ValueError: no float ρ does it.
        """

        def keeps(rho: float) -> bool:
            return error(self.measurements(Fraction(rho))) <= most

        ratio = error(self.measurements(Fraction(1))) / most
        if not 1e-100 < ratio < 1e100:
            raise ValueError(f"max_error must be a number of records that noise can reach, got {most:g}.")
        rho = ratio**2
        while not keeps(rho):
            rho = math.nextafter(rho, math.inf)
        while keeps(math.nextafter(rho, 0.0)):
            rho = math.nextafter(rho, 0.0)
        return Fraction(rho)


def shares_of(weights: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Return shares in proportion to some weights; they add up to 1 exactly.

    Raises:
        ValueError: a weight is not above 0.
    """
    if not all(weight > 0 for weight in weights):
        raise ValueError("every share must be > 0: a level without a share cannot be measured.")
    return tuple(weight / sum(weights) for weight in weights)


def uniform(levels: int) -> tuple[Fraction, ...]:
    """Return equal shares, one per measured level."""
    return shares_of([Fraction(1)] * levels)


def geometric(ratio: Fraction, levels: int) -> tuple[Fraction, ...]:
    """Return shares each of which is `ratio` times that of the level above."""
    return shares_of([ratio**level for level in range(levels)])


def finest(weight: Fraction, levels: int) -> tuple[Fraction, ...]:
    """Return equal shares for all levels but the finest, which has `weight` times as much."""
    return shares_of([*[Fraction(1)] * (levels - 1), weight])


@lru_cache(maxsize=4096)
def scale_for(rho: Fraction, l2_sensitivity_squared: int) -> float:
    r"""Return σ, the least float whose privacy map stays within ρ.

    .. math:: \sigma = \sqrt{\Delta_2^2 / (2 \rho)}, \text{ rounded until } \mathrm{map}(\Delta_2; \sigma) \le \rho

    Args:
        rho: the level's share, > 0.
        l2_sensitivity_squared: Δ₂², > 0.
    Raises:
        ValueError: ρ is so small that σ would exceed 2**32, beyond which arithmetic on noisy counts could overflow, or
            so large that there would be no noise.
    """
    sensitivity = square_root_up(l2_sensitivity_squared)
    if rho <= 0:
        raise ValueError(f"rho must be > 0, got {rho}.")
    variance = l2_sensitivity_squared / (2 * rho)
    if variance > LARGEST_SCALE**2:
        raise ValueError(f"sigma must be <= 2**32: epsilon is too small to release anything with rho {float(rho):g}.")
    if variance < LEAST_SCALE**2:
        raise ValueError(f"sigma must be >= {LEAST_SCALE}: with rho {float(rho):g} the true counts would be published.")
    scale = math.sqrt(variance)
    while Fraction(privacy_map(scale, sensitivity)) > rho:
        scale = math.nextafter(scale, math.inf)
    while Fraction(privacy_map(math.nextafter(scale, 0.0), sensitivity)) <= rho:
        scale = math.nextafter(scale, 0.0)
    return scale


def rho_of(measurements: Sequence[Measurement]) -> Fraction:
    """Return the total cost of measurements."""
    return sum((measurement.rho for measurement in measurements), Fraction(0))


def tau_of(measurements: Sequence[Measurement]) -> Fraction:
    """Return the total variation distance of all draws that one unit can touch from the exact noise, at most."""
    return sum((measurement.tau for measurement in measurements), Fraction(0))
