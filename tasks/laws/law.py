"""What a noise law is: one value that says how noise is drawn, what it costs, and how far it goes.

Nothing else knows a law: plans, intervals, reports and checks ask it, and a law without quantiles states no interval.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from tasks.accounting.sensitivity import Sensitivity
from tasks.tree.axis import FloatArray, IntArray

Sampler = Callable[[IntArray, float], IntArray]  # from true counts and a scale to noisy counts
# with a threshold: to the rows that are kept, and theirs
ThresholdedSampler = Callable[[IntArray, float, int], tuple[IntArray, IntArray]]
# from values, a scale and a number of terms to how likely their sum is, up to a factor
Density = Callable[[FloatArray, float, int], FloatArray]

Draws = tuple[tuple[float, int], ...]  # a scale, and how many independent draws have it, of each scale

CARE = 1e-12  # of the logarithm of a probability, lowered by it: more than floats lose, or any sampler lacks


@dataclass(frozen=True, slots=True)
class Sampling:
    """A sampler and its distance from the law that it draws from.

    Attributes:
        draw: adds noise of a scale to true counts; of a law with a threshold, a `ThresholdedSampler`.
        tau: the total variation distance of one draw from its law is at most this; 0 if it is exact.
    """

    draw: Any
    tau: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class LevelCost:
    """What the noise of a level costs: ρ, or (ε, δ).

    Attributes:
        rho: exact where it is charged; 0 for noise that costs (ε, δ).
        epsilon: 0 for noise that costs ρ.
        delta: 0 for noise that costs ρ.
    """

    rho: Fraction | float = Fraction(0)
    epsilon: float = 0.0
    delta: float = 0.0

    def covers(self, cost: "LevelCost") -> bool:
        """Return whether another cost is within this one; false where it is not a number."""
        return cost.rho <= self.rho and cost.epsilon <= self.epsilon and cost.delta <= self.delta


@dataclass(frozen=True, slots=True)
class Law:
    """A noise law.

    Attributes:
        name: as the ledger and the manifest name it.
        called: the noise in words.
        norm: which norm of a unit's change its cost depends on: 1 or 2.
        samplers: by their names in the spec.
        cost: from a scale, a threshold (0 without one) and a sensitivity to the cost, by OpenDP's privacy map.
        fit: from a cost and a sensitivity to the least scale, and the least threshold at it, that stay within the cost.
        deviation: from a scale to the σ that is stated of it, records: the standard deviation, or a little more.
        variance: from a scale to the variance, records squared.
        reach: from a scale, a number of terms and x > 0 to a bound that the sum of as many independent draws reaches with a
            probability of at most exp(-x): the law's textbook bound, by which errors are stated before anything is drawn.
        quantile: from a scale, the logarithm of a probability and a number of terms to the least z >= 0 that the sum of as
            many independent draws exceeds with at most that probability, or a bound on it; None for a law of which none is
            known: nothing that it measures can be published with intervals.
        sum_quantile: the same for draws of any scales; None for a law of which only one draw has a quantile.
        density: how likely a value of the sum of some draws is, up to a factor; None for a law whose rows are never noise alone.
        derivation: from the neighbours, the records per unit and whether the level is the root to how far one unit moves a level,
            in words; None for the Euclidean norm, where it depends on the level.
        keeps_some: whether only cells with records are looked at, and only those kept whose noisy count reaches a threshold.
        refused: keys of the spec's privacy that it does not take, with the reason.
    """

    name: str
    called: str
    norm: Literal[1, 2]
    samplers: Mapping[str, Sampling]
    cost: Callable[[float, int, Sensitivity], LevelCost]
    fit: Callable[[LevelCost, Sensitivity], tuple[float, int]]
    deviation: Callable[[float], float]
    variance: Callable[[float], float]
    reach: Callable[[float, int, float], float]
    quantile: Callable[[float, float, int], int] | None = None
    sum_quantile: Callable[[Draws, float], int] | None = None
    density: Density | None = None
    derivation: Callable[[str, int, bool], str] | None = None
    keeps_some: bool = False
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def costs_rho(self) -> bool:
        """Whether it costs ρ; otherwise it costs (ε, δ)."""
        return self.norm == 2


@dataclass(frozen=True, slots=True)
class LevelNoise:
    """The noise of the cells of a level, or of the widest one where they are sums. It is false where there is none.

    Attributes:
        law: None where the level is exact.
        scale: of one draw, records; 0 where the level is exact.
        terms: how many draws one cell bears.
    """

    law: Law | None
    scale: float
    terms: int = 1

    def __bool__(self) -> bool:
        """Return whether there is noise."""
        return self.law is not None

    @property
    def sigma(self) -> float:
        """The σ that is stated, records; 0 where the level is exact."""
        return self.law.deviation(self.scale) * math.sqrt(self.terms) if self.law else 0.0

    @property
    def stated_scale(self) -> float:
        """The scale of one draw, which is stated beside σ, records; 0 where it is the standard deviation, and where the level is exact."""
        return self.scale if self.law and self.law.deviation(self.scale) != self.scale else 0.0

    @property
    def variance(self) -> float:
        """The variance, records squared; 0 where the level is exact."""
        return self.law.variance(self.scale) * self.terms if self.law else 0.0

    def reach(self, log_odds: float) -> float:
        """Return what the noise reaches, to one side, with a probability of at most exp(-log_odds), records; 0 for none."""
        return self.law.reach(self.scale, self.terms, log_odds) if self.law else 0.0

    @property
    def density(self) -> Density:
        """How likely a value of the sum of some draws is, up to a factor.

        Raises:
            ValueError: there is no noise, or the law has no density.
        """
        if self.law is None or self.law.density is None:
            raise ValueError("nothing can be estimated of counts without a density of their noise.")
        return self.law.density

    def quantile(self, log_tail: float, terms: int = 1) -> int:
        """Return the least z >= 0 that the sum of independent draws exceeds with at most a given probability, or a bound on it.

        Args:
            terms: how many cells are added up, >= 0.
        Returns:
            Records; 0 where the level is exact, or nothing is drawn. By symmetry it is as improbable that the sum is below -z.
        Raises:
            ValueError: the law has no quantiles.
        """
        if self.law is None or not terms:
            return 0
        if self.law.quantile is None:
            raise ValueError(f"no intervals can be stated: the law {self.law.name} has no quantiles.")
        return self.law.quantile(self.scale, log_tail, terms * self.terms)


NO_NOISE = LevelNoise(None, 0.0)


def quantile_of_sum(draws: Iterable[tuple[LevelNoise, int]], log_tail: float) -> int:
    """Return the least z >= 0 that the sum of independent draws of several levels exceeds with at most a given probability, or a bound on it.

    Args:
        draws: the noise of cells, all of one law, and how many cells have it.
    Raises:
        ValueError: there are several laws, or theirs has no quantiles of sums.
    """
    scales, laws = Counter[float](), dict[str, Law]()
    for noise, cells in draws:
        if noise.law is not None and cells:
            laws[noise.law.name] = noise.law
            scales[noise.scale] += cells * noise.terms
    if not laws:
        return 0
    [law], [(scale, terms), *others] = laws.values(), scales.items()
    if not others:
        return LevelNoise(law, scale).quantile(log_tail, terms)
    if law.sum_quantile is None:
        raise ValueError(f"no interval can be stated: the law {law.name} has no quantiles of sums.")
    return law.sum_quantile(tuple(sorted(scales.items())), log_tail)
