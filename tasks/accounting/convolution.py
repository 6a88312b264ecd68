"""δ of composed discrete Gaussians by summing over their outcomes, and the largest ρ and least ε of noise of which few values matter.

A release's noise is chosen by `tasks.accounting.pld`, which composes privacy loss distributions on a grid. What it states is
checked here, where it can be, by another road: with one record per unit each measured count that changes has the loss
(1 - 2x) / 2σ² at an outcome x, so that a sum over outcomes of one σ is all that matters of them.

With one scale and m counts that change by one, an outcome s (the sum of m draws) loses (m - 2s) ρ/m. Where that reaches ε, the outcome
begins to count towards δ, which jumps upwards there and falls again as ρ grows, since s itself gets less probable. So δ falls to a
local minimum wherever an outcome's loss is exactly ε, and the largest ρ that holds lies just above one of these points. With much
noise they are so close, and the teeth so low, that δ is as good as that of normal noise.
"""

import math
from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
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


Events = tuple[tuple[float, int], ...]  # scales, records, and how many counts of each change by one

_FEW_VALUES = 2**10  # of the sum of all outcomes of one scale, for them to be few
_MOST_LOSSES = 2**18  # of all scales together
_NEAR = 1e-3  # relative: of points nearer than this one is looked at


def has_few_values(ways: Sequence[Events]) -> bool:
    """Return whether few values of some noise matter, whatever a unit does."""
    values = [[2 * times * truncated_at(sigma) + 1 for sigma, times in events] for events in ways]
    return all(max(of, default=1) <= _FEW_VALUES and math.prod(of) <= _MOST_LOSSES for of in values)


def largest_rho_of_few(ways: Sequence[Events], rho: float, epsilon: float, delta: float) -> float | None:
    r"""Return the largest ρ with which noise is (ε, δ)-differentially private, by going down through all that could be it.

    It starts from a ρ that is too large for certain. By Chernoff's bound, with losses of mean ρ and variance proxy 2ρ,

    .. math:: \delta \ge 1 - 2 e^{-(\rho - \epsilon)^2 / 4 \rho}

    Nor can all scales together keep what one of them does not keep alone.

    Args:
        ways: what may change, for each kind of unit that may cost most; where nothing changes, there is no event.
        rho: at which that is the noise; at other ρ every scale is multiplied by the same factor.
    Returns:
        None where some noise on the way has too many values.
    """
    log = math.log(2 / (1 - delta))
    most = epsilon + 2 * log + 2 * math.sqrt(log * (log + epsilon))
    highest = math.inf
    for sigma, times in {event for events in ways for event in events}:
        alone = [((sigma, times),)]
        top = _top(alone, rho, epsilon, delta, most * 2 * sigma**2 / times * rho)
        if top is None:
            return None
        highest = min(highest, top)
    is_one = all(len(events) == 1 for events in ways)
    return highest if is_one else _top(ways, rho, epsilon, delta, highest)


def least_epsilon_of_few(ways: Sequence[Events], delta: float, least: float, most: float) -> float | None:
    """Return the least ε from `least` to `most` with which noise is (ε, δ)-differentially private; None where there is none."""
    low, high = least, most
    for epsilon in (most, least):
        reached = _delta(ways, 1.0, epsilon)
        if reached is None or (epsilon == most and reached > delta):
            return None
        if epsilon == least and reached <= delta:
            return least
    while low < (middle := math.sqrt(low * high)) < high:
        reached = _delta(ways, 1.0, middle)
        low, high = (low, middle) if reached is not None and reached <= delta else (middle, high)
    return high


def _top(ways: Sequence[Events], rho: float, epsilon: float, delta: float, highest: float) -> float | None:
    """Return the largest ρ up to `highest` that holds; None where some noise on the way has too many values."""

    def delta_at(other: float) -> float | None:
        return _delta(ways, math.sqrt(rho / other), epsilon)

    above = highest
    for point in _points(ways, rho, epsilon, highest):
        reached = delta_at(point)
        if reached is None:
            return None
        if reached <= delta:
            low, high = point, above
            while high - low > 1e-13 * high:
                middle = (low + high) / 2
                reached = delta_at(middle)
                low, high = (middle, high) if reached is not None and reached <= delta else (low, middle)
            return low
        above = point
    return None


def _delta(ways: Sequence[Events], factor: float, epsilon: float) -> float | None:
    """Return δ where all scales are multiplied by a factor; None where it cannot be summed."""
    deltas = [summed_delta([(sigma * factor, times) for sigma, times in events], epsilon) for events in ways if events]
    return None if None in deltas else max(of for of in deltas if of is not None)


def _points(ways: Sequence[Events], rho: float, epsilon: float, highest: float) -> Iterator[float]:
    """Yield the ρ, from `highest` down, at which some outcome loses ε; of several kinds of units also points between them."""
    yield highest
    while highest > 0:
        lowest = highest / 2
        losing = [_losing(events, rho, epsilon, lowest, highest) for events in ways if events]
        if len(ways) > 1:  # δ is the largest of several, and lowest where one falls as another one rises
            losing.append(np.geomspace(lowest, highest, math.ceil(1 / _NEAR), endpoint=False))
        points = np.sort(np.concatenate(losing))[::-1]
        bins = np.floor(np.log(points / lowest) / _NEAR)
        yield from points[np.append(True, bins[1:] < bins[:-1])[: len(points)]].tolist()
        highest = lowest


def _losing(events: Events, rho: float, epsilon: float, lowest: float, highest: float) -> FloatArray:
    """Return all ρ within a range at which some outcome loses ε."""
    losses = []
    for sigma, times in events:  # at ρ = 1
        furthest = times * truncated_at(sigma * math.sqrt(rho / lowest))
        losses.append((times - 2 * np.arange(-furthest, times)) / (2 * sigma**2 * rho))
    together = reduce(lambda some, more: np.add.outer(some, more).ravel(), losses)
    at = epsilon / together[together > 0]
    within: FloatArray = at[(at >= lowest) & (at < highest)]
    return within
