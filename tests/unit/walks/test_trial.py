"""Mechanisms in memory: the first pass as the release walks it, and the second, which measures nothing and keeps the laws."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from flows.walks.trial import (
    Truth,
    estimated,
    first_pass,
    reconciled,
    second_pass,
    top_down,
    truth_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.optimize.chebyshev import nearest_in_chebyshev
from tasks.tree.axis import IntArray
from tests.support.passes import check_consistent, counts_of, noise_of, tables

BINARY = [(a, b, c) for a in "12" for b in "12" for c in "12"]


@given(st.data(), st.integers(0, 2**32), st.sampled_from([0.0, 0.5, 3.0, 20.0]), st.booleans())
def test_passes_are_consistent_and_the_second_is_within_the_first(universes, data, seed, sigma, exact):
    """Both passes release whole positive counts that add up; the second measures nothing, and keeps no other node."""
    _, _, truth = data.draw(tables(universes))
    sigmas = [0.0 if exact else sigma, *[sigma] * truth.tree.depth]
    asked: Counter = Counter()
    first = top_down(truth, noise_of(seed, sigmas, asked), sigmas, nearest_in_chebyshev).released
    once: Counter = Counter()
    both = reconciled(truth, noise_of(seed, sigmas, once), sigmas, nearest_in_chebyshev).released
    assert once == asked
    check_consistent(truth, first)
    check_consistent(truth, both)
    for kept, settled in zip(first, both, strict=True):
        assert counts_of(settled).keys() <= counts_of(kept).keys()
    if exact:
        assert both[0].counts.tolist() == truth.levels[0].true_counts.tolist()


@given(st.data())
def test_without_noise_both_passes_release_the_truth(universes, data):
    """Zero noise is the identity, whether its scale is said to be zero or not."""
    universe, records, truth = data.draw(tables(universes))
    exact = [0.0] * (truth.tree.depth + 1)
    for sigmas in (exact, [0.0, *[5.0] * truth.tree.depth], [5.0] * (truth.tree.depth + 1)):
        released = reconciled(truth, noise_of(1, exact), sigmas, nearest_in_chebyshev).released
        for level, frontier in enumerate(released):
            grouped: Counter = Counter()
            for leaf, count in records.items():
                grouped[universe.areas(universe.node(leaf, level))] += count
            assert counts_of(frontier) == grouped


@given(st.data(), st.integers(0, 2**32))
def test_every_cell_is_measured_once(universes, data, seed):
    """Measuring is asked once per level, for all children of the nodes that stay, and never again."""
    _, _, truth = data.draw(tables(universes))
    sigmas, asked = [3.0] * (truth.tree.depth + 1), []
    noise = noise_of(seed, sigmas)

    def measure(level: int, true_counts: IntArray) -> IntArray:
        asked.append((level, len(true_counts)))
        return noise(level, true_counts)

    levels = first_pass(truth, measure, sigmas, nearest_in_chebyshev)
    before = list(asked)
    second_pass(levels, sigmas, nearest_in_chebyshev)
    assert asked == before == [(level.cells.level, len(level.cells)) for level in levels]
    assert [level for level, _ in asked] == list(range(truth.tree.depth + 1))


def test_second_pass_is_deterministic(universe_of):
    """The same noisy counts settle to the same counts."""
    truth = binary_truth(universe_of, 40)
    levels = first_pass(truth, noise_of(5, SIGMAS), SIGMAS, nearest_in_chebyshev)
    one, other = (second_pass(levels, SIGMAS, nearest_in_chebyshev) for _ in range(2))
    assert [counts_of(frontier) for frontier in one] == [counts_of(frontier) for frontier in other]


def test_an_empty_table_releases_nothing(universe_of):
    """A table without records has an exact total of 0, and nothing below it."""
    universe = universe_of([BINARY], [0, 0, 0])
    truth = truth_of(universe.tree, [np.array([], dtype=np.int64)], np.array([], dtype=np.int64))
    sigmas = [0.0, 2.0, 2.0, 2.0]
    frontiers = reconciled(truth, noise_of(1, sigmas), sigmas, nearest_in_chebyshev).released
    assert [len(frontier) for frontier in frontiers] == [1, 0, 0, 0]
    assert frontiers[0].counts.tolist() == [0]


SIGMAS = [5.0, 5.0, 5.0, 5.0]
RUNS = 2000


def binary_truth(universe_of: Callable, count: int) -> Truth:
    """Return eight leaves in three binary levels that all have the same count."""
    universe = universe_of([BINARY], [0, 0, 0])
    return truth_of(universe.tree, [np.arange(8)], np.full(8, count))


@pytest.fixture(scope="module")
def totals(universe_of) -> np.ndarray:
    """Return the root's estimates of many runs on a tree of which nothing is pruned."""
    truth = binary_truth(universe_of, 1000)
    measure = noise_of(11, SIGMAS)
    roots = []
    for _ in range(RUNS):
        levels = first_pass(truth, measure, SIGMAS, nearest_in_chebyshev)
        roots.append(estimated(levels, SIGMAS)[0].values[0])
    return np.array(roots)


def test_root_has_no_bias(totals):
    """The mean of the root's estimates is the truth, within five standard errors (one false alarm in 1.7 million)."""
    assert abs(totals.mean() - 8000) < 5 * totals.std() / np.sqrt(RUNS)


def test_root_has_the_variance_that_is_said(totals):
    """Its variance is that of least squares, 25 times 8/15, within five standard errors; and less than the root's own."""
    said = 25 * 8 / 15  # v_leaves 2, 2/3, then 4/3, 4/7, then 8/7, 8/15
    assert abs(totals.var() - said) < 5 * said * np.sqrt(2 / RUNS) + 1 / 12  # noise is rounded
    assert said < 25


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_siblings_share_what_their_estimates_lack(universe_of, seed):
    """Below an exact total, two nodes settle at their combined estimates and half of the gap each, within rounding."""
    truth = binary_truth(universe_of, 1000)
    sigmas = [0.0, *SIGMAS[1:]]
    levels = first_pass(truth, noise_of(seed, sigmas), sigmas, nearest_in_chebyshev)
    settled = second_pass(levels, sigmas, nearest_in_chebyshev)[1].counts
    best = estimated(levels, sigmas)[1].values
    gap = (best.sum() - 8000) / 2
    assert np.abs(settled - (best - gap)).max() <= 1
