"""The share of chosen cells that bear much noise is bounded however they are chosen: by enumeration, and by simulation."""

from itertools import product
from math import comb, exp

import numpy as np
import pytest
from scipy.special import ndtri, ndtri_exp

from tasks.groups import adjacent
from tasks.uncertainty import estimates, intervals
from tasks.uncertainty.selection import expected_excess, tails_of

SHARES = [0.01, 0.05, 0.1, 0.2, 0.5]


@pytest.mark.parametrize(("cells", "tail"), [(1, 0.3), (2, 0.9), (7, 0.1), (40, 0.02), (40, 0.999), (300, 1e-9)])
def test_the_expected_excess_is_that_of_the_binomial_law(cells, tail):
    """It is the sum over all outcomes, for every number from 0 to below the number of cells."""
    of = [comb(cells, hits) * tail**hits * (1 - tail) ** (cells - hits) for hits in range(cells + 1)]
    beyond = np.linspace(0, cells, 11)[:-1]
    exact = [sum(odds * max(hits - most, 0) for hits, odds in enumerate(of)) for most in beyond]
    assert expected_excess(cells, np.full(10, tail), beyond) == pytest.approx(exact, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("cells", [1, 2, 3, 4, 5, 6])
def test_the_worst_choice_of_cells_keeps_the_promise(cells, share):
    """An adversary sees all noise and then chooses how many cells, and which: the expected share that is hit is at most α."""
    tails = tails_of(cells, share)
    reach = [
        exp(tails.of(chosen)) for chosen in range(1, cells + 1)
    ]  # the odds of one cell's event, by how many are chosen
    steps = sorted({0.0, *reach, 1.0})
    worst = 0.0
    for noise in product(range(len(steps) - 1), repeat=cells):  # in which step of the odds each cell's noise lies
        odds = np.prod([steps[place + 1] - steps[place] for place in noise])
        hit = [sum(steps[place + 1] <= odds_of_event for place in noise) for odds_of_event in reach]
        worst += odds * max(min(hits, chosen) / chosen for chosen, hits in enumerate(hit, 1))
    assert worst <= share
    assert worst > share / 3  # or the intervals would be wider than they must


@pytest.mark.parametrize("cells", [30, 1000, 50_000])
def test_many_cells_keep_the_promise_and_naive_intervals_do_not(cells):
    """The adversary's best choice, in draws of normal noise: the rule holds; intervals for fixed cells miss far more."""
    tails, random, share = tails_of(cells, 0.1), np.random.default_rng(3), 0.1
    reach = -ndtri(np.exp(tails.log_tails) / 2)
    runs, found, naive = max(30, 60_000 // cells), [], []
    for _ in range(runs):
        noise = np.sort(np.abs(random.standard_normal(cells)))
        found.append(max((cells - np.searchsorted(noise, reach)) / tails.sizes))
        missed = cells - np.searchsorted(noise, -ndtri(share / 2))
        naive.append(float(missed > 0))  # who picks one of them alone
    assert np.mean(found) <= share + 3 * np.std(found) / runs**0.5
    assert np.mean(naive) > 0.9


FAMILIES = {  # from normal draws to the noise of half as many pairs of cells, and the tail that a row may take of it
    "each cell has a draw": (
        lambda draws: draws[:, 1:],
        lambda cells, rows: intervals.row_log_tail(cells, rows, 0.9),
    ),
    "adjacent cells share a draw": (
        lambda draws: np.diff(draws) / 2**0.5,
        lambda cells, rows: adjacent.row_log_tail(cells // 2, rows, 0.9),
    ),
    "siblings share what their parent has": (
        lambda draws: np.hstack([draws[:, 1::2], -draws[:, 1::2]]),
        lambda cells, rows: estimates.row_log_tail(cells, rows, 0.9),
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
        margin = -ndtri_exp(log_tail_of(cells, rows))
        missed = np.maximum(missed, (noise[:, -rows:] > margin).mean(axis=1))
    assert missed.mean() <= 0.1 + 3 * missed.std() / runs**0.5
    assert missed.mean() > 0.1 / 3  # or the intervals would be wider than they must


@pytest.mark.parametrize("cells", [1, 2, 10, 333, 10**6, 3 * 10**8])
def test_more_rows_never_take_a_wider_tail(cells):
    """Sizes go from all cells to one; the more are chosen, the likelier the event that may befall one; never likelier than α."""
    tails = tails_of(cells, 0.1)
    assert (tails.sizes[0], tails.sizes[-1]) == (cells, 1)
    assert list(tails.sizes) == sorted(set(tails.sizes), reverse=True)
    assert list(tails.log_tails) == sorted(tails.log_tails, reverse=True)
    assert max(tails.log_tails) <= np.log(0.1)
    assert tails.of(cells) == tails.log_tails[0]
    assert tails.of(max(cells - 1, 1)) == tails.log_tails[min(1, cells - 1)]
    assert tails.of(1) == tails.log_tails[-1]
