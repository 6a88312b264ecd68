"""Least squares over all nodes of a tree, against a dense solution of the same problem; and rounded prefix sums."""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import NO_NOISE, LevelNoise
from tasks.tree.axis import IntArray, axis_from_codebook
from tasks.tree.frontier import taking
from tasks.tree.order import Tree
from tasks.tree.ordered import ordered_axis
from tasks.unbiased.least_squares import least_squares, precisions_of
from tasks.unbiased.prefix_sums import round_prefix_sums
from tasks.unbiased.variance import ROUNDING_VARIANCE, tree_variances
from tests.support.universe import Universe, universes


def kept(noisy: Sequence[IntArray]) -> Callable[[int], Callable[[int], IntArray]]:
    """Return where the noisy counts of levels are, in parts of three."""
    return lambda level: taking(iter(np.array_split(noisy[level], range(3, len(noisy[level]), 3))))


def dense(universe: Universe, precisions: Sequence[float], noisy: Sequence[IntArray]) -> np.ndarray:
    """Return the least-squares values of the leaves by the pseudo-inverse, an exact root by a weight of 1e9."""
    leaves = universe.nodes(universe.tree.depth)
    rows, weights, values = [], [], []
    for level, counts in enumerate(noisy):
        weight = min(precisions[level], 1e9)
        for node, count in zip(universe.nodes(level), counts, strict=True):
            rows.append(
                [node == tuple(path[: len(own)] for path, own in zip(leaf, node, strict=True)) for leaf in leaves]
            )
            weights.append(np.sqrt(weight))
            values.append(count * np.sqrt(weight))
    matrix = np.array(rows, dtype=float) * np.array(weights)[:, None]
    return np.linalg.lstsq(matrix, np.array(values), rcond=None)[0]


@settings(max_examples=60)
@given(universes(), st.data(), st.integers(1, 9))
def test_values_are_those_of_the_dense_solution(universe: Universe, data: st.DataObject, most_cells: int) -> None:
    """Whatever the precisions, the axes, their order and the parts; levels need not all be measured, and the root may be exact."""
    tree = universe.tree
    sizes = [tree.possible_cells(level) for level in range(tree.depth + 1)]
    precisions = [data.draw(st.sampled_from([0.0, 0.5, 1.0, 3.0])) for _ in sizes]
    precisions[0] = data.draw(st.sampled_from([0.0, 1.0, np.inf]))
    precisions[-1] = data.draw(st.sampled_from([0.3, 1.0]))
    noisy = [np.array(data.draw(st.lists(st.integers(-9, 30), min_size=size, max_size=size))) for size in sizes]
    found = np.concatenate(
        list(least_squares(tree_variances(tree, precisions), precisions, kept(noisy), most_cells=most_cells))
    )
    assert found == pytest.approx(dense(universe, precisions, noisy), abs=1e-5)


def binary(leaves: int, branching: int = 2) -> Tree:
    """Return a tree of one ordered axis."""
    axis = axis_from_codebook("x", ordered_axis("x", {"ordered": leaves, "branching": branching}).codebook())
    return Tree((axis,), (0,) * axis.depth)


def test_the_vector_of_the_page() -> None:
    """Root 10, children 7 and 4, equal noise: 6⅔ and 3⅔, whose prefix sums 6.67 and 10.33 are rounded to 7 and 3."""
    tree, noisy = binary(2), [np.array([10]), np.array([7, 4])]
    values = list(least_squares(tree_variances(tree, [1.0, 1.0]), [1.0, 1.0], kept(noisy)))
    assert np.concatenate(values) == pytest.approx([20 / 3, 11 / 3])
    assert np.concatenate(list(round_prefix_sums(values))).tolist() == [7, 3]


