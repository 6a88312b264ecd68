"""Samplers: each adds noise of a given scale to whole chunks of true counts, OpenDP's exactly, the table's by inversion in integers (docs/proofs/sampler.md). None takes a seed.

A table cuts [0, 2¹⁹²) into one interval of integers per outcome. A draw is a uniform integer of 192 bits, of which only
the first 64 are drawn unless they leave open on which side of a cut it lies.
"""

import math
import os
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from tasks.accounting.opendp import gaussian_measurement, laplace_measurement
from tasks.tree.axis import IntArray


def discrete_gaussian(true_counts: IntArray, scale: float) -> IntArray:
    """Return true counts plus independent discrete Gaussian noise, drawn by OpenDP from the system's entropy.

    Guarantees:
        ρ-zCDP with ρ = `privacy_map(scale, Δ₂)` for histograms that differ by at most Δ₂ in the Euclidean norm.
    Raises:
        ValueError: the scale is not finite and positive (OpenDP accepts 0 and would return the data).
    Source:
        Canonne, Kamath and Steinke (2020); OpenDP's make_gaussian on integer vectors.
    """
    return np.asarray(gaussian_measurement(scale)(true_counts), dtype=np.int64)


def discrete_laplace(true_counts: IntArray, scale: float) -> IntArray:
    """Return true counts plus independent discrete Laplace noise, drawn by OpenDP from the system's entropy.

    Guarantees:
        ε-differential privacy with ε = `laplace_map(scale, Δ₁)` for histograms that differ by at most Δ₁ in the ℓ₁ norm.
    Source:
        Canonne, Kamath and Steinke (2020); OpenDP's make_laplace on integer vectors.
    """
    return np.asarray(laplace_measurement(scale)(true_counts), dtype=np.int64)


Words = NDArray[np.uint64]
Weights = Callable[[Fraction, int, int], tuple[list[int], int]]  # from a scale, K and a number of bits

LARGEST_TABLE_SCALE = 2.0**14  # 423,000 outcomes, 35 MB, a quarter of a second to build
LARGEST_LAPLACE_SCALE = 2.0**11  # 345,000 outcomes
LARGEST_TAU = Fraction(1, 2**120)  # of one draw; a table that is worse is not used
ENTRY_BITS = 192
_REACH = Fraction(129, 10)  # σ on either side; exp(−12.9²/2) < 2**-120
_REACH_OF_LAPLACE = Fraction(84)  # scales on either side; 2 exp(−84) < 2**-120
_GUIDE_BITS = 16
_UNDECIDED = np.iinfo(np.int32).min
_BLOCK = 2**15  # draws at a time, so that what they need stays in the cache


@dataclass(frozen=True, slots=True, eq=False)
class NoiseTable:
    """The cumulative distribution of discrete Gaussian or discrete Laplace noise of one scale, rounded to multiples of 2⁻¹⁹².

    Attributes:
        scale: σ or s, records; the float is taken as the rational number that it is.
        furthest: K; outcomes are the integers from −K to K.
        entries: 2¹⁹² P(noise ≤ −K), …, 2¹⁹² P(noise ≤ K − 1), ascending, exact.
        top_words: uint64, shape (2K,), the first 64 bits of each entry.
        guide: int32, shape (2**16,): the outcome of every draw that begins with these 16 bits, or _UNDECIDED where an
            entry begins with them too.
        tau: τ, an upper bound on the total variation distance of one draw from its law on all integers.
    """

    scale: float
    furthest: int
    entries: tuple[int, ...]
    top_words: Words
    guide: NDArray[np.int32]
    tau: Fraction


def table_noise(true_counts: IntArray, scale: float) -> IntArray:
    """Return true counts plus independent discrete Gaussian noise, drawn from a table by the system's entropy.

    Args:
        scale: σ, finite and > 0, in records. Beyond LARGEST_TABLE_SCALE OpenDP draws.
    Guarantees:
        Each cell's noise is within total variation distance LARGEST_TAU of the discrete Gaussian of `samplers`,
        and independent of all others. No seed: 64 bits a cell from `os.urandom`, more where they do not decide.
        Most of the time is spent without the interpreter's lock.
    Source:
        docs/proofs/sampler.md.
    """
    if not scale <= LARGEST_TABLE_SCALE:  # infinity, and what is not a number, is for OpenDP's sampler to refuse
        return discrete_gaussian(true_counts, scale)
    return _drawn(noise_table(scale), true_counts)


