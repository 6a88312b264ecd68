"""Rounding that favours no cell: sums over many groupings stay near, whatever the order and the fractions are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.settle.evened import evened


def off_by(fractions: np.ndarray, z: np.ndarray, cells: list[np.ndarray]) -> float:
    """Return by how much a sum over a cell is off at most."""
    return max(float(abs(np.bincount(of + 1, z - fractions)[1:]).max(initial=0)) for of in cells)


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 3000), groupings=st.integers(1, 5))
def test_sums_stay_near(seed, size, groupings):
    """Of random fractions in random cells, some of them in none, no sum is off by more than five."""
    random = np.random.default_rng(seed)
    fractions = random.random(size)
    cells = [random.integers(-1, random.integers(1, 40), size) for _ in range(groupings)]
    z = evened(fractions, cells)
    assert z.dtype == np.bool_
    assert off_by(fractions, z, cells) < 5


@pytest.mark.parametrize("fraction", [0.001, 0.5, 0.999, None])
def test_equal_fractions_of_a_cell_do_not_all_become_the_same(monkeypatch, fraction):
    """In a grid whose last axis decides the fraction, each of its cells has nearly what it should; so where few can be moved."""
    axes = np.indices((30, 30, 30)).reshape(3, -1)
    if fraction is None:
        monkeypatch.setattr("tasks.settle.evened._MOST_MOVED", 5_000)
        fractions = np.random.default_rng(4).random(27_000)
    else:
        fractions = np.where(axes[2] % 2, fraction, 1 - fraction)
    assert off_by(fractions, evened(fractions, list(axes)), list(axes)) < 4


def test_the_same_fractions_give_the_same_numbers():
    """Two calls agree; without fractions, or without groupings, there is nothing to mend."""
    random = np.random.default_rng(2)
    fractions, cells = random.random(500), [random.integers(0, 9, 500) for _ in range(3)]
    assert evened(fractions, cells).tolist() == evened(fractions, cells).tolist()
    assert len(evened(np.zeros(0), [np.zeros(0, dtype=np.int64)])) == 0
    assert abs(evened(fractions, []).sum() - fractions.sum()) < 50
