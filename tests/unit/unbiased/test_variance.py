"""Variances of least squares in trees, held to dense inverses."""

import math
from dataclasses import replace
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import LevelNoise
from tasks.tree.frontier import Frontier, expand
from tasks.tree.views import level_view, unnumbered
from tasks.unbiased.deviations import released_counts
from tasks.unbiased.variance import in_ranges, in_sets, tree_variances
from tests.support.shapes import complete, covariance, drawn, either, halved, incidences, tree_by

SEEDS = st.integers(0, 2**32 - 1)


def draw(seed):
    """Return a random tree of one or two axes in any order, its variances at random precisions, and the covariance of its leaves.

    Levels of only children are measured or not.
    """
    generator = np.random.default_rng(seed)
    shapes = [drawn(generator, depth=3) for _ in range(generator.integers(1, 3))]
    steps = generator.permutation([axis for axis, of in enumerate(shapes) for _ in of]).tolist()
    tree = either(generator, tree_by(*shapes, steps=steps))
    precisions = generator.uniform(0.1, 3, tree.depth + 1)
    if (choice := generator.random()) < 0.3:
        precisions[generator.integers(0, tree.depth)] = 0.0
    elif choice < 0.7:
        precisions[[level for level in range(1, tree.depth + 1) if tree.same_as(level) is not None]] = 0.0
    if generator.random() < 0.3:
        precisions[0] = np.inf
    return tree, tree_variances(tree, precisions), covariance(tree, precisions)


def areas_of(tree, level):
    """Return the areas of all nodes of a level, per axis."""
    return list(np.unravel_index(np.arange(tree.possible_cells(level)), tree.sizes(level)))


@given(SEEDS)
def test_nodes_have_the_variances_of_dense_least_squares(seed):
    """On random trees every node has the variance that the inverse of the information matrix gives it.

    r·x̂ has the variance rᵀCr, for boxes of adjacent areas, also empty ones.
    """
    tree, variances, leaves = draw(seed)
    for level, of in enumerate(incidences(tree)):
        wanted = np.diag(of @ leaves @ of.T)
        assert variances.of_cells(tree.axis_levels(level), areas_of(tree, level)) == pytest.approx(wanted, abs=1e-10)
        found = variances.levels[level]
        least_mean_most = [wanted.min(), wanted.mean(), wanted.max()]
        assert [found.least, found.mean, found.most] == pytest.approx(least_mean_most, abs=1e-10)
    assert variances.total == pytest.approx(leaves.sum(), abs=1e-10)
    generator, sizes = np.random.default_rng(seed), tree.sizes(tree.depth)
    ends = [np.sort(generator.integers(0, size + 1, (10, 2))) for size in sizes]
    places = np.indices(sizes).reshape(len(sizes), -1)
    inside = np.ones((10, leaves.shape[0]))
    for of_axis, of in zip(ends, places, strict=True):
        inside *= (of_axis[:, :1] <= of) & (of < of_axis[:, 1:])
    boxes = variances.of_boxes([of[:, 0] for of in ends], [of[:, 1] for of in ends])
    assert boxes == pytest.approx(np.einsum("bi,ij,bj->b", inside, leaves, inside), abs=1e-10)


@given(SEEDS)
def test_sets_of_areas_have_the_variances_of_dense_least_squares(seed):
    """Any areas of one axis with any of the other: the variance is rᵀCr, and the runs are those of adjacent leaves in the order of the tree."""
    tree, variances, leaves = draw(seed)
    generator, sizes = np.random.default_rng(seed), tree.sizes(tree.depth)
    chosen = [generator.random(size) < 0.5 for size in sizes]
    places = np.indices(sizes).reshape(len(sizes), -1)
    inside = np.all([of[own] for of, own in zip(chosen, places, strict=True)], axis=0)
    assert variances.variances_of(in_sets(chosen)) == pytest.approx(inside @ leaves @ inside, abs=1e-10)
    cells = [np.zeros(1, dtype=np.int64)] * len(sizes)
    order = Frontier(0, tuple(cells), np.zeros(1, dtype=np.int64))
    for level in range(tree.depth):
        below = expand(tree, order)
        order = Frontier(level + 1, below.areas, np.zeros(len(below), dtype=np.int64))
    in_order = np.all([of[own] for of, own in zip(chosen, order.areas, strict=True)], axis=0)
    assert variances.runs_of_box(in_sets(chosen)) == np.count_nonzero(np.diff(in_order.astype(int), prepend=0) > 0)


