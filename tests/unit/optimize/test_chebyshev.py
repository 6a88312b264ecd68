"""Laws of every optimiser, in both orders and in squares, against oracles, the closed form, brute force and CLARABEL."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.optimize import siblings
from tasks.optimize.chebyshev import nearest_in_chebyshev, nearest_in_chebyshev_large_first
from tasks.optimize.euclidean import nearest_in_euclid
from tasks.optimize.siblings import simplex_threshold
from tasks.optimize.solver import nearest_by_solver
from tests.support.problems import (
    LARGEST_COUNT,
    LARGEST_NOISE,
    Optimiser,
    Problem,
    _any,
    _problem,
    _small,
    distance,
    lay_out,
    least_distance,
    mostly_empty_parents,
    problems,
    solve,
)

Oracle = Callable[[Sequence[int], int], list[int]]


def paper_loop(x: Sequence[int], c: int, large_first: bool = False) -> list[int]:
    """Return y for one parent as Algorithm 3 of Boninsegna and Silvestri (2025) finds it, line by line.

    The paper goes through the cells in ascending order of their noisy counts; large_first, in descending order.
    """
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


def project(x: Sequence[int], c: int) -> list[Fraction]:
    """Return the projection of x onto the simplex of size c as Michelot (1986) finds it: drop what is not positive."""
    kept = set(range(len(x))) if c else set()
    while kept:
        theta = Fraction(sum(x[cell] for cell in kept) - c, len(kept))
        below = {cell for cell in kept if x[cell] <= theta}
        if not below:
            return [x[cell] - theta if cell in kept else Fraction(0) for cell in range(len(x))]
        kept -= below
    return [Fraction(0)] * len(x)


def rounded(x: Sequence[int], c: int) -> list[int]:
    """Return the projection's floors, and one more for as many of its largest fractional cells as the sum lacks."""
    p = project(x, c)
    y = [int(value) for value in p]
    for cell in sorted(range(len(x)), key=lambda cell: (-p[cell], cell))[: c - sum(y)]:
        y[cell] += 1
    return y


ORACLES: dict[Optimiser, Oracle] = {  # a new optimiser joins here and inherits the laws
    nearest_in_chebyshev: paper_loop,
    nearest_in_chebyshev_large_first: partial(paper_loop, large_first=True),
    nearest_in_euclid: rounded,
}
every_optimiser = pytest.mark.parametrize("optimise", ORACLES, ids=lambda function: function.__name__)


def assert_solved(optimise: Optimiser, parents: list[Problem]) -> None:
    """Assert that every parent has what the oracle says of it alone: the loop of Algorithm 3, or exact fractions."""
    assert solve(optimise, parents) == [ORACLES[optimise](*parent) for parent in parents]


@every_optimiser
@given(parents=problems, block=st.integers(1, 12))
def test_any_problem_is_solved(optimise: Optimiser, parents: list[Problem], block: int) -> None:
    """Counts are int64 >= 0, sum to their totals, are at the least distance t*, and are the oracle's, whatever the blocks."""
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
        patch.setattr(siblings, "_BLOCK", block)
        assert solve(optimise, parents) == solved


@every_optimiser
@given(parents=st.lists(st.lists(st.integers(0, LARGEST_COUNT), min_size=1, max_size=9), min_size=1, max_size=6))
def test_zero_noise_is_the_identity(optimise: Optimiser, parents: list[list[int]]) -> None:
    """Counts that are consistent already come back unchanged."""
    assert solve(optimise, [(counts, sum(counts)) for counts in parents]) == parents


@every_optimiser
@given(parent=_problem, data=st.data())
def test_the_order_of_cells_does_not_matter(optimise: Optimiser, parent: Problem, data: st.DataObject) -> None:
    """Shuffling the cells of a parent shuffles the result along with them, up to cells with equal noisy counts."""
    noisy, total = parent
    shuffled = data.draw(st.permutations(noisy))
    (counts,), (counts_of_shuffled,) = solve(optimise, [parent]), solve(optimise, [(shuffled, total)])
    assert Counter(zip(noisy, counts, strict=True)) == Counter(zip(shuffled, counts_of_shuffled, strict=True))


