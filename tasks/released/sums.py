r"""Intervals around sums of cells, from sealed noisy counts. They cover the true count of every fixed box, whatever was pruned.

A query asks for a box: one area of each axis. Its level k is the coarsest level whose whole cells make up the box. Consider the
noise of all cells that could be measured, as if all of it had been drawn in advance. L levels have noise, and a of them are above
k. Each of those uses δ of α, and level k uses the rest.

- Which cells of level k are measured follows from the noise above k alone. Given that, the noise of those in the box, n of
  them, is the sum of n independent draws of its law: it is within z, above and below, with probability 1 − (α − a δ).
- At a level j above k, m_j cells overlap the box; the query fixes m_j. If m_j is one, the noise of that cell is not below −z_j
  with probability 1 − δ. If there are more cells, they share δ/2, which is δ / 2 m_j each, and two sums use the other δ/2. With
  probability 1 − δ/4, the noise of those that were measured, M_j, is not below −s_j in sum. With probability 1 − δ/4, the noise
  of C_j is not above t_j in sum; C_j are the measured children of those cells of M_j that were kept, and not all of them are in
  the box. Both sets follow from the noise above their levels, so each sum is one of independent draws, one per cell.

So with probability 1 − α all of this holds at once. A cell of M_j counts no more than its cap, max(0, x + z_j), and neither does
its part in the box. The dropped cells D_j count together no more than the sum of their caps. Since children add up to the cells
that were kept, the D_j also count together no more than x(M_j) + s_j less x(C_j) − t_j.

A cell in the box that was not measured lies in exactly one cell that was measured and dropped, at some level above, and that cell
overlaps the box. Hence the true count is at least x − z, and at most x + z plus what the D_j count, where x is the sum of the n
noisy counts. For each level above, it is also at most what M_j counts plus what was dropped before. A box of one cell has m_j = 1
and n = 1: its interval lies in that of its row, which makes another promise.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from storage.tables import NOISY
from tasks.laws.law import LevelNoise
from tasks.released.boxes import MetCells, each
from tasks.tree.axis import IntArray
from tasks.uncertainty.intervals import NO_CAP, Margins, above_share, sum_margins


@dataclass(frozen=True, slots=True, eq=False)
class BoxIntervals:
    """Intervals for the true counts of boxes, int64, shape (boxes,) each.

    Attributes:
        measured: cells of the boxes' level that were measured.
        dropped_under: how many dropped cells contain the others.
        cap: the most that those dropped cells can count together, records.
        level_above: the level whose measured cells, with what was dropped before, give a smaller `high` than the boxes' own level
            does; -1 if there is none.
    """

    low: IntArray
    high: IntArray
    measured: IntArray
    dropped_under: IntArray
    cap: IntArray
    level_above: IntArray


def box_intervals(
    levels: Sequence[MetCells], noises: Sequence[LevelNoise], confidence: float, count: IntArray
) -> BoxIntervals:
    """Return the intervals of boxes, extended to contain their released counts.

    Args:
        levels: the cells that the boxes meet, at levels 0 to k, their own.
        noises: of levels 0 to T; where a level is exact, a cap uses no probability.
        confidence: 1 − α, in (0, 1).
        count: the released counts, int64, shape (boxes,), records.
    Guarantees:
        Post-processing: reads no true count. For every fixed box, over all noise, it covers the true count with a
        probability of at least 1 − α; the proof is above.
    """
    *above, own = levels
    share = above_share(noises, confidence)
    most = [_most_of(met, noise, below, share) for met, (noise, below) in zip(above, pairwise(noises), strict=False)]
    log_tail = own_log_tail(noises, len(above), confidence)
    z = each(own.met.rows, lambda terms: noises[len(above)].quantile(log_tail, terms))
    total = own.met.sums(NOISY)
    return _under(levels, most, np.maximum(total - z, 0), np.maximum(total + z, 0), count)


def own_log_tail(noises: Sequence[LevelNoise], level: int, confidence: float) -> float:
    """Return the logarithm of the probability with which the noise of the boxes' own level may go beyond z, to one side."""
    share = above_share(noises, confidence)
    return math.log((1 - confidence - share * sum(map(bool, noises[:level]))) / 2)


