"""The rows of a published table as numbers, and the intervals around their counts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tasks.tree.axis import BoolArray, IntArray
from tasks.tree.keys import AreaArray, order_of


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of one level.

    Attributes:
        areas: per axis, integers, shape (rows,): the number of the area at the axis level that the tree level has reached.
        counts: int64, shape (rows,), records.
        bounds: the ends of the intervals, int64, shape (rows,) each: low and high, then those of the simultaneous intervals if
            the spec asks for them. Empty where no interval is stated.
        signal: which rows stand out from the noise, bool, shape (rows,); None where nobody needs it.
    """

    areas: tuple[AreaArray, ...]
    counts: IntArray
    bounds: tuple[IntArray, ...] = ()
    signal: BoolArray | None = None

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, rows: "slice | IntArray") -> "Rows":
        bounds = tuple(ends[rows] for ends in self.bounds)
        signal = None if self.signal is None else self.signal[rows]
        return Rows(tuple(areas[rows] for areas in self.areas), self.counts[rows], bounds, signal)


class SlicedRows(Protocol):
    """Rows of one level in the order of their codes, of which slices can be had: in memory, or on disk."""

    def __len__(self) -> int:
        """Return how many rows there are."""

    def __getitem__(self, rows: slice, /) -> Rows:
        """Return the rows of a slice, whose step is 1."""


def slices(rows: SlicedRows, size: int) -> Iterator[Rows]:
    """Yield rows in slices of so many rows; the last may have fewer. Nothing is yielded if there are none."""
    return (rows[first : first + size] for first in range(0, len(rows), size))


def joined(parts: Sequence[Rows]) -> Rows:
    """Return the rows of one or more parts, one part after the other."""
    if len(parts) == 1:
        return parts[0]
    areas = tuple(np.concatenate(columns) for columns in zip(*(part.areas for part in parts), strict=True))
    bounds = tuple(np.concatenate(columns) for columns in zip(*(part.bounds for part in parts), strict=True))
    signals = [part.signal for part in parts if part.signal is not None]
    signal = np.concatenate(signals) if len(signals) == len(parts) else None
    return Rows(areas, np.concatenate([part.counts for part in parts]), bounds, signal)


def in_order(rows: Rows, sizes: Sequence[int]) -> Rows:
    """Return rows in the order of their areas' numbers, first axis first; `sizes` gives the number of areas per axis."""
    return rows[order_of(rows.areas, sizes)]
