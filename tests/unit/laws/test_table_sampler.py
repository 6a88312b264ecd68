"""The tables of the table sampler against exact probabilities in 150 decimals, which share no code with them, and its draws bit by bit."""

import errno
import math
import os
from bisect import bisect_right
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tasks.laws import samplers

SCALES = [0.01, 0.07, 0.3, 1 / 3, 1.0, 3.7, 17.68, 50.0, 300.1]
every_scale = pytest.mark.parametrize("scale", SCALES)
scales = st.one_of(st.floats(0.01, 1.0), st.floats(1.0, 200.0))
DIGITS = 150
WHOLE = 2**192
UNIT = Decimal(2) ** -192  # one step of an entry


def masses_of(table):
    """Return 2**192 P(noise = k) for k = −K … K, as the differences of the entries."""
    return [after - before for before, after in pairwise([0, *table.entries, WHOLE])]


def distance(table, law):
    """Return the total variation distance of a table's law from a law that is given for k = 0, 1, 2, …"""
    K = table.furthest
    of_table = {k: Decimal(mass) / WHOLE for k, mass in zip(range(-K, K + 1), masses_of(table), strict=True)}
    reach = max(K, len(law) - 1)
    true = dict(enumerate(law))
    return sum(abs(of_table.get(k, 0) - true.get(abs(k), 0)) for k in range(-reach, reach + 1)) / Decimal(2)


def decimal(value):
    """Return a fraction to the context's digits."""
    return Decimal(value.numerator) / Decimal(value.denominator)


def exact_law(law, scale):
    """Return P(noise = k) for k = 0, 1, 2, … until it is below 1e-140, to about 150 digits."""
    of = {"gaussian": lambda k: Decimal(-k * k) / (2 * Decimal(scale) ** 2), "laplace": lambda k: -k / Decimal(scale)}
    weights = [Decimal(1)]
    while weights[-1] >= Decimal("1e-140"):
        weights.append(of[law](Decimal(len(weights))).exp())
    total = weights[0] + 2 * sum(weights[1:])
    return [weight / total for weight in weights]


TABLES = {"gaussian": samplers.noise_table, "laplace": samplers.laplace_table}


@pytest.mark.parametrize(("law", "scale"), [
    *(("gaussian", scale) for scale in SCALES[:6]),
    *(pytest.param("gaussian", scale, marks=pytest.mark.thorough) for scale in (*SCALES[6:], 2.0**10)),
    *(("laplace", scale) for scale in (0.05, 0.5, 3.7)),
    pytest.param("laplace", 40.0, marks=pytest.mark.thorough),
])  # fmt: skip
def test_tau_bounds_the_total_variation_distance_from_the_exact_law(law, scale):
    """The distance, summed over all outcomes with 150 digits, is at most τ, hardly less, and below 2**-120."""
    # The law of the next float is further from the table than τ, 2**50 times and more, that of Laplace noise 2**40 times.
    with localcontext(prec=DIGITS):
        table = TABLES[law](scale)
        true = distance(table, exact_law(law, scale))
        assert 0 < true <= decimal(table.tau) <= Decimal("1.01") * true + 4 * UNIT
        assert table.tau < Fraction(1, 2**120)
        if law == "laplace" or scale in (0.3, 17.68):
            further = distance(table, exact_law(law, math.nextafter(scale, 1e9)))
            assert further > 2 ** (40 if law == "laplace" else 50) * decimal(table.tau)


@pytest.mark.parametrize(
    ("law", "most", "reach"),
    [("gaussian", samplers.LARGEST_TABLE_SCALE, 12.9), ("laplace", samplers.LARGEST_LAPLACE_SCALE, 84)],
)
@given(scale=scales, edge=st.sampled_from([None, 5e-324, 0.0503, math.inf]))
@example(scale=1.0, edge=math.inf)
@example(scale=1.0, edge=5e-324)
def test_laws_of_every_table(law, most, reach, scale, edge):
    """A table is symmetric, reaches so many scales at most, has the entries' first words, every outcome can occur; τ is below 2**-120."""
    scale = min(most, 60.0 if law == "laplace" and edge is None else math.inf, edge or scale)
    table = TABLES[law](scale)
    masses = masses_of(table)
    assert masses == masses[::-1]
    assert min(masses) > 0
    assert (sum(masses), len(table.entries)) == (WHOLE, 2 * table.furthest)
    assert table.furthest <= math.ceil(reach * scale)
    assert table.top_words.tolist() == [entry >> 128 for entry in table.entries]
    assert 0 < table.tau < samplers.LARGEST_TAU == Fraction(1, 2**120)


