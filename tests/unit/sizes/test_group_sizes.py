"""Laws that every mechanism of group sizes keeps, and the way down of `group_sizes` against a mixed-integer program."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp

from tasks.sizes.down import settle_down
from tasks.sizes.estimators import MECHANISMS, from_tails, up
from tasks.sizes.tables import NoisyLevels, tails_of
from tests.support.group_sizes import check_table, draw_problem, problems


def noisy_tails(problem):
    """Return the tails of a problem with its noise."""
    return [tails_of(true) + noise for true, noise in zip(problem.true, problem.noise, strict=True)]


@given(problems(), st.booleans())
def test_one_parent_is_settled_as_among_many(problem, clean):
    """The part of the tree below a child of the root depends on the counts of that child alone, and on what is below."""
    if len(problem.first_child) < 2:
        return
    estimates, variances = up(noisy_tails(problem), problem.variances, problem.first_child, clean=clean)
    found = from_tails(NoisyLevels(noisy_tails(problem), problem.variances, problem.first_child), clean=clean)
    first = problem.first_child[1]
    for child, (begin, end) in enumerate(pairwise(first)):
        alone = settle_down(
            found[1][child : child + 1],
            [estimates[1][child : child + 1], estimates[2][begin:end]],
            [variances[1][child : child + 1], variances[2][begin:end]],
            [np.array([0, end - begin])],
        )
        assert alone[1].tolist() == found[2][begin:end].tolist()


def least_distance(parents, estimates):
    """Return the least sum of distances from estimates of whole tails of children that add up, by HiGHS."""
    children, largest = estimates.shape
    cells = children * largest
    at = np.arange(cells).reshape(children, largest)
    adding = np.zeros((largest, 2 * cells))
    adding[np.tile(np.arange(largest), children), at.ravel()] = 1
    tails = tails_of(parents)[0]
    falls = np.zeros((children * (largest - 1), 2 * cells))
    rows = np.arange(len(falls))
    falls[rows, at[:, :-1].ravel()], falls[rows, at[:, 1:].ravel()] = 1, -1
    whole, apart = np.eye(cells), np.eye(cells)
    rules = [LinearConstraint(adding, tails, tails), LinearConstraint(falls, 0, np.inf)]
    rules += [LinearConstraint(np.hstack([of * whole, apart]), of * estimates.ravel(), np.inf) for of in (1, -1)]
    costs, is_whole = np.repeat((0.0, 1.0), cells), np.repeat((1, 0), cells)
    return float(milp(costs, integrality=is_whole, bounds=Bounds(0, np.inf), constraints=rules).fun)


@pytest.mark.thorough
def test_the_way_down_costs_little_more_than_the_best():
    """Over random families the distance of whole tails from their estimates is at most 2% above the least one, in the mean; one turn costs more."""
    generator, ratios = np.random.default_rng(19), []
    for _ in range(150):
        children, largest = int(generator.integers(2, 5)), int(generator.integers(1, 6))
        true = generator.integers(0, 6, (children, largest))
        estimates = tails_of(true) + generator.normal(0, 2, true.shape)
        parents, first = true.sum(axis=0, keepdims=True), np.array([0, children])
        found = settle_down(parents, [estimates[:1], estimates], [np.ones(1), np.ones(children)], [first])[1]
        ratios.append(abs(tails_of(found) - estimates).sum() / least_distance(parents, estimates))
    assert min(ratios) >= 1 - 1e-6
    assert np.mean(ratios) <= 1.02


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=50)
def test_the_estimate_of_a_region_is_the_weighted_mean_of_itself_and_its_children(seed):
    """Without `clean` the estimate of the root is the best linear one, by the pseudo-inverse."""
    problem = draw_problem(np.random.default_rng(seed))
    noisy = noisy_tails(problem)
    estimates, variances = up(noisy, problem.variances, problem.first_child, clean=False)
    leaves = len(noisy[-1])
    below, rows, right = np.eye(leaves), [], []
    for level in reversed(range(len(noisy))):
        weight = problem.variances[level] ** -0.5
        rows.append(below * weight)
        right.append(noisy[level] * weight)
        if level:
            below = np.add.reduceat(below, problem.first_child[level - 1][:-1], axis=0)
    matrix = np.concatenate(rows)
    solved = np.linalg.lstsq(matrix, np.concatenate(right), rcond=None)[0]
    assert estimates[0][0] == pytest.approx(solved.sum(axis=0), abs=1e-6)
    covariance = np.linalg.inv(matrix.T @ matrix)
    assert variances[0] == pytest.approx([covariance.sum()])


def released(name, problem, groups=None):
    """Return the table of a mechanism, which writes into none of its arguments."""
    of = MECHANISMS[name].measured.of
    noisy = [of(true) + noise for true, noise in zip(problem.true, problem.noise, strict=True)]
    for given_ in (*noisy, *problem.first_child, problem.groups):
        given_.flags.writeable = False
    return MECHANISMS[name].estimate(NoisyLevels(noisy, problem.variances, problem.first_child, groups))


@pytest.mark.parametrize("name", [name for name, of in MECHANISMS.items() if of.is_consistent])
@settings(max_examples=40)
@given(problem=problems(), is_public=st.booleans())
def test_tables_add_up(name, problem, is_public):
    """Counts are whole, not negative, add up over regions, and no region has more groups than a public list says."""
    groups = problem.groups if is_public else None
    check_table(released(name, problem, groups), problem, groups)
