"""What a report shows of the released counts, collected level by level while their tables are written."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from storage.releases.terms import LevelTerms
from tasks.format.rows import Rows
from tasks.tree.axis import Axis, IntArray
from tasks.tree.keys import AreaArray
from tasks.tree.order import Tree
from tasks.validate.bounds import finest_above_noise

CLASSES = (
    1,
    2,
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
)  # the least counts of the size classes; below them is one more
MOST_SHOWN = 40  # areas of either end of a matrix
MOST_LARGEST = 15  # rows
_CHUNK = 1_000_000  # rows that are looked at at a time

Path = tuple[str, ...]  # codes of an area and of those that hold it, coarse to fine


@dataclass(frozen=True, slots=True)
class AreasFacts:
    """How many areas of an axis are left at a level.

    Attributes:
        axis: its name.
        left: those that have a row.
        possible: those of the codebook; None where none lists them.
    """

    axis: str
    left: int
    possible: int | None


@dataclass(frozen=True, slots=True)
class LevelFacts:
    """The released counts of a level.

    Attributes:
        possible_cells: None where no codebook lists them.
        areas: of the axes that are refined.
        sizes: rows per size class: counts below `CLASSES[0]`, then those from each of `CLASSES` to the next.
        least: records; 0 where there is no row, likewise `most`.
        half_width: of the intervals of the rows, on average, records; None where none are stated.
    """

    possible_cells: int | None
    areas: tuple[AreasFacts, ...]
    sizes: tuple[int, ...]
    least: int
    most: int
    half_width: float | None = None

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(self.sizes)


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """The counts of two axes against one another, of the areas with the largest sums.

    Attributes:
        level: at which both are refined for the first time; where there is only one axis, the first level of that one.
        axes: the axis of the rows and that of the columns; the name alone of a single one.
        codes: per axis, the areas shown, in the order of the codebook.
        left: per axis, how many areas have a row, shown or not.
        counts: int64, shape (rows, columns), records; 0 where the cell was not released. One row for a single axis.
        is_released: bool, the same shape.
    """

    level: int
    axes: tuple[str, ...]
    codes: tuple[tuple[Path, ...], ...]
    left: tuple[int, ...]
    counts: IntArray
    is_released: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class LargeCount:
    """One of the largest counts.

    Attributes:
        codes: per axis that is refined, its area: the code alone where no two areas of the level share it, else the path.
        count: records.
        low: where its interval begins, records; None where none is stated. Of the intervals that hold at once, where there
            are any: what is picked for its size needs those.
        high: where it ends.
    """

    codes: tuple[Path, ...]
    count: int
    low: int | None
    high: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """What a report shows of the released counts. Everything in it is public.

    Attributes:
        total: of the counts, records.
        finest_above_noise: the level down to which typical cells stand above the noise, as `trellis plan` says it for this
            total; None where they do not at the first one, or it is unknown how many cells there are.
        levels: 0 to T.
        matrix: None where no axis is refined.
        largest_level: of the largest counts.
        largest_axes: those that are refined there.
        largest: the largest counts, the largest first; of equal ones that which comes first in the table.
    """

    total: int
    finest_above_noise: int | None
    levels: tuple[LevelFacts, ...]
    matrix: Matrix | None
    largest_level: int
    largest_axes: tuple[str, ...]
    largest: tuple[LargeCount, ...]

    @property
    def is_unlisted(self) -> bool:
        """Whether nobody can say how many cells there could be at some level."""
        return any(level.possible_cells is None for level in self.levels)

    def typical_count(self, level: int) -> float | None:
        """Return the total spread evenly over the possible cells of a level, records; None where it is unknown how many."""
        possible = self.levels[level].possible_cells
        return None if possible is None else max(self.total, 0) / possible


class Collector:
    """Looks at the levels of a release, one after the other from level 0 on, and keeps a few numbers of each.

    It reads released counts, codes of areas that have one, and the terms of the levels: nothing that is not public.
    """

    def __init__(self, tree: Tree, levels: Sequence[LevelTerms]) -> None:
        """Take the axes and their order, and the terms of levels 0 to T."""
        self._tree, self._terms = tree, levels
        self._matrix_level = _first_matrix(tree)
        self._total = 0
        self._finest_above: int | None = None
        self._levels: list[LevelFacts] = []
        self._matrix: Matrix | None = None
        self._largest: tuple[LargeCount, ...] = ()

    @property
    def _largest_level(self) -> int:
        """The finest level above the noise. With a threshold every row that is there stands; else where both ends are refined."""
        if self._terms[-1].threshold:
            return self._tree.depth
        return self._matrix_level if self._finest_above is None else self._finest_above

    def take(self, rows: Rows) -> None:
        """Look at the next level; its rows are in the order of their areas."""
        level = len(self._levels)
        if level == 0:
            self._total = int(rows.counts.sum())
            self._finest_above = finest_above_noise(
                max(self._total, 0),
                [terms.sigma for terms in self._terms],
                [terms.possible_cells for terms in self._terms],
                self._terms[-1].threshold,
            )
        self._levels.append(self._look_at(level, rows))
        if level == self._matrix_level and level:
            self._matrix = _matrix(self._tree, level, rows)
        if level == self._largest_level and level:
            self._largest = _largest(self._tree, level, rows)

    def facts(self) -> Facts:
        """Return what was kept, once every level was taken."""
        reached = self._tree.axis_levels(self._largest_level)
        return Facts(
            self._total,
            self._finest_above,
            tuple(self._levels),
            self._matrix,
            self._largest_level,
            tuple(axis.name for axis, own in zip(self._tree.axes, reached, strict=True) if own),
            self._largest,
        )

    def _look_at(self, level: int, rows: Rows) -> LevelFacts:
        reached = self._tree.axis_levels(level)
        refined = {
            number: np.zeros(size, dtype=bool) for number, size in enumerate(self._tree.sizes(level)) if reached[number]
        }
        from_class = np.zeros(len(CLASSES), dtype=np.int64)
        least, most, widths = [], [], 0.0
        for part in _parts(rows):
            for number, is_left in refined.items():
                is_left[part.areas[number]] = True
            from_class += [np.count_nonzero(part.counts >= first) for first in CLASSES]
            least.append(int(part.counts.min()))
            most.append(int(part.counts.max()))
            if part.bounds:
                widths += float((part.bounds[1] - part.bounds[0]).sum(dtype=float))
        at_least = [len(rows), *from_class.tolist(), 0]
        return LevelFacts(
            self._terms[level].possible_cells,
            tuple(
                AreasFacts(
                    axis.name, int(np.count_nonzero(refined[number])), len(refined[number]) if axis.is_listed else None
                )
                for number, axis in enumerate(self._tree.axes)
                if number in refined
            ),
            tuple(more - fewer for more, fewer in pairwise(at_least)),
            min(least, default=0),
            max(most, default=0),
            widths / (2 * len(rows)) if rows.bounds and len(rows) else None,
        )


def _first_matrix(tree: Tree) -> int:
    """Return the first level at which two axes are refined, or else the first at which one is."""
    refined = [sum(own > 0 for own in tree.axis_levels(level)) for level in range(tree.depth + 1)]
    return refined.index(min(2, max(refined)))


def _parts(rows: Rows) -> Iterator[Rows]:
    return (rows[first : first + _CHUNK] for first in range(0, len(rows), _CHUNK))


def _matrix(tree: Tree, level: int, rows: Rows) -> Matrix:
    """Return the matrix of a level at which one axis is refined, or two are: then a pair of areas has one row."""
    reached, sizes = tree.axis_levels(level), tree.sizes(level)
    refined = [number for number, own in enumerate(reached) if own]
    sums = [np.zeros(sizes[number]) for number in refined]  # which only say whose are the largest
    is_left = [np.zeros(sizes[number], dtype=bool) for number in refined]
    for part in _parts(rows):
        for number, of_axis, left in zip(refined, sums, is_left, strict=True):
            of_axis += np.bincount(part.areas[number], weights=part.counts, minlength=len(of_axis))
            left[part.areas[number]] = True
    shown = [_most(of_axis, left) for of_axis, left in zip(sums, is_left, strict=True)]
    shape = tuple(len(areas) for areas in shown)
    counts, released = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=bool)
    places = [_places(areas, sizes[number]) for number, areas in zip(refined, shown, strict=True)]
    for part in _parts(rows):
        place = tuple(of_axis[part.areas[number]] for number, of_axis in zip(refined, places, strict=True))
        is_shown = np.logical_and.reduce([of_axis >= 0 for of_axis in place])
        there = tuple(of_axis[is_shown] for of_axis in place)
        counts[there] = part.counts[is_shown]
        released[there] = True
    return Matrix(
        level,
        tuple(tree.axes[number].name for number in refined),
        tuple(_paths(tree.axes[number], reached[number], areas) for number, areas in zip(refined, shown, strict=True)),
        tuple(int(np.count_nonzero(left)) for left in is_left),
        np.atleast_2d(counts),
        np.atleast_2d(released),
    )


def _most(sums: NDArray[np.float64], is_left: NDArray[np.bool_]) -> IntArray:
    """Return the areas with the largest sums among those that are left, in the order of their numbers."""
    left = np.flatnonzero(is_left)
    return np.sort(left[np.argsort(-sums[left], kind="stable")[:MOST_SHOWN]])


def _places(areas: IntArray, size: int) -> IntArray:
    """Return, for every area of a level, its place among some of them; -1 where it is none of them."""
    places = np.full(size, -1)
    places[areas] = np.arange(len(areas))
    return places


def _largest(tree: Tree, level: int, rows: Rows) -> tuple[LargeCount, ...]:
    candidates = [
        first + _positions_of_largest(rows.counts[first : first + _CHUNK]) for first in range(0, len(rows), _CHUNK)
    ]
    positions = np.concatenate([np.zeros(0, dtype=np.int64), *candidates])
    positions = positions[_positions_of_largest(rows.counts[positions])]
    codes = zip(
        *(
            _shortest_paths(axis, own, of_axis[positions])
            for axis, own, of_axis in zip(tree.axes, tree.axis_levels(level), rows.areas, strict=True)
            if own
        ),
        strict=True,
    )
    return tuple(
        LargeCount(of_row, int(rows.counts[position]), *_interval(rows, position))
        for position, of_row in zip(positions.tolist(), codes, strict=True)
    )


def _positions_of_largest(counts: IntArray) -> IntArray:
    """Return where the largest counts are, the largest first, and of equal ones the first first."""
    if len(counts) > MOST_LARGEST:
        least = np.partition(counts, -MOST_LARGEST)[-MOST_LARGEST]
        above, equal = np.flatnonzero(counts > least), np.flatnonzero(counts == least)
        positions = np.concatenate((above, equal[: MOST_LARGEST - len(above)]))
    else:
        positions = np.arange(len(counts))
    return positions[np.lexsort((positions, -counts[positions]))]


def _interval(rows: Rows, position: int) -> tuple[int | None, int | None]:
    if not rows.bounds:
        return None, None
    low, high = rows.bounds[-2:]
    return int(low[position]), int(high[position])


def _shortest_paths(axis: Axis, level: int, areas: AreaArray) -> tuple[Path, ...]:
    """Return what tells some areas of a level from all others of it: their codes, or where two may share one, their paths."""
    paths, codes = _paths(axis, level, areas), axis.codes[level - 1]
    return tuple(path[-1:] for path in paths) if codes.n_unique() == len(codes) else paths


def _paths(axis: Axis, level: int, areas: AreaArray) -> tuple[Path, ...]:
    """Return the codes of some areas of a level, each behind those of the areas that hold it."""
    columns = [
        axis.codes[own - 1].gather(axis.ancestors(areas.astype(np.int64), level, own)).to_list()
        for own in range(1, level + 1)
    ]
    return tuple(zip(*columns, strict=True))
