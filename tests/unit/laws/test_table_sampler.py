"""The table of the table sampler against exact probabilities, and its draws bit by bit.

The exact law is computed a second time here, in decimals of 150 digits, each weight by its own exponential and without
recurrence, and shares no code with the tables.
"""

import errno
import math
import os
import sys
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from functools import cache
from itertools import count
from threading import Event, Thread
from typing import NoReturn

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tasks.laws import table_sampler as table_module
from tasks.laws.table_sampler import (
    LARGEST_TABLE_SCALE,
    LARGEST_TAU,
    NoiseTable,
    Words,
    floor_of_exp,
    noise_table,
    outcomes,
    table_noise,
    weights_and_sum,
)
from tasks.tree.axis import IntArray
from tests.support.noise_tables import DIGITS, UNIT, WHOLE, decimal, distance, masses_of

SCALES = [0.01, 0.07, 0.3, 1 / 3, 1.0, 3.7, 17.68, 50.0, 300.1]
every_scale = pytest.mark.parametrize("scale", SCALES)
scales = st.one_of(st.floats(0.01, 1.0), st.floats(1.0, 200.0))


@cache
def exact_law(scale: float) -> list[Decimal]:
    """Return P(noise = k) for k = 0, 1, 2, … until it is below 1e-140, to about 150 digits."""
    variance = Decimal(scale) * Decimal(scale)
    weights: list[Decimal] = []
    for k in count():
        weights.append((Decimal(-k * k) / (2 * variance)).exp())
        if weights[-1] < Decimal("1e-140"):
            break
    total = weights[0] + 2 * sum(weights[1:])
    return [weight / total for weight in weights]


@pytest.mark.parametrize(
    "scale", [*SCALES[:4], 2.0**10, *(pytest.param(scale, marks=pytest.mark.thorough) for scale in SCALES[4:])]
)
def test_tau_bounds_the_total_variation_distance_from_the_exact_law(scale: float) -> None:
    """The distance, summed over all outcomes with 150 digits, is at most τ, hardly less, and below 2**-120.

    The law of the next float is further from the table than τ, 2**50 times and more.
    """
    with localcontext(prec=DIGITS):
        table = noise_table(scale)
        true = distance(table, exact_law(scale))
        assert 0 < true <= decimal(table.tau) <= Decimal("1.01") * true + 4 * UNIT
        assert table.tau < Fraction(1, 2**120)
        if scale in (0.3, 17.68):
            assert distance(table, exact_law(math.nextafter(scale, 1e9))) > 2**50 * decimal(table.tau)


@every_scale
def test_entries_are_cumulative_probabilities(scale: float) -> None:
    """Each entry is within τ of the probability of the outcomes up to its own; they ascend, and every outcome can occur.

    Every outcome but 0 has at most its probability, and lacks two units of 2**-192 and 2**-120 of itself at most.
    """
    with localcontext(prec=DIGITS):
        table = noise_table(scale)
        law, masses = exact_law(scale), masses_of(table)
        below = [*law[:0:-1], *law]  # P(noise = k) from the lowest k up
        start = len(law) - 1 - table.furthest
        cumulative = sum(below[:start], Decimal(0))
        for entry, probability in zip(table.entries, below[start:], strict=False):
            cumulative += probability
            assert abs(Decimal(entry) / WHOLE - cumulative) <= decimal(table.tau)
        for mass, exact in zip(masses[table.furthest + 1 :], law[1:], strict=False):
            assert 0 <= exact - Decimal(mass) / WHOLE <= 2 * UNIT + exact / 2**120
    assert len(table.entries) == 2 * table.furthest
    assert min(masses) > 0
    assert sum(masses) == WHOLE


@given(scale=scales)
@example(scale=5e-324)
@example(scale=0.0503)
@example(scale=LARGEST_TABLE_SCALE)
def test_laws_of_every_table(scale: float) -> None:
    """A table is symmetric, reaches 12.9 σ at most, has the entries' first words, and a positive τ below 2**-120."""
    table = noise_table(scale)
    masses = masses_of(table)
    assert masses == masses[::-1]
    assert min(masses) > 0
    assert table.furthest <= math.ceil(12.9 * scale)
    assert scale < LARGEST_TABLE_SCALE or table.furthest > 12 * scale
    assert table.top_words.tolist() == [entry >> 128 for entry in table.entries]
    assert 0 < table.tau < LARGEST_TAU == Fraction(1, 2**120)


@given(x=st.fractions(min_value=Fraction(1, 10**9), max_value=300, max_denominator=10**12), bits=st.integers(1, 300))
@example(x=Fraction(1), bits=1)
@example(x=Fraction(200), bits=200)
@example(x=Fraction(199), bits=300)
@example(x=Fraction(1, 2**200), bits=250)
def test_the_exponential_is_rounded_down_exactly(x: Fraction, bits: int) -> None:
    """⌊exp(−x) 2^bits⌋ is what decimals of 250 digits say."""
    with localcontext(prec=250):
        exact = (-decimal(x)).exp() * 2**bits
        assert floor_of_exp(x, bits) == int(exact.to_integral_value(ROUND_FLOOR))


