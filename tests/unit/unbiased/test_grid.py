"""Grids of two axes: least squares and variances held to dense algebra over all pairs, and whole counts of rectangles."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.unbiased.grid import GRID_ROUNDING_VARIANCE, Grid, round_grid
from tasks.unbiased.precisions import cascade, for_workload, mean_fan_outs, twice_rho, uniform, wavelet
from tasks.unbiased.variance import tree_variances
from tests.support.shapes import complete, drawn, incidences, tree_by

SEEDS = st.integers(0, 2**32 - 1)


def draw(seed: int) -> tuple[Grid, dict[tuple[int, int], np.ndarray], np.ndarray, np.ndarray]:
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
def test_one_axis_after_the_other_is_least_squares_over_all_pairs(seed: int) -> None:
    """On random grids the values are those of dense least squares, with an exact total too, whose own noisy count is not asked for."""
    grid, noisy, values, _ = draw(seed)
    if grid.total is not None:
        del noisy[0, 0]
    assert grid.settle(lambda above, below: noisy[above, below]) == pytest.approx(values, abs=1e-9)


@given(SEEDS)
def test_rectangles_have_the_product_of_two_variances(seed: int) -> None:
    """On random grids the variance of any rectangle, also of everything, is that of dense least squares."""
    grid, _, values, covariance = draw(seed)
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
def test_rectangles_are_within_two_of_their_values(seed: int) -> None:
    """Sums over the first rows and columns are the nearest whole numbers, and a whole total is met."""
    generator = np.random.default_rng(seed)
    values = generator.normal(0, 10 ** generator.uniform(-1, 6), generator.integers(1, 12, 2))
    values[-1, -1] += np.rint(values.sum()) - values.sum()
    counts = round_grid(values)
    assert counts.dtype == np.int64
    apart = (counts - values).cumsum(axis=0).cumsum(axis=1)
    assert np.abs(apart).max() <= 0.5 + 1e-6
    assert counts.sum() == round(values.sum())


def test_large_totals_lose_nothing() -> None:
    """Values of 2⁴⁰ with a broken part keep it, and halves go to even sums."""
    assert round_grid(np.array([[2.0**40 + 0.25, 0.25], [0.5, 2.0**40]])).tolist() == [[2**40, 0], [1, 2**40]]
    assert round_grid(np.array([[0.5, 1.0, 1.0]])).tolist() == [[0, 2, 0]]
    assert round_grid(np.array([[-0.5, -1.0]])).tolist() == [[0, -2]]


def test_rounding_adds_at_most_a_third_and_no_bias() -> None:
    """With broad noise, errors of rectangles have a variance of 1/3 within 3%, and a mean of 0 within five standard errors."""
    values = np.random.default_rng(1).normal(0, 50, (400, 400))
    prefixes = (round_grid(values) - values).cumsum(axis=0).cumsum(axis=1)
    rectangles = prefixes[2::2, 2::2] - prefixes[:-2:2, 2::2] - prefixes[2::2, :-2:2] + prefixes[:-2:2, :-2:2]
    assert (rectangles**2).mean() == pytest.approx(GRID_ROUNDING_VARIANCE, rel=0.03)
    assert abs(rectangles.mean()) < 5 * np.sqrt(GRID_ROUNDING_VARIANCE / rectangles.size)


def test_mean_variances_of_all_rectangles_are_those_known() -> None:
    """For 32 × 32 leaves at unit cost: leaves alone 128, equal shares 46.1, cascade 38.0, wavelets 28.7, the best split 25.8."""
    tree = tree_by(complete(2, 5))
    ends = np.array([(first, stop) for first in range(32) for stop in range(first + 1, 33)])
    fan_outs, ones = mean_fan_outs(tree), [1] * 6
    chosen = [np.eye(6)[5], uniform(fan_outs), cascade(fan_outs), wavelet(fan_outs)]
    chosen.append(for_workload("ranges", tree, ones, {0}))
    found = []
    for precisions in chosen:
        unit = (precisions / twice_rho(precisions, ones)).tolist()
        grid = Grid((tree_variances(tree, unit),) * 2, (unit, unit))
        rows, columns = (np.repeat(ends, len(ends), axis=0), np.tile(ends, (len(ends), 1)))
        found.append(grid.of_boxes([rows[:, 0], columns[:, 0]], [rows[:, 1], columns[:, 1]]).mean())
    assert found == pytest.approx([128.4, 46.1, 38.0, 28.7, 25.8], rel=2e-3)


def test_a_side_with_two_axes_or_an_exact_level_is_refused() -> None:
    """Each side is a tree of one axis, and only the total of all pairs can be exact."""
    one, two = tree_by(complete(2, 1)), tree_by(complete(2, 1), complete(2, 1))
    single = tree_variances(one, [1.0, 1.0])
    with pytest.raises(ValueError, match="one axis, and finite precisions"):
        Grid((single, tree_variances(two, [1.0] * 3)), ([1.0] * 2, [1.0] * 3))
    with pytest.raises(ValueError, match="one axis, and finite precisions"):
        Grid((single, tree_variances(one, [np.inf, 1.0])), ([1.0] * 2, [np.inf, 1.0]))