@pytest.mark.parametrize("optimise", [*ORACLES, nearest_by_solver], ids=lambda function: function.__name__)
def test_the_result_does_not_change_from_call_to_call(optimise: Optimiser) -> None:
    """The same noisy counts with many ties give the same counts every time; no parent gives no count at all."""
    parents = [([1] * 20 + [-1] * 20, 25)] * 4
    first = solve(optimise, parents)
    assert first == solve(optimise, parents)
    assert len({tuple(counts) for counts in first}) == 1
    nothing = optimise(*lay_out([]))
    assert nothing.dtype == np.int64
    assert nothing.shape == (0,)


@pytest.mark.parametrize(
    ("noisy", "first_cell", "totals", "named"),
    [
        pytest.param([1, 2], [0, 2], [-1], "totals", id="negative total"),
        pytest.param([1, 2], [0, 1, 2], [3, -1], "totals", id="negative total of one parent among others"),
        pytest.param([1, 2], [0, 2, 2], [1, 1], "first_cell", id="parent without a cell, last"),
        pytest.param([1, 2], [0, 0, 2], [1, 1], "first_cell", id="parent without a cell, first"),
        pytest.param([1, 2], [0, 3, 2], [1, 1], "first_cell", id="first_cell steps back"),
        pytest.param([1, 2], [0, 2], [1, 1], "first_cell", id="fewer steps than totals"),
        pytest.param([1, 2], [0, 1, 2], [1], "first_cell", id="more steps than totals"),
        pytest.param([1, 2], [1, 2], [1], "first_cell", id="the first cell has no parent"),
        pytest.param([1, 2], [0, 1], [1], "first_cell", id="the last cell has no parent"),
        pytest.param([1, 2], [0, 3], [1], "first_cell", id="a parent owns cells that are not there"),
        pytest.param([1], [0], [], "first_cell", id="a cell without any parent"),
    ],
)
def test_malformed_problems_are_refused(noisy: list[int], first_cell: list[int], totals: list[int], named: str) -> None:
    """A negative total, a parent without a cell and shapes that disagree are refused by the name of the argument."""
    for optimise in (*ORACLES, nearest_by_solver):
        with pytest.raises(ValueError, match=rf"^{named} must "):
            optimise(*(np.array(values, dtype=np.int64) for values in (noisy, first_cell, totals)))


@pytest.mark.parametrize(
    ("noisy", "total", "counts"),
    [
        ([7, -3, 0], 0, [0, 0, 0]),  # nothing to share
        ([-3, -3], 0, [0, 0]),
        ([-4], 9, [9]),  # one child, raised and lowered
        ([12], 9, [9]),
        ([-3, -1], 4, [1, 3]),  # all negative, one optimum
        ([5, 0, 900], 905, [5, 0, 900]),  # consistent already
    ],
)
def test_where_there_is_one_optimum_all_find_it(noisy: list[int], total: int, counts: list[int]) -> None:
    """Small problems have the solution that one finds on paper, by the solver too."""
    for optimise in (*ORACLES, nearest_by_solver):
        assert solve(optimise, [(noisy, total)]) == [counts]


