r"""Intervals around released counts, from sealed noisy counts. They make one of two promises.

Those of rows, in the tables: of the rows of a level, at most a share α is expected not to be covered, however they came to be
rows (`tasks.uncertainty.signals`). The noise of a row's cell is taken to be within z, and an exact count above it is a cap.

Those of questions that are fixed beforehand: they cover the truth of every fixed cell with a probability of 1 − α, whatever
was pruned. Fix a cell, and look at the noise of all cells that hold it, as if all of it had been drawn up front. With probability 1 − α
its own noise is within z, above and below, and that of each cell above it no further below 0 than its margin. Then the truth
is at least x − z, and at most x + z and x' + z' of every cell above that was measured, because a cell counts no more than
one that holds it. A cell that was not measured has no x, and 0 below. α is shared out before anything is drawn.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.laws.law import LevelNoise
from tasks.tree.axis import IntArray
from tasks.uncertainty.signals import tails_of

CONFIDENCE = 0.9  # of intervals, where a spec says nothing

NO_CAP = 2**62  # above what any cell counts

_FEW, _STEP = 100, 0.02  # leaves of a sum that are taken as they are; logarithm of the ratio of those that are not


@dataclass(frozen=True, slots=True)
class Margins:
    """How far the noise of a level goes.

    Attributes:
        own: z of a cell of the level, to both sides, records.
        cap: z' of a cell of the level as one that holds others, downwards, records.
    """

    own: int
    cap: int


def row_log_tail(measured: int, rows: int, confidence: float) -> float:
    """Return the logarithm of the probability with which a row's noise may go beyond z, to one side."""
    return tails_of(max(measured, 1), 1 - confidence).of(max(rows, 1)) - math.log(2)


def row_margins(
    noises: Sequence[LevelNoise], measured: Sequence[int], rows: Sequence[int], confidence: float
) -> list[Margins]:
    """Return the margins of the rows of levels 0 to T; an exact level is a cap, and no other is.

    They are no narrower than those of a cell that is fixed beforehand, so that a row holds what `margins_of` says of its cell.
    """
    margins = []
    for noise, fixed, cells, there in zip(noises, margins_of(noises, confidence), measured, rows, strict=True):
        own = noise.quantile(row_log_tail(cells, there, confidence))
        margins.append(Margins(max(own, fixed.own), NO_CAP) if noise else Margins(0, 0))
    return margins


def margins_of(noises: Sequence[LevelNoise], confidence: float) -> list[Margins]:
    r"""Return the margins of the levels 0 to T.

    .. math:: \delta = \frac{\alpha / 2}{L - 1}, \qquad P[X' < -z'] \le \delta, \qquad P[|X| > z] \le \alpha - a \delta

    with L the number of levels that bear noise and a how many of them are above. The finest level keeps α/2 to itself.

    Args:
        noises: of levels 0 to T; a level that is exact has the margins 0.
    Raises:
        ValueError: a law has no quantiles.
    """
    alpha = 1 - confidence
    share = above_share(noises, confidence)
    margins, above = [], 0
    for noise in noises:
        if not noise:
            margins.append(Margins(0, 0))
            continue
        own = noise.quantile(math.log((alpha - above * share) / 2))
        margins.append(Margins(own, noise.quantile(math.log(share)) if share else own))
        above += 1
    return margins


def above_share(noises: Sequence[LevelNoise], confidence: float) -> float:
    """Return δ, the part of α that each level above a cell takes if it bears noise; 0 where no two levels do."""
    noisy = sum(map(bool, noises))
    return (1 - confidence) / 2 / (noisy - 1) if noisy > 1 else 0.0


def simultaneous_margins(
    noises: Sequence[LevelNoise], possible_cells: Sequence[int], confidence: float
) -> list[Margins]:
    r"""Return margins with which, with the given probability, the intervals of all cells of all levels hold at once.

    .. math:: P[|X| > z] \le \frac{\alpha}{L N_k}

    Args:
        possible_cells: N of levels 0 to T: every cell that could have been measured.
    """
    noisy = sum(map(bool, noises))
    margins = []
    for noise, cells in zip(noises, possible_cells, strict=True):
        tail = math.log((1 - confidence) / 2) - (math.log(noisy * cells) if noisy else 0.0)
        margin = noise.quantile(tail)
        margins.append(Margins(margin, margin))
    return margins


def caps(noisy: IntArray, margin: int, above: IntArray) -> IntArray:
    """Return the most that cells can count, by their own noisy counts and by what holds them.

    Args:
        noisy: x, shape (cells,), int64, records.
        margin: z' of their level.
        above: the caps of the cells that hold them, shape (cells,), int64; `NO_CAP` where nothing does.
    """
    return np.minimum(above, np.maximum(noisy + margin, 0))


def intervals(
    noisy: IntArray, margin: int | IntArray, above: int | IntArray, counts: IntArray
) -> tuple[IntArray, IntArray]:
    """Return the intervals of measured cells, low and high, with their released counts inside, or 0 where these are below it.

    Args:
        noisy: x, shape (cells,), int64, records.
        margin: z of their level, or of each.
        above: the caps of the cells that hold them; `NO_CAP` where there is none.
        counts: released, shape (cells,), int64, records.
    """
    low, inside = np.maximum(noisy - margin, 0), np.maximum(counts, 0)  # no true count is below 0
    high = np.minimum(np.maximum(noisy + margin, 0), above)
    return np.minimum(low, inside), np.maximum(high, inside)


def rounded_outwards(low: IntArray, high: IntArray, step: int) -> tuple[IntArray, IntArray]:
    """Return intervals that end at multiples of a step, outwards, so that they do not outright state what they are made from.

    Args:
        low: shape (cells,), int64, records; likewise `high`, which is not below it.
        step: > 0, records.
    """
    return low // step * step, -(-high // step) * step


def rounding_step(sigma: float) -> int:
    """Return of what intervals are multiples that are rounded for a level with noise of scale σ, records."""
    return max(1, math.ceil(sigma))


def sum_margins(noise: LevelNoise, leaves: IntArray, log_tail: float) -> IntArray:
    """Return z of cells that are sums of noisy leaves, shape (cells,), records, at most some percent too large.

    The noise of more leaves goes further, so that z may be that of a few leaves more: those of a geometric series, of which
    so few are computed as there are.

    Args:
        leaves: of each cell, shape (cells,), int64, >= 1.
        log_tail: the logarithm of the probability that the sum goes beyond z to one side.
    """
    steps = np.ceil(np.log(leaves) / _STEP).astype(np.int64)
    steps, which = np.unique(np.where(leaves <= _FEW, -leaves, steps), return_inverse=True)
    terms = [-int(step) if step < 0 else math.ceil(math.exp(int(step) * _STEP)) + 1 for step in steps]
    margins = np.array([noise.quantile(log_tail, number) for number in terms], dtype=np.int64)
    return margins[which]
