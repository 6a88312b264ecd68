"""Controlled rounding: every leaf and cell within less than 1, wherever two chains or an enumeration say that it can be."""

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.settle import controlled
from tasks.settle.controlled import Rounded, round_controlled

TRIANGLE = ([0, 0, 1], [0, 1, 1], [0, 1, 0])


def rounded(values: Sequence[float], *cells: Sequence[int]) -> Rounded:
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


def is_controlled(result: Rounded) -> bool:
    """Return whether every leaf and cell is within less than 1."""
    return max(result.deviations) < 1


def is_possible(values: np.ndarray, cells: Sequence[np.ndarray]) -> bool:
    """Return whether any whole counts are controlled, by trying all."""
    choices = product(*[sorted({np.floor(y), np.ceil(y)}) for y in values])
    moves = (np.array(z) - values for z in choices)
    return any(all(abs(np.bincount(of + 1, move)[1:]).max(initial=0) < 1 - 1e-9 for of in cells) for move in moves)


def partitions(leaves: int) -> Iterator[list[int]]:
    """Yield the labels of every partition of some leaves."""
    for labels in product(range(leaves), repeat=leaves):
        if all(label <= max(labels[:at], default=-1) + 1 for at, label in enumerate(labels)):
            yield list(labels)


def two_chains(seed: int, leaves: int) -> tuple[np.ndarray, list[np.ndarray]]:
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


@pytest.mark.parametrize("leaves", [2, 3, 4])
def test_any_two_partitions_are_controlled(leaves):
    """For all pairs of partitions of a few leaves, and all leaves of 0, 1/3 and 1/2, but for their order, rounding is controlled."""
    for first, second in combinations_with_replacement(partitions(leaves), 2):
        for values in combinations_with_replacement([0, 1 / 3, 0.5], leaves):
            assert is_controlled(rounded(values, first, second, [0] * leaves))


def test_the_triangle_is_reported():
    """Three leaves of 1/2 in three pairs have no controlled rounding: the result says so, and keeps the leaves."""
    result = rounded([0.5, 0.5, 0.5], *TRIANGLE)
    assert not is_controlled(result)
    assert max(result.deviations) == 1


def test_programs_find_what_enumeration_finds():
    """Where three to five groupings cross, rounding is controlled exactly where some whole counts are."""
    random, impossible = np.random.default_rng(4), 0
    for _ in range(250):
        leaves = int(random.integers(3, 10))
        values = random.integers(0, 14, leaves) / random.choice([2, 3, 4, 7])
        cells = [
            random.integers(0, random.integers(2, 4), leaves).astype(np.int32) for _ in range(random.integers(3, 6))
        ]
        possible = is_possible(values, cells)
        impossible += not possible
        assert is_controlled(rounded(values, *cells)) == possible
    assert impossible > 0


def test_leaves_of_the_same_cells_may_go_the_same_way():
    """Two leaves of 3/2 and 5/2 are in the same cells of all groupings, and rounding is controlled only if both go up or both down."""
    values = [1.5, 2.5, 2.5, 3, 2.5, 1.5, 1, 1]
    cells = [0, 0, 0, 0, 0, 1, 1, 1], [1, 0, 1, 0, 1, 1, 1, 0], [0] * 8, [0, 0, 0, 0, 1, 0, 0, 1]
    result = rounded(values, *cells)
    assert is_controlled(result)
    assert result.counts[[0, 2]].tolist() in ([1, 2], [2, 3])


def test_a_whole_sum_of_sevenths_is_met_or_not_whatever_floating_point_makes_of_it():
    """A sum that is off by 1 is not taken for one that is off by a little less, neither by the search nor in what is stated."""
    values = np.array([7, 5, 3, 16, 10, 24, 13, 17, 22, 1]) / 7
    cells = [0, 0, 1, 1, 0, 0, 0, 0, 1, 1], [0, 2, 1, 0, 0, 0, 2, 0, 0, 0], [1, 2, 2, 0, 0, 2, 2, 2, 2, 2]
    assert is_controlled(rounded(values, *cells))
    moved = [
        round(controlled._deviation(np.array([6 / 7, 1 / 7 - 1e-16, *[0.0] * 3]), np.zeros(5, dtype=np.int64)), 12)
    ]
    assert moved == [1.0]


