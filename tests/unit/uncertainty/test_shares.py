"""What is said of the share of noise rows, over tables of known shares: within ten points of the truth, or only what it is at most."""

import dataclasses

import numpy as np
import pytest

from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.laplace import LAPLACE
from tasks.laws.law import LevelNoise
from tasks.uncertainty.estimates import Estimates
from tasks.uncertainty.mixture import CountMixture
from tasks.uncertainty.noise_rows import KNOWN_WITHIN, SeenCounts, mixture_of_sums, shares_of_sums

NOISES = [
    LevelNoise(law, scale)
    for law, scale in ((GAUSSIAN, 1.5), (GAUSSIAN, 20.0), (LAPLACE, 1.0), (LAPLACE, 4.0), (LAPLACE, 16.0))
]
CELLS = 12_000
SIBLINGS = 6
EMPTY = (0.0, 0.5, 0.95)
ROUNDING = 0.0005  # of what is stated


def noise_of(noise, random, cells):
    """Draw the noise of so many cells, int64, shape (cells,)."""
    values = np.arange(-int(20 * noise.sigma) - 2, int(20 * noise.sigma) + 3)
    steps = np.cumsum(noise.density(values, noise.scale, 1))
    return values[np.searchsorted(steps, random.random(cells) * steps[-1])]


def tables(random):
    """Yield true counts: of ones, of small counts, of counts with a long tail, all of them beside few or many empty cells."""
    for empty in EMPTY:
        there = random.random(CELLS) >= empty
        yield there.astype(np.int64)
        yield there * random.geometric(0.3, CELLS)
        yield there * np.floor(1 + 40 * random.pareto(2.0, CELLS)).astype(np.int64)


def choices(true, noisy):
    """Yield which cells become rows, in four ways: by their noise; by that of their families; by more than that; and all."""
    yield noisy > 0
    families = noisy.reshape(-1, SIBLINGS)
    yield (families > np.maximum(np.sort(families, axis=1)[:, [-3]], 0)).ravel()
    yield (noisy + 0.3 * true > 0.5 * noisy.std()) & (noisy > 0)  # as where counts of other levels say something too
    yield noisy != 0


def said_of(noise):
    """Yield the true shares of noise rows, and what is said of them."""
    random = np.random.default_rng(1)
    for true in tables(random):
        noisy = true + noise_of(noise, random, CELLS)
        for rows in choices(true, noisy):
            seen = SeenCounts(noise)
            for part in np.split(np.arange(CELLS), 3):
                seen.add(noisy[part])
                seen.add_rows(noisy[part[rows[part]]])
            shares = seen.shares()
            assert shares
            yield float((true[rows] == 0).mean()), shares


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: f"{noise.law.name} {noise.scale}")
def test_an_estimate_is_within_ten_points_or_is_not_stated(noise):
    """Whatever the counts are, and however cells became rows; and no more rows are noise than there are said to be at most."""
    said = list(said_of(noise))
    stated = [(true, shares.noise) for true, shares in said if shares.noise is not None]
    assert max(abs(estimate - true) for true, estimate in stated) <= KNOWN_WITHIN + ROUNDING
    assert all(true <= shares.noise_at_most for true, shares in said)
    assert all(shares.noise is None or shares.noise <= shares.noise_at_most for _, shares in said)
    assert len(stated) >= (10 if noise.sigma < 2 else 3)


def check(shares, truth):
    """Check that an estimate is within ten points and a bound holds, and return whether there is an estimate."""
    assert truth <= shares.noise_at_most
    assert shares.noise is None or shares.noise == pytest.approx(truth, abs=KNOWN_WITHIN + ROUNDING)
    return shares.noise is not None


