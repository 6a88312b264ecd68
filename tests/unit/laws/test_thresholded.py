"""Thresholded discrete Laplace noise: its scale and threshold, what OpenDP's map returns, and the exact tail."""

import math
from dataclasses import replace
from decimal import Decimal, localcontext
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from tasks.accounting.opendp import opendp
from tasks.accounting.sensitivity import sensitivity_of
from tasks.laws.thresholded import Thresholded, privacy_cost, thresholded_for, thresholded_laplace
from tasks.noise.measure import measure_thresholded

SEEN = 400  # outcomes of a leaf that are told apart

PROMISES = ((0.1, 1e-12), (1.0, 1e-8), (4.0, 1e-3), (0.3, 0.2))
CASES = [
    (of, records, *promise) for of in ("substitution", "add_remove") for records in (1, 2, 7) for promise in PROMISES
]


def tail(scale, least):
    """Return P(Z >= least) of discrete Laplace noise, exact to fifty digits, for least >= 1: q^least / (1 + q)."""
    with localcontext(prec=50):
        q = (-1 / Decimal(scale)).exp()
        return q**least / (1 + q)


def partitions(records, most):
    """Return every way in which a unit's records can lie in leaves of their own, as counts."""
    if records == 0:
        return [()]
    return [(first, *rest) for first in range(min(records, most), 0, -1) for rest in partitions(records - first, first)]


def exact_delta(noise, records):
    """Return the largest probability that any leaf is seen in which only one unit's records are, over all their places."""
    with localcontext(prec=50):
        unseen = [
            math.prod(1 - tail(noise.scale, noise.threshold - count) for count in counts)
            for counts in partitions(records, records)
        ]
        return 1 - min(unseen)


@pytest.mark.parametrize(("neighbours", "records", "epsilon", "delta"), CASES)
def test_the_map_stays_within_what_is_asked_for_and_the_exact_tail_within_the_map(neighbours, records, epsilon, delta):
    """Neither ε nor δ of the charge exceeds the spec's, and what is charged is no less than the exact probability."""
    # s is 2m/ε or m/ε; θ is the formula's, rounded up; for many records under substitution OpenDP's map asks for more, and no more
    # than it must.
    sensitivity = sensitivity_of(neighbours, records)
    noise = thresholded_for(sensitivity, epsilon, delta)
    assert noise.epsilon <= epsilon
    assert noise.delta <= delta
    assert exact_delta(noise, records) <= Decimal(noise.delta)
    assert privacy_cost(sensitivity, noise.scale, noise.threshold) == (noise.epsilon, noise.delta)
    s = (2 if neighbours == "substitution" else 1) * records / epsilon
    c = 2 if (neighbours, records) == ("substitution", 1) else records
    formula = records + s * math.log(c / delta)
    assert noise.scale == pytest.approx(s, rel=1e-15)
    beyond = s * math.log(2) if neighbours == "substitution" and records > 1 else 0
    assert formula <= noise.threshold <= formula + beyond + 1
    if noise.threshold > math.ceil(formula) + 1:
        assert privacy_cost(sensitivity, noise.scale, noise.threshold - 1)[1] > delta


def seen(count, scale, threshold):
    """Return the law of what is seen of a leaf: nothing, then the noisy counts from the threshold on, the last ones as one."""
    if count == 0:
        return np.eye(1, SEEN)[0]
    q = math.exp(-1 / scale)
    values = np.arange(threshold, threshold + SEEN - 2)
    law = (1 - q) / (1 + q) * q ** np.abs(values - count)
    beyond = q ** (values[-1] + 1 - count) / (1 + q)
    return np.concatenate(([1 - law.sum() - beyond], law, [beyond]))


def by_ratio(one, other):
    """Return two laws with outcomes of the same ratio taken together, shape (ratios, 2)."""
    ratio = np.round(np.log(np.maximum(one, 1e-300)) - np.log(np.maximum(other, 1e-300)), 9)
    _, groups = np.unique(ratio, return_inverse=True)
    return np.column_stack([np.bincount(groups, one), np.bincount(groups, other)])


def exact_delta_of_tables(one, other, noise):
    """Return the least δ with which what is seen of two tables is as alike as ε says: leaves are independent."""
    joint = np.ones((1, 2))
    for count, neighbour in zip(one, other, strict=True):
        leaf = by_ratio(*(seen(c, noise.scale, noise.threshold) for c in (count, neighbour)))
        joint = by_ratio(*(joint[:, None, :] * leaf[None, :, :]).reshape(-1, 2).T)
    return float(np.maximum(joint[:, 0] - math.exp(noise.epsilon) * joint[:, 1], 0).sum())


