r"""What the rows of a level are likely to be: estimates, of which nothing is promised.

The true counts of a level's cells are taken to be drawn from one unknown distribution on some atoms. Its weights are fitted to the
noisy counts of all measured cells by expectation and maximisation (Kiefer and Wolfowitz, 1956; Efron, 2016), which is stopped early,
so that they stay near a distribution with many zeros and a long tail where the noise says nothing. Then each row's true count has a
distribution by Bayes' rule.

Where the noise is large, distributions with very different shares of zeros fit about equally well. So how many rows have a true count of
0 is a range. For weights w of 0, let p be the distribution that fits the noisy counts N of the M cells best, by the bins b:

.. math:: \chi^2(w) = \min_{p: p_0 = w} \sum_b (N_b - M (K p)_b)^2 / (M f_b)

with K the law of the noise by bin, and f the fit from above. The range has all w with

.. math:: \chi^2(w) \le \min \chi^2 + c \max(1, \min \chi^2 / d)

c is the 99% quantile of χ² with one degree of freedom, and d what the least χ² is expected to be: where even the best distribution fits
worse than that, more is allowed. Of the R_b rows of a bin, at most a share is noise that is the likely share of its N_b cells, as the
greatest w has it: no mechanism prefers cells without records to equally noisy ones that have some. Of a bin, the least w
leaves a number of cells with records: rows beyond that number are noise, whichever cells were chosen.
"""

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from tasks.laws.law import Density
from tasks.tree.axis import FloatArray, IntArray

ABOVE_THE_NOISE = 2.0  # a count of 2 sigmas stands above the noise
RISK_OF_RANGE = 0.01  # with which chance alone takes the weight of 0 out of its range

_STEPS = 8  # of bins, to a sigma
_LEAST, _MOST = -6, 16  # of bins, in sigmas: what is below is in the first bin, and what is above is no noise
_FAR = 3  # times as far down, chances are added to the first bin
_POINTS = 16  # of a bin, at most, at which the density is taken
_RATIO = 1.3  # of one atom to the next
_GAP = 5  # sigmas between atoms, at most
_ROUNDS = 200
_HALVINGS = 10
_FEW = 0.5  # cells that a fit is taken to expect in a bin, at least
_HEAVY = 1e4  # weight of the rule that a distribution adds up to 1
_TINY = np.finfo(float).tiny


@dataclass(frozen=True, slots=True)
class Likely:
    """What the rows of a level are estimated to be.

    Attributes:
        least_noise: the least share of rows with a true count of 0 that agrees with the noisy counts.
        most_noise: the greatest such share.
        rows_above: the share of rows with a true count above twice the noise.
        records_above: the share of the records in rows that are in such rows.
    """

    least_noise: float
    most_noise: float
    rows_above: float
    records_above: float


