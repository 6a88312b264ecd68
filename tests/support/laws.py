"""Noise by its σ alone, and mechanisms whose noise a test draws."""

from dataclasses import replace
from itertools import count

import numpy as np

from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import NO_NOISE, LevelNoise
from tasks.mechanisms import MECHANISMS


def gaussians(sigmas):
    """Return discrete Gaussian noise of these scales; none where a scale is 0."""
    return [LevelNoise(GAUSSIAN, sigma) if sigma else NO_NOISE for sigma in sigmas]


def drawn_by(mechanism, samplers, law=None):
    """Return a mechanism with other samplers of one of its laws, by default the first, which is then its only one."""
    recipe = MECHANISMS[mechanism]
    name = law or next(iter(recipe.laws))
    return replace(recipe, laws={name: replace(recipe.laws[name], samplers=samplers)})


def sampler_of(law, *seed, reach=150, first=0):
    """Return a sampler that adds noise of a law up to a reach; each call, a level or a part of it, has a number besides the seed, from `first` on."""
    calls = count(first)

    def sample(true_counts, scale):
        values = np.arange(-reach, reach + 1)
        logs = -((values / scale) ** 2) / 2 if law == "gaussian" else -np.abs(values) / scale
        steps = np.cumsum(np.exp(logs))
        random = np.random.default_rng([*seed, next(calls)])
        noise = values[np.searchsorted(steps, random.random(len(true_counts)) * steps[-1])]
        return true_counts + noise

    return sample
