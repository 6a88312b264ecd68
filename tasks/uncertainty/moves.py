r"""Bounds on the error of released counts that are known once they are released.

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

import numpy as np

from tasks.laws.law import LevelNoise
from tasks.tree.axis import IntArray
from tasks.uncertainty.bounds import CONFIDENCE


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


def reach_after(noise: LevelNoise, cells: int, levels: int) -> int:
    """Return e, records; 0 where the level is exact.

    Args:
        noise: of each cell of the level.
        cells: how many of it were measured.
        levels: how many levels bear noise.
    """
    return noise.quantile(math.log((1 - CONFIDENCE) / (2 * levels * max(cells, 1)))) if noise else 0


def bounds_after(moves: Sequence[Moves]) -> list[int]:
    """Return, per level, what the error of no count exceeds, on any level, with a probability of `CONFIDENCE`, records."""
    bounds, above = [], 0
    for of_level in moves:
        above = max(above, of_level.above)
        bounds.append(max(above, of_level.below))
    return bounds
