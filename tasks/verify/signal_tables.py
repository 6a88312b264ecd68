r"""The tables of the rows that stand out, as they follow from the full tables of a published folder, and the check that they are these.

Levels 1 to T have such a table each. A marked row of a level takes its count off the nearest row above it that is marked, or off the
total if none is. What is left of a row once the marked rows of all levels down to k have taken theirs is its remainder at level k:

.. math:: r_k(a) = c(a) - \sum_{m} c(m)

over the marked rows m of the levels below a, down to k, of which a is the nearest above. The table of level k has the marked rows of the
level, and every remainder that is not 0 of the total and of the marked rows above. So it adds up to the total, and each row of the table
above is the sum of the marked rows that took from it and of its remainder.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from storage.counts.columns import COUNT, HIGH, INTERVAL, LOW, REMAINDER, SIGNAL, SIMULTANEOUS
from tasks.format.batches import UNREADABLE, has_columns, scan_level
from tasks.format.csv import csv_failures, names_in
from tasks.format.manifest import LevelEntry, Manifest, SignalTable
from tasks.laws.named import noise_of
from tasks.uncertainty.intervals import rounding_step, row_log_tail

FOLDER = SIGNAL

_TAKEN = "\0taken"  # no column of codes ends so


def signal_path(folder: Path, level: int) -> Path:
    """Return the path of the table of a level's rows that stand out, in a published folder."""
    return folder / FOLDER / f"level_{level}.parquet"


def signal_tables(folder: Path, manifest: Manifest) -> Iterator[tuple[SignalTable, pl.DataFrame]]:
    """Yield the table of each level from 1 on, and what the manifest states about it.

    Its columns are the codes of the level, the count, the ends of intervals, and whether the row is a remainder. First come the
    marked rows as in the full table, then the remainders, those of the finest rows first. A remainder has the codes of the row of
    which it is left, and no others. Of the full tables, only marked rows are in memory.

    Args:
        folder: with the full tables, which are correct.
        manifest: what it states about levels and intervals.
    Raises:
        UNREADABLE: a full table cannot be read.
    """
    at_once = [name for name in manifest.bounds if name in SIMULTANEOUS]
    everything = scan_level(folder, manifest.levels[0]).collect()
    left, total = [everything.select(COUNT, *at_once)], int(everything[COUNT].item())
    for entry in manifest.levels[1:]:
        marked = scan_level(folder, entry).filter(pl.col(SIGNAL)).collect()
        codes = marked.columns[: marked.columns.index(COUNT)]
        _take_off(left, marked, at_once)
        width = _half_width(manifest, entry)
        stands_out = _with_intervals(marked, manifest, entry, width, total)
        parts = [stands_out.with_columns(pl.lit(value=False).alias(REMAINDER))]
        parts += [_remainders(of_level, at_once) for of_level in reversed(left)]
        rows = pl.concat(parts, how="diagonal").select(*codes, COUNT, *manifest.bounds, REMAINDER)
        stated = SignalTable(
            level=entry.level, rows=rows.height, remainders=rows.height - marked.height, half_width=width
        )
        yield stated, rows
        left.append(marked.select(*codes, COUNT, *at_once))


def signal_failures(folder: Path, manifest: Manifest) -> list[str]:
    """Return what is wrong with the tables of the rows that stand out and their CSV, one sentence per failure.

    Args:
        folder: the folder, whose full tables are correct.
        manifest: its manifest.
    """
    of_release = manifest.spec.get("release")
    is_asked = isinstance(of_release, dict) and of_release.get("rows") == SIGNAL
    if not is_asked and (manifest.signal_tables or (folder / FOLDER).exists()):
        return [f"{FOLDER}/ must be left out: the spec does not ask for it."]
    if not is_asked:
        return []
    if [of.level for of in manifest.signal_tables] != [entry.level for entry in manifest.levels[1:]]:
        return ["manifest.json: signal_tables must list the levels from 1 to the finest."]
    failures = []
    for (expected, rows), stated in zip(signal_tables(folder, manifest), manifest.signal_tables, strict=True):
        path, name = signal_path(folder, expected.level), f"{FOLDER}/level_{expected.level}.parquet"
        texts = rows.columns[: rows.columns.index(COUNT)]
        try:
            if not has_columns(path, texts, [COUNT, *manifest.bounds], REMAINDER):
                of_codes = f"{', '.join(texts)} (text), "
                numbers = ", ".join([COUNT, *manifest.bounds])
                failures.append(f"{name}: columns must be {of_codes}{numbers} (int64) and {REMAINDER} (bool).")
            elif not pl.DataFrame(pq.read_table(path)).equals(rows):
                failures.append(
                    f"{name}: the rows are not those that stand out in the full tables, with what they leave of the counts above."
                )
            elif manifest.csv or path.with_suffix(".csv").exists():
                of_rows = f"the rows that stand out at level {expected.level}"
                failures += csv_failures(path.with_suffix(".csv"), [path], of_rows, names_in(folder))
        except UNREADABLE:
            failures.append(f"{name} is missing or is not a Parquet file.")
        if stated != expected:
            failures.append(f"manifest.json: signal_tables does not state level {expected.level} as it is.")
    return failures


