"""Families given their totals: against the conditional law of normal estimates, computed with matrices."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.optimize.reconcile import Estimates
from tasks.shrink.families import families_with

families = st.lists(
    st.tuples(st.integers(0, 50), st.lists(st.tuples(st.floats(-40, 90), st.floats(0.5, 30)), min_size=0, max_size=5)),
    min_size=1,
    max_size=6,
)


@given(families)
def test_estimates_given_their_total_follow_the_conditional_law(drawn: list) -> None:
    """Of normal estimates with independent errors, given what they add up to, mean and variances are those of linear algebra.

    Some of the families, cut out, have the same cells and values as among all.
    """
    sizes = [len(cells) for _, cells in drawn]
    totals = np.array([total for total, _ in drawn], dtype=np.int64)
    values, variances = np.array([cell for _, cells in drawn for cell in cells] or [(0.0, 1.0)])[: sum(sizes)].T
    first = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    found = families_with(Estimates(values, variances), first, totals)

    shared = [number for number, (total, cells) in enumerate(drawn) if total > 0 and len(cells) > 1]
    assert found.parent.tolist() == shared
    assert found.totals.tolist() == totals[shared].tolist()
    for family, parent in enumerate(shared):
        cells = slice(found.first[family], found.first[family + 1])
        own = slice(first[parent], first[parent + 1])
        assert found.cell[cells].tolist() == list(range(own.start, own.stop))
        covariance = np.diag(variances[own])
        gain = covariance.sum(axis=1) / covariance.sum()
        expected = values[own] + gain * (totals[parent] - values[own].sum())
        given_total = covariance - np.outer(gain, covariance.sum(axis=0))
        assert np.allclose(found.values[cells], expected)
        assert np.allclose(found.variances[cells], np.diag(given_total))
        assert np.isclose(found.values[cells].sum(), totals[parent])
    for start in range(len(found)):
        some = found[start : start + 2]
        cells = slice(found.first[start], found.first[min(start + 2, len(found))])
        assert some.cell.tolist() == found.cell[cells].tolist()
        assert some.values.tolist() == found.values[cells].tolist()
        assert some.sizes.tolist() == found.sizes[start : start + 2].tolist()
        assert some.family.tolist() == np.repeat(np.arange(len(some)), some.sizes).tolist()


def test_what_is_exact_has_no_posterior() -> None:
    """An estimate without a variance is refused."""
    with pytest.raises(ValueError, match="variances must be > 0"):
        families_with(Estimates(np.ones(2), np.array([0.0, 4])), np.array([0, 2]), np.array([3]))
