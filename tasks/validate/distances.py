"""Error metrics: how far released counts are from the truth. For data that may be seen, never beside a release.

A cell is discovered if its released count is above 0. A count below 0, which a few mechanisms release, is an error like any other
and no discovery (Boninsegna and Silvestri 2025).
"""

from dataclasses import dataclass

import numpy as np

from tasks.tree.axis import IntArray
from tasks.tree.frontier import Frontier, locate
from tasks.tree.order import Tree


@dataclass(frozen=True, slots=True)
class LevelErrors:
    """How far the released counts of one level are from the truth.

    Attributes:
        level: the tree level.
        max_absolute: the largest absolute error of any cell, records.
        mean_absolute: the mean absolute error over the cells with a true or a released count, records; 0 where there is none.
        l1: the sum of absolute errors, records.
        false_discovery: of the discovered cells, the share whose true count is zero; 0 where there is none.
        false_negative: of the cells with a true count, the share that is not discovered; 0 where there is none.
    """

    level: int
    max_absolute: int
    mean_absolute: float
    l1: int
    false_discovery: float
    false_negative: float


def level_errors(tree: Tree, truth: Frontier, released: Frontier) -> LevelErrors:
    """Return the errors of one level.

    Args:
        tree: the axes and their order.
        truth: the nodes with a true count; one with 0, as an empty root is, counts as none.
        released: those with a released count, which may be negative.
    """
    truth, released = _nonzero(truth), _nonzero(released)
    row = locate(released.areas, truth.areas, tree.sizes(released.level))
    found = row >= 0
    missed = truth.counts.copy()
    missed[row[found]] = 0
    errors = released.counts.copy()
    errors[found] -= truth.counts[row[found]]
    absolute = np.abs(np.concatenate((errors, missed)))
    cells = len(released) + np.count_nonzero(missed)
    l1 = int(absolute.sum())
    is_discovered = released.counts > 0
    discovered, true = int(is_discovered.sum()), int((is_discovered & found).sum())
    return LevelErrors(
        level=released.level,
        max_absolute=int(absolute.max(initial=0)),
        mean_absolute=l1 / cells if cells else 0.0,
        l1=l1,
        false_discovery=_share(discovered - true, discovered),
        false_negative=_share(len(truth) - true, len(truth)),
    )


def cell_errors(number: int, truth: IntArray, released: IntArray) -> LevelErrors:
    """Return the errors of a view, all of whose cells are listed.

    Args:
        number: of the view.
        truth: the true counts, int64, shape (cells,), records.
        released: the released ones, likewise.
    """
    absolute, there = np.abs(released - truth), (truth != 0) | (released != 0)
    l1, cells = int(absolute.sum()), np.count_nonzero(there)
    discovered, true = int((released > 0).sum()), int(((released > 0) & (truth != 0)).sum())
    return LevelErrors(
        level=number,
        max_absolute=int(absolute.max(initial=0)),
        mean_absolute=l1 / cells if cells else 0.0,
        l1=l1,
        false_discovery=_share(discovered - true, discovered),
        false_negative=_share((of_truth := int((truth != 0).sum())) - true, of_truth),
    )


def _nonzero(nodes: Frontier) -> Frontier:
    there = nodes.counts != 0
    return Frontier(nodes.level, tuple(areas[there] for areas in nodes.areas), nodes.counts[there])


def _share(part: int, of: int) -> float:
    return part / of if of else 0.0
