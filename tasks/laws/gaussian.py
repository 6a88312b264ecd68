"""The discrete Gaussian: its variance, its quantiles, and the law. No noise is looked at."""

import math
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from tasks.accounting.allocation import scale_for
from tasks.accounting.opendp import privacy_map
from tasks.accounting.sensitivity import square_root_up
from tasks.laws.law import CARE, Draws, Law, LevelCost, Sampling
from tasks.laws.samplers import LARGEST_TAU, discrete_gaussian, table_noise
from tasks.tree.axis import FloatArray

_NORMAL = NormalDist()
_MOST_LISTED = 2.0**13  # of σ: beyond it a bound on the tail is at most 1 too far
_LEAST_LISTED = -500.0  # of a logarithm of a probability: below it sums of floats say nothing
_SMOOTH = 3.0  # of σ: from here on the variance is σ² to the last digit of a float
_LEAST_DEVIATION = 1e-9  # records: what is stated of less, which no reader tells from 0 (0 stands for an exact level), and floats divide by
_REACH = 12.0  # in units of one over the standard deviation, beyond which a characteristic function is taken to be 0
_LOST = 1e-15  # of a logarithm, by every term whose characteristic function is multiplied
_POINTS = 4096  # at which that is summed up


@lru_cache(maxsize=256)
def gaussian_variance(sigma: float) -> float:
    """Return the variance of a discrete Gaussian of scale σ, records squared: σ² but for little noise, of which it is less.

    Args:
        sigma: > 0, records.
    """
    if sigma > _SMOOTH:
        return sigma**2
    values = np.arange(1, math.ceil(40 * sigma) + 2)
    weights = np.exp(-((values / sigma) ** 2) / 2)
    return float(2 * (values**2 * weights).sum() / (1 + 2 * weights.sum()))


def gaussian_deviation(sigma: float) -> float:
    """Return the standard deviation of a discrete Gaussian of scale σ, records: σ itself where it is that to nine digits, from 1.2 on."""
    deviation = max(math.sqrt(gaussian_variance(sigma)), _LEAST_DEVIATION)
    return sigma if math.isclose(deviation, sigma, rel_tol=1e-9) else deviation


@lru_cache(maxsize=4096)
def gaussian_quantile(sigma: float, log_tail: float, terms: int = 1) -> int:
    """Return the least z >= 0 that the sum of independent discrete Gaussians exceeds with at most a given probability.

    For one term with a σ up to 2¹³ it is exact. Otherwise it is by the bound of `gaussian_sum_quantile`.

    Args:
        sigma: σ of one term, records, > 0.
        log_tail: the natural logarithm of the probability, < 0; probabilities may be smaller than floats are.
    Returns:
        Records. By symmetry it is as improbable that the sum is below -z.
    Source:
        Canonne, Kamath and Steinke (2020) for the discrete Gaussian.
    """
    if terms == 1 and sigma <= _MOST_LISTED and log_tail - CARE > _LEAST_LISTED:
        return _listed(sigma, math.exp(log_tail - CARE))
    return gaussian_sum_quantile(((sigma, terms),), log_tail)


def normal_quantile(log_tail: float) -> float:
    """Return what a standard normal variable exceeds with a probability, given its logarithm; >= 0.

    Where the probability is a number, Python's own quantile has all digits, and SciPy need not be imported.
    """
    log_tail = min(log_tail, math.log(0.5))
    if log_tail > _LEAST_LISTED:
        return 0.0 - _NORMAL.inv_cdf(math.exp(log_tail))
    from scipy.special import ndtri_exp

    return -float(ndtri_exp(log_tail))


