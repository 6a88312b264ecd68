"""Grids of two axes: least squares and variances held to dense algebra over all pairs, and whole counts of rectangles."""

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.unbiased.grid import GRID_ROUNDING_VARIANCE, Grid, grid_of, round_grid
from tasks.unbiased.variance import in_ranges, in_sets, tree_variances
from tests.support.shapes import complete, drawn, incidences, tree_by

SEEDS = st.integers(0, 2**32 - 1)


def draw(seed):
    """Return a random grid, noisy counts of all pairs of levels, and by dense algebra the values of pairs of leaves and their covariance."""
    generator = np.random.default_rng(seed)
    trees = [tree_by(drawn(generator, depth=3)) for _ in range(2)]
    precisions = [generator.uniform(0.2, 2, tree.depth + 1) for tree in trees]
    if generator.random() < 0.3:
        precisions[0][0] = 0.0
    total = int(generator.integers(0, 100)) if generator.random() < 0.5 else None
    sides = tuple(tree_variances(tree, of) for tree, of in zip(trees, precisions, strict=True))
    grid = Grid(sides, tuple(of.tolist() for of in precisions), total)
    noisy, information, right = {}, 0.0, 0.0
    for above, rows in enumerate(incidences(trees[0])):
        for below, columns in enumerate(incidences(trees[1])):
            counts = noisy[above, below] = generator.integers(-5, 50, (len(rows), len(columns)))
            pairs, precision = np.kron(rows, columns), precisions[0][above] * precisions[1][below]
            information = information + precision * pairs.T @ pairs
            right = right + precision * pairs.T @ counts.ravel()
    covariance = np.linalg.inv(information)
    values = covariance @ right
    if total is not None:
        together = covariance.sum(axis=1)
        values = values + together / together.sum() * (total - values.sum())
        covariance = covariance - np.outer(together, together) / together.sum()
    return grid, noisy, values.reshape([tree.possible_cells(tree.depth) for tree in trees]), covariance


@given(SEEDS)
def test_one_axis_after_the_other_is_least_squares_over_all_pairs(seed):
    """On random grids the values are those of dense least squares, with an exact total too, whose own noisy count is not asked for.

    What is measured of the pairs gives both axes but for a factor, and so the same variances and values.
    """
    grid, noisy, values, covariance = draw(seed)
    if grid.total is not None:
        del noisy[0, 0]
    assert grid.settle(lambda above, below: noisy[above, below]) == pytest.approx(values, abs=1e-9)
    check_rectangles(seed, grid, values, covariance)
    tree = tree_by(complete(2, 1), complete(2, 1))
    tree = replace(tree, axes=tuple(of.tree.axes[0] for of in grid.variances))
    measured = {
        (above, below): p * q
        for (above, p), (below, q) in product(*map(enumerate, grid.precisions))
        if p * q and (above, below) in noisy
    }
    again = grid_of(tree, measured, grid.total)
    assert again.settle(lambda above, below: noisy[above, below]) == pytest.approx(values, abs=1e-7)
    ends = [np.array([0]), np.array([0])], [np.array([1]), np.array([1])]
    assert again.of_boxes(*ends) == pytest.approx(grid.of_boxes(*ends))


def check_rectangles(seed, grid, values, covariance):
    """Check that the variance of any rectangle, also of everything, is that of dense least squares: the product of two variances."""
    generator = np.random.default_rng(seed)
    ends = [np.sort(generator.integers(0, size + 1, (8, 2))) for size in values.shape]
    for of, size in zip(ends, values.shape, strict=True):
        of[0] = 0, size
    inside = np.zeros((8, *values.shape))
    for box, (rows, columns) in enumerate(zip(*ends, strict=True)):
        inside[box, slice(*rows), slice(*columns)] = 1
    flat = inside.reshape(8, -1)
    found = grid.of_boxes([of[:, 0] for of in ends], [of[:, 1] for of in ends])
    assert found == pytest.approx(np.einsum("bi,ij,bj->b", flat, covariance, flat), abs=1e-9)


@given(SEEDS)
def test_rectangles_are_within_two_of_their_values(seed):
    """Sums over the first rows and columns are the nearest whole numbers, up to 2⁴⁰, and a whole total is met."""
    generator = np.random.default_rng(seed)
    values = generator.normal(0, 10 ** generator.uniform(-1, 6), generator.integers(1, 12, 2))
    values[-1, -1] += np.rint(values.sum()) - values.sum()
    counts = round_grid(values)
    assert counts.dtype == np.int64
    apart = (counts - values).cumsum(axis=0).cumsum(axis=1)
    assert np.abs(apart).max() <= 0.5 + 1e-6
    assert round_grid(np.array([[2.0**40 + 0.25, 0.25], [0.5, 2.0**40]])).tolist() == [[2**40, 0], [1, 2**40]]
    assert round_grid(np.array([[-0.5, -1.0]])).tolist() == [[0, -2]]  # halves go to even sums
    assert counts.sum() == round(values.sum())


