"""Names and shapes for the areas of a synthetic country: words that mean nothing, and cells around places."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from tasks.tree.axis import FloatArray

NAMES, SHAPES, README = "names.csv", "areas.geojson", "README.md"

_BEGIN: tuple[str, ...] = ("Al", "Ber", "Cor", "Dor", "El", "Fal", "Gre", "Hol", "Is", "Kar")
_BEGIN += ("Lor", "Mar", "Nor", "Or", "Pel", "Ros", "Sel", "Tor", "Ul", "Ver")
_MIDDLE = ("a", "be", "di", "en", "i", "la", "mo", "ne", "o", "ra", "ti", "va")
_END = ("bury", "dale", "ford", "ham", "mere", "mouth", "port", "stead", "ton", "vale", "wick", "worth")
_KILOMETRES = 111.0  # in a degree of latitude, and of longitude at the equator, where the country lies
_ROOM = 8.0  # km around the outermost places, which belong to their cells


def write_land(folder: Path, codebook: pl.DataFrame, places: FloatArray) -> None:
    """Write `names.csv`, a name for every area of every level, and `areas.geojson`, a shape for every finest area; say so in the README.

    Args:
        folder: where they are written, with the tables.
        codebook: a row per finest area; a text column per level, coarse to fine.
        places: of the finest areas, in the order of the codebook, shape (areas, 2), float64, km east and north.
    """
    names(codebook).write_csv(folder / NAMES)
    finest = codebook[codebook.columns[-1]].to_list()
    features = [
        {"type": "Feature", "properties": {"code": code}, "geometry": cell}
        for code, cell in zip(finest, cells(places), strict=True)
    ]
    (folder / SHAPES).write_text(json.dumps({"type": "FeatureCollection", "features": features}), encoding="utf-8")
    with (folder / README).open("a", encoding="utf-8") as readme:
        readme.write(f"\n`{NAMES}` and `{SHAPES}` give the areas names and shapes that were made up likewise.\n")


def names(codebook: pl.DataFrame) -> pl.DataFrame:
    """Return the columns level, code and name: a name of its own for every area of every level, in the order of codes.

    The same codebook always gets the same names.
    """
    areas = [(level, code) for level in codebook.columns for code in codebook[level].unique().sort().to_list()]
    generator, found = np.random.default_rng(len(areas)), dict[str, None]()
    while len(found) < len(areas):
        syllables = [part[generator.integers(len(part))] for part in (_BEGIN, _MIDDLE, _END)]
        word = "".join(syllables if generator.random() < 0.5 else syllables[::2])
        if len(found) >= len(_BEGIN) * len(_MIDDLE) * len(_END) // 2:
            word = f"{word} {len(found)}"
        found[word] = None
    levels, codes = zip(*areas, strict=True)
    return pl.DataFrame({"level": levels, "code": codes, "name": list(found)})


def cells(places: FloatArray) -> list[dict[str, Any]]:
    """Return the cell around each place, which is nearer to it than to any other, as a polygon of GeoJSON in degrees."""
    import shapely  # which only writing needs

    points = shapely.MultiPoint(places / _KILOMETRES)
    land = points.convex_hull.buffer(_ROOM / _KILOMETRES, quad_segs=3)
    around = shapely.voronoi_polygons(points, extend_to=land, ordered=True)
    clipped = shapely.set_precision(shapely.intersection(list(around.geoms), land), 1e-5)
    return [shapely.geometry.mapping(cell) for cell in clipped]
