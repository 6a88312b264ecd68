"""Mechanisms: noise × traversal × optimiser, each a frozen value in one table. A new one is a function and a line."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from flows.top_down import Traversal, walk_top_down
from flows.trial import Trial, reconciled, top_down
from flows.two_passes import walk_twice
from tasks.noise.samplers import Sampler, discrete_gaussian
from tasks.noise.table import LARGEST_TAU, table_noise
from tasks.optimize.chebyshev import nearest_in_chebyshev
from tasks.optimize.task import Optimiser
from tasks.validate.bounds import chebyshev_bounds


@dataclass(frozen=True, slots=True)
class Noise:
    """A sampler and how good it is.

    Attributes:
        sampler: adds noise of a scale to true counts.
        tau: the total variation distance of one draw from its law is at most this; 0 where it is exact.
    """

    sampler: Sampler
    tau: Fraction = Fraction(0)


DISCRETE_GAUSSIANS = {"opendp": Noise(discrete_gaussian), "table": Noise(table_noise, LARGEST_TAU)}


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A recipe.

    Attributes:
        name: as the spec names it.
        noises: the samplers of its noise, as the spec names them; all draw from one law.
        traverse: the order in which levels and branches are measured and optimised.
        trial: the same in memory, for data that may be seen.
        optimiser: from noisy counts and their parents' totals to consistent counts.
        bounds: from the scales and the possible cells of all levels, and a confidence, to the levels' error bounds.
    """

    name: str
    noises: Mapping[str, Noise]
    traverse: Traversal
    trial: Trial
    optimiser: Optimiser
    bounds: Callable[[Sequence[float], Sequence[int], float], list[float]]


# inftda: Boninsegna and Silvestri (2025)
MECHANISMS = {
    recipe.name: recipe
    for recipe in (
        Mechanism(
            name="inftda",
            noises=DISCRETE_GAUSSIANS,
            traverse=walk_top_down,
            trial=top_down,
            optimiser=nearest_in_chebyshev,
            bounds=chebyshev_bounds,
        ),
        Mechanism(
            name="inftda_reconciled",
            noises=DISCRETE_GAUSSIANS,
            traverse=walk_twice,
            trial=reconciled,
            optimiser=nearest_in_chebyshev,
            bounds=chebyshev_bounds,
        ),
    )
}
