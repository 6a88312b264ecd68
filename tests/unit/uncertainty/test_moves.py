"""The bound after the draw: it holds for every cell whenever no noise goes too far, measured or not, and that is likely enough."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import NO_NOISE, LevelNoise
from tasks.uncertainty.bounds import CONFIDENCE
from tasks.uncertainty.moves import Moves, bounds_after, reach_after

REACH = 3


@st.composite
def levels(draw: st.DrawFn) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Draw per level the true, noisy and released counts of all cells of a binary tree; −1 marks cells that are not measured."""
    depth = draw(st.integers(1, 3))
    true = [np.array(draw(st.lists(st.integers(0, 9), min_size=2**depth, max_size=2**depth)))]
    while len(true[0]) > 1:
        true.insert(0, true[0].reshape(-1, 2).sum(axis=1))
    of_levels, kept = [], np.ones(1, dtype=bool)
    for of_level in true:
        measured = np.repeat(kept, 2)[: len(of_level)] if len(of_level) > 1 else kept
        noise = np.array(draw(st.lists(st.integers(-REACH, REACH), min_size=len(of_level), max_size=len(of_level))))
        counts = np.array(draw(st.lists(st.integers(0, 12), min_size=len(of_level), max_size=len(of_level))))
        counts = counts * measured
        kept = counts > 0
        of_levels.append((of_level, np.where(measured, of_level + noise, -(10**6)), counts))
    return of_levels


@given(levels())
def test_every_cell_is_within_the_bound(of_levels):
    """Where all noise is within reach, no released count is further from the truth than its level's bound, 0s included."""
    moves = []
    for _, noisy, counts in of_levels:
        measured = noisy > -(10**6)
        of_level = Moves(REACH)
        of_level.add(noisy[measured], counts[measured])
        moves.append(of_level)
    for bound, (true, _, counts) in zip(bounds_after(moves), of_levels, strict=True):
        assert np.abs(counts - true).max() <= bound


def test_moves_add_up():
    """Parts of a level come to the same as the whole; the bias is the mean; nothing measured is no move."""
    noisy, released = np.array([-4, 0, 9, 30]), np.array([0, 0, 7, 33])
    parts, whole = Moves(5), Moves(5)
    for part in (slice(0, 1), slice(1, 1), slice(1, 4)):
        parts.add(noisy[part], released[part])
    whole.add(noisy, released)
    assert parts == whole
    assert (whole.above, whole.below, whole.bias) == (2 + 5, 3 + 5, (4 + 0 - 2 + 3) / 4)
    assert (Moves(5).bias, bounds_after([Moves(5), whole, Moves(0)])) == (0.0, [0, 8, 7])


@pytest.mark.parametrize("cells", [1, 50, 10**6])
def test_no_noise_goes_beyond_reach_but_with_the_stated_probability(cells):
    """A union over all cells, both sides and levels leaves what is left over of the confidence; exact levels have no reach."""
    noise, levels = LevelNoise(GAUSSIAN, 5.0), 4
    reach = reach_after(noise, cells, levels)
    values = np.arange(0, 400)
    weights = np.exp(-((values / 5.0) ** 2) / 2)
    beyond = weights[values > reach].sum() / (2 * weights.sum() - 1)
    assert 2 * levels * cells * beyond <= 1 - CONFIDENCE
    assert 2 * levels * cells * weights[values >= reach].sum() / (2 * weights.sum() - 1) > 1 - CONFIDENCE
    assert reach_after(NO_NOISE, cells, levels) == 0
    assert math.isclose(CONFIDENCE, 0.95)
