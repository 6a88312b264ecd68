"""Noise by its σ alone, and mechanisms whose noise a test draws."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from flows.mechanisms import MECHANISMS, Mechanism
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import NO_NOISE, LevelNoise, Sampling


def gaussians(sigmas: Sequence[float]) -> list[LevelNoise]:
    """Return discrete Gaussian noise of these scales; none where a scale is 0."""
    return [LevelNoise(GAUSSIAN, sigma) if sigma else NO_NOISE for sigma in sigmas]


def drawn_by(mechanism: str, samplers: Mapping[str, Sampling], law: str | None = None) -> Mechanism:
    """Return a mechanism with other samplers of one of its laws, by default the first, which is then its only one."""
    recipe = MECHANISMS[mechanism]
    name = law or next(iter(recipe.laws))
    return replace(recipe, laws={name: replace(recipe.laws[name], samplers=samplers)})
