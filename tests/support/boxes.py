"""Boxes of a universe, and what one of them meets of measured cells."""

import numpy as np
import polars as pl

from storage.tables import NOISY
from tasks.released.boxes import Boxes, Children, Met, MetCells, Table, areas_met, children_of, lying_in, possible_cells


def box_of(levels, areas):
    """Return the box of one area per axis."""
    return Boxes(tuple(levels), tuple(np.array([area]) for area in areas))


def set_box(levels, areas):
    """Return the single box of a set of areas per axis; of no table."""
    return Boxes(tuple(levels), tuple(np.array(sorted(of)) for of in areas), tuple(() for _ in areas))


def table_of(tree, level):
    """Return the measured cells of a level."""
    return Table(tree.axis_levels(level.cells.level), level.cells.areas, pl.DataFrame({NOISY: level.noisy}))


def met_cells(tree, levels, box, own):
    """Return what a box meets of measured levels 0 to its own."""
    tables, found = [table_of(tree, level) for level in levels[: own + 1]], list[MetCells]()
    for at, cells in enumerate(tables):
        inside = lying_in(tree, at, areas_met(tree, at, box), cells.areas)
        children = children_of(tree, at, cells, tables[at + 1]) if at < own else None
        found.append(MetCells(possible_cells(tree, at, box), Met.whole(cells, inside), children))
    return found


def some_cells(possible, noisy, dropped=(), below=0, children=0):
    """Return cells that one box meets: so many are possible, and some by their places have no child; all others have so many, which add up."""
    kept = np.setdiff1d(np.arange(len(noisy)), dropped)
    cells, sums = (np.zeros(len(noisy), dtype=np.int64) for _ in range(2))
    cells[kept] = 1
    if len(kept) and children:
        cells[kept[0]], sums[kept[0]] = children - len(kept) + 1, below
    table = Table((), (), pl.DataFrame({NOISY: np.array(noisy, dtype=np.int64)}))
    return MetCells(np.array([possible]), Met.whole(table), Children(sums, cells))