@pytest.mark.parametrize("most", [0, 30_000])
def test_exact_totals_are_kept_where_rounding_is_not_controlled(monkeypatch, most):
    """A total that is whole is met by the program and by the flow, though other groupings cannot be."""
    monkeypatch.setattr(controlled, "_MOST_PROGRAMMED", most)
    values, cells = [0.5] * 6, [[*of, *(label + 2 for label in of)] for of in TRIANGLE]
    result = rounded(values, *cells, [0] * 6)
    assert not is_controlled(result)
    assert result.deviations[-2] == 0
    assert result.counts.sum() == 3


def test_sums_are_near_where_a_program_finds_nothing(monkeypatch):
    """Without a result of a program no sum is off by three; a program is asked where a sum is off by one, and all are controlled."""
    random = np.random.default_rng(1)
    values, cells = random.random(400), [random.integers(0, size, 400) for size in (30, 25, 20)]
    monkeypatch.setattr(controlled, "_programmed", lambda *_: None)
    assert 1 <= max(rounded(values, *cells).deviations) < 3
    monkeypatch.undo()
    assert is_controlled(rounded(values, *cells))
    monkeypatch.setattr(controlled, "_programmed", lambda atoms, _: atoms.sums.low)  # further off, and not taken
    assert 1 <= max(rounded(values, *cells).deviations) < 3


@pytest.mark.parametrize(("groupings", "is_asked"), [(14, False), (4, True)])
def test_a_program_is_asked_only_where_it_is_small(monkeypatch, groupings, is_asked):
    """With many groupings fewer leaves are enough to leave it out, whatever the machine: it grows with leaves times groupings."""
    random, asked = np.random.default_rng(1), []
    monkeypatch.setattr(controlled, "_programmed", lambda atoms, _: asked.append(len(atoms.leaves)))
    values = random.random(2_200)
    result = rounded(values, *(random.integers(0, 40, len(values)) for _ in range(groupings)))
    assert bool(asked) == is_asked
    assert max(result.deviations) >= 1


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


def test_most_leaves_go_to_the_nearest_whole_number():
    """The flow only corrects: of 2,500 leaves in rows and columns, at least 70% are rounded to the nearest."""
    first, second = np.divmod(np.arange(2500), 50)
    values = np.random.default_rng(5).random(2500) * 3
    result = rounded(values, first, second)
    assert is_controlled(result)
    assert (abs(result.counts - values) <= 0.5).mean() > 0.7


def test_small_tables_are_rounded_as_by_hand():
    """A cell of a million leaves of 1e-6 gets one record, not none; whole values do not change, those of 2**40 neither.

    Leaves with the same labels are rounded up in the order of their fractions, and equal ones in their own order. Two groupings alike,
    one that no leaf is in, none at all, and no leaves are rounded as well.
    """
    assert rounded([1e-6] * 1_000_000, [0] * 1_000_000, np.arange(1_000_000) % 3).counts.sum() == 1
    assert rounded([3, 0, 2.0**40], [0, 0, 1], [0, 1, 1]).counts.tolist() == [3, 0, 2**40]
    assert rounded([2.0**40 + 0.25, 0.75, 5], [0, 0, 1], [0, 1, 1]).counts.tolist() == [2**40, 1, 5]
    assert rounded([0.1, 0.9, 1.5, 0.5], [0, 0, 0, 0]).counts.tolist() == [0, 1, 2, 0]
    assert is_controlled(rounded([0.5, 0.5], [0, 1], [1, 0], [-1, -1], [0, 0]))
    assert rounded([0.2, 0.7]).counts.tolist() == [0, 1]
    assert rounded([0.2, 0.7], [-1, -1]).counts.tolist() == [0, 1]
    assert len(rounded([], []).counts) == 0


@pytest.mark.parametrize("cells", [3, 4])
def test_the_same_values_give_the_same_counts(cells):
    """Two calls agree, by a flow and by a program."""
    random = np.random.default_rng(7)
    values, labels = random.random(300), [random.integers(0, 20, 300) for _ in range(cells - 1)]
    results = [rounded(values, *labels, [0] * 300) for _ in range(2)]
    assert results[0].counts.tolist() == results[1].counts.tolist()


@pytest.mark.parametrize(
    ("values", "cell", "message"),
    [
        ([-0.5], [0], "values must be finite and >= 0"),
        ([np.nan], [0], "values must be finite and >= 0"),
        ([0.5], [0, 0], r"cells\[0\] must have a label >= -1 for each of 1 leaves"),
        ([0.5], [-2], r"cells\[0\] must have a label >= -1"),
    ],
)
def test_what_cannot_be_rounded_is_refused(values, cell, message):
    """Negative values and labels that do not fit are refused by name."""
    with pytest.raises(ValueError, match=message):
        round_controlled(np.array(values), [np.array(cell, dtype=np.int32)])