@lru_cache(maxsize=4096)
def gaussian_sum_quantile(draws: Draws, log_tail: float) -> int:
    r"""Return a z >= 0 that the sum S of independent discrete Gaussians of any scales exceeds with at most a given probability.

    .. math:: P[S > z] \le \kappa \, Q(z / \sqrt V), \qquad V = \sum_i \sigma_i^2, \qquad \kappa = P[S = 0] \, \sqrt{2 \pi V}

    It is at most 1 larger than the least z where every σ is 1 or more. The points x of ℤⁿ with the sum s are x = (s σ_i² / V)_i + y with
    Σ y_i = 0, so that Σ x_i²/σ_i² = s²/V + Σ y_i²/σ_i²: they lie on a lattice that is moved, and a lattice that is moved has no larger sum of
    Gaussians. So P[S = s] ≤ P[S = 0] exp(−s²/2V), and the sum over s > z is below its integral.

    Source:
        Banaszczyk (1993) for lattices that are moved.
    """
    deviations = normal_quantile(log_tail - CARE - gaussian_log_kappa(draws))
    return max(0, math.ceil(math.sqrt(sum(sigma**2 * terms for sigma, terms in draws)) * deviations))


def gaussian_density(values: FloatArray, sigma: float, terms: int = 1) -> FloatArray:
    """Return how likely values are under a sum of Gaussians of scale σ, up to a factor, of the same shape."""
    return np.exp(-((values / sigma) ** 2) / (2 * terms))


def _reach(sigma: float, terms: int, log_odds: float) -> float:
    """Return σ √n √(2x): a discrete Gaussian is sub-Gaussian, E exp(λZ) ≤ exp(λ²σ²/2) (Canonne, Kamath and Steinke, 2020)."""
    return sigma * math.sqrt(terms) * math.sqrt(2 * log_odds)


def _listed(sigma: float, tail: float) -> int:
    """Return the quantile of one discrete Gaussian from a list of its probabilities, smallest first so that none is lost."""
    values = np.arange(math.ceil(40 * sigma) + 2)
    weights = np.exp(-((values / sigma) ** 2) / 2)
    beyond = np.cumsum(weights[::-1])[::-1]  # of all from a value on
    whole = 2 * beyond[0] - 1
    return max(0, int(np.count_nonzero(beyond > tail * whole)) - 1)


@lru_cache(maxsize=4096)
def gaussian_log_kappa(draws: Draws) -> float:
    r"""Return the logarithm of P[S = 0] √(2πV), by P[S = 0] = 1/2π ∫ Π φ_i(t)^n_i dt, φ_i the characteristic function of a term."""
    scale = math.sqrt(sum(sigma**2 * terms for sigma, terms in draws))  # for little noise far more than the deviation
    deviation = math.sqrt(sum(gaussian_variance(sigma) * terms for sigma, terms in draws))
    if not deviation:  # so little noise that floats do not have it: P[S = 0] is 1 at most
        return math.log(scale * math.sqrt(2 * math.pi))
    reach = min(_REACH, math.pi * deviation)
    angles = np.linspace(0, reach, _POINTS + 1) / deviation
    logs = np.zeros_like(angles)
    for sigma, terms in draws:
        if sigma >= 1:  # a Gaussian with the deviation 1/σ, wrapped around the circle, where σ is not small
            images = np.arange(-1, 2)
            wrapped = np.exp(-((sigma * (angles[:, None] - 2 * np.pi * images)) ** 2) / 2).sum(axis=1)
        else:
            values = np.arange(1, 41)
            wrapped = 1 + 2 * (np.cos(np.outer(angles, values)) * np.exp(-((values / sigma) ** 2) / 2)).sum(axis=1)
        with np.errstate(divide="ignore"):
            logs += terms * np.log(np.maximum(wrapped / wrapped[0], 0))
    integral = float(np.trapezoid(np.exp(logs), dx=reach / _POINTS)) * math.sqrt(2 / math.pi)
    return math.log(integral * scale / deviation) + CARE + _LOST * sum(terms for _, terms in draws)


GAUSSIAN = Law(
    name="discrete_gaussian",
    called="discrete Gaussian noise",
    norm=2,
    samplers={"opendp": Sampling(discrete_gaussian), "table": Sampling(table_noise, LARGEST_TAU)},
    cost=lambda scale, _, sensitivity: LevelCost(rho=privacy_map(scale, square_root_up(sensitivity.l2_squared))),
    fit=lambda cost, sensitivity: (scale_for(Fraction(cost.rho), sensitivity.l2_squared), 0),
    deviation=gaussian_deviation,
    variance=gaussian_variance,
    reach=_reach,
    quantile=gaussian_quantile,
    sum_quantile=gaussian_sum_quantile,
    density=gaussian_density,
)
