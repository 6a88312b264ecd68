"""Precisions of levels: what the named ones are, and that no others are better for workloads and targets."""

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.tree.order import Tree
from tasks.unbiased.precisions import (
    cascade,
    costs_of,
    for_targets,
    for_workload,
    mean_fan_outs,
    twice_rho,
    uniform,
    wavelet,
)
from tasks.unbiased.variance import TreeVariances, tree_variances
from tasks.unbiased.workloads import WORKLOADS, mean_variances
from tests.support.shapes import complete, drawn, halved, tree_by

# how neighbours differ, and what a level's Δ₂² is
RELATIONS = ADDED, EXACT, MEASURED = ("add_remove", "exact total", "measured total")


def squares_of(tree: Tree, relation: str) -> list[int]:
    """Return Δ₂² of levels 0 to T for one record per unit; of a measured total under substitution for a unit with two."""
    own = {ADDED: 1, EXACT: 2, MEASURED: 8}[relation]
    return [{ADDED: 1, EXACT: 0, MEASURED: 4}[relation], *[own] * tree.depth]


def variances_at(tree: Tree, precisions: Sequence[float], squares: Sequence[int]) -> TreeVariances:
    """Return the variances of a tree, with an exact total where that has no square."""
    return tree_variances(tree, [p if square else np.inf for p, square in zip(precisions, squares, strict=True)])


def error_of(tree: Tree, precisions: Sequence[float], squares: Sequence[int], workload: str) -> float:
    """Return the mean variance of a workload at 2ρ = 1."""
    found = mean_variances(variances_at(tree, precisions, squares), {0})[workload]
    return found * twice_rho(np.array(precisions), squares)


def test_cascade_gives_all_nodes_the_same_variance() -> None:
    """In trees whose fan-outs differ from level to level alone every node has variance 1."""
    for shape in (complete(2, 6), complete(5, 3), [[3], [2] * 3, [4] * 6], [[2], [1, 1], [3, 3], [1] * 6]):
        tree = tree_by(shape)
        for level in tree_variances(tree, cascade(mean_fan_outs(tree))).of_levels():
            assert [level.least, level.most] == pytest.approx([1.0, 1.0], rel=1e-12)


@given(st.integers(0, 2**32 - 1))
def test_cascade_is_close_where_fan_outs_vary(seed: int) -> None:
    """With halves whose sizes differ by one at most, variances lie between 2/3 and 4/3, and every level is measured."""
    tree = tree_by(halved(int(np.random.default_rng(seed).integers(2, 600))))
    precisions = cascade(mean_fan_outs(tree))
    levels = tree_variances(tree, precisions).of_levels()
    assert (precisions > 0).all()
    assert min(level.least for level in levels) > 2 / 3
    assert max(level.most for level in levels) < 4 / 3