def test_rounding_adds_at_most_a_third_and_no_bias():
    """With broad noise, errors of rectangles have a variance of 1/3 within 3%, and a mean of 0 within five standard errors."""
    values = np.random.default_rng(1).normal(0, 50, (400, 400))
    prefixes = (round_grid(values) - values).cumsum(axis=0).cumsum(axis=1)
    rectangles = prefixes[2::2, 2::2] - prefixes[:-2:2, 2::2] - prefixes[2::2, :-2:2] + prefixes[:-2:2, :-2:2]
    assert (rectangles**2).mean() == pytest.approx(GRID_ROUNDING_VARIANCE, rel=0.03)
    assert abs(rectangles.mean()) < 5 * np.sqrt(GRID_ROUNDING_VARIANCE / rectangles.size)


@settings(max_examples=40)
@given(SEEDS)
def test_cells_and_their_means_are_rectangles(seed):
    """On random grids each cell of two levels has the variance of its rectangle, and means are those over all cells and all rectangles."""
    grid, *_ = draw(seed)
    axes, by_pair = [of.tree.axes[0] for of in grid.variances], []
    for pair in product(*(range(axis.depth + 1) for axis in axes)):
        begins = [axis.first_descendants(level, axis.depth) for axis, level in zip(axes, pair, strict=True)]
        areas = [of.ravel() for of in np.meshgrid(*(np.arange(len(of) - 1) for of in begins), indexing="ij")]
        boxes = grid.of_boxes(*([of[at + side] for of, at in zip(begins, areas, strict=True)] for side in (0, 1)))
        assert grid.of_cells(pair, areas) == pytest.approx(boxes, abs=1e-9)
        found = grid.of_level(pair)
        assert (found.least, found.mean, found.most) == pytest.approx(
            (boxes.min(), boxes.mean(), boxes.max()), abs=1e-9
        )
        by_pair.append(boxes)
    ranges = [list(combinations(range(axis.areas(axis.depth) + 1), 2)) for axis in axes]
    ends = np.array(list(product(*ranges)))  # shape (rectangles, axes, 2)
    assert grid.mean_variances()["ranges"] == pytest.approx(grid.of_boxes(ends[..., 0].T, ends[..., 1].T).mean())
    assert grid.mean_variances()["nodes"] == pytest.approx(np.concatenate(by_pair).mean(), abs=1e-9)
    assert grid.mean_variances()["leaves"] == pytest.approx(by_pair[-1].mean(), abs=1e-9)


@given(SEEDS)
def test_a_rectangle_is_made_of_the_fewest_cells(seed):
    """The cells are disjoint, fill the rectangle, and are as many as the nodes of its two ranges multiply to."""
    grid, _, values, _ = draw(seed)
    generator = np.random.default_rng(seed)
    ends = [np.sort(generator.integers(0, size + 1, 2)) for size in values.shape]
    covered = np.zeros(values.shape, dtype=int)
    for pair, areas in grid.whole_cells(in_ranges(*([of[side : side + 1] for of in ends] for side in (0, 1)))):
        begins = [
            of.tree.axes[0].first_descendants(level, of.tree.depth)
            for of, level in zip(grid.variances, pair, strict=True)
        ]
        for row, column in zip(*areas, strict=True):
            covered[begins[0][row] : begins[0][row + 1], begins[1][column] : begins[1][column + 1]] += 1
    inside = np.zeros(values.shape, dtype=int)
    inside[slice(*ends[0]), slice(*ends[1])] = 1
    assert (covered == inside).all()


def test_a_side_with_two_axes_or_an_exact_level_is_refused():
    """Each side is a tree of one axis, and only the total of all pairs can be exact."""
    one, two = tree_by(complete(2, 1)), tree_by(complete(2, 1), complete(2, 1))
    single = tree_variances(one, [1.0, 1.0])
    with pytest.raises(ValueError, match="one axis, and finite precisions"):
        Grid((single, tree_variances(two, [1.0] * 3)), ([1.0] * 2, [1.0] * 3))
    with pytest.raises(ValueError, match="one axis, and finite precisions"):
        Grid((single, tree_variances(one, [np.inf, 1.0])), ([1.0] * 2, [np.inf, 1.0]))


@given(SEEDS)
def test_sets_of_areas_of_both_axes_are_sums_of_rectangles(seed):
    """Their variance is that of dense least squares, and they are made of as many rectangles as their runs multiply to."""
    grid, _, values, covariance = draw(seed)
    generator = np.random.default_rng(seed)
    chosen = [generator.random(size) < 0.5 for size in values.shape]
    inside = np.outer(*chosen).ravel()
    assert grid.variances_of(in_sets(chosen)) == pytest.approx(inside @ covariance @ inside, abs=1e-9)
    runs = [np.count_nonzero(np.diff(of.astype(int), prepend=0) > 0) for of in chosen]
    assert grid.runs_of_box(in_sets(chosen)) == np.prod(runs)
