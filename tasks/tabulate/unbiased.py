"""The deviations and intervals of many boxes of one kind, where every node was measured: those of `tasks.query.unbiased`."""

import numpy as np

from tasks.query.boxes import level_of
from tasks.tabulate.measured import possible_cells
from tasks.tabulate.tables import Boxes, Tables
from tasks.tree.axis import FloatArray, IntArray
from tasks.unbiased.released import ReleasedCounts
from tasks.uncertainty.intervals import NO_CAP, intervals


def unbiased_intervals(tables: Tables, boxes: Boxes, count: IntArray) -> tuple[FloatArray, IntArray, IntArray]:
    """Return the standard deviation, low and high of boxes, shape (boxes,) each.

    Args:
        tables: of a folder of which every node was measured, and every area is known.
        boxes: of one kind.
        count: the released counts, int64, shape (boxes,).
    """
    released = tables.folder.released
    deviation = _deviations(tables, released, boxes)
    cap = NO_CAP if released.total is None else released.total
    low, high = intervals(count, released.box_margin(deviation), cap, count)
    return deviation, low, high


def _deviations(tables: Tables, released: ReleasedCounts, boxes: Boxes) -> FloatArray:
    tree, level = tables.tree, level_of(tables.folder.steps, boxes.levels)
    if released.is_grid or tree.axis_levels(level) == boxes.levels:
        return released.with_rounding(released.variances.of_cells(boxes.levels, boxes.areas))
    first, stop = list[IntArray](), list[IntArray]()
    for axis, own, areas in zip(tree.axes, boxes.levels, boxes.areas, strict=True):
        begins = axis.first_descendants(own, axis.depth)
        first.append(begins[areas])
        stop.append(begins[areas + 1])
    variances, runs = released.variances.of_boxes(first, stop), _runs(tables, boxes)
    found = np.zeros(len(boxes))
    for number in np.unique(runs).tolist():
        found[runs == number] = released.with_rounding(variances[runs == number], number)
    return found


def _runs(tables: Tables, boxes: Boxes) -> IntArray:
    """Return of how many runs of adjacent leaves each box is made, int64, shape (boxes,).

    The box is made of whole cells of a level. Go up as long as it is made of whole cells of the level above too. The parents of its cells
    then have one child in the box each, and others beside it: no two of these children are adjacent.
    """
    tree, level = tables.tree, level_of(tables.folder.steps, boxes.levels)
    runs, is_open = np.ones(len(boxes), dtype=np.int64), np.ones(len(boxes), dtype=bool)
    for below in reversed(range(1, level + 1)):
        number, above = tree.refined(below - 1)
        axis, asked = tree.axes[number], boxes.levels[number]
        if above >= asked:
            continue  # the axis was not asked for so finely
        parents = axis.ancestors(boxes.areas[number], asked, above)
        ends = is_open & (axis.children_of(above, parents) > 1)
        runs[ends] = possible_cells(tables, below - 1, boxes)[ends].astype(np.int64)
        is_open &= ~ends
    return runs
