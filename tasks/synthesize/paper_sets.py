"""Draws the six synthetic sets of the O/D paper's Table 1: trips over a binary or a random hierarchy."""

from typing import Literal

import numpy as np
import polars as pl

from tasks.synthesize.areas import Country, extend_codes
from tasks.tree.axis import IntArray

PaperKind = Literal["binary", "random"]
PaperDensity = Literal["complete", "dense", "sparse"]

# of the pairs of areas, those that have people
SHARES: dict[PaperDensity, float] = {"complete": 1.0, "dense": 0.5, "sparse": 0.01}
BINARY_LEVELS, RANDOM_LEVELS = 8, 4
FEWEST, MOST = 2, 10  # children of an area of the random hierarchy
RANDOM_AREAS = 435  # at its finest level, as in the paper: 189,225 pairs
EXPONENT = 3.0  # of the Pareto law of people
LARGEST = 1000  # people of one pair


def draw_paper_set(kind: PaperKind, density: PaperDensity, *, generator: np.random.Generator) -> Country:
    r"""Return one of the sets, drawn again by the method of its authors.

    .. math:: \text{people} = \lfloor 1 + 999 x / \max x \rfloor, \quad P(x > t) = (1 + t)^{-3}

    The hierarchy is drawn before the people, so all densities of one seed have the same hierarchy.

    Args:
        kind: binary, 8 levels of two children each, 65,536 pairs; or random, 4 levels of 2 to 10 children, 189,225 pairs.
        density: whether all pairs, half of them, or one in a hundred have people.
        generator: the random generator; equal states draw equal sets.
    Source:
        Boninsegna and Silvestri (2025), Table 1. Their published code has the Pareto law and its scaling.
    """
    path = [pl.Series("", [""])]  # of codes, from everything down to the level
    halves = (np.repeat(np.arange(2**level), 2) for level in range(BINARY_LEVELS))
    for level, parent in enumerate(halves if kind == "binary" else _random_parents(generator), start=1):
        path = extend_codes(path, f"level_{level}", parent, 1)
    areas = len(path[-1])
    pairs = np.sort(generator.choice(areas**2, round(SHARES[density] * areas**2), replace=False))
    x = generator.pareto(EXPONENT, len(pairs))
    people = np.floor(1 + (LARGEST - 1) * (x / x.max())).astype(np.int64)
    home, work = np.divmod(pairs, areas)
    trips = {"home": path[-1].gather(home), "work": path[-1].gather(work), "people": people}
    return Country(pl.DataFrame(path[1:]), pl.DataFrame(trips))


def _random_parents(generator: np.random.Generator) -> list[IntArray]:
    """Return, per level, the parent of each area. Draws hierarchies until one has as many areas as the paper's."""
    while True:
        parents = [np.zeros(generator.integers(FEWEST, MOST + 1), dtype=np.int64)]
        while len(parents) < RANDOM_LEVELS:
            above = len(parents[-1])
            parents.append(np.repeat(np.arange(above), generator.integers(FEWEST, MOST + 1, size=above)))
        if len(parents[-1]) == RANDOM_AREAS:
            return parents
