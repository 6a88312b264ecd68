"""The lenient first pass and the second that prunes: what stays, what goes, and that both keep the laws of optimisers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.optimize.euclidean import nearest_in_euclid
from tasks.optimize.lenient import LEAST, settle_and_prune, spread_in_euclid
from tasks.optimize.reconcile import NodeEstimates, settle
from tests.support.problems import integers

families = st.lists(
    st.tuples(st.lists(st.integers(-60, 60), max_size=7), st.integers(0, 80), st.sampled_from([1.0, 100.0, 900.0])),
    min_size=1,
    max_size=6,
)


def laid_out(drawn: list) -> tuple[NodeEstimates, np.ndarray, np.ndarray]:
    """Return the arguments of settling; parents without a cell have nothing to share out."""
    values = np.array([value for of_parent, _, _ in drawn for value in of_parent], dtype=np.float64)
    variances = np.array([variance for of_parent, _, variance in drawn for _ in of_parent], dtype=np.float64)
    first = np.cumsum([0, *(len(of_parent) for of_parent, _, _ in drawn)])
    return (
        NodeEstimates(values, variances),
        first,
        integers(*(total if of_parent else 0 for of_parent, total, _ in drawn)),
    )


def test_more_cells_stay():
    """Of counts of about 10, noisy by 20, the nearest in Euclid has two; drawn towards equal shares three stay."""
    # A cell that has all of a large total keeps most of it; what is no problem is refused in the words of all optimisers.
    noisy, first, total = integers(48, 26, 12, -30), integers(0, 4), integers(40)
    assert nearest_in_euclid(noisy, first, total).tolist() == [31, 9, 0, 0]
    assert spread_in_euclid(noisy, first, total).tolist() == [23, 12, 5, 0]
    counts = spread_in_euclid(integers(1000, 3, -2, 1), first, integers(1000))
    assert counts.sum() == 1000
    assert counts[0] > 600
    with pytest.raises(ValueError, match="first_cell must give every parent at least one cell"):
        spread_in_euclid(integers(1), integers(0, 0, 1), integers(0, 1))
    with pytest.raises(ValueError, match="totals must be >= 0"):
        spread_in_euclid(integers(1), integers(0, 1), integers(-1))


def test_small_counts_go_and_their_siblings_have_them():
    """What is small for its noise goes, but for the largest of a family, and the sums are as before."""
    small = ([41.0, 5.0, 3.0], 49, 100.0), ([1.0, 1.0, 0.0], 2, 900.0), ([9000.0, 1.0, 0.0, 1.0], 9002, 0.0)
    pruned = settle_and_prune(*laid_out(list(small)), nearest_in_euclid)
    assert pruned.tolist() == [*(43, 6, 0), *(1, 1, 0), *(9000, 1, 0, 1)]  # nothing exact is pruned


@given(families)
def test_pruning_keeps_the_sums_and_leaves_nothing_small_but_the_largest(drawn):
    """Counts are whole, not negative and add up; what had a small count and a larger sibling has none; nothing is revived."""
    # Each parent's counts are the same whether it is settled with others or alone.
    estimates, first, totals = laid_out(drawn)
    before = settle(estimates, first, totals, nearest_in_euclid)
    after = settle_and_prune(estimates, first, totals, nearest_in_euclid)
    assert after.dtype == np.int64
    assert (after >= 0).all()
    for parent, total in enumerate(totals):
        own = slice(first[parent], first[parent + 1])
        assert after[own].sum() == total
        small = before[own] < LEAST * np.sqrt(estimates.variances[own])
        gone = small & (before[own] < before[own].max(initial=0))
        assert not after[own][gone].any()
    assert not after[before == 0].any()
    alone = [settle_and_prune(*laid_out([of_parent]), nearest_in_euclid).tolist() for of_parent in drawn]
    assert after.tolist() == [count for counts in alone for count in counts]
