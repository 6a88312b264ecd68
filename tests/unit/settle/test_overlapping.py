"""Least squares over overlapping cells: against another solver, the conditions of a minimum, and the edges."""

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from tasks.settle import newton_step
from tasks.settle.overlapping import Grouping, settle_overlapping


def grouping(cell: Sequence[int], values: Sequence[float], weight: float) -> Grouping:
    """Return a grouping of plain numbers."""
    return Grouping(np.array(cell, dtype=np.int32), np.array(values, dtype=np.float64), weight)


def incidence(of: Grouping) -> np.ndarray:
    """Return A as a dense matrix, shape (cells, leaves)."""
    return (np.arange(len(of.values))[:, None] == of.cell).astype(np.float64)


def by_nnls(own: np.ndarray, weights: float | np.ndarray, groupings: Sequence[Grouping]) -> np.ndarray:
    """Return the minimum by another algorithm; an exact count has a weight of 1e10."""
    weights = np.broadcast_to(weights, own.shape)
    rows, right = [np.diag(np.sqrt(weights))], [np.sqrt(weights) * own]
    for of in groupings:
        matrix, scale = incidence(of), np.sqrt(min(of.weight, 1e10))
        used = matrix.any(axis=1)
        rows.append(scale * matrix[used])
        right.append(scale * of.values[used])
    return nnls(np.vstack(rows), np.concatenate(right))[0]


def problem(seed: int, exact: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[Grouping]]:
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


def crossing(side: int, bands: int, weight_of: str) -> tuple[np.ndarray, float, list[Grouping]]:
    """Return noisy counts of pairs of areas, with a total, both margins, pairs of larger areas, and bands across them."""
    random = np.random.default_rng(side)
    leaves = side * side
    origin, destination = np.repeat(np.arange(side), side), np.tile(np.arange(side), side)
    half = (side + 1) // 2
    labels = [
        (0 * origin, 1),
        (origin, side),
        (destination, side),
        (origin // 2 * side + destination, half * side),
        (origin // 2 * half + destination // 2, half * half),
        ((origin * 7 + destination * 3) % bands, bands),
    ]
    truth = np.where(random.random(leaves) < 0.2, random.geometric(0.1, leaves), 0)
    groupings = [
        Grouping(
            cell.astype(np.int32),
            np.bincount(cell, truth, size) + (random.normal(0, 10, size) if size > 1 else 0),
            np.inf if size == 1 else 1 / size if weight_of == "cells" else 1,
        )
        for cell, size in labels
    ]
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
    """Many cells, of which a chain is eliminated and some have no room in the border, settle as few cells do, always to the same bits."""
    own, weight, groupings = crossing(16, bands, weight_of)
    fine = groupings[3]  # of which some leaves are outside, and which have different weights, in a second problem
    some = Grouping(np.where(fine.cell % 3 == 0, -1, fine.cell).astype(np.int32), fine.values, fine.weight)
    uneven = weight / (1 + np.arange(len(own)) % 4)
    problems = (own, weight, groupings), (own, uneven, [*groupings[:3], some, *groupings[4:]])
    dense = [settle_overlapping(*of) for of in problems]
    assert dense[0].tobytes() == settle_overlapping(own, weight, groupings).tobytes()
    for border in (1000, 60):
        monkeypatch.setattr(newton_step, "_MOST_DENSE", 0)
        monkeypatch.setattr(newton_step, "_MOST_BORDER", border)
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
