"""A table that may be seen, read into memory: the same checks and the same codes as on the way into a vault."""

from collections.abc import Sequence
from dataclasses import replace

import duckdb
import numpy as np
import polars as pl

from storage.counts.vault import read_records
from tasks.ingest.codebook import down_to
from tasks.ingest.task import Source, read_ends, with_codes_of_records
from tasks.ingest.trips import Units, ingest_trips
from tasks.tree.axis import IntArray


def read_in_memory(
    source: Source, units: Units, promised: Sequence[int]
) -> tuple[dict[str, pl.DataFrame], list[IntArray], IntArray]:
    """Return the records of a table: its codebooks, per axis the area at its finest released level, and the true counts.

    For data that may be seen: nothing of it is kept, and everything may be told.

    Args:
        source: where the table and the codebooks are.
        units: the bound on contributions.
        promised: per axis, the axis level at which a unit's records are promised distinct.

    Raises:
        InputError: as `ingest_trips`.
    """
    with duckdb.connect() as con:
        ends = with_codes_of_records(con, source, read_ends(source))
        ends = tuple(replace(end, promised=level) for end, level in zip(ends, promised, strict=True))
        ingest_trips(con, source.table, ends, source.count, units)
        areas, true_counts = read_records(con, len(source.axes))
    codebooks = {end.name: down_to(end.codebook, end.finest) for end in ends}
    return codebooks, [np.asarray(of_axis) for of_axis in areas], np.asarray(true_counts)
