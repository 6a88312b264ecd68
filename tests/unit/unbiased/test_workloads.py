"""Mean variances of workloads, held to the mean over every query, and the weights of levels, held to dense least squares."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.tree.axis import Axis
from tasks.tree.order import Tree
from tasks.unbiased.variance import tree_variances
from tasks.unbiased.workloads import (
    LEAVES,
    NODES,
    PREFIX,
    RANGES,
    SETS,
    WORKLOADS,
    WORST,
    level_weights,
    mean_variances,
)
from tests.support.shapes import complete, covariance, drawn, incidences, tree_by

SEEDS = st.integers(0, 2**32 - 1)


def ranges_of(n: int) -> np.ndarray:
    """Return all ranges of n leaves, shape (ranges, n)."""
    leaf = np.arange(n)
    return np.array([(first <= leaf) & (leaf < stop) for first in range(n) for stop in range(first + 1, n + 1)], float)


def areas_of(axis: Axis) -> np.ndarray:
    """Return all areas of all levels of an axis, shape (areas, finest areas)."""
    return np.concatenate(incidences(Tree((axis,), (0,) * axis.depth)))


def boxes_of(tree: Tree, workload: str, ordered: set[int]) -> np.ndarray:
    """Return all boxes of a workload: ranges or prefixes of ordered axes and areas of the others, shape (boxes, leaves)."""
    boxes = np.ones((1, 1))
    for number, axis in enumerate(tree.axes):
        n = axis.areas(axis.depth)
        own = areas_of(axis) if number not in ordered else ranges_of(n) if workload == RANGES else np.tri(n)
        boxes = np.kron(boxes, own)
    return boxes


@given(SEEDS)
def test_mean_variances_are_means_over_all_queries(seed: int) -> None:
    """On random trees of one or two axes they are what all ranges, prefixes, nodes, leaves and sets come to, one by one."""
    generator = np.random.default_rng(seed)
    tree = tree_by(*[drawn(generator, depth=3) for _ in range(generator.integers(1, 3))])
    precisions = generator.uniform(0.1, 3, tree.depth + 1)
    if generator.random() < 0.3:
        precisions[0] = np.inf
    ordered = {0} if generator.random() < 0.5 else set(range(len(tree.axes)))
    leaves, found = covariance(tree, precisions), mean_variances(tree_variances(tree, precisions), ordered)
    assert found.keys() == {*WORKLOADS, WORST}
    for workload in (RANGES, PREFIX):
        boxes = boxes_of(tree, workload, ordered)
        assert found[workload] == pytest.approx(np.einsum("bi,ij,bj->b", boxes, leaves, boxes).mean(), abs=1e-10)
    nodes = np.concatenate(incidences(tree))
    assert found[NODES] == pytest.approx(np.einsum("bi,ij,bj->b", nodes, leaves, nodes).mean(), abs=1e-10)
    assert found[WORST] == pytest.approx(np.einsum("bi,ij,bj->b", nodes, leaves, nodes).max(), abs=1e-10)
    assert found[LEAVES] == pytest.approx(np.diag(leaves).mean(), abs=1e-10)


def test_dense_sets_have_a_share_of_a_quarter_to_all_leaves() -> None:
    """The mean over sets is that over shares from 1/4 to 1 and all sets of five leaves with the probability that a share gives."""
    tree = tree_by([[2], [2, 3]])
    precisions = [1.0, 2.0, 3.0]
    leaves = covariance(tree, precisions)
    shares = (np.arange(3000) + 0.5) / 3000 * 0.75 + 0.25
    found = 0.0
    for leaf in product((0.0, 1.0), repeat=5):
        chosen = np.array(leaf)
        found += float(
            (chosen @ leaves @ chosen) * (shares ** chosen.sum() * (1 - shares) ** (5 - chosen.sum())).mean()
        )
    assert mean_variances(tree_variances(tree, precisions), {0})[SETS] == pytest.approx(found, rel=1e-6)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_weights_of_levels_are_exact_where_fan_outs_are_even(workload: str) -> None:
    """With m of each level, Σ m τ is the mean variance of the workload, where τ is the variance of estimates from below."""
    generator = np.random.default_rng(3)
    for shapes in ([complete(2, 4)], [[[3], [2] * 3, [4] * 6]], [complete(2, 2), complete(3, 2)]):
        tree = tree_by(*shapes)
        variances = tree_variances(tree, generator.uniform(0.1, 3, tree.depth + 1))
        weights = level_weights(workload, tree, {0})
        leaf_count = tree.possible_cells(tree.depth)
        queries = {
            RANGES: len(boxes_of(tree, RANGES, {0})),
            PREFIX: len(boxes_of(tree, PREFIX, {0})),
            NODES: sum(tree.possible_cells(level) for level in range(tree.depth + 1)),
            LEAVES: leaf_count,
            SETS: 1,
        }
        found = weights @ [float(of.ravel()[0]) for of in variances.below] / queries[workload]
        assert found == pytest.approx(mean_variances(variances, {0})[workload], rel=1e-12)


def test_ranges_are_left_out_where_their_mean_is_not_known() -> None:
    """Without an ordered axis, or if an axis is refined in several goes, there is no mean over ranges and prefixes."""
    interleaved = tree_by(complete(2, 2), complete(2, 2), steps=[0, 1, 0, 1])
    assert mean_variances(tree_variances(interleaved, [1.0] * 5), {0}).keys() == {NODES, LEAVES, SETS, WORST}
    assert mean_variances(tree_variances(tree_by(complete(2, 2)), [1.0] * 3), ()).keys() == {NODES, LEAVES, SETS, WORST}


def test_an_unknown_workload_is_refused() -> None:
    """The message lists the workloads."""
    with pytest.raises(ValueError, match="must be one of ranges, prefix, nodes, leaves, sets, got range"):
        level_weights("range", tree_by(complete(2, 2)), {0})
