"""Words for the levels of a release: how far each axis is refined, or which features a level adds."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from storage.counts.columns import ENDS

Axes = Mapping[str, str | None]  # per axis, the name of the axis level reached, None where it is not refined yet

_MOST_NAMES = 4  # names that one line shows


def level_columns(levels: Sequence[Axes]) -> dict[str, list[str]]:
    """Return the columns of a table of levels, one text per level.

    Levels of trips have a column for each end. Levels of features have one column, which says what each level refines: a
    column per feature would be mostly repetition.

    Args:
        levels: the axes of levels 0, 1, …, at least one.
    """
    if tuple(levels[0]) == ENDS:
        return {axis: [axes[axis] or "all" for axes in levels] for axis in ENDS}
    above: Axes = {}
    refined = []
    for axes in levels:
        new = [_named(axis, level) for axis, level in axes.items() if level and level != above.get(axis)]
        refined.append(in_short(new) if new else "everything")
        above = axes
    return {"refined": refined}


def place(axes: Axes) -> str:
    """Return in words how far a level is refined."""
    if tuple(axes) == ENDS:
        return ", ".join(f"{axis} {name or 'all'}" for axis, name in axes.items())
    return in_short([_named(axis, name) for axis, name in axes.items() if name])


class GroupedBy(Protocol):
    """What is stated of a view.

    Attributes:
        axes: the levels of its axes, and its derived columns.
        same_as: the level that it is; None for others.
        summed: whether nothing is measured for it.
        source: the level or view from which its intervals follow.
    """

    @property
    def axes(self) -> Axes: ...  # noqa: D102
    @property
    def same_as(self) -> int | None: ...  # noqa: D102
    @property
    def summed(self) -> bool | None: ...  # noqa: D102
    @property
    def source(self) -> int | None: ...  # noqa: D102


def grouped_by(view: GroupedBy) -> str:
    """Return in words what a view counts by, and which level it repeats if it does."""
    same = view.source if view.summed and view.same_as is None else view.same_as
    return (place(view.axes) or "everything") + ("" if same is None else f", same as level {same}")


def in_short(names: Sequence[str]) -> str:
    """Return names on one line: the first few, and how many more there are."""
    shown, further = names[:_MOST_NAMES], len(names) - _MOST_NAMES
    return ", ".join([*shown, f"{further} more"] if further > 0 else shown)


def _named(axis: str, level: str) -> str:
    return axis if level == axis else f"{axis} {level}"
