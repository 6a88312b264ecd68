"""Everything that one unit can contribute to a table of few leaves, and everything by which neighbouring tables can differ."""

from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from tasks.accounting.sensitivity import ADD_REMOVE, SUBSTITUTION

Counts = NDArray[np.int64]
RELATIONS = [(ADD_REMOVE, False), (SUBSTITUTION, True), (SUBSTITUTION, False)]  # and whether records per unit are exact


def contributions(leaves, most, *, exact=False, cells=None):
    """Return the counts of every leaf, a row for all that a unit may contribute: `most` records, or exactly so many, one of each cell if there are cells."""
    rows = [
        np.bincount(np.array(chosen, dtype=np.int64), minlength=leaves)
        for size in range(most if exact else 0, most + 1)
        for chosen in combinations_with_replacement(range(leaves), size)
        if cells is None or len({cells[leaf] for leaf in chosen}) == size
    ]
    return np.array(rows, dtype=np.int64).reshape(len(rows), leaves)


def moves(neighbours, of_unit):
    """Return every vector by which the leaves of two neighbouring tables can differ, a row each."""
    if neighbours == ADD_REMOVE:
        return of_unit
    return (of_unit[:, None] - of_unit[None, :]).reshape(-1, of_unit.shape[1])


def holds(cells):
    """Return which leaf lies in which cell, shape (leaves, cells), given the cell of every leaf."""
    columns = {cell: column for column, cell in enumerate(dict.fromkeys(cells))}
    return np.eye(len(columns), dtype=np.int64)[[columns[cell] for cell in cells]]
