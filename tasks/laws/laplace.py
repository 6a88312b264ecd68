r"""The discrete Laplace law: its variance, its quantiles and those of sums, and what it costs. No noise is looked at.

The noise X of scale s has P[X = k] ∝ q^|k| with q = e^{-1/s}, and for 0 <= λ < 1/s

.. math:: E[e^{\lambda X}] = M(\lambda) = \frac{1}{1 - \sinh^2(\lambda / 2) / \sinh^2(1 / 2s)}
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tasks.accounting.allocation import laplace_map, laplace_scale_for
from tasks.accounting.sensitivity import l1_derivation
from tasks.laws.law import CARE, Draws, Law, LevelCost, Sampling
from tasks.laws.samplers import LARGEST_TAU, discrete_laplace, laplace_by_table
from tasks.tree.axis import FloatArray

_NORMAL_FROM = 30  # terms, more of which are taken to add up to a normal variable, where only a density is asked for
_NEAR_ZERO = 0.01  # scales, within which the density of a sum is flat
_CARE_OF_SUMS = 1e-9  # of the logarithm of a probability: far more than floats lose
_LEAST_SUMMED = -500.0  # of a logarithm of a probability: below it Chernoff's bound is taken, then hardly too large
_LEFT_OUT = -30.0  # the logarithm of the terms, beside the largest, from which on they are bounded and not added up
_ALIASES = 45.0  # the logarithm by which the other terms of the sum are at least below the probability


def standard_deviation(scale: float) -> float:
    r"""Return the standard deviation of discrete Laplace noise, :math:`\sqrt{2q} / (1 - q)` with :math:`q = e^{-1/s}`."""
    return math.sqrt(2 * math.exp(-1 / scale)) / -math.expm1(-1 / scale)


def laplace_variance(scale: float) -> float:
    """Return the variance of discrete Laplace noise of scale s, records squared."""
    return standard_deviation(scale) ** 2


def laplace_reach(scale: float, terms: int, log_odds: float) -> float:
    r"""Return a t that the sum of n independent draws reaches with a probability of at most exp(-x).

    One draw has P[X >= t] <= q^t / (1 + q) for t > 0. For more, by Chernoff's bound, with the best λ,

    .. math:: P[S \ge t] \le M(\lambda)^n e^{-\lambda t} = e^{-x}, \qquad t = (n \ln M(\lambda) + x) / \lambda

    Any λ gives a t for which it holds, so that it need not be found exactly.

    Args:
        log_odds: x, at least ln 2.
    """
    if terms == 1:
        return scale * (log_odds - math.log1p(math.exp(-1 / scale)))
    return _sum_reach(((scale, terms),), log_odds)


def _sum_reach(draws: Draws, log_odds: float) -> float:
    """Return the same for draws of any scales: what n ln M(λ) is of one scale, Σ n_i ln M_i(λ) is of several."""
    rate = _least(lambda at: at * _slope(draws, at) - _log_moment(draws, at) >= log_odds, draws)
    return (_log_moment(draws, rate) + log_odds) / rate


@lru_cache(maxsize=4096)
def laplace_quantile(scale: float, log_tail: float, terms: int = 1) -> int:
    r"""Return the least z >= 0 that the sum of independent discrete Laplace draws exceeds with at most a given probability.

    For one draw it is exact, by

    .. math:: P[X > z] = q^{z + 1} / (1 + q)

    For more it is by `laplace_sum_quantile`.

    Returns:
        Records. By symmetry it is as improbable that the sum is below -z.
    """
    if terms == 1:
        return max(0, math.ceil(-scale * (log_tail - CARE + math.log1p(math.exp(-1 / scale)))) - 1)
    return laplace_sum_quantile(((scale, terms),), log_tail)


@lru_cache(maxsize=4096)
def laplace_sum_quantile(draws: Draws, log_tail: float) -> int:
    """Return the least z >= 0 for which `log_tail_of_sum`, an upper bound that is exact to ten digits, allows a given probability.

    For probabilities below e⁻⁵⁰⁰ it is by Chernoff's bound.
    """
    wanted = min(log_tail, math.log(0.5)) - _CARE_OF_SUMS
    holds = math.ceil(_sum_reach(draws, -wanted))
    if wanted < _LEAST_SUMMED:
        return holds
    fails, at_fails, at_holds = -1, math.log(0.5), log_tail_of_sum(draws, holds)
    is_halved = False
    while holds - fails > 1:  # by turns where a line between the two says it is, and half-way
        share = 0.5 if is_halved else (at_fails - wanted) / (at_fails - at_holds)
        middle = min(max(fails + math.ceil(share * (holds - fails)), fails + 1), holds - 1)
        reached = log_tail_of_sum(draws, middle)
        if reached <= wanted:
            holds, at_holds = middle, reached
        else:
            fails, at_fails = middle, reached
        is_halved = not is_halved
    return holds


def log_tail_of_sum(draws: Draws, z: int) -> float:
    r"""Return the logarithm of an upper bound of P[S > z], S the sum of independent draws, that is exact to ten digits.

    With M the product of the terms' M_i, any λ in (0, 1/s) for the largest s, any N, θ = 2π/N and

    .. math:: f(t) = \frac{M(\lambda + it) e^{-(\lambda + it)(z + 1)}}{1 - e^{-(\lambda + it)}}
        = \sum_{k} \sum_{j > z} P[S = k] \, e^{(\lambda + it)(k - j)}

    the mean of f over t = 0, θ, …, (N − 1)θ is the sum of those terms in which N divides k − j:

    .. math:: \sum_{r \in \mathbb{Z}} e^{\lambda r N} \, P[S > z + rN]

    None of them is negative, and the one with r = 0 is P[S > z]. So the mean is never less. The others are small where λN and
    (1/s − λ)N are large. Every M_i(λ + it) and the fraction shrink in absolute value as t goes from 0 to π, because

    .. math:: |1 - q e^{\lambda + it}|^2 = (1 - q e^\lambda)^2 + 4 q e^\lambda \sin^2(t / 2)

    so the terms from some t on, in number less than N, are together at most N |f(t)|, which is added in their place.

    Args:
        draws: two terms or more.
        z: >= 0.
    """
    largest = max(scale for scale, _ in draws)
    # below it N would be large, and nothing gained
    least = 1 / math.sqrt(sum(laplace_variance(scale) * terms for scale, terms in draws))
    rate = _least(lambda at: _slope(draws, at) >= z + 1, draws)
    rate = max(rate, min(least, 0.5 / largest))
    peak = _log_moment(draws, rate) - rate * (z + 1)
    points = math.ceil(max((_ALIASES - peak) / rate, 60 / (1 / largest - rate), 8))
    step, half = 2 * math.pi / points, points // 2

    def size(angles: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the logarithm of |M(λ + it) / M(λ)|, and the angle of M(λ + it)."""
        logs, turns = np.full_like(angles, -_log_moment(draws, rate)), np.zeros_like(angles)
        for scale, terms in draws:
            w = (np.sinh((rate + 1j * angles) / 2) / math.sinh(1 / (2 * scale))) ** 2
            logs -= terms * 0.5 * np.log1p(np.abs(w) ** 2 - 2 * w.real)
            turns += terms * np.arctan2(w.imag, 1 - w.real)
        return logs, turns

    first, last = 0, half
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (first, middle) if size(np.array([middle * step]))[0][0] < _LEFT_OUT else (middle, last)
    angles = step * np.arange(last + 1, dtype=np.float64)
    logs, turns = size(angles)
    values = np.exp(logs + 1j * (turns - angles * (z + 1))) / -np.expm1(-(rate + 1j * angles))
    weights = np.full(last + 1, 2.0)
    weights[0] = 1.0
    if 2 * last == points:
        weights[-1] = 1.0
    left_out = float(np.abs(values[-1])) if last < half else 0.0
    return peak + math.log(float((weights * values.real).sum()) / points + left_out)


