r"""Shares totals out by posterior quantiles: every sibling gets the same quantile of what it may count, so that all add up.

The prior of a cell is a mixture (`tasks.optimize.prior`), in units of its own deviation √u a function of m/√u alone. So it is tabulated for
steps of m/√u on a grid of counts in these units. Times the likelihood it is the posterior of the cell on the grid.

To share c out at one quantile minimises the expected sum of absolute errors, if siblings were independent of one another given their
estimates: it is where no record can be moved from one to another with a gain.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from tasks.optimize.prior import RATIOS, SPREAD, Families
from tasks.optimize.siblings import ascending_siblings
from tasks.tree.axis import FloatArray, IntArray

_CLEAR = 7.0  # deviations above 0 from which on the prior is taken to be flat around an estimate
_STEPS_OF_MEAN = 8  # in one octave of m/√u, of the tables
_BLOCK = 2**14  # cells whose posteriors are held at once, or up to twice as many where families are wide
_NORMAL = np.array([-4, -3.2, -2.6, -2.1, -1.7, -1.35, -1, -0.65, -0.3, 0, 0.3, 0.65, 1, 1.35, 1.7, 2.1, 2.6, 3.2, 4])
_QUANTILES = np.array([math.erfc(-at / math.sqrt(2)) / 2 for at in _NORMAL])
_FRACTION = 2**20  # of a record, to which remainders are compared

# the grid: nothing, and steps from 0 on, in deviations, of which the first are small, since small counts are
_EDGES = np.concatenate(([0.0, 0.02, 0.06, 0.14, 0.28], np.arange(0.5, 13.1, 0.25)))
_CENTRES = np.concatenate(([0.0], (_EDGES[1:] + _EDGES[:-1]) / 2)).astype(np.float32)
_POINTS = len(_CENTRES)
_HALVINGS = 5  # until two quantiles are next to one another
_TINY = 1e-30  # in place of 0, to divide by


def shared_out(families: Families, means: FloatArray, stratum: IntArray, prior: FloatArray) -> IntArray:
    """Return the counts of all cells of some families, by the posterior; each family's add up to its total.

    Args:
        means: m, shape (cells,), records, > 0.
        stratum: of the cells, the rows of the prior, shape (cells,).
        prior: of the level, as `fitted` returns it.
    Returns:
        int64, shape (cells,), records, >= 0.
    Guarantees:
        Post-processing: reads no true count. Deterministic, and for each family the same in whatever company it comes.
    """
    if not len(families):
        return np.zeros(0, dtype=np.int64)
    tables = _Tables(prior)
    blocks = np.unique(np.searchsorted(families.first, [*range(0, len(means), _BLOCK), len(means)]))
    counts = np.empty(len(means), dtype=np.int64)
    for start, stop in zip(blocks[:-1].tolist(), blocks[1:].tolist(), strict=True):
        cells = slice(families.first[start], families.first[stop])
        counts[cells] = _of_block(families[start:stop], means[cells], stratum[cells], tables)
    return counts


class _Tables:
    """The priors of a level on the grid, by steps of m/√u; each is computed when it is first needed."""

    def __init__(self, prior: FloatArray) -> None:
        self.prior = prior
        self._row: dict[tuple[int, int], int] = {}
        self._masses: list[FloatArray] = []
        self._all = np.zeros((0, _POINTS), dtype=np.float32)

    def masses(self, stratum: IntArray, ratio: FloatArray) -> NDArray[np.float32]:
        """Return the prior masses of cells on the grid, shape (points, cells), given their m/√u."""
        steps = np.floor(np.log2(ratio) * _STEPS_OF_MEAN).astype(np.int64)
        least = int(steps.min())
        span = int(steps.max()) - least + 1
        keys, of_cells = np.unique(stratum * span + (steps - least), return_inverse=True)
        rows = [self._row_of(int(key // span), int(key % span) + least) for key in keys]
        if len(self._masses) > len(self._all):
            self._all = np.array(self._masses, dtype=np.float32)
        masses: NDArray[np.float32] = np.ascontiguousarray(self._all[np.array(rows)].T)[:, of_cells]
        return masses

    def _row_of(self, stratum: int, step: int) -> int:
        if (stratum, step) not in self._row:
            self._row[stratum, step] = len(self._masses)
            self._masses.append(_masses(self.prior[stratum], 2 ** ((step + 0.5) / _STEPS_OF_MEAN)))
        return self._row[stratum, step]


def _masses(weights: FloatArray, ratio: float) -> FloatArray:
    """Return the prior mass of each step of the grid, the first of which is nothing, shape (points,)."""
    means = RATIOS * ratio
    below = scipy.special.ndtr((_EDGES[:, None] - means) / (SPREAD * means))
    below[0] = 0
    return np.concatenate((weights[:1], np.diff(below, axis=0) @ weights[1:-1]))


@dataclass(frozen=True, slots=True, eq=False)
class _Posteriors:
    """The posteriors of cells, in their own deviations.

    Attributes:
        mass: of all grid points up to each, float32, shape (points, cells), up to a factor for each cell.
        all: with that of all that the parent counts, float32, shape (cells,).
        estimates: z/√u, shape (cells,).
        clear: the cells whose estimate is clear of 0, where the posterior is normal.
    """

    mass: NDArray[np.float32]
    all: NDArray[np.float32]
    estimates: FloatArray
    clear: IntArray

    def quantiles(self, which: IntArray) -> FloatArray:
        """Return a quantile of each cell, by its number, shape (cells,); infinite where it is all that the parent counts."""
        sought = _QUANTILES[which].astype(np.float32) * self.all
        point = np.add.reduce(self.mass < sought, axis=0, dtype=np.int8).astype(np.int64)
        cells = np.arange(len(point))
        inside = np.minimum(point, _POINTS - 1)
        before, after = self.mass[np.maximum(inside - 1, 0), cells], self.mass[inside, cells]
        left = _EDGES[np.maximum(inside - 1, 0)]
        beyond, step = sought - before, after - before
        part = np.divide(beyond, step, out=np.zeros_like(step), where=(beyond > 0) & (beyond < step))
        quantiles = np.where(point == 0, 0.0, left + part * (_EDGES[inside] - left))
        quantiles[point == _POINTS] = np.inf
        quantiles[self.clear] = self.estimates[self.clear] + _NORMAL[which[self.clear]]
        return quantiles


def _posteriors(
    values: FloatArray, deviations: FloatArray, means: FloatArray, stratum: IntArray, caps: FloatArray, tables: _Tables
) -> _Posteriors:
    """Return the posteriors of cells.

    Args:
        values: z, shape (cells,), records.
        deviations: √u, shape (cells,), records.
        means: m, shape (cells,), records.
        stratum: of each, shape (cells,).
        caps: c, shape (cells,), records: what the parent of each counts.
    """
    estimates, most = values / deviations, caps / deviations
    likely = np.minimum(estimates, _CLEAR).astype(np.float32)
    mass = np.exp(_CENTRES[:, None] * likely - _CENTRES[:, None] ** 2 / 2)
    mass *= tables.masses(stratum, means / deviations)
    for point in range(1, _POINTS):
        mass[point] += mass[point - 1]
    of_all = tables.prior[stratum, -1] * np.exp(likely * most - most**2 / 2)
    return _Posteriors(mass, mass[-1] + of_all.astype(np.float32), estimates, np.flatnonzero(estimates > _CLEAR))


def _quantiles_of(
    values: FloatArray, deviations: FloatArray, means: FloatArray, stratum: IntArray, caps: FloatArray, tables: _Tables
) -> Callable[[IntArray], FloatArray]:
    """Return what gives a quantile of each cell in records; wide families' posteriors are not held, but made anew. Arguments as above."""

    def posteriors(part: slice) -> _Posteriors:
        return _posteriors(values[part], deviations[part], means[part], stratum[part], caps[part], tables)

    parts = [slice(first, first + 2 * _BLOCK) for first in range(0, len(values), 2 * _BLOCK)]
    held = posteriors(parts[0]) if len(parts) == 1 else None

    def quantiles(which: IntArray) -> FloatArray:
        of_parts = [(held or posteriors(part)).quantiles(which[part]) for part in parts]
        return np.clip(np.concatenate(of_parts) * deviations, 0, caps)

    return quantiles


