"""Two passes over nested groupings, held to generalised least squares by `numpy.linalg.lstsq`, and to what pruning means."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.settle.nested import nearest_counts, settle_nested
from tasks.settle.overlapping import Grouping

Problem = tuple[np.ndarray, float, list[Grouping]]


def draw_hierarchy(generator: np.random.Generator, *, is_exact: bool = False) -> Problem:
    """Return noisy counts of a random tree with one to nine leaves and up to three groupings above them, from coarse to fine."""
    leaves = int(generator.integers(1, 10))
    values, groupings = generator.normal(3, 5, leaves), list[Grouping]()
    cell = np.arange(leaves, dtype=np.int32)
    for _ in range(int(generator.integers(0, 4))):
        above = np.unique(generator.integers(0, cell.max() + 1, cell.max() + 1), return_inverse=True)[1]
        cell = above[cell].astype(np.int32)
        weight = np.inf if is_exact else float(generator.uniform(0.1, 5))
        counts = np.bincount(cell, values) if is_exact else generator.normal(5, 9, cell.max() + 1)
        groupings.insert(0, Grouping(cell, counts, weight))
    return values, np.inf if is_exact else float(generator.uniform(0.1, 5)), groupings


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
def test_two_passes_are_generalised_least_squares(seed: int) -> None:
    """On random trees the values are those of a dense least-squares solver."""
    problem = draw_hierarchy(np.random.default_rng(seed))
    assert settle_nested(*problem) == pytest.approx(least_squares(*problem), abs=1e-8)


@given(st.integers(0, 2**32 - 1))
def test_an_exact_grouping_is_met(seed: int) -> None:
    """The cells of a grouping with exact counts sum to them, and the rest is least squares with a very large weight."""
    values, weight, groupings = draw_hierarchy(np.random.default_rng(seed))
    if not groupings:
        return
    exact = Grouping(groupings[0].cell, groupings[0].values, np.inf)
    settled = settle_nested(values, weight, [exact, *groupings[1:]])
    assert np.bincount(exact.cell, settled) == pytest.approx(exact.values, abs=1e-9)
    heavy = Grouping(exact.cell, exact.values, 1e8)
    assert settled == pytest.approx(least_squares(values, weight, [heavy, *groupings[1:]]), abs=1e-4)


@given(st.integers(0, 2**32 - 1))
def test_exact_counts_are_returned_as_they_are(seed: int) -> None:
    """Without noise the leaves are returned, and so are counts that add up, whatever the weights are."""
    generator = np.random.default_rng(seed)
    values, weight, groupings = draw_hierarchy(generator, is_exact=True)
    assert settle_nested(values, weight, groupings) == pytest.approx(values, abs=1e-12)
    weighted = [Grouping(of.cell, of.values, float(generator.uniform(0.1, 5))) for of in groupings]
    assert settle_nested(values, 1.0, weighted) == pytest.approx(values, abs=1e-9)


@given(st.integers(0, 2**32 - 1))
def test_pruned_cells_are_zero_and_the_others_share_their_parent(seed: int) -> None:
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


def test_what_is_left_of_a_parent_goes_to_the_cells_that_are_kept() -> None:
    """Of two groups the negative one is pruned with both its leaves; in the other, kept leaves add up to the parent."""
    two = Grouping(np.array([0, 0, 0, 1, 1], dtype=np.int32), np.array([8.0, -6.0]), 1.0)
    all_of_them = Grouping(np.zeros(5, dtype=np.int32), np.array([4.0]), np.inf)
    values = np.array([5.0, 3.0, -2.0, 1.0, 1.0])
    settled = settle_nested(values, 1.0, [all_of_them, two], is_pruned=True)
    assert settled == pytest.approx([3.0, 1.0, 0.0, 0.0, 0.0])
    free = settle_nested(values, 1.0, [all_of_them, two])
    assert free.sum() == pytest.approx(4.0)
    assert free.min() < 0


def test_a_table_without_groupings_is_left_alone() -> None:
    """Without groupings the leaves keep their counts; pruned, those not above 0 are 0; and counts are rounded from 0 on."""
    values = np.array([-1.5, 0.0, 0.4, 2.6])
    assert settle_nested(values, 1.0, []).tolist() == values.tolist()
    assert settle_nested(values, 1.0, [], is_pruned=True).tolist() == [0.0, 0.0, 0.4, 2.6]
    assert nearest_counts(values).tolist() == [0, 0, 0, 3]


COARSE, FINE = np.array([0, 0, 1, 1], dtype=np.int32), np.array([0, 1, 1, 0], dtype=np.int32)


@pytest.mark.parametrize(
    ("groupings", "told"),
    [
        ([Grouping(COARSE, np.zeros(2), 1.0), Grouping(FINE, np.zeros(2), 1.0)], r"groupings\[0\] must be refined"),
        ([Grouping(COARSE, np.zeros(3), 1.0)], r"groupings\[0\] must have a leaf in every cell"),
        ([Grouping(COARSE[:3], np.zeros(2), 1.0)], r"groupings\[0\] must have a cell for each of 4 leaves"),
        ([Grouping(COARSE - 1, np.zeros(2), 1.0)], r"groupings\[0\] must have a cell for each of 4 leaves"),
        ([Grouping(COARSE, np.zeros(2), 0.0)], "every weight must be > 0"),
    ],
)
def test_what_is_no_hierarchy_is_refused(groupings: list[Any], told: str) -> None:
    """Groupings that cross, cells without leaves, leaves without cells and weights of 0 are refused."""
    with pytest.raises(ValueError, match=told):
        settle_nested(np.zeros(4), 1.0, groupings)