@pytest.mark.parametrize("law", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("leaves", [(1,), (2,), (5,), (30,), (1, 2, 3, 4), (4, 9, 60)])
def test_sums_are_estimated_like_single_counts(law, leaves):
    """Cells that are sums of noisy leaves, as many or not, are estimated within ten points or not at all; cells without a row count 0."""
    noise, random, stated = LevelNoise(law, 0.8), np.random.default_rng(3), 0
    width = random.choice(leaves, CELLS)
    drawn = sum(np.where(width > of, noise_of(noise, random, CELLS), 0) for of in range(max(leaves)))
    for true in tables(random):
        noisy = np.asarray(true + drawn)
        rows = np.flatnonzero(noisy)
        stated += check(shares_of_sums(noise, noisy[rows], width[rows], CELLS), float((true[rows] == 0).mean()))
        if len(leaves) == 1:
            every = mixture_of_sums(noise, noisy, width, rows)
            left_out = mixture_of_sums(noise, noisy[rows], width[rows], np.arange(len(rows)), CELLS - len(rows))
            assert every.likely() == left_out.likely()
    assert stated


def test_unbiased_estimates_are_estimated_likewise():
    """Counts with deviations of their own are within ten points of the truth, or have no estimate."""
    random, stated = np.random.default_rng(4), 0
    deviations = random.choice([2.0, 3.1, 4.4], CELLS)
    for true in tables(random):
        counts = np.rint(true + deviations * random.normal(size=CELLS)).astype(np.int64)
        rows = np.flatnonzero(counts)
        stated += check(Estimates(counts[rows], deviations[rows], CELLS).shares(), float((true[rows] == 0).mean()))
    assert stated


LAWS = {"gaussian": GAUSSIAN, "laplace": LAPLACE}


def drawn(scale, law, cells=40_000):
    """Return true counts, of which seven in ten are 0, and noisy ones."""
    random = np.random.default_rng(7)
    true = np.where(random.random(cells) < 0.7, 0, random.geometric(0.05, cells))
    values = np.arange(-200, 201)
    steps = np.cumsum(LAWS[law].density(values, scale, 1))
    return true, true + values[np.searchsorted(steps, random.random(cells) * steps[-1])]


@pytest.mark.parametrize(("law", "scale"), [("gaussian", 0.4), ("gaussian", 3.0), ("gaussian", 20.0), ("laplace", 4.0)])
def test_shares_are_estimated(law, scale):
    """Of the rows, cells with a noisy count above the noise, the true share of noise is in the range, and other shares are near."""
    true, noisy = drawn(scale, law)
    sigma = scale if law == "gaussian" else scale * 2**0.5
    rows = noisy > sigma
    mixture = CountMixture(LAWS[law].density, scale, sigma)
    for part in np.split(np.arange(len(noisy)), 4):
        mixture.add_cells(noisy[part])
        mixture.add_rows(noisy[part[rows[part]]])
    likely, of_rows = mixture.likely(), true[rows]
    above = of_rows > 2 * sigma
    assert likely.least_noise - 0.01 <= (of_rows == 0).mean() <= likely.most_noise + 0.01
    assert likely.rows_above == pytest.approx(above.mean(), abs=0.06)
    assert likely.records_above == pytest.approx(of_rows[above].sum() / of_rows.sum(), abs=0.12)


@pytest.mark.parametrize("scale", [0.01, 0.03, 0.1, 0.3, 0.9])
@pytest.mark.parametrize("law", [GAUSSIAN, LAPLACE], ids=lambda law: law.name)
def test_counts_are_told_from_noise_that_is_hardly_there(law, scale):
    """Every count up to the first that is surely no noise has a true count near it, so that the share of rows of 0 is exact."""
    mixture = CountMixture(law.density, scale, LevelNoise(law, scale).sigma)
    counts = np.repeat(np.arange(40), 3)
    mixture.add_cells(counts)
    mixture.add_rows(counts)
    likely = mixture.likely()
    assert likely.least_noise <= 1 / 40 <= likely.most_noise
    assert all(0 <= share <= 1 for share in dataclasses.astuple(likely))