@pytest.mark.parametrize(
    ("noisy", "total", "small_first", "large_first", "euclid"),
    [
        pytest.param([0, -1, 1], 2, [0, 0, 2], [1, 0, 1], [0, 0, 2], id="small counts go to zero first or survive"),
        pytest.param([5, 5, 5], 16, [4, 6, 6], [4, 6, 6], [6, 5, 5], id="of equal counts the lower cell gives or gets"),
        pytest.param([-3, -1, -2], 2, [0, 2, 0], [0, 1, 1], [0, 2, 0], id="all negative"),
        pytest.param([-3, -3], 5, [2, 3], [2, 3], [3, 2], id="all negative, raised"),
        pytest.param([10, 4, 1], 9, [8, 1, 0], [7, 2, 0], [8, 1, 0], id="the small count stops at zero"),
        pytest.param([10, 4, 1, -5], 9, [9, 0, 0, 0], [5, 3, 1, 0], [8, 1, 0, 0], id="the largest gives all it may"),
        pytest.param([3, 9, 3, 9], 20, [2, 8, 2, 8], [2, 8, 2, 8], [2, 8, 2, 8], id="lowered evenly"),
        pytest.param(
            [3, 9, 3, 9], 22, [2, 9, 2, 9], [3, 8, 3, 8], [2, 9, 2, 9], id="the smaller or the larger two give"
        ),
    ],
)
def test_ties_are_decided_as_on_paper(
    noisy: list[int], total: int, small_first: list[int], large_first: list[int], euclid: list[int]
) -> None:
    """Small problems have the solutions that one finds on paper, and so do the oracles."""
    for (optimise, oracle), counts in zip(ORACLES.items(), (small_first, large_first, euclid), strict=True):
        assert solve(optimise, [(noisy, total)]) == [counts] == [oracle(noisy, total)]


def with_totals(noisy: np.ndarray, totals: np.ndarray) -> list[Problem]:
    """Return parents with noisy counts, a row each, and their totals."""
    return list(zip(noisy.tolist(), totals.tolist(), strict=True))


def wide(total: int) -> list[Problem]:
    """Return a wide and sparse parent, and another one."""
    random = np.random.default_rng(total)
    noisy = np.rint(random.normal(0, 40, 5_000)).astype(np.int64)
    noisy[:50] += random.integers(0, 4_000, 50)
    return [(noisy.tolist(), total), ([3, 1], 4)]


def large(deviation: float, parents: int = 100) -> list[Problem]:
    """Return parents of counts up to 2**40 each, all of which stay above zero or nearly so."""
    random = np.random.default_rng(7)
    true_counts = random.integers(0, LARGEST_COUNT, (parents, 20))
    noise = np.rint(random.normal(0, deviation, true_counts.shape)).astype(np.int64)
    return with_totals(true_counts + noise, true_counts.sum(axis=1))


def largest() -> list[Problem]:
    """Return many parents with the largest counts and noise, too wide for one key."""
    random = np.random.default_rng(1)
    noisy = random.integers(-LARGEST_NOISE, LARGEST_COUNT + LARGEST_NOISE, (1_000, 5))
    return with_totals(noisy, random.integers(0, LARGEST_COUNT, 1_000))


LEVELS = {
    **{f"5,000 children of {total}": partial(wide, total) for total in (0, 1, 4_999, 100_000, 3_000_000)},
    **{
        f"parents of up to {widest}, noise {deviation:g}": partial(
            mostly_empty_parents, widest, 2_000 // widest + 20, widest, deviation
        )
        for widest, deviations in {1: (0.8, 2.0**32), 2: (6.0,), 5: (60.0, 2.0**32), 40: (0.8, 2.0**32)}.items()
        for deviation in deviations
    },
    **{f"wide ones, noise {of:g}": partial(mostly_empty_parents, 500, 28, 500, of) for of in (6.0, 60.0, 2.0**32)},
    **{f"large counts, noise {of:g}": partial(large, of) for of in (6.0, 2.0**32)},
    "the largest counts and noise": largest,
}


@every_optimiser
@pytest.mark.parametrize("level", LEVELS)
def test_levels_of_every_kind_are_solved(optimise: Optimiser, level: str) -> None:
    """Wide, ragged, mostly empty and large ones, as they are met down a tree, come to what the oracle says, parent by parent."""
    assert_solved(optimise, LEVELS[level]())