@pytest.mark.parametrize("neighbours", ["substitution", "add_remove"])
@pytest.mark.parametrize("records", [1, 2])
def test_the_exact_divergence_of_all_neighbours_on_three_leaves_is_within_the_charge(neighbours, records):
    """Whatever others have, wherever a unit's records are and go: δ of the two exact laws at ε is no more than charged."""
    noise = thresholded_for(sensitivity_of(neighbours, records), 1.0, 0.05)
    leaves = range(3)
    places = [np.bincount(at, minlength=3) for at in combinations_with_replacement(leaves, records)]
    nowhere = np.zeros(3, dtype=np.int64)
    moves = list(product(places, places)) if neighbours == "substitution" else []
    moves += [pair for place in places for pair in ((place, nowhere), (nowhere, place)) if neighbours == "add_remove"]
    others = [np.array(base) for base in combinations_with_replacement([0, 1, noise.threshold, 60], 3)]
    worst = max(exact_delta_of_tables(base + before, base + after, noise) for base in others for before, after in moves)
    assert worst <= noise.delta * (1 + 1e-9)
    assert worst >= noise.delta / (2 * records + 1)  # it is no empty bound
    weak = replace(noise, threshold=noise.threshold - 2 * math.ceil(noise.scale))
    alone = places[0]
    assert exact_delta_of_tables(alone, places[-1] if neighbours == "substitution" else nowhere, weak) > noise.delta


def test_a_count_at_the_threshold_is_kept_which_the_map_of_that_threshold_leaves_out():
    """OpenDP keeps counts from its threshold on and charges for those above: asked at θ its map falls short, at θ − 1 not."""
    dp = opendp()
    space = dp.map_domain(dp.atom_domain(T="i64"), dp.atom_domain(T="i64"))
    metric = dp.l01inf_distance(dp.absolute_distance(T="i64"))
    at = dp.m.make_laplace_threshold(space, metric, scale=2.0, threshold=12)
    exact = tail(2.0, 11)  # of a leaf with one record
    assert Decimal(at.map((1, 1, 1))[1]) < exact <= Decimal(privacy_cost(sensitivity_of("add_remove", 1), 2.0, 12)[1])
    _, noisy = thresholded_laplace(np.full(5_000, 12, dtype=np.int64), 2.0, 12)
    assert noisy.min() == 12


def test_what_is_kept_comes_in_order_with_its_own_counts():
    """Without noise to speak of, exactly the counts from the threshold on are kept, each in its row."""
    # by chance so many never come in order
    true_counts = np.array([9, 3, 12, 10, 2**40, 1, *range(20, 60)], dtype=np.int64)
    rows, noisy = thresholded_laplace(true_counts, 0.01, 10)
    assert rows.tolist() == [2, 3, 4, *range(6, 46)]
    assert noisy.tolist() == [12, 10, 2**40, *range(20, 60)]
    assert (rows.dtype, noisy.dtype) == (np.int64, np.int64)
    rows, noisy = thresholded_laplace(np.zeros(0, dtype=np.int64), 0.01, 10)
    assert (len(rows), len(noisy), noisy.dtype) == (0, 0, np.int64)


@pytest.mark.parametrize(("count", "scale", "threshold", "records", "told"), [
    (5, 1.99, 40, 1, "cost more"),
    (5, 2.0, 38, 1, "cost more"),
    (5, 2.0, 40, 2, "cost more"),
    (5, 2.0, 1, 1, "above max_records"),
    (5, math.inf, 40, 1, "finite"),
    *((count, 2.0, 40, 1, r"1 to 2\*\*40") for count in (0, -1, 2**40 + 1)),  # no leaf without records is looked at
])  # fmt: skip
def test_nothing_is_drawn_that_costs_more_than_is_charged(count, scale, threshold, records, told):
    """A smaller scale, a lower threshold, more records per unit than were charged for, or a leaf without any: no draw."""
    charged = thresholded_for(sensitivity_of("substitution", 1), 1.0, 1e-8)
    assert (charged.scale, charged.threshold) == (2.0, 40)
    noise = Thresholded(scale, threshold, charged.epsilon, charged.delta)
    with pytest.raises(ValueError, match=told):
        measure_thresholded(np.array([5, count]), noise, sensitivity_of("substitution", records), pytest.fail)


@pytest.mark.parametrize(
    ("epsilon", "delta", "rule"), [(1e-10, 1e-8, "scale"), (1e4, 1e-8, "scale"), (1.0, 1e-18, "delta must be larger")]
)
def test_what_no_noise_or_threshold_keeps_is_refused(epsilon, delta, rule):
    """A scale beyond use, or a δ below what the map's floats can show, is an error that names the rule."""
    with pytest.raises(ValueError, match=rule):
        thresholded_for(sensitivity_of("substitution", 1), epsilon, delta)
