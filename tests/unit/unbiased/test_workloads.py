"""Mean variances of workloads over every query, weights of levels, and what unbiased trees are compared with: pieces, and sines."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.tree.order import Tree
from tasks.unbiased import workloads
from tasks.unbiased.baselines import (
    best_precisions,
    largest_change,
    range_variances_in_pieces,
    variances_by,
    variances_in_pieces,
)
from tasks.unbiased.baselines import covariance as covariance_of_sines
from tasks.unbiased.variance import tree_variances
from tests.support.shapes import axis_by, complete, covariance, drawn, halved, incidences, tree_by

SEEDS = st.integers(0, 2**32 - 1)


def ranges_of(n):
    """Return all ranges of n leaves, shape (ranges, n)."""
    leaf = np.arange(n)
    return np.array([(first <= leaf) & (leaf < stop) for first, stop in combinations(range(n + 1), 2)], float)


def areas_of(axis):
    """Return all areas of all levels of an axis, shape (areas, finest areas)."""
    return np.concatenate(incidences(Tree((axis,), (0,) * axis.depth)))


def boxes_of(tree, workload, ordered):
    """Return all boxes of a workload: ranges or prefixes of ordered axes and areas of the others, shape (boxes, leaves)."""
    boxes = np.ones((1, 1))
    for number, axis in enumerate(tree.axes):
        n = axis.areas(axis.depth)
        own = areas_of(axis) if number not in ordered else ranges_of(n) if workload == workloads.RANGES else np.tri(n)
        boxes = np.kron(boxes, own)
    return boxes


@given(SEEDS)
def test_mean_variances_are_means_over_all_queries(seed):
    """On random trees of one or two axes they are what all ranges, prefixes, nodes, leaves and sets come to, one by one."""
    generator = np.random.default_rng(seed)
    tree = tree_by(*[drawn(generator, depth=3) for _ in range(generator.integers(1, 3))])
    precisions = generator.uniform(0.1, 3, tree.depth + 1)
    if generator.random() < 0.3:
        precisions[0] = np.inf
    ordered = {0} if generator.random() < 0.5 else set(range(len(tree.axes)))
    leaves, found = covariance(tree, precisions), workloads.mean_variances(tree_variances(tree, precisions), ordered)
    assert found.keys() == {*workloads.WORKLOADS, workloads.WORST}
    for workload in (workloads.RANGES, workloads.PREFIX):
        boxes = boxes_of(tree, workload, ordered)
        assert found[workload] == pytest.approx(np.einsum("bi,ij,bj->b", boxes, leaves, boxes).mean(), abs=1e-10)
    nodes = np.concatenate(incidences(tree))
    assert found[workloads.NODES] == pytest.approx(np.einsum("bi,ij,bj->b", nodes, leaves, nodes).mean(), abs=1e-10)
    assert found[workloads.WORST] == pytest.approx(np.einsum("bi,ij,bj->b", nodes, leaves, nodes).max(), abs=1e-10)
    assert found[workloads.LEAVES] == pytest.approx(np.diag(leaves).mean(), abs=1e-10)


def test_dense_sets_have_a_share_of_a_quarter_to_all_leaves():
    """The mean over sets is that over shares from 1/4 to 1 and all sets of five leaves with the probability that a share gives."""
    tree = tree_by([[2], [2, 3]])
    precisions = [1.0, 2.0, 3.0]
    leaves = covariance(tree, precisions)
    shares = (np.arange(3000) + 0.5) / 3000 * 0.75 + 0.25
    expected = 0.0
    for chosen in map(np.array, product((0.0, 1.0), repeat=5)):
        chances = shares ** chosen.sum() * (1 - shares) ** (5 - chosen.sum())
        expected += (chosen @ leaves @ chosen) * chances.mean()
    found = workloads.mean_variances(tree_variances(tree, precisions), {0})
    assert found[workloads.SETS] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("workload", workloads.WORKLOADS)
def test_weights_of_levels_are_exact_where_fan_outs_are_even(workload):
    """With m of each level, Σ m τ is the mean variance of the workload, where τ is the variance of estimates from below."""
    generator = np.random.default_rng(3)
    for shapes in ([complete(2, 4)], [[[3], [2] * 3, [4] * 6]], [complete(2, 2), complete(3, 2)]):
        tree = tree_by(*shapes)
        variances = tree_variances(tree, generator.uniform(0.1, 3, tree.depth + 1))
        weights = workloads.level_weights(workload, tree, {0})
        queries = {
            workloads.RANGES: len(boxes_of(tree, workloads.RANGES, {0})),
            workloads.PREFIX: len(boxes_of(tree, workloads.PREFIX, {0})),
            workloads.NODES: sum(tree.possible_cells(level) for level in range(tree.depth + 1)),
            workloads.LEAVES: tree.possible_cells(tree.depth),
            workloads.SETS: 1,
        }
        found = weights @ [float(of.ravel()[0]) for of in variances.below] / queries[workload]
        assert found == pytest.approx(workloads.mean_variances(variances, {0})[workload], rel=1e-12)


def test_ranges_are_left_out_where_their_mean_is_not_known():
    """Without an ordered axis, or if an axis is refined in several goes; what is no workload at all is refused."""
    interleaved = tree_by(complete(2, 2), complete(2, 2), steps=[0, 1, 0, 1])
    for tree, ordered in ((interleaved, {0}), (tree_by(complete(2, 2)), set())):
        found = workloads.mean_variances(tree_variances(tree, [1.0] * (tree.depth + 1)), ordered)
        assert found.keys() == {workloads.NODES, workloads.LEAVES, workloads.SETS, workloads.WORST}
    with pytest.raises(ValueError, match="must be one of ranges, prefix, nodes, leaves, sets, got range"):
        workloads.level_weights("range", tree_by(complete(2, 2)), {0})


def fewest(first, stop, firsts):
    """Return the levels of the nodes that make up a range of leaves, taking the largest at each place."""
    levels = []
    while first < stop:
        for level, of in enumerate(firsts):
            at = np.searchsorted(of, first)
            if of[at] == first and of[at + 1] <= stop:
                levels.append(level)
                first = int(of[at + 1])
                break
    return levels


@pytest.mark.parametrize("shape", [complete(2, 4), complete(3, 2), halved(11), [[2], [1, 3], [1, 2, 1, 1]]])
def test_ranges_in_pieces_have_the_noise_of_their_fewest_nodes(shape):
    """Means over all ranges, prefixes and nodes are what one finds by putting each together."""
    tree = tree_by(shape)
    [axis], n = tree.axes, tree.possible_cells(tree.depth)
    variances = np.random.default_rng(4).uniform(1, 2, tree.depth + 1)
    firsts = [axis.first_descendants(level, axis.depth) for level in range(axis.depth + 1)]
    found = variances_in_pieces(axis, variances.tolist())
    each = {pair: variances[fewest(*pair, firsts)].sum() for pair in combinations(range(n + 1), 2)}
    every = range_variances_in_pieces(axis, variances.tolist())
    assert [every[pair] for pair in each] == pytest.approx([*each.values()], rel=1e-12)
    assert found["ranges"] == pytest.approx(np.mean(list(each.values())), rel=1e-12)
    assert found["prefix"] == pytest.approx(np.mean([each[0, stop] for stop in range(1, n + 1)]), rel=1e-12)
    nodes = np.repeat(variances, [tree.possible_cells(level) for level in range(tree.depth + 1)])
    assert found["nodes"] == pytest.approx(nodes.mean(), rel=1e-12)
    assert found["leaves"] == variances[-1]
    assert found["worst_node"] == variances.max()


@pytest.mark.parametrize("n", [1, 2, 3, 20, 33])
def test_sines_are_measured_as_they_are_said_to_be(n):
    """Covariance and sensitivities are those of the dense information matrix, whose diagonal has the largest entry 1."""
    # Random changes to the precisions make the mean variance of ranges at most a thousandth smaller.
    x, generator, of = best_precisions(n), np.random.default_rng(8), np.arange(1, n + 1)
    sines = np.sqrt(2 / (n + 1)) * np.sin(np.pi * np.outer(of, of) / (n + 1))
    information = sines.T @ np.diag(x) @ sines
    assert covariance_of_sines(x) @ information == pytest.approx(np.eye(n), abs=1e-10)
    own = np.diag(information)
    assert own.max() == pytest.approx(1.0)
    assert largest_change(x) == pytest.approx((own[:, None] + own - 2 * information).max(), abs=1e-12)
    axis = axis_by(halved(n))
    for spread in np.repeat([0.01, 0.1, 0.5], 50 if n == 20 else 0):
        other = x * generator.lognormal(sigma=spread, size=n)
        other /= np.diag(sines.T @ np.diag(other) @ sines).max()
        least = variances_by(covariance_of_sines(x), axis)["ranges"] * (1 - 1e-3)
        assert variances_by(covariance_of_sines(other), axis)["ranges"] >= least


def test_workloads_of_any_covariance_agree_with_those_of_a_tree():
    """Given the covariance of a tree's leaves, all mean variances are those of the tree."""
    tree = tree_by(halved(13))
    precisions = np.random.default_rng(6).uniform(0.5, 2, tree.depth + 1)
    of_tree = tree_variances(tree, precisions)
    assert of_tree.covariance == pytest.approx(covariance(tree, precisions), abs=1e-10)
    every = workloads.range_variances(of_tree.covariance)
    boxes = ranges_of(13)
    one_by_one = np.einsum("bi,ij,bj->b", boxes, of_tree.covariance, boxes)
    assert every[np.triu_indices(14, 1)] == pytest.approx(one_by_one)
    found = workloads.mean_and_worst(every)
    assert found["ranges"] == pytest.approx((one_by_one.mean(), one_by_one.max()))
    assert found["prefix"] == pytest.approx((one_by_one[:13].mean(), one_by_one[:13].max()))
    found = variances_by(covariance(tree, precisions), tree.axes[0])
    assert found == pytest.approx(workloads.mean_variances(tree_variances(tree, precisions), {0}), rel=1e-9)
