r"""Marks for rows that stand out from the noise, and what holds for cells however they were chosen.

Fix a level, and all noise above it. That fixes its M measured cells, and their noises are independent. Let an event have the
probability q for the noise of a cell, such as to go further than z, and let B be the number of cells that it befalls, which
is Bin(M, q). If R cells are chosen, in whatever way, also by looking at the noise, the event befalls at most B of them.

So take sizes R_1 > … > R_G from M to 1, a b < α, and for each size the greatest q_g with

.. math:: E (\mathrm{Bin}(M, q_g) - b R_g)_+ \le (\alpha - b) R_g / G

all of it from M and α alone. Whoever chooses R cells looks at the event of the greatest R_g <= R. Then the expected share of
the chosen cells that it befalls is at most α:

.. math:: E \max_g B_g / R_g \le b + \sum_g E (B_g - b R_g)_+ / R_g \le \alpha

A cell whose true count is 0 has a noisy count above m only if its noise is. So of the rows whose noisy count is above m, at most
B(m) are such cells, the number of measured cells whose noise is above m, whichever cells are rows. `tasks.uncertainty.signals` says
which m may be taken, given the least number of rows that are marked.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tasks.laws.gaussian import normal_quantile
from tasks.tree.axis import BoolArray, FloatArray, IntArray
from tasks.uncertainty.binomial import upper_tails

_RATIOS = (1.25, 1.6, 2.5, 5.0)  # of one size to the next
_PARTS = (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)  # b, in parts of α
_USUAL = 30  # sizes and the part b are judged by choices of at least one in 30 cells
_STEPS = 64  # at most; few are needed
_NEAR = 1e-8  # of q: the step after one that is smaller would be lost in rounding
_CARE = 1e-6  # of what the expectation may be: more than its floats lose


@dataclass(frozen=True, slots=True, eq=False)
class Tails:
    """Which tail of the noise may be taken for how many chosen cells.

    Attributes:
        sizes: how many cells are chosen at least, from M down to 1.
        log_tails: the logarithms of the probabilities q.
    """

    sizes: tuple[int, ...]
    log_tails: tuple[float, ...]

    def of(self, chosen: int) -> float:
        """Return log q for a number of chosen cells, >= 1."""
        return next(tail for size, tail in zip(self.sizes, self.log_tails, strict=True) if size <= chosen)


@lru_cache(maxsize=256)
def tails_of(measured: int, share: float) -> Tails:
    """Return which tail of the noise may be taken so that of the chosen cells at most a share is expected to lie in it.

    Args:
        measured: M, how many cells of the level were measured, >= 1.
        share: α, in (0, 1).
    """
    usual = [size for size in _sizes(measured, _RATIOS[0]) if size * _USUAL >= measured]
    tried = _largest_tails(measured, share)
    # the fewest standard deviations that a normal variable goes, to either side
    return min(tried, key=lambda tails: sum(normal_quantile(tails.of(size) - math.log(2)) for size in usual))


def _sizes(measured: int, ratio: float) -> tuple[int, ...]:
    sizes = [measured]
    while sizes[-1] > 1:
        sizes.append(int(sizes[-1] / ratio) or 1)
    return tuple(sizes)


def _largest_tails(measured: int, share: float) -> list[Tails]:
    """Return, for all choices of sizes and of the part b, the greatest log q of each size, all at once."""
    choices = [
        (sizes, part * share)
        for sizes in dict.fromkeys(_sizes(measured, ratio) for ratio in _RATIOS)
        for part in _PARTS
    ]
    lengths = [len(sizes) for sizes, _ in choices]
    of_size = np.array([size for sizes, _ in choices for size in sizes], dtype=np.float64)
    part = np.repeat([part for _, part in choices], lengths)
    most = (share - part) * of_size / np.repeat(lengths, lengths) * (1 - _CARE)
    beyond = part * of_size
    tails = (
        most + beyond
    ) / measured  # or less, since the expectation is at least M q - c; it is convex, and Newton's steps stay above
    for _ in range(_STEPS):
        excess, slope = expected_excess(measured, tails, beyond)
        step = (excess - most) / slope
        tails = tails - step
        if (step <= _NEAR * tails).all():
            break
    of_choices = np.split(np.log(tails), np.cumsum(lengths)[:-1])
    return [Tails(sizes, tuple(tails.tolist())) for (sizes, _), tails in zip(choices, of_choices, strict=True)]


def expected_excess(measured: int, tail: FloatArray, beyond: FloatArray) -> tuple[FloatArray, FloatArray]:
    r"""Return :math:`E (X - c)_+`, what a binomial variable X of M draws has beyond a number c, and :math:`P[X > c]`.

    Args:
        measured: M, >= 1.
        tail: q, in (0, 1).
        beyond: c, in [0, M), of the same shape.
    """
    whole = np.floor(beyond)
    exactly, more, excess = upper_tails(measured, tail, whole.astype(np.int64))
    part = beyond - whole  # of the next whole number
    slope = (excess + whole * more) / tail - part * exactly * (measured - whole) / (1 - tail)
    return excess - part * more, slope


Margin = int | IntArray  # of all rows, or of each


def signals(
    noisy: IntArray, measured: int, rate: float, margin_of: Callable[[float], Margin]
) -> tuple[BoolArray, Margin | None]:
    """Return which rows of a level stand out, and the margins above which their noisy counts are; None if no row does.

    Args:
        noisy: the noisy counts of the rows, int64, shape (rows,), records.
        margin_of: from the logarithm of a probability to what the noise of a row's cell exceeds with at most that probability.
    """
    log_tail = signal_tail(len(noisy), measured, rate, lambda tail: int(np.count_nonzero(noisy > margin_of(tail))))
    if log_tail is None:
        return np.zeros(len(noisy), dtype=bool), None
    margin = margin_of(log_tail)
    return noisy > margin, margin


def signal_tail(rows: int, measured: int, rate: float, above: Callable[[float], int]) -> float | None:
    """Return the logarithm of the probability that the margins of rows that stand out belong to; None if no row does.

    Args:
        above: from such a logarithm to how many noisy counts of rows are above its margins.
    """
    tails = tails_of(max(measured, 1), rate)
    for size, log_tail in zip(tails.sizes, tails.log_tails, strict=True):
        if size <= rows and above(log_tail) >= size:
            return log_tail
    return None


def signals_under_any_dependence(
    noisy: IntArray, measured: int, rate: float, margin_of: Callable[[float], Margin]
) -> tuple[BoolArray, Margin | None]:
    """Return which rows of a level stand out if the noises of its cells may depend on one another; as `signals`.

    If k rows are marked, the noise of a cell goes beyond its margin with a probability of at most k / M times the rate, divided by
    the sum of 1 / i for i to M. Numbers k of rows are tried from all of them down, each half of the one before.

    Source:
        Benjamini and Yekutieli (2001), Theorem 1.3; trying fewer k marks fewer rows.
    """
    harmonic = math.log(max(measured, 1)) + 1  # at least the sum
    size = len(noisy)
    while size:
        margin = margin_of(math.log(rate * size / (max(measured, 1) * harmonic)))
        marked = noisy > margin
        if np.count_nonzero(marked) >= size:
            return marked, margin
        size //= 2
    return np.zeros(len(noisy), dtype=bool), None
