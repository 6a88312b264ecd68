"""Rows that stand out: the marks are those of the rule, and few marked rows are noise."""

from math import ceil

import numpy as np
import pytest
from scipy.special import ndtri_exp

from tasks.groups import adjacent
from tasks.uncertainty.selection import tails_of
from tasks.uncertainty.signals import signals, signals_under_any_dependence


def normal(log_tail: float) -> int:
    """Return how far normal noise goes with a probability of at most exp(log_tail), on a grid of whole numbers."""
    return ceil(-5 * ndtri_exp(log_tail))


def test_marked_rows_are_above_one_margin_and_enough():
    """Every row above the margin is marked and no other; the size of the rule is reached, and no larger size would be."""
    random = np.random.default_rng(1)
    noisy = np.concatenate((random.normal(40, 5, 50), random.normal(0, 5, 450))).round().astype(np.int64)
    marked, above = signals(noisy, 2000, 0.1, normal)
    assert above is not None
    assert (marked == (noisy > above)).all()
    tails = tails_of(2000, 0.1)
    reached = [
        size for size, tail in zip(tails.sizes, tails.log_tails, strict=True) if (noisy > normal(tail)).sum() >= size
    ]
    assert max(reached) <= marked.sum()
    assert above == normal(tails.of(max(reached)))
    assert 45 <= marked.sum() <= 60


def test_noise_alone_is_not_marked():
    """Where no row is far above the noise, none is marked; nor is any of no rows."""
    assert signals(np.zeros(100, dtype=np.int64), 1000, 0.1, normal)[1] is None
    marked, above = signals(np.zeros(0, dtype=np.int64), 0, 0.1, normal)
    assert (len(marked), above) == (0, None)


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
        found, _ = adjacent.signals(
            noisy, terms, cells // 2, 0.1, lambda log_tail, of: np.full(len(of), normal(log_tail))
        )
        marked.append(found.any())
    assert np.mean(marked) <= 0.1 + 3 * np.std(marked) / len(marked) ** 0.5


def test_under_any_dependence_few_marked_rows_are_noise():
    """Where all noises are one and the same, the expected share of noise among the marked rows is at most the rate, which that of a fixed margin is not."""
    random, rate, cells = np.random.default_rng(3), 0.1, 100
    true = np.where(np.arange(cells) < 20, 60, 0)
    shares, fixed = [], []
    for _ in range(4000):
        noisy = true + round(random.normal(0, 5))
        marked, _ = signals_under_any_dependence(noisy, cells, rate, normal)
        shares.append((marked & (true == 0)).sum() / max(marked.sum(), 1))
        above = noisy > normal(np.log(0.3))
        fixed.append((above & (true == 0)).sum() / max(above.sum(), 1))
    assert np.mean(shares) <= rate
    assert np.mean(fixed) > rate


def test_under_the_worst_dependence_few_marked_rows_are_noise():
    """Noise that is made to mark as many rows as the rule asks for, one size or another, marks any with a probability of at most the rate.

    Every cell is empty, so that all marks are false. Of M cells either M, or M/2, or M/4 … have a p-value just within the reach of that size.
    The law of each cell is uniform as it must be; it is made against rules that try the rate itself, or any part of it.
    """
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
        odds.append(
            sum(
                (reach[number] - reach[number + 1]) * cells / size * is_marked(size, reach[number])
                for number, size in enumerate(sizes)
            )
        )
    assert max(odds) <= rate
    assert max(odds) > rate / 2  # or fewer rows would be marked than may be


def test_under_any_dependence_counts_far_above_the_noise_are_marked():
    """All of them are, and counts of 0 are not; nothing is marked of noise alone or of no rows."""
    noisy = np.where(np.arange(50) < 12, 90, 1)
    assert signals_under_any_dependence(noisy, 50, 0.1, normal)[0].tolist() == (noisy == 90).tolist()
    assert not signals_under_any_dependence(noisy % 2, 50, 0.1, normal)[0].any()
    assert signals_under_any_dependence(noisy[:0], 50, 0.1, normal)[1] is None