@settings(max_examples=40)
@given(scale=st.floats(0.01, 40.0), bits=st.integers(50, 300), reach=st.integers(1, 12))
@example(scale=0.01, bits=50, reach=12)
@example(scale=40.0, bits=50, reach=12)
def test_weights_are_below_and_their_sum_above_the_exact_ones(scale, bits, reach):
    """With however few bits w_k lacks 0 to k(k + 1) units, and the sum makes up for as many and for all beyond K."""
    # What lies beyond is a geometric series; what its first term and ratio may have lost is made up for too.
    with localcontext(prec=DIGITS):
        K = math.ceil(reach * scale)
        weights, total = samplers.weights_and_sum(Fraction(scale), K, bits)
        variance = Decimal(scale) * Decimal(scale)
        exact = [(Decimal(-k * k) / (2 * variance)).exp() * 2**bits for k in range(math.ceil(20 * scale) + K + 2)]
        assert len(weights) == K
        for k, weight in enumerate(weights, start=1):
            assert 0 <= exact[k] - weight <= k * (k + 1)
        made_up = 2**bits + 2 * sum(weight + k * (k + 1) for k, weight in enumerate(weights, start=1))
        ratio = exact[K + 2] / exact[K + 1]
        series = exact[K + 1] / (1 - ratio)
        with_losses = (exact[K + 1] + (K + 1) * (K + 2)) / (1 - ratio - Decimal(2 * K + 3) / 2**bits)
        assert sum(exact[K + 1 :]) <= series
        assert made_up + 2 * series <= total <= made_up + 2 * with_losses + 2


def pick(table, draws):
    """Return the outcomes of draws of 192 bits each, which are fed as they are asked for."""
    # Further words are given once, and for exactly the draws whose first word is that of an entry.
    first_words = {entry >> 128 for entry in table.entries}
    ties = [draw for draw in draws if draw >> 128 in first_words]
    asked = []

    def more_bits(number):
        asked.append(number)
        return np.array([word for draw in ties for word in ((draw >> 64) % 2**64, draw % 2**64)], dtype=np.uint64)

    noise = samplers.outcomes(table, np.array([draw >> 128 for draw in draws], dtype=np.uint64), more_bits)
    assert noise.dtype == np.int64
    assert asked == ([2 * len(ties)] if ties else [])
    return noise.tolist()


def by_bisection(table, draws):
    """Return the outcomes of draws of 192 bits each by their definition."""
    return [bisect_right(table.entries, draw) - table.furthest for draw in draws]


@every_scale
def test_ties_are_decided_by_the_second_word_and_then_by_the_third(scale):
    """At every entry the entry itself gives the outcome above, one less the outcome below: so the law is the table's."""
    # Draws that share an entry's first word, or its second too, fall on the side of their bits; the least and the greatest give −K and K.
    table = samplers.noise_table(scale)
    ends = [0, 1, 2**64, 2**128 - 1, 2**128, 2**176 - 1, 2**176]
    draws = ends + [WHOLE - 1 - draw for draw in ends]
    for entry in table.entries:
        first, second, third = entry >> 128 << 128, (entry >> 64) % 2**64, entry % 2**64
        near = {0, max(second - 1, 0), min(second + 1, 2**64 - 1), 2**64 - 1}
        draws += [first | (word << 64) | third for word in near]
        draws += [first | (second << 64) | word for word in {0, max(third - 1, 0), third, 2**64 - 1}]
        draws.append(entry - 1)
    assert pick(table, draws) == by_bisection(table, draws)


@every_scale
def test_the_guide_is_right_about_every_draw(scale):
    """The first and the last draw that begin with some 16 bits have one outcome, the guide's, or it leaves them open."""
    # Outcomes ascend with the draw, so the draws between have it too.
    table = samplers.noise_table(scale)
    starts = [beginning << 176 for beginning in range(2**16)]
    lowest, highest = by_bisection(table, starts), by_bisection(table, [start + 2**176 - 1 for start in starts])
    decided = table.guide >= -table.furthest
    assert table.guide[decided].tolist() == np.array(lowest)[decided].tolist() == np.array(highest)[decided].tolist()
    assert (~decided).sum() == len({entry >> 176 for entry in table.entries})


@pytest.mark.parametrize("cells", [0, 1, 2 * 2**15, 2 * 2**15 + 7])
def test_every_cell_gets_its_own_eight_bytes(cells, monkeypatch):
    """The noise of cell i is the outcome of the i-th eight bytes that the system gave; no more are asked for."""
    given_bytes = np.random.default_rng(5).bytes(8 * cells)
    asked = []

    def urandom(size):
        asked.append(size)
        return given_bytes[sum(asked) - size : sum(asked)]

    monkeypatch.setattr(os, "urandom", urandom)
    true_counts = np.arange(cells)
    noisy = samplers.table_noise(true_counts, 50.0)
    bits = np.frombuffer(given_bytes, dtype=np.uint64)
    assert noisy.dtype == np.int64
    expected = samplers.outcomes(samplers.noise_table(50.0), bits, system_is_silent)
    assert (noisy - np.arange(cells)).tolist() == expected.tolist()
    assert true_counts.tolist() == list(range(cells))
    assert sum(asked) == 8 * cells


