"""Precisions of levels: what the named ones are, and that no others are better for workloads and targets."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from tasks.unbiased.precisions import (
    cascade,
    costs_of,
    for_targets,
    for_targets_of_tables,
    for_workload,
    mean_fan_outs,
    most_fan_outs,
    path_part,
    twice_rho,
    uniform,
    wavelet,
    worst_node,
)
from tasks.unbiased.variance import tree_variances
from tasks.unbiased.workloads import SETS, WORKLOADS, mean_variances
from tests.support.shapes import complete, drawn, halved, tree_by

# how neighbours differ; with `EITHER` a unit moves the total, or all else by more, and pays for the dearer of both
RELATIONS = ADDED, EXACT, MEASURED, EITHER = ("add_remove", "exact total", "measured total", "either")


def squares_of(tree, relation):
    """Return Δ₂² of levels 0 to T for one record per unit; of a measured total under substitution for a unit with two."""
    own = {ADDED: 1, EXACT: 2, MEASURED: 8, EITHER: 2}[relation]
    return [{ADDED: 1, EXACT: 0, MEASURED: 4, EITHER: 1}[relation], *[own] * tree.depth]


def cost_of(precisions, tree, relation):
    """Return 2ρ: of the costlier unit, where some stay and others come or go."""
    if relation == EITHER:
        return max(2 * float(sum(precisions[1:])), float(sum(precisions)))
    return twice_rho(np.array(precisions), squares_of(tree, relation))


def variances_at(tree, precisions, relation):
    """Return the variances of a tree, with an exact total where that costs nothing."""
    squares = squares_of(tree, relation)
    return tree_variances(tree, [p if square else np.inf for p, square in zip(precisions, squares, strict=True)])


def error_of(tree, precisions, relation, workload):
    """Return the mean variance of a workload at 2ρ = 1."""
    found = mean_variances(variances_at(tree, precisions, relation), {0})[workload]
    return found * cost_of(precisions, tree, relation)


def best_for(workload, tree, relation):
    """Return the precisions under test."""
    return for_workload(workload, tree, squares_of(tree, relation), {0}, is_either=relation == EITHER)


SHAPES = [complete(2, 6), complete(5, 3), [[3], [2] * 3, [4] * 6], [[2], [1, 1], [3, 3], [1] * 6]]  # even ones
SHAPES += [halved(101), halved(100, 3), halved(7), [[2], [1, 50], [24] * 51]]  # on whose costliest path all is largest
SHAPES += [drawn(np.random.default_rng(seed), 6) for seed in range(40)]


def test_cascade_gives_all_nodes_the_same_variance():
    """In a tree of any shape, at the cost of the paper: 1 + Σ (b - 1)/(b + 1) on the costliest path. By levels no node has more; on ordered axes at that cost."""
    for number, shape in enumerate(SHAPES):
        tree, paths = tree_by(shape).cascading(["axis_0"]), [1.0]
        precisions = cascade(tree)
        for of in tree_variances(tree, precisions).levels:
            assert [of.least, of.mean, of.most] == pytest.approx([1.0] * 3, rel=1e-12)
        for of in shape:
            paths = [cost + (b - 1) / (b + 1) for cost, b in zip(paths, of, strict=True) for _ in range(b)]
        assert float(path_part(tree, precisions, is_replaced=False)) * precisions.sum() == pytest.approx(max(paths))
        by_level = worst_node(most_fan_outs(tree))
        assert max(level.most for level in tree_variances(tree.cascading(()), by_level).levels) <= 1 + 1e-12
        assert number > 6 or by_level.sum() == pytest.approx(max(paths), rel=0.01)


def test_the_wavelet_is_that_of_haar():
    """For eight leaves the information is that of the mean and seven differences of halves, each with the same noise."""
    tree = tree_by(complete(2, 3))
    halves = [(first, size // 2) for size in (8, 4, 2) for first in range(0, 8, size)]
    haar = [np.repeat([0, 1.0, -1.0, 0], [first, half, half, 8 - first - 2 * half]) for first, half in halves]
    haar.insert(0, np.ones(8))
    wanted = np.linalg.inv(np.transpose(haar) @ np.array(haar))
    variances = tree_variances(tree, wavelet(mean_fan_outs(tree)))
    ratio = variances.of_cells([0], [np.array([0])])[0] / wanted.sum()
    first, stop = np.triu_indices(9, 1)  # the ranges, whose variances determine the covariance
    inside = (first[:, None] <= np.arange(8)) & (np.arange(8) < stop[:, None])
    expected = ratio * np.einsum("bi,ij,bj->b", inside, wanted, inside)
    assert variances.of_boxes([first], [stop]) == pytest.approx(expected, rel=1e-12)


def test_shares_are_simple_fractions():
    """Cascade is 2 : 1 … 1 : 2, the wavelet 0 : 1 … 1 : 2 and uniform 1 : 1 … 1; below an exact total the first two are the same."""
    fan_outs = mean_fan_outs(tree_by(complete(2, 4)))
    add_remove, exact = [1] * 5, [0, 2, 2, 2, 2]
    assert costs_of(worst_node(fan_outs), add_remove) == tuple(Fraction(share, 2) for share in (2, 1, 1, 1, 2))
    assert costs_of(wavelet(fan_outs), add_remove) == tuple(Fraction(share, 2) for share in (1, 1, 1, 2))
    assert costs_of(uniform(fan_outs), add_remove) == (1,) * 5
    assert costs_of(worst_node(fan_outs), exact) == costs_of(wavelet(fan_outs), exact) == (1, 1, 1, 2)


def test_levels_of_only_children_take_no_share():
    """They repeat the level above, whichever precisions are chosen; a single leaf is measured once."""
    tree = tree_by([[1], [2], [1, 1], [2, 2], [1] * 4])
    fan_outs, squares = mean_fan_outs(tree), [1] * 6
    chosen = [of(fan_outs) for of in (uniform, worst_node, wavelet)]
    chosen += [for_workload(workload, tree, squares, {0}) for workload in WORKLOADS]
    chosen.append(for_targets({1: 1.0, 3: 2.0, 5: 3.0}, tree, squares))
    for precisions in chosen:
        assert precisions[[1, 3, 5]].tolist() == [0.0] * 3
        assert (tree_variances(tree, precisions).levels[4]) == tree_variances(tree, precisions).levels[5]
    for of in (uniform, worst_node, wavelet):
        assert of(mean_fan_outs(tree_by([[1], [1]]))).tolist() == [1.0, 0.0, 0.0]


def least_on_grids(error, axes):
    """Return the least error of precisions on a coarse grid and on finer ones about the best; the last precision is 1."""
    steps = [np.append(0.0, np.geomspace(0.03, 8, 8))] * axes
    for ratio in (1.35, 1.1, 1.03, 1.0):
        found, best = min((error((*of, 1.0)), of) for of in product(*steps))
        steps = [np.unique(at * ratio ** np.arange(-3.0, 4)) for at in best]
    return found


SHAPES = [complete(2, 2), complete(3, 2), [[2], [4, 4]], halved(5)]


@pytest.mark.parametrize(("shape", "workload", "relation"), [
    (shape, workload, RELATIONS[(row + column) % (3 if workload == SETS else 4)])
    for (row, shape), (column, workload) in product(enumerate(SHAPES), enumerate(WORKLOADS))
])  # fmt: skip
def test_the_best_precisions_are_those_of_a_fine_grid(shape, workload, relation):
    """Among the precisions of up to four levels none is better, and the nearest one on a grid is not much worse."""
    # Where fan-outs are uneven, one for the costlier of two units may be better by 1%.
    tree = tree_by(shape)
    best = error_of(tree, best_for(workload, tree, relation), relation, workload)
    found = least_on_grids(lambda precisions: error_of(tree, precisions, relation, workload), tree.depth)
    slack = 0.01 if relation == EITHER and shape == halved(5) else 1e-3 if relation == EITHER else 1e-9
    assert best * (1 - slack) <= found <= best * 1.002


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("most", [{0: 1.0, 1: 1.0, 2: 1.0}, {1: 0.5, 2: 3.0}, {2: 2.0}, {0: 9.0, 2: 0.4}, {1: 4.0}])
def test_targets_cost_no_more_than_on_a_fine_grid(most, relation):
    """No precisions of three levels on a grid that keep all targets cost less, and the nearest ones little more."""
    tree = tree_by(complete(2, 2))
    bounds, has_total = {2: most[max(most)], **most}, relation != EXACT

    def error(precisions):  # precisions are scaled until they keep all
        at = precisions if has_total else (0.0, *precisions)
        levels = variances_at(tree, at, relation).levels
        return max(levels[level].most / bound for level, bound in bounds.items()) * cost_of(at, tree, relation)

    found = for_targets(most, tree, squares_of(tree, relation), is_either=relation == EITHER)
    least = cost_of(found, tree, relation)
    slack = 2e-3 if relation == EITHER else 1e-9
    assert least * (1 - slack) <= least_on_grids(error, 2 if has_total else 1) <= least * 1.03


@pytest.mark.parametrize(("shapes", "most"), [
    *(((complete(2, 2), complete(3, 1)), of) for of in ({(2, 0): 3.0, (0, 1): 5.0}, {(1, 1): 1.0, (0, 0): 6.0, (2, 0): 2.0}, {(0, 0): 1.0})),
    (([[2]], [[3]], [[4]]), {(1, 1, 0): 1.0, (0, 0, 1): 2.0, (0, 1, 0): 1.5}),
])  # fmt: skip
def test_targets_of_tables_cost_no_more_than_on_a_fine_grid(shapes, most):
    """No products of precisions of some trees on a grid that keep all targets cost less, and the nearest ones little more."""
    trees = [*map(tree_by, shapes)]
    bounds = {tuple(tree.depth for tree in trees): max(most.values()), **most}
    ends = np.cumsum([tree.depth for tree in trees])[:-1]

    def error(every):
        levels = [tree_variances(tree, of).levels for tree, of in zip(trees, every, strict=True)]
        most_of = ((np.prod([of[at].most for of, at in zip(levels, table, strict=True)]), table) for table in bounds)
        return max(most / bounds[table] for most, table in most_of) * np.prod([*map(sum, every)])

    def with_leaves(free):  # whose precisions are 1
        return error([(*own, 1.0) for own in np.split(np.array(free[:-1]), ends)])

    found = for_targets_of_tables(most, trees)
    least = float(np.prod([of.sum() for of in found]))
    assert error(found) == pytest.approx(least, rel=1e-9)  # one is reached, and none exceeded
    assert least * (1 - 1e-9) <= least_on_grids(with_leaves, sum(map(len, shapes))) <= least * 1.03


def test_targets_that_are_none_are_refused():
    """There must be a target, each above 0 and of a level that there is; a workload needs a level that is not exact."""
    for wrong in ({}, {1: 0.0}, {1: -1.0}, {3: 1.0}, {-1: 1.0}, {1: float("nan")}):
        with pytest.raises(ValueError, match="targets must be variances > 0 of levels from 0 to 2"):
            for_targets(wrong, tree_by(complete(2, 2)), [1] * 3)
        with pytest.raises(ValueError, match="targets must be variances > 0 of tables with levels up to"):
            for_targets_of_tables({(0, level): most for level, most in wrong.items()}, [tree_by(complete(2, 2))] * 2)
    with pytest.raises(ValueError, match="not exact"):
        for_workload("ranges", tree_by([[1], [1]]), [0, 2, 2], {0})