@pytest.mark.parametrize(("shapes", "ordered", "is_grid", "least"), [
    ([complete(2, 5)], (), False, 0.09),
    ([halved(11)], (0,), False, 0.07),
    ([[[3]], halved(8)], (1,), False, 0.07),
    ([[[3], [2, 1, 1]], [[4]]], (), False, 0.05),
    ([halved(5), halved(6)], (0, 1), True, 0.07),
])  # fmt: skip
def test_intervals_of_all_nodes_and_ranges_hold_at_once(shapes, ordered, is_grid, least):
    """By the bound of sub-Gaussian noise, both sides of all ranges, which nodes are too, add up to α at most, and not to much less."""
    alone = tree_by(*shapes)
    tree = replace(alone, axes=tuple(replace(of, is_ordered=own in ordered) for own, of in enumerate(alone.axes)))
    pairs = product(*(range(axis.depth + 1) for axis in tree.axes))
    views = [unnumbered(pair) for pair in pairs] if is_grid else [level_view(tree, of) for of in range(tree.depth + 1)]
    rule = released_counts(tree, [(of, LevelNoise(GAUSSIAN, 1000.0)) for of in views], 0.9, None, is_grid=is_grid)
    sides, missed = list[list[tuple[int, int]]](), 0.0
    for axis in tree.axes:
        begins = [axis.first_descendants(own, axis.depth).tolist() for own in range(axis.depth + 1)]
        sides.append([*combinations(begins[-1], 2)] if axis.is_ordered else [*set().union(*map(pairwise, begins))])
    for box in product(*sides):
        inside = in_ranges(*([np.array([end]) for end in ends] for ends in zip(*box, strict=True)))
        missed += 2 * math.exp(-((rule.at_once(inside).margin / rule.box_deviation(inside)[0]) ** 2) / 2)
    assert least < missed <= 0.1


@pytest.mark.parametrize(("shape", "precisions", "message"), [
    (complete(2, 2), [1.0, 1.0], "3 numbers"),
    *((complete(2, 2), [1.0, of, 1.0], "numbers >= 0") for of in (-1.0, float("nan"))),
    *((complete(2, 2), [1.0, of, 0.0], "level 2 must be measured") for of in (1.0, 0.0)),
    ([[1], [1]], [0.0, 0.0, 0.0], "at least one level"),
])  # fmt: skip
def test_precisions_that_determine_nothing_are_refused(shape, precisions, message):
    """There must be one precision per level, none below 0, siblings must be told apart, and something must be measured."""
    with pytest.raises(ValueError, match=message):
        tree_variances(tree_by(shape), precisions)


@pytest.mark.parametrize("axis_levels", [(0, 1), (1, 2), (2, 0), (1, 3), (0, 0, 0)])
def test_axis_levels_that_no_level_has_are_refused(axis_levels):
    """A variance is never that of another level that happens to lie as deep."""
    tree = tree_by(complete(2, 2), complete(2, 2), steps=(0, 1, 0, 1))
    variances = tree_variances(tree, [1.0] * 5)
    assert variances.of_level((1, 1)) == variances.levels[2]
    with pytest.raises(ValueError, match="no level of the tree"):
        variances.of_level(axis_levels)
    with pytest.raises(ValueError, match="no level of the tree"):
        variances.of_cells(axis_levels, [np.zeros(1, dtype=np.int64)] * len(axis_levels))
