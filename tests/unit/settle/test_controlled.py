"""Controlled rounding, every leaf and cell within less than 1 wherever that can be, and rounding that favours no cell."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.settle import controlled
from tasks.settle.controlled import round_controlled
from tasks.settle.evened import evened


def rounded(values, *cells):
    """Return what plain numbers are rounded to, once the result keeps what any result must."""
    y, labels = np.array(values, dtype=np.float64), [np.array(of, dtype=np.int32) for of in cells]
    result = round_controlled(y, labels)
    assert result.counts.dtype == np.int64
    assert result.counts.min(initial=0) >= 0
    assert abs(result.counts - y).max(initial=0) < 1
    for of, deviation in zip([*labels, np.arange(len(y))], result.deviations, strict=True):
        sums = np.bincount(of + 1, result.counts - y)[1:]
        assert deviation == pytest.approx(abs(sums).max(initial=0), abs=1e-9)
    return result


def is_controlled(result):
    """Return whether every leaf and cell is within less than 1."""
    return max(result.deviations) < 1


def is_possible(values, cells):
    """Return whether any whole counts are controlled, by trying all."""
    choices = product(*[sorted({np.floor(y), np.ceil(y)}) for y in values])
    moves = (np.array(z) - values for z in choices)
    return any(all(abs(np.bincount(of + 1, move)[1:]).max(initial=0) < 1 - 1e-9 for of in cells) for move in moves)


def two_chains(seed, leaves):
    """Return values, many of them whole or quarters, and two chains of partitions, some of them of a part of the leaves."""
    random = np.random.default_rng(seed)
    values = random.random(leaves) * 3
    values = np.where(random.random(leaves) < 0.3, np.rint(values), values)
    values = np.rint(values * 4) / 4 if seed % 3 == 0 else values
    first, second = random.integers(0, 9, leaves), random.integers(0, 7, leaves)
    cells = [first, first // 3, second, second // 2, 0 * first]
    if seed % 2:  # what is measured in a part only: of cells of the chain, or of leaves at its finest
        cells[0] = np.where(random.random(leaves) < 0.2, -1, first)
        cells[2] = np.where(second // 2 == 1, -1, second)
    return values, [of.astype(np.int32) for of in cells]


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32 - 1), leaves=st.integers(1, 60))
def test_two_chains_are_always_controlled(seed, leaves):
    """Groupings that two chains hold never deviate by 1 or more, in any leaf or cell."""
    values, cells = two_chains(seed, leaves)
    assert is_controlled(rounded(values, *cells))


def test_programs_find_what_enumeration_finds():
    """Where three to five groupings cross, rounding is controlled exactly where some whole counts are."""
    random, impossible = np.random.default_rng(4), 0
    for _ in range(250):
        leaves = int(random.integers(3, 10))
        values = random.integers(0, 14, leaves) / random.choice([2, 3, 4, 7])
        parts = [random.integers(2, 4) for _ in range(random.integers(3, 6))]
        cells = [random.integers(0, of, leaves).astype(np.int32) for of in parts]
        possible = is_possible(values, cells)
        impossible += not possible
        assert is_controlled(rounded(values, *cells)) == possible
    assert impossible > 0


@pytest.mark.parametrize("most", [0, 30_000])
def test_exact_totals_are_kept_where_rounding_is_not_controlled(monkeypatch, most):
    """A total that is whole is met by the program and by the flow, though other groupings cannot be."""
    monkeypatch.setattr(controlled, "_MOST_PROGRAMMED", most)
    triangle = ([0, 0, 1], [0, 1, 1], [0, 1, 0])
    values, cells = [0.5] * 6, [[*of, *(label + 2 for label in of)] for of in triangle]
    result = rounded(values, *cells, [0] * 6)
    assert not is_controlled(result)
    assert result.deviations[-2] == 0
    assert result.counts.sum() == 3


@pytest.mark.parametrize("pairs", [False, True])
def test_groupings_beyond_two_chains_stay_near(monkeypatch, pairs):
    """All leaves of a cell have nearly the same fraction, and there are too many for a program: no sum is off by many."""
    monkeypatch.setattr(controlled, "_MOST_PROGRAMMED", 0)
    random, axes = np.random.default_rng(3), np.indices((25, 25, 25)).reshape(3, -1)
    values = sum(random.random(25)[axis] * size for axis, size in zip(axes, (0.1, 0.1, 1.0), strict=True))
    cells = [axes[one] * 25 + axes[other] for one, other in ((0, 1), (1, 2), (0, 2))] if pairs else axes
    result = rounded(values, *cells, [0] * len(values))
    assert max(result.deviations) < 4
    largest_first = np.floor(values) + (values % 1 > 0.5)
    assert max(abs(np.bincount(axes[2], largest_first - values))) > 200


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32 - 1))
def test_whole_sums_are_met_though_floating_point_blurs_them(seed):
    """Sums that are whole but for the last bits of their leaves are met exactly, by both chains and up to 2**40."""
    random = np.random.default_rng(seed)
    first, second = np.divmod(np.arange(400), 20)
    table = random.random((20, 20)) * random.choice([1.0, 1e6, 2.0**31])
    for _ in range(400):  # to whole margins, one after the other
        for axis in (1, 0):
            sums = table.sum(axis=axis, keepdims=True)
            table *= np.rint(sums) / sums
    table *= 1 + random.choice([-1e-16, 0, 1e-16], (20, 20))
    result = rounded(table.ravel(), first, second, [0] * 400)
    assert is_controlled(result)
    margins = result.counts.reshape(20, 20)
    assert margins.sum(axis=0).tolist() == np.rint(table.sum(axis=0)).tolist()
    assert margins.sum() == np.rint(table.sum())


def test_leaves_of_the_same_cells_are_shared_out_and_whole_ones_stay():
    """A cell of a million leaves of 1e-6 gets one record, not none; whole values do not change, those of 2**40 neither."""
    assert rounded([1e-6] * 1_000_000, [0] * 1_000_000, np.arange(1_000_000) % 3).counts.sum() == 1
    assert rounded([2.0**40 + 0.25, 0.75, 5], [0, 0, 1], [0, 1, 1]).counts.tolist() == [2**40, 1, 5]
    assert rounded([0.2, 0.7], [-1, -1]).counts.tolist() == [0, 1]
    assert len(rounded([], []).counts) == 0


@pytest.mark.parametrize(("values", "cell", "message"), [
    ([-0.5], [0], "values must be finite and >= 0"),
    ([np.nan], [0], "values must be finite and >= 0"),
    ([0.5], [0, 0], r"cells\[0\] must have a label >= -1 for each of 1 leaves"),
    ([0.5], [-2], r"cells\[0\] must have a label >= -1"),
])  # fmt: skip
def test_what_cannot_be_rounded_is_refused(values, cell, message):
    """Negative values and labels that do not fit are refused by name."""
    with pytest.raises(ValueError, match=message):
        round_controlled(np.array(values), [np.array(cell, dtype=np.int32)])


def off_by(fractions, z, cells):
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
