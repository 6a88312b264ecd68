"""The rows of a level while they are read, in memory or on disk: they come in runs, and slices of them are read in the order of their codes."""

import math
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from tasks.format.tables import Rows, in_order, joined
from tasks.laws.law import LevelNoise
from tasks.tree.axis import IntArray
from tasks.tree.keys import packed, unpacked
from tasks.uncertainty.bounds import Moves
from tasks.uncertainty.intervals import Margins, intervals, rounded_outwards
from tasks.uncertainty.noise_rows import SeenCounts

_LARGEST_KEY = 2**63 - 1
_KEY, _COUNT, _NOISY, _BOUNDS = 0, 1, 2, 3  # columns of a run; the ends of intervals are the last ones


def fit_on_disk(sizes: Sequence[int]) -> bool:
    """Return whether the areas of rows fit in a key of 64 bits, given how many areas each axis has."""
    return math.prod(sizes) <= _LARGEST_KEY


def sorted_run(rows: Rows, noisy: IntArray, sizes: Sequence[int]) -> IntArray:
    """Return rows with their noisy counts, records, as they are kept: a key, counts and bounds, sorted by the key.

    Args:
        rows: no two of them have the same areas.
        noisy: shape (rows,).
    Returns:
        int64, shape (columns, rows).
    Raises:
        ValueError: they do not fit.
    """
    keys = packed(rows.areas, sizes)
    if keys is None:
        raise ValueError(f"The areas of axes of {sizes} areas do not fit in one key.")
    order = np.argsort(keys)
    return np.stack([column.take(order) for column in (keys, rows.counts, noisy, *rows.bounds)]).astype(
        np.int64, copy=False
    )


class RowsInMemory:
    """The rows of a level in memory, as `RowsOnDisk` keeps them on disk."""

    def __init__(self, sizes: Sequence[int], *, is_in_order: bool) -> None:
        """Start without rows.

        Args:
            is_in_order: whether the rows come in the order of their codes.
        """
        self._sizes, self._is_in_order = sizes, is_in_order
        self._rows, self._noisy = list[Rows](), list[IntArray]()

    def __len__(self) -> int:
        return sum(map(len, self._rows))

    def prepared(self, rows: Rows, noisy: IntArray) -> tuple[Rows, IntArray]:
        """Return rows with their noisy counts as `add` takes them."""
        return rows, noisy

    def add(self, run: tuple[Rows, IntArray]) -> None:
        """Add rows, from `prepared`."""
        self._rows.append(run[0])
        self._noisy.append(run[1])

    def count_above(self, margin: int) -> int:
        """Return how many rows have a noisy count above a margin, records."""
        return sum(int(np.count_nonzero(noisy > margin)) for noisy in self._noisy)

    def mark(self, margin: int | None) -> None:
        """Mark the rows whose noisy counts are above a margin, records, as those that stand out; None marks none."""
        marked = [noisy > margin if margin is not None else np.zeros(len(noisy), dtype=bool) for noisy in self._noisy]
        rows = joined([replace(part, signal=of) for part, of in zip(self._rows, marked, strict=True)])
        self._rows, self._noisy = [], []  # before a copy in another order is made
        self._rows.append(rows if self._is_in_order else in_order(rows, self._sizes))

    def __getitem__(self, rows: slice) -> Rows:
        return self._rows[0] if rows == slice(None) else self._rows[0][rows]


