"""Composed privacy loss distributions: the least noise of one release that keeps (ε, δ), for one record per unit."""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any

from tasks.accounting.allocation import Allocation, Measurement, rho_of, ways_of
from tasks.accounting.conversions import check_delta, check_epsilon, zcdp_epsilon
from tasks.accounting.convolution import Events, has_few_values, largest_rho_of_few, least_epsilon_of_few, summed_delta

LEAST_PLD_DELTA = 1e-12  # below it the truncated tails of composed privacy loss distributions would matter
LARGEST_PLD_EPSILON = 100.0  # above it, and with delta above epsilon, they take gigabytes, and give no privacy
LARGEST_PLD_SCALE = 2.0**14  # above it the noise has too many values to list

_FAR_BELOW = -35.0  # deviations
_NOTHING = 1e-300  # a δ of 0, where its logarithm is taken
_INTERVAL = 1e-4  # between losses, at most: they are rounded up to its multiples
_NEAR_RHO = 1e-5  # how far ρ may be from the crossing, of itself, at first: its losses are rounded anew, so δ has steps
_NEAR_EPSILON = 1e-8  # and ε, which moves no loss
_MOST_STEPS = 6  # of the quick search, each of which may be twice as far from it; it takes two to four
_STEEPEST = 4.0  # how much faster δ may change than that of normal noise, and how much more slowly, as logarithms
_WIDEST = math.log(1e6)  # how far from its start it looks, in logarithms

_remembered: dict[str, float] = {}  # δ, by what it is of: see `pld_delta`


def pld_delta(measurements: Sequence[Measurement], epsilon: float) -> float:
    """Return δ of the composed privacy loss distribution of a release's discrete Gaussians, for one record per unit.

    With one record per unit, a unit moves as many counts of a level by one as it moves it in squares: two under substitution, one
    under add_remove, and a measured total by one or not at all. Each is a discrete Gaussian of sensitivity 1. δ is that of the kind of
    unit with the largest: by symmetry it is the same in both directions.

    Where few values matter, the outcomes are summed. Otherwise distributions are composed, which takes a tenth of a second, and importing
    what composes a second or two. So what was composed is remembered, and `remember_deltas` adds what an earlier process has
    composed. `pld_holds` computes afresh.

    Source:
        Koskela, Jälkö and Honkela (2020); Doroshenko et al. (2022); Google's dp-accounting, pessimistic estimates. The
        interval, at most min(1e-4, ε/20,000), moves ρ by less than a part in a thousand. It is a half, a quarter … of 1e-4, so
        that δ falls with ε as it should wherever it is the same.
    """
    ways = _ways(measurements)
    is_summed = has_few_values(ways)
    return max((_summed(of, epsilon) if is_summed else _composed_once(of, epsilon) for of in ways), default=0.0)


def _composed_once(events: Events, epsilon: float) -> float:
    of = f"{epsilon!r}: " + " ".join(f"{sigma!r}x{times}" for sigma, times in events)
    if of not in _remembered:
        _remembered[of] = _delta(events, epsilon)
    return _remembered[of]


def remember_deltas(deltas: Mapping[str, float]) -> None:
    """Add what `remembered_deltas` returned in another process, with the same version of what composes."""
    _remembered.update(deltas)


def remembered_deltas() -> dict[str, float]:
    """Return every δ that `pld_delta` has composed or was given, by a text of ε, the scales and how often each occurs."""
    return dict(_remembered)


def pld_holds(measurements: Sequence[Measurement], epsilon: float, delta: float) -> bool:
    """Return whether measurements are (ε, δ)-differentially private, by a computation that uses nothing remembered.

    Where outcomes can be summed, they are: unless few of them matter, that is not the computation that chose the noise.
    """
    return all(_summed(events, epsilon) <= delta for events in _ways(measurements))


def _summed(events: Events, epsilon: float) -> float:
    """Return δ by summing over outcomes, or by composing where there are too many."""
    delta = summed_delta(events, epsilon)
    return _delta(events, epsilon) if delta is None else delta


def _ways(measurements: Sequence[Measurement]) -> tuple[Events, ...]:
    """Return, for each kind of unit that may cost most, what changes."""
    return tuple(dict.fromkeys(_events(measurements, way) for way in ways_of(measurements)))


