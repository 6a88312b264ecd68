"""The shapes of areas as SVG paths in one plane for all axes and levels: as few corners as a page has room for."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from tasks.words.areas import AxisLevel, Shapes

WIDTH = 1000  # of the plane

_PARTS = 10  # of a unit of the plane, to which coordinates are rounded
_COARSER = 16  # how often the tolerance may double


@dataclass(frozen=True, slots=True)
class Plane:
    """A plane in which maps are drawn: longitude and latitude, each scaled by one factor that is right in the middle.

    Attributes:
        west: the longitude of its left side.
        north: the latitude of its upper side.
        scale: units per degree of longitude and of latitude.
        height: of the plane.
    """

    west: float
    north: float
    scale: tuple[float, float]
    height: int

    def placed(self, degrees: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return places, longitude and latitude, shape (places, 2), as x and y, in parts of a unit."""
        across, down = (degrees[:, 0] - self.west) * self.scale[0], (self.north - degrees[:, 1]) * self.scale[1]
        placed: NDArray[np.int64] = np.rint(np.column_stack((across, down)) * _PARTS).astype(np.int64)
        return placed

    @property
    def finest(self) -> float:
        """Degrees that are one part of a unit."""
        return 1 / self.scale[0] / _PARTS


def drawn_shapes(
    shapes: Shapes, places: Mapping[AxisLevel, Sequence[tuple[str, ...]]], most: int
) -> tuple[dict[AxisLevel, str], dict[str, Any]]:
    """Return under which key each axis level is drawn, and the drawings by key.

    Args:
        places: the axis levels that are drawn if they have shapes, coarse ones first, with the paths of their areas in order.
        most: characters that all paths have together; finer axis levels are left out where even the fewest corners have more.
    Returns:
        The keys; axes that are alike share one. And per key `width` and `height` of the plane, which all have in common, and per area `d`,
        the path, and `x` and `y`, a place inside; None where it has no shape.
    """
    keys, first = dict[AxisLevel, str](), dict[str, AxisLevel]()
    for place in places:
        if place in shapes.tables:
            axis, level = place
            alike = [
                key
                for key, other in first.items()
                if other[1] == level
                and shapes.tables[place].equals(shapes.tables[other])
                and places[place] == places[other]
            ]
            keys[place] = alike[0] if alike else f"{axis} {level}"
            first.setdefault(keys[place], place)
    while first:
        plane = _plane(shapes, list(first.values()))
        tolerance = plane.finest
        for _ in range(_COARSER):
            paths = {
                key: [_path(shape, plane) for shape in shapes.simplified(*place, tolerance)]
                for key, place in first.items()
            }
            if sum(len(path) for of_key in paths.values() for path in of_key) <= most:
                drawings = {
                    key: _drawing(shapes, plane, place, paths[key], places[place]) for key, place in first.items()
                }
                return {place: key for place, key in keys.items() if key in first}, drawings
            tolerance *= 2
        del first[max(first, key=lambda key: first[key][1])]
    return {}, {}


def _plane(shapes: Shapes, places: Sequence[AxisLevel]) -> Plane:
    """Return the plane that holds all shapes of some axis levels."""
    boxes = [shapely.total_bounds(np.array(list(shapes.simplified(*place, 0)), dtype=object)) for place in places]
    west, south = np.min([box[:2] for box in boxes], axis=0).tolist()
    east, north = np.max([box[2:] for box in boxes], axis=0).tolist()
    shrunk = max(math.cos(math.radians((south + north) / 2)), 0.01)
    across = max(east - west, 1e-9)
    scale = WIDTH / across, WIDTH / across / shrunk
    return Plane(west, north, scale, max(math.ceil((north - south) * scale[1]), 1))


def _drawing(
    shapes: Shapes, plane: Plane, place: AxisLevel, paths: Sequence[str], areas: Sequence[tuple[str, ...]]
) -> dict[str, Any]:
    """Return the drawing of an axis level, with its shapes in the order of its areas."""
    inside = (plane.placed(shapes.points(*place)) / _PARTS).tolist()
    drawn = {area: (path, x, y) for area, path, (x, y) in zip(shapes.paths(*place), paths, inside, strict=True)}
    shown = [drawn.get(area, (None, None, None)) for area in areas]
    return {"width": WIDTH, "height": plane.height} | {name: [of[at] for of in shown] for at, name in enumerate("dxy")}


def _path(shape: Any, plane: Plane) -> str:
    """Return a shape as an SVG path; one that is smaller than a part of a unit becomes a dot."""
    rings = [
        text
        for polygon in shapely.get_parts(shape)
        for ring in (polygon.exterior, *polygon.interiors)
        if (text := "".join(_steps(plane.placed(shapely.get_coordinates(ring)))))
    ]
    if rings:
        return "".join(rings)
    x, y = plane.placed(shapely.get_coordinates(shape)[:1])[0].tolist()
    return f"M{_number(x)} {_number(y)}h.1v.1z"


def _steps(corners: NDArray[np.int64]) -> Iterator[str]:
    """Yield the commands of a closed ring: where it begins, and its steps; none if fewer than three corners are left."""
    corners = corners[np.append(True, np.any(corners[1:] != corners[:-1], axis=1))]
    if len(corners) < 4:
        return
    yield f"M{_number(int(corners[0, 0]))} {_number(int(corners[0, 1]))}l"
    steps = [_number(step) for step in np.diff(corners[:-1], axis=0).ravel().tolist()]
    yield steps[0]
    for step in steps[1:]:
        yield step if step.startswith("-") else f" {step}"
    yield "z"


def _number(parts: int) -> str:
    """Return a number of parts of a unit as short as it can be written."""
    whole, part = divmod(abs(parts), _PARTS)
    text = f"{whole or ''}.{part}" if part else str(whole)
    return f"-{text}" if parts < 0 else text
