r"""Intervals around sums of cells, from sealed noisy counts: they cover the truth of every fixed question, whatever was pruned.

A question is a box: an area of each axis. Its level k is the coarsest one of which it is whole cells. Look at the noise of all
cells that could be measured, as if all of it had been drawn up front. L levels bear noise, of which a are above k.

- Of level j above, m_j cells meet the box; the question decides how many. With probability 1 − δ, the noise of none of them is
  below −z_j: each takes δ / m_j of α, one-sided. Then each counts no more than its cap, max(0, x + z_j), and neither does its
  part in the box.
- Which cells of level k are measured follows from the noise above k alone. Given that, the noise of those in the box, n of
  them, is the sum of n independent discrete Gaussians: it is within z, above and below, with probability 1 − (α − a δ).

So with probability 1 − α all of this holds at once. A cell in the box that was not measured lies in exactly one that was
measured and dropped, at some level above, and meets the box. Hence the truth is at least x − z, and at most x + z and the
caps of the dropped cells, x the sum of the n noisy counts. Of each level above it is likewise at most the caps of the cells
measured there that meet the box, and of those dropped before. A box of one cell has m_j = 1 and n = 1: what is stated of it
is what the tables state.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.tree.axis import IntArray
from tasks.validate.intervals import Margins, above_share, sum_margins
from tasks.validate.quantiles import gaussian_quantile


@dataclass(frozen=True, slots=True, eq=False)
class MetCells:
    """The cells of a level that a box meets.

    Attributes:
        possible: how many there could be.
        noisy: x of those that were measured, shape (cells,), int64, records.
        dropped: which of those, rows, were measured and nothing below them; of the level of the box none.
    """

    possible: int
    noisy: IntArray
    dropped: IntArray


@dataclass(frozen=True, slots=True)
class BoxInterval:
    """Where the true count of a box is.

    Attributes:
        low: records; likewise `high`.
        measured: cells of its level that were measured.
        dropped_under: how many dropped cells hold the others.
        cap: what those can count together at most, records.
        level_above: of the level whose caps are below all that, and are `high`; None where none are.
    """

    low: int
    high: int
    measured: int
    dropped_under: int
    cap: int
    level_above: int | None


def box_interval(levels: Sequence[MetCells], sigmas: Sequence[float], confidence: float, count: int) -> BoxInterval:
    """Return the interval of a box, with its released count inside.

    Args:
        levels: what it meets of levels 0 to k, its own.
        sigmas: σ of levels 0 to T, records; 0 where a level is exact, and a cap costs nothing.
        confidence: 1 − α, in (0, 1).
        count: released, records.
    Guarantees:
        Post-processing: reads no true count. For every fixed box, over all noise, it covers the true count with at least the
        probability 1 − α; proof above.
    """
    *above, own = levels
    share = above_share(sigmas, confidence)
    margins = [
        gaussian_quantile(sigma, math.log(share / met.possible)) if sigma else 0
        for met, sigma in zip(above, sigmas, strict=False)
    ]
    measured, sigma = len(own.noisy), sigmas[len(above)]
    tail = 1 - confidence - share * sum(of_level > 0 for of_level in sigmas[: len(above)])
    z = gaussian_quantile(sigma, math.log(tail / 2), measured) if sigma and measured else 0
    total = int(own.noisy.sum())
    return _under_caps(levels, margins, max(total - z, 0), max(total + z, 0), count)


def simultaneous_box_interval(levels: Sequence[MetCells], margins: Sequence[Margins], count: int) -> BoxInterval:
    """Return the interval of a box that holds together with those of all others, wherever those of all cells hold.

    Args:
        levels: as in `box_interval`.
        margins: of levels 0 to T, by `simultaneous_margins`.
        count: as in `box_interval`.
    """
    noisy, z = levels[-1].noisy, margins[len(levels) - 1].own
    low, high = int(np.maximum(noisy - z, 0).sum()), int(np.maximum(noisy + z, 0).sum())
    return _under_caps(levels, [of_level.cap for of_level in margins[: len(levels) - 1]], low, high, count)


def _under_caps(levels: Sequence[MetCells], margins: Sequence[int], low: int, high: int, count: int) -> BoxInterval:
    """Return the interval of a box of whose own measured cells that is known, with what the levels above say of it."""
    *above, own = levels
    cap, under, least, level_above = 0, 0, math.inf, None
    for level, (met, margin) in enumerate(zip(above, margins, strict=True)):
        caps = np.maximum(met.noisy + margin, 0)
        if cap + int(caps.sum()) < least:
            least, level_above = cap + int(caps.sum()), level
        cap, under = cap + int(caps[met.dropped].sum()), under + len(met.dropped)
    if high + cap <= least:
        least, level_above = high + cap, None
    return BoxInterval(min(low, count), max(int(least), count), len(own.noisy), under, cap, level_above)


def leaf_sum_interval(total: int, leaves: int, sigma: float, log_tail: float, *, cells: int = 1) -> tuple[int, int]:
    """Return the interval of a box of which every leaf was measured, low and high, with its count inside.

    Args:
        total: of the noisy counts of its leaves, which is its count, records.
        leaves: how many there are, or more; of several cells, of the largest.
        sigma: σ of a leaf, records.
        log_tail: the logarithm of the probability that the sum goes beyond to one side.
        cells: how many are added up, the noise of each of which is within its margin.
    """
    z = cells * int(sum_margins(sigma, np.array([leaves]), log_tail)[0])
    return min(max(total - z, 0), total), max(total + z, 0)
