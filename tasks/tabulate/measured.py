r"""The intervals of many boxes of one kind, where each level was measured: those of `tasks.query.sums.box_interval`.

Cells of a level meet the same boxes where they lie in the same areas of the coarser of their own axis levels and those of the boxes.
So the cells of a level fall into groups, and each box meets one group of every level. What `box_interval` needs of the cells that a box
meets are sums over its group.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from storage.counts.columns import NOISY
from tasks.laws.law import LevelNoise
from tasks.laws.named import noise_of
from tasks.query.boxes import level_of
from tasks.tabulate.tables import Boxes, Groups, Tables, lifted
from tasks.tree.axis import IntArray
from tasks.tree.frontier import locate
from tasks.uncertainty.intervals import NO_CAP, above_share


def measured_intervals(tables: Tables, boxes: Boxes, count: IntArray) -> tuple[IntArray, IntArray]:
    """Return low and high of boxes, extended to contain their released counts, int64, shape (boxes,).

    Args:
        tables: of a folder with noisy counts, whose levels were measured one by one.
        boxes: of one kind.
        count: the released counts, int64, shape (boxes,).
    """
    manifest, own = tables.folder.manifest, level_of(tables.folder.steps, boxes.levels)
    noises = [noise_of(entry) for entry in manifest.levels]
    confidence = manifest.intervals.confidence
    share = above_share(noises, confidence)
    cap, least = np.zeros(len(boxes), dtype=np.int64), np.full(len(boxes), NO_CAP)
    for above in range(own):
        of_all, of_dropped = _most(tables, above, boxes, noises[above], noises[above + 1], share)
        least = np.minimum(least, cap + of_all)
        cap = cap + of_dropped
    tail = 1 - confidence - share * sum(map(bool, noises[:own]))
    groups, which = _met(tables, own, boxes)
    total, cells = (of[which] for of in (groups.sums(tables.noisy(own).column(NOISY)), groups.rows))
    z = each(cells, lambda terms: noises[own].quantile(math.log(tail / 2), terms))
    high = np.minimum(np.maximum(total + z, 0) + cap, least)
    return np.minimum(np.maximum(total - z, 0), count), np.maximum(high, count)


def _most(
    tables: Tables, level: int, boxes: Boxes, noise: LevelNoise, noise_below: LevelNoise, share: float
) -> tuple[IntArray, IntArray]:
    """Return, per box, the most that the measured cells of a level above count together, and the dropped ones among them."""
    groups, which = _met(tables, level, boxes)
    noisy, below, possible = (
        tables.noisy(level).column(NOISY),
        tables.below(level),
        possible_cells(tables, level, boxes),
    )
    measured = groups.rows[which]
    is_sum = (possible > 1) & (measured > 0) & bool(noise)
    tails = [(math.log(share) if share else 0.0, ~is_sum), (math.log(share / 2) if share else 0.0, is_sum)]
    of_all, of_dropped = (np.zeros(len(boxes), dtype=np.int64) for _ in range(2))
    for log_share, chosen in tails:
        for number in np.unique(possible[chosen]).tolist():
            margin = noise.quantile(log_share - math.log(number)) if noise else 0
            caps = np.maximum(noisy + margin, 0)
            boxes_of = chosen & (possible == number)
            of_all[boxes_of] = groups.sums(caps)[which[boxes_of]]
            of_dropped[boxes_of] = groups.sums(np.where(below.children, 0, caps))[which[boxes_of]]
    if is_sum.any():
        log_tail = math.log(share / 4)
        together = groups.sums(noisy)[which] + each(measured, lambda terms: noise.quantile(log_tail, terms))
        children = groups.sums(below.children)[which]
        stayed = groups.sums(below.noisy)[which] - each(children, lambda terms: noise_below.quantile(log_tail, terms))
        of_dropped = np.where(
            is_sum, np.minimum(of_dropped, np.maximum(together - np.maximum(stayed, 0), 0)), of_dropped
        )
        of_all = np.where(is_sum, np.minimum(of_all, np.maximum(together, 0)), of_all)
    return of_all, of_dropped


def most_without_a_row(tables: Tables, level: int) -> int:
    """Return the most that the interval of any cell of a level reaches that has no row, records.

    A cell without a row was measured, or lies in one cell above that was measured and dropped. Then what this one counts, and each
    cell above, is its upper end.
    """
    manifest, tree = tables.folder.manifest, tables.tree
    noises = [noise_of(entry) for entry in manifest.levels]
    confidence = manifest.intervals.confidence
    share = above_share(noises, confidence)
    most, caps_above = 0, np.full(1, NO_CAP)
    for at in range(level + 1):
        cells = tables.noisy(at)
        above = np.full(len(cells.areas[0]), NO_CAP)
        if at:
            parents = locate(tables.parents(at, cells.areas), tables.noisy(at - 1).areas, tree.sizes(at - 1))
            above = caps_above[parents]
        if at < level:
            margin = noises[at].quantile(math.log(share)) if noises[at] else 0
            caps_above = np.minimum(above, np.maximum(cells.column(NOISY) + margin, 0))
            most = max(most, int(caps_above[tables.below(at).children == 0].max(initial=0)))
            continue
        tail = 1 - confidence - share * sum(map(bool, noises[:level]))
        highs = np.maximum(cells.column(NOISY) + noises[at].quantile(math.log(tail / 2)), 0)
        lacks_row = locate(cells.areas, tables.rows(level).areas, tree.sizes(level)) < 0
        most = max(most, int(np.minimum(highs, above)[lacks_row].max(initial=0)))
    return most


def possible_cells(tables: Tables, level: int, boxes: Boxes) -> Any:
    """Return how many cells of a level each box meets, shape (boxes,): int64, or whole numbers of any size where that is too small."""
    kind = np.int64 if tables.tree.possible_cells(level) < NO_CAP else object
    possible: Any = np.ones(len(boxes), dtype=kind)
    for axis, reached, asked, areas in zip(
        tables.tree.axes, tables.tree.axis_levels(level), boxes.levels, boxes.areas, strict=True
    ):
        if reached > asked:
            possible = possible * np.diff(axis.first_descendants(asked, reached)).astype(kind)[areas]
    return possible


def each(values: Any, of: Callable[[int], int]) -> IntArray:
    """Return a function of whole numbers for each of an array, int64, of its shape; it is called once for equal ones."""
    distinct, which = np.unique(values, return_inverse=True)
    found: IntArray = np.array([of(int(value)) for value in distinct], dtype=np.int64)[which].reshape(np.shape(values))
    return found


def _met(tables: Tables, level: int, boxes: Boxes) -> tuple[Groups, IntArray]:
    """Return the groups of the measured cells of a level that boxes tell apart, and the group of each box, shape (boxes,)."""
    coarser = tuple(map(min, tables.folder.reached(level), boxes.levels))
    groups = tables.noisy_groups(level, coarser)
    return groups, groups.of(lifted(tables.tree, boxes.levels, boxes.areas, coarser))
