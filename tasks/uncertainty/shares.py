"""How much of a level's rows is noise, and how much stands above it: what is known of a level once its noisy counts were seen."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tasks.laws.gaussian import gaussian_density
from tasks.laws.law import LevelNoise
from tasks.tree.axis import IntArray
from tasks.uncertainty.intervals import sum_margins
from tasks.uncertainty.mixture import STEPS, CountMixture, FloatArray
from tasks.uncertainty.noise_rows import LOG_TAILS, BeyondMargins, beyond

_DIGITS = 3  # of a share
_NOTHING = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of a level's rows, in [0, 1].

    Attributes:
        noise: of rows with a true count of 0, estimated; None where their counts follow from sums of the noisy counts of another
            level or view, or from a fitted prior, by which such an estimate is far off.
        noise_at_most: of such rows there are no more, but for a risk of `tasks.uncertainty.noise_rows.RISK`.
        rows_above: of rows with a true count above twice the noise, estimated.
        records_above: of the records in rows, those in such rows, estimated.
    """

    noise: float | None
    noise_at_most: float
    rows_above: float
    records_above: float


EXACT = Shares(0.0, 0.0, 1.0, 1.0)


@dataclass(slots=True)
class SeenCounts:
    """The noisy counts of a level that is measured, as they are read.

    Attributes:
        noise: of each cell.
    """

    noise: LevelNoise
    _mixture: CountMixture = field(init=False)
    _margins: list[int] = field(init=False)
    _beyond: BeyondMargins = field(init=False)
    _cells: int = 0
    _rows: int = 0

    def __post_init__(self) -> None:
        """Start without counts."""
        self._mixture = CountMixture(self.noise.density, self.noise.scale, self.noise.sigma)
        self._margins = [self.noise.quantile(log_tail) for log_tail in LOG_TAILS]
        self._beyond = beyond(_NOTHING, _NOTHING, self._margins)

    def groups(self, above: IntArray) -> IntArray:
        """Return by which the cells below some nodes are told apart, given the noisy counts of these nodes, records."""
        return self._mixture.groups(above)

    def add(self, cells: IntArray, group: IntArray) -> None:
        """Add the noisy counts of measured cells, shape (cells,), records, and their groups."""
        self._mixture.add_cells(cells, group)
        self._beyond += beyond(cells, _NOTHING, self._margins)
        self._cells += len(cells)

    def add_rows(self, rows: IntArray, group: IntArray) -> None:
        """Add the noisy counts of rows, each of which is a measured cell as well, shape (rows,), records, and their groups."""
        self._mixture.add_rows(rows, group)
        self._beyond += beyond(_NOTHING, rows, self._margins)
        self._rows += len(rows)

    def add_all(self, other: "SeenCounts") -> None:
        """Add the cells and rows of another part of the same level."""
        self._mixture.add_all(other._mixture)
        self._beyond += other._beyond
        self._cells += other._cells
        self._rows += other._rows

    def shares(self) -> Shares | None:
        """Return what is known of the rows; None where there is none."""
        return shares_from(self._mixture, self._beyond, self._cells, self._rows)


def shares_of_sums(noise: LevelNoise, noisy: IntArray, leaves: IntArray, cells: int) -> Shares | None:
    """Return what is known of the rows of a level whose cells are sums of noisy leaves; None where there is no row.

    Args:
        noise: of a leaf.
        noisy: of the rows: all cells whose noisy count is not 0, shape (rows,), records.
        leaves: of each row, shape (rows,).
        cells: how many the level has.
    """
    margins: Sequence[IntArray] = [sum_margins(noise, leaves, log_tail) for log_tail in LOG_TAILS]
    group = np.zeros(len(noisy), dtype=np.int64)
    if not len(leaves) or leaves.max() == 1:  # the noise of sums is taken to be normal, and that of leaves is not
        mixture = CountMixture(noise.density, noise.scale, noise.sigma)
        mixture.add_cells(noisy, group)
        mixture.add_rows(noisy, group)
    else:
        unit = noise.sigma * np.sqrt(leaves) / STEPS  # a step of each row's own noise
        steps = np.rint(noisy / unit).astype(np.int64)
        mixture = CountMixture(gaussian_density, STEPS, STEPS)
        mixture.add_cells(steps, group)
        mixture.add_rows(steps, group, unit)
    mixture.add_zeros(cells - len(noisy))
    return shares_from(mixture, beyond(noisy, noisy, margins), cells, len(noisy))


def normal_mixture(noisy: IntArray, deviations: FloatArray, rows: IntArray) -> CountMixture:
    """Return the noisy counts of all cells and of some, to estimate what those are, where their noise is taken to be normal.

    Args:
        noisy: int64, shape (cells,), records.
        deviations: the standard deviation of the noise of each, float64, shape (cells,), > 0, records.
        rows: the places of some cells.
    """
    unit = deviations / STEPS  # a step of each cell's own noise
    steps, group = np.rint(noisy / unit).astype(np.int64), np.zeros(len(noisy), dtype=np.int64)
    mixture = CountMixture(gaussian_density, STEPS, STEPS)
    mixture.add_cells(steps, group)
    mixture.add_rows(steps[rows], group[rows], unit[rows])
    return mixture


def shares_from(mixture: CountMixture, seen: BeyondMargins | None, cells: int, rows: int) -> Shares | None:
    """Return what is known of rows, from what was seen of their level; None where there is none.

    Args:
        mixture: of their counts.
        seen: how far counts are beyond margins; None where nothing follows from that, so that all rows may be noise.
        cells: how many cells the level has.
        rows: how many of them have a row.
    """
    if not rows:
        return None
    at_most, likely = share_at_most(seen, cells, rows) if seen else 1.0, mixture.likely()
    noise, rows_above, records_above = (
        round(share, _DIGITS) for share in (likely.noise, likely.rows_above, likely.records_above)
    )
    return Shares(min(noise, at_most), at_most, rows_above, records_above)


def share_at_most(seen: BeyondMargins, cells: int, rows: int) -> float:
    """Return which share of the rows has a true count of 0 at most, rounded up; the arguments are those of `at_most`."""
    return float(math.ceil(seen.at_most(cells, rows) / rows * 10**_DIGITS) / 10**_DIGITS)