@settings(max_examples=40)
@given(scale=st.floats(0.01, 40.0), bits=st.integers(50, 300), reach=st.integers(1, 12))
@example(scale=0.01, bits=50, reach=12)
@example(scale=40.0, bits=50, reach=12)
def test_weights_are_below_and_their_sum_above_the_exact_ones(scale: float, bits: int, reach: int) -> None:
    """With however few bits w_k lacks 0 to k(k + 1) units, and the sum makes up for as many and for all beyond K.

    What lies beyond is a geometric series; what its first term and ratio may have lost is made up for too.
    """
    with localcontext(prec=DIGITS):
        K = math.ceil(reach * scale)
        weights, total = weights_and_sum(Fraction(scale), K, bits)
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


def pick(table: NoiseTable, draws: Sequence[int]) -> list[int]:
    """Return the outcomes of draws of 192 bits each, which are fed as they are asked for.

    Further words are given once, and for exactly the draws whose first word is that of an entry.
    """
    first_words = {entry >> 128 for entry in table.entries}
    ties = [draw for draw in draws if draw >> 128 in first_words]
    asked: list[int] = []

    def more_bits(number: int) -> Words:
        asked.append(number)
        return np.array([word for draw in ties for word in ((draw >> 64) % 2**64, draw % 2**64)], dtype=np.uint64)

    noise = outcomes(table, np.array([draw >> 128 for draw in draws], dtype=np.uint64), more_bits)
    assert noise.dtype == np.int64
    assert asked == ([2 * len(ties)] if ties else [])
    return noise.tolist()


def by_bisection(table: NoiseTable, draws: Sequence[int]) -> list[int]:
    """Return the outcomes of draws of 192 bits each by their definition."""
    return [bisect_right(table.entries, draw) - table.furthest for draw in draws]


@every_scale
def test_a_draw_changes_its_outcome_exactly_at_each_entry(scale: float) -> None:
    """At every entry: the entry itself gives the outcome above, one less the outcome below. So the law is the table's.

    The least and the greatest 192 bits give −K and K, whose first words tie; so they do with the words next to them.
    """
    table = noise_table(scale)
    K = table.furthest
    assert pick(table, table.entries) == list(range(-K + 1, K + 1))
    assert pick(table, [entry - 1 for entry in table.entries]) == list(range(-K, K))
    assert pick(table, [0, WHOLE - 1]) == [-K, K]
    ends = [0, 1, 2**64, 2**128 - 1, 2**128, 2**176 - 1, 2**176]
    draws = ends + [WHOLE - 1 - draw for draw in ends]
    assert pick(table, draws) == by_bisection(table, draws)


@pytest.mark.parametrize("scale", [3.7, 50.0])
def test_ties_are_decided_by_the_second_word_and_then_by_the_third(scale: float) -> None:
    """Draws that share an entry's first word, and draws that share its second too, fall on the side of their bits.

    In the tails many entries share a first word, in the middle none do; both kinds are there.
    """
    table = noise_table(scale)
    words = [entry >> 128 for entry in table.entries]
    assert len(set(words)) < len(words)
    for entry in table.entries:
        first, second, third = entry >> 128 << 128, (entry >> 64) % 2**64, entry % 2**64
        seconds = [
            first | (word << 64) | third for word in {0, max(second - 1, 0), min(second + 1, 2**64 - 1), 2**64 - 1}
        ]
        thirds = [first | (second << 64) | word for word in {0, max(third - 1, 0), third, 2**64 - 1}]
        draws = seconds + thirds
        assert pick(table, draws) == by_bisection(table, draws)


@every_scale
def test_the_guide_is_right_about_every_draw(scale: float) -> None:
    """The first and the last draw that begin with some 16 bits have one outcome, the guide's, or it leaves them open.

    Outcomes ascend with the draw, so the draws between have it too.
    """
    table = noise_table(scale)
    starts = [beginning << 176 for beginning in range(2**16)]
    lowest, highest = by_bisection(table, starts), by_bisection(table, [start + 2**176 - 1 for start in starts])
    decided = table.guide >= -table.furthest
    assert table.guide[decided].tolist() == np.array(lowest)[decided].tolist() == np.array(highest)[decided].tolist()
    assert (~decided).sum() == len({entry >> 176 for entry in table.entries})


@given(scale=scales, data=st.data())
def test_any_draws_in_any_order_get_the_outcomes_of_plain_bisection(scale: float, data: st.DataObject) -> None:
    """Draws all over the range and draws near entries, mixed, get what the definition says, each in its place."""
    table = noise_table(scale)
    anywhere = st.integers(0, WHOLE - 1)
    near = st.builds(
        lambda entry, step: min(max(entry + step, 0), WHOLE - 1),
        st.sampled_from(table.entries or (0,)),
        st.integers(-(2**130), 2**130) | st.integers(-(2**66), 2**66) | st.integers(-2, 2),
    )
    draws = data.draw(st.lists(anywhere | near, max_size=30))
    assert pick(table, draws) == by_bisection(table, draws)


