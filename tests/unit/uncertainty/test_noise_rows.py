"""At most so many rows are noise: each bound by enumeration, the whole against an adversary, and what would not hold."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import LevelNoise
from tasks.uncertainty.noise_rows import LOG_TAILS, RISK, BeyondMargins, beyond

BETA = RISK / (2 * len(LOG_TAILS))
NOISE = LevelNoise(GAUSSIAN, 6.0)
NOTHING = np.zeros(0, dtype=np.int64)


def margins() -> list[int]:
    """Return the margins of the noise."""
    return [NOISE.quantile(log_tail) for log_tail in LOG_TAILS]


def draw(random: np.random.Generator, cells: int) -> np.ndarray:
    """Draw the noise of so many cells, int64, shape (cells,)."""
    values = np.arange(-60, 61)
    steps = np.cumsum(np.exp(-((values / NOISE.scale) ** 2) / 2))
    return values[np.searchsorted(steps, random.random(cells) * steps[-1])]


def at_most(below: int, cells: int) -> int:
    """Return how many rows above every margin may be noise, with as many noisy counts below every margin."""
    seen = BeyondMargins(np.full(len(LOG_TAILS), below), np.zeros(len(LOG_TAILS), dtype=np.int64))
    return seen.at_most(cells, cells)


@pytest.mark.parametrize("both", [0, 1, 5, 20, 60, 200])
def test_what_is_above_follows_from_what_is_below(both):
    """Of cells beyond a margin on either side, more are above than is said with a probability of at most β, by enumeration."""
    above = np.arange(both + 1)
    chances = binom.pmf(above, both, 0.5)
    said = np.array([at_most(both - many, 10**13) for many in above])
    assert chances[above > said].sum() <= BETA


@pytest.mark.parametrize("below", [0, 1, 4, 30, 1000])
def test_no_less_can_be_said_of_what_is_above(below):
    """As many cells above as are said would have been no wonder, with so few below; one more would have been."""
    said = at_most(below, 10**13)
    assert binom.cdf(below, said + below, 0.5) > BETA >= binom.cdf(below, said + 1 + below, 0.5)


@pytest.mark.parametrize("cells", [1, 7, 100, 5000])
def test_no_more_cells_are_above_than_chance_allows(cells):
    """Of all cells more are above the widest margin than is said with a probability of at most β, by enumeration."""
    chance = math.exp(LOG_TAILS[-1])
    said = at_most(10**6, cells)
    assert 1 - sum(
        math.comb(cells, many) * chance**many * (1 - chance) ** (cells - many) for many in range(said + 1)
    ) <= (BETA)


@pytest.mark.parametrize("small", [0, 1, 3])
@pytest.mark.parametrize("cells", [40, pytest.param(2000, marks=pytest.mark.thorough)])
def test_an_adversary_who_picks_the_rows_hides_no_more_noise(cells, small):
    """Whoever picks the empty cells with the most noise, or rows at random, has more noise rows in few of many levels."""
    random, runs = np.random.default_rng([cells, small]), 300
    more = np.zeros(3)
    for _ in range(runs):
        true = np.where(random.random(cells) < 0.3, small + random.integers(0, 40, cells), 0)
        noisy = true + draw(random, cells)
        empty = np.flatnonzero(true == 0)
        loudest = empty[np.argsort(-noisy[empty])]
        picked = (
            loudest[: cells // 10],
            np.concatenate((loudest[: cells // 5], np.flatnonzero(true > 5))),
            np.flatnonzero(noisy > random.integers(0, 20)),
        )
        for way, rows in enumerate(picked):
            seen = beyond(noisy, noisy[rows], margins())
            more[way] += np.count_nonzero(true[rows] == 0) > seen.at_most(cells, len(rows))
    assert (more / runs <= RISK).all()


def test_the_mirror_image_alone_says_too_little():
    """As many rows as there are cells below the negative of their noisy counts are fewer than are noise, in many levels."""
    random, runs, less = np.random.default_rng(3), 200, 0
    for _ in range(runs):
        noisy = draw(random, 500)
        rows = noisy[noisy > NOISE.sigma]
        less += len(rows) > np.count_nonzero(noisy < -NOISE.sigma)
    assert less / runs > 5 * RISK


def test_parts_add_up():
    """Whether cells are added in parts or at once makes no difference; rows are never more than there are."""
    random = np.random.default_rng(4)
    noisy = draw(random, 400)
    parts = sum(
        (beyond(part, part[part > 3], margins()) for part in np.split(noisy, 4)), beyond(NOTHING, NOTHING, margins())
    )
    whole = beyond(noisy, noisy[noisy > 3], margins())
    assert (parts.below == whole.below).all()
    assert (parts.within == whole.within).all()
    assert parts.at_most(400, 5) <= 5
    assert BeyondMargins(whole.below, whole.within * 0 + 7).at_most(400, 5) == 5