@every_optimiser
@given(noisy=st.lists(st.lists(_any, min_size=1, max_size=9), min_size=1, max_size=6), data=st.data())
def test_totals_at_which_short_cuts_begin_and_end(
    optimise: Optimiser, noisy: list[list[int]], data: st.DataObject
) -> None:
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
def test_no_optimiser_overflows_on_the_widest_parent(raised: int, total: int) -> None:
    """2**20 children whose noise is the largest that can occur get counts that sum to the total, at distance t*."""
    noisy = np.repeat((LARGEST_NOISE, -LARGEST_NOISE), (raised, 2**20 - raised))
    noisy[0] += LARGEST_COUNT
    best = least_distance(noisy.tolist(), total)
    for optimise in ORACLES:
        counts = optimise(noisy, np.array([0, 2**20]), np.array([total]))
        assert counts.min() >= 0
        assert sum(map(int, np.add.reduceat(counts, range(0, 2**20, 2**10)))) == total
        assert np.abs(counts - noisy).max() == best


@every_optimiser
def test_more_cells_than_a_block_are_solved_as_parent_by_parent(optimise: Optimiser) -> None:
    """At its true size, too, a block ends between parents: what comes before and after the cut is the same alone."""
    noisy, first_cell, totals = lay_out(mostly_empty_parents(5, 2 * siblings._BLOCK // 250 + 20, 500, 20.0))
    assert len(noisy) > siblings._BLOCK
    counts = optimise(noisy, first_cell, totals)
    half = len(totals) // 2
    cut = first_cell[half]
    assert (counts[:cut] == optimise(noisy[:cut], first_cell[: half + 1], totals[:half])).all()
    assert (counts[cut:] == optimise(noisy[cut:], first_cell[half:] - cut, totals[half:])).all()


# brute force over all candidates -------------------------------------------------------------------------------------

few = st.lists(st.integers(-5, 6), min_size=1, max_size=4)


def candidates(size: int, total: int) -> Iterator[tuple[int, ...]]:
    """Yield every vector of non-negative integers of a size that sums to a total."""
    for first in product(range(total + 1), repeat=size - 1):
        if sum(first) <= total:
            yield (*first, total - sum(first))


def squares(x: Sequence[int | Fraction], y: Sequence[int]) -> Fraction:
    """Return the squared Euclidean distance."""
    return sum(((before - after) ** 2 for before, after in zip(x, y, strict=True)), Fraction(0))


@given(x=few, c=st.integers(0, 6))
def test_no_candidate_is_nearer(x: list[int], c: int) -> None:
    """No whole numbers with the sum are nearer to the noisy counts, nor, in squares, to these or to their projection.

    To be a Chebyshev optimum costs nothing in squares; of equally near counts those win whose larger cells have more.
    """
    every = list(candidates(len(x), c))
    least = min(distance(x, y) for y in every)
    assert least == least_distance(x, c)
    for optimise in ORACLES:
        assert distance(x, solve(optimise, [(x, c)])[0]) == least

    def larger_then_lower(y: Sequence[int]) -> list[int]:
        return [-y[cell] for cell in sorted(range(len(x)), key=lambda cell: (-x[cell], cell))]

    [counts] = solve(nearest_in_euclid, [(x, c)])
    optima = [y for y in every if distance(x, y) == least]
    for near, point in ((every, project(x, c)), (optima, x)):
        best = min(near, key=lambda y, point=point: (squares(point, y), larger_then_lower(y)))
        assert counts == list(best)
    assert squares(x, counts) == min(squares(x, y) for y in every)


# the projection ------------------------------------------------------------------------------------------------------


def fractions_of(parents: Sequence[Problem]) -> list[list[Fraction]]:
    """Return each parent's projection by `simplex_threshold`, all of them at once."""
    x, first_cell, totals = lay_out([(sorted(x, reverse=True), c) for x, c in parents])
    numerator, denominator = simplex_threshold(x, np.diff(first_cell), totals)
    thetas = map(Fraction, numerator.tolist(), denominator.tolist())
    return [[max(Fraction(0), count - theta) for count in x] for (x, _), theta in zip(parents, thetas, strict=True)]


@given(parents=st.lists(st.tuples(few, st.integers(1, 9)), min_size=1, max_size=6))
def test_the_projection_is_exact(parents: list[Problem]) -> None:
    """The threshold by sorting is, as a fraction, the one that dropping cells one after the other comes to."""
    assert fractions_of(parents) == [project(*parent) for parent in parents]


@pytest.mark.parametrize("deviation", [6.0, 2.0**32])
def test_the_projection_is_exact_with_the_largest_counts(deviation: float) -> None:
    """With counts up to 2**40 each, whose sums take 46 bits, no digit of the threshold is lost."""
    parents = large(deviation, 40)
    totals = np.random.default_rng(3).integers(1, LARGEST_COUNT, len(parents)).tolist()
    parents += [(x, total) for (x, _), total in zip(parents, totals, strict=True)]
    assert fractions_of(parents) == [project(*parent) for parent in parents]


def test_the_projection_is_what_clarabel_finds() -> None:
    """On random vectors the exact projection is CLARABEL's up to its tolerance, and the counts are within one of it."""
    import cvxpy

    random = np.random.default_rng(0)
    for fan_out in random.integers(1, 60, 12, endpoint=True):  # dense and sparse, totals near the sum, below and above
        x = np.rint(random.pareto(1.5, fan_out) * 20 + random.normal(0, 30, fan_out)).astype(np.int64)
        parent = x.tolist(), max(1, int(x.sum() * random.choice([0.1, 1.0, 3.0]) + random.integers(-20, 20)))
        p = cvxpy.Variable(len(x))
        program = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(p - x)), [p >= 0, cvxpy.sum(p) == parent[1]])
        program.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
        assert program.status == "optimal"
        # the squared distance is at most the gap: 1e-11 of an objective of up to 1e5
        assert np.abs(p.value - np.array(list(map(float, fractions_of([parent])[0])))).max() < 1e-3
        assert np.abs(p.value - np.array(solve(nearest_in_euclid, [parent])[0])).max() < 1 + 1e-3


