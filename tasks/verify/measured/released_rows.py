"""The check of released rows against published noisy counts: intervals, marks, shares and bounds that follow from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from storage.counts.columns import COUNT, HIGH, LOW, NOISY, SIGNAL
from tasks.capacity import side_by_side
from tasks.format.batches import level_paths, scan_level
from tasks.format.manifest import LevelEntry, Manifest
from tasks.format.noisy_counts import noisy_counts_path
from tasks.laws.law import LevelNoise
from tasks.laws.named import noise_of
from tasks.tree.axis import IntArray
from tasks.tree.keys import packed
from tasks.uncertainty.intervals import NO_CAP, intervals, row_log_tail, sum_margins
from tasks.uncertainty.moves import Moves, bounds_after, reach_after
from tasks.uncertainty.repeated import own_levels
from tasks.uncertainty.shares import EXACT, SeenCounts, Shares, shares_of_sums
from tasks.uncertainty.signals import Margin, signals
from tasks.verify.measured.stated_shares import states_shares

_OWN, _CAP, _PLACE, _BELOW = "\0own", "\0cap", "\0place", "\0below"  # no column of codes has such a name

_BATCH_ROWS = 250_000  # cells looked up at once

Columns = Mapping[str, Sequence[str]]  # per axis, the columns of codes that a table has, coarse to fine


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """The rows of a level with their noisy counts, and those of all measured cells.

    Attributes:
        rows: the table with numbers in place of codes; its noisy counts are missing where a row was not measured.
        noisy: of all measured cells, shape (measured,), records; of the rows alone, where a level is summed.
        cells: how many were measured, or added up.
        noise: of a measured cell, or of a leaf.
        leaves: of which each row is the sum, shape (rows,); None where the level is measured.
    """

    rows: pl.DataFrame
    noisy: IntArray
    cells: int
    noise: LevelNoise
    leaves: IntArray | None = None

    @property
    def of_rows(self) -> IntArray:
        """The noisy counts of the rows."""
        return self.rows[NOISY].to_numpy()

    def margin(self, log_tail: float) -> Margin:
        """Return what the noise of a row exceeds with at most a probability, given its logarithm."""
        return self.noise.quantile(log_tail) if self.leaves is None else sum_margins(self.noise, self.leaves, log_tail)


@dataclass(slots=True)
class ReleasedRows:
    """The rows of a folder, level by level from 0 on. The tables and the noisy counts are correct on their own.

    Attributes:
        folder: the folder.
        manifest: its manifest.
        codebook: the codebook whose numbers the noisy counts use for areas.
        columns: of levels 0 to T.
        workers: how many parts of a table are read at once.
    """

    folder: Path
    manifest: Manifest
    codebook: pl.DataFrame
    columns: Sequence[Columns]
    workers: int = 1
    _exact: LevelEntry | None = None  # the finest exact level so far, whose counts are caps
    _moves: list[Moves] = field(default_factory=list)

    def misfit(self, entry: LevelEntry) -> str:
        """Return how the rows of a level contradict the noisy counts, as the end of a sentence; empty if they agree."""
        if entry.threshold or self.manifest.levels[-1].threshold:
            return ""
        if entry.same_as is not None:  # its rows are compared with those that they repeat
            return "" if self._repeats(entry) else f"does not agree with the noisy counts of level {entry.same_as}."
        level = self._summed(entry) if entry.summed else self._measured(entry)
        if level.rows[NOISY].null_count():
            return "lacks a cell that has a released count."
        if not self._is_marked(level, entry):
            return f"does not agree with {SIGNAL} of the released counts, or with what the manifest says of it."
        if not states_shares(entry, _shares(level)):
            return "does not agree with noise_rows or above_noise of the manifest."
        if not self._is_within(level, entry):
            return "does not agree with the intervals of the released counts."
        if not entry.summed:
            self._moves.append(self._moved(level))
        if not (entry.sigma or entry.summed):
            self._exact = entry
        return ""

    def has_bounds(self) -> bool:
        """Return whether the bounds that the manifest states follow from the levels, all of which were looked at; else true."""
        own = own_levels(self.manifest.levels)
        if len(self._moves) < len(own):
            return True
        return [entry.bound_after for entry in own] == bounds_after(self._moves)

    def _repeats(self, entry: LevelEntry) -> bool:
        """Return whether the noisy counts of a level are those of the level above for the cells that were kept there."""
        above, own = (
            pl.read_parquet(noisy_counts_path(self.folder, level), glob=False)
            for level in (entry.level - 1, entry.level)
        )
        axis = next(
            name for name, level in entry.axes.items() if level != self.manifest.levels[entry.level - 1].axes[name]
        )
        of_level = self._levels(axis)[len(self.columns[entry.level][axis]) - 1]
        parents = of_level.select(pl.col("area").alias(axis), pl.col("parent").alias(_OWN))
        keys = [name for name, level in self.manifest.levels[entry.level - 1].axes.items() if level and name != axis]
        found = own.join(parents, on=axis, how="left").drop(axis).rename({_OWN: axis})
        on = [*keys, *([axis] if self.manifest.levels[entry.level - 1].axes[axis] else [])]
        if not on:
            return own.height <= 1 and (not own.height or own[NOISY].item() == above[NOISY].item())
        joined = found.join(above.select(*on, pl.col(NOISY).alias(_CAP)), on=on, how="left")
        return (
            bool((joined[NOISY] == joined[_CAP]).fill_null(False).all()) and not joined.select(on).is_duplicated().any()
        )

    def _measured(self, entry: LevelEntry) -> _Level:
        """Return a level whose noisy counts are published."""
        refined = [(axis, names) for axis, names in self.columns[entry.level].items() if names]
        numbers = [f"\0{number}" for number in range(len(refined))]
        rows = self._numbered(entry)
        path, axes = noisy_counts_path(self.folder, entry.level), [axis for axis, _ in refined]
        if not numbers:
            measured = pl.read_parquet(path, columns=[NOISY], glob=False).with_row_index(_PLACE)
            rows = pl.concat([rows, measured], how="horizontal")
            return _Level(rows, measured[NOISY].to_numpy(), entry.cells, noise_of(entry))
        sizes = [len(self._levels(axis)[len(names) - 1]) for axis, names in refined]
        known = rows.select(numbers).drop_nulls()
        keys = packed([known[number].to_numpy() for number in numbers], sizes)
        if keys is None or len(known) < len(rows):
            measured = pl.read_parquet(path, columns=[*axes, NOISY], glob=False).with_row_index(_PLACE)
            measured = measured.rename(dict(zip(axes, numbers, strict=True)))
            return _Level(
                rows.join(measured, on=numbers, how="left"), measured[NOISY].to_numpy(), entry.cells, noise_of(entry)
            )
        noisy, of_rows, places = _found(path, axes, sizes, keys)
        found = pl.DataFrame({_PLACE: places, NOISY: of_rows}).with_columns(
            pl.when(pl.col(_PLACE) >= 0).then(pl.col(NOISY)).alias(NOISY)
        )
        return _Level(pl.concat([rows, found], how="horizontal"), noisy, entry.cells, noise_of(entry))

    def _summed(self, entry: LevelEntry) -> _Level:
        """Return a level of sums of leaves that are all measured: its counts are its noisy counts."""
        rows, cells, refined = self._numbered(entry).with_columns(pl.col(COUNT).alias(NOISY)), 1, 0
        leaves = np.ones(len(rows), dtype=np.int64)
        for axis, finest in self.columns[-1].items():
            names = self.columns[entry.level][axis]
            below = self._areas_below(axis, len(names), len(finest))
            cells *= len(below)
            if names:
                areas = rows.select(pl.col(f"\0{refined}").alias(_OWN))
                leaves = leaves * areas.join(below, on=_OWN, how="left", maintain_order="left")[_BELOW].to_numpy()
                refined += 1
            else:
                leaves = leaves * below[_BELOW].to_numpy()
        return _Level(rows, rows[NOISY].to_numpy(), cells, noise_of(self.manifest.levels[-1]), leaves)

    def _numbered(self, entry: LevelEntry) -> pl.DataFrame:
        """Return the table of a level, in which the number of its area stands for the codes of each refined axis, as `\\0<axis>`.

        Where cells above are exact, `_CAP` is the count of the one that holds each row. Parts are read side by side; their codes are not kept.
        """
        refined = [(axis, names) for axis, names in self.columns[entry.level].items() if names]
        paths = [self._paths(axis, names, f"\0{number}") for number, (axis, names) in enumerate(refined)]
        caps = self._exact_counts()

        def read(path: Path) -> pl.DataFrame:
            rows, kept = pl.read_parquet(path, glob=False), [COUNT, LOW, HIGH, SIGNAL]
            for number, ((_, names), of_axis) in enumerate(zip(refined, paths, strict=True)):
                rows = rows.join(of_axis, on=names, how="left", maintain_order="left")
                kept.append(f"\0{number}")
            if caps is not None:
                codes = [name for name in caps.columns if name != _CAP]
                rows = rows.join(caps, on=codes, how="left", maintain_order="left")
                kept.append(_CAP)
            return rows.select(kept)

        return pl.concat(side_by_side(read, level_paths(self.folder, entry), self.workers))

    def _paths(self, axis: str, names: Sequence[str], number: str) -> pl.DataFrame:
        """Return the areas of an axis level: their paths of codes, in the named columns, and their numbers."""
        paths = pl.DataFrame({number: [0]}, schema={number: pl.Int32})
        for name, of_level in zip(names, self._levels(axis), strict=False):
            below = of_level.select(
                pl.col("area").alias(_OWN), pl.col("parent").alias(number), pl.col("code").alias(name)
            )
            paths = below.join(paths, on=number).drop(number).rename({_OWN: number})
        return paths

    def _areas_below(self, axis: str, own: int, finest: int) -> pl.DataFrame:
        """Return how many areas of the level `finest` of an axis lie in each area of its level `own`."""
        levels = self._levels(axis)
        below = pl.DataFrame({_OWN: [0], _BELOW: [1]}) if not finest else None
        for of_level in reversed(levels[own:finest]):
            counted = of_level.select("area", "parent")
            counted = (
                counted.with_columns(pl.lit(1).alias(_BELOW))
                if below is None
                else counted.join(below, left_on="area", right_on=_OWN)
            )
            below = counted.group_by("parent").agg(pl.col(_BELOW).sum()).rename({"parent": _OWN})
        return (
            below if below is not None else levels[own - 1].select(pl.col("area").alias(_OWN), pl.lit(1).alias(_BELOW))
        )

    def _levels(self, axis: str) -> list[pl.DataFrame]:
        return self.codebook.filter(axis=axis).partition_by("level", maintain_order=True)

    def _is_marked(self, level: _Level, entry: LevelEntry) -> bool:
        """Return whether the rows are marked that stand out from the noise, as the manifest says."""
        marked, above = level.of_rows > 0, None
        if level.noise:
            rate = self.manifest.intervals.signal_rate
            marked, above = signals(level.of_rows, level.cells, rate, level.margin)
        stated = entry.signal.above if entry.signal else None
        return bool((level.rows[SIGNAL].to_numpy() == marked).all()) and stated == (
            above if isinstance(above, int) else None
        )

    def _is_within(self, level: _Level, entry: LevelEntry) -> bool:
        """Return whether the intervals of the rows are those that follow."""
        margin: Margin = 0
        if level.noise:  # what the manifest states has been compared with the noise, the cells and the rows
            log_tail = row_log_tail(level.cells, entry.nonzero, self.manifest.intervals.confidence)
            margin = level.margin(log_tail) if entry.half_width is None else entry.half_width
        caps = level.rows[_CAP].fill_null(0).to_numpy() if _CAP in level.rows else self._total_cap()
        low, high = intervals(level.of_rows, margin, caps, level.rows[COUNT].to_numpy())
        return bool((level.rows[LOW].to_numpy() == low).all() and (level.rows[HIGH].to_numpy() == high).all())

    def _exact_counts(self) -> pl.DataFrame | None:
        """Return the counts of the finest exact level so far by its codes; None where there is none, or where it has no codes."""
        if self._exact is None:
            return None
        names = [name for of_axis in self.columns[self._exact.level].values() for name in of_axis]
        if not names:
            return None
        return scan_level(self.folder, self._exact).select(*names, pl.col(COUNT).alias(_CAP)).collect()

    def _total_cap(self) -> int:
        """Return the exact count of everything, where that is all that limits the rows."""
        if self._exact is None:
            return NO_CAP
        return int(scan_level(self.folder, self._exact).collect()[COUNT].item())

    def _moved(self, level: _Level) -> Moves:
        """Return how far the repair has moved the noisy counts of a level."""
        noisy_levels = sum(bool(of.sigma) for of in own_levels(self.manifest.levels))
        moves, released = Moves(reach_after(level.noise, level.cells, noisy_levels)), np.zeros_like(level.noisy)
        released[level.rows[_PLACE].to_numpy()] = level.rows[COUNT].to_numpy()
        moves.add(level.noisy, released)
        return moves


def _found(
    path: Path, axes: Sequence[str], sizes: Sequence[int], keys: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """Look up rows among the measured cells, a batch of these at a time.

    Args:
        path: the noisy counts.
        axes: the columns of areas.
        sizes: how many areas each has.
        keys: of the rows, as `packed` gives them, shape (rows,).
    Returns:
        The noisy counts of all cells, shape (measured,); and those of the rows, with the places of their cells, shape (rows,),
        or -1 where none was measured.
    """
    order = np.argsort(keys)
    in_order, noisy, before = keys[order], list[IntArray](), 0
    of_rows, places = np.zeros_like(keys), np.full_like(keys, -1)
    with pq.ParquetFile(path) as file:
        for batch in file.iter_batches(_BATCH_ROWS, columns=[*axes, NOISY]):
            cells = packed([batch.column(axis).to_numpy() for axis in axes], sizes)
            noisy.append(batch.column(NOISY).to_numpy().copy())
            if cells is not None and len(in_order):
                at = np.minimum(np.searchsorted(in_order, cells), len(in_order) - 1)
                hit = np.flatnonzero(in_order[at] == cells)
                row = order[at[hit]]
                of_rows[row], places[row] = noisy[-1][hit], before + hit
            before += len(batch)
    return np.concatenate(noisy or [of_rows[:0]]), of_rows, places


def _shares(level: _Level) -> Shares | None:
    """Return how much of the rows of a level is noise; None where there is none."""
    if not level.noise:
        return EXACT if len(level.rows) else None
    if level.leaves is not None:
        return shares_of_sums(level.noise, level.of_rows, level.leaves, level.cells)
    seen = SeenCounts(level.noise)
    seen.add(level.noisy)
    seen.add_rows(level.of_rows)
    return seen.shares()
