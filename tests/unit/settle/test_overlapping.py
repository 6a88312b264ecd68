"""Least squares over cells that overlap or nest, and shares of a budget: against other solvers, the conditions of a minimum, and the edges."""

import math
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from tasks.settle import newton_step
from tasks.settle.overlapping import Grouping, settle_nested, settle_overlapping
from tasks.settle.shares import WeightedView, atoms_of, least_error_shares


def grouping(cell, values, weight):
    """Return a grouping of plain numbers."""
    return Grouping(np.array(cell, dtype=np.int32), np.array(values, dtype=np.float64), weight)


def incidence(of):
    """Return A as a dense matrix, shape (cells, leaves)."""
    return (np.arange(len(of.values))[:, None] == of.cell).astype(np.float64)


def by_nnls(own, weights, groupings):
    """Return the minimum by another algorithm; an exact count has a weight of 1e10."""
    weights = np.broadcast_to(weights, own.shape)
    rows, right = [np.diag(np.sqrt(weights))], [np.sqrt(weights) * own]
    for of in groupings:
        matrix, scale = incidence(of), np.sqrt(min(of.weight, 1e10))
        used = matrix.any(axis=1)
        rows.append(scale * matrix[used])
        right.append(scale * of.values[used])
    return nnls(np.vstack(rows), np.concatenate(right))[0]


def problem(seed, exact=False):
    """Return true counts, noisy ones, weights, and groupings that cross; some leaves are outside, some cells are empty."""
    random = np.random.default_rng(seed)
    leaves = int(random.integers(1, 25))
    truth = random.integers(0, 6, leaves) * (random.random(leaves) < 0.5)
    groupings = []
    for at in range(int(random.integers(1, 5))):
        size, is_exact = int(random.integers(1, 7)), exact and at == 0
        cell = random.integers(0 if is_exact else -1, size, leaves).astype(np.int32)
        counts = np.bincount(cell + 1, truth, size + 1)[1:]
        noise = 0 if is_exact else random.normal(0, 4, size)
        groupings.append(Grouping(cell, counts + noise, np.inf if is_exact else float(random.choice([0.1, 1, 5]))))
    weights = random.choice([0.1, 1.0, 3.0], leaves)
    return truth, truth + random.normal(0, 3, leaves), weights, groupings


