"""Exact optimisers against slow ones: enumeration, non-negative least squares, a conic solver, the printed recurrence."""

from itertools import pairwise, product

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from tasks.sizes.estimators import nearest_tails
from tasks.sizes.programs import blocks, real_optimum, whole_optimum
from tasks.sizes.statistics import chain_of, from_chain
from tasks.sizes.tables import NoisyLevels, falling, levels_above, tails_of
from tests.support.group_sizes import draw_problem, problems

seeds = st.integers(0, 2**32 - 1)


def noisy_sizes(problem):
    """Return the group sizes of a problem with its noise."""
    return [true + noise for true, noise in zip(problem.true, problem.noise, strict=True)]


def cost(found, noisy, variances):
    """Return the weighted sum of squares."""
    return sum(
        float(((of - own) ** 2).sum()) / variance for of, own, variance in zip(found, noisy, variances, strict=True)
    )


def matrix_of(problem):
    """Return which finest regions every region of every level holds, times the root of its weight."""
    leaves = np.eye(len(problem.true[-1]))
    levels = levels_above(leaves, problem.first_child)
    return np.concatenate([of * v**-0.5 for of, v in zip(levels, problem.variances, strict=True)])


@settings(max_examples=60)
@given(problems(), st.booleans())
def test_real_sizes_are_those_of_non_negative_least_squares(problem, is_total):
    """Size by size; with a total, whose multiplier all sizes share, by one problem with a heavy row."""
    noisy, matrix = noisy_sizes(problem), matrix_of(problem)
    right = np.concatenate([of * v**-0.5 for of, v in zip(noisy, problem.variances, strict=True)])
    regions, largest = noisy[-1].shape
    total = 7 if is_total else None
    found = real_optimum(noisy, problem.variances, problem.first_child, total)
    whole = np.kron(matrix, np.eye(largest))
    target = right.ravel()
    if is_total:
        whole, target = np.vstack([whole, np.full(regions * largest, 1e4)]), np.append(target, 7e4)
    expected = nnls(whole, target)[0].reshape(regions, largest)
    assert found[-1] == pytest.approx(expected, abs=1e-4)
    for coarse, above in zip(found, levels_above(found[-1], problem.first_child), strict=True):
        assert coarse == pytest.approx(above, abs=1e-9)


@settings(max_examples=80)
@given(seeds, st.none() | st.integers(0, 6), st.sampled_from([1, 2, 6]))
def test_whole_sizes_cost_no_more_than_any(seed, total, window):
    """Over all tables of up to eleven groups of a size in a region, or with a total that the sizes share, whatever the window to begin with."""
    generator = np.random.default_rng(seed)
    while True:
        problem = draw_problem(generator, largest=3, most=3, spread=2.0)
        if problem.true[-1].size <= 4:
            break
    noisy, shape = noisy_sizes(problem), problem.true[-1].shape
    found = whole_optimum(noisy, problem.variances, problem.first_child, total, window)
    assert total is None or found[0].sum() == total
    every = np.array(list(product(range(12 if total is None else total + 1), repeat=problem.true[-1].size)))
    every = every[every.sum(axis=1) == total] if total is not None else every
    levels = levels_above(np.moveaxis(every.reshape(-1, *shape), 0, 2), problem.first_child)
    costs = sum(
        ((of - own[..., None]) ** 2).sum(axis=(0, 1)) / v
        for of, own, v in zip(levels, noisy, problem.variances, strict=True)
    )
    assert cost(found, noisy, problem.variances) == pytest.approx(costs.min())


@given(problems())
@settings(max_examples=20)
def test_blocks_of_group_sizes_are_solved_as_all_at_once(problem):
    """Each size alone has the same counts to the bit."""
    noisy = noisy_sizes(problem)
    at_once = [
        real_optimum(noisy, problem.variances, problem.first_child),
        whole_optimum(noisy, problem.variances, problem.first_child),
    ]
    for size in range(noisy[0].shape[1]):
        alone = [of[:, size : size + 1] for of in noisy]
        for together, solve in zip(at_once, (real_optimum, whole_optimum), strict=True):
            for one, of in zip(solve(alone, problem.variances, problem.first_child), together, strict=True):
                assert one.tobytes() == of[:, size : size + 1].tobytes()
    assert [part.stop - part.start for part in blocks(2**18, 5)] == [2, 2, 1]


