"""Non-increasing values nearest to those of rows, against the min-max formula."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.sizes.monotone import falling, round_half_up


def by_formula(row: np.ndarray) -> list[float]:
    """Return the least, over all beginnings up to a size, of the largest mean from there to an end not before it."""
    n = len(row)
    return [min(max(row[begin : end + 1].mean() for end in range(at, n)) for begin in range(at + 1)) for at in range(n)]


@given(st.integers(0, 2**32 - 1))
def test_rows_are_those_of_the_formula(seed: int) -> None:
    """Every row is the isotonic regression of its own values, whatever the others are."""
    generator = np.random.default_rng(seed)
    rows = generator.normal(0, 5, (int(generator.integers(1, 6)), int(generator.integers(1, 8))))
    rows += generator.integers(-(10**6), 10**6, (len(rows), 1))
    assert falling(rows) == pytest.approx(np.array([by_formula(row) for row in rows]), abs=1e-6)


@given(st.integers(0, 2**32 - 1))
def test_integers_that_do_not_increase_stay_to_the_bit(seed: int) -> None:
    """Also where rows together span so much that they are pooled in several runs; a level without rows has none."""
    generator = np.random.default_rng(seed)
    rows = -np.sort(-generator.integers(-(2**38), 2**38, (9, 5))).astype(np.float64)
    kept = rows.copy()
    assert falling(rows).tolist() == rows.tolist() == kept.tolist()
    assert falling(rows[:0]).shape == (0, 5)


def test_halves_are_rounded_up() -> None:
    """Below zero as above it."""
    assert round_half_up(np.array([-1.5, -0.5, 0.49, 0.5, 1.5])).tolist() == [-1, 0, 0, 1, 2]
