"""The mixed-integer solver: sums, bounds and optimum are exact whatever its floating point says, and failures are said."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.optimize import chebyshev
from tasks.optimize.chebyshev import nearest_by_solver
from tests.support.problems import LARGEST_COUNT, LARGEST_NOISE, Problem, distance, lay_out, least_distance, solve

counts = st.one_of(st.integers(-8, 8), st.integers(-10_000, 100_000), st.integers(-LARGEST_NOISE, LARGEST_COUNT))
totals = st.one_of(st.just(0), st.integers(0, 40), st.integers(0, LARGEST_COUNT))
parents_of_any_size = st.lists(st.tuples(st.lists(counts, min_size=1, max_size=40), totals), min_size=1, max_size=3)


def assert_nearest(parent: Problem, y: list[int]) -> None:
    """Assert that counts are non-negative, sum to the total, and are at the least Chebyshev distance."""
    x, total = parent
    assert min(y) >= 0
    assert sum(y) == total
    assert distance(x, y) == least_distance(x, total)


@settings(max_examples=40)
@given(parents=parents_of_any_size)
def test_sums_and_optimum_are_exact(parents):
    """Every parent's counts are non-negative, sum to its total, and are as near as the closed form says, up to 2**40."""
    for parent, y in zip(parents, solve(nearest_by_solver, parents), strict=True):
        assert_nearest(parent, y)


@settings(max_examples=200)
@given(parent=st.tuples(st.lists(st.integers(-9, 20), min_size=1, max_size=6), st.integers(0, 60)), data=st.data())
def test_whatever_rounding_did_is_repaired(parent, data):
    """Changes that break sum and bounds, with an optimum a few off, still come to an exact optimum."""
    x, total = parent
    change = data.draw(st.lists(st.integers(-30, 30), min_size=len(x), max_size=len(x)))
    off = data.draw(st.integers(-3, 3))
    y = chebyshev._repair(np.array(x), total, np.array(change), least_distance(x, total) + off)
    assert_nearest(parent, y.tolist())


@pytest.mark.parametrize("t", [0, 40, 10**6])
def test_an_optimum_that_rounding_does_not_explain_is_refused(t):
    """An answer far from the least distance, which is 20 here, is refused without saying a count."""
    with pytest.raises(RuntimeError, match="Choose the mechanism inftda") as refused:
        chebyshev._repair(np.array([31_337, 31_337]), 62_634, np.array([0, 0]), t)
    assert "31" not in str(refused.value)
    assert "62" not in str(refused.value)


def test_a_failure_of_the_solver_is_said_without_a_count(monkeypatch):
    """A solver that stops without an optimum ends in an error that gives its status and what to do, and no count."""
    stopped = SimpleNamespace(success=False, status=4, message="row 31337", x=None)
    monkeypatch.setattr(scipy.optimize, "milp", lambda *_, **__: stopped)
    with pytest.raises(RuntimeError, match=r"^HiGHS found no optimum .*status 4.* inftda") as failed:
        nearest_by_solver(*lay_out([([31_337, 5], 7)]))
    assert "31337" not in str(failed.value)
