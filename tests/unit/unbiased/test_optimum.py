"""Strategies for ranges: near the bound that no linear mechanism goes below, and told whole from their text."""

from itertools import product

import numpy as np
import pytest

from tasks.accounting.sensitivity import moves_of
from tasks.unbiased.dense import Strategy, covariance_of, squared_moves
from tasks.unbiased.optimum import design, gram
from tests.support.neighbours import RELATIONS

NAMED = ((0, 3), (2, 9), (5, 6))


def variance_of(strategy, workload, moves):
    """Return the mean variance of a workload at 2ρ = 1, by a dense inverse."""
    covariance = covariance_of(strategy.products, total_is_known=not moves[-1].any())
    return squared_moves(strategy.products)[moves].max() * (gram(workload, len(covariance)) * covariance).sum()


@pytest.mark.parametrize("leaves", [2, 9, 24, 101, pytest.param(256, marks=pytest.mark.thorough)])
@pytest.mark.parametrize(("neighbours", "is_public"), RELATIONS)
def test_a_strategy_is_near_the_bound(leaves, neighbours, is_public):
    """Its mean variance is at most 1% above the bound, which other strategies do not go below; a mean over questions is that of the questions."""
    moves = moves_of(leaves, neighbours, total_is_public=is_public)
    for workload in ("ranges", "prefix", *([NAMED] if leaves >= 9 else [])):
        found = design(workload, moves)
        assert found.at_least <= variance_of(found.strategy, workload, moves) <= 1.01 * found.at_least
        for other in (np.eye(leaves), np.tri(leaves) + 1, 2 * np.eye(leaves) + np.eye(leaves, k=1)):
            assert variance_of(Strategy(other.astype(np.int64)), workload, moves) >= found.at_least
    ends = [(first, stop) for first, stop in product(range(leaves), range(1, leaves + 1)) if first < stop]
    assert leaves > 24 or gram(tuple(ends), leaves) == pytest.approx(gram("ranges", leaves))
    assert (Strategy.from_text(found.strategy.text).rows == found.strategy.rows).all()
