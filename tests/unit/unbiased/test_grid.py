"""Grids: least squares and variances held to dense algebra over all combinations of nodes of the axes, and whole counts of boxes."""

from dataclasses import replace
from functools import reduce
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.tree.order import Tree
from tasks.unbiased.dense import Dense, Strategy
from tasks.unbiased.grid import Grid, Side, grid_of, round_grid, side_of
from tasks.unbiased.variance import in_ranges, in_sets
from tests.support.shapes import complete, drawn, either, incidences, portions, tree_by

SEEDS = st.integers(0, 2**32 - 1)


def draw(seed):
    """Return a random grid of one to three axes, trees or strategies, noisy numbers by axis levels, and by dense algebra the values of all leaves and their covariance."""
    generator = np.random.default_rng(seed)
    axes = int(generator.integers(1, 4))
    trees = [tree_by(drawn(generator, depth=5 - axes)) for _ in range(axes)]
    trees = [replace(of, axes=(replace(of.axes[0], is_ordered=generator.random() < 0.6),)) for of in trees]
    trees = [either(generator, of) for of in trees]
    precisions = [generator.uniform(0.2, 2, tree.depth + 1).tolist() for tree in trees]
    if generator.random() < 0.3:
        precisions[0][0] = 0.0
    total = int(generator.integers(0, 100)) if generator.random() < 0.5 else None
    sides = [*map(side_of, trees, precisions)]
    for number, tree in enumerate(trees):
        if tree.ordered and (axes == 1 or generator.random() < 0.5):
            leaves = tree.possible_cells(tree.depth)
            rows = generator.integers(-3, 4, (leaves, leaves)) + 9 * np.eye(leaves, dtype=np.int64)
            sides[number] = Dense(tree, Strategy(rows), generator.uniform(0.5, 4))
    grid = Grid(tuple(sides), total)
    noisy, information, right = {}, 0.0, 0.0
    for levels in product(*(range(tree.depth + 1) for tree in trees)):
        of_axes = [
            incidences(side.tree)[level] if isinstance(side, Side) or level < side.tree.depth else side.strategy.rows
            for side, level in zip(sides, levels, strict=True)
        ]
        counts = noisy[levels] = generator.integers(-5, 50, [len(rows) for rows in of_axes])
        own = [portions(of.tree)[at] if isinstance(of, Side) else np.ones(len(rows)) for of, at, rows in zip(sides, levels, of_axes, strict=True)]  # fmt: skip
        cells, precision = reduce(np.kron, of_axes), precision_of(grid, levels) * reduce(np.kron, own)
        information = information + cells.T * precision @ cells
        right = right + cells.T * precision @ counts.ravel()
    covariance = np.linalg.inv(information)
    values = covariance @ right
    if total is not None:
        together = covariance.sum(axis=1)
        values = values + together / together.sum() * (total - values.sum())
        covariance = covariance - np.outer(together, together) / together.sum()
    return grid, noisy, values.reshape([tree.possible_cells(tree.depth) for tree in trees]), covariance


def precision_of(grid, levels):
    """Return with which precision the cells of some axis levels are measured."""
    return np.prod([side.precisions[level] for side, level in zip(grid.sides, levels, strict=True)])


def begins_of(grid, levels):
    """Return per axis where the areas of a level begin among the leaves, and the end."""
    axes = [side.tree.axes[0] for side in grid.sides]
    return [axis.first_descendants(level, axis.depth) for axis, level in zip(axes, levels, strict=True)]


def drawn_boxes(seed, shape, boxes):
    """Return the ends of random boxes, shape (axes, boxes, 2), the first of which is everything, and which leaves are in them."""
    generator = np.random.default_rng(seed)
    ends = np.array([np.sort(generator.integers(0, size + 1, (boxes, 2))) for size in shape])
    ends[:, 0] = np.array([(0, size) for size in shape])
    inside = np.zeros((boxes, *shape))
    for box in range(boxes):
        inside[box, *(slice(*of[box]) for of in ends)] = 1
    return ends, inside


@given(SEEDS)
def test_one_axis_after_the_other_is_least_squares_over_everything(seed):
    """On random grids the values are those of dense least squares, with an exact total too, whose own noisy count is not asked for.

    The variance of any box, also of everything, is that of dense least squares. What is measured of the cells gives every axis but for a
    factor, and so the same variances and values.
    """
    grid, noisy, values, covariance = draw(seed)
    if grid.total is not None:
        noisy.pop((0,) * values.ndim)
    tree = Tree(
        tuple(side.tree.axes[0] for side in grid.sides),
        sum(((n,) * s.tree.depth for n, s in enumerate(grid.sides)), ()),
    )
    measured = {levels: precision for levels in noisy if (precision := precision_of(grid, levels))}
    ends, inside = drawn_boxes(seed, values.shape, 8)
    flat = inside.reshape(8, -1)
    for found in (grid, grid_of(tree, measured, grid.total, grid.strategies)):
        assert found.settle(lambda levels: noisy[levels]) == pytest.approx(values, abs=1e-7)
        variances = found.of_boxes(ends[..., 0], ends[..., 1])
        assert variances == pytest.approx(np.einsum("bi,ij,bj->b", flat, covariance, flat), abs=1e-8)