def _events(measurements: Sequence[Measurement], way: Sequence[int]) -> Events:
    """Return the scales, and of each how many discrete Gaussians of sensitivity 1 there are."""
    events: dict[float, int] = {}
    for measurement, square in zip(measurements, way, strict=True):
        if square:
            events[measurement.sigma] = events.get(measurement.sigma, 0) + square
    return tuple(events.items())


def _delta(events: Events, epsilon: float) -> float:
    interval = _INTERVAL * 2.0 ** min(math.floor(math.log2(epsilon / (20_000 * _INTERVAL))), 0)
    return float(_composed(events, interval).get_delta_for_epsilon(epsilon)) if events else 0.0


@lru_cache(maxsize=2)  # of the last ones: the curve of a plan asks for several ε
def _composed(events: Events, interval: float) -> Any:  # dp-accounting's PrivacyLossDistribution
    from dp_accounting.pld import privacy_loss_distribution

    losses = (
        privacy_loss_distribution.from_discrete_gaussian_mechanism(
            sigma, sensitivity=1, value_discretization_interval=interval, pessimistic_estimate=True
        ).self_compose(times)
        for sigma, times in events
    )
    return reduce(lambda composed, loss: composed.compose(loss), losses)


@lru_cache(maxsize=256)
def pld_rho(allocation: Allocation, epsilon: float, delta: float) -> Fraction:
    """Return the largest ρ that holds, to a part in a few thousand at worst."""
    check_pld_within(allocation, epsilon, delta)
    start = _normal_rho(epsilon, delta)

    def delta_at(rho: float) -> float:
        return pld_delta(allocation.measurements(Fraction(rho)), epsilon)

    ways = _ways(allocation.measurements(Fraction(start)))
    rho = largest_rho_of_few(ways, start, epsilon, delta) if has_few_values(ways) else None
    if rho is None:
        rho = _crossing(delta_at, lambda rho: _normal_log_delta(rho, epsilon), delta, start, _NEAR_RHO)
    step = 2.0**-48
    while delta_at(rho) > delta:  # the scales are rounded to floats
        rho, step = rho * (1 - step), 2 * step
    return Fraction(rho)


def pld_epsilon(measurements: Sequence[Measurement], delta: float) -> float:
    """Return the least ε that holds, to a part in a few thousand at worst."""
    rho = rho_of(measurements)
    start = min(zcdp_epsilon(rho, delta), LARGEST_PLD_EPSILON)
    check_pld(measurements, start, delta)
    if start == LARGEST_PLD_EPSILON and pld_delta(measurements, start) > delta:
        raise ValueError(f"accountant pld needs epsilon <= {LARGEST_PLD_EPSILON:g}; use zcdp.")
    ways = _ways(measurements)
    if has_few_values(ways) and (few := least_epsilon_of_few(ways, delta, 10 * delta, start)):
        return few
    return 1 / _crossing(
        lambda inverse: pld_delta(measurements, 1 / inverse),
        lambda inverse: _normal_log_delta(float(rho), 1 / inverse),
        delta,
        1 / start,
        _NEAR_EPSILON,
    )


def _normal_log_delta(rho: float, epsilon: float) -> float:
    r"""Return the logarithm of δ of normal noise that costs ρ.

    .. math:: \delta = \Phi(\mu/2 - \epsilon/\mu) - e^\epsilon \Phi(-\mu/2 - \epsilon/\mu), \qquad \mu = \sqrt{2 \rho}

    Source:
        Balle and Wang (2018).
    """
    mu = math.sqrt(2 * rho)
    above, below = _log_below(mu / 2 - epsilon / mu), epsilon + _log_below(-mu / 2 - epsilon / mu)
    return above + math.log(-math.expm1(below - above)) if below < above else -math.inf


def _log_below(x: float) -> float:
    """Return log Φ(x) to the last digits, as `scipy.special.log_ndtr` does, whose import takes a tenth of a second."""
    if x < _FAR_BELOW:  # where Φ is hardly a number: its asymptotic series
        y = x**-2
        series = -y * (1 - 3 * y * (1 - 5 * y * (1 - 7 * y)))
        return math.log1p(series) - math.log(-x * math.sqrt(2 * math.pi)) - x * x / 2
    beyond = math.erfc(abs(x) / math.sqrt(2)) / 2
    return math.log(beyond) if x < 0 else math.log1p(-beyond)


