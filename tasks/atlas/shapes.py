"""The shapes of areas: polygons in degrees of longitude and latitude (WGS 84), to draw maps with."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import shapely
from numpy.typing import NDArray

GEOMETRY = "geometry"  # after the codes

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

    def points(self, axis: str, level: int) -> NDArray[np.float64]:
        """Return a point inside each area of an axis level, longitude and latitude, in the order of `paths`; shape (areas, 2)."""
        inside = shapely.point_on_surface(self._shapes(axis, level))
        points: NDArray[np.float64] = np.round(shapely.get_coordinates(inside), 6)
        return points

    def _shapes(self, axis: str, level: int) -> NDArray[np.object_]:
        found: NDArray[np.object_] = shapely.from_wkb(self.of_level[axis, level][GEOMETRY].to_numpy())
        return found


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