def nodes_of_chain(problem):
    """Return level, region and size of the nodes of the chain: the subtrees of each size in post-order, the last region first."""

    def below(level, region, size):
        children = []
        if level < len(problem.first_child):
            begin, end = problem.first_child[level][region : region + 2].tolist()
            children = [node for child in reversed(range(begin, end)) for node in below(level + 1, child, size)]
        return [*children, (level, region, size)]

    return [node for size in reversed(range(problem.true[0].shape[1])) for node in below(0, 0, size)]


def cost_by_recurrence(problem, noisy):
    """Return the least cost of a chain by the paper's tables: a node is not below the one before, and equal to it if it is coarser."""
    values = np.arange(max(1, max(int(of.max()) for of in noisy) + 1))
    table = np.zeros(len(values))
    table[1:] = np.inf  # before the chain there is no group
    nodes, before = nodes_of_chain(problem), -1
    for level, region, size in nodes:
        if level >= before:
            table = np.minimum.accumulate(table)
        table = table + (values - noisy[level][region, size]) ** 2 / problem.variances[level]
        before = level
    return float(table.min())


@settings(max_examples=80)
@given(seeds)
def test_the_chain_costs_what_the_recurrence_says(seed):
    """One isotonic regression over sizes and leaves is the whole optimum of the paper's dynamic program."""
    problem = draw_problem(np.random.default_rng(seed), largest=4, most=3)
    noisy = [chain_of(true) + noise for true, noise in zip(problem.true, problem.noise, strict=True)]
    found = from_chain(NoisyLevels(noisy, problem.variances, problem.first_child))
    costs = cost([chain_of(of) for of in found], noisy, problem.variances)
    assert costs == pytest.approx(cost_by_recurrence(problem, noisy))


@settings(max_examples=25)
@given(seeds)
def test_monotone_tails_that_add_up_are_those_of_a_conic_solver(seed):
    """Dykstra's turns come to within a fifth of a record of CLARABEL's solution."""
    problem = draw_problem(np.random.default_rng(seed), largest=4)
    noisy = [tails_of(true) + noise for true, noise in zip(problem.true, problem.noise, strict=True)]
    found = nearest_tails(noisy, problem.variances, problem.first_child)
    leaves = cp.Variable(noisy[-1].shape)
    identity = np.eye(len(noisy[-1]))
    levels = [of @ leaves for of in levels_above(identity, problem.first_child)]
    squares = [cp.sum_squares(of - own) / v for of, own, v in zip(levels, noisy, problem.variances, strict=True)]
    rules = [leaves >= 0, *(leaves[:, one] >= leaves[:, other] for one, other in pairwise(range(noisy[0].shape[1])))]
    # a sum of monotone tails is monotone
    cp.Problem(cp.Minimize(sum(squares)), rules).solve(solver=cp.CLARABEL)
    assert found[-1] == pytest.approx(leaves.value, abs=0.2)
    assert found[0] == pytest.approx(levels[0].value, abs=0.2)


@pytest.mark.parametrize("window", [1, 6])
def test_whole_sizes_may_be_far_from_real_ones(window):
    """Thirty regions with no group and a weak sum of 15 have 0.19 each in real numbers, and none in whole ones."""
    noisy, variances, first = [np.array([[15]]), np.zeros((30, 1), dtype=np.int64)], [50.0, 1.0], [np.array([0, 30])]
    assert real_optimum(noisy, variances, first)[0].item() == pytest.approx(5.625)
    assert whole_optimum(noisy, variances, first, window=window)[0].item() == 0


def by_formula(row):
    """Return the least, over all beginnings up to a size, of the largest mean from there to an end not before it."""
    n = len(row)
    return [min(max(row[begin : end + 1].mean() for end in range(at, n)) for begin in range(at + 1)) for at in range(n)]


@given(st.integers(0, 2**32 - 1))
def test_rows_are_those_of_the_formula(seed):
    """Every row is the isotonic regression of its own values, whatever the others are; whole numbers that fall stay to the bit."""
    generator = np.random.default_rng(seed)
    rows = generator.normal(0, 5, (int(generator.integers(1, 6)), int(generator.integers(1, 8))))
    rows += generator.integers(-(10**6), 10**6, (len(rows), 1))
    assert falling(rows) == pytest.approx(np.array([by_formula(row) for row in rows]), abs=1e-6)
    whole = -np.sort(-generator.integers(-(2**38), 2**38, (9, 5))).astype(np.float64)
    assert falling(whole).tolist() == whole.tolist()
    assert falling(rows[:0]).shape == (0, rows.shape[1])
