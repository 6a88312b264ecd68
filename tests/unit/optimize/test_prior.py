"""Totals of areas, the prior's means and weights on made-up levels, and what is learnt of a level however it is divided."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.optimize import prior, shrink_statistics
from tasks.optimize.reconcile import NodeEstimates

CELLS, DEVIATION = 4_000, 3.0


def sample(true, means, totals):
    """Return cells with noise of 3 records."""
    noise = np.random.default_rng(4).normal(0, DEVIATION, len(true))
    within = np.zeros(len(true), dtype=bool)
    return prior.Sample(true + noise, np.full(len(true), DEVIATION**2), means, totals, np.ones(len(true)), within)


def test_means_follow_the_totals_of_areas():
    """By hand: of 100 records 95 go by the areas' totals, here 3 to 1, and 5 are shared equally; of none a thousandth is left."""
    totals, sizes, first = np.array([100.0, 8.0]), np.array([2, 4]), np.array([0, 2, 6])
    means = prior.prior_means(totals, sizes, first, np.array([3000.0, 1000, 0, 0, 0, 0]))
    assert np.allclose(means, [73.75, 26.25, 2, 2, 2, 2], atol=1e-3)
    assert prior.prior_means(np.array([0.001]), np.array([2]), np.array([0, 2]), np.ones(2)).tolist() == [0.001, 0.001]


def learnt(true, mean, total):
    """Return the weights of a level whose cells all have one prior mean: of nothing, of ratios to the mean, and of all."""
    weights = prior.fitted(sample(true, np.full(CELLS, mean), np.full(CELLS, total)))
    return weights[int(prior.stratum_of(np.array([mean]))[0])]