class CountMixture:
    """The noisy counts of a level, in bins."""

    def __init__(self, density: Density, scale: float, sigma: float, terms: int = 1, one: float = 1.0) -> None:
        """Start without counts.

        Args:
            scale: of the noise, records.
            sigma: its standard deviation, records, > 0.
            terms: how many draws of such noise a cell bears.
            one: the least true count that is not 0, where noisy counts are in other units than records.
        """
        self._sigma, self._one = sigma, one
        self._step = max(1, int(sigma / _STEPS))
        wide = max(sigma, 1.0) / self._step
        self._first, self._last = int(np.floor(_LEAST * wide)), int(np.ceil(_MOST * wide))
        self._density, self._scale, self._terms = density, scale, terms
        self._cells = np.zeros(self._last - self._first + 2)  # the last bin for all that is above
        self._rows = np.zeros_like(self._cells)
        self._records = np.zeros_like(self._cells)

    def add_cells(self, noisy: IntArray, weight: float = 1.0) -> None:
        """Add the noisy counts of measured cells, records, each as `weight` cells."""
        self._cells += weight * self._binned(noisy)

    def add_rows(self, noisy: IntArray, records: FloatArray | None = None, weight: float = 1.0) -> None:
        """Add the noisy counts of rows.

        Args:
            noisy: shape (rows,), records.
            records: how many records one record of `noisy` stands for, shape (rows,); 1 where left out.
            weight: as how many rows each counts.
        """
        self._rows += weight * self._binned(noisy)
        weights = np.where(noisy // self._step > self._last, noisy, 1.0) * (1.0 if records is None else records)
        self._records += weight * self._binned(noisy, weights)

    def add_all(self, other: "CountMixture") -> None:
        """Add the cells and rows of another part of the same level, whose noise is the same."""
        self._cells += other._cells
        self._rows += other._rows
        self._records += other._records

    def _binned(self, noisy: IntArray, weights: FloatArray | None = None) -> FloatArray:
        place = np.clip(noisy // self._step, self._first, self._last + 1) - self._first
        return np.bincount(place, weights, len(self._cells)).astype(float)

    def likely(self) -> Likely:
        """Return what the rows are estimated to be."""
        rows, cells = self._rows.sum(), self._cells[:-1]
        if not rows:
            return Likely(0.0, 0.0, 0.0, 0.0)
        atoms = self._atoms()
        chance = self._chances(atoms)
        ones = atoms / self._one
        # the fit sets out from many zeros, and of larger counts ever fewer
        weights = np.where(ones == 0, 1.0, 0.5 * np.gradient(ones) / (ones + 1))
        weights /= weights.sum()
        for _ in range(_ROUNDS):
            weights *= chance.T @ (cells / np.maximum(chance @ weights, _TINY))
            weights /= max(weights.sum(), _TINY)
        fitted = chance @ weights
        likely_of_bins = chance * weights / np.maximum(fitted, _TINY)[:, None]  # bins, atoms
        of_rows = self._rows[:-1] @ likely_of_bins
        records = self._records[:-1] @ likely_of_bins * atoms
        is_above = atoms > ABOVE_THE_NOISE * self._sigma
        beyond, records_beyond = self._rows[-1], self._records[-1]
        least, most = noise_range(chance, cells, self._rows[:-1], fitted)
        return Likely(
            float(least / rows),
            float(most / rows),
            float((of_rows[is_above].sum() + beyond) / rows),
            float((records[is_above].sum() + records_beyond) / max(records.sum() + records_beyond, 1e-9)),
        )

    def _atoms(self) -> FloatArray:
        """Return the true counts that are looked at: 0 and a growing series, so close that each noisy count has one near it."""
        atoms, last = [0, 1], self._last * self._step / self._one
        furthest = int(_GAP * self._sigma / self._one)
        while atoms[-1] <= last:
            atoms.append(atoms[-1] + max(1, min(int(atoms[-1] * _RATIO) - atoms[-1], furthest)))
        return np.array(atoms[:-1]) * self._one

    def _chances(self, atoms: FloatArray) -> FloatArray:
        """Return how likely the noisy count of a cell is to be in a bin but the last, if not in that, shape (bins, atoms)."""
        points = min(self._step, _POINTS)
        within = (np.arange(points) + 0.5) * self._step / points - 0.5
        bins = np.arange(_FAR * self._first, self._last + 1)
        chances = np.zeros((len(bins), len(atoms)))
        for point in within:
            chances += self._density(bins[:, None] * self._step + point - atoms, self._scale, self._terms)
        below = (1 - _FAR) * self._first
        chances[below] += chances[:below].sum(axis=0)
        chances = chances[below:]
        chances /= chances.sum(axis=0)
        return chances


def noise_range(chance: FloatArray, cells: FloatArray, rows: FloatArray, fitted: FloatArray) -> tuple[float, float]:
    """Return between which numbers of rows are noise alone, as far as the noisy counts tell.

    Args:
        chance: of a noisy count in a bin, given the true count, of which the first one is 0, shape (bins, atoms).
        cells: how many there are in each bin, shape (bins,).
        rows: how many of these are rows, shape (bins,).
        fitted: how likely a cell is to be in a bin, as fitted, shape (bins,).
    """
    if not cells.any():
        return 0.0, 0.0
    fits = _Fits(chance, cells, fitted)
    try:
        least, most = (fits.empty(fits.furthest(end)) for end in (0.0, 1.0))
    except RuntimeError:  # the solver gave up, and nothing is known
        return 0.0, float(rows.sum())
    return float(np.maximum(rows - cells * (1 - least), 0).sum()), float(rows @ most)


class _Fits:
    """Distributions of true counts that fit the noisy counts of some cells; arguments are those of `noise_range`."""

    def __init__(self, chance: FloatArray, cells: FloatArray, fitted: FloatArray) -> None:
        """Find the distribution that fits best.

        Raises:
            RuntimeError: the solver finds none.
        """
        measured = cells.sum()
        expected = np.maximum(measured * fitted, _FEW)
        self._chance = chance
        self._system = np.vstack((measured * chance / np.sqrt(expected)[:, None], np.full(chance.shape[1], _HEAVY)))
        self._aim = np.append(cells / np.sqrt(expected), _HEAVY)
        self._best, least = self._solve(0, self._aim)
        freedom = max(float((measured * fitted / expected).sum()), 1.0)
        self._allowed = least + NormalDist().inv_cdf(RISK_OF_RANGE / 2) ** 2 * max(1.0, least / freedom)

    def furthest(self, end: float) -> FloatArray:
        """Return a distribution that fits well enough, with a weight of 0 as near to an end, 0 or 1, as there is one."""
        fit = self._at(end)
        if fit is not None:
            return fit
        near, far, fit = self._best[0], end, self._best
        for _ in range(_HALVINGS):
            middle = (near + far) / 2
            tried = self._at(middle)
            near, far, fit = (near, middle, fit) if tried is None else (middle, far, tried)
        return fit

    def empty(self, weights: FloatArray) -> FloatArray:
        """Return how likely a cell of each bin is to have a true count of 0, by Bayes' rule, shape (bins,)."""
        likely: FloatArray = weights[0] * self._chance[:, 0] / np.maximum(self._chance @ weights, _TINY)
        return likely

    def _at(self, weight: float) -> FloatArray | None:
        """Return the distribution that fits best with a weight of 0; None where it does not fit well enough."""
        others, miss = self._solve(1, self._aim - weight * self._system[:, 0])
        return np.append(weight, others) if miss <= self._allowed else None

    def _solve(self, first: int, aim: FloatArray) -> tuple[FloatArray, float]:
        system = self._system[:, first:]
        weights = _non_negative(system, aim)
        return weights, float(((system @ weights - aim) ** 2).sum())


def _non_negative(system: FloatArray, aim: FloatArray) -> FloatArray:
    """Return the weights >= 0 with which a system comes nearest to an aim, as `scipy.optimize.nnls`, whose import takes longer than this.

    Args:
        system: shape (rows, weights).
        aim: shape (rows,).
    Raises:
        RuntimeError: none are found.
    Source:
        Lawson and Hanson (1974), Solving Least Squares Problems, chapter 23.
    """
    weights = np.zeros(system.shape[1])
    used = np.zeros(len(weights), dtype=bool)
    least = 10 * max(system.shape) * np.finfo(float).eps * np.abs(system).sum(axis=0).max()
    for _ in range(3 * len(weights)):
        gains = np.where(used, 0.0, system.T @ (aim - system @ weights))
        added = int(gains.argmax())
        if gains[added] <= least:
            return weights
        used[added] = True
        while True:
            fitted = np.zeros(len(weights))
            fitted[used] = np.linalg.lstsq(system[:, used], aim, rcond=None)[0]
            falling = used & (fitted <= 0)
            if not falling.any():
                break
            steps = np.full(len(weights), np.inf)
            steps[falling] = weights[falling] / (weights[falling] - fitted[falling])
            weights += steps.min() * (fitted - weights)
            used &= steps > steps.min()
            weights[~used] = 0.0
        if not used[added]:  # what it would gain is rounding
            return weights
        weights = fitted
    raise RuntimeError("No weights are found.")
