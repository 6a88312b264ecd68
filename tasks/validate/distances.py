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
    row = locate(released.areas, truth.areas, tree.sizes(released.level))
    missed = truth.counts.copy()
    missed[row[row >= 0]] = 0
    true = np.concatenate((np.append(truth.counts, 0)[row], missed))
    return cell_errors(released.level, true, np.append(released.counts, np.zeros_like(missed)))


def cell_errors(number: int, truth: IntArray, released: IntArray) -> LevelErrors:
    """Return the errors of a level or view, of which all cells with a count are listed.

    Args:
        number: of the level or view.
        truth: the true counts, int64, shape (cells,), records.
        released: the released ones, likewise.
    """
    absolute, is_true, is_discovered = np.abs(released - truth), truth != 0, released > 0
    l1, cells, with_records = int(absolute.sum()), int((is_true | (released != 0)).sum()), int(is_true.sum())
    discovered, true = int(is_discovered.sum()), int((is_discovered & is_true).sum())
    return LevelErrors(
        level=number,
        max_absolute=int(absolute.max(initial=0)),
        mean_absolute=l1 / cells if cells else 0.0,
        l1=l1,
        false_discovery=_share(discovered - true, discovered),
        false_negative=_share(with_records - true, with_records),
    )


def _share(part: int, of: int) -> float:
    return part / of if of else 0.0
