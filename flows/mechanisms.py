"""Mechanisms: noise × traversal × optimiser, each a frozen value in one table. A new one is a function and a line."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flows.top_down import Traversal, walk_top_down
from tasks.noise.samplers import Sampler, discrete_gaussian
from tasks.optimize.chebyshev import nearest_in_chebyshev
from tasks.optimize.task import Optimiser
from tasks.validate.bounds import chebyshev_bounds


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A recipe.

    Attributes:
        name: as the spec names it.
        sampler: adds noise of a scale to true counts.
        traverse: the order in which levels and branches are measured and optimised.
        optimiser: from noisy counts and their parents' totals to consistent counts.
        bounds: from the scales and the possible cells of all levels, and a confidence, to the levels' error bounds.
    """

    name: str
    sampler: Sampler
    traverse: Traversal
    optimiser: Optimiser
    bounds: Callable[[Sequence[float], Sequence[int], float], list[float]]


# inftda: Boninsegna and Silvestri (2025)
MECHANISMS = {
    recipe.name: recipe
    for recipe in (
        Mechanism(
            name="inftda",
            sampler=discrete_gaussian,
            traverse=walk_top_down,
            optimiser=nearest_in_chebyshev,
            bounds=chebyshev_bounds,
        ),
    )
}