def _log_moment(draws: Draws, rate: float) -> float:
    """Return ln M(λ), added up over the draws."""
    half = math.sinh(rate / 2)
    return -sum(terms * math.log1p(-((half / math.sinh(1 / (2 * scale))) ** 2)) for scale, terms in draws)


def _slope(draws: Draws, rate: float) -> float:
    """Return the derivative of ln M at λ, added up over the draws."""
    half, other = math.sinh(rate) / 2, math.sinh(rate / 2) ** 2
    return sum(terms * half / (math.sinh(1 / (2 * scale)) ** 2 - other) for scale, terms in draws)


def _least(holds: Callable[[float], bool], draws: Draws) -> float:
    """Return about the least λ in (0, 1/s) for which a condition holds that is true from some λ on; below 1/s if none does."""
    low, high = 0.0, (1 - 2**-40) / max(scale for scale, _ in draws)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def laplace_density(values: FloatArray, scale: float, terms: int = 1) -> FloatArray:
    r"""Return how likely values are under a sum of Laplace variables, up to a factor, of the same shape.

    .. math:: |x|^{n - 1/2} K_{n - 1/2}(|x| / s)

    with n terms of scale s and K the modified Bessel function of the second kind, which is e^{-|x| / s} up to a factor for n = 1.
    """
    far = np.abs(values) / scale
    if terms == 1:
        return np.exp(-far)
    if terms > _NORMAL_FROM:
        return np.exp(-(far**2) / (4 * terms))
    far = np.maximum(far, _NEAR_ZERO)
    from scipy.special import gammaln, kve

    density: FloatArray = np.exp((terms - 0.5) * np.log(far) - far - gammaln(terms)) * kve(terms - 0.5, far)
    return density


LAPLACE = Law(
    name="discrete_laplace",
    called="discrete Laplace noise",
    norm=1,
    samplers={"opendp": Sampling(discrete_laplace), "table": Sampling(laplace_by_table, LARGEST_TAU)},
    cost=lambda scale, _, sensitivity: LevelCost(epsilon=laplace_map(scale, sensitivity.l1)),
    fit=lambda cost, sensitivity: (laplace_scale_for(cost.epsilon, sensitivity.l1), 0),
    deviation=standard_deviation,
    variance=laplace_variance,
    reach=laplace_reach,
    quantile=laplace_quantile,
    sum_quantile=laplace_sum_quantile,
    density=laplace_density,
    derivation=lambda neighbours, records, is_root: l1_derivation(neighbours, records, is_root=is_root),
    refused={
        "rho": "discrete Laplace noise costs epsilon, which adds up, and no rho",
        "accountant": "discrete Laplace noise costs epsilon, which adds up",
    },
)