def test_counts_that_add_up_stay_as_they_are() -> None:
    """Without noise the values are the counts, up to a total of 2**40."""
    tree = binary(13, 3)
    leaves = np.arange(13) * 2**34 + np.array([0, 3] * 6 + [1])
    noisy = [
        np.add.reduceat(leaves, tree.axes[0].first_descendants(level, tree.depth)[:-1])
        for level in range(tree.depth + 1)
    ]
    values = least_squares(tree_variances(tree, [1, 2, 0, 1]), [1, 2, 0, 1], kept(noisy))
    assert np.concatenate(list(round_prefix_sums(values))).tolist() == leaves.tolist()


def test_a_level_that_repeats_the_one_above_need_not_be_measured() -> None:
    """Only children get the values of their parents."""
    axis = axis_from_codebook("x", ordered_axis("x", {"ordered": 2}).codebook().with_columns(y="x"))
    tree, precisions = Tree((axis,), (0, 0)), [0.0, 1.0, 0.0]
    noisy = [np.array([0]), np.array([5, -2]), np.array([0, 0])]
    found = np.concatenate(list(least_squares(tree_variances(tree, precisions), precisions, kept(noisy))))
    assert found.tolist() == [5, -2]


def test_precisions_follow_from_the_noise() -> None:
    """A level that is not measured has none, and an exact one any."""
    assert precisions_of([NO_NOISE, None, LevelNoise(GAUSSIAN, 2.0)]) == [np.inf, 0.0, 0.25]


values_of_leaves = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


@given(values_of_leaves, st.lists(st.integers(0, 40), max_size=4))
def test_every_range_moves_by_at_most_one(values: list[float], cuts: list[int]) -> None:
    """Every sum of adjacent counts is within 1 of that of the values, every prefix within a half; parts do not matter."""
    whole = next(round_prefix_sums([np.array(values)]))
    assert whole.dtype == np.int64
    moved = np.concatenate(([0.0], np.cumsum(whole - np.array(values))))
    assert abs(moved).max() <= 0.5 + 1e-6
    assert max(abs(moved[end] - moved[first]) for first, end in product(range(len(moved)), repeat=2)) <= 1 + 1e-6
    parts = np.split(np.array(values), sorted(min(cut, len(values)) for cut in cuts))
    assert abs(np.concatenate(list(round_prefix_sums(parts))).cumsum() - whole.cumsum()).max() <= 1


def test_halves_go_to_the_even_number() -> None:
    """Prefix sums 0.5, 1, 1.5, 2.5 are rounded to 0, 1, 2, 2; so are those of parts, and below zero."""
    values = np.array([0.5, 0.5, 0.5, 1.0])
    for parts in ([values], [values[:1], values[1:3], values[3:]], [values[:0], values]):
        assert np.cumsum(np.concatenate(list(round_prefix_sums(parts)))).tolist() == [0, 1, 2, 2]
    assert np.cumsum(next(round_prefix_sums([-values]))).tolist() == [0, -1, -2, -2]


def test_rounding_adds_a_sixth_and_no_bias() -> None:
    """With broad noise, errors of ranges have the stated variance within 2%, and a mean of 0 within five standard errors."""
    values = np.random.default_rng(1).normal(0, 50, 200_000)
    prefixes = np.cumsum(next(round_prefix_sums([values])) - values)
    ranges = prefixes[3::4] - prefixes[1::4]
    assert (ranges**2).mean() == pytest.approx(1 / 6, rel=0.02)
    assert pytest.approx(1 / 6) == ROUNDING_VARIANCE
    assert abs(ranges.mean()) < 5 * np.sqrt(ROUNDING_VARIANCE / ranges.size)


def test_large_totals_lose_nothing() -> None:
    """A thousand values near 2**40, each with a third, keep their prefix sums to the record."""
    whole = np.full(3000, 2**40)
    counts = np.concatenate(list(round_prefix_sums(np.array_split(whole + 1 / 4, 7))))
    moved = np.cumsum(counts - whole) - np.arange(1, 3001) / 4
    assert abs(moved).max() <= 0.5
