"""Views: public partitions of the universe. The levels of a tree are views, each of which refines the one before."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tasks.tree.order import Tree

# which cells of a view are measured: the children of the nodes that are left above, all, or those with records
Measured = Literal["survivors", "universe", "records"]


@dataclass(frozen=True, slots=True)
class View:
    """A public partition of the universe.

    Attributes:
        number: by which charges, seals and the manifest know it; that of a tree level is the level.
        axis_levels: per axis, the axis level whose areas its cells have; 0 where the axis is left out, and so summed over.
        names: per axis name, the name of that level; None where the axis is left out.
    """

    number: int
    axis_levels: tuple[int, ...]
    names: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class AddUp:
    """A finish: the levels above the measured one are the sums of its counts."""


def level_view(tree: Tree, level: int) -> View:
    """Return a level of a tree as a view."""
    return View(level, tree.axis_levels(level), tree.level_names(level))


def every_level(tree: Tree) -> tuple[View, ...]:
    """Return the views of all levels, from 0 to T."""
    return tuple(level_view(tree, level) for level in range(tree.depth + 1))


def finest_level(tree: Tree) -> tuple[View, ...]:
    """Return the view of the finest level alone."""
    return (level_view(tree, tree.depth),)
