"""How a release's ρ or ε is shared among its levels, and the noise scale that each share buys."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from tasks.accounting.conversions import least_float
from tasks.accounting.opendp import laplace_measurement, privacy_map
from tasks.accounting.sensitivity import joint_part, square_root_up

LEAST_SCALE = 0.01  # below it the noise is 0 except in one draw in 10**2171
LARGEST_SCALE = 2**32  # with totals up to 2**40 this keeps sums and products of noisy counts inside 64 bits


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured level: discrete Gaussian noise on its histogram.

    Attributes:
        rho: its charge, > 0, exact: its part of what the costliest unit costs all levels together.
        sigma: the scale of the noise, records.
        l2_sensitivity_squared: Δ₂² of the level.
        tau: how far, in total variation, the sampler's draws may be from that noise, over all the cells of the level that
            one unit can touch; 0 for an exact sampler.
        is_total: whether it is a total that substitution may move. Then a unit that moves it moves the other levels of the release
            by half of their Δ₂², and all other units do not move it.
        path: what the costliest unit costs all levels of the release together, as a part of what it would cost if all their counts were as
            precise as σ says; less than 1 where a unit meets less precise ones at some levels.
    """

    rho: Fraction
    sigma: float
    l2_sensitivity_squared: int
    tau: Fraction = Fraction(0)
    is_total: bool = False
    path: Fraction = Fraction(1)


@dataclass(frozen=True, slots=True)
class Allocation:
    """How any ρ would be shared among the measured levels of a release.

    Attributes:
        shares: the share of ρ per measured level, > 0; they add up to 1 exactly.
        squares: Δ₂² per measured level.
        taus: the sampler's total variation per measured level, over the cells that one unit can touch; empty where it
            is exact.
        total: the place of a total that substitution may move; None where there is none.
        path: as of each `Measurement`.
    """

    shares: tuple[Fraction, ...]
    squares: tuple[int, ...]
    taus: tuple[Fraction, ...] = ()
    total: int | None = None
    path: Fraction = Fraction(1)

    @property
    def joint_part(self) -> Fraction:
        """How much the costliest unit costs, as a part of the sum of what each level costs alone."""
        return self.path * joint_part(Fraction(0) if self.total is None else self.shares[self.total], Fraction(1))

    @property
    def tau(self) -> Fraction:
        """The sampler's total variation over all levels, whatever ρ is."""
        return sum(self.taus, Fraction(0))

    def measurements(self, rho: Fraction) -> tuple[Measurement, ...]:
        """Return the measurement of every level, given ρ; their charges add up to ρ exactly.

        Alone, each level costs its charge divided by `joint_part`. So no unit costs all of them more than ρ together.

        Raises:
            ValueError: ρ is so small or so large that some σ would be out of range.
        """
        taus, alone = self.taus or (Fraction(0),) * len(self.shares), rho / self.joint_part
        return tuple(
            Measurement(rho * share, scale_for(alone * share, square), square, tau, place == self.total, self.path)
            for place, (share, square, tau) in enumerate(zip(self.shares, self.squares, taus, strict=True))
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
        return Fraction(least_float(keeps, ratio**2))


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
        rho: what the level may cost alone, > 0.
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
    return least_float(lambda scale: Fraction(privacy_map(scale, sensitivity)) <= rho, math.sqrt(variance))


def ways_of(measurements: Sequence[Measurement]) -> tuple[tuple[int, ...], ...]:
    """Return, for each kind of unit that may cost most, by how much it moves every level, squared records.

    One kind keeps its number of records, and moves every level but the total by Δ₂. Where a total is measured, the other kind comes
    or goes, and moves the total by Δ₂ and every other level by half of Δ₂².
    """
    squares = tuple(of.l2_sensitivity_squared for of in measurements)
    if not any(of.is_total for of in measurements):
        return (squares,)
    kept = tuple(0 if of.is_total else of.l2_sensitivity_squared for of in measurements)
    return kept, tuple(square - kept_of // 2 for square, kept_of in zip(squares, kept, strict=True))


def cost_of(measurements: Sequence[Measurement]) -> Fraction:
    """Return the most that measurements cost any unit together, by their scales; `rho_of` is never less."""
    return max(
        sum(
            (square * of.path / (2 * Fraction(of.sigma) ** 2) for square, of in zip(way, measurements, strict=True)),
            Fraction(0),
        )
        for way in ways_of(measurements)
    )


def rho_of(measurements: Sequence[Measurement]) -> Fraction:
    """Return what measurements are charged together."""
    return sum((measurement.rho for measurement in measurements), Fraction(0))


def tau_of(measurements: Sequence[Measurement]) -> Fraction:
    """Return the total variation distance of all draws that one unit can touch from the exact noise, at most."""
    return sum((measurement.tau for measurement in measurements), Fraction(0))


def laplace_map(scale: float, l1_sensitivity: int) -> float:
    """Return ε, as OpenDP's privacy map gives it, for discrete Laplace noise of scale s on histograms.

    Args:
        scale: s, finite and > 0, records.
        l1_sensitivity: Δ₁, records.
    """
    return float(laplace_measurement(scale).map(l1_sensitivity))


@lru_cache(maxsize=4096)
def laplace_scale_for(epsilon: float, l1_sensitivity: int) -> float:
    r"""Return s, the least float whose privacy map stays within ε.

    .. math:: s = \Delta_1 / \epsilon, \text{ rounded until } \mathrm{map}(\Delta_1; s) \le \epsilon

    Args:
        epsilon: the level's share, > 0.
        l1_sensitivity: Δ₁, >= 1.
    Raises:
        ValueError: ε is so small that s would exceed 2**32, or so large that there would be no noise.
    """
    if not epsilon > 0:
        raise ValueError(f"epsilon must be > 0 at every level, got {epsilon}.")
    scale = l1_sensitivity / epsilon
    if scale > LARGEST_SCALE:
        raise ValueError(f"the noise scale must be <= 2**32: epsilon {epsilon:g} of a level is too small.")
    if scale < LEAST_SCALE:
        raise ValueError(
            f"the noise scale must be >= {LEAST_SCALE}: with epsilon {epsilon:g} at a level the true counts show."
        )
    return least_float(lambda scale: laplace_map(scale, l1_sensitivity) <= epsilon, scale)