def test_weights_are_learnt():
    """Of nine empty cells of ten and others of a hundred times the mean; of one child that has all; and where no cell is small."""
    random, off = np.random.default_rng(1), np.abs(np.log(prior.RATIOS / 100))
    weights = learnt(np.where(random.random(CELLS) < 0.9, 0.0, 50.0), 0.5, 5000.0)
    assert weights[0] + weights[1:-1][prior.RATIOS * 0.5 < DEVIATION].sum() == pytest.approx(0.9, abs=0.03)
    assert weights[1:-1][off < 3 * prior.SPREAD].sum() == pytest.approx(0.1, abs=0.03)
    weights = learnt(np.tile([40.0, 0, 0, 0], CELLS // 4), 10.0, 40.0)
    off = np.abs(np.log(prior.RATIOS / 4))
    assert weights[-1] + weights[1:-1][off < prior.SPREAD].sum() == pytest.approx(0.25, abs=0.04)
    assert learnt(random.normal(60, 12, CELLS), 60.0, 6000.0)[0] < 0.01


def test_cells_count_for_as_many_as_they_stand_for():
    """A cell that stands for nine others weighs as ten do."""
    true, means, totals = np.array([0.0, 30] * 200), np.full(400, 10.0), np.full(400, 300.0)
    level = sample(true, means, totals)
    tenfold = np.tile([9.0, 1.0], 200)
    repeated = level[np.repeat(np.arange(400), tenfold.astype(int))]
    weighted = replace(level, stand_for=tenfold)
    assert np.allclose(prior.fitted(weighted), prior.fitted(repeated))


def test_strata_with_few_cells_take_the_prior_of_the_one_below():
    """Ten cells with a large mean join the stratum below; strata without a cell take what is nearest."""
    means = np.concatenate((np.full(CELLS, 1.0), np.full(10, 500.0)))
    weights = prior.fitted(sample(np.zeros(CELLS + 10), means, np.full(CELLS + 10, 9000.0)))
    assert np.allclose(weights, weights[0])
    assert np.allclose(weights.sum(axis=1), 1)


def test_cells_within_one_area_have_a_prior_of_their_own():
    """Where they are eight times the mean and others are it, each kind learns that; where they are like others, they have the same."""
    within, means, totals = np.arange(2 * CELLS) < CELLS, np.full(2 * CELLS, 10.0), np.full(2 * CELLS, 500.0)
    stratum, off = int(prior.stratum_of(means)[0]), np.log(prior.RATIOS)
    apart = replace(sample(np.where(within, 80.0, 10.0), means, totals), within=within)
    for weights, times in zip(np.split(prior.fitted(apart), 2), (1, 8), strict=True):
        assert weights[stratum, 1:-1][abs(off - np.log(times)) < 0.6].sum() > 0.9
    assert np.array_equal(*np.split(prior.fitted(replace(sample(means, means, totals), within=within)), 2))


def test_totals_are_drawn_to_what_siblings_show():
    """Without noise nothing moves but below zero; siblings that are alike have their mean; a few large totals stay nearer than any line leaves them."""
    random, first = np.random.default_rng(5), np.arange(0, 401, 20)
    true, skewed = np.repeat(random.uniform(500, 900, 20), 20), random.pareto(1.2, 400) * 100
    assert np.allclose(prior.shrunk_totals(true * 1.3, np.zeros(400), first), true * 1.3, rtol=1e-3)
    assert prior.shrunk_totals(np.array([10.0, 200, -3]), np.zeros(3), np.array([0, 3]))[2] < 1
    alike = prior.shrunk_totals(true + random.normal(0, 100, 400), np.full(400, 1e4), first)
    assert abs(alike - true).mean() < 30  # 100 / √20 · 0.8 = 18, and a little
    noisy = skewed + random.normal(0, 300, 400)
    lines = noisy.mean() + np.outer(np.linspace(0, 1, 21), noisy - noisy.mean())
    found = prior.shrunk_totals(noisy, np.full(400, 9e4), first)
    assert abs(found - skewed).mean() < 0.8 * abs(lines - skewed).mean(axis=1).min()


AREAS = 5


def level(seed, number):
    """Return families, the areas of their cells, and their names."""
    random = np.random.default_rng(seed)
    sizes = random.integers(2, 40, number)
    cells = int(sizes.sum())
    totals = (random.pareto(0.5, number) * 20).astype(np.int64) + 1
    estimates = NodeEstimates(random.normal(3, 9, cells), random.uniform(1, 9, cells))
    families = prior.families_with(estimates, np.concatenate(([0], np.cumsum(sizes))), totals)
    areas, within = random.integers(0, AREAS, cells), np.zeros(cells, dtype=bool)
    within[families.first[:-1][::3]] = True  # of every third family
    return families, areas, within, shrink_statistics.hashed_names([np.arange(number), random.integers(0, 9, number)])


def of(families, areas, within, names, some):
    """Return what is learnt of some of the families."""
    cells = slice(families.first[some.start], families.first[some.stop])
    return shrink_statistics.statistics_of(families[some], areas[cells], within[cells], names[some], AREAS)


def listed(learnt):
    """Return all of it, to compare."""
    return [column.tolist() for column in learnt.columns().values()]


@pytest.mark.parametrize("sampled", [shrink_statistics._SAMPLED, 15])
@settings(max_examples=15)
@given(seed=st.integers(0, 999), cuts=st.lists(st.integers(0, 600), max_size=6), random=st.randoms())
def test_how_families_are_divided_and_in_what_order_changes_nothing(sampled, seed, cuts, random):
    """Parts of a level, in any order and joined step by step, come to the very numbers of the whole, and survive being written."""
    # So they do where most families are left out, and some of the cells of the others.
    families, areas, within, names = level(seed, 600)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shrink_statistics, "_SAMPLED", sampled)
        whole = of(families, areas, within, names, slice(0, 600))
        ends = sorted({0, *cuts, 600})
        parts = [of(families, areas, within, names, slice(*pair)) for pair in pairwise(ends)]
        random.shuffle(parts)
        learnt = shrink_statistics.nothing_learnt(AREAS)
        for part in parts:
            learnt = shrink_statistics.joined_statistics([learnt, part])
        assert listed(learnt) == listed(shrink_statistics.joined_statistics(parts)) == listed(whole)
        for written in (whole, learnt, of(families, areas, within, names, slice(0, 0))):
            assert listed(shrink_statistics.statistics_from(written.columns())) == listed(written)


def test_sums_and_cells_are_those_of_all_families():
    """Sums are of all cells of an area, to a thousandth; each stratum's cells are counted, sampled or not, and stood for once."""
    families, areas, within, names = level(3, 3_000)
    learnt = of(families, areas, within, names, slice(0, 3_000))
    assert np.allclose(learnt.values, np.bincount(areas, families.values, AREAS), atol=families.first[-1] / 2**11)
    assert [of.sum() for of in np.split(learnt.cells, 2)] == [families.first[-1], 1_000]
    sample = shrink_statistics.sample_of(learnt, np.ones(AREAS), np.array([0, AREAS]))
    assert len(sample.values) < families.first[-1]
    in_half = [sample.stand_for[sample.within == kind].sum() for kind in (False, True)]
    assert in_half == pytest.approx([families.first[-1] - 1_000, 1_000], rel=0.01)
