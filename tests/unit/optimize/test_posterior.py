"""Families given their totals against linear algebra, and sharing out against brute force over all ways to share a total out."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

import tasks.optimize.posterior
from tasks.optimize.posterior import shared_out
from tasks.optimize.prior import RATIOS, SPREAD, STRATA, families_with, stratum_of
from tasks.optimize.reconcile import NodeEstimates

SPARSE = np.concatenate(([0.6], np.full(len(RATIOS), 0.35 / len(RATIOS)), [0.05]))
EVEN = np.concatenate(([0.0], np.where(np.abs(np.log(RATIOS)) < 1, 1.0, 1e-6), [0.0]))


def prior(weights):
    """Return a prior with the same weights in all strata."""
    return np.tile(weights / weights.sum(), (STRATA, 1))


@st.composite
def problems(draw):
    """Draw families with totals of any size, and prior means."""
    sizes = draw(st.lists(st.integers(2, 30), min_size=1, max_size=8))
    random, scale = np.random.default_rng(draw(st.integers(0, 2**32))), draw(st.sampled_from([1.0, 30.0, 1e6]))
    cells = sum(sizes)
    totals = random.integers(1, max(2, int(scale * 3)), len(sizes))
    values, variances = random.normal(0, scale, cells), random.uniform(0.2, scale, cells)
    first = np.concatenate(([0], np.cumsum(sizes)))
    return families_with(NodeEstimates(values, variances), first, totals), random.gamma(0.3, scale, cells) + 1e-3


@settings(max_examples=60)
@given(problems(), st.sampled_from([SPARSE, EVEN]))
def test_counts_add_up_and_none_is_below_zero(problem, weights):
    """Each family has whole counts, none below zero, that add up to its total."""
    # They are the same one family at a time, and in blocks of a few cells.
    families, means = problem
    counts = shared_out(families, means, stratum_of(means), prior(weights))
    assert counts.dtype == np.int64
    assert (counts >= 0).all()
    assert np.add.reduceat(counts, families.first[:-1]).tolist() == families.totals.tolist()
    ends = list(pairwise(families.first.tolist()))
    alone = [
        shared_out(families[n : n + 1], means[a:b], stratum_of(means[a:b]), prior(weights))
        for n, (a, b) in enumerate(ends)
    ]
    assert counts.tolist() == np.concatenate(alone).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks.optimize.posterior, "_BLOCK", 7)  # so that wide families come in parts
        assert shared_out(families, means, stratum_of(means), prior(weights)).tolist() == counts.tolist()


def posterior(families, means, weights, most):
    """Return the posterior of each cell at 0, 1, …, most records by its formula, shape (cells, most + 1)."""
    weights, found = weights / weights.sum(), []
    for z, u, m in zip(families.values, families.variances, means, strict=True):
        edges = np.arange(most + 1) + 0.5
        below = norm.cdf(edges[:, None], RATIOS * m, SPREAD * RATIOS * m) @ weights[1:-1]
        mass = np.diff(below, prepend=0.0)
        mass[0] += weights[0]
        mass[most] += weights[-1]
        mass *= norm.pdf(np.arange(most + 1), z, np.sqrt(u))
        found.append(mass / mass.sum())
    return np.array(found)


@pytest.mark.parametrize("weights", [SPARSE, EVEN], ids=["sparse", "even"])
@pytest.mark.parametrize("seed", range(12))
def test_no_other_way_to_share_out_has_a_much_smaller_expected_error(weights, seed):
    """Over all ways to share up to 25 records out among three, the expected ℓ₁ error is nearly the least."""
    random = np.random.default_rng(seed)
    total = int(random.integers(3, 26))
    values, means = random.normal(total / 3, 6, 3), random.gamma(0.5, total / 2, 3) + 0.05
    families = families_with(NodeEstimates(values, np.full(3, 20.0)), np.array([0, 3]), np.array([total]))
    chances = posterior(families, means, weights, total)
    errors = chances @ np.abs(np.arange(total + 1)[:, None] - np.arange(total + 1))  # of each cell, by its count
    ways = [way for way in product(range(total + 1), repeat=3) if sum(way) == total]
    least = min(sum(errors[cell, count] for cell, count in enumerate(way)) for way in ways)
    counts = shared_out(families, means, stratum_of(means), prior(weights))
    assert sum(errors[cell, count] for cell, count in enumerate(counts)) <= least * 1.03 + 0.3


def test_what_is_beyond_every_quantile_is_shared_out_too():
    """A total that no posterior explains goes by prior means and estimates, and nothing is lost."""
    families = families_with(NodeEstimates(np.zeros(5), np.full(5, 1.0)), np.array([0, 5]), np.array([1]))
    nothing = np.zeros(2 + len(RATIOS))
    nothing[0] = 1.0
    means = np.array([0.1, 0.1, 5.0, 0.1, 0.1])
    counts = shared_out(families, means, stratum_of(means), prior(nothing))
    assert counts.tolist() == [0, 0, 1, 0, 0]


families = st.lists(
    st.tuples(st.integers(0, 50), st.lists(st.tuples(st.floats(-40, 90), st.floats(0.5, 30)), min_size=0, max_size=5)),
    min_size=1,
    max_size=6,
)


@given(families)
def test_estimates_given_their_total_follow_the_conditional_law(drawn):
    """Of normal estimates with independent errors, given what they add up to, mean and variances are those of linear algebra."""
    sizes = [len(cells) for _, cells in drawn]
    totals = np.array([total for total, _ in drawn], dtype=np.int64)
    values, variances = np.array([cell for _, cells in drawn for cell in cells] or [(0.0, 1.0)])[: sum(sizes)].T
    first = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    found = families_with(NodeEstimates(values, variances), first, totals)

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


def test_what_is_exact_has_no_posterior():
    """An estimate without a variance is refused."""
    with pytest.raises(ValueError, match="variances must be > 0"):
        families_with(NodeEstimates(np.ones(2), np.array([0.0, 4])), np.array([0, 2]), np.array([3]))
