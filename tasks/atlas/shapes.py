"""The shapes of areas: polygons in degrees of longitude and latitude (WGS 84), to draw maps with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
import shapely

GEOMETRY = "geometry"  # after the codes


@dataclass(frozen=True)
class Shapes:
    """The shapes of the areas of a release.

    Attributes:
        of_level: by axis and axis level (from 1 on), the areas that have a shape: text columns `code_1` to `code_<level>`, coarse to
            fine, and `geometry`, a polygon or several as WKB; sorted by codes.
    """

    of_level: Mapping[tuple[str, int], pl.DataFrame] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether any area has a shape."""
        return bool(self.of_level)

    def levels(self, axis: str) -> list[int]:
        """Return the levels of an axis whose areas have shapes, coarse to fine."""
        return sorted(level for of, level in self.of_level if of == axis)

    def paths(self, axis: str, level: int) -> list[tuple[str, ...]]:
        """Return the areas of an axis level that have a shape, by the codes of their paths, sorted."""
        return [tuple(codes) for *codes, _ in self.of_level[axis, level].iter_rows()]

    def simplified(self, axis: str, level: int, tolerance: float) -> Sequence[Any]:
        """Return the shapes of an axis level in the order of `paths`, with fewer corners; areas that touch still touch.

        Args:
            axis: the axis.
            level: its level.
            tolerance: the side of a square, degrees: corners that span less than its area go away; 0 keeps all.
        """
        shapes = shapely.from_wkb(self.of_level[axis, level][GEOMETRY].to_list())
        return list(shapely.coverage_simplify(shapes, tolerance) if tolerance else shapes)
