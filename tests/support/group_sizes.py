"""Small tables of group sizes over random regions, with noise."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from tasks.sizes.tables import levels_above
from tasks.tree.axis import IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """A table of group sizes, its regions, and noise for every level."""

    true: list[IntArray]  # n of each level, shape (regions, N), int64
    first_child: list[IntArray]  # of each level but the last
    noise: list[IntArray]  # of each level, shape (regions, N), int64
    variances: list[float]  # of each level
    groups: IntArray  # of each finest region, empty ones too, shape (regions,)


def draw_problem(generator, *, largest=6, most=9, spread=4.0):
    """Return a problem with one to three levels, up to four children a region, `most` groups of a size in it, and noise of a spread."""
    first_child, regions = list[IntArray](), 1
    for _ in range(generator.integers(0, 3)):
        first_child.append(np.append(0, np.cumsum(generator.integers(1, 5, regions))))
        regions = int(first_child[-1][-1])
    finest = generator.integers(0, most + 1, (regions, int(generator.integers(1, largest + 1))))
    finest *= generator.integers(0, 2, finest.shape)
    true = levels_above(finest, first_child)
    noise = [np.rint(generator.normal(0, spread, of.shape)).astype(np.int64) for of in true]
    variances = generator.choice([0.5, 1.0, 3.0, 16.0], len(true)).tolist()
    return Problem(true, first_child, noise, variances, finest.sum(axis=1) + generator.integers(0, 3, regions))


def problems(largest=6, most=9, spread=4.0):
    """Return a strategy for problems, with the arguments of `draw_problem`."""
    seeds = st.integers(0, 2**32 - 1).map(np.random.default_rng)
    return seeds.map(lambda generator: draw_problem(generator, largest=largest, most=most, spread=spread))


def check_table(found, problem, groups=None):
    """Assert that counts are whole, not negative, of the right shapes, and add up; and that no region has more than its groups."""
    assert [of.shape for of in found] == [of.shape for of in problem.true]
    assert all(of.dtype == np.int64 and (of >= 0).all() for of in found)
    for coarse, above in zip(found, levels_above(found[-1], problem.first_child), strict=True):
        assert coarse.tolist() == above.tolist()
    assert groups is None or (found[-1].sum(axis=1) <= groups).all()
