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

from tasks.laws.law import LevelNoise
from tasks.tree.axis import IntArray
from tasks.uncertainty.intervals import Margins, above_share, sum_margins


@dataclass(frozen=True, slots=True, eq=False)
class MetCells:
    """The cells of a level that a box overlaps.

    Attributes:
        possible: how many cells are possible.
        noisy: x, the noisy counts of the measured cells, shape (cells,), int64, records.
        dropped: rows of the measured cells below which nothing was measured; empty at the level of the box.
        below: the sum of the noisy counts of all measured children of the other cells, in the box or not, records; set where
            more than one cell is possible.
        children: how many such children there are.
    """

    possible: int
    noisy: IntArray
    dropped: IntArray
    below: int = 0
    children: int = 0


@dataclass(frozen=True, slots=True)
class BoxInterval:
    """An interval for the true count of a box.

    Attributes:
        low: the lower end, records.
        high: the upper end, records.
        measured: cells of the box's level that were measured.
        dropped_under: how many dropped cells contain the others.
        cap: the most that those dropped cells can count together, records.
        level_above: the level whose measured cells, with what was dropped before, give a smaller `high` than the box's own level
            does; None if there is none.
    """

    low: int
    high: int
    measured: int
    dropped_under: int
    cap: int
    level_above: int | None


def box_interval(
    levels: Sequence[MetCells], noises: Sequence[LevelNoise], confidence: float, count: int
) -> BoxInterval:
    """Return the interval of a box, extended to contain its released count.

    Args:
        levels: the cells that the box overlaps, at levels 0 to k, its own.
        noises: of levels 0 to T; where a level is exact, a cap uses no probability.
        confidence: 1 − α, in (0, 1).
        count: the released count, records.
    Guarantees:
        Post-processing: reads no true count. For every fixed box, over all noise, it covers the true count with a
        probability of at least 1 − α; the proof is above.
    """
    *above, own = levels
    share = above_share(noises, confidence)
    most = [
        _most_of(met, of_level, below, share) for met, (of_level, below) in zip(above, pairwise(noises), strict=False)
    ]
    tail = 1 - confidence - share * sum(map(bool, noises[: len(above)]))
    z = noises[len(above)].quantile(math.log(tail / 2), len(own.noisy))
    total = int(own.noisy.sum())
    return _under(levels, most, max(total - z, 0), max(total + z, 0), count)


def _most_of(met: MetCells, noise: LevelNoise, noise_below: LevelNoise, share: float) -> tuple[int, int]:
    """Return the most that the measured cells of a level above count together, and the dropped ones among them, records.

    Args:
        met: the cells of that level that the box overlaps.
        noise: of the level.
        noise_below: of the level below it.
        share: δ.
    """
    if not noise:
        return _capped(met, 0)
    if met.possible == 1 or not len(met.noisy):
        return _capped(met, noise.quantile(math.log(share) - math.log(met.possible)))
    of_all, of_dropped = _capped(met, noise.quantile(math.log(share / 2) - math.log(met.possible)))
    log_tail = math.log(share / 4)
    together = int(met.noisy.sum()) + noise.quantile(log_tail, len(met.noisy))
    stayed = met.below - noise_below.quantile(log_tail, met.children)
    return min(of_all, max(together, 0)), min(of_dropped, max(together - max(stayed, 0), 0))


def _capped(met: MetCells, margin: int) -> tuple[int, int]:
    """Return the most that measured cells count, by the caps of the cells, and the most that the dropped ones count."""
    caps = np.maximum(met.noisy + margin, 0)
    return int(caps.sum()), int(caps[met.dropped].sum())


def simultaneous_box_interval(levels: Sequence[MetCells], margins: Sequence[Margins], count: int) -> BoxInterval:
    """Return the interval of a box that holds whenever the simultaneous intervals of all cells hold.

    Args:
        levels: as in `box_interval`.
        margins: the margins of levels 0 to T, from `simultaneous_margins`.
        count: as in `box_interval`.
    """
    noisy, z = levels[-1].noisy, margins[len(levels) - 1].own
    low, high = int(np.maximum(noisy - z, 0).sum()), int(np.maximum(noisy + z, 0).sum())
    most = [_capped(met, of_level.cap) for met, of_level in zip(levels[:-1], margins, strict=False)]
    return _under(levels, most, low, high, count)


def _under(levels: Sequence[MetCells], most: Sequence[tuple[int, int]], low: int, high: int, count: int) -> BoxInterval:
    """Return the interval of a box from that of its measured cells and the most that cells above it count."""
    cap, least, level_above = 0, math.inf, None
    for level, (of_all, of_dropped) in enumerate(most):
        if cap + of_all < least:
            least, level_above = cap + of_all, level
        cap += of_dropped
    if high + cap <= least:
        least, level_above = high + cap, None
    under = sum(len(met.dropped) for met in levels)
    return BoxInterval(min(low, count), max(int(least), count), len(levels[-1].noisy), under, cap, level_above)


def leaf_sum_interval(
    total: int, leaves: int, noise: LevelNoise, log_tail: float, *, cells: int = 1
) -> tuple[int, int]:
    """Return low and high of a box whose leaves were all measured; a count below 0 lies outside.

    Args:
        total: the sum of the noisy counts of its leaves, which is its count, records.
        leaves: the number of leaves, or more; for several cells, the number in the largest cell.
        noise: of a leaf.
        log_tail: the logarithm of the probability that the noise of the sum exceeds the margin on one side.
        cells: how many cells are added up; the noise of each is within its margin.
    """
    z = cells * int(sum_margins(noise, np.array([leaves]), log_tail)[0])
    return max(total - z, 0), max(total + z, 0)
