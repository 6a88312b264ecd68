"""The checks of one published level, and that its rows add up to those of the level above, one batch at a time."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa

from storage.releases.terms import COUNTS_POSITIVE
from storage.tables import COUNT, SIGNAL
from tasks.format.areas import AxisAreas, Numbers
from tasks.format.entries import LevelEntry
from tasks.format.manifest import Manifest
from tasks.format.tables import Rows, batches, has_columns, in_order, joined, level_paths
from tasks.tree.axis import IntArray
from tasks.tree.keys import all_differ, begins_run
from tasks.work.capacity import side_by_side


class AddingUp:
    """The sums of children, batch by batch, compared with their parents.

    Both tables are sorted by their codes, axis by axis. Children that share their parents on the axes up to and including the
    first refined axis therefore lie together. They form a block, and both tables have the blocks in the same order. Blocks are
    compared one after the other; the order within a block does not matter.
    """

    def __init__(self, parents: Rows, first_refined: int) -> None:
        """Start with the parents, whose rows all have different areas.

        Args:
            parents: the rows of the level above.
            first_refined: the number of the first axis on which the children are finer.
        """
        self._parents = parents
        self._block = slice(0, first_refined + 1)
        self._met = 0  # parents whose children were seen
        self._waiting: list[Rows] = []  # rows of a block that may continue
        self._fit = True

    def add(self, children: Rows, sizes: Sequence[int]) -> None:
        """Add the next children.

        Args:
            children: the counts of the children, with the areas of their parents.
            sizes: per axis, the number of areas at the parents' level.
        """
        if not len(children) or not self._fit:
            return
        starts = begins_run(children.areas[self._block])
        if self._waiting:
            before = self._waiting[-1]
            pairs = zip(before.areas[self._block], children.areas[self._block], strict=True)
            starts[0] = any(one[-1] != other[0] for one, other in pairs)
        begins = np.flatnonzero(starts)
        if not len(begins):
            self._waiting.append(children)
            return
        self._compare([*self._waiting, children[: begins[-1]]], sizes)
        self._waiting = [children[begins[-1] :]]

    def all_fit(self, sizes: Sequence[int]) -> bool:
        """Return, after the last children, whether the children of every parent add up to it and all others add up to 0.

        Children above zero never add up to 0, so none of them lacks a parent. Sums have 64 bits; the caller must know from the
        levels that none overflows.
        """
        self._compare(self._waiting, sizes)
        return self._fit and self._met == len(self._parents)

    def _compare(self, parts: Sequence[Rows], sizes: Sequence[int]) -> None:
        children = joined(parts) if parts else self._parents[:0]
        if not len(children):
            return
        together = self._block.stop == len(sizes)  # a block has one parent
        if not together:
            children = in_order(children, sizes)
        starts = np.flatnonzero(begins_run(children.areas))
        sums = np.add.reduceat(children.counts, starts)
        starts, sums = starts[sums != 0], sums[sums != 0]
        parents = self._parents[self._met : self._met + len(starts)]
        if not together:
            parents = in_order(parents, sizes)
        self._met += len(starts)
        self._fit = (
            self._fit
            and np.array_equal(sums, parents.counts)
            and all(
                np.array_equal(one[starts], other) for one, other in zip(children.areas, parents.areas, strict=True)
            )
        )


Columns = Mapping[str, Sequence[str]]  # per axis, the columns of its codes, coarse to fine
Areas = Mapping[str, AxisAreas]


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """The result of checking the table of a level.

    Attributes:
        columns: per axis, the columns that the table must have.
        wrong: what is wrong with the table on its own, one sentence per failure.
        adds_up: whether it adds up to the level above; True without a check if one of the two tables is wrong on its own.
        total: the sum of the counts, records; exact.
        rows: all rows, with areas numbered as in `AxisAreas`, if the table is correct and the level below needs them.
    """

    columns: Columns
    wrong: list[str]
    adds_up: bool = True
    total: int = 0
    rows: Rows | None = None


def check_level(
    folder: Path,
    manifest: Manifest,
    entry: LevelEntry,
    columns: Columns,
    areas: Areas,
    above: Level | None,
    workers: int = 1,
) -> Level:
    """Return whether a level's table is what the manifest says and adds up to the level above.

    Args:
        columns: per axis, the columns that the table must have.
        areas: per axis, in the same order, the areas known so far; new ones are added.
        above: the level above; None at level 0.
    Raises:
        UNREADABLE: the table cannot be read to its end.
    """
    paths, is_finest = level_paths(folder, entry), entry is manifest.levels[-1]
    texts, numbers = [name for of_axis in columns.values() for name in of_axis], [COUNT, *manifest.bounds]
    if not all(has_columns(path, texts, numbers, SIGNAL) for path in paths):
        of_codes = f"{', '.join(texts)} (text), " if texts else ""
        return Level(columns, [f"columns must be {of_codes}{', '.join(numbers)} (int64) and {SIGNAL} (bool)."])
    seen, sums, parts = _Seen(columns, areas, manifest, entry), _Sums(columns, areas, above), []
    for batch, rows, ranks in _read(paths, columns, areas, workers):
        seen.take(batch, rows, ranks)
        if not seen.is_wrong:
            sums.take(rows)
        if not is_finest:
            parts.append(rows)
    wrong = [*seen.faults()]
    if seen.is_repeated or (seen.is_unsorted and _has_repeated(paths, columns, areas)):
        wrong.append("two rows have the same codes.")
    if seen.is_unsorted:
        wrong.append("rows must be sorted by their codes.")
    if wrong:
        return Level(columns, wrong)
    return Level(columns, [], sums.all_fit(seen.total), seen.total, joined(parts) if parts else None)


_TOO_MUCH = 2**63  # if the absolute counts add up to less, no sum of counts overflows


class _Seen:
    """What the batches read so far show about a table on its own.

    Attributes:
        total: the sum of the counts, records; exact for any counts.
        magnitude: the sum of the absolute counts; exact.
        signals: the number of marked rows; -1 if a mark is missing.
        is_missing: whether a code or a count is missing, or a count is too small.
        is_outside: whether a count lies outside its interval or has none, or has one at a level without intervals.
        is_repeated: whether two consecutive rows have the same areas.
        is_unsorted: whether a row follows one that should come later.
    """

    def __init__(self, columns: Columns, areas: Areas, manifest: Manifest, entry: LevelEntry) -> None:
        self.rows = self.total = self.magnitude = self.signals = 0
        self.is_missing = self.is_outside = self.is_repeated = self.is_unsorted = False
        self._entry, self._may_be_negative = entry, COUNTS_POSITIVE in manifest.waived
        self._are_stated = not (entry.summed and manifest.levels[-1].threshold)  # intervals
        self._columns, self._areas, self._codes = columns, areas, sum(map(len, columns.values()))
        self._last: list[tuple[bool, str | int]] | None = None  # stands for the codes of the last row

    @property
    def is_wrong(self) -> bool:
        """Whether a row is wrong."""
        return self.is_missing or self.is_outside or self.is_repeated or self.is_unsorted

    def faults(self) -> Iterator[str]:
        """Yield what is wrong with the whole table, one sentence each, but for the order of its rows."""
        entry = self._entry
        if self.rows != entry.nonzero:
            yield f"has {self.rows} rows, but the manifest says {entry.nonzero}."
        elif self.signals != (entry.signal.rows if entry.signal else 0):
            yield f"must mark as many rows as {SIGNAL} as the manifest says, and leave none without a mark."
        if entry.level == 0 and self.rows != 1:
            yield "must have one row."
        if self.is_missing:
            which = "other than zero" if self._may_be_negative else "above zero"
            yield f"counts must be whole numbers {which}, and no code may be missing."
        if self.is_outside and self._are_stated:
            yield "counts must lie between low and high."
        elif self.is_outside:
            yield "low and high must be empty at this level."
        if self._may_be_negative and self.magnitude >= _TOO_MUCH:  # otherwise the check of the totals finds it
            yield "the sum of the counts must fit in 64 bits."

    def take(self, batch: pa.RecordBatch, rows: Rows, ranks: Sequence[IntArray]) -> None:
        """Check the next rows of the table; `ranks` gives, per axis, their order within the batch."""
        counts = rows.counts
        self.rows += len(rows)
        total = _exact_sum(counts)
        self.total += total
        self.magnitude += total - 2 * _exact_sum(counts[counts < 0])
        nothing = any(column.null_count for column in batch.columns[: self._codes + 1])
        negative = not self._may_be_negative and int(counts.min()) < 0
        zero = self._entry.level > 0 and not counts.all()
        self.is_missing = self.is_missing or nothing or negative or zero
        *bounds, signal = batch.columns[self._codes + 1 :]
        self.is_outside = self.is_outside or self._outside(bounds, counts)
        is_marked = self.signals >= 0 and not signal.null_count
        self.signals = self.signals + signal.true_count if is_marked else -1
        if not self._codes:
            return
        follows, equal = np.zeros(len(rows) - 1, dtype=bool), np.ones(len(rows) - 1, dtype=bool)
        for of_axis in ranks:
            follows |= equal & (of_axis[1:] > of_axis[:-1])
            equal &= of_axis[1:] == of_axis[:-1]
        first, last = (self._sorts_as(batch, row) for row in (0, len(rows) - 1))
        self.is_repeated = self.is_repeated or bool(equal.any()) or first == self._last
        is_before = self._last is not None and first < self._last
        self.is_unsorted = self.is_unsorted or not (follows | equal).all() or is_before
        self._last = last

    def _sorts_as(self, batch: pa.RecordBatch, row: int) -> list[tuple[bool, str | int]]:
        codes = iter([column[row].as_py() for column in batch.columns[: self._codes]])
        return [
            part
            for axis, of_axis in self._columns.items()
            for part in self._areas[axis].sorts_as([next(codes) for _ in of_axis])
        ]

    def _outside(self, bounds: Sequence[pa.Array], counts: IntArray) -> bool:
        """Return whether a count lies outside its interval, or an interval is missing or present against the rule."""
        if not self._are_stated:
            return any(end.null_count < len(end) for end in bounds)
        if any(end.null_count for end in bounds):
            return True
        ends, inside = [end.to_numpy() for end in bounds], np.maximum(counts, 0)  # no true count is below 0
        return any(
            (low > inside).any() or (high < inside).any() for low, high in zip(ends[::2], ends[1::2], strict=True)
        )


class _Sums:
    """The check that the children of every row above add up to it."""

    def __init__(self, columns: Columns, areas: Areas, above: Level | None) -> None:
        self._depths = {axis: len(of_axis) for axis, of_axis in columns.items()}
        self._above, self._areas = above, areas
        self._adding: AddingUp | None = None
        if above and above.rows and any(above.columns.values()):  # otherwise comparing the totals is enough
            finer = (number for number, axis in enumerate(columns) if len(columns[axis]) > len(above.columns[axis]))
            self._adding = AddingUp(above.rows, next(finer, len(columns) - 1))

    def take(self, rows: Rows) -> None:
        """Add the next rows."""
        if self._adding and self._above:
            areas = tuple(
                self._areas[axis].ancestors(of_axis, depth, len(self._above.columns[axis]))
                for of_axis, (axis, depth) in zip(rows.areas, self._depths.items(), strict=True)
            )
            self._adding.add(Rows(areas, rows.counts), self._sizes(self._above))

    def all_fit(self, total: int) -> bool:
        """Return whether all rows add up; no sum overflows, because the absolute counts add up to less than 2⁶³."""
        if self._above is None or self._above.wrong:
            return True
        if self._above.total != total:
            return False
        return self._adding is None or self._adding.all_fit(self._sizes(self._above))

    def _sizes(self, above: Level) -> list[int]:
        return [self._areas[axis].known(len(of_axis)) for axis, of_axis in above.columns.items()]


def _exact_sum(counts: IntArray) -> int:
    return (int((counts >> 32).sum()) << 32) + int((counts & (2**32 - 1)).sum())


def _numbered(batch: pa.RecordBatch, columns: Columns, areas: Areas) -> tuple[Rows, tuple[IntArray, ...]]:
    """Return rows with their areas as numbers and, per axis, the order of these rows within the batch."""
    _, *ends = accumulate((len(of_axis) for of_axis in columns.values()), initial=0)
    codes = sum(len(of_axis) for of_axis in columns.values())
    # by position: in a file from elsewhere two columns may share a name
    texts, counts = batch.columns[:codes], batch.columns[codes]

    def number(axis: str, end: int) -> tuple[Numbers, IntArray]:
        return areas[axis].number(batch.num_rows, texts[end - len(columns[axis]) : end])

    with ThreadPoolExecutor(2) as threads:
        numbered, ranks = zip(*threads.map(number, columns, ends), strict=True)
    return Rows(numbered, counts.fill_null(0).to_numpy()), ranks


def _read(
    paths: Sequence[Path], columns: Columns, areas: Areas, workers: int
) -> Iterator[tuple[pa.RecordBatch, Rows, tuple[IntArray, ...]]]:
    """Yield the rows of a table, a batch at a time, each as it is and as `_numbered` gives it; parts are read side by side."""
    if len(paths) == 1:
        for batch in batches(paths):
            yield (batch, *_numbered(batch, columns, areas))
        return

    def read(path: Path) -> list[tuple[pa.RecordBatch, Rows, tuple[IntArray, ...]]]:
        return [(batch, *_numbered(batch, columns, areas)) for batch in batches([path])]

    for of_part in side_by_side(read, paths, workers):
        yield from of_part


def _has_repeated(paths: Sequence[Path], columns: Columns, areas: Areas) -> bool:
    """Return whether any two rows of the table have the same areas."""
    rows = joined([_numbered(batch, columns, areas)[0] for batch in batches(paths)])
    return not all_differ(rows.areas, [areas[axis].known(len(of_axis)) for axis, of_axis in columns.items()])
