r"""What the rows of a level are likely to be: estimates, of which nothing is promised.

The true counts of a group of cells are taken to be drawn from one unknown distribution on some atoms. Its weights are fitted to the
noisy counts of all measured cells of the group by expectation and maximisation (Kiefer and Wolfowitz, 1956; Efron, 2016), which
are stopped early, so that they stay near a distribution with many zeros and a long tail where the noise says nothing. Then each row's
true count has a distribution by Bayes' rule. Groups are cells below nodes with similar noisy counts, because a cell in an empty
place is more likely to be empty.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.laws.law import Density
from tasks.tree.axis import IntArray

FloatArray = NDArray[np.float64]

ABOVE_THE_NOISE = 2.0  # a count of so many sigmas stands above the noise

_EDGES = np.array([0, 1, 2, 4, 8, 16, 32, 64, 128, 256])  # of groups: noisy counts of nodes above, in sigmas
_GROUPS = len(_EDGES) + 1
STEPS = 8  # of bins, to a sigma
_LEAST, _MOST = -6, 16  # of bins, in sigmas: what is below is in the first bin, and what is above is no noise
_RATIO = 1.3  # of one atom to the next
_ROUNDS = 200


@dataclass(frozen=True, slots=True)
class Likely:
    """What the rows of a level are estimated to be.

    Attributes:
        noise: the share of rows with a true count of 0.
        rows_above: the share of rows with a true count above twice the noise.
        records_above: the share of the records in rows that are in such rows.
    """

    noise: float
    rows_above: float
    records_above: float


class CountMixture:
    """The noisy counts of a level, in bins, by group of cells.

    Noise and counts are in steps: of one record, or more where the noise is large.
    """

    def __init__(self, density: Density, scale: float, sigma: float) -> None:
        """Start without counts.

        Args:
            density: of the noise.
            scale: of the noise, records.
            sigma: its standard deviation, records, > 0.
        """
        self._sigma = sigma
        self._step = max(1, int(sigma / STEPS))
        wide = max(sigma, 1.0) / self._step
        self._first, self._last = int(np.floor(_LEAST * wide)), int(np.ceil(_MOST * wide))
        self._bins = np.arange(self._first, self._last + 2)  # the last one for all that is above
        self._density, self._scale = density, scale / self._step
        self._cells = np.zeros((_GROUPS, len(self._bins)))
        self._rows = np.zeros_like(self._cells)
        self._records = np.zeros_like(self._cells)  # in a row's steps

    def groups(self, above: IntArray) -> IntArray:
        """Return the groups of cells by the noisy counts of the nodes above them, records."""
        return np.searchsorted(_EDGES * self._sigma, above, side="right")

    def add_cells(self, noisy: IntArray, group: IntArray) -> None:
        """Add the noisy counts of measured cells, records, and their groups."""
        self._cells += self._binned(noisy, group)

    def add_zeros(self, cells: int) -> None:
        """Add so many measured cells with a noisy count of 0, of the first group."""
        self._cells[0, -self._first] += cells

    def add_rows(self, noisy: IntArray, group: IntArray, records: FloatArray | None = None) -> None:
        """Add the noisy counts of rows, and their groups.

        Args:
            noisy: shape (rows,), records.
            group: shape (rows,).
            records: how many records one record of `noisy` stands for, shape (rows,); 1 where left out.
        """
        self._rows += self._binned(noisy, group)
        steps = self._steps(noisy)
        weights = np.where(steps > self._last, steps, 1.0) * (1.0 if records is None else records)
        self._records += self._binned(noisy, group, weights)

    def add_all(self, other: "CountMixture") -> None:
        """Add the cells and rows of another part of the same level, whose noise is the same."""
        self._cells += other._cells
        self._rows += other._rows
        self._records += other._records

    def _steps(self, noisy: IntArray) -> IntArray:
        return np.rint(noisy / self._step).astype(np.int64) if self._step > 1 else noisy

    def _binned(self, noisy: IntArray, group: IntArray, weights: FloatArray | None = None) -> FloatArray:
        steps = self._steps(noisy)
        place = np.clip(steps, self._first, self._last + 1) - self._first + group * len(self._bins)
        return np.bincount(place, weights, self._cells.size).astype(float).reshape(self._cells.shape)

    def likely(self) -> Likely:
        """Return what the rows are estimated to be."""
        rows, cells = self._rows.sum(), self._cells[:, :-1].T
        if not rows:
            return Likely(0.0, 0.0, 0.0)
        atoms = self._atoms()
        chance = self._density(self._bins[:-1, None] - atoms, self._scale)
        chance /= chance.sum(axis=0)
        weights = _first_weights(atoms * self._step)
        for _ in range(_ROUNDS):
            weights *= chance.T @ (cells / np.maximum(chance @ weights, np.finfo(float).tiny))
            weights /= np.maximum(weights.sum(axis=0), np.finfo(float).tiny)
        likely_of_bins = chance[:, :, None] * weights  # bins, atoms, groups
        likely_of_bins /= np.maximum(likely_of_bins.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        of_rows = np.einsum("gb,bag->a", self._rows[:, :-1], likely_of_bins)
        records = np.einsum("gb,bag->a", self._records[:, :-1], likely_of_bins) * atoms
        is_above = atoms * self._step > ABOVE_THE_NOISE * self._sigma
        beyond, records_beyond = self._rows[:, -1].sum(), self._records[:, -1].sum()
        return Likely(
            float(of_rows[0] / rows),
            float((of_rows[is_above].sum() + beyond) / rows),
            float((records[is_above].sum() + records_beyond) / max(records.sum() + records_beyond, 1e-9)),
        )

    def _atoms(self) -> FloatArray:
        """Return the true counts that are looked at, in steps: 0 and a growing series of records."""
        records = [0, 1]
        while records[-1] <= self._last * self._step:
            records.append(max(records[-1] + 1, int(records[-1] * _RATIO)))
        return np.array(records[:-1]) / self._step


def _first_weights(atoms: FloatArray) -> FloatArray:
    """Return the weights of true counts from which the fit sets out, per group: many zeros, and of larger counts ever fewer."""
    weights = np.where(atoms == 0, 1.0, 0.5 * np.gradient(atoms) / (atoms + 1))
    return np.tile((weights / weights.sum())[:, None], _GROUPS)
