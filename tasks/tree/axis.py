"""An axis: a public hierarchy, its areas numbered so that the children of an area are contiguous."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from storage.tables import Role
from tasks.words.areas import code_columns

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
AxisLevels = tuple[int, ...]  # per axis, the axis level of some cells; 0 where the axis is summed over
Path = tuple[str, ...]  # the codes of an area and of those that contain it, coarse to fine


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """A public hierarchy of areas, from everything (level 0, one area) to the finest level.

    Areas of a level are numbered in the order of their paths of codes, so that the children of an area are
    contiguous and `first_child` is all it takes to list them.

    Attributes:
        name: what the axis is called in tables, such as `origin`.
        level_names: names of levels 1 to depth, coarse to fine.
        first_child: for each level above the finest, int64, shape (areas of the level + 1,): area a has the
            children first_child[level][a] to first_child[level][a + 1] (not included) of the next level.
        parent: for each level below level 0, int64, shape (areas of the level,): the area above, one level up.
            parent[level - 1] belongs to `level`.
        codes: for each level below level 0, the text code of every area; codes[level - 1] belongs to `level`.
        is_listed: whether these are all areas that there can be; where no codebook lists them, there are none, and that
            says nothing.
        is_ordered: whether its areas have an order that questions may ask for ranges in.
        cascades: whether each of its areas is measured as precisely as its own siblings and children call for, by the split `cascade`.
        role: what it is in a release, beside a feature; None for a feature.
    """

    name: str
    level_names: tuple[str, ...]
    first_child: tuple[IntArray, ...]
    parent: tuple[IntArray, ...]
    codes: tuple[pl.Series, ...]
    is_listed: bool = True
    is_ordered: bool = False
    cascades: bool = False
    role: Role | None = None

    @property
    def depth(self) -> int:
        """The number of levels below level 0."""
        return len(self.level_names)

    def areas(self, level: int) -> int:
        """Return how many areas a level has; level 0 has one."""
        return 1 if level == 0 else len(self.parent[level - 1])

    def level_name(self, level: int) -> str | None:
        """Return the name of a level, None for level 0."""
        return None if level == 0 else self.level_names[level - 1]

    def children_of(self, level: int, areas: IntArray) -> IntArray:
        """Return how many children each of `areas` (numbers at `level`) has at the next level; int64, of the shape of `areas`."""
        first_child = self.first_child[level]
        return first_child[areas + 1] - first_child[areas]

    def last_alike(self, level: int) -> int:
        """Return the finest level of which every area of a level has one area, by the codebook; the level itself if there is none."""
        while self.is_listed and level < self.depth and self.areas(level + 1) == self.areas(level):
            level += 1
        return level

    def most_children(self, level: int) -> int:
        """Return the most children that any area of a level has."""
        return int(np.diff(self.first_child[level]).max(initial=0))

    def first_descendants(self, level: int, below: int) -> IntArray:
        """Return where the areas of the level `below`, which is as fine or finer, begin in each area of `level`, and the end.

        Shape (areas of the level + 1,): area a has the numbers first[a] to first[a + 1] (not included).
        """
        first = np.arange(self.areas(level) + 1)
        for step in range(level, below):
            first = self.first_child[step][first]
        return first

    def most_descendants(self, level: int, below: int) -> int:
        """Return the most areas of the level `below` that lie in one area of `level`; 1 where that is no finer."""
        return 1 if below <= level else int(np.diff(self.first_descendants(level, below)).max(initial=0))

    def ancestors(self, areas: IntArray, level: int, above: int) -> IntArray:
        """Return, for areas numbered at `level`, the areas that hold them at the level `above`, which is as coarse or coarser.

        Both are int64 and have the same shape.
        """
        for step in range(level, above, -1):
            areas = self.parent[step - 1].take(areas)  # which other threads need not wait for
        return areas

    def coarsest_alike(self, areas: IntArray, level: int) -> tuple[IntArray, IntArray]:
        """Return, for areas numbered at `level`, the coarsest ones that are the same by the codebook, and the levels of these.

        An only child is the same as its parent, and so on upwards. All are int64, shape (areas,).
        """
        alike, levels, going_up = areas.copy(), np.full_like(areas, level), np.arange(len(areas))
        for own in range(level, 0, -1) if self.is_listed else ():
            above = self.parent[own - 1][alike[going_up]]
            is_only = self.children_of(own - 1, above) == 1
            going_up = going_up[is_only]
            alike[going_up], levels[going_up] = above[is_only], own - 1
        return alike, levels

    def paths(self, level: int, areas: NDArray[np.int32] | IntArray | None = None) -> pl.DataFrame:
        """Return the paths of some areas of a level, or of all in their order: text columns `code_1` to `code_<level>`, coarse to fine."""
        of = np.arange(self.areas(level), dtype=np.int64) if areas is None else areas.astype(np.int64)
        return pl.DataFrame(
            {
                column: self.codes[own - 1].gather(self.ancestors(of, level, own))
                for own, column in enumerate(code_columns(level), 1)
            }
        )


def first_leaves(first_child: Sequence[IntArray], finest: int) -> list[IntArray]:
    """Return, per level, where its areas begin among the finest ones, then `finest`, the number of these, shape (areas + 1,)."""
    first = [np.arange(finest + 1)]
    for children in reversed(first_child):
        first.insert(0, first[0][children])
    return first


def axis_from_codebook(name: str, codebook: pl.DataFrame, role: Role | None = None) -> Axis:
    """Return the axis of a codebook.

    Args:
        codebook: one row per finest area, one text column per level, coarse to fine; sorted by all columns, no row
            twice, no null. There may be no row.
    """
    rows = codebook.height
    begins_area = np.zeros(rows, dtype=bool)
    begins_area[:1] = True
    numbers = np.zeros(rows, dtype=np.int64)  # of each row's area at the level above
    first_rows = np.zeros(1, dtype=np.int64)  # the row in which each area of the level above begins
    first_child, parent, codes = [], [], []
    for column in codebook.iter_columns():
        begins_area[1:] |= column.ne_missing(column.shift(1)).to_numpy()[1:]
        numbers_below = np.cumsum(begins_area) - 1
        areas = np.count_nonzero(begins_area)
        first_child.append(np.append(np.append(numbers_below, areas)[first_rows], areas))
        first_rows = np.flatnonzero(begins_area)
        parent.append(numbers[first_rows])
        codes.append(column.gather(first_rows))
        numbers = numbers_below
    return Axis(name, tuple(codebook.columns), tuple(first_child), tuple(parent), tuple(codes), role=role)


def numbered(paths: pl.DataFrame) -> tuple[pl.DataFrame, IntArray]:
    """Return the codebook of the areas that some rows have, and the finest area of each row.

    Areas are numbered in the order of their codes. So rows in the order of a tree over more areas are also in the order of
    the tree over these areas, and no gap in the numbers reveals that other areas exist.

    Args:
        paths: a row per leaf, a text column per level of one axis, coarse to fine; released. There may be no row.
    Returns:
        A row per finest area, sorted by all columns; and its number, int64, shape (rows,).
    """
    codebook = paths.unique().sort(paths.columns)
    names = {column: f"code_{number}" for number, column in enumerate(paths.columns)}
    areas = codebook.rename(names).with_row_index("area")
    rows = paths.rename(names).join(areas, on=list(names.values()), how="left", maintain_order="left")
    return codebook, rows["area"].to_numpy().astype(np.int64)
