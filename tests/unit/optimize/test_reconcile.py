"""The second pass against dense least squares, whole increments against enumeration, the lenient pass that prunes, and refusals."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.optimize.chebyshev import nearest_in_chebyshev
from tasks.optimize.euclidean import nearest_in_euclid, nearest_whole
from tasks.optimize.lenient import LEAST, settle_and_prune, spread_in_euclid
from tasks.optimize.reconcile import NodeEstimates, combined, measured, root_total, rounded, settle, summed_children
from tests.support.problems import integers


def estimates(*pairs):
    """Return estimates from pairs of value and variance."""
    values, variances = np.array(pairs, dtype=np.float64).reshape(-1, 2).T.copy()
    return NodeEstimates(values, variances)


def test_what_is_exact_stays():
    """A node's own count, or the sum over its children; there must be an estimate of each kept child."""
    assert combined(integers(8), 0.0, estimates((16.0, 12.0))).values.tolist() == [8.0]
    from_below = combined(integers(8), 4.0, estimates((16.0, 0.0)))
    assert (from_below.values.tolist(), from_below.variances.tolist()) == ([16.0], [0.0])
    with pytest.raises(ValueError, match="below must have an estimate for each of 2 kept cells"):
        summed_children(integers(5, 3), 4.0, integers(0, 2), np.array([True, True]), estimates((1, 1)))


def test_totals_are_not_negative_and_not_without_a_cell():
    """The root's total is the rounded estimate, at least 0, and 0 where the first pass has released nothing."""
    # NodeEstimates become the nearest whole numbers, halves the even one, and keep their size.
    for value, first, total in ((-3.0, 5, 0), (4.2, 5, 4), (4.2, 0, 0), (2.5, 5, 2)):
        assert root_total(estimates((value, 1.0)), first) == total
    assert rounded(estimates((-1.5, 1), (2.5, 1), (2.51, 1), (2.0**41 + 0.25, 1))).tolist() == [-2, 2, 3, 2**41]


def test_nothing_is_settled_below_a_parent_without_kept_cells():
    """A parent of which nothing stays shares out nothing, and a count to share out is refused."""
    below = measured(integers(4), 1.0)
    assert settle(below, integers(0, 0, 1), integers(0, 3), nearest_in_chebyshev).tolist() == [3]
    with pytest.raises(ValueError, match="totals must be 0 where the first pass has kept no cell"):
        settle(below, integers(0, 0, 1), integers(1, 3), nearest_in_chebyshev)


@given(st.tuples(*[st.sampled_from([0.5, 1.0, 3.0, 10.0])] * 4), st.sampled_from([0.0, 0.5]), st.integers(0, 2**32))
def test_root_is_that_of_least_squares(variances, pruned, seed):
    """The root's estimate and variance are those of dense generalised least squares over all counts, whatever was pruned."""
    # A pruned cell has its own count and nothing below it.
    random, kept, first = np.random.default_rng(seed), [np.ones(1, dtype=bool)], [integers(0, 1)]
    for _ in range(3):
        first.append(np.cumsum([0, *random.integers(1, 5, np.count_nonzero(kept[-1]))]))
        kept.append(random.random(first[-1][-1]) >= pruned)
        kept[-1][0] = True
    noisy = [random.integers(-50, 50, len(of)) for of in kept]

    upwards = None
    for level in (3, 2, 1):
        sums = summed_children(noisy[level], variances[level], first[level], kept[level], upwards)
        upwards = combined(noisy[level - 1][kept[level - 1]], variances[level - 1], sums)

    ends = [~of for of in kept[:-1]] + [np.ones(len(kept[-1]), dtype=bool)]  # cells below which nothing is measured
    columns = np.split(np.eye(sum(map(np.count_nonzero, ends))), np.cumsum([*map(np.count_nonzero, ends)])[:-1])
    reach = []  # which of them each cell holds, coarse to fine
    for level in (3, 2, 1, 0):
        of_level = np.zeros((len(kept[level]), columns[0].shape[1]))
        of_level[ends[level]] = columns[level]
        if level < 3:
            of_level[kept[level]] = np.add.reduceat(reach[0], first[level + 1][:-1], axis=0)
        reach.insert(0, of_level)
    design, weights = np.concatenate(reach), np.repeat(1 / np.array(variances), [len(of) for of in kept])
    covariance = np.linalg.inv(design.T @ (weights[:, None] * design))
    best = covariance @ (design.T @ (weights * np.concatenate(noisy)))
    assert upwards.values[0] == pytest.approx(best.sum(), abs=1e-9)
    assert upwards.variances[0] == pytest.approx(covariance.sum())


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.booleans()), min_size=1, max_size=30), st.data())
def test_a_node_is_the_same_in_whatever_company(cells, data):
    """Each node's sum is bit for bit the same whether its chunk holds other nodes or not."""
    values, stay = (np.array(column) for column in zip(*cells, strict=True))
    noisy = values.astype(np.int64)
    cuts = data.draw(st.sets(st.integers(1, len(cells))))
    first_cell = np.array(sorted({0, len(cells), *cuts}))
    below = estimates(*((value, abs(value) / 3) for value in values[stay]))
    together = summed_children(noisy, 7.0, first_cell, stay, below)
    before = np.concatenate(([0], np.cumsum(stay)))
    for node, (start, stop) in enumerate(pairwise(first_cell.tolist())):
        of_node = slice(before[start], before[stop])
        own = NodeEstimates(below.values[of_node], below.variances[of_node])
        alone = summed_children(noisy[start:stop], 7.0, np.array([0, stop - start]), stay[start:stop], own)
        assert (alone.values[0], alone.variances[0]) == (together.values[node], together.variances[node])


