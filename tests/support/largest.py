"""The largest ρ of a discrete Gaussian that holds, by an exhaustive search: it shares no code with the search of releases."""

import math

import numpy as np
from scipy.special import log_ndtr

MUCH = 40.0  # σ from which noise is as good as normal noise, whose δ has no teeth


def outcomes(sigma, times):
    """Return the probabilities of the sum of so many discrete Gaussians, from the least outcome that matters to the largest."""
    end = math.ceil(11 * sigma) + 2
    one = np.exp(-((np.arange(-end, end + 1) / sigma) ** 2) / 2)
    of_all = np.ones(1)
    for _ in range(times):
        of_all = np.convolve(of_all, one / one.sum())
    return of_all


def delta_of(events, epsilon):
    """Return δ of counts that change by one, by comparing what is as probable on both sides for every sum of outcomes."""
    here = there = np.ones(1)
    for sigma, times in events:
        of_all, padding = outcomes(sigma, times), np.zeros(times)
        here = np.multiply.outer(here, np.append(of_all, padding)).ravel()
        there = np.multiply.outer(there, np.append(padding, of_all)).ravel()
    return float(np.maximum(here - math.exp(epsilon) * there, 0).sum())


def changes(allocation, rho):
    """Return the scales, and how many counts of each change by one: of a unit that stays, and with a measured total of one that comes."""
    alone = rho / float(allocation.joint_part)
    parts = zip(allocation.shares, allocation.squares, strict=True)
    sigmas = [math.sqrt(square / (2 * alone * float(share))) for share, square in parts]
    if allocation.total is None:
        return [_merged(sigmas, allocation.squares)]
    return [_merged(sigmas[1:], allocation.squares[1:]), _merged(sigmas, (1,) * len(sigmas))]


def exhaustive(allocation, delta, epsilons, step=2e-4):
    """Yield the largest ρ of each ε, the largest first, by one search down through all ρ, since a larger ε allows no smaller ρ; a measured total is first."""
    rho = 2 * epsilons[0] + 10
    for epsilon in epsilons:
        while not _holds(allocation, rho, epsilon, delta):
            rho *= 1 - step
        yield rho


def _holds(allocation, rho, epsilon, delta):
    ways = changes(allocation, rho)
    if min(sigma for events in ways for sigma, _ in events) > MUCH:
        return _normal_delta(rho, epsilon) <= delta
    return all(delta_of(events, epsilon) <= delta for events in ways)


def _normal_delta(rho, epsilon):
    """Return δ of normal noise that costs ρ (Balle and Wang 2018)."""
    mu = math.sqrt(2 * rho)
    return float(math.exp(log_ndtr(mu / 2 - epsilon / mu)) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)))


def _merged(sigmas, squares):
    """Return scales with how often each occurs."""
    found = dict[float, int]()
    for sigma, square in zip(sigmas, squares, strict=True):
        near = next((other for other in found if math.isclose(sigma, other, rel_tol=1e-12)), sigma)
        found[near] = found.get(near, 0) + square
    return list(found.items())
