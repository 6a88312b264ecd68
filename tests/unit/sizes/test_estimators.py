"""Laws that every mechanism of group sizes keeps."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.sizes.estimators import MECHANISMS
from tests.support.group_sizes import Problem, check_table, draw_problem, problems

consistent = pytest.mark.parametrize("name", [name for name, of in MECHANISMS.items() if of.is_consistent])
every = pytest.mark.parametrize("name", list(MECHANISMS))


def noisy(name: str, problem: Problem) -> list[np.ndarray]:
    """Return what a mechanism measures of a problem, with its noise."""
    return [
        MECHANISMS[name].statistic.of(true) + noise for true, noise in zip(problem.true, problem.noise, strict=True)
    ]


def released(name: str, problem: Problem, groups: Any = None) -> list[np.ndarray]:
    """Return the table of a mechanism."""
    return MECHANISMS[name].estimate(noisy(name, problem), problem.variances, problem.first_child, groups)


@consistent
@settings(max_examples=40)
@given(problem=problems(), is_public=st.booleans())
def test_tables_add_up(name: str, problem: Problem, is_public: bool) -> None:
    """Counts are whole, not negative, add up over regions, and no region has more groups than a public list says."""
    groups = problem.groups if is_public else None
    check_table(released(name, problem, groups), problem, groups)


@every
@settings(max_examples=40)
@given(problem=problems(most=2**30, spread=0.0), is_public=st.booleans())
def test_without_noise_the_table_is_the_true_one(name: str, problem: Problem, is_public: bool) -> None:
    """Whatever the variances are, with a public number of groups and without."""
    found = released(name, problem, problem.groups if is_public else None)
    assert [of.tolist() for of in found] == [of.tolist() for of in problem.true]


@pytest.mark.parametrize(
    "name", ["group_sizes", "sizes_direct", "sizes_direct_relaxed", "sizes_cumulative", "sizes_cumulative_relaxed"]
)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_order_of_regions_does_not_matter(name: str, seed: int) -> None:
    """Finest regions in another order have the same counts, but for a group or two that the last bits of sums decide.

    Whole optima have ties, and the chain is over regions in their order.
    """
    generator = np.random.default_rng(seed)
    problem = draw_problem(generator, most=10**5, spread=10**4)
    if not problem.first_child:
        return
    first = problem.first_child[-1]
    order = np.concatenate([begin + generator.permutation(end - begin) for begin, end in pairwise(first)])
    counts = noisy(name, problem)
    mixed = [*counts[:-1], counts[-1][order]]
    estimate = MECHANISMS[name].estimate
    one = estimate(counts, problem.variances, problem.first_child, None)
    other = estimate(mixed, problem.variances, problem.first_child, None)
    for found, wanted in ((other[-1], one[-1][order]), (other[0], one[0])):
        apart = np.abs(found - wanted)
        assert apart.max(initial=0) <= 2
        assert np.count_nonzero(apart) <= 8


@every
@given(problem=problems())
@settings(max_examples=10)
def test_arguments_are_not_written(name: str, problem: Problem) -> None:
    """Noisy counts, first children and groups are as before."""
    counts, groups = noisy(name, problem), problem.groups
    given_ = [*counts, *problem.first_child, groups]
    kept = [of.copy() for of in given_]
    for of in given_:
        of.flags.writeable = False
    MECHANISMS[name].estimate(counts, problem.variances, problem.first_child, groups)
    assert [of.tolist() for of in given_] == [of.tolist() for of in kept]


@consistent
def test_a_lone_region_and_a_lone_size(name: str) -> None:
    """One level with one region, one size, and regions with one child at every level."""
    estimate = MECHANISMS[name].estimate
    assert estimate([np.array([[-3]])], [1.0], [], None)[0].tolist() == [[0]]
    only = [np.array([0, 1])] * 2
    found = estimate([np.array([[5, -2]])] * 3, [1.0, 2.0, 3.0], only, None)
    assert found[0].tolist() == found[1].tolist() == found[2].tolist()
