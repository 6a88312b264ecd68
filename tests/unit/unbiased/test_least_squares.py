"""Least squares over all nodes of a tree, against a dense solution of the same problem; and rounded prefix sums."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.tree.frontier import taking
from tasks.unbiased.least_squares import least_squares, round_prefix_sums
from tasks.unbiased.variance import ROUNDING_VARIANCE, tree_variances
from tests.support.universe import universes


def kept(noisy):
    """Return where the noisy counts of levels are, in parts of three."""
    return lambda level: taking(iter(np.array_split(noisy[level], range(3, len(noisy[level]), 3))))


@settings(max_examples=60)
@given(universes(), st.data(), st.integers(1, 9))
def test_values_are_those_of_the_dense_solution(universe, data, most_cells):
    """Whatever the precisions, the axes, their order and the parts; levels need not all be measured, and the root may be exact."""
    tree = universe.tree
    sizes = [tree.possible_cells(level) for level in range(tree.depth + 1)]
    precisions = [data.draw(st.sampled_from([0.0, 0.5, 1.0, 3.0])) for _ in sizes]
    precisions[0] = data.draw(st.sampled_from([0.0, 1.0, np.inf]))
    precisions[-1] = data.draw(st.sampled_from([0.3, 1.0]))
    noisy = [np.array(data.draw(st.lists(st.integers(-9, 30), min_size=size, max_size=size))) for size in sizes]
    variances = tree_variances(tree, precisions)
    found = list(least_squares(variances, precisions, kept(noisy), most_cells=most_cells))
    leaves = universe.nodes(tree.depth)
    holds = [
        np.array([[node == held(leaf, node) for leaf in leaves] for node in universe.nodes(level)])
        for level in range(len(sizes))
    ]
    roots = np.repeat(np.sqrt(np.minimum(precisions, 1e9)), sizes)  # an exact root by a weight of 1e9
    dense = np.linalg.lstsq(roots[:, None] * np.concatenate(holds), roots * np.concatenate(noisy), rcond=None)[0]
    assert np.concatenate(found) == pytest.approx(dense, abs=1e-5)
    true = noisy[-1] * 2**34  # counts that add up stay as they are
    found = list(least_squares(variances, precisions, kept([of @ true for of in holds]), most_cells=most_cells))
    assert np.concatenate(list(round_prefix_sums(found))).tolist() == true.tolist()


def held(leaf, node):
    """Return the node beside a node that holds a leaf."""
    return tuple(path[: len(own)] for path, own in zip(leaf, node, strict=True))


values_of_leaves = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40)


@given(values_of_leaves, st.lists(st.integers(0, 40), max_size=4))
def test_every_range_moves_by_at_most_one(values, cuts):
    """Every sum of adjacent counts is within 1 of that of the values, every prefix within a half; parts do not matter."""
    whole = next(round_prefix_sums([np.array(values)]))
    assert whole.dtype == np.int64
    moved = np.concatenate(([0.0], np.cumsum(whole - np.array(values))))
    assert abs(moved).max() <= 0.5 + 1e-6
    assert max(abs(moved[end] - moved[first]) for first, end in product(range(len(moved)), repeat=2)) <= 1 + 1e-6
    parts = np.split(np.array(values), sorted(min(cut, len(values)) for cut in cuts))
    assert abs(np.concatenate(list(round_prefix_sums(parts))).cumsum() - whole.cumsum()).max() <= 1


def test_halves_go_to_the_even_number_and_large_totals_lose_nothing():
    """Prefix sums 0.5, 1, 1.5, 2.5 are rounded to 0, 1, 2, 2, below zero too; a thousand values near 2**40 keep theirs."""
    values = np.array([0.5, 0.5, 0.5, 1.0])
    for parts in ([values], [values[:1], values[1:3], values[3:]], [values[:0], values]):
        assert np.cumsum(np.concatenate(list(round_prefix_sums(parts)))).tolist() == [0, 1, 2, 2]
    assert np.cumsum(next(round_prefix_sums([-values]))).tolist() == [0, -1, -2, -2]
    counts = np.concatenate(list(round_prefix_sums(np.array_split(np.full(3000, 2**40) + 1 / 4, 7))))
    assert abs(np.cumsum(counts - 2**40) - np.arange(1, 3001) / 4).max() <= 0.5


def test_rounding_adds_a_sixth_and_no_bias():
    """With broad noise, errors of ranges have the stated variance within 2%, and a mean of 0 within five standard errors."""
    values = np.random.default_rng(1).normal(0, 50, 200_000)
    prefixes = np.cumsum(next(round_prefix_sums([values])) - values)
    ranges = prefixes[3::4] - prefixes[1::4]
    assert (ranges**2).mean() == pytest.approx(1 / 6, rel=0.02)
    assert pytest.approx(1 / 6) == ROUNDING_VARIANCE
    assert abs(ranges.mean()) < 5 * np.sqrt(ROUNDING_VARIANCE / ranges.size)
