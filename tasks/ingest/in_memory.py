"""Reads a public table into memory, with the checks and codes of a table that goes into a vault."""

from collections.abc import Sequence
from dataclasses import replace

import duckdb
import numpy as np
import polars as pl

from storage.counts.vault import read_records
from tasks.ingest.codebook import down_to
from tasks.ingest.groups import ingest_groups
from tasks.ingest.task import Source, read_ends, with_codes_of_records
from tasks.ingest.trips import Units, ingest_trips
from tasks.tree.axis import IntArray


def read_in_memory(
    source: Source, units: Units, promised: Sequence[int]
) -> tuple[dict[str, pl.DataFrame], list[IntArray], IntArray]:
    """Return the codebooks of a table, per axis the area of each record at the finest released level, and the true counts.

    Only for data that anybody may see. Nothing is stored.

    Args:
        source: the table, the codebooks and the axes.
        units: the bound on contributions.
        promised: per axis, the axis level at which a unit's records are promised distinct.

    Raises:
        InputError: as `ingest_trips`.
    """
    with source.table.held() as table, duckdb.connect() as con:
        source = replace(source, table=table)
        ends = with_codes_of_records(con, source, read_ends(source))
        ends = tuple(replace(end, promised=level) for end, level in zip(ends, promised, strict=True))
        if source.groups is None:
            ingest_trips(con, source.table, ends, source.count, units)
        else:
            ingest_groups(con, source.table, ends, source.count, units, source.groups)
        areas, true_counts = read_records(con, len(source.axes))
    codebooks = {end.name: down_to(end.codebook, end.finest) for end in ends}
    return codebooks, [np.asarray(of_axis) for of_axis in areas], np.asarray(true_counts)
