"""Rows that stand out: the marks are those of the rule, and few marked rows are noise."""

import numpy as np
import pytest

from tasks.uncertainty.selection import tails_of
from tasks.uncertainty.signals import signals


@pytest.fixture
def normal():
    """Return how far normal noise goes with a probability of at most exp(log_tail), on a grid of whole numbers."""
    from math import ceil

    from scipy.special import ndtri_exp

    return lambda log_tail: ceil(-5 * ndtri_exp(log_tail))


def test_marked_rows_are_above_one_margin_and_enough(normal):
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


def test_noise_alone_is_not_marked(normal):
    """Where no row is far above the noise, none is marked; nor is any of no rows."""
    assert signals(np.zeros(100, dtype=np.int64), 1000, 0.1, normal)[1] is None
    marked, above = signals(np.zeros(0, dtype=np.int64), 0, 0.1, normal)
    assert (len(marked), above) == (0, None)


@pytest.mark.parametrize("true_rows", [0, 5, 200])
def test_few_marked_rows_are_noise_whoever_picks_the_rows(normal, true_rows):
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
