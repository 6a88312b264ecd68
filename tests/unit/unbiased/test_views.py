"""Trees with views beside them: least squares and variances held to dense algebra, and whole counts of cells of any shape."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.tree.views import Derived, Partition, View, level_view
from tasks.unbiased.deviations import ReleasedCounts
from tasks.unbiased.grid import round_grid
from tasks.unbiased.variance import in_ranges, in_sets, tree_variances
from tasks.unbiased.views import TreeWithViews, roundings_of
from tests.support.shapes import drawn, either, incidences, portions, tree_by

SEEDS = st.integers(0, 2**32 - 1)


def draw(seed, most_axes=3):
    """Return a random tree with views that cross, and by dense algebra the covariance of its leaves, the cells of views, and values with noisy counts."""
    generator = np.random.default_rng(seed)
    shapes = [drawn(generator, depth=2) for _ in range(generator.integers(1, most_axes + 1))]
    steps = generator.permutation([axis for axis, of in enumerate(shapes) for _ in of]).tolist()
    tree = either(generator, tree_by(*shapes, steps=steps))
    precisions = generator.uniform(0.1, 3, tree.depth + 1)
    if tree.depth > 1 and generator.random() < 0.3:
        precisions[generator.integers(0, tree.depth)] = 0.0
    if generator.random() < 0.4:
        precisions[0] = np.inf
    views = []
    for number in range(tree.depth + 1, tree.depth + 1 + int(generator.integers(1, 4))):
        levels = tuple(int(generator.integers(0, axis.depth + 1)) for axis in tree.axes)
        views.append((View(number, levels, {}, column(generator, tree)), float(generator.uniform(0.1, 3))))
    every = np.unravel_index(np.arange(tree.possible_cells(tree.depth)), tree.sizes(tree.depth))
    rows = [*incidences(tree)]
    for view, _ in views:
        partition = Partition(tree, view)
        held = partition.places(Partition(tree, level_view(tree, tree.depth)).cells())
        rows.append(np.equal.outer(np.arange(len(partition)), held).astype(float))
    weights = [*(of * own for of, own in zip(precisions, portions(tree), strict=True)), *(of for _, of in views)]
    weights = [np.broadcast_to(of, len(cells)) for of, cells in zip(weights, rows, strict=True)]
    noisy = [generator.integers(-5, 50, len(of)) for of in rows]
    exact = rows[0] if np.isinf(precisions[0]) else rows[0][:0]
    finite = [(of, p, y) for of, p, y in zip(rows, weights, noisy, strict=True) if np.isfinite(p).all()]
    information = sum(of.T * p @ of for of, p, _ in finite)
    bordered = np.block([[information, exact.T], [exact, np.zeros((len(exact), len(exact)))]])
    inverse = np.linalg.inv(bordered)
    right = np.concatenate([sum(of.T * p @ y for of, p, y in finite), noisy[0][: len(exact)]])
    leaves = len(every[0])
    with_views = TreeWithViews(tree_variances(tree, precisions), precisions.tolist(), views)
    return generator, with_views, rows, noisy, inverse[:leaves, :leaves], (inverse @ right)[:leaves]


def column(generator, tree):
    """Return a random derived column of some axes, or none."""
    if generator.random() < 0.5:
        return ()
    of = tuple((axis, int(generator.integers(1, own.depth + 1))) for axis, own in enumerate(tree.axes))
    codes = generator.integers(0, 3, np.prod([tree.axes[axis].areas(level) for axis, level in of]))
    return (Derived("kind", of, pl.Series(["a", "b", "c"]), codes.astype(np.int32)),)


@given(SEEDS)
def test_values_and_variances_are_those_of_dense_least_squares(seed):
    """On random trees with views that cross, with an exact total or not: nodes, cells of views, ranges, sets and any sums."""
    generator, tree, rows, noisy, covariance, values = draw(seed)
    shape = tree.tree.sizes(tree.tree.depth)
    assert tree.settle(lambda number: noisy[number]).ravel() == pytest.approx(values, abs=1e-8)
    variances = [np.einsum("ij,jk,ik->i", of, covariance, of) for of in rows]
    depth = tree.tree.depth
    for level in range(depth + 1):
        areas = np.unravel_index(np.arange(len(rows[level])), tree.tree.sizes(level))
        some = generator.integers(0, len(rows[level]), 2)
        found = tree.of_cells(tree.tree.axis_levels(level), [of[some] for of in areas])
        assert found == pytest.approx(variances[level][some], abs=1e-9)
        assert tree.of_cells(tree.tree.axis_levels(level), areas) == pytest.approx(variances[level], abs=1e-9)
        assert tree.levels[level].most == pytest.approx(variances[level].max(), abs=1e-9)
    for number in range(depth + 1, len(rows)):
        assert tree.of_view(number) == pytest.approx(variances[number], abs=1e-9)
    ends = [np.sort(generator.integers(0, size + 1, (8, 2))) for size in shape]
    places, inside = np.indices(shape).reshape(len(shape), -1), np.ones((8, np.prod(shape)))
    for of, at in zip(ends, places, strict=True):
        inside *= (of[:, :1] <= at) & (at < of[:, 1:])
    found = tree.variances_of(in_ranges([of[:, 0] for of in ends], [of[:, 1] for of in ends]), 8)
    assert found == pytest.approx(np.einsum("ij,jk,ik->i", inside, covariance, inside), abs=1e-9)
    if len(shape) == 1:
        assert tree.covariance == pytest.approx(covariance, abs=1e-9)
    chosen = [generator.random(size) < 0.5 for size in shape]
    whole = np.prod([of[at] for of, at in zip(chosen, places, strict=True)], axis=0).astype(float)
    assert tree.variances_of(in_sets(chosen)) == pytest.approx(whole @ covariance @ whole, abs=1e-9)
    weights = generator.normal(size=shape)
    assert tree.of_weights(weights) == pytest.approx(weights.ravel() @ covariance @ weights.ravel(), abs=1e-8)


@given(SEEDS)
def test_all_cells_of_levels_and_views_share_the_probability(seed):
    """The tails of all simultaneous intervals, beyond what rounding moves, add up to α at most."""
    _, tree, *_ = draw(seed)
    released, miss = ReleasedCounts(tree.tree, tree, 0.9), 0.0
    for part in (*(level_view(tree.tree, own) for own in range(tree.tree.depth + 1)), *(of for of, _ in tree.views)):
        cells = Partition(tree.tree, part)
        estimates = released.estimates(part, cells.cells().areas, np.full(len(cells), 10**6))
        *_, high = released.intervals(part, estimates, simultaneous=True)
        rounding = roundings_of(cells) / 2 if part.derived else released.rounding
        reach = (high - 10**6 + 1 - rounding)[estimates.deviations > 0]
        miss += 2 * np.exp(-((reach / estimates.deviations[estimates.deviations > 0]) ** 2) / 2).sum()
    assert miss <= 0.1 + 1e-9


@given(SEEDS)
def test_rounding_moves_cells_of_any_shape_as_stated(seed):
    """The counts of cells are off by the rounded sums of which they are made: 1/12 of variance each, and no further than half of each."""
    generator, tree, rows, *_ = draw(seed, most_axes=2)
    shape = tree.tree.sizes(tree.tree.depth)
    values = generator.normal(0, 100, (2000, *shape))
    moved = np.stack([(round_grid(of) - of).ravel() for of in values])
    for number, partition in tree.partitions.items():
        errors, roundings = moved @ rows[number].T, roundings_of(partition)
        assert (abs(errors) <= roundings / 2 + 1e-6).all()
        assert (errors.var(axis=0) <= 1.3 * roundings / 12).all()
        if tree.partitions[number].view.derived:
            inner = roundings_of(partition) > 0
            assert (errors.var(axis=0)[inner] >= roundings[inner] / 12 / 1.3).all()
