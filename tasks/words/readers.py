"""What a spec says to the readers of its release: a title, a description, a source, and what they call its levels.

All functions take the spec as the manifest publishes it.
"""

from collections.abc import Mapping
from typing import Any

from tasks.words.levels import Axes

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


def _line(text: object) -> str:
    """Return a text on one line; empty for none."""
    return " ".join(str(text or "").split())
