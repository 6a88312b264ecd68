r"""Tails of the binomial law.

To import SciPy's takes a fifth of a second, longer than all else that a small release needs them for. So the terms of a tail that is
not long are added up: each follows from the one before,

.. math:: \frac{P[X = k + 1]}{P[X = k]} = \frac{n - k}{k + 1} \cdot \frac{p}{1 - p}

and the first one from Stirling's series, as Loader (2000) takes it, so that no large logarithms are subtracted from each other.
"""

import math

import numpy as np

from tasks.tree.axis import FloatArray, IntArray

_MOST_SUMMED = 20_000  # draws; of more, SciPy is faster
_DEVIATIONS = 9  # beyond the mean, after which nothing is left of a tail
_MORE = 40  # terms, for laws that are far from normal
_EXACT = 16  # factorials below this are taken as they are


def upper_tails(
    number: int | IntArray, chance: FloatArray, least: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    r"""Return :math:`P[X = k]`, :math:`P[X > k]` and :math:`E (X - k)_+` of binomial variables, all float64, shape (tails,).

    Args:
        number: n, >= 1; of each tail, or of all.
        chance: p, in (0, 1), shape (tails,).
        least: k, in 0, …, n, shape (tails,).
    """
    number = np.broadcast_to(number, chance.shape)
    if number.max(initial=0) > _MOST_SUMMED:
        return _tails_by_scipy(number, chance, least)
    is_below = least < number * chance  # there the other tail is the short one: that of n - X
    k, p = np.where(is_below, number - least, least), np.where(is_below, 1 - chance, chance)
    terms = int(_DEVIATIONS * math.sqrt((number * p * (1 - p)).max(initial=0))) + _MORE
    steps = np.arange(1.0, terms + 1)
    first = _probabilities(number, p, k)
    further = np.maximum((number + 1 - k)[:, None] - steps, 0)
    further /= k[:, None] + steps
    further *= (p / (1 - p))[:, None]
    np.cumprod(further, axis=1, out=further)
    more, excess = first * further.sum(axis=1), first * (further @ steps)
    more = np.where(is_below, np.maximum(1 - more - first, 0), more)
    return first, more, np.where(is_below, number * chance - least + excess, excess)


def _tails_by_scipy(n: IntArray, p: FloatArray, k: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    from scipy.special import betainc

    more = betainc(k + 1, np.maximum(n - k, 1), p) * (k < n)
    of_one_less = np.where(k > 0, betainc(np.maximum(k, 1), np.maximum(n - k, 1), p), 1.0) * (
        k < n
    )  # P[Bin(n - 1, p) >= k]
    return _probabilities(n, p, k), more, n * p * of_one_less - k * more


def _probabilities(n: IntArray, p: FloatArray, k: IntArray) -> FloatArray:
    """Return P[X = k], shape (tails,)."""
    scale = n / (2 * np.pi * np.maximum(k, 1) * np.maximum(n - k, 1))
    surprise = _deviance(k, n * p) + _deviance(n - k, n * (1 - p))
    probabilities: FloatArray = np.sqrt(scale) * np.exp(_stirling(n) - _stirling(k) - _stirling(n - k) - surprise)
    return probabilities


def _deviance(count: IntArray, mean: FloatArray) -> FloatArray:
    r"""Return :math:`x \log (x / m) - x + m` of counts x and means m."""
    away = count - mean
    deviance: FloatArray = count * np.log1p(np.where(count > 0, away / mean, 0.0)) - away
    return deviance


def _stirling(count: IntArray) -> FloatArray:
    r"""Return :math:`\log x! - x \log x + x - \tfrac12 \log(2 \pi \max(x, 1))`."""
    x = np.maximum(count, _EXACT).astype(np.float64)
    series = (1 / 12 - (1 / 360 - 1 / (1260 * x**2)) / x**2) / x
    return np.where(count < _EXACT, _OF_SMALL[np.minimum(count, _EXACT - 1)], series)


_OF_SMALL = np.array(
    [math.lgamma(x + 1) - x * math.log(max(x, 1)) + x - math.log(2 * math.pi * max(x, 1)) / 2 for x in range(_EXACT)]
)
