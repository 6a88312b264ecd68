"""Laws of every optimiser, and IntOpt, in both orders, against the paper's loop, the closed form and brute force."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.optimize import siblings
from tasks.optimize.chebyshev import nearest_in_chebyshev, nearest_in_chebyshev_large_first
from tasks.optimize.euclidean import nearest_in_euclid
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

Loop = Callable[[Sequence[int], int], list[int]]

OPTIMISERS: list[Optimiser] = [  # a new optimiser joins here and inherits the laws
    nearest_in_chebyshev,
    nearest_in_chebyshev_large_first,
    nearest_in_euclid,
]
every_optimiser = pytest.mark.parametrize("optimise", OPTIMISERS, ids=lambda function: function.__name__)


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


every_order = pytest.mark.parametrize(
    ("optimise", "loop"),
    [
        pytest.param(nearest_in_chebyshev, paper_loop, id="small first"),
        pytest.param(nearest_in_chebyshev_large_first, partial(paper_loop, large_first=True), id="large first"),
    ],
)


@every_optimiser
@given(parents=problems)
def test_counts_are_whole_and_not_negative_and_sum_to_their_totals(optimise: Optimiser, parents: list[Problem]) -> None:
    """Every cell gets an int64 >= 0, and the cells of a parent add up to its total."""
    noisy, first_cell, totals = lay_out(parents)
    counts = optimise(noisy, first_cell, totals)
    assert counts.dtype == np.int64
    assert counts.shape == noisy.shape
    assert (counts >= 0).all()
    assert [sum(cells) for cells in solve(optimise, parents)] == totals.tolist()


@every_optimiser
@given(parents=st.lists(st.lists(st.integers(0, LARGEST_COUNT), min_size=1, max_size=9), min_size=1, max_size=6))
def test_zero_noise_is_the_identity(optimise: Optimiser, parents: list[list[int]]) -> None:
    """Counts that are consistent already come back unchanged."""
    assert solve(optimise, [(counts, sum(counts)) for counts in parents]) == parents


@every_optimiser
@given(parents=problems)
def test_parents_are_independent(optimise: Optimiser, parents: list[Problem]) -> None:
    """Solving parents together gives what solving each of them alone gives."""
    assert solve(optimise, parents) == [solve(optimise, [parent])[0] for parent in parents]


@every_optimiser
@given(parent=_problem, data=st.data())
def test_the_order_of_cells_does_not_matter(optimise: Optimiser, parent: Problem, data: st.DataObject) -> None:
    """Shuffling the cells of a parent shuffles the result along with them, up to cells with equal noisy counts."""
    noisy, total = parent
    shuffled = data.draw(st.permutations(noisy))
    (counts,), (counts_of_shuffled,) = solve(optimise, [parent]), solve(optimise, [(shuffled, total)])
    assert Counter(zip(noisy, counts, strict=True)) == Counter(zip(shuffled, counts_of_shuffled, strict=True))


@every_optimiser
def test_the_result_does_not_change_from_call_to_call(optimise: Optimiser) -> None:
    """The same noisy counts with many ties give the same counts every time."""
    parents = [([1] * 50 + [-1] * 50, 25)] * 20
    assert solve(optimise, parents) == solve(optimise, parents)
    assert len({tuple(counts) for counts in solve(optimise, parents)}) == 1


@every_optimiser
def test_no_parent_gives_no_cell(optimise: Optimiser) -> None:
    """A level without parents is solved by no count at all."""
    counts = optimise(*lay_out([]))
    assert counts.dtype == np.int64
    assert counts.shape == (0,)


@every_optimiser
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
def test_malformed_problems_are_refused(
    optimise: Optimiser, noisy: list[int], first_cell: list[int], totals: list[int], named: str
) -> None:
    """A negative total, a parent without a cell and shapes that disagree are refused by the name of the argument."""
    with pytest.raises(ValueError, match=rf"^{named} must "):
        optimise(*(np.array(values, dtype=np.int64) for values in (noisy, first_cell, totals)))


@every_order
@given(parents=problems)
def test_intopt_does_what_the_papers_loop_does(optimise: Optimiser, loop: Loop, parents: list[Problem]) -> None:
    """IntOpt returns, cell by cell, what the literal loop of Algorithm 3 returns."""
    assert solve(optimise, parents) == [loop(*parent) for parent in parents]


@every_optimiser
@given(parents=problems)
def test_every_optimiser_reaches_the_closed_form_of_the_optimum(optimise: Optimiser, parents: list[Problem]) -> None:
    """The Chebyshev distance to the noisy counts is t*, whatever the order, and for least squares too."""
    solved = solve(optimise, parents)
    distances = [distance(noisy, counts) for (noisy, _), counts in zip(parents, solved, strict=True)]
    assert distances == [least_distance(*parent) for parent in parents]


@every_optimiser
@given(noisy=st.lists(st.integers(-5, 6), min_size=1, max_size=4), total=st.integers(0, 6))
def test_every_optimiser_is_as_near_as_the_best_of_all_candidates(
    optimise: Optimiser, noisy: list[int], total: int
) -> None:
    """No vector of non-negative integers with the right sum is nearer to the noisy counts."""
    candidates = [y for y in product(range(total + 1), repeat=len(noisy)) if sum(y) == total]
    best = min(distance(noisy, candidate) for candidate in candidates)
    assert distance(noisy, solve(optimise, [(noisy, total)])[0]) == best == least_distance(noisy, total)


@pytest.mark.parametrize(
    ("noisy", "total", "counts"),
    [
        pytest.param([0, -1, 1], 2, [0, 0, 2], id="small counts go to zero first"),
        pytest.param([5, 5, 5], 16, [4, 6, 6], id="ties go to the lower cell"),
        pytest.param([7, -3, 0], 0, [0, 0, 0], id="nothing to share"),
        pytest.param([-4], 9, [9], id="one child, raised"),
        pytest.param([12], 9, [9], id="one child, lowered"),
        pytest.param([-3, -1, -2], 2, [0, 2, 0], id="all negative"),
        pytest.param([-3, -3], 0, [0, 0], id="all negative, nothing to share"),
        pytest.param([10, 4, 1], 9, [8, 1, 0], id="lowered evenly, the small count stops at zero"),
    ],
)
def test_intopt_by_example(noisy: list[int], total: int, counts: list[int]) -> None:
    """Small problems have the solutions that the paper's loop gives on paper."""
    assert solve(nearest_in_chebyshev, [(noisy, total)]) == [counts]
    assert paper_loop(noisy, total) == counts


