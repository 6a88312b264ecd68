"""The shapes of areas: polygons in degrees of longitude and latitude (WGS 84), to draw maps with."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import shapely
from numpy.typing import NDArray

from tasks.atlas.names import AreaTables

GEOMETRY = "geometry"  # after the codes


class Shapes(AreaTables):
    """The shapes of the areas of a release, in the column `geometry`: a polygon or several as WKB."""

    def paths(self, axis: str, level: int) -> list[tuple[str, ...]]:
        """Return the areas of an axis level that have a shape, by the codes of their paths, sorted."""
        return [tuple(codes) for *codes, _ in self.tables[axis, level].iter_rows()]

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
        found: NDArray[np.object_] = shapely.from_wkb(self.tables[axis, level][GEOMETRY].to_numpy())
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