class RowsOnDisk:
    """The rows of a level, which are added in runs, and read in slices in the order of their codes.

    They are in a file without a name, which is gone with this object, or with the process. The areas of a row are one key, by which
    each run is sorted.
    """

    def __init__(self, folder: Path, sizes: Sequence[int]) -> None:
        """Start without rows.

        Args:
            folder: where there is room for the file.
            sizes: per axis, how many areas there are; they fit (`fit_on_disk`).
        """
        self._file = TemporaryFile(dir=folder)  # noqa: SIM115 (it lives as long as the rows)
        weakref.finalize(self, self._file.close)
        self._sizes, self._runs, self._columns = list(sizes), list[tuple[int, int]](), 0
        self._rows, self._margin = 0, None  # type: tuple[int, int | None]

    def __len__(self) -> int:
        return self._rows

    def prepared(self, rows: Rows, noisy: IntArray) -> IntArray:
        """Return rows with their noisy counts as `add` takes them; it may be called in any thread."""
        return sorted_run(rows, noisy, self._sizes)

    def add(self, run: IntArray) -> None:
        """Add rows that are sorted, from `sorted_run`."""
        columns, rows = run.shape
        if rows:
            self._runs.append((self._file.tell() // 8, rows))
            self._file.write(run.data)
            self._file.flush()
            self._columns, self._rows = columns, self._rows + rows

    def count_above(self, margin: int) -> int:
        """Return how many rows have a noisy count above a margin, records."""
        return sum(int(np.count_nonzero(run[_NOISY] > margin)) for run in self._mapped())

    def mark(self, margin: int | None) -> None:
        """Mark the rows whose noisy counts are above a margin, records, as those that stand out; None marks none."""
        self._margin = margin

    def __getitem__(self, rows: slice) -> Rows:
        first, end, _ = rows.indices(len(self))
        runs = self._mapped()
        begins, ends = (self._places(runs, rank) for rank in (first, end))
        cut = np.concatenate([run[:, begin:stop] for run, begin, stop in zip(runs, begins, ends, strict=True)], axis=1)
        cut = cut[:, np.argsort(cut[_KEY])]
        marked = np.zeros(cut.shape[1], dtype=bool) if self._margin is None else cut[_NOISY] > self._margin
        return Rows(unpacked(cut[_KEY], self._sizes), cut[_COUNT], tuple(cut[_BOUNDS:]), marked)

    def _mapped(self) -> list[IntArray]:
        """Return the runs as they are on disk, shape (columns, rows) each."""
        if not self._runs:
            return []
        mapped = np.asarray(np.memmap(self._file, dtype=np.int64, mode="r"))
        return [mapped[first : first + self._columns * rows].reshape(self._columns, rows) for first, rows in self._runs]

    def _places(self, runs: Sequence[IntArray], rank: int) -> list[int]:
        """Return, per run, how many of its rows are among the first ones of all, given how many these are."""

        def before(key: int) -> list[int]:
            return [int(np.searchsorted(run[_KEY], np.int64(key))) for run in runs]

        low, high = 0, math.prod(self._sizes)  # the least key with `rank` rows before it; no two rows have the same
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if sum(before(middle)) >= rank else (middle + 1, high)
        return before(low)


RowsKept = RowsInMemory | RowsOnDisk


class WalkedRows:
    """The rows of a level that was walked, or some of them, while they are read with what was measured.

    Attributes:
        moves: how far the repair has moved the noisy counts.
        seen: what was seen of them; None where they are exact.
        rows: the rows with their intervals, as they are kept, once they are read.
    """

    def __init__(
        self, noise: LevelNoise, step: int, reach: int, margins: Sequence[Margins], rows_kept: RowsKept
    ) -> None:
        """Start without cells.

        Args:
            step: intervals end at multiples of this, records.
            reach: as in `Moves`.
            margins: of the level, per kind of interval.
        """
        self._step, self._margins, self._rows_kept = step, margins, rows_kept
        self.moves, self.seen = Moves(reach), SeenCounts(noise) if noise else None
        self.rows: Any = None

    def see(self, noisy: IntArray, released: IntArray) -> None:
        """Look at measured cells with their released counts, 0 where there is no row; all cells are shown, chunk by chunk."""
        self.moves.add(noisy, released)
        if self.seen:
            self.seen.add(noisy)

    def read(self, rows: Rows, noisy: IntArray, caps: Sequence[IntArray]) -> None:
        """Take the rows, once all cells were shown.

        Args:
            noisy: their noisy counts, shape (rows,), records.
            caps: per kind of interval, the most that each can count by what holds it, int64, shape (rows,); of fewer kinds, where the
                source does not tell those of all.
        """
        if self.seen:
            self.seen.add_rows(noisy)
        bounds = list[IntArray]()
        for margin, of_kind in zip(self._margins, caps, strict=False):
            bounds += rounded_outwards(*intervals(noisy, margin.own, of_kind, rows.counts), self._step)
        self.rows = self._rows_kept.prepared(Rows(rows.areas, rows.counts, tuple(bounds)), noisy)