@pytest.mark.parametrize(
    ("noisy", "total", "counts"),
    [
        pytest.param([0, -1, 1], 2, [1, 0, 1], id="small counts survive"),
        pytest.param([5, 5, 5], 16, [4, 6, 6], id="of equal counts the lower cell gives first"),
        pytest.param([7, -3, 0], 0, [0, 0, 0], id="nothing to share"),
        pytest.param([-4], 9, [9], id="one child, raised"),
        pytest.param([12], 9, [9], id="one child, lowered"),
        pytest.param([-3, -1, -2], 2, [0, 1, 1], id="all negative"),
        pytest.param([-3, -3], 0, [0, 0], id="all negative, nothing to share"),
        pytest.param([10, 4, 1, -5], 9, [5, 3, 1, 0], id="the largest gives all it may before the next gives any"),
    ],
)
def test_large_first_by_example(noisy: list[int], total: int, counts: list[int]) -> None:
    """Small problems have the solutions that the paper's loop gives on paper if it lowers large counts first."""
    assert solve(nearest_in_chebyshev_large_first, [(noisy, total)]) == [counts]
    assert paper_loop(noisy, total, large_first=True) == counts


@every_order
@pytest.mark.parametrize("total", [0, 1, 4_999, 100_000, 3_000_000])
def test_intopt_on_a_parent_with_five_thousand_children(optimise: Optimiser, loop: Loop, total: int) -> None:
    """A wide and sparse parent is solved as by the paper's loop, whether its counts have to go down or up."""
    random = np.random.default_rng(total)
    noisy = np.rint(random.normal(0, 40, 5_000)).astype(np.int64)
    noisy[:50] += random.integers(0, 4_000, 50)
    parents = [(noisy.tolist(), total), ([3, 1], 4)]
    assert solve(optimise, parents) == [loop(*parent) for parent in parents]


@pytest.mark.parametrize(
    ("raised", "total"), [(0, LARGEST_COUNT), (1, 0), (2**19, LARGEST_COUNT - 1), (2**20, 1), (2**20, LARGEST_COUNT)]
)
def test_no_optimiser_overflows_on_the_widest_parent(raised: int, total: int) -> None:
    """2**20 children whose noise is the largest that can occur get counts that sum to the total, at distance t*."""
    noisy = [LARGEST_NOISE] * raised + [-LARGEST_NOISE] * (2**20 - raised)
    noisy[0] += LARGEST_COUNT
    best, problem = least_distance(noisy, total), lay_out([(noisy, total)])
    for optimise in OPTIMISERS:
        counts = optimise(*problem)
        assert counts.min() >= 0
        assert sum(counts.tolist()) == total
        assert np.abs(counts - problem[0]).max() == best


@every_order
def test_intopt_does_not_overflow_on_many_parents(optimise: Optimiser, loop: Loop) -> None:
    """Two thousand parents with the largest counts and noise, too wide for one key, are solved as by the loop."""
    random = np.random.default_rng(1)
    noisy = random.integers(-LARGEST_NOISE, LARGEST_COUNT + LARGEST_NOISE, (2_000, 5)).tolist()
    parents = list(zip(noisy, random.integers(0, LARGEST_COUNT, 2_000).tolist(), strict=True))
    assert solve(optimise, parents) == [loop(*parent) for parent in parents]


