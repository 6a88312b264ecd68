r"""δ of composed discrete Gaussians by summing over their outcomes: no library, no grid of losses, nothing remembered.

A release's noise is chosen by `tasks.accounting.pld`, which composes privacy loss distributions on a grid. What it states is
checked here, where it can be, by another road: with one record per unit each measured count that changes has the loss
(1 - 2x) / 2σ² at an outcome x, so that a sum over outcomes of one σ is all that matters of them.
"""

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from tasks.tree.axis import FloatArray

Sums = tuple[FloatArray, FloatArray]  # the probability and the loss of each

_TAIL = 1e-24  # of one discrete Gaussian, at most, beyond what is summed; it is added to δ
_MOST_VALUES = 2**15  # of a sum of outcomes; beyond, convolving takes seconds
_MOST_TOGETHER = 2**15  # of all scales but the one with the most
_ROUNDING = 1e-9  # of δ: far more than the rounding of all sums together
_OF_DIFFERENCE = 1e-11  # of what two sums are subtracted from; likewise


def summed_delta(events: Sequence[tuple[float, int]], epsilon: float) -> float | None:
    r"""Return a δ, never too small and hardly too large, with which discrete Gaussians of sensitivity 1 are (ε, δ)-private together.

    .. math:: \delta = \sum_{s} P(s) \, (1 - e^{\epsilon - L(s)})_+, \qquad L(s) = \sum_j \frac{m_j - 2 s_j}{2 \sigma_j^2}

    where s_j is the sum of the m_j outcomes that have the scale σ_j. By symmetry both directions give the same δ.

    Args:
        events: each scale, records, with how many measured counts of it change by one.
        epsilon: ε >= 0.
    Returns:
        None without an event, or where the sums have too many values.
    Source:
        Canonne, Kamath and Steinke (2020), section 3, for the noise; Balle and Wang (2018) for δ as an expectation.
    """
    *others, most = sorted(2 * times * truncated_at(sigma) + 1 for sigma, times in events) or [0]
    if not events or most > _MOST_VALUES or math.prod(others) > _MOST_TOGETHER:
        return None
    tails = sum(times for _, times in events) * _TAIL
    *first, last = sorted((_of_sums(*event) for event in events), key=lambda of: len(of[0]))
    if first:
        probabilities, losses = reduce(_paired, first)
        delta = float(probabilities @ _beyond(*last, epsilon - losses))
    else:
        probabilities, losses = last
        delta = float(probabilities @ np.maximum(-np.expm1(np.minimum(epsilon - losses, 0.0)), 0.0))
    return delta * (1 + _ROUNDING) + tails


def truncated_at(sigma: float) -> int:
    """Return how far the outcomes of a discrete Gaussian are summed, records: beyond, it has less than `_TAIL`."""
    return math.ceil(sigma * math.sqrt(2 * math.log(8 * (sigma + 1) / _TAIL))) + 1


def _of_sums(sigma: float, times: int) -> Sums:
    """Return the probability and the loss of each sum of outcomes, the largest loss first."""
    end = truncated_at(sigma)
    outcomes = np.arange(-end, end + 1)
    one = np.exp(-((outcomes / sigma) ** 2) / 2)
    one /= one.sum()
    of_sums, power = np.ones(1), one
    for bit in reversed(range(times.bit_length())):
        if times >> (times.bit_length() - 1 - bit) & 1:
            of_sums = np.convolve(of_sums, power)
        if bit:
            power = np.convolve(power, power)
    sums = np.arange(len(of_sums)) - times * end
    return of_sums, (times - 2 * sums) / (2 * sigma**2)


def _paired(one: Sums, other: Sums) -> Sums:
    """Return the probability and the loss of each pair of sums."""
    return np.multiply.outer(one[0], other[0]).ravel(), np.add.outer(one[1], other[1]).ravel()


def _beyond(probabilities: FloatArray, losses: FloatArray, left: FloatArray) -> FloatArray:
    """Return, for each t of `left`, the sum of P(s) (1 - exp(t - L(s))) over the sums that lose more than t."""
    with np.errstate(divide="ignore"):  # of what is too improbable for a number: log 0 = -∞, and e to that is 0
        beyond = np.concatenate(([0.0], np.cumsum(probabilities)))
        weighed = np.log(np.concatenate(([0.0], np.cumsum(np.exp(np.log(probabilities) - losses)))))
    more = np.searchsorted(-losses, -left, side="left")  # how many sums lose more
    return np.maximum(beyond[more] * (1 + _OF_DIFFERENCE) - np.exp(left + weighed[more]), 0.0)
