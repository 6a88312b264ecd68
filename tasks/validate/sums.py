"""Errors of what readers add up from the finest counts: totals of one axis, and ranges of ordered ones. For data that may be seen."""

from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np

from storage.tables import SIZE
from tasks.tree.axis import FloatArray
from tasks.tree.frontier import Frontier
from tasks.tree.order import Tree
from tasks.validate.utility import Utility, UtilityTerms

RECTANGLES = 10_000  # of two ordered axes, that a fixed seed chooses
MOST_CELLS = 10**7  # of two ordered axes

MARGINS, RANGES = "margins", "ranges"


def margins(tree: Tree, true: Frontier, released: Frontier, _: UtilityTerms) -> dict[str, float]:
    """Return the mean absolute error of the totals of one axis, over all its areas, by axis and level, records.

    Everything and the leaves are no margins, and of an ordered axis the finest level alone is one: the others are some of its ranges.
    """
    finest, errors = tree.axis_levels(tree.depth), dict[str, float]()
    for place, (axis, last) in enumerate(zip(tree.axes, finest, strict=True)):
        of_leaves = _apart(tree, true, released, (place,))
        for level in range(1, last + 1):
            is_leaves = axis.areas(level) == tree.possible_cells(tree.depth)
            if axis.areas(level) == axis.areas(level - 1) or is_leaves or (axis.is_ordered and level < last):
                continue  # it has the cells of another level, or is one of many ranges
            sums = np.add.reduceat(of_leaves, axis.first_descendants(level, last)[:-1])
            name = axis.level_names[level - 1]
            errors[name if name == axis.name else f"{axis.name}.{name}"] = float(np.abs(sums).mean())
    return errors


def ranges(tree: Tree, true: Frontier, released: Frontier, _: UtilityTerms) -> dict[str, float]:
    r"""Return the mean absolute error of the ranges of every ordered axis, and of rectangles of two of them, by their names, records.

    The error of a range is the difference of two prefix sums, so that over all ranges, of prefix sums in ascending order,

    .. math:: \sum_{i < j} |P_j - P_i| = \sum_{k = 0}^{n} (2 k - n) P_{(k)}
    """
    ordered = [place for place, axis in enumerate(tree.axes) if axis.is_ordered or axis.role == SIZE]
    sizes, errors = tree.sizes(tree.depth), dict[str, float]()
    for place in ordered:
        prefixes = np.sort(np.append(0.0, np.cumsum(_apart(tree, true, released, (place,)))))
        codes = len(prefixes) - 1
        if codes > 1:
            errors[tree.axes[place].name] = float(
                (np.arange(-codes, codes + 1, 2) * prefixes).sum() / (codes * (codes + 1) / 2)
            )
    for pair in combinations(ordered, 2):
        if min(sizes[of] for of in pair) > 1 and sizes[pair[0]] * sizes[pair[1]] <= MOST_CELLS:
            name = " × ".join(tree.axes[of].name for of in pair)
            errors[name] = _of_rectangles(_apart(tree, true, released, pair))
    return errors


def _apart(tree: Tree, true: Frontier, released: Frontier, axes: tuple[int, ...]) -> FloatArray:
    """Return released less true totals of some axes at their finest released level, float64, an axis of the array for each."""
    sizes = tuple(tree.sizes(tree.depth)[axis] for axis in axes)

    def totals(leaves: Frontier) -> FloatArray:
        cell = np.ravel_multi_index(tuple(leaves.areas[axis] for axis in axes), sizes)
        return np.bincount(cell, leaves.counts, int(np.prod(sizes))).astype(np.float64)

    apart: FloatArray = (totals(released) - totals(true)).reshape(sizes)
    return apart


def _of_rectangles(apart: FloatArray) -> float:
    prefixes = np.pad(apart.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    generator = np.random.default_rng(0)

    def ends(size: int) -> Iterator[np.ndarray]:
        first = generator.integers(0, size, RECTANGLES)
        second = (first + 1 + generator.integers(0, size - 1, RECTANGLES)) % size
        yield np.minimum(first, second)
        yield np.maximum(first, second)

    (top, bottom), (left, right) = (ends(size) for size in prefixes.shape)
    errors = prefixes[bottom, right] - prefixes[top, right] - prefixes[bottom, left] + prefixes[top, left]
    return float(np.abs(errors).mean())


SUMS: Mapping[str, Utility] = {MARGINS: margins, RANGES: ranges}