@every_order
@pytest.mark.parametrize("deviation", [0.8, 6.0, 60.0, 2.0**32])
@pytest.mark.parametrize("widest", [1, 2, 5, 40, 500])
def test_intopt_on_a_level_of_ragged_and_mostly_empty_parents(
    optimise: Optimiser, loop: Loop, widest: int, deviation: float
) -> None:
    """A level as it is met far down a tree is solved as by the paper's loop, parent by parent."""
    parents = mostly_empty_parents(widest, 4_000 // widest + 20, widest, deviation)
    assert solve(optimise, parents) == [loop(*parent) for parent in parents]


@every_order
@pytest.mark.parametrize("deviation", [6.0, 2.0**32])
def test_intopt_on_a_level_of_large_counts(optimise: Optimiser, loop: Loop, deviation: float) -> None:
    """Children with counts up to 2**40 each, all of which stay above zero or nearly so, are solved as by the loop."""
    random = np.random.default_rng(7)
    true_counts = random.integers(0, LARGEST_COUNT, (300, 20))
    noisy = true_counts + np.rint(random.normal(0, deviation, true_counts.shape)).astype(np.int64)
    parents = list(zip(noisy.tolist(), true_counts.sum(axis=1).tolist(), strict=True))
    assert solve(optimise, parents) == [loop(*parent) for parent in parents]


@every_order
@given(noisy=st.lists(st.lists(_any, min_size=1, max_size=9), min_size=1, max_size=6), data=st.data())
def test_intopt_around_the_totals_at_which_its_short_cuts_begin_and_end(
    optimise: Optimiser, loop: Loop, noisy: list[list[int]], data: st.DataObject
) -> None:
    """With totals near Σx, max x, and what is above the bound, IntOpt returns what the paper's loop returns."""
    parents = []
    for counts in noisy:
        most, least = max(counts), min(counts)
        near = data.draw(st.sampled_from([0, most, most - least, most + least, sum(counts), sum(map(abs, counts))]))
        parents.append((counts, max(0, near + data.draw(st.integers(-3, 3)))))
    assert solve(optimise, parents) == [loop(*parent) for parent in parents]


@every_optimiser
@given(parents=problems, block=st.integers(1, 12))
def test_the_blocks_in_which_parents_are_solved_do_not_matter(
    optimise: Optimiser, parents: list[Problem], block: int
) -> None:
    """Blocks as small as a cell, within and across which parents of any width lie, give what one block gives."""
    together = solve(optimise, parents)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(siblings, "_BLOCK", block)
        assert solve(optimise, parents) == together


def test_more_cells_than_a_block_are_solved_as_parent_by_parent() -> None:
    """At its true size, too, a block ends between parents: what comes before and after the cut is the same alone."""
    parents = mostly_empty_parents(5, 2 * siblings._BLOCK // 250 + 20, 500, 20.0)
    noisy, first_cell, totals = lay_out(parents)
    assert len(noisy) > siblings._BLOCK
    counts = nearest_in_chebyshev(noisy, first_cell, totals)
    half = len(totals) // 2
    cut = first_cell[half]
    assert (counts[:cut] == nearest_in_chebyshev(noisy[:cut], first_cell[: half + 1], totals[:half])).all()
    assert (counts[cut:] == nearest_in_chebyshev(noisy[cut:], first_cell[half:] - cut, totals[half:])).all()


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


@given(fan_outs=st.lists(st.integers(1, 40), min_size=1, max_size=30), row=st.sampled_from([2, 4, 16, 64]))
def test_parents_within_across_and_wider_than_rows_are_sorted(fan_outs: list[int], row: int) -> None:
    """Rows cut parents anywhere, and still every parent's keys end up in ascending order."""
    random = np.random.default_rng(sum(fan_outs))
    owner = np.repeat(np.arange(len(fan_outs)), fan_outs)
    key = owner * 1_000 + random.integers(0, 1_000, len(owner))
    expected = np.sort(key)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(siblings, "_ROW", row)
        siblings._sort_keys(key, np.array(fan_outs))
    assert key.tolist() == expected.tolist()


@pytest.mark.parametrize("fan_out", [1, 3, 100, 128, 129, 256, 300])
def test_rows_of_their_true_size_sort_parents_of_every_width(fan_out: int) -> None:
    """Parents up to half a row, a row, and beyond are sorted."""
    random = np.random.default_rng(fan_out)
    key = np.repeat(np.arange(50), fan_out) * 1_000 + random.integers(0, 1_000, 50 * fan_out)
    expected = np.sort(key)
    siblings._sort_keys(key, np.full(50, fan_out))
    assert key.tolist() == expected.tolist()
