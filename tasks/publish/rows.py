"""The rows of a published table as numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.tree.axis import IntArray
from tasks.tree.keys import AreaArray, order_of


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of one level.

    Attributes:
        areas: per axis, integers, shape (rows,): the area's number at the axis level that the level has reached.
        counts: int64, shape (rows,), records.
    """

    areas: tuple[AreaArray, ...]
    counts: IntArray

    def __len__(self) -> int:
        return len(self.counts)

    def __getitem__(self, rows: "slice | IntArray") -> "Rows":
        return Rows(tuple(areas[rows] for areas in self.areas), self.counts[rows])


def joined(parts: Sequence[Rows]) -> Rows:
    """Return rows, at least one part of them, one after the other."""
    if len(parts) == 1:
        return parts[0]
    areas = tuple(np.concatenate(columns) for columns in zip(*(part.areas for part in parts), strict=True))
    return Rows(areas, np.concatenate([part.counts for part in parts]))


def in_order(rows: Rows, sizes: Sequence[int]) -> Rows:
    """Return rows in the order of their areas' numbers, first axis first; `sizes` has per axis how many areas there are."""
    return rows[order_of(rows.areas, sizes)]
