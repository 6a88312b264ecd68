"""Noise with a seed, and what coverage falls to by chance: for tests that count how often intervals miss."""

from itertools import count
from math import log

import numpy as np

from tasks.laws.law import Sampler
from tasks.tree.axis import IntArray

FALSE_ALARM = 1e-6


def sampler_of(law: str, *seed: int, reach: int = 150, first: int = 0) -> Sampler:
    """Return a sampler that adds noise of a law, drawn from a list of its probabilities.

    Args:
        law: `gaussian` or `laplace`.
        seed: of all calls; each has a number of its own besides, since each is a level, or a part of it, in order.
        reach: the furthest noise.
        first: the number of the first call.
    """
    calls = count(first)

    def sample(true_counts: IntArray, scale: float) -> IntArray:
        values = np.arange(-reach, reach + 1)
        logs = -((values / scale) ** 2) / 2 if law == "gaussian" else -np.abs(values) / scale
        steps = np.cumsum(np.exp(logs))
        random = np.random.default_rng([*seed, next(calls)])
        return true_counts + values[np.searchsorted(steps, random.random(len(true_counts)) * steps[-1])]

    return sample


def least_share(groups: int, copies: int, confidence: float) -> float:
    r"""Return what the mean over copies falls to by chance at most so rarely, if each cell is covered as often as is promised.

    .. math:: P[\bar{X} \le m] \le \exp(-n \, \mathrm{KL}(m, 1 - \alpha))

    for the mean of n independent variables from 0 to 1 (Hoeffding 1963), whatever their law: copies are independent, and have
    as many cells of a group each; the cells of one copy need not be independent.
    """
    shares = np.linspace(0.5, confidence, 100_000)[:-1]
    divergences = shares * np.log(shares / confidence) + (1 - shares) * np.log((1 - shares) / (1 - confidence))
    return float(shares[divergences >= log(groups / FALSE_ALARM) / copies].max())
