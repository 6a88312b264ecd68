r"""Bounds on the error of released counts: before anything is drawn, and once they are released.

What the repair has done is known then: released minus noisy counts. With a probability of at least 1 − β no noise of any measured
cell of any level is above e, the quantile of that level:

.. math:: P[X > e_k] \le \frac{\beta}{2 L M_k}

with L measured levels, and M cells measured of level k, a number that the noise above fixes before any of level k is drawn. Then no
true count is more than max(x − y) + e above the released count y of its cell, x being the noisy one and y = 0 for a cell that is
left out. A cell that was not measured is left out, and counts no more than one above it that was measured and left out. And none
is further below y than y itself, or y − x + e.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import takewhile

import numpy as np

from tasks.laws.law import LevelNoise
from tasks.tree.axis import IntArray
from tasks.uncertainty.mixture import ABOVE_THE_NOISE

CONFIDENCE = 0.95
# σ of the logarithm of counts, from tables that are nearly even to tables in which few cells have most
UNEVEN = (1.0, 2.0, 3.0, 4.0)
WORTH = 0.01  # σ: where the mean count of a cell is less, a table of zeros is about as near to the truth as any


def chebyshev_bounds(
    noises: Sequence[LevelNoise], possible_cells: Sequence[int], confidence: float = CONFIDENCE
) -> list[float]:
    r"""Return, per level, a bound such that, with the given probability, the error of every node of the level is within it.

    .. math:: e_k = t_0(2 n_k / \beta) + 2 \sum_{l=1}^{k} t_l(2 n_k N_l / \beta)

    with n_k the number of measured levels down to k (k + 1 with a measured root, k with an exact one) and β one minus the
    confidence; t_l(x) is what the noise of level l reaches to one side with a probability of at most 1/x, which of a discrete
    Gaussian is √(2σ² ln x). Holds for InfTDA, level by level; it is not one statement about all levels at once.

    Args:
        possible_cells: N of levels 0 to T: how many cells each has, measured or not.
    Returns:
        The bounds of levels 0 to T, records; 0 where all levels down to that one are exact.
    Source:
        Boninsegna and Silvestri (2025): a union bound over the measured levels above, and at most twice the largest noise
        per level, because IntOpt moves no cell by more than the largest noise and the error of its parent. The root has
        no parent and no optimiser: its noise counts once.
    """
    beta = 1 - confidence
    bounds = []
    for level in range(len(noises)):
        down_to = list(zip(noises[: level + 1], possible_cells[: level + 1], strict=True))
        measured = sum(bool(noise) for noise, _ in down_to)
        bounds.append(
            math.fsum(
                (1 if above == 0 else 2) * noise.reach(math.log(2 * measured * cells) - math.log(beta))
                for above, (noise, cells) in enumerate(down_to)
                if noise
            )
        )
    return bounds


def bounds_of_sums(
    noises: Sequence[LevelNoise], possible_cells: Sequence[int], confidence: float = CONFIDENCE
) -> list[float]:
    r"""Return, per level, a bound such that, with the given probability, the error of every cell of the level is within it.

    .. math:: e_k = t_k(2 N_k / \beta)

    with β one minus the confidence, and t_k(x) what the noise of the widest cell of level k reaches to one side with a
    probability of at most 1/x: of w discrete Gaussians σ √(2w ln x). Holds for leaves that all bear noise, and
    levels that are their sums; level by level, not all levels at once. It holds as well for cells that are not listed:
    their count is 0, exactly as summed.

    The noise of a cell with fewer leaves reaches no further. So both sides together are reached with a probability of at
    most β/N_k, and a union over the N_k cells leaves β.

    Args:
        noises: of the widest cells of levels 0 to T.
    Returns:
        The bounds of levels 0 to T, records.
    """
    beta = 1 - confidence
    pairs = zip(noises, possible_cells, strict=True)
    return [noise.reach(math.log(2 * cells / beta)) for noise, cells in pairs]


def finest_above_noise(
    total: int,
    sigmas: Sequence[float],
    possible_cells: Sequence[int | None],
    threshold: int = 0,
    least: float = ABOVE_THE_NOISE,
) -> int | None:
    """Return the level down to which the mean count stands above the noise; None if it does not at the first one.

    The mean is the total spread evenly over the level's possible cells; it stands above the noise when it is at least twice the
    level's σ, or another multiple of it. Where leaves below a threshold are missing, all sums stand as long as a leaf of the mean size reaches it. Few cells
    are like the mean: `records_above_noise` says what may be expected of uneven tables.

    Args:
        total: public, records.
        sigmas: σ of levels 0 to T, records.
        possible_cells: N of levels 0 to T; where some are None, because no codebook lists them, no level is known to stand.
        threshold: the least count that a leaf is kept with, records; 0 where every leaf is.
        least: of the mean, in σ.
    """
    known = [cells for cells in possible_cells if cells is not None]
    if len(known) < len(possible_cells):
        return None
    if threshold:
        return len(known) - 1 if total >= threshold * known[-1] else None
    above = (total >= cells * Fraction(least * sigma) for sigma, cells in zip(sigmas[1:], known[1:], strict=True))
    return sum(takewhile(bool, above)) or None


def records_above_noise(total: int, sigma: float, possible_cells: int) -> tuple[float, float]:
    r"""Return between which shares of the records would be in cells that count more than twice σ, for typical shapes of tables.

    .. math:: \Phi\left(\frac{s}{2} - \frac{\ln(2 \sigma / \mu)}{s}\right)

    is that share where counts are lognormal with the mean μ and s the σ of their logarithm, from 1 to 4: as sizes of areas and
    flows between them are. Counts of real tables are whole, most of them 0.

    Returns:
        The least and the greatest share, in [0, 1].
    """
    if not sigma:
        return 1.0, 1.0
    if total <= 0:
        return 0.0, 0.0
    distance = math.log(ABOVE_THE_NOISE * sigma) + math.log(possible_cells) - math.log(total)
    shares = [math.erfc((distance / uneven - uneven / 2) / math.sqrt(2)) / 2 for uneven in UNEVEN]
    return min(shares), max(shares)


@dataclass(slots=True)
class Moves:
    """How far the repair has moved the noisy counts of a level.

    Attributes:
        reach: e, records.
        above: the most that a true count can be above the released one of its cell, records.
        below: the most that it can be below, likewise.
    """

    reach: int
    above: int = 0
    below: int = 0
    _cells: int = 0
    _sum: int = 0

    def add(self, noisy: IntArray, released: IntArray) -> None:
        """Add measured cells, with 0 as released count where there is no row, shape (cells,), records."""
        moved = released - noisy
        if len(moved):
            self.above = max(self.above, self.reach - int(moved.min()))
            self.below = max(self.below, int(np.minimum(moved + self.reach, released).max()))
            self._cells += len(moved)
            self._sum += int(moved.sum())

    def add_all(self, other: "Moves") -> None:
        """Add the cells of another part of the same level."""
        self.above, self.below = max(self.above, other.above), max(self.below, other.below)
        self._cells += other._cells
        self._sum += other._sum

    @property
    def bias(self) -> float:
        """Released minus noisy counts, the mean over the measured cells, records."""
        return self._sum / self._cells if self._cells else 0.0


def reach_after(noise: LevelNoise, measured: int, levels: int) -> int:
    """Return e, records; 0 where the level is exact.

    Args:
        levels: how many levels bear noise.
    """
    return noise.quantile(math.log((1 - CONFIDENCE) / (2 * levels * max(measured, 1)))) if noise else 0


def bounds_after(moves: Sequence[Moves]) -> list[int]:
    """Return, per level, what the error of no count exceeds, on any level, with a probability of `CONFIDENCE`, records."""
    bounds, above = [], 0
    for level in moves:
        above = max(above, level.above)
        bounds.append(max(above, level.below))
    return bounds