def least_cost(values, total, most):
    """Return the least sum of squares over all whole numbers within the bounds that add up to the total."""
    candidates = np.array(list(product(*(range(bound + 1) for bound in most))))
    return float(((candidates[candidates.sum(axis=1) == total] - values) ** 2).sum(axis=1).min())


@pytest.mark.parametrize("is_bounded", [False, True])
@given(seed=st.integers(0, 2**32 - 1))
def test_nothing_is_nearer(seed, is_bounded):
    """For several parents at once, each gets its total within the bounds of its cells, at the least cost."""
    generator = np.random.default_rng(seed)
    fan_out = generator.integers(1, 4, int(generator.integers(1, 4)))
    first = np.append(0, np.cumsum(fan_out))
    values = np.round(generator.normal(1, 3, first[-1]), int(generator.integers(0, 3)))
    most = generator.integers(0, 4, first[-1])
    room = np.add.reduceat(most, first[:-1])
    totals = generator.integers(0, (room if is_bounded else np.full(len(fan_out), 5)) + 1)
    kept = values.copy()
    found = nearest_whole(values, first, totals, most if is_bounded else None)
    assert values.tolist() == kept.tolist()
    for parent, (begin, end) in enumerate(pairwise(first)):
        own, total = found[begin:end], totals[parent]
        bounds = most[begin:end] if is_bounded else np.full(end - begin, total)
        assert own.sum() == total
        assert ((own >= 0) & (own <= bounds)).all()
        cost = ((own - values[begin:end]) ** 2).sum()
        assert cost == pytest.approx(least_cost(values[begin:end], total, bounds), abs=1e-6)


# --- the lenient first pass and the second that prunes

VALUES, VARIANCES = st.lists(st.integers(-60, 60), max_size=7), st.sampled_from([1.0, 100.0, 900.0])
families = st.lists(st.tuples(VALUES, st.integers(0, 80), VARIANCES), min_size=1, max_size=6)


def laid_out(drawn):
    """Return the arguments of settling; parents without a cell have nothing to share out."""
    values = np.array([value for of_parent, _, _ in drawn for value in of_parent], dtype=np.float64)
    variances = np.array([variance for of_parent, _, variance in drawn for _ in of_parent], dtype=np.float64)
    first = np.cumsum([0, *(len(of_parent) for of_parent, _, _ in drawn)])
    totals = integers(*(total if of_parent else 0 for of_parent, total, _ in drawn))
    return NodeEstimates(values, variances), first, totals


def test_more_cells_stay():
    """Of counts of about 10, noisy by 20, the nearest in Euclid has two; drawn towards equal shares three stay."""
    # A cell that has all of a large total keeps most of it; what is no problem is refused in the words of all optimisers.
    noisy, first, total = integers(48, 26, 12, -30), integers(0, 4), integers(40)
    assert nearest_in_euclid(noisy, first, total).tolist() == [31, 9, 0, 0]
    assert spread_in_euclid(noisy, first, total).tolist() == [23, 12, 5, 0]
    counts = spread_in_euclid(integers(1000, 3, -2, 1), first, integers(1000))
    assert counts.sum() == 1000
    assert counts[0] > 600
    with pytest.raises(ValueError, match="first_cell must give every parent at least one cell"):
        spread_in_euclid(integers(1), integers(0, 0, 1), integers(0, 1))
    with pytest.raises(ValueError, match="totals must be >= 0"):
        spread_in_euclid(integers(1), integers(0, 1), integers(-1))


def test_small_counts_go_and_their_siblings_have_them():
    """What is small for its noise goes, but for the largest of a family, and the sums are as before."""
    small = ([41.0, 5.0, 3.0], 49, 100.0), ([1.0, 1.0, 0.0], 2, 900.0), ([9000.0, 1.0, 0.0, 1.0], 9002, 0.0)
    pruned = settle_and_prune(*laid_out(list(small)), nearest_in_euclid)
    assert pruned.tolist() == [*(43, 6, 0), *(1, 1, 0), *(9000, 1, 0, 1)]  # nothing exact is pruned


@given(families)
def test_pruning_keeps_the_sums_and_leaves_nothing_small_but_the_largest(drawn):
    """Counts are whole, not negative and add up; what had a small count and a larger sibling has none; nothing is revived."""
    # Each parent's counts are the same whether it is settled with others or alone.
    estimates, first, totals = laid_out(drawn)
    before = settle(estimates, first, totals, nearest_in_euclid)
    after = settle_and_prune(estimates, first, totals, nearest_in_euclid)
    assert after.dtype == np.int64
    assert (after >= 0).all()
    for parent, total in enumerate(totals):
        own = slice(first[parent], first[parent + 1])
        assert after[own].sum() == total
        small = before[own] < LEAST * np.sqrt(estimates.variances[own])
        gone = small & (before[own] < before[own].max(initial=0))
        assert not after[own][gone].any()
    assert not after[before == 0].any()
    alone = [settle_and_prune(*laid_out([of_parent]), nearest_in_euclid).tolist() for of_parent in drawn]
    assert after.tolist() == [count for counts in alone for count in counts]
