"""Discrete Laplace noise: its variance and its quantiles. No noise is looked at."""

import math

from tasks.laws.law import CARE


def standard_deviation(scale: float) -> float:
    r"""Return the standard deviation of discrete Laplace noise, :math:`\sqrt{2q} / (1 - q)` with :math:`q = e^{-1/s}`."""
    return math.sqrt(2 * math.exp(-1 / scale)) / -math.expm1(-1 / scale)


def laplace_variance(scale: float) -> float:
    """Return the variance of discrete Laplace noise of scale s, records squared."""
    return standard_deviation(scale) ** 2


def laplace_reach(scale: float, terms: int, log_odds: float) -> float:
    """Return what n draws of scale s reach in sum with a probability of at most exp(-x): as `laplace_quantile` has it, for one."""
    if terms != 1:
        raise ValueError("the bound is for one draw.")
    return max(0.0, scale * (log_odds - math.log1p(math.exp(-1 / scale)))) + 1


def laplace_quantile(scale: float, log_tail: float) -> int:
    r"""Return the least z >= 0 that discrete Laplace noise exceeds with at most a given probability.

    .. math:: P[X > z] = q^{z + 1} / (1 + q), \qquad q = e^{-1/s}

    Args:
        scale: s, records, > 0.
        log_tail: the natural logarithm of the probability, < 0.
    """
    return max(0, math.ceil(-scale * (log_tail - CARE + math.log1p(math.exp(-1 / scale)))) - 1)
