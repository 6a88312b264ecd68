"""The prior: its means by hand, and its weights on made-up levels of which the truth is known."""

import numpy as np
import pytest

from tasks.shrink.prior import RATIOS, SPREAD, STRATA, Sample, fitted, prior_means, stratum_of

CELLS, DEVIATION = 4_000, 3.0


def sample(true: np.ndarray, means: np.ndarray, totals: np.ndarray) -> Sample:
    """Return cells with noise of 3 records."""
    noise = np.random.default_rng(4).normal(0, DEVIATION, len(true))
    return Sample(true + noise, np.full(len(true), DEVIATION**2), means, totals, np.ones(len(true)))


def test_means_follow_the_totals_of_areas() -> None:
    """By hand: of 100 records 95 go by the areas' totals, here 3 to 1, and 5 are shared equally; of none a thousandth is left."""
    totals, sizes, first = np.array([100.0, 8.0]), np.array([2, 4]), np.array([0, 2, 6])
    means = prior_means(totals, sizes, first, np.array([3000.0, 1000, 0, 0, 0, 0]))
    assert np.allclose(means, [73.75, 26.25, 2, 2, 2, 2], atol=1e-3)
    assert prior_means(np.array([0.001]), np.array([2]), np.array([0, 2]), np.ones(2)).tolist() == [0.001, 0.001]


def test_strata_are_octaves_and_a_half() -> None:
    """Means of 1 and of 2.8 lie next to one another, and means beyond the strata belong to the outermost."""
    strata = stratum_of(np.array([1.0, 2.8, 2.9, 1e-9, 1e12]))
    assert strata.tolist() == [6, 6, 7, 0, STRATA - 1]


def test_a_level_of_mostly_nothing_is_learnt() -> None:
    """Where nine cells of ten are empty and the others count a hundred times the mean, both have their weights."""
    random = np.random.default_rng(1)
    true = np.where(random.random(CELLS) < 0.9, 0.0, 50.0)
    prior = fitted(sample(true, np.full(CELLS, 0.5), np.full(CELLS, 5000.0)))
    weights = prior.weights[int(stratum_of(np.array([0.5]))[0])]
    near = np.abs(np.log(RATIOS / 100)) < 3 * SPREAD
    assert weights[0] + weights[1:-1][RATIOS * 0.5 < DEVIATION].sum() == pytest.approx(0.9, abs=0.03)
    assert weights[1:-1][near].sum() == pytest.approx(0.1, abs=0.03)


def test_a_level_where_one_child_has_all_is_learnt() -> None:
    """Where one cell of four counts all that its parent does, the last weight is a quarter."""
    true = np.tile([40.0, 0, 0, 0], CELLS // 4)
    prior = fitted(sample(true, np.full(CELLS, 10.0), np.full(CELLS, 40.0)))
    weights = prior.weights[int(stratum_of(np.array([10.0]))[0])]
    assert weights[-1] + weights[1:-1][np.abs(np.log(RATIOS / 4)) < SPREAD].sum() == pytest.approx(0.25, abs=0.04)


def test_a_level_without_small_cells_gives_nothing_little_weight() -> None:
    """Where every cell counts about its mean, nothing has hardly any weight, though half of it to begin with."""
    true = np.random.default_rng(2).normal(60, 12, CELLS)
    prior = fitted(sample(true, np.full(CELLS, 60.0), np.full(CELLS, 6000.0)))
    assert prior.weights[int(stratum_of(np.array([60.0]))[0]), 0] < 0.01


def test_cells_count_for_as_many_as_they_stand_for() -> None:
    """A cell that stands for nine others weighs as ten do."""
    true, means, totals = np.array([0.0, 30] * 200), np.full(400, 10.0), np.full(400, 300.0)
    level = sample(true, means, totals)
    tenfold = np.tile([9.0, 1.0], 200)
    repeated = level[np.repeat(np.arange(400), tenfold.astype(int))]
    weighted = Sample(level.values, level.variances, level.means, level.totals, tenfold)
    assert np.allclose(fitted(weighted).weights, fitted(repeated).weights)


def test_strata_with_few_cells_take_the_prior_of_the_one_below() -> None:
    """Ten cells with a large mean join the stratum below; strata without a cell take what is nearest."""
    means = np.concatenate((np.full(CELLS, 1.0), np.full(10, 500.0)))
    prior = fitted(sample(np.zeros(CELLS + 10), means, np.full(CELLS + 10, 9000.0)))
    assert np.allclose(prior.weights, prior.weights[0])
    assert np.allclose(prior.weights.sum(axis=1), 1)