# sorting -------------------------------------------------------------------------------------------------------------


@given(
    parents=st.lists(
        st.lists(st.one_of(_small, st.integers(-(2**61), 2**61)), min_size=1, max_size=5), min_size=1, max_size=5
    )
)
def test_both_ways_of_sorting_agree(parents: list[list[int]]) -> None:
    """The packed key and its fallback both sort cells by parent, then noisy count, then cell."""
    noisy, first_cell, _ = lay_out([(counts, 0) for counts in parents])
    owner = np.repeat(np.arange(len(parents)), np.diff(first_cell))
    expected = sorted(range(len(noisy)), key=lambda cell: (owner[cell], noisy[cell], cell))
    assert siblings.ascending_siblings(noisy, np.diff(first_cell)).tolist() == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(siblings, "_KEY_BITS", 0)
        assert siblings.ascending_siblings(noisy, np.diff(first_cell)).tolist() == expected


def assert_sorted(fan_outs: Sequence[int]) -> None:
    """Assert that every parent's keys end up in ascending order."""
    random = np.random.default_rng(sum(fan_outs))
    key = np.repeat(np.arange(len(fan_outs)), fan_outs) * 1_000 + random.integers(0, 1_000, sum(fan_outs))
    expected = np.sort(key)
    siblings._sort_keys(key, np.array(fan_outs))
    assert key.tolist() == expected.tolist()


@given(fan_outs=st.lists(st.integers(1, 40), min_size=1, max_size=30), row=st.sampled_from([2, 4, 16, 64]))
def test_parents_within_across_and_wider_than_rows_are_sorted(fan_outs: list[int], row: int) -> None:
    """Rows cut parents anywhere, and still every one of them is sorted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(siblings, "_ROW", row)
        assert_sorted(fan_outs)


def test_rows_of_their_true_size_sort_parents_of_every_width() -> None:
    """Parents up to half a row, a row, and beyond are sorted."""
    for fan_out in (1, 3, 100, 128, 129, 256, 300):
        assert_sorted([fan_out] * 50)
