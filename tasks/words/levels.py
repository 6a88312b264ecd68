"""Words for the levels of a release and the totals of one axis, and what a spec says to its readers: a title, a source, names of levels.

All functions take the spec as the manifest publishes it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from storage.tables import ENDS

Axes = Mapping[str, str | None]  # per axis, the name of the axis level reached, None where it is not refined yet

_MOST_NAMES = 4  # names that one line shows


def level_columns(levels: Sequence[Axes]) -> dict[str, list[str]]:
    """Return the columns of a table of levels, one text per level.

    Trips have a column for each end, and one for their attributes. Features have one column, which says what each level
    refines: a column per feature would be mostly repetition.

    Args:
        levels: the axes of levels 0, 1, …, at least one.
    """
    if set(ENDS) <= set(levels[0]):
        ends: dict[str, list[str]] = {axis: [axes[axis] or "all" for axes in levels] for axis in ENDS}
        by = [[_named(axis, name) for axis, name in axes.items() if name and axis not in ENDS] for axes in levels]
        return ends if len(levels[0]) == len(ENDS) else ends | {"attributes": [in_short(of) or "all" for of in by]}
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
    """What is stated of a view, by the names of its entry in the manifest."""

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


def poor_totals(errors: Mapping[str, float]) -> str:
    """Return a warning about totals, by the mean absolute noise of each before counts are settled, records; empty without any."""
    if not errors:
        return ""
    named = ", ".join(f"{name} (± {error:,.3g})" for name, error in errors.items())
    return (
        "Totals of one axis that nothing measures by itself, with the mean noise of the best sum of measurements before counts are"
        f" settled, in records: {named}. The released sums, and those of synthetic records, are usually nearer to the truth; they are"
        " further from it where many small counts ended at zero. release.views: margins measures these totals."
    )


def differing_views(differences: Mapping[str, tuple[int, float]]) -> str:
    """Return how far the sums of the finest level are from the views to which it is calibrated; empty without any.

    Of each view, the largest and the mean difference over its cells is given, records.
    """
    if not differences:
        return ""
    about = ", ".join(
        f"{name} by {largest:,} at most and {mean:,.3g} on average" for name, (largest, mean) in differences.items()
    )
    return (
        "The levels are calibrated to these views as far as the areas that are left in them allow. The sums of the finest level differ"
        f" from their tables, in records, over all cells: {about}. Read a view for its own totals: sums of levels, and of synthetic"
        " records, are further from the truth."
    )


Spec = Mapping[str, Any]


def title_of(spec: Spec, otherwise: str) -> str:
    """Return what heads the pages of a release: its title, or else its dataset, or else a given text."""
    return _line(spec.get("title") or spec.get("dataset") or otherwise)


def description_of(spec: Spec) -> str:
    """Return what readers should know about the counts; empty where the spec does not say it."""
    return _line(spec.get("description"))


def source_of(spec: Spec) -> str:
    """Return who collected the records; empty where the spec does not say it."""
    return _line(spec.get("source"))


def about(spec: Spec) -> str:
    """Return the description and the source in one paragraph; empty where the spec has neither."""
    source = source_of(spec)
    return " ".join(filter(None, (description_of(spec), f"Source: {source.rstrip('.')}." if source else "")))


def level_called(spec: Spec, axis: str, level: str) -> str:
    """Return what readers call an area of a level of an axis: the word of the spec, or else the level's name."""
    hierarchy = spec.get("hierarchy")
    if not isinstance(hierarchy, dict):
        return level
    of_axis = hierarchy if "levels" in hierarchy else hierarchy.get(axis)
    words = of_axis.get("called") if isinstance(of_axis, dict) else None
    return _line(words.get(level)) or level if isinstance(words, dict) else level


def axes_called(spec: Spec, axes: Axes) -> Axes:
    """Return how far the axes of a level are refined, in the words of readers."""
    return {axis: None if level is None else level_called(spec, axis, level) for axis, level in axes.items()}


def view_called(spec: Spec, axes: Axes) -> str:
    """Return what readers call a view: what it counts by."""
    return place({axis: level for axis, level in axes_called(spec, axes).items() if level}) or "everything"


def _line(text: object) -> str:
    """Return a text on one line; empty for none."""
    return " ".join(str(text or "").split())