def system_is_silent(_):
    """Raise, as the operating system does when it has no entropy to give."""
    raise OSError(errno.EIO, "no entropy")


def test_without_entropy_the_sampler_stops(monkeypatch):
    """What the system's entropy raises passes through, whether the first bits fail or those that decide a tie."""
    for first in ([], [bytes(8)]):  # a first word of 0 ties with the lowest entries
        answers = iter(first)
        monkeypatch.setattr(os, "urandom", lambda size, answers=answers: next(answers, None) or system_is_silent(size))
        with pytest.raises(OSError, match="no entropy"):
            samplers.table_noise(np.zeros(1, dtype=np.int64), 3.0)


@pytest.mark.parametrize(("draw", "other", "most"), [
    (samplers.table_noise, "discrete_gaussian", samplers.LARGEST_TABLE_SCALE),
    (samplers.laplace_by_table, "discrete_laplace", samplers.LARGEST_LAPLACE_SCALE),
])  # fmt: skip
def test_beyond_the_limit_opendp_draws(draw, other, most, monkeypatch):
    """The next float after the limit goes to the other sampler; the limit itself has a table. What is not above 0 draws nothing."""
    called = []

    def spy(true_counts, scale):
        called.append(scale)
        return true_counts + 7

    monkeypatch.setattr(samplers, other, spy)
    nothing, beyond = np.zeros(3, dtype=np.int64), math.nextafter(most, math.inf)
    assert draw(nothing, beyond).tolist() == [7, 7, 7]
    draw(nothing, most)
    assert called == [beyond]
    monkeypatch.undo()
    for scale in (0.0, -0.0, -1.0, math.nan, -math.inf, math.inf):
        with pytest.raises(ValueError, match=r"^scale must be (finite and )?> 0"):
            draw(nothing, scale)
    with pytest.raises(ValueError, match="<= 16384 for a table, got 16384"):
        samplers.noise_table(math.nextafter(samplers.LARGEST_TABLE_SCALE, math.inf))


def test_a_table_that_is_further_from_its_law_than_is_charged_is_not_used(monkeypatch):
    """Where a table's own τ is above what every draw is charged, nothing is drawn from it."""
    monkeypatch.setattr(samplers, "_REACH", Fraction(12))
    samplers.noise_table.cache_clear()
    with pytest.raises(ValueError, match=r"must be within 2\*\*-120 of its law"):
        samplers.table_noise(np.zeros(3, dtype=np.int64), 57.0)
    samplers.noise_table.cache_clear()


# --- tables of discrete Laplace noise: bounds of their weights, and the privacy of their own outcomes


@given(scale=st.floats(0.01, 40.0), bits=st.integers(50, 300), reach=st.integers(1, 12))
def test_weights_of_laplace_noise_are_below_and_their_sum_above_the_exact_ones(scale, bits, reach):
    """No weight is above exp(−k/s), each lacks 2k units at most, and the sum is above that over all integers, hardly more."""
    with localcontext(prec=DIGITS):
        K = math.ceil(reach * scale)
        weights, total = samplers.laplace_weights_and_sum(Fraction(scale), K, bits)
        q = (-1 / Decimal(scale)).exp()
        for k, weight in enumerate(weights, 1):
            assert 0 <= q**k * (1 << bits) - weight <= 2 * k
        exact = (1 + q) / (1 - q) * (1 << bits)
        slack = 6 * (K + 2) ** 2 + 6 * (K + 2) / (1 - q) ** 2
        assert exact <= total <= exact + slack


@pytest.mark.parametrize("scale", [0.5, 1.0, 3.7])
@pytest.mark.parametrize("moved", [1, 2, 5])
def test_the_tables_own_outcomes_keep_epsilon_but_for_tau(scale, moved):
    """Summed over all outcomes, what the noise of a moved count exceeds e^ε times the other by is at most (1 + e^ε) τ."""
    with localcontext(prec=DIGITS):
        table = samplers.laplace_table(scale)
        masses, K = masses_of(table), table.furthest
        factor = (Decimal(moved) / Decimal(scale)).exp()
        of = {k: Decimal(mass) / WHOLE for k, mass in zip(range(-K, K + 1), masses, strict=True)}
        delta = sum(max(mass - factor * of.get(k - moved, Decimal(0)), Decimal(0)) for k, mass in of.items())
        tau = decimal(table.tau)
        assert delta <= (1 + factor) * tau
        less = (Decimal(moved) / Decimal(scale) * Decimal("0.99")).exp()
        assert sum(max(mass - less * of.get(k - moved, Decimal(0)), Decimal(0)) for k, mass in of.items()) > 10**9 * tau
