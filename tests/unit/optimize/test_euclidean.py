"""Euclidean projection in whole numbers against CLARABEL, exact fractions, and brute force over all candidates."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.optimize.euclidean import nearest_in_euclid
from tasks.optimize.siblings import simplex_threshold
from tests.support.problems import LARGEST_COUNT, LARGEST_NOISE, Problem, distance, lay_out, mostly_empty_parents, solve

few = st.lists(st.integers(-5, 6), min_size=1, max_size=4)
tiny = st.tuples(few, st.integers(0, 6))


def candidates(size: int, total: int) -> Iterator[tuple[int, ...]]:
    """Yield every vector of non-negative integers of a size that sums to a total."""
    for first in product(range(total + 1), repeat=size - 1):
        if sum(first) <= total:
            yield (*first, total - sum(first))


def project(x: Sequence[int], c: int) -> list[Fraction]:
    """Return the projection of x onto the simplex of size c > 0 as Michelot (1986) finds it: drop what is not positive."""
    kept = set(range(len(x)))
    while True:
        theta = Fraction(sum(x[cell] for cell in kept) - c, len(kept))
        below = {cell for cell in kept if x[cell] <= theta}
        if not below:
            return [x[cell] - theta if cell in kept else Fraction(0) for cell in range(len(x))]
        kept -= below


def squares(x: Sequence[int | Fraction], y: Sequence[int]) -> Fraction:
    """Return the squared Euclidean distance."""
    return sum(((before - after) ** 2 for before, after in zip(x, y, strict=True)), Fraction(0))


def larger_then_lower(x: Sequence[int | Fraction], y: Sequence[int]) -> list[int]:
    """Return y with the cells of larger x first, of equal x the lower: of equally near y, the greatest of these wins."""
    return [y[cell] for cell in sorted(range(len(x)), key=lambda cell: (-x[cell], cell))]


def fractions_of(parents: Sequence[Problem]) -> list[list[Fraction]]:
    """Return each parent's projection by `simplex_threshold`, all of them at once."""
    descending = [(sorted(x, reverse=True), c) for x, c in parents]
    x, first_cell, totals = lay_out(descending)
    numerator, denominator = simplex_threshold(x, np.diff(first_cell), totals)
    thetas = map(Fraction, numerator.tolist(), denominator.tolist())
    return [[max(Fraction(0), count - theta) for count in x] for (x, _), theta in zip(parents, thetas, strict=True)]


def random_parents(seed: int) -> list[Problem]:
    """Return parents of 1 to 60 cells, dense and sparse, whose totals are near the sum, far below it, and far above."""
    random = np.random.default_rng(seed)
    parents = []
    for fan_out in random.integers(1, 60, 12, endpoint=True):
        x = np.rint(random.pareto(1.5, fan_out) * 20 + random.normal(0, 30, fan_out)).astype(np.int64)
        total = max(1, int(x.sum() * random.choice([0.1, 1.0, 3.0]) + random.integers(-20, 20)))
        parents.append((x.tolist(), total))
    return parents


@pytest.mark.parametrize("seed", range(3))
def test_the_projection_is_what_clarabel_finds(seed: int) -> None:
    """On random vectors the exact projection is CLARABEL's up to its tolerance, and the counts are within one of it."""
    import cvxpy

    parents = random_parents(seed)
    for (x, c), exact, counts in zip(parents, fractions_of(parents), solve(nearest_in_euclid, parents), strict=True):
        p = cvxpy.Variable(len(x))
        program = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(p - np.array(x))), [p >= 0, cvxpy.sum(p) == c])
        program.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
        assert program.status == "optimal"
        # the squared distance is at most the gap: 1e-11 of an objective of up to 1e5
        assert np.abs(p.value - np.array([float(value) for value in exact])).max() < 1e-3
        assert np.abs(p.value - np.array(counts)).max() < 1 + 1e-3


@given(parents=st.lists(st.tuples(few, st.integers(1, 9)), min_size=1, max_size=6))
def test_the_projection_is_exact(parents: list[Problem]) -> None:
    """The threshold by sorting is, as a fraction, the one that dropping cells one after the other comes to."""
    assert fractions_of(parents) == [project(*parent) for parent in parents]


@pytest.mark.parametrize("deviation", [6.0, 2.0**32])
def test_the_projection_is_exact_with_the_largest_counts(deviation: float) -> None:
    """With counts up to 2**40 each, whose sums take 46 bits, no digit of the threshold is lost."""
    random = np.random.default_rng(3)
    noisy = random.integers(0, LARGEST_COUNT, (40, 50)) + np.rint(random.normal(0, deviation, (40, 50))).astype(
        np.int64
    )
    parents = list(zip(noisy.tolist(), random.integers(1, LARGEST_COUNT, 40).tolist(), strict=True))
    assert fractions_of(parents) == [project(*parent) for parent in parents]


