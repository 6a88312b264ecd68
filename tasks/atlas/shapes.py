"""The shapes of areas: polygons in degrees of longitude and latitude (WGS 84), to draw maps with."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import shapely
from numpy.typing import NDArray

GEOMETRY = "geometry"  # after the codes

_TOLERANCES = [2.0 ** (-power / 2) for power in range(8, 29)]  # coarse to fine: parts of a map's longer side
_LEAST = 60  # bytes that the text of a shape has
_DRAWN = 2**13  # steps of a map's longer side to which its coordinates are rounded, at least

Place = tuple[str, int]  # an axis, and one of its levels


@dataclass(frozen=True)
class Shapes:
    """The shapes of the areas of a release.

    Attributes:
        of_level: by axis and axis level (from 1 on), the areas that have a shape: text columns `code_1` to `code_<level>`, coarse to
            fine, and `geometry`, a polygon or several as WKB; sorted by codes.
    """

    of_level: Mapping[Place, pl.DataFrame] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether any area has a shape."""
        return bool(self.of_level)

    def levels(self, axis: str) -> list[int]:
        """Return the levels of an axis whose areas have shapes, coarse to fine."""
        return sorted(level for of, level in self.of_level if of == axis)

    def paths(self, axis: str, level: int) -> list[tuple[str, ...]]:
        """Return the areas of an axis level that have a shape, by the codes of their paths, sorted."""
        return [tuple(codes) for *codes, _ in self.of_level[axis, level].iter_rows()]

    def are_alike(self, one: str, other: str, level: int) -> bool:
        """Return whether two axes have the same shapes at a level, so that one drawing holds for both."""
        return self.of_level[one, level].equals(self.of_level[other, level])

    def simplified(self, axis: str, level: int, tolerance: float) -> Sequence[Any]:
        """Return the shapes of an axis level in the order of `paths`, with fewer corners; areas that touch still touch.

        Where areas overlap or leave slivers between them, each keeps its own edge there.

        Args:
            axis: the axis.
            level: its level.
            tolerance: the side of a square, degrees: corners that span less than its area go away; 0 keeps all.
        """
        shapes = self._shapes(axis, level)
        if not tolerance:
            return list(shapes)
        try:
            return list(shapely.coverage_simplify(shapes, tolerance))
        except shapely.errors.ShapelyError:
            return list(shapely.simplify(shapes, tolerance))

    def drawn(self, places: Sequence[Place], most: int) -> dict[Place, list[dict[str, Any]]]:
        """Return the shapes of axis levels as GeoJSON geometries with as many corners as so many bytes of text have room for.

        Outer rings are counterclockwise, as the standard says; holes are clockwise. The coordinates are rounded to a part of the map
        that nobody sees. The same shapes always give the same drawing.

        Args:
            places: the axis levels, the most important first.
            most: bytes that all texts have together.
        Returns:
            The geometries of each axis level in the order of `paths`. Axis levels that have no room even with the fewest corners are
            left out: the last ones, and of those that are left none is further down the list.
        """
        kept = [place for place in places if place in self.of_level]
        while kept and sum(self.of_level[place].height for place in kept) * _LEAST > most:
            kept = kept[:-1]
        while kept:
            if found := self._finest_within(kept, most):
                return found
            kept = kept[:-1]
        return {}

    def points(self, axis: str, level: int) -> NDArray[np.float64]:
        """Return a point inside each area of an axis level, longitude and latitude, in the order of `paths`; shape (areas, 2)."""
        inside = shapely.point_on_surface(self._shapes(axis, level))
        points: NDArray[np.float64] = np.round(shapely.get_coordinates(inside), 6)
        return points

    def _finest_within(self, places: Sequence[Place], most: int) -> dict[Place, list[dict[str, Any]]]:
        """Return axis levels drawn with the finest tolerance whose text has at most so many bytes; empty if none has.

        A finer tolerance leaves more corners, so that halving finds the finest.
        """
        side = self._longer_side(places)
        digits = max(0, math.ceil(math.log10(_DRAWN / side)))
        best: dict[Place, list[dict[str, Any]]] = {}
        first, last = 0, len(_TOLERANCES)
        while first < last:
            middle = (first + last) // 2
            found = {place: list(self._geometries(place, _TOLERANCES[middle] * side, digits)) for place in places}
            if sum(map(_bytes_of, found.values())) <= most:
                best, first = found, middle + 1
            else:
                last = middle
        return best

    def _shapes(self, axis: str, level: int) -> NDArray[np.object_]:
        found: NDArray[np.object_] = shapely.from_wkb(self.of_level[axis, level][GEOMETRY].to_numpy())
        return found

    def _longer_side(self, places: Sequence[Place]) -> float:
        """Return the longer side of the box around axis levels, in degrees."""
        west, south, east, north = shapely.total_bounds(np.concatenate([self._shapes(*place) for place in places]))
        return float(max(east - west, north - south))

    def _geometries(self, place: Place, tolerance: float, digits: int) -> Iterator[dict[str, Any]]:
        for shape in self.simplified(*place, tolerance):
            rings = [_rings(part, digits) for part in shapely.get_parts(shapely.orient_polygons(shape))]
            rings = [of for of in rings if of] or [_triangle(shape, digits)]
            if len(rings) == 1:
                yield {"type": "Polygon", "coordinates": rings[0]}
            else:
                yield {"type": "MultiPolygon", "coordinates": rings}


def geo_metadata(column: str, wkb: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the metadata that makes a Parquet table GeoParquet 1.1.0, whose coordinates are longitude and latitude (WGS 84).

    Args:
        column: the column of shapes.
        wkb: the shapes, at least one: polygons or several, with outer rings counterclockwise.
    """
    shapes = shapely.from_wkb(np.array(wkb, dtype=object))
    about = {
        "encoding": "WKB",
        "geometry_types": sorted({shape.geom_type for shape in shapes}),
        "orientation": "counterclockwise",
        "bbox": [float(side) for side in shapely.total_bounds(shapes)],
    }
    content = {"version": "1.1.0", "primary_column": column, "columns": {column: about}}
    return {b"geo": json.dumps(content).encode()}


def _rings(polygon: Any, digits: int) -> list[list[list[float]]]:
    """Return the rings of a polygon with rounded coordinates, the outer one first; none if that rounds to nothing."""
    rings = [_rounded(ring, digits) for ring in (polygon.exterior, *polygon.interiors)]
    return [ring for ring in rings if ring] if rings[0] else []


def _rounded(ring: Any, digits: int) -> list[list[float]]:
    """Return a ring with rounded coordinates, without repeated corners; empty if fewer than three are left."""
    corners = np.round(shapely.get_coordinates(ring), digits) + 0.0  # no -0.0
    keep = np.append(True, np.any(corners[1:] != corners[:-1], axis=1))
    corners = corners[keep]
    return corners.tolist() if len(corners) > 3 else []


def _triangle(shape: Any, digits: int) -> list[list[list[float]]]:
    """Return the smallest triangle at a place, for an area that rounds to nothing."""
    x, y = (round(number, digits) for number in shapely.get_coordinates(shape)[0].tolist())
    step = 10.0**-digits
    return [[[x, y], [round(x + step, digits), y], [x, round(y + step, digits)], [x, y]]]


def _bytes_of(geometries: Sequence[dict[str, Any]]) -> int:
    return len(json.dumps(geometries, separators=(",", ":")))
