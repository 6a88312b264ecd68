r"""The largest ρ, and the least ε, of noise of which few values matter: there δ as a function of ρ has teeth.

With one scale and m counts that change by one, an outcome s (the sum of m draws) loses (m - 2s) ρ/m. Where that reaches ε, the outcome
begins to count towards δ, which jumps upwards there and falls again as ρ grows, since s itself gets less probable. So δ falls to a
local minimum wherever an outcome's loss is exactly ε, and the largest ρ that holds lies just above one of these points. With much
noise they are so close, and the teeth so low, that δ is as good as that of normal noise.
"""

import math
from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np

from tasks.accounting.convolution import summed_delta, truncated_at
from tasks.tree.axis import FloatArray

Events = Sequence[tuple[float, int]]  # scales, records, and how many counts of each change by one

_MOST_VALUES = 2**10  # of the sum of all outcomes of one scale, for them to be few
_MOST_LOSSES = 2**18  # of all scales together
_NEAR = 1e-3  # relative: of points nearer than this one is looked at


def has_few_values(ways: Sequence[Events]) -> bool:
    """Return whether few values of some noise matter, whatever a unit does."""
    values = [[2 * times * truncated_at(sigma) + 1 for sigma, times in events] for events in ways]
    return all(max(of, default=1) <= _MOST_VALUES and math.prod(of) <= _MOST_LOSSES for of in values)


def largest_rho_of_few(ways: Sequence[Events], rho: float, epsilon: float, delta: float) -> float | None:
    r"""Return the largest ρ with which noise is (ε, δ)-differentially private, by going down through all that could be it.

    It starts from a ρ that is too large for certain. By Chernoff's bound, with losses of mean ρ and variance proxy 2ρ,

    .. math:: \delta \ge 1 - 2 e^{-(\rho - \epsilon)^2 / 4 \rho}

    Nor can all scales together keep what one of them does not keep alone.

    Args:
        ways: what may change, for each kind of unit that may cost most; where nothing changes, there is no event.
        rho: at which that is the noise; at other ρ every scale is multiplied by the same factor.
        epsilon: ε > 0.
        delta: δ, in (0, 1).
    Returns:
        None where some noise on the way has too many values.
    """
    log = math.log(2 / (1 - delta))
    most = epsilon + 2 * log + 2 * math.sqrt(log * (log + epsilon))
    highest = math.inf
    for sigma, times in {event for events in ways for event in events}:
        alone = [[(sigma, times)]]
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
        found = _delta(ways, 1.0, epsilon)
        if found is None or (epsilon == most and found > delta):
            return None
        if epsilon == least and found <= delta:
            return least
    while low < (middle := math.sqrt(low * high)) < high:
        found = _delta(ways, 1.0, middle)
        low, high = (low, middle) if found is not None and found <= delta else (middle, high)
    return high


def _top(ways: Sequence[Events], rho: float, epsilon: float, delta: float, highest: float) -> float | None:
    """Return the largest ρ up to `highest` that holds; None where some noise on the way has too many values."""

    def delta_at(other: float) -> float | None:
        return _delta(ways, math.sqrt(rho / other), epsilon)

    above = highest
    for point in _points(ways, rho, epsilon, highest):
        found = delta_at(point)
        if found is None:
            return None
        if found <= delta:
            low, high = point, above
            while high - low > 1e-13 * high:
                middle = (low + high) / 2
                found = delta_at(middle)
                low, high = (middle, high) if found is not None and found <= delta else (low, middle)
            return low
        above = point
    return None


def _delta(ways: Sequence[Events], factor: float, epsilon: float) -> float | None:
    """Return δ where all scales are multiplied by a factor; None where it cannot be summed."""
    found = [summed_delta([(sigma * factor, times) for sigma, times in events], epsilon) for events in ways if events]
    return None if None in found else max(of for of in found if of is not None)


def _points(ways: Sequence[Events], rho: float, epsilon: float, highest: float) -> Iterator[float]:
    """Yield the ρ, from `highest` down, at which some outcome loses ε; of several kinds of units also points between them."""
    yield highest
    while highest > 0:
        lowest = highest / 2
        found = [_losing(events, rho, epsilon, lowest, highest) for events in ways if events]
        if len(ways) > 1:  # δ is the largest of several, and lowest where one falls as another one rises
            found.append(np.geomspace(lowest, highest, math.ceil(1 / _NEAR), endpoint=False))
        points = np.sort(np.concatenate(found))[::-1]
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
