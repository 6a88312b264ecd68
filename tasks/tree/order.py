"""The tree: a universe (a product of axes) and the order in which the axes are refined, one level at a time."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from storage.tables import Role, ends_of
from tasks.tree.axis import Axis, BoolArray, IntArray
from tasks.tree.keys import AreaArray


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """A product of axes with an order of refinement.

    Level 0 holds everything in one cell. Level k is reached from level k - 1 by replacing, in every node, the area
    of axis `steps[k - 1]` by its children.

    Attributes:
        axes: the axes, in the order in which tables show them.
        steps: for each level below level 0, the number of the axis that is refined to reach it.
    """

    axes: tuple[Axis, ...]
    steps: tuple[int, ...]

    @property
    def depth(self) -> int:
        """T, the number of levels below level 0."""
        return len(self.steps)

    @property
    def ordered(self) -> list[int]:
        """The numbers of the axes whose areas have an order."""
        return [number for number, axis in enumerate(self.axes) if axis.is_ordered]

    @property
    def ends(self) -> tuple[int, int] | None:
        """The numbers of the axes on which trips begin and end; None where there are no such axes."""
        return ends_of([axis.role for axis in self.axes])

    def number_of(self, role: Role) -> int | None:
        """Return the number of the axis with a role; None where none has it."""
        return next((number for number, axis in enumerate(self.axes) if axis.role == role), None)

    def cascading(self, names: Collection[str]) -> "Tree":
        """Return the tree with axes that cascade, by their names; others do not."""
        return replace(self, axes=tuple(replace(axis, cascades=axis.name in names) for axis in self.axes))

    def axis_levels(self, level: int) -> tuple[int, ...]:
        """Return, per axis, which of its own levels a tree level has reached."""
        return tuple(self.steps[:level].count(axis) for axis in range(len(self.axes)))

    def refined(self, level: int) -> tuple[int, int]:
        """Return which axis is refined below a level, and which of its own levels it has reached there."""
        return self.steps[level], self.axis_levels(level)[self.steps[level]]

    def areas_above(self, level: int, areas: Sequence[IntArray]) -> list[IntArray]:
        """Return, per axis, the areas of the nodes one level up that hold some nodes of a level (> 0), each int64, shape (nodes,), as `areas`."""
        (axis, own_level), above = self.refined(level - 1), list(areas)
        above[axis] = self.axes[axis].ancestors(above[axis], own_level + 1, own_level)
        return above

    def sizes(self, level: int) -> tuple[int, ...]:
        """Return, per axis, how many areas it has at a tree level."""
        return tuple(axis.areas(reached) for axis, reached in zip(self.axes, self.axis_levels(level), strict=True))

    def possible_cells(self, level: int) -> int:
        """Return how many cells a level could have if every node above it survived."""
        return math.prod(self.sizes(level))

    def is_listed(self, level: int) -> bool:
        """Return whether it is known which cells a level could have: a codebook lists the areas of every axis refined."""
        reached = self.axis_levels(level)
        return all(axis.is_listed or not own for axis, own in zip(self.axes, reached, strict=True))

    def same_as(self, level: int) -> int | None:
        """Return the level above that a level repeats, since each of its cells holds one cell of this level; None for others.

        A codebook says so, whatever the records are. The level that is returned repeats none.
        """
        own = level
        while own and self.is_listed(own):
            axis = self.steps[own - 1]
            if self.axes[axis].most_children(self.axis_levels(own - 1)[axis]) != 1:
                break
            own -= 1
        return own if own < level else None

    def level_named(self, name: str) -> int | None:
        """Return the first level at which every axis that has a level of this name has reached it; None if none has."""
        wanted = [axis.level_names.index(name) + 1 if name in axis.level_names else 0 for axis in self.axes]
        if not any(wanted):
            return None
        return next(
            level
            for level in range(self.depth + 1)
            if all(reached >= own for reached, own in zip(self.axis_levels(level), wanted, strict=True))
        )

    def leaves_below(self, level: int, areas: Sequence[IntArray]) -> IntArray:
        """Return how many leaves lie below some nodes of a level, int64, shape (nodes,), as each of `areas`; they must fit in 64 bits."""
        leaves = np.ones(len(areas[0]), dtype=np.int64)
        depths = zip(self.axes, self.axis_levels(level), self.axis_levels(self.depth), areas, strict=True)
        for axis, own_level, finest, of_axis in depths:
            leaves *= np.diff(axis.first_descendants(own_level, finest))[of_axis]
        return leaves

    def most_cells_below(self, axis_levels: Sequence[int], promised: Sequence[int]) -> int:
        """Return the most cells of one partition that any node of another can meet.

        Args:
            axis_levels: per axis, the axis level of the nodes.
            promised: per axis, the axis level of the cells.
        """
        return math.prod(
            axis.most_descendants(level, below)
            for axis, level, below in zip(self.axes, axis_levels, promised, strict=True)
        )

    def level_names(self, level: int) -> dict[str, str | None]:
        """Return, per axis name, the name of the axis level reached; None where it is not refined yet."""
        reached = self.axis_levels(level)
        return {axis.name: axis.level_name(own) for axis, own in zip(self.axes, reached, strict=True)}


def in_sequence(depths: Sequence[int], order: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return the order of refinement in which axes are refined as listed, some levels at a time.

    The last entry of an axis refines it down to its finest level, whatever level it names. So a codebook that was cut has the
    same order as the whole one, without the levels that were cut.

    Args:
        depths: levels of each axis.
        order: at least one entry for each axis: its number, and down to which of its levels it is refined, from 1 on; the
            levels of one axis ascend.
    """
    last = {axis: entry for entry, (axis, _) in enumerate(order)}
    steps = list[int]()
    for entry, (axis, level) in enumerate(order):
        finest = depths[axis] if entry == last[axis] else level
        steps += [axis] * (finest - steps.count(axis))
    return tuple(steps)


