"""The second pass step by step: against numbers by hand, against dense least squares, and its refusals."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.optimize.chebyshev import nearest_in_chebyshev
from tasks.optimize.reconcile import (
    Estimates,
    combined,
    first_kept,
    measured,
    root_total,
    rounded,
    settle,
    summed_children,
)


def integers(*values: int) -> np.ndarray:
    """Return an array of whole numbers that nobody may write into."""
    array = np.array(values, dtype=np.int64)
    array.flags.writeable = False
    return array


def kept(*values: int) -> np.ndarray:
    """Return an array of ones and zeros as booleans."""
    return np.array(values, dtype=bool)


def estimates(*pairs: tuple[float, float]) -> Estimates:
    """Return estimates from pairs of value and variance."""
    values, variances = np.array(pairs, dtype=np.float64).reshape(-1, 2).T.copy()
    return Estimates(values, variances)


def test_children_are_summed_by_hand():
    """At the finest level every noisy count enters the sum, pruned and negative ones too, and variances add up.

    Above it kept children bring their combined estimates, in order, and pruned ones their own counts; of another number than that of the
    kept cells they are refused. Cells that stay are counted per parent.
    """
    sums = summed_children(integers(5, -3, 7, 2, 0), 4.0, integers(0, 2, 5), kept(1, 0, 1, 1, 0))
    assert (sums.values.tolist(), sums.variances.tolist()) == ([2.0, 9.0], [8.0, 12.0])
    below = estimates((4.5, 1.0), (6.25, 2.0))
    sums = summed_children(integers(5, -3, 7), 4.0, integers(0, 2, 3), kept(1, 0, 1), below)
    assert (sums.values.tolist(), sums.variances.tolist()) == ([4.5 - 3, 6.25], [1.0 + 4.0, 2.0])
    with pytest.raises(ValueError, match="below must have an estimate for each of 2 kept cells"):
        summed_children(integers(5, 3), 4.0, integers(0, 2), kept(1, 1), estimates((1, 1)))
    assert first_kept(kept(0, 1, 1, 0, 1), integers(0, 1, 3, 5)).tolist() == [0, 0, 2, 3]


def test_combination_weighs_by_inverse_variance():
    """A count of variance 4 and a sum of variance 12 have weights 3/4 and 1/4, and together variance 3; what is exact stays."""
    mean = combined(integers(8, 0), 4.0, estimates((16.0, 12.0), (2.0, 4.0)))
    assert (mean.values.tolist(), mean.variances.tolist()) == ([10.0, 1.0], [3.0, 2.0])
    assert combined(integers(8), 0.0, estimates((16.0, 12.0))).values.tolist() == [8.0]
    assert combined(integers(8), 0.0, estimates((16.0, 0.0))).variances.tolist() == [0.0]
    from_below = combined(integers(8), 4.0, estimates((16.0, 0.0)))
    assert (from_below.values.tolist(), from_below.variances.tolist()) == ([16.0], [0.0])


def test_two_levels_by_hand():
    """A measured root over two nodes, one of them without children that stay: all numbers by hand."""
    leaves = summed_children(integers(3, 5), 2.0, integers(0, 2), kept(1, 1))  # below the first node: 8, variance 4
    first = combined(integers(12), 4.0, leaves)  # (12 + 8) / 2, variance 2
    assert (first.values.tolist(), first.variances.tolist()) == ([10.0], [2.0])
    root = combined(integers(6), 6.0, summed_children(integers(12, -1), 4.0, integers(0, 2), kept(1, 0), first))
    assert root.values.tolist() == [7.5]  # (6 + (10 - 1)) / 2, both of variance 6
    assert root.variances.tolist() == [3.0]
    assert root_total(root, 6) == 8  # halves go to the even number
    assert settle(first, integers(0, 1), integers(8), nearest_in_chebyshev).tolist() == [8]
    settled = settle(measured(integers(3, 5), 2.0), integers(0, 2), integers(6), nearest_in_chebyshev)
    assert settled.tolist() == [2, 4]


def test_totals_are_not_negative_and_not_without_a_cell():
    """The root's total is the rounded estimate, at least 0, and 0 where the first pass has released nothing.

    Estimates become the nearest whole numbers, halves the even one, and keep their size.
    """
    for value, first, total in ((-3.0, 5, 0), (4.2, 5, 4), (4.2, 0, 0)):
        assert root_total(estimates((value, 1.0)), first) == total
    assert rounded(estimates((-1.5, 1), (2.5, 1), (2.51, 1), (2.0**41 + 0.25, 1))).tolist() == [-2, 2, 3, 2**41]


def test_nothing_is_settled_below_a_parent_without_kept_cells():
    """A parent of which nothing stays shares out nothing, and a count to share out is refused; no nodes pass through every step."""
    below = measured(integers(4), 1.0)
    assert settle(below, integers(0, 0, 1), integers(0, 3), nearest_in_chebyshev).tolist() == [3]
    with pytest.raises(ValueError, match="totals must be 0 where the first pass has kept no cell"):
        settle(below, integers(0, 0, 1), integers(1, 3), nearest_in_chebyshev)
    none = summed_children(integers(), 1.0, integers(0), kept())
    assert len(combined(integers(), 1.0, none)) == 0
    assert len(settle(none, integers(0), integers(), nearest_in_chebyshev)) == 0


shapes = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=4)
variances = st.tuples(*[st.sampled_from([0.5, 1.0, 3.0, 10.0])] * 3)


@given(shapes, variances, st.integers(0, 2**32))
def test_root_is_that_of_least_squares(shape, variances, seed):
    """Without pruning, the root's estimate and variance are those of dense generalised least squares over all counts.

    The tree has a root, a node per list of `shape`, a node below it per number, and so many leaves below that.
    """
    fan_outs = [[len(shape)], [len(of_node) for of_node in shape], [number for of_node in shape for number in of_node]]
    leaves = sum(fan_outs[2])
    reach = [np.eye(leaves)]  # per level, finest first: which leaves each node holds
    for fan_out in reversed(fan_outs):
        reach.append(np.add.reduceat(reach[-1], np.cumsum([0, *fan_out[:-1]]), axis=0))
    sigma_squared = [variances[0], *variances]  # of levels 0 to 3
    random = np.random.default_rng(seed)
    noisy = [random.integers(-50, 50, len(nodes)) for nodes in reversed(reach)]

    upwards = measured(noisy[3], sigma_squared[3])
    for level in (2, 1, 0):
        first_cell = np.cumsum([0, *fan_outs[level]])
        everything = np.ones(first_cell[-1], dtype=bool)
        sums = summed_children(noisy[level + 1], sigma_squared[level + 1], first_cell, everything, upwards)
        upwards = combined(noisy[level], sigma_squared[level], sums)

    design = np.concatenate(list(reversed(reach)))
    weights = np.concatenate([np.full(len(n), 1 / v) for n, v in zip(noisy, sigma_squared, strict=True)])
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
        own = Estimates(below.values[of_node], below.variances[of_node])
        alone = summed_children(noisy[start:stop], 7.0, np.array([0, stop - start]), stay[start:stop], own)
        assert (alone.values[0], alone.variances[0]) == (together.values[node], together.variances[node])