def test_the_wavelet_is_that_of_haar() -> None:
    """For eight leaves the information is that of the mean and seven differences of halves, each with the same noise."""
    tree = tree_by(complete(2, 3))
    halves = [(first, size // 2) for size in (8, 4, 2) for first in range(0, 8, size)]
    haar = [
        np.ones(8),
        *(np.repeat([0, 1.0, -1.0, 0], [first, half, half, 8 - first - 2 * half]) for first, half in halves),
    ]
    wanted = np.linalg.inv(np.transpose(haar) @ np.array(haar))
    variances = tree_variances(tree, wavelet(mean_fan_outs(tree)))
    ratio = variances.of_nodes(0, [np.array([0])])[0] / wanted.sum()
    for weights in np.random.default_rng(5).normal(size=(20, 8)):
        assert variances.of_sum(weights) == pytest.approx(ratio * weights @ wanted @ weights, rel=1e-12)


def test_shares_are_simple_fractions() -> None:
    """Cascade is 2 : 1 … 1 : 2, the wavelet 0 : 1 … 1 : 2 and uniform 1 : 1 … 1; below an exact total the first two are the same."""
    fan_outs = mean_fan_outs(tree_by(complete(2, 4)))
    add_remove, exact = [1] * 5, [0, 2, 2, 2, 2]
    assert costs_of(cascade(fan_outs), add_remove) == tuple(Fraction(share, 2) for share in (2, 1, 1, 1, 2))
    assert costs_of(wavelet(fan_outs), add_remove) == tuple(Fraction(share, 2) for share in (1, 1, 1, 2))
    assert costs_of(uniform(fan_outs), add_remove) == (1,) * 5
    assert costs_of(cascade(fan_outs), exact) == costs_of(wavelet(fan_outs), exact) == (1, 1, 1, 2)


def test_levels_of_only_children_take_no_share() -> None:
    """They repeat the level above, whichever precisions are chosen."""
    tree = tree_by([[1], [2], [1, 1], [2, 2], [1] * 4])
    fan_outs, squares = mean_fan_outs(tree), [1] * 6
    chosen = [of(fan_outs) for of in (uniform, cascade, wavelet)]
    chosen += [for_workload(workload, tree, squares, {0}) for workload in WORKLOADS]
    chosen.append(for_targets({1: 1.0, 3: 2.0, 5: 3.0}, tree, squares))
    for precisions in chosen:
        assert precisions[[1, 3, 5]].tolist() == [0.0] * 3
        assert (tree_variances(tree, precisions).of_levels()[4]) == tree_variances(tree, precisions).of_levels()[5]


def test_a_single_leaf_is_measured_once() -> None:
    """In a tree of one node all precisions are those of that node."""
    tree = tree_by([[1], [1]])
    for of in (uniform, cascade, wavelet):
        assert of(mean_fan_outs(tree)).tolist() == [1.0, 0.0, 0.0]
    assert for_targets({2: 4.0}, tree, [1] * 3).tolist() == [0.25, 0.0, 0.0]
    with pytest.raises(ValueError, match="not exact"):
        for_workload("ranges", tree, [0, 2, 2], {0})


@pytest.mark.thorough
@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.sampled_from(WORKLOADS), st.sampled_from(RELATIONS))
def test_no_fixed_split_is_better_for_a_workload(seed: int, workload: str, relation: str) -> None:
    """On random trees, and on halved ones, no split with a rule of its own has a smaller mean variance at the same ρ."""
    generator = np.random.default_rng(seed)
    tree = tree_by(halved(int(generator.integers(2, 200)), 2) if generator.random() < 0.5 else drawn(generator))
    fan_outs, squares = mean_fan_outs(tree), squares_of(tree, relation)
    if tree.possible_cells(tree.depth) == 1:
        return
    best = error_of(tree, for_workload(workload, tree, squares, {0}), squares, workload)
    levels, own = np.arange(tree.depth + 1), uniform(fan_outs)
    fixed = [own, cascade(fan_outs), wavelet(fan_outs), own * 2.0**levels, own * 0.5**levels]
    last = own * (np.cumsum(own[::-1])[::-1] == 1)
    fixed += [own + weight * last for weight in (-1 / 3, 0.5, 1.0, 2.0, 9.0)]
    fixed += [own * generator.dirichlet(np.ones(tree.depth + 1)) for _ in range(5)]
    assert best <= min(error_of(tree, precisions, squares, workload) for precisions in fixed) * (1 + 1e-4)


def least_on_grids(error: Callable[[tuple[float, ...]], float], axes: int) -> float:
    """Return the least error of precisions on a coarse grid and on finer ones about the best; the last precision is 1."""
    steps = [np.append(0.0, np.geomspace(0.03, 8, 8))] * axes
    for ratio in (1.35, 1.1, 1.03, 1.0):
        found, best = min((error((*of, 1.0)), of) for of in product(*steps))
        steps = [np.unique(at * ratio ** np.arange(-3.0, 4)) for at in best]
    return found


SHAPES = [complete(2, 2), complete(3, 2), [[2], [4, 4]], halved(5)]


@pytest.mark.parametrize(
    ("shape", "workload", "relation"),
    [
        (shape, workload, RELATIONS[(row + column) % 3])
        for row, shape in enumerate(SHAPES)
        for column, workload in enumerate(WORKLOADS)
    ],
)
def test_the_best_precisions_are_those_of_a_fine_grid(shape: list[list[int]], workload: str, relation: str) -> None:
    """Among the precisions of up to four levels none is better, and the nearest one on a grid is not much worse."""
    tree = tree_by(shape)
    squares = squares_of(tree, relation)
    best = error_of(tree, for_workload(workload, tree, squares, {0}), squares, workload)
    found = least_on_grids(lambda precisions: error_of(tree, precisions, squares, workload), tree.depth)
    assert best * (1 - 1e-9) <= found <= best * 1.002


@pytest.mark.thorough
@settings(max_examples=20)
@given(st.integers(0, 2**32 - 1), st.sampled_from(RELATIONS))
def test_targets_are_met_and_one_is_reached(seed: int, relation: str) -> None:
    """On random trees no node of a level with a target is above it, by more than 1e-9, and the worst one of some level is at it."""
    generator = np.random.default_rng(seed)
    tree = tree_by(halved(int(generator.integers(2, 300))) if generator.random() < 0.5 else drawn(generator))
    squares = squares_of(tree, relation)
    if tree.possible_cells(tree.depth) == 1:
        return
    own = np.flatnonzero(np.append(not tree.depth, mean_fan_outs(tree) > 1))
    chosen = generator.choice(own, generator.integers(1, len(own) + 1), replace=False).tolist()
    most = {level: float(generator.lognormal()) for level in chosen}
    found = variances_at(tree, for_targets(most, tree, squares), squares).of_levels()
    ratios = [found[level].most / variance for level, variance in most.items()]
    assert max(ratios) <= 1 + 1e-9
    finest = found[tree.depth].most / most[max(most)]
    assert max(*ratios, finest) >= 1 - 1e-9


def test_targets_of_all_levels_are_met_exactly_where_they_can_be() -> None:
    """Given variances of all levels that some precisions have, those are found again."""
    for shape in (complete(2, 5), complete(3, 3), [[2], [5, 5], [3] * 10]):
        tree = tree_by(shape)
        precisions = np.random.default_rng(2).uniform(0.5, 2, tree.depth + 1)
        levels = tree_variances(tree, precisions).of_levels()
        most = {number: level.most for number, level in enumerate(levels)}
        assert for_targets(most, tree, [1] * (tree.depth + 1)) == pytest.approx(precisions, rel=1e-6)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("most", [{0: 1.0, 1: 1.0, 2: 1.0}, {1: 0.5, 2: 3.0}, {2: 2.0}, {0: 9.0, 2: 0.4}, {1: 4.0}])
def test_targets_cost_no_more_than_on_a_fine_grid(most: dict[int, float], relation: str) -> None:
    """No precisions of three levels on a grid that keep all targets cost less, and the nearest ones little more."""
    tree = tree_by(complete(2, 2))
    squares = squares_of(tree, relation)
    least = twice_rho(for_targets(most, tree, squares), squares)
    bounds = {2: most[max(most)], **most}

    def error(precisions: tuple[float, ...]) -> float:  # precisions are scaled until they keep all
        at = precisions if squares[0] else (0.0, *precisions)
        levels = variances_at(tree, at, squares).of_levels()
        ratio = max(levels[level].most / bound for level, bound in bounds.items())
        return ratio * twice_rho(np.array(at), squares)

    assert least * (1 - 1e-9) <= least_on_grids(error, 2 if squares[0] else 1) <= least * 1.03


def test_a_target_that_lies_below_another_costs_nothing() -> None:
    """Leaves of variance 1 make sums of at most 4 in any case, and a target of 100 for those changes nothing.

    There must be a target, each above 0 and of a level that there is.
    """
    tree = tree_by(complete(2, 2))
    assert for_targets({0: 100.0, 2: 1.0}, tree, [1] * 3) == pytest.approx([0.0, 0.0, 1.0], abs=1e-9)
    for wrong in ({}, {1: 0.0}, {1: -1.0}, {3: 1.0}, {-1: 1.0}, {1: float("nan")}):
        with pytest.raises(ValueError, match="targets must be variances > 0 of levels from 0 to 2"):
            for_targets(wrong, tree, [1] * 3)


# a measured total that a unit moves only if it moves everything else less -----------------------------------------------


def dearer(precisions: np.ndarray) -> float:
    """Return 2ρ of one record under substitution: of a unit that stays, or of one that comes or goes."""
    return max(2 * float(precisions[1:].sum()), float(precisions.sum()))


@pytest.mark.parametrize("shape", [complete(2, 3), complete(3, 1), halved(5)], ids=str)
@pytest.mark.parametrize("workload", ["ranges", "nodes", "leaves"])
def test_no_precisions_near_by_are_better_where_a_unit_moves_the_total_or_all_else(shape: list, workload: str) -> None:
    """At the same cost to the costliest unit, other precisions have no smaller mean variance: but for 1% where fan-outs are uneven."""
    tree, random = tree_by(shape), np.random.default_rng(3)
    squares = [1] + [2] * tree.depth

    def error(precisions: np.ndarray) -> float:
        return mean_variances(tree_variances(tree, precisions.tolist()), {0})[workload] * dearer(precisions)

    best = for_workload(workload, tree, squares, {0}, is_either=True)
    assert error(best) < error(for_workload(workload, tree, squares, {0}))
    for spread in (0.02, 0.3, 1.0):
        for _ in range(40):
            other = (best + 1e-3 * best.max()) * np.exp(spread * random.standard_normal(len(best)))
            assert error(best) <= error(other) * (1.01 if shape == halved(5) else 1.002)


@pytest.mark.parametrize("most", [{1: 9.0, 3: 25.0}, {0: 2.0, 3: 40.0}, {2: 10.0}])
def test_targets_cost_less_where_a_unit_moves_the_total_or_all_else(most: dict[int, float]) -> None:
    """They are met, and no precisions near by meet them for less, nor those that are best where one unit does both."""
    tree, random = tree_by(complete(2, 3)), np.random.default_rng(4)
    squares = [1, 2, 2, 2]
    best = for_targets(most, tree, squares, is_either=True)
    before = for_targets(most, tree, squares)
    assert dearer(best) <= dearer(before) * (1 + 1e-9) < twice_rho(before, squares)

    def ratio(precisions: np.ndarray) -> float:
        levels = tree_variances(tree, precisions.tolist()).of_levels()
        bounds = {3: most[max(most)], **most}
        return max(levels[level].most / bound for level, bound in bounds.items())

    assert ratio(best) <= 1 + 1e-9
    for spread in (0.02, 0.3):
        for _ in range(100):
            other = (best + 1e-3 * best.max()) * np.exp(spread * random.standard_normal(4))
            assert dearer(best) <= ratio(other) * dearer(other) * (1 + 2e-3)
