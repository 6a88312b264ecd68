"""Bounds contributions: chooses the records to keep of a unit that has more records than promised."""

from itertools import pairwise
from random import SystemRandom

import numpy as np

from tasks.tree.axis import IntArray


def keep_within(units: IntArray, places: IntArray, counts: IntArray, max_records: int, *, distinct: bool) -> IntArray:
    """Return how many records of each row are kept.

    With `distinct`, one of a unit's records in each place is kept, each with the same probability. Then, if a unit still
    has more than `max_records` records, `max_records` of them are kept, every set of this size with the same probability.
    The records kept of a unit depend on that unit alone.

    Args:
        units: int64, shape (rows,), ascending: the number of the row's unit. Confidential.
        places: int64, shape (rows,), ascending within each unit: the cell, at the level at which records are promised
            distinct.
        counts: int64, shape (rows,), records, > 0.
        max_records: >= 1.
        distinct: whether a unit's records are promised to be in distinct places.
    Returns:
        int64, shape (rows,), from 0 to `counts`.
    Raises:
        OSError: the operating system provides no entropy.
    """
    kept = counts.copy()
    if distinct:
        for rows in _runs(units, places):
            kept[rows] = _draw(kept[rows], 1)
    for rows in _runs(units):
        kept[rows] = _draw(kept[rows], max_records)
    return kept


def _runs(*keys: IntArray) -> list[slice]:
    """Return the slices of consecutive rows with equal keys."""
    changes = np.zeros(max(len(keys[0]) - 1, 0), dtype=bool)
    for key in keys:
        changes |= key[1:] != key[:-1]
    edges = [0, *(np.flatnonzero(changes) + 1).tolist(), len(keys[0])]
    return [slice(start, stop) for start, stop in pairwise(edges) if stop > start]


def _draw(counts: IntArray, most: int) -> IntArray:
    """Return the counts of `most` records drawn without replacement; all counts if there are at most `most` records."""
    total = int(counts.sum())
    if total <= most:
        return counts
    drawn = SystemRandom().sample(range(total), most)
    row = np.searchsorted(np.cumsum(counts), drawn, side="right")
    return np.bincount(row, minlength=len(counts)).astype(np.int64)