def _normal_rho(epsilon: float, delta: float) -> float:
    """Return the largest ρ with which normal noise is (ε, δ)-differentially private."""
    return _root(
        lambda rho: _normal_log_delta(rho, epsilon), math.log(delta), epsilon**2 / (epsilon - 4 * math.log(delta))
    )


def _crossing(
    delta_at: Callable[[float], float],
    log_normal: Callable[[float], float],
    delta: float,
    start: float,
    nearness: float,
) -> float:
    """Return the largest x with delta_at(x) <= delta, to a few times the nearness; delta_at grows with x > 0.

    Discrete Gaussians are nearly as private as normal noise, whose δ takes no time. So the search goes where that noise would
    have the δ wanted, and corrects by what it finds there, from the second step on along the line through the last two.

    Args:
        delta_at: what is searched; slow.
        log_normal: the logarithm of δ of normal noise instead.
        delta: what is to be kept.
        start: an x not far away.
        nearness: how far from the crossing x may be, of itself.
    """
    goal = math.log(delta)
    sought, slope, before = goal, 1.0, None
    for step in range(_MOST_STEPS):
        x = _root(log_normal, sought, start)
        normal, reached = log_normal(x), math.log(max(delta_at(x), _NOTHING))
        near = log_normal(x * (1 + nearness * 2**step)) - normal
        if goal - near <= reached <= goal:
            return x
        if before and normal != before[0]:
            slope = min(max((reached - before[1]) / (normal - before[0]), 1 / _STEEPEST), _STEEPEST)
        before = normal, reached
        sought = normal + (goal - near / 2 - reached) / slope
        if not -math.inf < sought < 0:  # no logarithm of a δ: this is not like normal noise
            break
    return _bracketed_crossing(delta_at, delta, start, nearness)


def _root(rises: Callable[[float], float], value: float, start: float) -> float:
    """Return the x at which a function reaches a value, within the widest range of the search; the function rises with x > 0."""
    low, high = -_WIDEST, _WIDEST
    while low < (middle := (low + high) / 2) < high and high - low > _NEAR_EPSILON / 1000:
        low, high = (low, middle) if rises(start * math.exp(middle)) > value else (middle, high)
    return start * math.exp(low)


def _bracketed_crossing(delta_at: Callable[[float], float], delta: float, start: float, nearness: float) -> float:
    """Return the same by bracketing, for noise that is not like normal noise."""
    from scipy.optimize import brentq

    low = start
    while delta_at(low) > delta:
        low /= 1.25
    high = low * 1.25
    while delta_at(high) <= delta:
        low, high = high, high * 1.25
    crossing = float(
        brentq(lambda x: math.log(max(delta_at(x), _NOTHING) / delta), low, high, rtol=min(1e-7, nearness))
    )
    while delta_at(crossing) > delta:
        crossing *= 1 - nearness / 10
    return crossing


def check_pld_within(allocation: Allocation, epsilon: float, delta: float) -> None:
    """Refuse like `check_pld`, where the noise is not chosen yet."""
    check_pld((), epsilon, delta)  # before anything is computed of an ε far out of range
    check_pld(allocation.measurements(Fraction(_normal_rho(epsilon, delta))), epsilon, delta)


def check_pld(measurements: Sequence[Measurement], epsilon: float, delta: float) -> None:
    """Refuse values outside the range for which this module composes privacy loss distributions."""
    check_epsilon(epsilon)
    check_delta(delta)
    least_delta = LEAST_PLD_DELTA * (1 - 2**-9)  # what `least_with_tau` leaves of it
    if not (delta >= least_delta and 10 * delta <= min(epsilon, 1.0) and epsilon <= LARGEST_PLD_EPSILON):
        raise ValueError(
            f"accountant pld needs delta from {LEAST_PLD_DELTA:g} to 0.1, delta at most a tenth of epsilon, and"
            f" epsilon at most {LARGEST_PLD_EPSILON:g}; use zcdp."
        )
    if any(measurement.sigma > LARGEST_PLD_SCALE for measurement in measurements):
        raise ValueError("accountant pld needs noise with sigma <= 2**14; use zcdp.")
