"""The check of a published level against its published noisy counts: the same cells, and the intervals that follow."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from storage.counts.columns import COUNT, HIGH, LOW, NOISY
from tasks.format.manifest import LevelEntry

_OWN = "\0own"


def misfit(
    table: Path, noisy: Path, codebook: pl.DataFrame, entry: LevelEntry, columns: Mapping[str, Sequence[str]]
) -> str:
    """Return how the rows of a level contradict its noisy counts, as the end of a sentence; empty if they agree.

    Args:
        table: the table of the level, correct on its own, with intervals that are not rounded.
        noisy: the noisy counts of the level, correct on their own.
        codebook: the codebook whose numbers the noisy counts use for areas.
        entry: the manifest's entry for the level.
        columns: per axis, the columns of codes that the table has, coarse to fine.
    """
    refined = [(axis, names) for axis, names in columns.items() if names]
    numbers = [f"\0{number}" for number in range(len(refined))]  # no column of codes has such a name
    rows = pl.read_parquet(table, glob=False)
    for (axis, names), number in zip(refined, numbers, strict=True):
        rows = rows.join(_paths(codebook, axis, names, number), on=names, how="left")
    measured = pl.read_parquet(noisy, glob=False).rename(
        {axis: number for (axis, _), number in zip(refined, numbers, strict=True)}
    )
    rows = rows.join(measured, on=numbers, how="left") if numbers else pl.concat([rows, measured], how="horizontal")
    if rows[NOISY].null_count():
        return "lacks a cell that has a released count."
    if entry.half_width is None:
        return ""
    low = pl.min_horizontal(pl.max_horizontal(pl.col(NOISY) - entry.half_width, 0), COUNT)
    highest = pl.max_horizontal(pl.col(NOISY) + entry.half_width, 0, COUNT)
    fits = rows.select(((pl.col(LOW) == low) & (pl.col(HIGH) <= highest)).all()).item()
    return "" if fits else "does not agree with the intervals of the released counts."


def _paths(codebook: pl.DataFrame, axis: str, names: Sequence[str], number: str) -> pl.DataFrame:
    """Return the areas of an axis level: their paths of codes, in the named columns, and their numbers."""
    levels = codebook.filter(axis=axis).partition_by("level", maintain_order=True)
    paths = pl.DataFrame({number: [0]}, schema={number: pl.Int32})
    for name, of_level in zip(names, levels, strict=False):
        below = of_level.select(pl.col("area").alias(_OWN), pl.col("parent").alias(number), pl.col("code").alias(name))
        paths = below.join(paths, on=number).drop(number).rename({_OWN: number})
    return paths