def _take_off(left: list[pl.DataFrame], marked: pl.DataFrame, at_once: Sequence[str]) -> None:
    """Take the marked rows of a level off the rows above: each off the nearest that is marked, or off the total.

    What is left of an interval that holds for all cells at once holds too: it ends where the least is left of the most, and the
    most of the least.

    Args:
        left: per level above, what is left of the total and of its marked rows; replaced.
        marked: the rows.
        at_once: the columns of such intervals, low and high.
    """
    rest, others = marked, {COUNT: COUNT} | dict(zip(at_once, reversed(at_once), strict=True))
    for level in reversed(range(len(left))):
        above = left[level]
        codes = above.columns[: above.columns.index(COUNT)]
        if rest.is_empty():
            return
        if above.is_empty():
            continue
        sums = [pl.col(name).sum().name.suffix(_TAKEN) for name in others]
        if codes:
            taken = rest.group_by(codes).agg(sums)
            joined = above.join(taken, on=codes, how="left", maintain_order="left")
            rest = rest.join(above, on=codes, how="anti")
        else:
            joined = above.join(rest.select(sums), how="cross")
        left[level] = joined.select(
            *codes, *(pl.col(name) - pl.col(f"{other}{_TAKEN}").fill_null(0) for name, other in others.items())
        )


def _remainders(left: pl.DataFrame, at_once: Sequence[str]) -> pl.DataFrame:
    """Return the remainder rows of a level: what is left there, if anything is; no true count is below 0."""
    ends = [
        pl.min_horizontal(pl.max_horizontal(name, 0), COUNT) if name == at_once[0] else pl.max_horizontal(name, COUNT)
        for name in at_once
    ]
    return left.filter(pl.col(COUNT) != 0).with_columns(*ends, pl.lit(value=True).alias(REMAINDER))


def _half_width(manifest: Manifest, entry: LevelEntry) -> int | None:
    """Return z of the intervals of a level's marked rows, records; None where none follows from the manifest.

    The promise for all rows of a level says little of those that are marked: where few are, all rows that miss their true counts may
    be among these. But whoever chooses cells may take the tail that belongs to their number (`tasks.uncertainty.selection`).
    """
    own = next((of for of in manifest.levels if of.level == entry.same_as), entry)
    has_margin = own.half_width is not None and own.cap_margin is not None  # of independent noises, one law for all
    if not has_margin or entry.signal is None:
        return None
    log_tail = row_log_tail(own.cells, entry.signal.rows, manifest.intervals.confidence)
    return max(noise_of(own).quantile(log_tail), own.half_width or 0)


def _with_intervals(
    marked: pl.DataFrame, manifest: Manifest, entry: LevelEntry, width: int | None, total: int
) -> pl.DataFrame:
    """Return marked rows with the intervals of their tables: those of the full table, moved outwards, but not above an exact total."""
    if width is None:
        return marked.with_columns(pl.lit(None, dtype=pl.Int64).alias(name) for name in INTERVAL)
    step = rounding_step(entry.sigma) if manifest.intervals.rounded else 1
    further = -(-(width - (entry.half_width or 0)) // step) * step
    high, root = pl.col(HIGH) + further, manifest.levels[0]
    if not (root.sigma or root.summed):
        high = pl.min_horizontal(high, pl.max_horizontal(HIGH, total))
    return marked.with_columns(pl.max_horizontal(pl.col(LOW) - further, 0).alias(LOW), high.alias(HIGH))
