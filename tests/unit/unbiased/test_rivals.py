"""What unbiased trees are compared with: sums of the fewest noisy nodes, and the eigen-design by sines."""

import numpy as np
import pytest

from tasks.unbiased.eigen_design import best_precisions, covariance, draw_noise, largest_change, variances_by
from tasks.unbiased.pieces import variances_in_pieces
from tasks.unbiased.variance import tree_variances
from tasks.unbiased.workloads import mean_variances
from tests.support.shapes import complete, halved, tree_by
from tests.support.shapes import covariance as covariance_of_tree


def fewest(first: int, stop: int, firsts: list[np.ndarray]) -> list[int]:
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
def test_ranges_in_pieces_have_the_noise_of_their_fewest_nodes(shape: list[list[int]]) -> None:
    """Means over all ranges, prefixes and nodes are what one finds by putting each together."""
    tree = tree_by(shape)
    [axis], n = tree.axes, tree.possible_cells(tree.depth)
    variances = np.random.default_rng(4).uniform(1, 2, tree.depth + 1)
    firsts = [axis.first_descendants(level, axis.depth) for level in range(axis.depth + 1)]
    found = variances_in_pieces(axis, variances.tolist())
    each = {
        (first, stop): variances[fewest(first, stop, firsts)].sum()
        for first in range(n)
        for stop in range(first + 1, n + 1)
    }
    assert found["ranges"] == pytest.approx(np.mean(list(each.values())), rel=1e-12)
    assert found["prefix"] == pytest.approx(np.mean([each[0, stop] for stop in range(1, n + 1)]), rel=1e-12)
    nodes = np.repeat(variances, [tree.possible_cells(level) for level in range(tree.depth + 1)])
    assert found["nodes"] == pytest.approx(nodes.mean(), rel=1e-12)
    assert found["leaves"] == variances[-1]
    assert found["worst_node"] == variances.max()


def sines(n: int) -> np.ndarray:
    """Return the sine basis, shape (n, n)."""
    of = np.arange(1, n + 1)
    return np.sqrt(2 / (n + 1)) * np.sin(np.pi * np.outer(of, of) / (n + 1))


@pytest.mark.parametrize("n", [1, 2, 3, 16, 33])
def test_sines_are_the_eigenvectors_of_all_ranges(n: int) -> None:
    """Covariance and sensitivities are those of the dense information matrix, whose diagonal has the largest entry 1."""
    x = best_precisions(n)
    information = sines(n).T @ np.diag(x) @ sines(n)
    assert covariance(x) @ information == pytest.approx(np.eye(n), abs=1e-10)
    assert np.diag(information).max() == pytest.approx(1.0)
    own = np.diag(information)
    assert largest_change(x) == pytest.approx((own[:, None] + own - 2 * information).max(), abs=1e-12)
    leaf = np.arange(n)
    ranges = [(first <= leaf) & (leaf < stop) for first in range(n) for stop in range(first + 1, n + 1)]
    together = np.array(ranges, float).T @ np.array(ranges, float)
    assert sines(n) @ together @ sines(n).T == pytest.approx(
        np.diag(np.diag(sines(n) @ together @ sines(n).T)), abs=1e-8
    )


def test_no_precisions_of_sines_are_much_better_for_ranges() -> None:
    """Random changes to the precisions make the mean variance of ranges of 20 leaves at most a thousandth smaller."""
    generator, n = np.random.default_rng(8), 20
    axis = tree_by(halved(n)).axes[0]
    best = variances_by(covariance(best_precisions(n)), axis)["ranges"]
    for spread in (0.01, 0.1, 0.5):
        for _ in range(50):
            x = best_precisions(n) * generator.lognormal(sigma=spread, size=n)
            x /= np.diag(sines(n).T @ np.diag(x) @ sines(n)).max()
            assert variances_by(covariance(x), axis)["ranges"] >= best * (1 - 1e-3)


def test_drawn_noise_has_that_covariance() -> None:
    """Over 40,000 draws of six leaves, entries agree within five standard errors; with doubled precisions they do not."""
    x, generator = best_precisions(6), np.random.default_rng(11)
    drawn = np.array([draw_noise(x, generator) for _ in range(40_000)])
    empirical, wanted = drawn.T @ drawn / len(drawn), covariance(x)
    errors = np.sqrt((np.outer(np.diag(wanted), np.diag(wanted)) + wanted**2) / len(drawn))
    assert (np.abs(empirical - wanted) < 5 * errors).all()
    assert (np.abs(empirical - covariance(2 * x)) > 5 * errors).any()


def test_workloads_of_any_covariance_agree_with_those_of_a_tree() -> None:
    """Given the covariance of a tree's leaves, all mean variances are those of the tree."""
    tree = tree_by(halved(13))
    precisions = np.random.default_rng(6).uniform(0.5, 2, tree.depth + 1)
    found = variances_by(covariance_of_tree(tree, precisions), tree.axes[0])
    assert found == pytest.approx(mean_variances(tree_variances(tree, precisions), {0}), rel=1e-9)
