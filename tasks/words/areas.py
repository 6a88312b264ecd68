"""Areas: what people call them beside the codes by which tables know them, and their shapes, polygons in degrees (WGS 84)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tasks.words.spelling import plain

NAME = "name"  # after the codes
STEP = " › "  # from an area to one in it
AxisLevel = tuple[str, int]  # an axis, and one of its levels
_NAME = "_name"  # at the end of the name of a column of codes


def code_columns(level: int) -> list[str]:
    """Return the columns of the codes of an area of an axis level, those of the areas that contain it first."""
    return [f"code_{own}" for own in range(1, level + 1)]


def name_column(column: str) -> str:
    """Return the name of the column of names that belongs to a column of codes."""
    return f"{column}{_NAME}"


@dataclass(frozen=True)
class AreaTables:
    """What the areas of a release have, such as names. It is false where none has any.

    Attributes:
        tables: by axis and axis level (from 1 on), the areas that have it: text columns `code_1` to `code_<level>`, coarse to fine,
            and a column of what they have; sorted by codes.
    """

    tables: Mapping[AxisLevel, pl.DataFrame] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether any area has it."""
        return bool(self.tables)

    def levels(self, axis: str) -> list[int]:
        """Return the levels of an axis of which areas have it, coarse to fine."""
        return sorted(level for of, level in self.tables if of == axis)


class Names(AreaTables):
    """The names of the areas of a release, as texts in the column `name`."""

    def name_of(self, axis: str, path: Sequence[str]) -> str | None:
        """Return the name of an area by the codes of its path, coarse to fine; None if it has none."""
        return self._by_path.get((axis, tuple(path)))

    def called(self, axis: str, path: Sequence[str], codes: int = 1) -> str:
        """Return what to call an area where people read it: its name with its code, or the code alone.

        Args:
            path: the codes of the areas that contain it, coarse to fine, and its own.
            codes: how many of these codes identify it: all of them where areas of its level share a code.
        """
        if not path:
            return ""
        name, code = self.name_of(axis, path), STEP.join(path[-codes:])
        return code if name is None or name == code else f"{name} ({code})"

    def paths(self, axis: str, name: str) -> list[tuple[str, ...]]:
        """Return the areas of an axis that have a name, upper and lower case alike: the codes of their paths, coarser levels first."""
        return self._by_name.get((axis, folded(name)), [])

    def like(self, axis: str, asked: str) -> list[tuple[str, ...]]:
        """Return the areas of an axis whose names have a text in them, coarser levels and shorter names first; else those spelled nearly so."""
        text, known = plain(asked), dict[str, list[tuple[str, ...]]]()
        for (of, name), paths in self._by_name.items():
            if of == axis:
                known.setdefault(plain(name), []).extend(paths)
        alike = sorted((name for name in known if text in name), key=len) or get_close_matches(text, known, 3, 0.6)
        return sorted((path for name in alike for path in known[name]), key=len)  # stable

    @cached_property
    def _by_path(self) -> dict[tuple[str, tuple[str, ...]], str]:
        return {
            (axis, tuple(codes)): name for (axis, _), areas in self.tables.items() for *codes, name in areas.iter_rows()
        }

    @cached_property
    def _by_name(self) -> dict[tuple[str, str], list[tuple[str, ...]]]:
        paths: dict[tuple[str, str], list[tuple[str, ...]]] = {}
        for axis, level in sorted(self.tables):
            for *codes, name in self.tables[axis, level].iter_rows():
                paths.setdefault((axis, folded(name)), []).append(tuple(codes))
        return paths


def size_called(code: str, last: object) -> str:
    """Return what to call a size of groups: the last one stands for larger ones too."""
    return f"{code} or more" if code == str(last) else code


def folded(name: str) -> str:
    """Return a name as it is compared: without outer blanks, upper and lower case alike."""
    return " ".join(name.split()).casefold()


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
            tolerance: the side of a square, degrees: corners that span less than its area go away; 0 keeps all.
        """
        import shapely

        shapes = self._shapes(axis, level)
        if not tolerance:
            return list(shapes)
        try:
            return list(shapely.coverage_simplify(shapes, tolerance))
        except shapely.errors.ShapelyError:
            return list(shapely.simplify(shapes, tolerance))

    def points(self, axis: str, level: int) -> NDArray[np.float64]:
        """Return a point inside each area of an axis level, longitude and latitude, in the order of `paths`; shape (areas, 2)."""
        import shapely

        inside = shapely.point_on_surface(self._shapes(axis, level))
        points: NDArray[np.float64] = np.round(shapely.get_coordinates(inside), 6)
        return points

    def _shapes(self, axis: str, level: int) -> NDArray[np.object_]:
        import shapely

        shapes: NDArray[np.object_] = shapely.from_wkb(self.tables[axis, level][GEOMETRY].to_numpy())
        return shapes


def geo_metadata(column: str, wkb: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the metadata that makes a Parquet table GeoParquet 1.1.0, whose coordinates are longitude and latitude (WGS 84).

    Args:
        wkb: the shapes, at least one: polygons or several, with outer rings counterclockwise.
    """
    import shapely

    shapes = shapely.from_wkb(np.array(wkb, dtype=object))
    about = {
        "encoding": "WKB",
        "geometry_types": sorted({shape.geom_type for shape in shapes}),
        "orientation": "counterclockwise",
        "bbox": [float(side) for side in shapely.total_bounds(shapes)],
    }
    content = {"version": "1.1.0", "primary_column": column, "columns": {column: about}}
    return {b"geo": json.dumps(content).encode()}