def laplace_by_table(true_counts: IntArray, scale: float) -> IntArray:
    """Return true counts plus independent discrete Laplace noise, drawn from a table by the system's entropy.

    Args:
        scale: s, finite and > 0, in records. Beyond LARGEST_LAPLACE_SCALE OpenDP draws.
    Guarantees:
        Each cell's noise is within total variation distance LARGEST_TAU of the discrete Laplace law of `samplers`, and
        independent of all others. No seed: 64 bits a cell from `os.urandom`, more where they do not decide.
    Source:
        docs/proofs/sampler.md.
    """
    if not scale <= LARGEST_LAPLACE_SCALE:
        return discrete_laplace(true_counts, scale)
    return _drawn(laplace_table(scale), true_counts)


def _drawn(table: NoiseTable, true_counts: IntArray) -> IntArray:
    noisy = np.empty(len(true_counts), dtype=np.int64)
    for start in range(0, len(true_counts), _BLOCK):
        block = true_counts[start : start + _BLOCK]
        noise = outcomes(table, system_words(len(block)), system_words)
        np.add(block, noise, out=noisy[start : start + _BLOCK])
    return noisy


def system_words(number: int) -> Words:
    """Return `number` words of 64 random bits each, from the operating system.

    Raises:
        OSError: the operating system provides no entropy.
    """
    return np.frombuffer(os.urandom(8 * number), dtype=np.uint64)


def outcomes(table: NoiseTable, bits: Words, more_bits: Callable[[int], Words]) -> IntArray:
    """Return the outcomes that random bits choose in a table.

    A draw's outcome is −K plus the number of entries that are at most the draw's 192 bits.

    Args:
        bits: uint64, shape (draws,), the first 64 bits of each draw.
        more_bits: returns a number of further words. It is called only if some first words equal those of entries, once, for
            two words per such draw, in their order.
    Returns:
        int64, shape (draws,), records.
    Guarantees:
        Deterministic. For uniform and independent bits the outcomes have the table's law exactly, and are independent.
    """
    noise = table.guide.take((bits >> (64 - _GUIDE_BITS)).view(np.int64), mode="clip").astype(np.int64)
    undecided = np.flatnonzero(noise == _UNDECIDED)
    if len(undecided):
        words = bits[undecided]
        passed = np.searchsorted(table.top_words, words)  # entries whose first word is less
        tied = np.flatnonzero(table.top_words.take(passed, mode="clip") == words)
        if len(tied):
            draws = np.column_stack((words[tied], more_bits(2 * len(tied)).reshape(-1, 2))).tolist()
            passed[tied] = [
                bisect_right(table.entries, (high << 128) | (middle << 64) | low) for high, middle, low in draws
            ]
        noise[undecided] = passed - table.furthest
    return noise


# No lock around building: a process that is forked while another thread builds would wait for it for ever. Two threads
# that want the same table at once build it twice.
@lru_cache(maxsize=16)
def noise_table(scale: float) -> NoiseTable:
    """Return the table of discrete Gaussian noise of scale σ, computed in integers alone.

    Raises:
        ValueError: the scale is not positive, not a number, or beyond LARGEST_TABLE_SCALE.
    """
    return _table(scale, LARGEST_TABLE_SCALE, _REACH, weights_and_sum)


@lru_cache(maxsize=16)
def laplace_table(scale: float) -> NoiseTable:
    """Return the table of discrete Laplace noise of scale s, computed in integers alone.

    Raises:
        ValueError: the scale is not positive, not a number, or beyond LARGEST_LAPLACE_SCALE.
    """
    return _table(scale, LARGEST_LAPLACE_SCALE, _REACH_OF_LAPLACE, laplace_weights_and_sum)


def _table(scale: float, largest: float, reach: Fraction, law: Weights) -> NoiseTable:
    """Return the table of outcomes as far as the reach, in scales, by a law's weights and their sum."""
    if not 0 < scale <= largest:
        raise ValueError(f"scale must be > 0, and <= {largest:g} for a table, got {scale}.")
    masses, tau = _masses(Fraction(scale), math.ceil(reach * Fraction(scale)), law)
    if tau > LARGEST_TAU:
        raise ValueError(f"the table of scale {scale} must be within 2**-120 of its law.")
    at_zero, *beside = masses
    furthest = len(beside)
    entries = tuple(accumulate([*reversed(beside), at_zero, *beside[:-1]])) if beside else ()
    top_words = np.array([entry >> (ENTRY_BITS - 64) for entry in entries], dtype=np.uint64)
    beginnings = (top_words >> (64 - _GUIDE_BITS)).astype(np.int64)
    inside = np.bincount(beginnings, minlength=2**_GUIDE_BITS)  # entries that begin with these bits
    guide = np.where(inside, _UNDECIDED, np.cumsum(inside) - furthest).astype(np.int32)
    for array in (top_words, guide):
        array.flags.writeable = False
    return NoiseTable(scale, furthest, entries, top_words, guide, tau)


