r"""Marks for rows that stand out from the noise: of a level's marked rows, few are expected to have a true count of 0.

A cell whose true count is 0 has a noisy count above m only if its noise is. So of the rows whose noisy count is above m, at most
B(m) are such cells, the number of measured cells whose noise is above m, whichever cells are rows. `tasks.uncertainty.selection` says
which m may be taken if so many rows are marked at least.
"""

import math
from collections.abc import Callable

import numpy as np

from tasks.tree.axis import BoolArray, IntArray
from tasks.uncertainty.selection import tails_of

Margin = int | IntArray  # of all rows, or of each


def signals(
    noisy: IntArray, cells: int, rate: float, margin_of: Callable[[float], Margin]
) -> tuple[BoolArray, Margin | None]:
    """Return which rows of a level stand out, and the margins above which their noisy counts are; None if no row does.

    Args:
        noisy: the noisy counts of the rows, int64, shape (rows,), records.
        cells: how many cells of the level were measured.
        rate: of the marked rows, the share that is expected to have a true count of 0 at most.
        margin_of: from the logarithm of a probability to what the noise of a row's cell exceeds with at most that probability.
    """
    log_tail = signal_tail(len(noisy), cells, rate, lambda tail: int(np.count_nonzero(noisy > margin_of(tail))))
    if log_tail is None:
        return np.zeros(len(noisy), dtype=bool), None
    margin = margin_of(log_tail)
    return noisy > margin, margin


def signal_tail(rows: int, cells: int, rate: float, above: Callable[[float], int]) -> float | None:
    """Return the logarithm of the probability that the margins of rows that stand out belong to; None if no row does.

    Args:
        rows: how many rows the level has.
        cells: as in `signals`; likewise `rate`.
        above: from such a logarithm to how many noisy counts of rows are above its margins.
    """
    tails = tails_of(max(cells, 1), rate)
    for size, log_tail in zip(tails.sizes, tails.log_tails, strict=True):
        if size <= rows and above(log_tail) >= size:
            return log_tail
    return None


def signals_under_any_dependence(
    noisy: IntArray, cells: int, rate: float, margin_of: Callable[[float], Margin]
) -> tuple[BoolArray, Margin | None]:
    """Return which rows of a level stand out if the noises of its cells may depend on one another; as `signals`.

    If k rows are marked, the noise of a cell goes beyond its margin with a probability of at most k / M times the rate, divided by
    the sum of 1 / i for i to M. Numbers k of rows are tried from all of them down, each half of the one before.

    Source:
        Benjamini and Yekutieli (2001), Theorem 1.3; trying fewer k marks fewer rows.
    """
    harmonic = math.log(max(cells, 1)) + 1  # at least the sum
    size = len(noisy)
    while size:
        margin = margin_of(math.log(rate * size / (max(cells, 1) * harmonic)))
        marked = noisy > margin
        if np.count_nonzero(marked) >= size:
            return marked, margin
        size //= 2
    return np.zeros(len(noisy), dtype=bool), None
