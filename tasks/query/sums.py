r"""Intervals around sums of cells, from sealed noisy counts: they cover the truth of every fixed question, whatever was pruned.

A question is a box: an area of each axis. Its level k is the coarsest one of which it is whole cells. Look at the noise of all
cells that could be measured, as if all of it had been drawn up front. L levels bear noise, of which a are above k; each of
those takes δ of α, and level k keeps the rest.

- Which cells of level k are measured follows from the noise above k alone. Given that, the noise of those in the box, n of
  them, is the sum of n independent discrete Gaussians: it is within z, above and below, with probability 1 − (α − a δ).
- Of level j above, m_j cells meet the box; the question decides how many. Where that is one, its noise is not below −z_j with
  probability 1 − δ. Where they are more, δ/2 is shared among them, δ / 2 m_j each, and δ/2 goes to two sums: with probability
  1 − δ/4 the noise of those that were measured, M_j, is not below −s_j, and with 1 − δ/4 that of the measured children of those
  of them that stayed, C_j, which are not all in the box, is not above t_j. Both sets follow from the noise above their levels,
  and the sums are of as many independent discrete Gaussians as they have cells.

So with probability 1 − α all of this holds at once. A cell of M_j counts no more than its cap, max(0, x + z_j), and neither does
its part in the box. Those that were dropped, D_j, count together no more than their caps; and since children add up to those
that stayed, no more than x(M_j) + s_j less x(C_j) − t_j.

A cell in the box that was not measured lies in exactly one that was measured and dropped, at some level above, and meets the
box. Hence the truth is at least x − z, and at most x + z and what the D_j count, x the sum of the n noisy counts. For each level
above it is likewise at most what M_j counts, and what was dropped before. A box of one cell has m_j = 1 and n = 1: what is stated
of it is what the tables state.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

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
        below: the sum of the noisy counts of all measured children of the others, in the box or not, records; where more than
            one cell is possible.
        children: how many of those there are.
    """

    possible: int
    noisy: IntArray
    dropped: IntArray
    below: int = 0
    children: int = 0


@dataclass(frozen=True, slots=True)
class BoxInterval:
    """Where the true count of a box is.

    Attributes:
        low: records; likewise `high`.
        measured: cells of its level that were measured.
        dropped_under: how many dropped cells hold the others.
        cap: what those can count together at most, records.
        level_above: whose measured cells, with what was dropped before, count less than all that, and are `high`; None where
            none do.
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
    most = [
        _most_of(met, of_level, below, share) for met, (of_level, below) in zip(above, pairwise(sigmas), strict=False)
    ]
    measured, sigma = len(own.noisy), sigmas[len(above)]
    tail = 1 - confidence - share * sum(of_level > 0 for of_level in sigmas[: len(above)])
    z = gaussian_quantile(sigma, math.log(tail / 2), measured) if sigma and measured else 0
    total = int(own.noisy.sum())
    return _under(levels, most, max(total - z, 0), max(total + z, 0), count)


def _most_of(met: MetCells, sigma: float, sigma_below: float, share: float) -> tuple[int, int]:
    """Return what the measured cells of a level above count at most together, and those of them that were dropped, records.

    Args:
        met: what the box meets of it.
        sigma: σ of the level, records; likewise of the one below.
        share: δ.
    """
    if not sigma:
        return _capped(met, 0)
    if met.possible == 1 or not len(met.noisy):
        return _capped(met, gaussian_quantile(sigma, math.log(share) - math.log(met.possible)))
    of_all, of_dropped = _capped(met, gaussian_quantile(sigma, math.log(share / 2) - math.log(met.possible)))
    log_tail = math.log(share / 4)
    together = int(met.noisy.sum()) + gaussian_quantile(sigma, log_tail, len(met.noisy))
    stayed = met.below - (gaussian_quantile(sigma_below, log_tail, met.children) if met.children and sigma_below else 0)
    return min(of_all, max(together, 0)), min(of_dropped, max(together - max(stayed, 0), 0))


def _capped(met: MetCells, margin: int) -> tuple[int, int]:
    """Return what measured cells count at most, cell by cell, and those of them that were dropped."""
    caps = np.maximum(met.noisy + margin, 0)
    return int(caps.sum()), int(caps[met.dropped].sum())


def simultaneous_box_interval(levels: Sequence[MetCells], margins: Sequence[Margins], count: int) -> BoxInterval:
    """Return the interval of a box that holds together with those of all others, wherever those of all cells hold.

    Args:
        levels: as in `box_interval`.
        margins: of levels 0 to T, by `simultaneous_margins`.
        count: as in `box_interval`.
    """
    noisy, z = levels[-1].noisy, margins[len(levels) - 1].own
    low, high = int(np.maximum(noisy - z, 0).sum()), int(np.maximum(noisy + z, 0).sum())
    most = [_capped(met, of_level.cap) for met, of_level in zip(levels[:-1], margins, strict=False)]
    return _under(levels, most, low, high, count)


def _under(levels: Sequence[MetCells], most: Sequence[tuple[int, int]], low: int, high: int, count: int) -> BoxInterval:
    """Return the interval of a box from that of its own measured cells, and what all and the dropped ones above count at most."""
    cap, least, level_above = 0, math.inf, None
    for level, (of_all, of_dropped) in enumerate(most):
        if cap + of_all < least:
            least, level_above = cap + of_all, level
        cap += of_dropped
    if high + cap <= least:
        least, level_above = high + cap, None
    under = sum(len(met.dropped) for met in levels)
    return BoxInterval(min(low, count), max(int(least), count), len(levels[-1].noisy), under, cap, level_above)


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
