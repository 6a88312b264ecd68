"""Shapes as they are drawn: few corners, and areas that touch."""

import json
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
import shapely
from shapely.geometry import box, shape

from tasks.atlas.shapes import GEOMETRY, Shapes

PLACE = ("area", 1)


def shapes_of(*shapes: Any) -> Shapes:
    """Return shapes of areas that are called by their numbers."""
    codes = [f"{number:04}" for number in range(len(shapes))]
    wkb = pl.Series(list(shapely.to_wkb(list(shapes))), dtype=pl.Binary)
    return Shapes({PLACE: pl.DataFrame({"code_1": codes, GEOMETRY: wkb})})


def wavy(columns: int, rows: int) -> list[Any]:
    """Return areas side by side whose common edges have many corners."""

    def edge(one: tuple[int, int], other: tuple[int, int]) -> list[tuple[float, float]]:
        first, last = sorted([one, other])
        along = np.linspace(0, 1, 60)
        aside = 0.05 * np.sin(9 * np.pi * along)
        step = (last[0] - first[0], last[1] - first[1])
        points = [
            (first[0] + step[0] * t + step[1] * s, first[1] + step[1] * t + step[0] * s)
            for t, s in zip(along.round(9), aside.round(9), strict=True)
        ]
        return points if (one, other) == (first, last) else points[::-1]

    found = []
    for x in range(columns):
        for y in range(rows):
            corners = [(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1), (x, y)]
            ring = [point for one, other in pairwise(corners) for point in edge(one, other)[:-1]]
            found.append(shapely.Polygon(ring))
    return found


def text(drawn: object) -> str:
    """Return a drawing as the text that is counted."""
    return json.dumps(drawn, separators=(",", ":"))


@pytest.mark.parametrize("most", [2_000, 5_000, 20_000, 200_000])
def test_a_drawing_keeps_to_its_bytes(most: int) -> None:
    """Whatever room there is, the text has no more bytes, more room never gives fewer corners, and twice is the same."""
    shapes = shapes_of(*wavy(4, 4))
    drawn = shapes.drawn([PLACE], most)
    assert 0 < len(text(drawn[PLACE])) <= most
    assert drawn == shapes.drawn([PLACE], most)
    assert len(text(shapes.drawn([PLACE], 2 * most)[PLACE])) >= len(text(drawn[PLACE]))


def test_areas_that_touch_still_touch() -> None:
    """With few corners, areas still cover the same place together, without overlaps and without gaps."""
    areas = wavy(4, 4)
    drawn = [shape(geometry) for geometry in shapes_of(*areas).drawn([PLACE], 5_000)[PLACE]]
    assert len(drawn) == 16
    assert shapely.coverage_is_valid(drawn)
    together = shapely.union_all(drawn)
    assert together.geom_type == "Polygon"
    assert not together.interiors
    assert together.area == pytest.approx(sum(area.area for area in areas), rel=0.05)


def test_overlaps_and_slivers_are_drawn() -> None:
    """Real files have areas that overlap, that leave slivers, or that hold others; all are drawn."""
    island = box(0.2, 0.2, 0.3, 0.3)
    areas = [box(0, 0, 1, 1) - island, island, box(0.9, 0, 2, 1), box(2.000001, 0, 3, 1), box(0, 0, 1, 1)]
    for tolerance in (0, 0.001, 0.5):
        found = shapes_of(*areas).simplified(*PLACE, tolerance)
        assert len(found) == 5
        assert not any(one.is_empty for one in found)
    assert len(shapes_of(*areas).drawn([PLACE], 10_000)[PLACE]) == 5


def test_outer_rings_are_counterclockwise() -> None:
    """Drawings keep to the standard's order of corners, also for several polygons with holes."""
    area = shapely.MultiPolygon([box(0, 0, 1, 1, ccw=False) - box(0.4, 0.4, 0.6, 0.6), box(2, 0, 3, 1, ccw=False)])
    (drawn,) = shapes_of(area).drawn([PLACE], 10_000)[PLACE]
    assert drawn["type"] == "MultiPolygon"
    for outer, *holes in drawn["coordinates"]:
        assert shapely.LinearRing(outer).is_ccw
        assert not any(shapely.LinearRing(hole).is_ccw for hole in holes)


def test_a_tiny_area_is_still_there() -> None:
    """An area too small for the drawing becomes the smallest triangle, so that every area has a shape."""
    drawn = shapes_of(box(0, 0, 90, 45), box(100, 0, 100.0001, 0.0001)).drawn([PLACE], 10_000)[PLACE]
    assert [len(geometry["coordinates"][0]) for geometry in drawn] == [5, 4]


def test_levels_without_room_are_left_out() -> None:
    """The last axis levels go first, and where even the first has no room nothing is drawn."""
    coarse, fine = shapes_of(box(0, 0, 4, 4)), shapes_of(*wavy(4, 4))
    both = Shapes({("area", 1): coarse.of_level[PLACE], ("area", 2): fine.of_level[PLACE]})
    assert both.drawn([("area", 1), ("area", 2)], 100_000).keys() == {("area", 1), ("area", 2)}
    assert both.drawn([("area", 1), ("area", 2)], 1_000).keys() == {("area", 1)}
    assert both.drawn([("area", 1), ("area", 2)], 10) == {}


def test_points_lie_inside() -> None:
    """Every area has a point inside of it, in the order of areas, also where its middle lies outside."""
    areas = [shapely.Point(0, 0).buffer(2) - shapely.Point(0, 0).buffer(1), *wavy(2, 1)]
    points = shapes_of(*areas).points(*PLACE)
    assert points.shape == (3, 2)
    assert all(area.contains(shapely.Point(point)) for area, point in zip(areas, points, strict=True))
