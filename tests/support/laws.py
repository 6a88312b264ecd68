"""Noise by its σ alone, and mechanisms whose noise a test draws."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

import numpy as np

from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import NO_NOISE, LevelNoise, Sampler, Sampling
from tasks.mechanisms import MECHANISMS, Mechanism
from tasks.tree.axis import IntArray


def gaussians(sigmas: Sequence[float]) -> list[LevelNoise]:
    """Return discrete Gaussian noise of these scales; none where a scale is 0."""
    return [LevelNoise(GAUSSIAN, sigma) if sigma else NO_NOISE for sigma in sigmas]


def drawn_by(mechanism: str, samplers: Mapping[str, Sampling], law: str | None = None) -> Mechanism:
    """Return a mechanism with other samplers of one of its laws, by default the first, which is then its only one."""
    recipe = MECHANISMS[mechanism]
    name = law or next(iter(recipe.laws))
    return replace(recipe, laws={name: replace(recipe.laws[name], samplers=samplers)})


def sampler_of(law: str, *seed: int, reach: int = 150, first: int = 0) -> Sampler:
    """Return a sampler that adds noise of a law, drawn from a list of its probabilities.

    Args:
        law: its name.
        seed: of all calls; each, a level or a part of it, has a number of its own besides, from `first` on.
        reach: the furthest noise.
        first: that of the first call.
    """
    calls = count(first)

    def sample(true_counts: IntArray, scale: float) -> IntArray:
        values = np.arange(-reach, reach + 1)
        logs = -((values / scale) ** 2) / 2 if law == "gaussian" else -np.abs(values) / scale
        steps = np.cumsum(np.exp(logs))
        random = np.random.default_rng([*seed, next(calls)])
        noise: IntArray = values[np.searchsorted(steps, random.random(len(true_counts)) * steps[-1])]
        return true_counts + noise

    return sample