@given(parent=tiny)
def test_no_whole_numbers_are_nearer_to_the_projection(parent: Problem) -> None:
    """Of all non-negative integers with the sum, the counts are nearest to the projection, ties as documented."""
    x, c = parent
    p = project(x, c) if c else [Fraction(0)] * len(x)
    best = min(candidates(len(x), c), key=lambda y: (squares(p, y), [-count for count in larger_then_lower(x, y)]))
    assert solve(nearest_in_euclid, [parent]) == [list(best)]


@given(parent=tiny)
def test_it_is_the_least_squares_of_all_chebyshev_optima(parent: Problem) -> None:
    """Of all Chebyshev optima, the counts are the nearest to the noisy ones in squares, ties as documented."""
    x, c = parent
    least = min(distance(x, y) for y in candidates(len(x), c))
    optima = [y for y in candidates(len(x), c) if distance(x, y) == least]
    best = min(optima, key=lambda y: (squares(x, y), [-count for count in larger_then_lower(x, y)]))
    assert solve(nearest_in_euclid, [parent]) == [list(best)]


@given(parent=tiny)
def test_no_whole_numbers_are_nearer_to_the_noisy_counts(parent: Problem) -> None:
    """To be a Chebyshev optimum costs nothing in squares: no candidate at all is nearer."""
    x, c = parent
    least = min(squares(x, y) for y in candidates(len(x), c))
    assert squares(x, solve(nearest_in_euclid, [parent])[0]) == least


@pytest.mark.parametrize(
    ("noisy", "total", "counts"),
    [
        pytest.param([10, 4, 1], 9, [8, 1, 0], id="what is left over goes to the larger count"),
        pytest.param([5, 5, 5], 16, [6, 5, 5], id="and of equal counts to the lower cell"),
        pytest.param([3, 9, 3, 9], 20, [2, 8, 2, 8], id="lowered evenly"),
        pytest.param([3, 9, 3, 9], 22, [2, 9, 2, 9], id="the larger two keep what the smaller two give"),
        pytest.param([7, -3, 0], 0, [0, 0, 0], id="nothing to share"),
        pytest.param([-4], 9, [9], id="one child, raised"),
        pytest.param([12], 9, [9], id="one child, lowered"),
        pytest.param([-3, -1, -2], 2, [0, 2, 0], id="all negative"),
        pytest.param([-3, -3], 0, [0, 0], id="all negative, nothing to share"),
        pytest.param([-3, -3], 5, [3, 2], id="all negative, raised"),
    ],
)
def test_euclid_by_example(noisy: list[int], total: int, counts: list[int]) -> None:
    """Small problems have the solutions that one finds on paper."""
    assert solve(nearest_in_euclid, [(noisy, total)]) == [counts]


def rounded(x: Sequence[int], c: int) -> list[int]:
    """Return the projection's floors, and one more for as many of its largest fractional cells as the sum lacks."""
    p = project(x, c) if c else [Fraction(0)] * len(x)
    y = [int(value) for value in p]
    for cell in sorted(range(len(x)), key=lambda cell: (-p[cell], cell))[: c - sum(y)]:
        y[cell] += 1
    return y


@pytest.mark.parametrize("deviation", [0.8, 60.0, 2.0**32])
@pytest.mark.parametrize("widest", [1, 5, 40, 500])
def test_euclid_on_a_level_of_ragged_and_mostly_empty_parents(widest: int, deviation: float) -> None:
    """A level as it is met far down a tree is projected and rounded as parent by parent in fractions."""
    parents = mostly_empty_parents(widest, 1_000 // widest + 20, widest, deviation)
    assert solve(nearest_in_euclid, parents) == [rounded(*parent) for parent in parents]


@given(
    noisy=st.lists(
        st.lists(st.one_of(st.integers(-8, 8), st.integers(-LARGEST_NOISE, LARGEST_COUNT)), min_size=1, max_size=9),
        min_size=1,
        max_size=6,
    ),
    data=st.data(),
)
def test_euclid_around_the_totals_at_which_its_short_cuts_begin_and_end(
    noisy: list[list[int]], data: st.DataObject
) -> None:
    """With totals near Σx and the differences that decide which cells end at zero, nothing is rounded otherwise."""
    parents = []
    for counts in noisy:
        most, least = max(counts), min(counts)
        near = data.draw(st.sampled_from([0, most, most - least, sum(counts), sum(counts) - len(counts) * least]))
        parents.append((counts, max(0, near + data.draw(st.integers(-3, 3)))))
    assert solve(nearest_in_euclid, parents) == [rounded(*parent) for parent in parents]


def test_more_cells_than_a_block_are_rounded_as_parent_by_parent() -> None:
    """Blocks of a large level give what its parents give alone."""
    parents = mostly_empty_parents(9, 1_500, 500, 20.0)
    noisy, first_cell, totals = lay_out(parents)
    counts = nearest_in_euclid(noisy, first_cell, totals)
    for parent in range(0, 1_500, 50):
        first, stop = first_cell[parent : parent + 2]
        assert counts[first:stop].tolist() == rounded(*parents[parent])
    assert [int(counts[a:b].sum()) for a, b in pairwise(first_cell)] == totals.tolist()
