r"""What is known of the numbers of groups of one level: the measured level from which it follows, and intervals where adjacent sizes share a draw.

The cells of a level form rows, such as the sizes of one place, and only cells next to each other in a row share a draw. So the noises of
every other cell are independent, and the events of `tasks.uncertainty.signals` befall B = B₁ + B₂ cells, each of the two being at most
Bin(M′, q), where M′ is the number of every other cell. For R chosen cells with R >= 2 R_g

.. math:: \frac{E (B - 2 b R_g)_+}{2 R_g} \le \frac{E (B_1 - b R_g)_+ + E (B_2 - b R_g)_+}{2 R_g} \le \frac{E (\mathrm{Bin}(M', q_g) - b R_g)_+}{R_g}

so that the probabilities q_g of M′ cells hold for twice as many chosen ones. They take nine tenths of α; the rest is for one chosen cell, by a
union over all cells. So the share is at most α even for somebody who sees all noise and then decides how many cells to choose.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from tasks.laws.law import LevelNoise
from tasks.sizes.places import areas_of, in_tree_order
from tasks.tree.axis import AxisLevels, BoolArray, IntArray
from tasks.tree.order import Tree
from tasks.tree.views import Partition, View, ViewCells, finest_named, lowered
from tasks.uncertainty.signals import tails_of

_OF_ONE = 0.1  # of α, for one chosen cell

MarginOf = Callable[[float, IntArray], IntArray]


def log_tail_of_sizes(every_other: int, rows: int, confidence: float) -> float:
    """Return the logarithm of the probability with which a row's noise may go beyond z, to one side.

    Args:
        every_other: M′, how many cells there are at most of which no two share a draw, in one of the two halves.
        rows: how many cells have a row.
    """
    alpha, half = 1 - confidence, max(every_other, 1)
    own = math.log(_OF_ONE * alpha / (2 * half)) if rows < 2 else tails_of(half, (1 - _OF_ONE) * alpha).of(rows // 2)
    return own - math.log(2)


def signals_of_sizes(
    noisy: IntArray, terms: IntArray, every_other: int, rate: float, margin_of: MarginOf
) -> tuple[BoolArray, int | None]:
    """Return which rows stand out from the noise, and above what, if that is one number for all marked rows.

    Args:
        noisy: the noisy counts of the rows, int64, shape (rows,), records.
        terms: how many draws each bears, int64, shape (rows,); a row without any is exact, and stands out if it counts something.
        every_other: as in `log_tail_of_sizes`.
        rate: of the marked rows, the share that is expected to have a true count of 0 at most.
        margin_of: from the logarithm of a probability and the terms of the rows to what their noise exceeds with at most that
            probability.
    """
    tails = tails_of(max(every_other, 1), rate)
    for size, log_tail in zip(tails.sizes, tails.log_tails, strict=True):
        if 2 * size <= len(noisy):
            margin = margin_of(log_tail, terms)
            marked = noisy > margin
            if np.count_nonzero(marked) >= 2 * size:
                widths = np.unique(margin[marked])
                return marked, int(widths[0]) if len(widths) == 1 else None
    return np.zeros(len(noisy), dtype=bool), None


Noises = Mapping[int, LevelNoise]  # of what is measured of each place and size, by the number of the level


def own_source(level: int, measured: Iterable[int]) -> int:
    """Return the measured level of the same places as a level, by the codebook; level 1 for the total."""
    return max(number for number in measured if number <= max(level, 1))


def source_of(tree: Tree, level: int, statistic: str, measured: Noises, levels: AxisLevels | None = None) -> int:
    """Return, of the measured levels of the same places or finer ones, that with the least variance in the widest place.

    Of equals it is the coarsest. Sums that run through all places of a level say nothing of a few of them: they have their own level.

    Args:
        level: of the tree, the coarsest one of whose cells the places are made.
        levels: per axis, the axis level of the places, where they are not those of the level.
    """
    own = own_source(level, measured)
    if statistic == "chain":
        return own
    return min(
        (number for number in sorted(measured) if number >= own),
        key=lambda source: measured[source].variance * _most_inside(tree, levels or tree.axis_levels(level), source),
    )


def _most_inside(tree: Tree, levels: AxisLevels, source: int) -> int:
    """Return the most places of a source that lie in a place at some axis levels."""
    return tree.most_cells_below((*levels[:-1], 1), tree.axis_levels(source))


def noise_of_sum(tree: Tree, level: int, statistic: str, measured: Noises) -> LevelNoise:
    """Return the noise of a level that is not measured, in its widest place; of level 0 that of the number of all groups."""
    source, sizes = source_of(tree, level, statistic, measured), tree.possible_cells(1)
    if statistic == "chain":
        return measured[source]
    places = _most_inside(tree, tree.axis_levels(level), source)
    return replace(measured[source], terms=places * (sizes if statistic == "sizes" and not level else 1))


def cells_inside(tree: Tree, view: View, level: int) -> IntArray:
    """Return the cell of a view in which each place and size of a level lies, int64, shape (places, sizes), with the places in the order of the tree."""
    places, sizes = in_tree_order(tree, level), tree.axes[-1].areas(1)
    areas = (np.repeat(of, sizes) for of in areas_of(tree, tree.axis_levels(level), places))
    # an only child is the same as its parent, and has its number
    cells = ViewCells(lowered(tree, tree.axis_levels(level)), (*areas, np.tile(np.arange(sizes), len(places))))
    return Partition(tree, view).places(cells).reshape(-1, sizes)


def draws_inside(statistic: str, cells: IntArray, many: int, *, has_list: bool = False) -> IntArray:
    """Return how many draws the sums of what is measured bear at most, int64, shape (cells,).

    Of tails, one is added where the sizes of a place that lie in a cell begin, and one is taken off where they have ended, unless that is
    behind the largest size. A tail of all groups that a public list has is exact. A number of groups from a chain follows from two draws.

    Args:
        cells: as `cells_inside` returns them.
        many: how many cells there are.
    """
    if statistic != "tails":
        return np.bincount(cells.ravel(), minlength=many) * (2 if statistic == "chain" else 1)
    begins = np.diff(cells, axis=1, prepend=-1) != 0
    ended = cells[:, :-1][begins[:, 1:]]
    begins[:, 0] &= not has_list
    return np.bincount(cells[begins], minlength=many) + np.bincount(ended, minlength=many)


def source_of_view(
    tree: Tree, view: View, statistic: str, measured: Noises, *, has_list: bool = False
) -> tuple[int, IntArray, IntArray]:
    """Return the measured level from which a view has the least variance in its widest cell, with its `cells_inside` and `draws_inside`."""
    needed, many, best = finest_named([view]), len(Partition(tree, view)), list[tuple[float, int, IntArray, IntArray]]()
    for number in sorted(measured):
        if all(own >= level for own, level in zip(lowered(tree, tree.axis_levels(number)), needed, strict=True)):
            cells = cells_inside(tree, view, number)
            draws = draws_inside(statistic, cells, many, has_list=has_list)
            best.append((measured[number].variance * int(draws.max()), number, cells, draws))
    _, number, cells, draws = min(best, key=lambda of: of[:2])
    return number, cells, draws
