"""Words for the levels of a release: how far each axis is refined, or which features a level adds."""

from collections.abc import Mapping, Sequence

Axes = Mapping[str, str | None]  # per axis, the name of the axis level reached, None where it is not refined yet

_ENDS = ["origin", "destination"]
_MOST_NAMES = 4  # names that one line shows


def level_columns(levels: Sequence[Axes]) -> dict[str, list[str]]:
    """Return the columns of a table of levels, one text per level.

    Levels of trips have a column for each end. Levels of features have one column, which says what each level refines: a
    column per feature would be mostly repetition.

    Args:
        levels: the axes of levels 0, 1, …, at least one.
    """
    if list(levels[0]) == _ENDS:
        return {axis: [axes[axis] or "all" for axes in levels] for axis in _ENDS}
    above: Axes = {}
    refined = []
    for axes in levels:
        new = [_named(axis, level) for axis, level in axes.items() if level and level != above.get(axis)]
        refined.append(in_short(new) if new else "everything")
        above = axes
    return {"refined": refined}


def place(axes: Axes) -> str:
    """Return in words how far a level is refined."""
    if list(axes) == _ENDS:
        return ", ".join(f"{axis} {name or 'all'}" for axis, name in axes.items())
    return in_short([_named(axis, name) for axis, name in axes.items() if name])


def in_short(names: Sequence[str]) -> str:
    """Return names on one line: the first few, and how many more there are."""
    shown, further = names[:_MOST_NAMES], len(names) - _MOST_NAMES
    return ", ".join([*shown, f"{further} more"] if further > 0 else shown)


def _named(axis: str, level: str) -> str:
    return axis if level == axis else f"{axis} {level}"