def _masses(scale: Fraction, K: int, law: Weights) -> tuple[list[int], Fraction]:
    """Return 2¹⁹² P(noise = k) for k = 0, …, K, as integers, and τ.

    Every outcome except 0 gets its probability rounded down, and 0 gets the rest. The excess over the probability of 0 is
    the total variation distance.
    """
    bits = ENTRY_BITS + 3 * (K + 2).bit_length()  # so that all that rounding down loses is less than 2⁻¹⁹²
    weights, total = law(scale, K, bits)
    beside = [mass for w in weights if (mass := (w << ENTRY_BITS) // total)]
    at_zero = (1 << ENTRY_BITS) - 2 * sum(beside)
    return [at_zero, *beside], Fraction(at_zero, 1 << ENTRY_BITS) - Fraction(1 << bits, total)


def weights_and_sum(sigma: Fraction, K: int, bits: int) -> tuple[list[int], int]:
    """Return lower bounds of exp(−k²/2σ²) for k = 1, …, K, and an upper bound of its sum over all integers k.

    The weights follow from one another: w_{k+1} = w_k r_k and r_{k+1} = r_k q, with w_0 = 1, r_0 = exp(−1/2σ²) and
    q = exp(−1/σ²). All are kept in units of 2^−bits, and each product is rounded down: since no factor exceeds 1, it loses
    what its factors have lost and one unit. So r_k has lost 2k + 1 units at most, and w_k at most k(k + 1). From K + 1 on
    the weights fall faster than a geometric series of ratio r_{K+1}.

    Returns:
        Both in units of 2^−bits.
    """
    one = 1 << bits
    r, q = floor_of_exp(1 / (2 * sigma**2), bits), floor_of_exp(1 / sigma**2, bits)
    weights, w = [], one
    for _ in range(K + 1):
        w, r = w * r >> bits, r * q >> bits
        weights.append(w)
    beyond = (weights.pop() + (K + 1) * (K + 2)) * one // (one - r - (2 * K + 3)) + 1
    lost = K * (K + 1) * (K + 2) // 3  # Σ k(k + 1)
    return weights, one + 2 * (sum(weights) + lost + beyond)


def laplace_weights_and_sum(scale: Fraction, K: int, bits: int) -> tuple[list[int], int]:
    """Return lower bounds of exp(−k/s) for k = 1, …, K, and an upper bound of its sum over all integers k.

    w_0 = 1 and w_{k+1} = w_k q with q = exp(−1/s), in units of 2^−bits and each product rounded down. q has lost less than a
    unit, and a product loses what its factors have lost and one unit: so w_k has lost 2k units at most. From K + 1 on the
    weights are a geometric series of ratio q.

    Returns:
        Both in units of 2^−bits.
    """
    one = 1 << bits
    q = floor_of_exp(1 / scale, bits)
    weights, w = [], one
    for _ in range(K + 1):
        w = w * q >> bits
        weights.append(w)
    beyond = (weights.pop() + 2 * (K + 1)) * one // (one - q - 1) + 1
    lost = K * (K + 1)  # Σ 2k
    return weights, one + 2 * (sum(weights) + lost + beyond)


def floor_of_exp(x: Fraction, bits: int) -> int:
    """Return ⌊exp(−x) 2^bits⌋, exactly, for a rational x > 0.

    The Taylor series alternates, and its terms grow from 1 on and then shrink: once one is below 1, exp(−x) lies between
    the partial sums before and after it. They are kept as exact fractions until both have the same floor, which they come
    to, because exp(−x) is irrational.
    """
    if x >= bits:
        return 0
    partial = term = denominator = 1  # the partial sum and its last term are fractions of this denominator
    i, floor, floor_before = 0, 1, 0
    while floor != floor_before:
        i += 1
        term *= -x.numerator
        partial = partial * x.denominator * i + term
        denominator *= x.denominator * i
        floor, floor_before = (partial << bits) // denominator, ((partial - term) << bits) // denominator
    return floor
