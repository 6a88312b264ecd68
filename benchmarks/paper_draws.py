"""Find the draws of the paper's sets that are closest to the authors' draws, as far as their figures allow.

The people of a pair are 1 to 1000 in proportion to the largest Pareto draw. So one draw decides how many people a set has, and with
it how many pairs noise and threshold hide. The random tree decides how much lies below its largest area. The authors' figures show
both: nearly everything is below the threshold of their histogram at ε = 0.1, so its error at level 0 is about the number of people,
and its error at level 1 is about the number of people of the largest area.
"""

from dataclasses import dataclass
from math import log, sqrt

import numpy as np
import polars as pl

from tasks.synthesize.areas import (
    EXPONENT,
    LARGEST,
    RANDOM_AREAS,
    SHARES,
    Country,
    PaperDensity,
    PaperKind,
    draw_paper_set,
)
from tasks.tree.axis import IntArray

DRAWS = 100
DELTA = 1e-8
L1_OF_THEIRS = sqrt(2)  # what the authors' code takes for the ℓ₁ distance of neighbours, which is 2 under substitution
PAIRS = {"binary": 2**16, "random": RANDOM_AREAS**2}


@dataclass(frozen=True, slots=True)
class TheirHistogram:
    """The authors' stability histogram at an ε: OpenDP 0.11's map for an ℓ₁ distance of √2.

    Attributes:
        epsilon: what it is said to cost.
    """

    epsilon: float

    @property
    def scale(self) -> float:
        """The scale of its continuous Laplace noise, records."""
        return L1_OF_THEIRS / self.epsilon

    @property
    def threshold(self) -> float:
        """The least noisy count that is kept, records, before counts are rounded."""
        return L1_OF_THEIRS + self.scale * log(1 / (2 * DELTA))

    def draw(self, true_counts: IntArray, generator: np.random.Generator) -> tuple[IntArray, IntArray]:
        """Return the rows that are kept and their counts, int64; floating-point noise, for data that may be seen."""
        noisy = true_counts + generator.laplace(0, self.scale, len(true_counts))
        rows = np.flatnonzero(noisy >= max(self.threshold, 0.5))
        return rows, np.rint(noisy[rows]).astype(np.int64)

    def lost(self, people: IntArray) -> float:
        """Return how many people it is expected to lose of pairs of some people each."""
        a = self.threshold - people
        half_tail = np.exp(-np.abs(a) / self.scale) / 2
        kept = np.where(a >= 0, half_tail, 1 - half_tail)
        return float(people.sum() - people @ kept - (self.scale + np.abs(a)) @ half_tail)


def draw_people(kind: PaperKind, density: PaperDensity, seed: int) -> IntArray:
    """Return the people of each pair of a set, shape (pairs,), by the recipe of `tasks/synthesize/areas.py`."""
    x = np.random.default_rng(seed).pareto(EXPONENT, round(SHARES[density] * PAIRS[kind]))
    return np.floor(1 + (LARGEST - 1) * (x / x.max())).astype(np.int64)


def people_of_draws(kind: PaperKind, density: PaperDensity) -> list[int]:
    """Return how many people each of so many draws has."""
    return [int(draw_people(kind, density, seed).sum()) for seed in range(DRAWS)]


def closest(kind: PaperKind, density: PaperDensity, lost: float, share: float) -> Country:
    """Return a set of the tree and of the people that are, each of so many draws, nearest to the authors'.

    Args:
        kind: binary or random.
        density: the share of the pairs that have people.
        lost: what their histogram loses of all people at ε = 0.1.
        share: of what it loses, the part below the largest area of level 1.
    """
    histogram = TheirHistogram(0.1)
    people = min(
        (draw_people(kind, density, seed) for seed in range(DRAWS)), key=lambda of: abs(log(histogram.lost(of) / lost))
    )
    drawn = min(
        (draw_set(kind, density, seed) for seed in range(DRAWS if kind == "random" else 1)),
        key=lambda of: abs(largest_share(of) - share),
    )
    return Country(drawn.codebook, drawn.trips.with_columns(pl.Series("people", people)))


def largest_share(country: Country) -> float:
    """Return the share of the finest areas that lies below the largest area of level 1."""
    sizes = country.codebook.group_by(country.codebook.columns[0]).len()["len"]
    return float(sizes.max() / sizes.sum())


def draw_set(kind: PaperKind, density: PaperDensity, seed: int) -> Country:
    """Return the set that a seed draws."""
    return draw_paper_set(kind, density, generator=np.random.default_rng(seed))