@given(SEEDS)
def test_boxes_are_within_two_to_the_axes_of_their_values(seed):
    """Sums over the first areas of all axes are the nearest whole numbers, up to 2⁴⁰, and a whole total is met."""
    generator = np.random.default_rng(seed)
    values = generator.normal(0, 10 ** generator.uniform(-1, 6), generator.integers(1, 9, generator.integers(1, 4)))
    values.flat[-1] += np.rint(values.sum()) - values.sum()
    counts = round_grid(values)
    assert counts.dtype == np.int64
    apart = counts - values
    for axis in range(values.ndim):
        apart = apart.cumsum(axis=axis)
    assert np.abs(apart).max() <= 0.5 + 1e-6
    assert round_grid(np.array([[2.0**40 + 0.25, 0.25], [0.5, 2.0**40]])).tolist() == [[2**40, 0], [1, 2**40]]
    assert round_grid(np.array([[-0.5, -1.0]])).tolist() == [[0, -2]]  # halves go to even sums
    assert counts.sum() == round(values.sum())


@pytest.mark.parametrize("axes", [2, 3])
def test_rounding_adds_what_is_stated_and_no_bias(axes):
    """With broad noise, errors of boxes have the variance that is stated within 3%, and a mean of 0 within five standard errors."""
    errors = np.random.default_rng(1).normal(0, 50, (int(160_000 ** (1 / axes)),) * axes)
    errors = round_grid(errors) - errors
    for axis in range(axes):
        errors = np.diff(errors.cumsum(axis=axis).take(range(0, errors.shape[axis] // 2 * 2, 2), axis=axis), axis=axis)
    side = side_of(tree_by(complete(2, 1)), [1.0, 1.0])
    stated = Grid((side,) * axes).rounding_variance
    assert (errors**2).mean() == pytest.approx(stated, rel=0.03)
    assert abs(errors.mean()) < 5 * np.sqrt(stated / errors.size)


@settings(max_examples=40)
@given(SEEDS)
def test_cells_and_their_means_are_boxes(seed):
    """On random grids each cell of some levels has the variance of its box, and means are those over all cells and all boxes."""
    grid, *_ = draw(seed)
    axes, of_tables = [side.tree.axes[0] for side in grid.sides], []
    for levels in product(*(range(axis.depth + 1) for axis in axes)):
        begins = begins_of(grid, levels)
        areas = [of.ravel() for of in np.meshgrid(*(np.arange(len(of) - 1) for of in begins), indexing="ij")]
        boxes = grid.of_boxes(*([of[at + end] for of, at in zip(begins, areas, strict=True)] for end in (0, 1)))
        assert grid.of_cells(levels, areas) == pytest.approx(boxes, abs=1e-9)
        found = grid.of_level(levels)
        assert (found.least, found.mean, found.most) == pytest.approx(
            (boxes.min(), boxes.mean(), boxes.max()), abs=1e-9
        )
        of_tables.append(boxes)
    means = grid.mean_variances()
    assert means["nodes"] == pytest.approx(np.concatenate(of_tables).mean(), abs=1e-9)
    assert means["leaves"] == pytest.approx(of_tables[-1].mean(), abs=1e-9)
    many, of_ranges = [], []  # boxes of all ranges of ordered axes by the levels of others
    for levels in product(*([None] if axis.is_ordered else range(axis.depth + 1) for axis in axes)):
        sides = zip(axes, levels, begins_of(grid, [level or 0 for level in levels]), strict=True)
        every = ([*combinations(range(axis.areas(axis.depth) + 1), 2)] if level is None else [*pairwise(of)] for axis, level, of in sides)  # fmt: skip
        ends = np.array([*product(*every)])  # shape (boxes, axes, 2)
        many.append(len(ends))
        of_ranges.append(grid.of_boxes(ends[..., 0].T, ends[..., 1].T).mean())
        assert grid.mean_of_ranges(levels) == pytest.approx(of_ranges[-1], abs=1e-9)
    if any(axis.is_ordered for axis in axes):
        assert means["ranges"] == pytest.approx(np.average(of_ranges, weights=many), abs=1e-9)


@given(SEEDS)
def test_a_box_is_made_of_the_fewest_cells(seed):
    """The cells are disjoint and fill the box."""
    grid, _, values, _ = draw(seed)
    ends, inside = drawn_boxes(seed, values.shape, 2)
    covered = np.zeros(values.shape, dtype=int)
    for levels, areas in grid.whole_cells(in_ranges(ends[:, 1:, 0], ends[:, 1:, 1])):
        begins = begins_of(grid, levels)
        for cell in zip(*areas, strict=True):
            covered[*(slice(of[at], of[at + 1]) for of, at in zip(begins, cell, strict=True))] += 1
    assert (covered == inside[1]).all()


def test_a_side_with_two_axes_or_an_exact_level_is_refused():
    """Each side is a tree of one axis, and only the total of everything can be exact."""
    for tree, precisions in ((tree_by(complete(2, 1), complete(2, 1)), [1.0] * 3), (tree_by([[2]]), [np.inf, 1.0])):
        with pytest.raises(ValueError, match="one axis, and finite precisions"):
            side_of(tree, precisions)


@given(SEEDS)
def test_sets_of_areas_of_all_axes_are_sums_of_boxes(seed):
    """Their variance is that of dense least squares, and they are made of as many boxes as their runs multiply to."""
    grid, _, values, covariance = draw(seed)
    generator = np.random.default_rng(seed)
    chosen = [generator.random(size) < 0.5 for size in values.shape]
    inside = reduce(np.multiply.outer, chosen).ravel()
    assert grid.variances_of(in_sets(chosen)) == pytest.approx(inside @ covariance @ inside, abs=1e-9)
    runs = [np.count_nonzero(np.diff(of.astype(int), prepend=0) > 0) for of in chosen]
    assert grid.runs_of_box(in_sets(chosen)) == np.prod(runs)
