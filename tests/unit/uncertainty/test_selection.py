"""What holds of chosen rows, however they are chosen: misses, marks and rows of noise are bounded, by enumeration and by simulation."""

import math
from functools import reduce
from itertools import product
from math import ceil, comb, exp
from operator import add

import numpy as np
import pytest
from scipy.special import ndtr, ndtri_exp
from scipy.stats import binom

from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import LevelNoise
from tasks.sizes import intervals as adjacent
from tasks.uncertainty import binomial, estimates, intervals
from tasks.uncertainty.noise_rows import LOG_TAILS, RISK, BeyondMargins, beyond
from tasks.uncertainty.signals import expected_excess, signals, signals_under_any_dependence, tails_of


@pytest.mark.parametrize(("cells", "tail"), [(1, 0.3), (2, 0.9), (7, 0.1), (20, 0.02), (40, 0.999), (300, 1e-9)])
def test_the_expected_excess_is_that_of_the_binomial_law(cells, tail, monkeypatch):
    """It is the sum over all outcomes, for every number from 0 to below the number of cells."""
    monkeypatch.setattr(binomial, "_MOST_SUMMED", 20)  # of more cells by SciPy
    of = [comb(cells, hits) * tail**hits * (1 - tail) ** (cells - hits) for hits in range(cells + 1)]
    beyond = np.linspace(0, cells, 11)[:-1]
    exact = [sum(odds * max(hits - most, 0) for hits, odds in enumerate(of)) for most in beyond]
    assert expected_excess(cells, np.full(10, tail), beyond)[0] == pytest.approx(exact, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("share", [0.01, 0.05, 0.1, 0.2, 0.5])
@pytest.mark.parametrize("cells", [1, 2, 3, 4, 5, 6])
def test_the_worst_choice_of_cells_keeps_the_promise(cells, share):
    """An adversary sees all noise and then chooses how many cells, and which: the expected share that is hit is at most α."""
    tails = tails_of(cells, share)
    reach = [exp(tails.of(chosen)) for chosen in range(1, cells + 1)]  # the odds of an event, by how many are chosen
    steps = sorted({0.0, *reach, 1.0})
    worst = 0.0
    for noise in product(range(len(steps) - 1), repeat=cells):  # in which step of the odds each cell's noise lies
        odds = np.prod([steps[place + 1] - steps[place] for place in noise])
        hit = [sum(steps[place + 1] <= odds_of_event for place in noise) for odds_of_event in reach]
        worst += odds * max(min(hits, chosen) / chosen for chosen, hits in enumerate(hit, 1))
    assert worst <= share
    assert worst > share / 3  # or the intervals would be wider than they must


FAMILIES = {  # from normal draws to the noise of half as many pairs of cells, and the tail that a row may take of it
    "each cell has a draw": (lambda draws: draws[:, 1:], lambda cells, rows: intervals.row_log_tail(cells, rows, 0.9)),
    "adjacent cells share a draw": (
        lambda draws: np.diff(draws) / 2**0.5,
        lambda cells, rows: adjacent.log_tail_of_sizes(cells // 2, rows, 0.9),
    ),
}


@pytest.mark.parametrize("cells", [2, 1000])
@pytest.mark.parametrize("family", FAMILIES)
def test_rows_keep_the_promise_whoever_chooses_how_many_and_which(family, cells):
    """In every family of mechanisms: of rows that are chosen by all noise, so that most of them miss, a share α does so on average."""
    noise_of, log_tail_of = FAMILIES[family]
    runs = 2_000_000 // max(cells, 200)
    noise = np.sort(abs(noise_of(np.random.default_rng(11).standard_normal((runs, cells + 1)))), axis=1)
    missed = np.zeros(runs)
    for rows in np.unique(np.geomspace(1, cells, 60).astype(int)).tolist():
        missed = np.maximum(missed, (noise[:, -rows:] > -ndtri_exp(log_tail_of(cells, rows))).mean(axis=1))
    assert missed.mean() <= 0.1 + 3 * missed.std() / runs**0.5
    assert missed.mean() > 0.1 / 3  # or the intervals would be wider than they must


@pytest.mark.parametrize("deviation", [0.1, 0.5, 1.0, 3.0, 10.0, 300.0])
@pytest.mark.parametrize("share", [1e-4, 0.1, 0.5])
def test_of_unbiased_counts_that_are_not_0_as_few_miss_as_of_all(deviation, share):
    """By the whole law of a normal error: a cell that has a row misses with a probability of at most α times that of having one."""
    errors = np.arange(-ceil(9 * deviation) - 2, ceil(9 * deviation) + 3)
    law = ndtr((errors + 0.5) / deviation) - ndtr((errors - 0.5) / deviation)
    for true in (0, 1, 7, 10_000):
        counts = true + errors
        released = estimates.Estimates(counts, np.full(len(counts), deviation), 10**6)
        low, high = released.cell_intervals(1 - share, None)
        missed = law[((true < low) | (high < true)) & (counts != 0)].sum()
        assert missed <= share * law[counts != 0].sum()
        assert missed > share / 2 or deviation < 300 or not true


def normal(log_tail):
    """Return how far normal noise goes with a probability of at most exp(log_tail), on a grid of whole numbers."""
    return ceil(-5 * ndtri_exp(log_tail))


@pytest.mark.parametrize("true_rows", [0, 5, 200])
def test_few_marked_rows_are_noise_whoever_picks_the_rows(true_rows):
    """An adversary publishes, besides some true cells, the empty cells with the most noise: the mean false share is small."""
    random, shares = np.random.default_rng(true_rows), []
    for _ in range(300):
        noise = np.round(random.normal(0, 5, 1000)).astype(np.int64)
        noise[:true_rows] += 40
        worst = true_rows + np.argsort(-noise[true_rows:])[: 3 * true_rows + 5]
        rows = np.concatenate((np.arange(true_rows), worst))
        marked, _ = signals(noise[rows], 1000, 0.1, normal)
        shares.append((marked & (rows >= true_rows)).sum() / max(marked.sum(), 1))
    assert np.mean(shares) <= 0.1 + 2 * np.std(shares) / len(shares) ** 0.5


@pytest.mark.parametrize("cells", [2, 40])
def test_where_adjacent_cells_share_a_draw_few_marked_rows_are_noise(cells):
    """Of empty cells, the noise of each of which is that of two draws, any is marked with a probability of at most the rate."""
    random, terms, marked = np.random.default_rng(5), np.full(cells, 2), []
    for draws in random.normal(0, 5 / 2**0.5, (4000, cells + 1)):
        noisy = np.round(np.diff(draws)).astype(np.int64)
        found, _ = adjacent.signals_of_sizes(
            noisy, terms, cells // 2, 0.1, lambda log_tail, of: np.full(len(of), normal(log_tail))
        )
        marked.append(found.any())
    assert np.mean(marked) <= 0.1 + 3 * np.std(marked) / len(marked) ** 0.5


def test_under_the_worst_dependence_few_marked_rows_are_noise():
    """Noise that is made to mark as many rows as the rule asks for, one size or another, marks any with a probability of at most the rate."""
    # Every cell is empty, so that all marks are false. Of M cells either M, or M/2, or M/4 … have a p-value just within the reach of that size.
    # The law of each cell is uniform as it must be; it is made against rules that try the rate itself, or any part of it.
    cells, rate = 64, 0.1
    sizes = [cells >> halved for halved in range(7)]

    def margin_of(log_tail):
        return int(-1e6 * log_tail)

    def is_marked(size, p_value):
        noisy = np.where(np.arange(cells) < size, int(-1e6 * np.log(p_value)), -1)
        return signals_under_any_dependence(noisy, cells, rate, margin_of)[0].any()

    odds = []
    for against in np.geomspace(rate / 8, rate, 40):
        reach = [against * size / cells for size in [*sizes, 0]]
        marked = [is_marked(size, at) for size, at in zip(sizes, reach, strict=False)]
        odds.append((-np.diff(reach) * cells / sizes * marked).sum())
    assert max(odds) <= rate
    assert max(odds) > rate / 2  # or fewer rows would be marked than may be


@pytest.mark.parametrize("rule", [signals, signals_under_any_dependence])
def test_counts_far_above_the_noise_are_marked(rule):
    """All of them are, and counts of 0 are not; nothing is marked of noise alone or of no rows."""
    noisy = np.where(np.arange(50) < 12, 90, 1)
    assert rule(noisy, 50, 0.1, normal)[0].tolist() == (noisy == 90).tolist()
    assert not rule(noisy % 2, 50, 0.1, normal)[0].any()
    assert rule(noisy[:0], 50, 0.1, normal)[1] is None


BETA = RISK / (2 * len(LOG_TAILS))


def at_most(below, cells):
    """Return how many rows above every margin may be noise, with as many noisy counts below every margin."""
    seen = BeyondMargins(np.full(len(LOG_TAILS), below), np.zeros(len(LOG_TAILS), dtype=np.int64))
    return seen.at_most(cells, cells)


def test_parts_add_up():
    """Whether cells are added in parts or at once makes no difference; rows are never more than there are."""
    noisy = np.rint(np.random.default_rng(4).normal(0, 6, 400)).astype(np.int64)
    margins = [LevelNoise(GAUSSIAN, 6.0).quantile(log_tail) for log_tail in LOG_TAILS]
    parts, whole = (np.array_split(noisy, into) for into in (4, 1))
    parts, whole = (reduce(add, [beyond(part, part[part > 3], margins) for part in of]) for of in (parts, whole))
    assert (parts.below.tolist(), parts.within.tolist()) == (whole.below.tolist(), whole.within.tolist())
    assert BeyondMargins(whole.below, whole.within * 0 + 7).at_most(400, 5) == 5


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
    assert binom.sf(said, cells, chance) <= BETA
