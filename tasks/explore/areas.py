"""The areas that the explorer knows: their codes, names and parents, level by level, and where they lie."""

from collections.abc import Sequence
from typing import Any

from tasks.atlas.drawings import drawn_shapes
from tasks.released.boxes import AxisLevels
from tasks.released.estimate import Estimate
from tasks.released.sources.folder import PublishedFolder
from tasks.tree.axis import Path
from tasks.words.readers import level_called

_MOST_DRAWN = 1_000_000  # characters of the page that shapes take


def axes_shown(estimate: Estimate, finest: AxisLevels) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the axes with their levels and areas, and the drawings of their shapes by key.

    Args:
        estimate: of a published folder.
        finest: per axis, the finest level that is shown; of finer ones, only the name is.
    """
    folder = estimate.folder.folder
    paths = {
        (axis.name, level): axis.paths(level).rows()
        for axis, last in zip(estimate.folder.tree.axes, finest, strict=True)
        for level in range(1, last + 1)
    }
    keys, drawings = drawn_shapes(folder.shapes, paths, _MOST_DRAWN)
    axes = [
        {
            "name": axis.name,
            "role": folder.manifest.roles[axis.name],
            "ordered": axis.name in folder.ordered,
            "levels": [
                {
                    "name": name,
                    "called": level_called(folder.manifest.spec, axis.name, name),
                    "codes": [path[-1] for path in paths.get((axis.name, level), [])],
                    "names": names_of(folder, axis.name, paths.get((axis.name, level), [])),
                    "parent": axis.parent[level - 1].tolist() if level > 1 and (axis.name, level) in paths else None,
                    "shape": keys.get((axis.name, level)),
                }
                for level, name in enumerate(folder.axes[axis.name], 1)
            ],
        }
        for axis in estimate.folder.tree.axes
    ]
    return axes, drawings


def names_of(folder: PublishedFolder, axis: str, paths: Sequence[Path]) -> list[str | None] | None:
    """Return the names of areas; None where none of them has one."""
    names = [folder.names.name_of(axis, path) for path in paths] if folder.manifest.names else []
    return names if any(name is not None for name in names) else None
