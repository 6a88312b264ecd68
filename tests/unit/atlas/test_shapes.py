"""Shapes of areas: with fewer corners, and points inside."""

from typing import Any

import polars as pl
import shapely
from shapely.geometry import box

from tasks.atlas.shapes import GEOMETRY, Shapes

PLACE = ("area", 1)


def shapes_of(*shapes: Any) -> Shapes:
    """Return shapes of areas that are called by their numbers."""
    codes = [f"{number:04}" for number in range(len(shapes))]
    wkb = pl.Series(list(shapely.to_wkb(list(shapes))), dtype=pl.Binary)
    return Shapes({PLACE: pl.DataFrame({"code_1": codes, GEOMETRY: wkb})})


def test_overlaps_and_slivers_are_drawn() -> None:
    """Real files have areas that overlap, that leave slivers, or that hold others; all are drawn."""
    island = box(0.2, 0.2, 0.3, 0.3)
    areas = [box(0, 0, 1, 1) - island, island, box(0.9, 0, 2, 1), box(2.000001, 0, 3, 1), box(0, 0, 1, 1)]
    for tolerance in (0, 0.001, 0.5):
        found = shapes_of(*areas).simplified(*PLACE, tolerance)
        assert len(found) == 5
        assert not any(one.is_empty for one in found)


def test_points_lie_inside() -> None:
    """Every area has a point inside of it, in the order of areas, also where its middle lies outside."""
    areas = [shapely.Point(0, 0).buffer(2) - shapely.Point(0, 0).buffer(1), box(3, 0, 5, 1), box(5, 0, 6, 1)]
    points = shapes_of(*areas).points(*PLACE)
    assert points.shape == (3, 2)
    assert all(area.contains(shapely.Point(point)) for area, point in zip(areas, points, strict=True))