@pytest.mark.parametrize("cells", [0, 1, 2 * 2**15, 2 * 2**15 + 7])
def test_every_cell_gets_its_own_eight_bytes(cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise of cell i is the outcome of the i-th eight bytes that the system gave; no more are asked for."""
    given_bytes = np.random.default_rng(5).bytes(8 * cells)
    asked: list[int] = []

    def urandom(size: int) -> bytes:
        asked.append(size)
        return given_bytes[sum(asked) - size : sum(asked)]

    monkeypatch.setattr(os, "urandom", urandom)
    true_counts = np.arange(cells)
    noisy = table_noise(true_counts, 50.0)
    bits = np.frombuffer(given_bytes, dtype=np.uint64)
    assert noisy.dtype == np.int64
    assert (noisy - np.arange(cells)).tolist() == outcomes(noise_table(50.0), bits, system_is_silent).tolist()
    assert true_counts.tolist() == list(range(cells))
    assert sum(asked) == 8 * cells


def system_is_silent(_: int) -> NoReturn:
    """Raise, as the operating system does when it has no entropy to give."""
    raise OSError(errno.EIO, "no entropy")


def test_without_entropy_the_sampler_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the system's entropy raises passes through, whether the first bits fail or those that decide a tie."""
    monkeypatch.setattr(os, "urandom", system_is_silent)
    with pytest.raises(OSError, match="no entropy"):
        table_noise(np.zeros(3, dtype=np.int64), 3.0)
    answers = iter([bytes(8)])  # a first word of 0 ties with the lowest entries
    monkeypatch.setattr(os, "urandom", lambda size: next(answers, None) or system_is_silent(size))
    with pytest.raises(OSError, match="no entropy"):
        table_noise(np.zeros(1, dtype=np.int64), 3.0)


def test_beyond_the_limit_opendp_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next float after the limit goes to the other sampler and costs no τ; the limit itself has a table, and a τ."""
    beyond = math.nextafter(LARGEST_TABLE_SCALE, math.inf)
    called: list[float] = []

    def spy(true_counts: IntArray, scale: float) -> IntArray:
        called.append(scale)
        return true_counts + 7

    monkeypatch.setattr(table_module, "discrete_gaussian", spy)
    assert table_noise(np.zeros(3, dtype=np.int64), beyond).tolist() == [7, 7, 7]
    table_noise(np.zeros(3, dtype=np.int64), LARGEST_TABLE_SCALE)
    assert called == [beyond]
    with pytest.raises(ValueError, match="<= 16384 for a table, got 16384"):
        noise_table(beyond)


@pytest.mark.parametrize("scale", [0.0, -0.0, -1.0, math.nan, -math.inf, math.inf])
def test_a_scale_that_is_not_finite_and_positive_has_no_noise(scale: float) -> None:
    """Such a scale is refused by the sampler and has no table."""
    with pytest.raises(ValueError, match=r"^scale must be (finite and )?> 0"):
        table_noise(np.zeros(3, dtype=np.int64), scale)
    with pytest.raises(ValueError, match=r"^scale must be > 0"):
        noise_table(scale)


def test_threads_that_build_at_once_get_the_same_table() -> None:
    """Whichever thread's table is kept, its entries, guide and τ are those of the others."""
    noise_table.cache_clear()
    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(noise_table, [33.3] * 4)
    for other in others:
        assert (other.entries, other.tau) == (first.entries, first.tau)
        assert (other.guide == first.guide).all()


def test_other_threads_run_while_a_table_draws() -> None:
    """A thread gets its turn while another draws, though the interpreter takes the lock from nobody who works."""
    turns: list[float] = []
    over = Event()

    def take_turns() -> None:
        while not over.is_set():
            turns.append(time.monotonic())
            time.sleep(1e-4)

    def turns_during(work: Callable[[], object]) -> int:
        start = time.monotonic()
        work()
        return sum(start < turn < time.monotonic() for turn in turns)

    def draw_until_turns_were_taken() -> None:
        so_far, deadline = len(turns), time.monotonic() + 60.0
        while len(turns) <= so_far + 10 and time.monotonic() < deadline:
            table_noise(cells, 50.0)

    cells = np.zeros(4_000_000, dtype=np.int64)
    interval = sys.getswitchinterval()
    other = Thread(target=take_turns)
    try:
        other.start()
        sys.setswitchinterval(1_000)
        assert turns_during(draw_until_turns_were_taken) > 10
        assert turns_during(lambda: sum(k for k in range(1_000_000))) == 0
    finally:
        sys.setswitchinterval(interval)
        over.set()
        other.join()


def test_a_table_that_is_further_from_its_law_than_is_charged_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a table's own τ is above what every draw is charged, nothing is drawn from it."""
    monkeypatch.setattr(table_module, "_REACH", Fraction(12))
    noise_table.cache_clear()
    with pytest.raises(ValueError, match=r"must be within 2\*\*-120 of its law"):
        table_noise(np.zeros(3, dtype=np.int64), 57.0)
    noise_table.cache_clear()
