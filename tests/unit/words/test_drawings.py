"""Drawings of areas: SVG paths in one plane, in the order of the areas, which touch where the areas do."""

import math
import re
from itertools import pairwise, product

import numpy as np
import polars as pl
import pytest
import shapely
from shapely.geometry import MultiPolygon, Point, Polygon, box

from tasks.words.areas import GEOMETRY, Shapes, code_columns
from tasks.words.drawings import WIDTH, drawn_shapes

ROOM = 1_000_000

_NUMBER = re.compile(r"-?(?:\d*\.\d|\d+)")

NORTH = {("a",): box(0, 60, 2, 62), ("b",): box(2, 60, 4, 62)}
TOWNS = {("a", "1"): box(0, 60, 2, 61), ("a", "3"): box(0, 61, 2, 62), ("b", "1"): box(2, 60, 4, 62)}


def frame(shapes):
    """Return shapes as a release has them."""
    level = len(next(iter(shapes)))
    rows = [(*path, shapely.to_wkb(shape)) for path, shape in sorted(shapes.items())]
    return pl.DataFrame(rows, [*code_columns(level), GEOMETRY], orient="row")


def read(path):
    """Return an SVG path as a shape; its holes as parts of their own."""
    parts = []
    for x, y, steps in re.findall(r"M(\S+) ([^l]+)l([^z]*)z", path):
        numbers = list(map(float, _NUMBER.findall(steps)))
        corners = [(float(x), float(y))]
        for across, down in zip(numbers[::2], numbers[1::2], strict=True):
            corners.append((round(corners[-1][0] + across, 1), round(corners[-1][1] + down, 1)))
        parts.append(Polygon(corners))
    return parts[0] if len(parts) == 1 else MultiPolygon(parts)


def wavy(columns, rows):
    """Return areas side by side whose common edges have many corners."""

    def edge(one, other):
        (x, y), (to_x, to_y) = sorted([one, other])
        along = np.linspace(0, 1, 60)
        aside = (0.05 * np.sin(9 * np.pi * along)).round(9)
        steps = zip(along.round(9), aside, strict=True)
        points = [(x + (to_x - x) * t + (to_y - y) * s, y + (to_y - y) * t + (to_x - x) * s) for t, s in steps]
        return points if one < other else points[::-1]

    corners = [(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)]
    found = []
    for x, y in product(range(columns), range(rows)):
        around = pairwise([(x + across, y + up) for across, up in corners])
        found.append(shapely.Polygon([point for one, other in around for point in edge(one, other)[:-1]]))
    return found


def paths(shapes, *more):
    """Return the areas that have a shape, and more."""
    return sorted([*shapes, *more])


def test_shapes_lie_in_one_plane_in_the_order_of_the_areas():
    """All keys have one plane, a degree of longitude is shorter by the cosine of the latitude, and what has no shape is None."""
    shapes = Shapes({("home", 1): frame(NORTH), ("home", 2): frame(TOWNS)})
    keys, found = drawn_shapes(shapes, {("home", 1): paths(NORTH), ("home", 2): paths(TOWNS, ("a", "2"))}, ROOM)
    assert keys == {("home", 1): "home 1", ("home", 2): "home 2"}
    height = math.ceil(WIDTH / 2 / math.cos(math.radians(61)))
    assert {(of["width"], of["height"]) for of in found.values()} == {(WIDTH, height)}
    counties, towns = found["home 1"], found["home 2"]
    assert read(counties["d"][0]).bounds[::2] == (0, WIDTH / 2)
    assert read(counties["d"][1]).bounds[::2] == (WIDTH / 2, WIDTH)
    assert towns["d"][1] is towns["x"][1] is towns["y"][1] is None
    drawn = [read(path) for path in (towns["d"][0], towns["d"][2], towns["d"][3])]
    assert shapely.union_all(drawn[:2]).symmetric_difference(read(counties["d"][0])).area < 0.01
    assert drawn[0].bounds[1] == pytest.approx(drawn[1].bounds[3])  # the northern one is above
    for of in (counties, towns):
        for path, x, y in zip(of["d"], of["x"], of["y"], strict=True):
            assert path is None or read(path).contains(Point(x, y))


def test_whatever_files_hold_is_drawn():
    """A hole and a second part are rings of the path, a speck is a dot, and a ring has its point inside; overlaps and slivers are drawn."""
    ring = Polygon(box(0, 0, 4, 4).exterior.coords, [list(box(0.5, 0.5, 3.5, 3.5).exterior.coords)])
    shapes = {("a",): MultiPolygon([ring, box(6, 0, 8, 1)]), ("b",): box(5, 2, 5 + 1e-6, 2 + 1e-6)}
    _, found = drawn_shapes(Shapes({("home", 1): frame(shapes)}), {("home", 1): paths(shapes)}, ROOM)
    whole, speck = found["home 1"]["d"]
    assert [whole.count(command) for command in "Mlz"] == [3, 3, 3]
    assert re.fullmatch(r"M625 \d+(\.\d)?h\.1v\.1z", speck)
    assert shapes["a",].contains(Point(Shapes({("home", 1): frame(shapes)}).points("home", 1)[0]))
    island = box(0.2, 0.2, 0.3, 0.3)
    areas = [box(0, 0, 1, 1) - island, island, box(0.9, 0, 2, 1), box(2.000001, 0, 3, 1), box(0, 0, 1, 1)]
    overlapping = Shapes({("home", 1): frame({(f"{number}",): area for number, area in enumerate(areas)})})
    for tolerance in (0, 0.001, 0.5):
        assert [one.is_empty for one in overlapping.simplified("home", 1, tolerance)] == [False] * 5


def test_areas_that_touch_still_touch():
    """With few corners, areas still cover the same place together, without overlaps and without gaps."""
    areas = {(f"{number:02}",): area for number, area in enumerate(wavy(4, 4))}
    _, found = drawn_shapes(Shapes({("home", 1): frame(areas)}), {("home", 1): paths(areas)}, 3_000)
    drawn = [read(path) for path in found["home 1"]["d"]]
    assert len(drawn) == 16
    assert shapely.coverage_is_valid(drawn)
    together = shapely.union_all(drawn)
    assert together.geom_type == "Polygon"
    assert not together.interiors
    of_plane = WIDTH * found["home 1"]["height"]
    assert together.area == pytest.approx(of_plane, rel=0.1)


@pytest.mark.parametrize("most", [1_500, 6_000])
def test_paths_have_as_many_corners_as_there_is_room_for(most):
    """Rounder shapes lose corners until all paths fit; the finest level goes where even that does not help."""
    circles = {(str(number),): Point(3 * number, 0).buffer(1, quad_segs=200) for number in range(8)}
    small = {(str(n), str(m)): Point(3 * n, m / 50).buffer(0.009) for n in range(8) for m in range(12)}
    places = {("home", 1): paths(circles), ("home", 2): paths(small)}
    shapes = Shapes({("home", 1): frame(circles), ("home", 2): frame(small)})
    keys, found = drawn_shapes(shapes, places, most)
    assert (("home", 2) in keys) == (most > 1_500)
    texts = [path for of in found.values() for path in of["d"]]
    assert sum(map(len, texts)) <= most
    assert all(read(path).area > 0.5 * math.pi * (WIDTH / 23) ** 2 for path in found["home 1"]["d"])
    assert drawn_shapes(shapes, places, most) == (keys, found)
    assert drawn_shapes(Shapes(), places, most) == ({}, {})
