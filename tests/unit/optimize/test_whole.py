"""Whole increments against enumeration."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.optimize.whole import nearest_whole


def least_cost(values: np.ndarray, total: int, most: np.ndarray) -> float:
    """Return the least sum of squares over all whole numbers within the bounds that add up to the total."""
    candidates = np.array(list(product(*(range(bound + 1) for bound in most))))
    return float(((candidates[candidates.sum(axis=1) == total] - values) ** 2).sum(axis=1).min())


@pytest.mark.parametrize("is_bounded", [False, True])
@given(seed=st.integers(0, 2**32 - 1))
def test_nothing_is_nearer(seed: int, is_bounded: bool) -> None:
    """For several parents at once, each gets its total within the bounds of its cells, at the least cost."""
    generator = np.random.default_rng(seed)
    fan_out = generator.integers(1, 4, int(generator.integers(1, 4)))
    first = np.append(0, np.cumsum(fan_out))
    values = np.round(generator.normal(1, 3, first[-1]), int(generator.integers(0, 3)))
    most = generator.integers(0, 4, first[-1])
    room = np.add.reduceat(most, first[:-1])
    totals = generator.integers(0, (room if is_bounded else np.full(len(fan_out), 5)) + 1)
    kept = values.copy()
    found = nearest_whole(values, first, totals, most if is_bounded else None)
    assert values.tolist() == kept.tolist()
    for parent, (begin, end) in enumerate(pairwise(first)):
        own, total = found[begin:end], totals[parent]
        bounds = most[begin:end] if is_bounded else np.full(end - begin, total)
        assert own.sum() == total
        assert ((own >= 0) & (own <= bounds)).all()
        cost = ((own - values[begin:end]) ** 2).sum()
        assert cost == pytest.approx(least_cost(values[begin:end], total, bounds), abs=1e-6)


def test_of_equal_fractions_the_larger_count_is_raised() -> None:
    """Of 1.5 and 0.5 the former; of equal cells the lower one; large totals stay exact."""
    first, totals = np.array([0, 3, 5, 7]), np.array([1, 2**40 + 1, 2])
    values = np.array([1 / 3, 1 / 3, 1 / 3, 2.0**40, 0.0, 0.5, 1.5])
    assert nearest_whole(values, first, totals).tolist() == [1, 0, 0, 2**40 + 1, 0, 0, 2]