def crossing(side, bands, weight_of):
    """Return noisy counts of pairs of areas, with a total, both margins, pairs of larger areas, and bands across them."""
    random = np.random.default_rng(side)
    leaves = side * side
    origin, destination = np.repeat(np.arange(side), side), np.tile(np.arange(side), side)
    half = (side + 1) // 2
    labels = [
        (0 * origin, 1), (origin, side), (destination, side), (origin // 2 * side + destination, half * side),
        (origin // 2 * half + destination // 2, half * half), ((origin * 7 + destination * 3) % bands, bands),
    ]  # fmt: skip
    truth, groupings = np.where(random.random(leaves) < 0.2, random.geometric(0.1, leaves), 0), []
    for cell, size in labels:
        counts = np.bincount(cell, truth, size) + (random.normal(0, 10, size) if size > 1 else 0)
        weight = np.inf if size == 1 else 1 / size if weight_of == "cells" else 1
        groupings.append(Grouping(cell.astype(np.int32), counts, weight))
    return truth + random.normal(0, 10, leaves), 1 / leaves if weight_of == "cells" else 1.0, groupings


@settings(max_examples=200)
@given(seed=st.integers(0, 2**32 - 1), exact=st.booleans())
def test_settled_counts_are_those_of_another_solver(seed, exact):
    """Whatever the leaves, cells, weights and noise, the values are those that non-negative least squares finds."""
    # An exact grouping is met. Where none is, the slope of the sum of squares is zero for leaves above zero, and not negative for those at
    # zero. In the weighted norm of all counts, the settled ones are at most as far from the true ones as the noisy ones are.
    truth, own, weights, groupings = problem(seed, exact)
    settled = settle_overlapping(own, weights, groupings)
    assert settled.min() >= 0
    np.testing.assert_allclose(settled, by_nnls(own, weights, groupings), rtol=0, atol=1e-7 if exact else 1e-10)
    before, after = weights @ (own - truth) ** 2, weights @ (settled - truth) ** 2
    slope = weights * (settled - own)
    for of in groupings:
        matrix = incidence(of)
        used, off = matrix.any(axis=1), matrix @ settled - of.values
        if np.isinf(of.weight):
            np.testing.assert_allclose(off[used], 0, rtol=0, atol=1e-10)
            continue
        slope += of.weight * matrix.T @ off
        before += of.weight * ((of.values - matrix @ truth)[used] ** 2).sum()
        after += of.weight * ((matrix @ (settled - truth))[used] ** 2).sum()
    assert after <= before * (1 + 1e-12) + 1e-12
    if not exact:
        assert abs(slope[settled > 0]).max(initial=0) < 1e-9
        assert slope[settled == 0].min(initial=0) > -1e-9


@pytest.mark.parametrize("weight_of", ["cells", "variance"])
@pytest.mark.parametrize("bands", [5, 90])
def test_elimination_finds_the_same_counts(monkeypatch, weight_of, bands):
    """Groupings that are joined, and many cells, of which a chain is eliminated and some leave no room, settle as few cells do, always to the same bits."""
    own, weight, groupings = crossing(16, bands, weight_of)
    fine = groupings[3]  # of which some leaves are outside, and which have different weights, in a second problem
    some = Grouping(np.where(fine.cell % 3 == 0, -1, fine.cell).astype(np.int32), fine.values, fine.weight)
    uneven = weight / (1 + np.arange(len(own)) % 4)
    problems = (own, weight, groupings), (own, uneven, [*groupings[:3], some, *groupings[4:]])
    dense = [settle_overlapping(*of) for of in problems]
    assert dense[0].tobytes() == settle_overlapping(own, weight, groupings).tobytes()
    small = (("_MANY_LEAVES", 0), ("_FEWER", 2), ("_MOST_DENSE", 0), ("_MOST_BORDER", 1000), ("_MOST_BORDER", 60))
    for constant, value in small:
        monkeypatch.setattr(newton_step, constant, value)
        for of, found in zip(problems, dense, strict=True):
            np.testing.assert_allclose(settle_overlapping(*of), found, rtol=0, atol=1e-7)


def test_an_exact_count_is_met_however_far_it_is():
    """Where every leaf's own count is far below zero; an exact zero leaves nothing; two that differ have no solution."""
    # An exact total beside the exact parts that it is the sum of is no contradiction. Counts of 2**40 settle to within a thousandth.
    far = settle_overlapping(np.array([-3.0, -2, -1e4]), 1.0, [grouping([0, 0, 0], [5], np.inf)])
    np.testing.assert_allclose(far, [2, 3, 0], atol=1e-9)
    none = settle_overlapping(np.array([3.0, 2]), 1.0, [grouping([0, 0], [0], np.inf)])
    np.testing.assert_allclose(none, [0, 0], atol=1e-9)
    own, parts = np.arange(1000) * 0.1 - 1e4, grouping(np.arange(1000) % 2, [2, 3], np.inf)
    settled = settle_overlapping(own, 1.0, [grouping([0] * 1000, [5], np.inf), parts])
    np.testing.assert_allclose(np.bincount(parts.cell, settled), [2, 3], atol=1e-9)
    groupings = [grouping([0, 0], [2.0**40], np.inf), grouping([0, 1], [2.0**40 - 7, 5], 1)]
    large = settle_overlapping(np.array([2.0**40, 3]), 1.0, groupings)
    np.testing.assert_allclose(large - [2.0**40, 0], [-3.75, 3.75], atol=1e-3)
    both = [grouping([0, 0], [count], np.inf) for count in (5, 6)]
    with pytest.raises(RuntimeError, match="their exact counts contradict one another"):
        settle_overlapping(np.array([3.0, 2]), 1.0, both)


@pytest.mark.parametrize(("own", "weights", "cell", "values", "weight", "message"), [
    ([np.nan, 1], 1.0, [0, 0], [1], 1, "values must be finite"),
    ([1, 1], np.ones(3), [0, 0], [1], 1, "weights must be one for all leaves or one for each of 2"),
    ([1, 1], 0.0, [0, 0], [1], 1, "weights must be finite and > 0"),
    ([1, 1], 1.0, [0, 0], [1], 0, r"groupings\[0\].weight must be > 0, got 0"),
    ([1, 1], 1.0, [0, 0], [np.inf], 1, r"groupings\[0\].values must be finite"),
    ([1, 1], 1.0, [0, 0], [-1], np.inf, r"groupings\[0\].values must be >= 0 where they are exact"),
    ([1, 1], 1.0, [0], [1], 1, r"groupings\[0\].cell must have a label for each of 2 leaves"),
    ([1, 1], 1.0, [0, 1], [1], 1, r"groupings\[0\].cell must be from -1 to 0"),
])  # fmt: skip
def test_what_is_no_problem_is_refused(own, weights, cell, values, weight, message):
    """Shapes, labels, weights and values that make no problem are refused by name."""
    with pytest.raises(ValueError, match=message):
        settle_overlapping(np.array(own, dtype=np.float64), weights, [grouping(cell, values, weight)])


def test_what_is_factored_is_known_beforehand(monkeypatch):
    """Of many cells those outside the chain are factored, as a plan's forecast of memory takes for granted."""
    axes, seen, factored = np.indices((80, 60, 5)).reshape(3, -1), [], newton_step._factored
    labels = [axes[0] * 60 + axes[1], axes[0], axes[1] * 5 + axes[2], axes[2]]
    monkeypatch.setattr(newton_step, "_factored", lambda matrix, of: seen.append(len(matrix)) or factored(matrix, of))
    settle_overlapping(np.ones(24_000), 1.0, [grouping(of, np.ones(int(of.max()) + 1), 1.0) for of in labels])
    forecast = newton_step.cells_factored([4800, 80, 300, 5], lambda *pair: pair in {(0, 1), (2, 3)})
    assert set(seen) == {forecast} == {305}


def test_very_different_weights_settle():
    """Ten crossing groupings with a thousandth of the leaves' noise settle, by way of less different weights."""
    ratio, random, shape = 1000, np.random.default_rng(3), (6, 5, 4, 3)
    index = np.indices(shape).reshape(len(shape), -1)
    truth = np.where(random.random(index.shape[1]) < 0.05, random.geometric(0.05, index.shape[1]), 0)
    groupings = [Grouping(np.zeros(len(truth), np.int32), np.array([float(truth.sum())]), np.inf)]
    for axes in [*combinations(range(4), 1), *combinations(range(4), 2)]:
        sizes = [shape[axis] for axis in axes]
        cell = np.ravel_multi_index([index[axis] for axis in axes], sizes).astype(np.int32)
        counts = np.bincount(cell, truth, math.prod(sizes)) + random.normal(0, 1, math.prod(sizes))
        groupings.append(Grouping(cell, counts, 1 / math.sqrt(math.prod(sizes))))
    own = truth + random.normal(0, ratio, len(truth))
    values = settle_overlapping(own, 1 / (ratio**2 * math.sqrt(len(truth))), groupings)
    assert values.min() >= 0
    assert values.sum() == pytest.approx(truth.sum(), rel=1e-9)
    for of in groupings:
        assert abs(np.bincount(of.cell, values, len(of.values)) - of.values).max() < 5


# --- two passes over nested groupings, and shares of a budget


def draw_hierarchy(generator):
    """Return noisy counts of a random tree with one to nine leaves and up to three groupings above them, from coarse to fine."""
    leaves = int(generator.integers(1, 10))
    values, groupings = generator.normal(3, 5, leaves), list[Grouping]()
    cell = np.arange(leaves, dtype=np.int32)
    for _ in range(int(generator.integers(0, 4))):
        above = np.unique(generator.integers(0, cell.max() + 1, cell.max() + 1), return_inverse=True)[1]
        cell = above[cell].astype(np.int32)
        groupings.insert(0, Grouping(cell, generator.normal(5, 9, cell.max() + 1), float(generator.uniform(0.1, 5))))
    return values, float(generator.uniform(0.1, 5)), groupings


def least_squares(values, weight, groupings):
    """Return the minimum of the weighted squares by a dense solver."""
    rows, right = [np.sqrt(weight) * np.eye(len(values))], [np.sqrt(weight) * values]
    for grouping in groupings:
        rows.append(np.sqrt(grouping.weight) * incidence(grouping))
        right.append(np.sqrt(grouping.weight) * grouping.values)
    return np.linalg.lstsq(np.concatenate(rows), np.concatenate(right), rcond=None)[0]


def part_of(grouping, inside):
    """Return the cells of a grouping that hold some of the leaves, over those leaves."""
    cells, cell = np.unique(grouping.cell[inside], return_inverse=True)
    return Grouping(cell.astype(np.int32), grouping.values[cells], grouping.weight)


@given(st.integers(0, 2**32 - 1))
def test_two_passes_are_generalised_least_squares(seed):
    """On random trees the values are those of a dense least-squares solver; an exact grouping is met, like a very large weight."""
    values, weight, groupings = draw_hierarchy(np.random.default_rng(seed))
    assert settle_nested(values, weight, groupings) == pytest.approx(least_squares(values, weight, groupings), abs=1e-8)
    if groupings:
        first, *below = groupings
        settled = settle_nested(values, weight, [Grouping(first.cell, first.values, np.inf), *below])
        assert np.bincount(first.cell, settled) == pytest.approx(first.values, abs=1e-9)
        heavy = Grouping(first.cell, first.values, 1e8)
        assert settled == pytest.approx(least_squares(values, weight, [heavy, *below]), abs=1e-4)


@given(st.integers(0, 2**32 - 1))
def test_pruned_cells_are_zero_and_the_others_share_their_parent(seed):
    """Every cell is 0 whose own least squares from below is not above 0, with all below; families that are left add up."""
    values, weight, groupings = draw_hierarchy(np.random.default_rng(seed))
    settled = settle_nested(values, weight, groupings, is_pruned=True)
    pruned = np.zeros(len(values), dtype=bool)
    for at, grouping in enumerate(groupings):
        for cell, value in enumerate(grouping.values):
            inside = grouping.cell == cell
            below = [part_of(other, inside) for other in groupings[at + 1 :]]
            own = Grouping(np.zeros(inside.sum(), dtype=np.int32), np.array([value]), grouping.weight)
            if least_squares(values[inside], weight, [own, *below]).sum() <= 0:
                pruned |= inside
    pruned |= values <= 0
    assert (settled[pruned] == 0).all()
    if groupings and pruned.sum() == 0:
        assert settled == pytest.approx(settle_nested(values, weight, groupings), abs=1e-9)


def test_what_is_left_of_a_parent_goes_to_the_cells_that_are_kept():
    """Of two groups the negative one is pruned with both its leaves; in the other, kept leaves add up to the parent."""
    two = Grouping(np.array([0, 0, 0, 1, 1], dtype=np.int32), np.array([8.0, -6.0]), 1.0)
    all_of_them = Grouping(np.zeros(5, dtype=np.int32), np.array([4.0]), np.inf)
    values = np.array([5.0, 3.0, -2.0, 1.0, 1.0])
    settled = settle_nested(values, 1.0, [all_of_them, two], is_pruned=True)
    assert settled == pytest.approx([3.0, 1.0, 0.0, 0.0, 0.0])
    free = settle_nested(values, 1.0, [all_of_them, two])
    assert free.sum() == pytest.approx(4.0)
    assert free.min() < 0


COARSE, FINE = np.array([0, 0, 1, 1], dtype=np.int32), np.array([0, 1, 1, 0], dtype=np.int32)


@pytest.mark.parametrize(("groupings", "told"), [
    ([Grouping(COARSE, np.zeros(2), 1.0), Grouping(FINE, np.zeros(2), 1.0)], r"groupings\[0\] must be refined"),
    ([Grouping(COARSE, np.zeros(3), 1.0)], r"groupings\[0\] must have a leaf in every cell"),
    ([Grouping(COARSE[:3], np.zeros(2), 1.0)], r"groupings\[0\] must have a cell for each of 4 leaves"),
    ([Grouping(COARSE - 1, np.zeros(2), 1.0)], r"groupings\[0\] must have a cell for each of 4 leaves"),
    ([Grouping(COARSE, np.zeros(2), 0.0)], "every weight must be > 0"),
])  # fmt: skip
def test_what_is_no_hierarchy_is_refused(groupings, told):
    """Groupings that cross, cells without leaves, leaves without cells and weights of 0 are refused."""
    with pytest.raises(ValueError, match=told):
        settle_nested(np.zeros(4), 1.0, groupings)


def mean_variances(labels, leaves, shares):
    """Return the mean variance of the cells of each grouping, and of the leaves, by least squares over all leaves."""
    rows = [np.eye(leaves) * np.sqrt(shares[-1])]
    matrices = [(label[None, :] == np.arange(label.max() + 1)[:, None]).astype(float) for label in labels]
    rows += [matrix * np.sqrt(share) for matrix, share in zip(matrices, shares[:-1], strict=True)]
    stacked = np.concatenate(rows)
    covariance = np.linalg.inv(stacked.T @ stacked)
    return [np.trace(of @ covariance @ of.T) / len(of) for of in [*matrices, np.eye(leaves)]]


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("weights", [(1.0, 1.0, 0.0), (3.0, 0.0, 1.0), (0.0, 0.0, 1.0), (1.0, 5.0, 0.2)])
def test_no_other_shares_near_by_have_less_error(weights, power):
    """Around the shares that are found, moving a hundredth from one part to another makes the weighted error larger or changes nothing."""
    # The precision of Laplace noise is the square of its share. Two groupings of 24 leaves cross each other.
    generator = np.random.default_rng(3)
    rows, columns = np.repeat(np.arange(4), 6).astype(np.int32), np.tile(np.arange(3), 8).astype(np.int32)
    columns[generator.permutation(24)[:6]] = 1
    groupings = [rows, columns]
    sizes, cells = atoms_of(groupings)
    each = zip(cells, groupings, weights, strict=False)
    parts = [WeightedView(cell, int(of.max()) + 1, weight) for cell, of, weight in each]
    found = least_error_shares(sizes, parts, weights[2], lambda shares: shares**power)
    found = found / found.sum()

    def error(shares):
        return float(np.dot(weights, mean_variances(groupings, 24, shares**power)))

    least = error(found)
    for one, other in permutations(range(3), 2):
        moved = found.copy()
        moved[[one, other]] += 0.01, -0.01
        if moved.min() > 0.001 and moved[-1] >= 0.1:
            assert error(moved) > least * (1 - 1e-4)