def alternate(depths: Sequence[int], first: int) -> tuple[int, ...]:
    """Return the order of refinement in which axes take turns, `first` first; deeper axes go on alone.

    Args:
        first: number of the axis that is refined first; the others follow in their own order.
    """
    turn = [first, *(axis for axis in range(len(depths)) if axis != first)]
    return tuple(axis for level in range(max(depths)) for axis in turn if level < depths[axis])


def levels_of_flows(
    ends: tuple[int, int] | None, names: Sequence[Sequence[str]], reached: Sequence[Sequence[int]]
) -> list[int]:
    """Return the levels that refine both ends of trips alike: to levels of one name, or to as many levels; none without ends.

    Args:
        ends: the numbers of their axes.
        names: per axis, what its levels are called, coarse to fine.
        reached: per tree level, the level of each axis; 0 where an axis is summed over.
    """
    if ends is None:
        return []
    origin, destination = (names[end] for end in ends)
    of_ends = [(levels[ends[0]], levels[ends[1]]) for levels in reached]
    return [
        level
        for level, (one, other) in enumerate(of_ends)
        if one and other and (one == other or origin[one - 1] == destination[other - 1])
    ]


def without_attributes(
    flows: Sequence[int], ends: tuple[int, int] | None, reached: Sequence[Sequence[int]]
) -> list[int]:
    """Return those levels of flows that refine nothing but the ends, or all of them where none does; arguments are as in `levels_of_flows`."""
    alone = [
        level for level in flows if not any(own for axis, own in enumerate(reached[level]) if axis not in (ends or ()))
    ]
    return alone or [*flows]


def finest_clear(flows: Sequence[int], clear: int) -> int:
    """Return the level of flows to look at first: the finest one down to which levels stand above the noise, or else the first one.

    Args:
        flows: levels, ascending, at least one.
        clear: the level down to which levels stand above the noise; 0 where none does.
    """
    return max((level for level in flows if level <= clear), default=flows[0])


def flows_within(tree: Tree, level: int) -> Callable[[Sequence[AreaArray]], BoolArray]:
    """Return a function that tells which cells of a level count trips within one area, or between an area and one that contains it.

    It takes the areas of cells per axis, integers, shape (cells,) each. No cell does where a level does not refine both ends.
    """
    reached, ends = tree.axis_levels(level), tree.ends
    common = min(reached[end] for end in ends) if ends else 0
    if not ends or not common or not are_the_same(tree.axes[ends[0]], tree.axes[ends[1]], common):
        return lambda areas: np.zeros(len(areas[0]), dtype=bool)
    at_the_other_end = _number_at_the_other_end(tree.axes[ends[0]], tree.axes[ends[1]], common)

    def within(areas: Sequence[AreaArray]) -> BoolArray:
        origin, destination = (
            tree.axes[end].ancestors(areas[end].astype(np.int64), reached[end], common) for end in ends
        )
        is_within: BoolArray = at_the_other_end[origin] == destination
        return is_within

    return within


def innermost(tree: Tree, level: int) -> Callable[[Sequence[AreaArray]], BoolArray]:
    """Return a function that tells which cells of a level (> 0) stay within an area of that level, where their siblings leave it.

    Such cells count trips within one area, and the end that is refined at this level is no finer there than the other. It takes areas as
    `flows_within` does.
    """
    axis, reached = tree.steps[level - 1], tree.axis_levels(level)
    if tree.ends and axis in tree.ends and reached[axis] == min(reached[end] for end in tree.ends):
        return flows_within(tree, level)
    return lambda areas: np.zeros(len(areas[0]), dtype=bool)


def twins_of(tree: Tree) -> list[list[int]]:
    """Return, for each level that both ends have in common, the number at the destination of each area of the origin; -1 where it is not there."""
    origin, destination = (tree.axes[end] for end in tree.ends) if tree.ends else (None, None)
    if origin is None or destination is None:
        return []
    common = [
        level
        for level in range(1, min(origin.depth, destination.depth) + 1)
        if are_the_same(origin, destination, level)
    ]
    return [_number_at_the_other_end(origin, destination, level).tolist() for level in common]


def are_the_same(origin: Axis, destination: Axis, level: int) -> bool:
    """Return whether two ends have the same areas down to a level, by the names of their levels or by all their codes."""
    if origin.level_names[:level] == destination.level_names[:level]:
        return True
    return all(
        set(one) == set(other) for one, other in zip(origin.codes[:level], destination.codes[:level], strict=True)
    )


def _number_at_the_other_end(origin: Axis, destination: Axis, level: int) -> IntArray:
    """Return, for every area of a level of the one end, its number at the other end; -1 for an area that is not there."""
    one, other = (axis.paths(level).with_columns(number=np.arange(axis.areas(level))) for axis in (origin, destination))
    codes = one.columns[:-1]
    joined = one.join(other, on=codes, how="left", suffix="_there", maintain_order="left")
    return joined["number_there"].fill_null(-1).to_numpy()
