"""Laws of every optimiser, in both orders, in squares and by the solver, against oracles, the closed form and brute force."""

from fractions import Fraction
from functools import partial
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.optimize import chebyshev, siblings
from tasks.optimize.chebyshev import nearest_by_solver, nearest_in_chebyshev, nearest_in_chebyshev_large_first
from tasks.optimize.euclidean import nearest_in_euclid
from tasks.optimize.siblings import simplex_threshold
from tests.support.problems import (
    LARGEST_COUNT,
    LARGEST_NOISE,
    _any,
    distance,
    lay_out,
    least_distance,
    problems,
    solve,
)


def paper_loop(x, c, large_first=False):
    """Return y for one parent as Algorithm 3 of Boninsegna and Silvestri (2025) finds it, line by line."""
    # The paper goes through the cells in ascending order of their noisy counts; large_first, in descending order.
    lift = -((sum(x) - c) // len(x))  # ⌈(c − Σx)/b⌉
    z = [max(lift, -count) for count in x]
    t = max(abs(change) for change in z)
    too_much = sum(x) + sum(z) - c  # Δ
    kept = sorted(range(len(x)), key=lambda cell: (-x[cell] if large_first else x[cell], cell))  # I
    while True:
        for cell in kept:
            lowered = max(z[cell] - too_much, -x[cell], -t)
            too_much -= z[cell] - lowered
            z[cell] = lowered
            if too_much == 0:
                return [count + change for count, change in zip(x, z, strict=True)]
        kept = [cell for cell in kept if z[cell] > -x[cell]]
        t += max(1, too_much // len(kept))


def project(x, c):
    """Return the projection of x onto the simplex of size c as Michelot (1986) finds it: drop what is not positive."""
    kept = set(range(len(x))) if c else set()
    while kept:
        theta = Fraction(sum(x[cell] for cell in kept) - c, len(kept))
        below = {cell for cell in kept if x[cell] <= theta}
        if not below:
            return [x[cell] - theta if cell in kept else Fraction(0) for cell in range(len(x))]
        kept -= below
    return [Fraction(0)] * len(x)


def rounded(x, c):
    """Return the projection's floors, and one more for as many of its largest fractional cells as the sum lacks."""
    p = project(x, c)
    y = [int(value) for value in p]
    for cell in sorted(range(len(x)), key=lambda cell: (-p[cell], cell))[: c - sum(y)]:
        y[cell] += 1
    return y


ORACLES = {  # a new optimiser joins here and inherits the laws
    nearest_in_chebyshev: paper_loop,
    nearest_in_chebyshev_large_first: partial(paper_loop, large_first=True),
    nearest_in_euclid: rounded,
}
every_optimiser = pytest.mark.parametrize("optimise", ORACLES, ids=lambda function: function.__name__)


def assert_solved(optimise, parents):
    """Assert that every parent has what the oracle says of it alone: the loop of Algorithm 3, or exact fractions."""
    assert solve(optimise, parents) == [ORACLES[optimise](*parent) for parent in parents]


@every_optimiser
@given(parents=problems, block=st.integers(1, 12), row=st.sampled_from([2, 4, 16]), key_bits=st.sampled_from([0, 63]))
def test_any_problem_is_solved(optimise, parents, block, row, key_bits):
    """Counts are int64 >= 0, sum to their totals, are at the least distance t*, and are the oracle's."""
    # So they are whatever the blocks, whatever is sorted at once, and where keys do not fit a word.
    noisy, first_cell, totals = lay_out(parents)
    counts = optimise(noisy, first_cell, totals)
    assert counts.dtype == np.int64
    assert counts.shape == noisy.shape
    assert (counts >= 0).all()
    solved = solve(optimise, parents)
    assert [sum(cells) for cells in solved] == totals.tolist()
    distances = [distance(x, cells) for (x, _), cells in zip(parents, solved, strict=True)]
    assert distances == [least_distance(*parent) for parent in parents]
    assert_solved(optimise, parents)
    with pytest.MonkeyPatch.context() as patch:
        for name, of in {"_BLOCK": block, "_ROW": row, "_KEY_BITS": key_bits}.items():
            patch.setattr(siblings, name, of)
        assert solve(optimise, parents) == solved


@pytest.mark.parametrize(("noisy", "first_cell", "totals", "named"), [
    ([1, 2], [0, 2], [-1], "totals"),
    ([1, 2], [0, 2, 2], [1, 1], "first_cell"),  # a parent without a cell, last
    ([1, 2], [0, 0, 2], [1, 1], "first_cell"),  # and first
    ([1, 2], [0, 3, 2], [1, 1], "first_cell"),
    ([1, 2], [0, 1, 2], [1], "first_cell"),
    ([1, 2], [1, 2], [1], "first_cell"),  # the first cell has no parent
    ([1, 2], [0, 1], [1], "first_cell"),  # nor has the last
    ([1, 2], [0, 3], [1], "first_cell"),
    ([1], [0], [], "first_cell"),
])  # fmt: skip
def test_malformed_problems_are_refused(noisy, first_cell, totals, named):
    """A negative total, a parent without a cell and shapes that disagree are refused by the name of the argument; no parent is none."""
    for optimise in (*ORACLES, nearest_by_solver):
        with pytest.raises(ValueError, match=rf"^{named} must "):
            optimise(*(np.array(values, dtype=np.int64) for values in (noisy, first_cell, totals)))
        nothing = optimise(*lay_out([]))
        assert (nothing.dtype, nothing.shape) == (np.int64, (0,))


@every_optimiser
@given(noisy=st.lists(st.lists(_any, min_size=1, max_size=9), min_size=1, max_size=6), data=st.data())
def test_totals_at_which_short_cuts_begin_and_end(optimise, noisy, data):
    """With totals near Σx, max x, and the differences that decide which cells end at zero, nothing is solved otherwise."""
    parents = []
    for x in noisy:
        most, least = max(x), min(x)
        at = [0, most, most - least, most + least, sum(x), sum(map(abs, x)), sum(x) - len(x) * least]
        parents.append((x, max(0, data.draw(st.sampled_from(at)) + data.draw(st.integers(-3, 3)))))
    assert_solved(optimise, parents)


@pytest.mark.parametrize(
    ("raised", "total"), [(0, LARGEST_COUNT), (1, 0), (2**19, LARGEST_COUNT - 1), (2**20, 1), (2**20, LARGEST_COUNT)]
)
def test_no_optimiser_overflows_on_the_widest_parent(raised, total):
    """2**20 children whose noise is the largest that can occur get counts that sum to the total, at distance t*."""
    noisy = np.repeat((LARGEST_NOISE, -LARGEST_NOISE), (raised, 2**20 - raised))
    noisy[0] += LARGEST_COUNT
    best = least_distance(noisy.tolist(), total)
    for optimise in ORACLES:
        counts = optimise(noisy, np.array([0, 2**20]), np.array([total]))
        assert counts.min() >= 0
        assert sum(map(int, np.add.reduceat(counts, range(0, 2**20, 2**10)))) == total
        assert np.abs(counts - noisy).max() == best


few = st.lists(st.integers(-5, 6), min_size=1, max_size=4)


def candidates(size, total):
    """Yield every vector of non-negative integers of a size that sums to a total."""
    for first in product(range(total + 1), repeat=size - 1):
        if sum(first) <= total:
            yield (*first, total - sum(first))


def squares(x, y):
    """Return the squared Euclidean distance."""
    return sum(((before - after) ** 2 for before, after in zip(x, y, strict=True)), Fraction(0))


@given(x=few, c=st.integers(0, 6))
def test_no_candidate_is_nearer(x, c):
    """No whole numbers with the sum are nearer to the noisy counts, nor, in squares, to these or to their projection."""
    # To be a Chebyshev optimum costs nothing in squares; of equally near counts those win whose larger cells have more.
    every = list(candidates(len(x), c))
    least = min(distance(x, y) for y in every)
    assert least == least_distance(x, c)
    for optimise in ORACLES:
        assert distance(x, solve(optimise, [(x, c)])[0]) == least

    def larger_then_lower(y):
        return [-y[cell] for cell in sorted(range(len(x)), key=lambda cell: (-x[cell], cell))]

    [counts] = solve(nearest_in_euclid, [(x, c)])
    optima = [y for y in every if distance(x, y) == least]
    for near, point in ((every, project(x, c)), (optima, x)):
        best = min(near, key=lambda y, point=point: (squares(point, y), larger_then_lower(y)))
        assert counts == list(best)
    assert squares(x, counts) == min(squares(x, y) for y in every)


@given(
    st.lists(st.tuples(st.lists(_any, min_size=1, max_size=9), st.integers(1, LARGEST_COUNT)), min_size=1, max_size=6)
)
def test_the_projection_is_exact(parents):
    """The threshold by sorting is, as a fraction, the one that dropping cells one after the other comes to, up to the largest counts."""
    x, first_cell, totals = lay_out([(sorted(x, reverse=True), c) for x, c in parents])
    numerator, denominator = simplex_threshold(x, np.diff(first_cell), totals)
    for (x, c), theta in zip(parents, map(Fraction, numerator.tolist(), denominator.tolist()), strict=True):
        assert [max(Fraction(0), count - theta) for count in x] == project(x, c)


# --- the mixed-integer solver, whose sums, bounds and optimum are exact whatever its floating point says

counts = st.one_of(st.integers(-8, 8), st.integers(-10_000, 100_000), st.integers(-LARGEST_NOISE, LARGEST_COUNT))
totals = st.one_of(st.just(0), st.integers(0, 40), st.integers(0, LARGEST_COUNT))
parents_of_any_size = st.lists(st.tuples(st.lists(counts, min_size=1, max_size=40), totals), min_size=1, max_size=3)


def assert_nearest(parent, y):
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