def _most_of(met: MetCells, noise: LevelNoise, noise_below: LevelNoise, share: float) -> tuple[IntArray, IntArray]:
    """Return, per box, the most that the measured cells of a level above count together, and the dropped ones among them, records; δ is the share."""
    if not noise:
        return met.most(0)
    measured, is_sum = met.met.rows, (met.possible > 1) & (met.met.rows > 0)
    of_all, of_dropped = np.zeros_like(measured), np.zeros_like(measured)
    for log_share, chosen in ((math.log(share), ~is_sum), (math.log(share / 2), is_sum)):
        for possible in np.unique(met.possible[chosen]).tolist():
            boxes = np.flatnonzero(chosen & (met.possible == possible))
            of_all[boxes], of_dropped[boxes] = met.most(noise.quantile(log_share - math.log(possible)), boxes)
    if not (is_sum.any() and met.children):
        return of_all, of_dropped
    log_tail = math.log(share / 4)
    together = met.met.sums(NOISY) + each(measured, lambda terms: noise.quantile(log_tail, terms))
    children = met.met.sums(met.children.cells)
    stayed = met.met.sums(met.children.noisy) - each(children, lambda terms: noise_below.quantile(log_tail, terms))
    most_dropped = np.minimum(of_dropped, np.maximum(together - np.maximum(stayed, 0), 0))
    most_of_all = np.minimum(of_all, np.maximum(together, 0))
    return np.where(is_sum, most_of_all, of_all), np.where(is_sum, most_dropped, of_dropped)


def simultaneous_box_intervals(levels: Sequence[MetCells], margins: Sequence[Margins], count: IntArray) -> BoxIntervals:
    """Return the intervals of boxes that hold whenever the simultaneous intervals of all cells hold.

    Args:
        levels: as in `box_intervals`.
        margins: the margins of levels 0 to T, from `simultaneous_margins`.
        count: as in `box_intervals`.
    """
    own, z = levels[-1], margins[len(levels) - 1].own
    low, high = (own.met.sums(np.maximum(own.noisy + move, 0)) for move in (-z, z))
    most = [met.most(margin.cap) for met, margin in zip(levels[:-1], margins, strict=False)]
    return _under(levels, most, low, high, count)


def _under(
    levels: Sequence[MetCells],
    most: Sequence[tuple[IntArray, IntArray]],
    low: IntArray,
    high: IntArray,
    count: IntArray,
) -> BoxIntervals:
    """Return the intervals of boxes from those of their measured cells and the most that cells above them count."""
    cap, least, level_above = np.zeros_like(count), np.full_like(count, NO_CAP), np.full_like(count, -1)
    for level, (of_all, of_dropped) in enumerate(most):
        level_above = np.where(cap + of_all < least, level, level_above)
        least, cap = np.minimum(least, cap + of_all), cap + of_dropped
    level_above = np.where(high + cap <= least, -1, level_above)
    least = np.minimum(high + cap, least)
    under = np.sum([met.dropped for met in levels], axis=0)
    measured = levels[-1].met.rows
    return BoxIntervals(np.minimum(low, count), np.maximum(least, count), measured, under, cap, level_above)


def leaf_sum_intervals(
    total: IntArray, leaves: IntArray, noise: LevelNoise, log_tail: float, cells: int | IntArray = 1
) -> tuple[IntArray, IntArray]:
    """Return low and high of boxes whose leaves were all measured; a count below 0 lies outside.

    Args:
        total: the sums of the noisy counts of their leaves, which are their counts, int64, shape (boxes,), records.
        leaves: the number of leaves, or more, shape (boxes,); for several cells, the number in the largest cell.
        log_tail: the logarithm of the probability that the noise of the sum exceeds the margin on one side.
        cells: how many cells are added up; the noise of each is within its margin.
    """
    z = cells * sum_margins(noise, leaves, log_tail)
    return np.maximum(total - z, 0), np.maximum(total + z, 0)
