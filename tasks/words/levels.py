"""What tells the levels of a release apart, as people read it: the reach of each end, or the feature that is refined."""

from collections.abc import Mapping, Sequence

Axes = Mapping[str, str | None]  # per axis, the name of the axis level reached, None where it is not refined yet

_ENDS = ["origin", "destination"]
_MOST_NAMES = 4  # of what is listed in one line


def level_columns(levels: Sequence[Axes]) -> dict[str, list[str]]:
    """Return the columns of a table of levels, a text per level: one per end of trips, or what each level refines.

    A table of many features would have a column for each, and in each line one news.

    Args:
        levels: the axes of level 0 and of those below it, at least one.
    """
    if list(levels[0]) == _ENDS:
        return {axis: [axes[axis] or "all" for axes in levels] for axis in _ENDS}
    above: Axes = {}
    refined = []
    for axes in levels:
        news = [_named(axis, level) for axis, level in axes.items() if level and level != above.get(axis)]
        refined.append(in_short(news) if news else "everything")
        above = axes
    return {"refined": refined}


def place(axes: Axes) -> str:
    """Return how far a level is refined, in words."""
    if list(axes) == _ENDS:
        return ", ".join(f"{axis} {name or 'all'}" for axis, name in axes.items())
    return in_short([_named(axis, name) for axis, name in axes.items() if name])


def in_short(names: Sequence[str]) -> str:
    """Return names in one line, of many the first ones."""
    shown, further = names[:_MOST_NAMES], len(names) - _MOST_NAMES
    return ", ".join([*shown, f"{further} more"] if further > 0 else shown)


def _named(axis: str, level: str) -> str:
    return axis if level == axis else f"{axis} {level}"
