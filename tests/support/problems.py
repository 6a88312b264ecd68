"""Problems for optimisers: noisy counts of cells with the totals of their parents, and how good a solution is."""

from bisect import bisect_left
from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

Problem = tuple[list[int], int]  # x, the noisy counts of one parent's cells, and c, its total
LARGEST_NOISE = 2**36
LARGEST_COUNT = 2**40
_small = st.integers(-8, 8)
_any = st.one_of(_small, st.integers(-LARGEST_NOISE, LARGEST_COUNT + LARGEST_NOISE))
_totals = st.one_of(st.just(0), st.integers(0, 40), st.integers(0, LARGEST_COUNT))
_problem = st.one_of(
    st.tuples(st.lists(_small, min_size=1, max_size=9), st.integers(0, 40)),
    st.tuples(st.lists(_any, min_size=1, max_size=9), _totals),
)
problems = st.lists(_problem, min_size=1, max_size=6)


def integers(*values):
    """Return an array of whole numbers that nobody may write into."""
    array = np.array(values, dtype=np.int64)
    array.flags.writeable = False
    return array


def lay_out(parents):
    """Return the arguments of an optimiser, read-only, so that writing into them fails."""
    noisy = integers(*(count for counts, _ in parents for count in counts))
    first_cell = integers(*np.cumsum([0, *(len(counts) for counts, _ in parents)]))
    return noisy, first_cell, integers(*(total for _, total in parents))


def solve(optimise, parents):
    """Return the released counts of each parent's cells."""
    noisy, first_cell, totals = lay_out(parents)
    counts = optimise(noisy, first_cell, totals).tolist()
    return [counts[start:stop] for start, stop in pairwise(first_cell.tolist())]


def least_distance(x, c):
    """Return t*, the least integer t >= 0 with t >= −min x and Σ max(0, x_i − t) <= c <= Σ (x_i + t)."""
    times, lowest, whole, cells = Counter(x), min(x), sum(x), len(x)

    def suffices(t):
        least = sum(often * max(0, count - t) for count, often in times.items())
        return t >= -lowest and least <= c <= whole + cells * t

    return bisect_left(range(c + max(map(abs, x)) + 1), True, key=suffices)


def distance(x, y):
    """Return the Chebyshev distance."""
    return max(abs(before - after) for before, after in zip(x, y, strict=True))
