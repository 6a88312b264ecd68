"""Two passes over nested groupings, and shares of a budget, held to dense least squares."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.settle.overlapping import Grouping, settle_nested
from tasks.settle.shares import WeightedView, atoms_of, least_error_shares

Problem = tuple[np.ndarray, float, list[Grouping]]


def draw_hierarchy(generator: np.random.Generator) -> Problem:
    """Return noisy counts of a random tree with one to nine leaves and up to three groupings above them, from coarse to fine."""
    leaves = int(generator.integers(1, 10))
    values, groupings = generator.normal(3, 5, leaves), list[Grouping]()
    cell = np.arange(leaves, dtype=np.int32)
    for _ in range(int(generator.integers(0, 4))):
        above = np.unique(generator.integers(0, cell.max() + 1, cell.max() + 1), return_inverse=True)[1]
        cell = above[cell].astype(np.int32)
        groupings.insert(0, Grouping(cell, generator.normal(5, 9, cell.max() + 1), float(generator.uniform(0.1, 5))))
    return values, float(generator.uniform(0.1, 5)), groupings


def least_squares(values: np.ndarray, weight: float, groupings: list[Grouping]) -> np.ndarray:
    """Return the minimum of the weighted squares by a dense solver."""
    rows, right = [np.sqrt(weight) * np.eye(len(values))], [np.sqrt(weight) * values]
    for grouping in groupings:
        incidence = np.equal.outer(np.arange(len(grouping.values)), grouping.cell).astype(float)
        rows.append(np.sqrt(grouping.weight) * incidence)
        right.append(np.sqrt(grouping.weight) * grouping.values)
    return np.linalg.lstsq(np.concatenate(rows), np.concatenate(right), rcond=None)[0]


def part_of(grouping: Grouping, inside: np.ndarray) -> Grouping:
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
    return [np.trace(matrix @ covariance @ matrix.T) / len(matrix) for matrix in matrices] + [
        np.trace(covariance) / leaves
    ]


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
    parts = [
        WeightedView(cell, int(of.max()) + 1, weight)
        for cell, of, weight in zip(cells, groupings, weights, strict=False)
    ]
    found = least_error_shares(sizes, parts, weights[2], lambda shares: shares**power)
    found = found / found.sum()

    def error(shares):
        return float(np.dot(weights, mean_variances(groupings, 24, shares**power)))

    least = error(found)
    for one in range(3):
        for other in range(3):
            moved = found.copy()
            moved[one] += 0.01
            moved[other] -= 0.01
            if one != other and moved.min() > 0.001 and moved[-1] >= 0.1:
                assert error(moved) > least * (1 - 1e-4)