def _of_block(families: Families, means: FloatArray, stratum: IntArray, tables: _Tables) -> IntArray:
    """Return the counts of some families: by bisection for the quantile at which each adds up, and a line between two of them."""
    family, caps = families.family, np.repeat(families.totals, families.sizes).astype(np.float64)
    quantiles = _quantiles_of(families.values, np.sqrt(families.variances), means, stratum, caps, tables)
    totals, starts = families.totals.astype(np.float64), families.first[:-1]
    low, high = np.full(len(families), -1), np.full(len(families), len(_QUANTILES))
    values_low = np.zeros(len(means))
    values_high = np.zeros(len(means))
    for _ in range(_HALVINGS):
        middle = np.clip((low + high) // 2, 0, len(_QUANTILES) - 1)
        values = quantiles(middle[family])
        reached = np.add.reduceat(values, starts) <= totals
        values_low = np.where(reached[family], values, values_low)
        values_high = np.where(reached[family], values_high, values)
        low, high = np.where(reached, middle, low), np.where(reached, high, middle)
    # what the highest quantile leaves goes by prior mean and estimate
    beyond = (high == len(_QUANTILES))[family]
    values_high = np.where(beyond, values_low + means + np.maximum(families.values, 0), values_high)
    sums_low, sums_high = (np.add.reduceat(values, starts) for values in (values_low, values_high))
    part = (totals - sums_low) / np.maximum(sums_high - sums_low, _TINY)
    return _whole(values_low + part[family] * (values_high - values_low), families)


def _whole(values: FloatArray, families: Families) -> IntArray:
    """Return whole numbers near to values that add up to each family's total: what is left goes to the largest remainders."""
    counts = np.floor(values).astype(np.int64)
    missing = families.totals - np.add.reduceat(counts, families.first[:-1])
    remainders = np.rint((values - counts) * _FRACTION).astype(np.int64)
    order = ascending_siblings(-remainders, families.sizes)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order)) - np.repeat(families.first[:-1], families.sizes)
    return counts + (rank < np.repeat(missing, families.sizes))
