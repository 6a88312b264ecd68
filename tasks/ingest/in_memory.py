"""A table that may be seen, read into memory: the same checks and the same codes as on the way into a vault."""

import duckdb
import numpy as np

from storage.vault import read_records
from tasks.ingest.task import Source, read_ends
from tasks.ingest.trips import Units, ingest_trips
from tasks.tree.axis import IntArray


def read_in_memory(source: Source, units: Units) -> tuple[list[IntArray], IntArray]:
    """Return the records of a table: per axis the area at its finest released level, and the true counts.

    For data that may be seen: nothing of it is kept, and everything may be told.

    Raises:
        InputError: as `ingest_trips`.
    """
    with duckdb.connect() as con:
        ingest_trips(con, source.table, read_ends(source), source.count, units)
        areas, true_counts = read_records(con, len(source.axes))
    return [np.asarray(of_axis) for of_axis in areas], np.asarray(true_counts)
