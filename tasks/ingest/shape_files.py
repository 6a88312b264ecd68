"""Reads public files of shapes: GeoJSON, and with the extra `trellis[maps]` GeoPackage and other coordinates than degrees.

Errors name files, the numbers of features and the names of properties, and no value of one: a file may have been named by mistake.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

from storage.errors import InputError
from tasks.ingest.sources.files import FileTable
from tasks.ingest.tables import in_nfc

_MOST_BYTES = 256 * 10**6  # of a file
_DEGREES = ("OGC:CRS84", "EPSG:4326", "EPSG:4269")  # the last, NAD 83, lies within two metres of the others
_MOST_NAMED = 8  # properties in a message
_BEYOND = 1e-6  # degrees by which a coordinate may lie outside the world, which is rounding
_ALL_ROUND = 360  # degrees; what lies farther is in another unit
_IN_DEGREES = "Export it in longitude and latitude (WGS 84, EPSG:4326)."
_EXTRA = "Install it with `pip install 'trellis[maps]'`, or convert the file to GeoJSON in degrees (WGS 84)."


@dataclass(frozen=True, slots=True)
class Feature:
    """A code with a shape.

    Attributes:
        number: the place in its file, from 1 on.
        shape: a shapely geometry, not checked yet; None where the feature has none.
    """

    number: int
    code: str
    shape: Any


def read_features(table: FileTable, code: str) -> list[Feature]:
    """Return the features of a file that have a code, in the order of the file; coordinates are degrees, as the file has them.

    Args:
        code: the property, or the column, that holds the code.
    Raises:
        InputError: the file is too large or not of the kind that its name says, no feature has a code, the file does not say what its
            coordinates are, or a package is missing.
    """
    if table.path.stat().st_size > _MOST_BYTES:
        raise table.fault(
            f"{table.path.name} must have at most {_MOST_BYTES // 10**6} MB.",
            "Simplify its shapes, for example with mapshaper: maps need no more than a few megabytes.",
        )
    read = {".geojson": _geojson, ".parquet": _geoparquet, ".gpkg": _geopackage}[table.ending]
    features = [feature for feature in read(table, code) if feature.code]
    if not features:
        raise table.fault(
            f"no feature of {table.path.name} has a code in {code}.",
            f"Set {table.field.partition('.boundaries')[0]}.code to the property that holds the codes of areas."
            f"{_in_words(_properties(table))}",
        )
    return features


def _properties(table: FileTable) -> list[str]:
    """Return the names of the properties in a file that was read before, in its order; of GeoJSON those of its first feature."""
    kind = table.ending
    if kind == ".geojson":
        features = json.loads(table.path.read_bytes())["features"]
        properties = features[0].get("properties") if features else None
        return [*properties] if isinstance(properties, dict) else []
    if kind == ".parquet":
        schema = pq.read_schema(table.path)
        shapes = json.loads((schema.metadata or {})[b"geo"])["columns"]
        return [name for name in schema.names if name not in shapes]
    return list(_package(table, "pyogrio").read_info(table.path)["fields"])


def _in_words(names: Sequence[str]) -> str:
    """Return which properties there are, as a sentence; empty where there is none."""
    if not names:
        return ""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f" The file has {', '.join(names[:_MOST_NAMED])}{more}."


def polygons(table: FileTable, features: Sequence[Feature]) -> list[Any]:
    """Return the shapes of features as valid polygons, in their order; None for a feature without a shape.

    Raises:
        InputError: a feature is no polygon, or lies outside the world.
    """
    shapes = np.array([feature.shape for feature in features], dtype=object)
    for feature, kind in zip(features, shapely.get_type_id(shapes), strict=True):
        if kind not in {-1, shapely.GeometryType.POLYGON, shapely.GeometryType.MULTIPOLYGON}:
            raise table.fault(
                f"feature {feature.number} of {table.path.name} must be a polygon or several,"
                f" got a {feature.shape.geom_type}."
            )
    shapes = shapely.force_2d(shapes)
    is_empty = shapely.is_missing(shapes) | shapely.is_empty(shapes)
    west, south, east, north = shapely.bounds(shapes).T
    within = (west >= -180 - _BEYOND) & (east <= 180 + _BEYOND) & (south >= -90 - _BEYOND) & (north <= 90 + _BEYOND)
    outside = np.flatnonzero(~within & ~is_empty)
    if outside.size:
        raise table.fault(
            f"feature {features[outside[0]].number} of {table.path.name} must lie between -180 and 180 degrees of"
            " longitude and -90 and 90 of latitude.",
            _why_outside(*(float(edge[outside[0]]) for edge in (west, south, east, north))),
        )
    return [None if empty else polygon(shape) for shape, empty in zip(shapes, is_empty, strict=True)]


def _why_outside(west: float, south: float, east: float, north: float) -> str:
    """Return the usual cause of a shape that lies outside of the world, and what to do about it."""
    if max(-west, east, -south, north) > _ALL_ROUND:
        return f"The usual cause is a file in metres. {_IN_DEGREES}"
    if south < -90 - _BEYOND or north > 90 + _BEYOND:
        return "The usual cause is a latitude before a longitude: longitude comes first."
    return (
        "Longitudes do not go on past 180: 181 is -179. Cut a shape that crosses that line into two, for example with"
        " `ogr2ogr -wrapdateline -t_srs EPSG:4326`."
    )


def polygon(shape: Any) -> Any:
    """Return what a shape covers as a valid polygon or several, with outer rings counterclockwise; None where it covers nothing."""
    parts = shapely.get_parts(shapely.make_valid(shape, method="structure", keep_collapsed=False))
    parts = shapely.get_parts(parts[shapely.get_dimensions(parts) == 2])
    if not len(parts):
        return None
    return shapely.orient_polygons(parts[0] if len(parts) == 1 else shapely.multipolygons(parts))


def _geojson(table: FileTable, code: str) -> Iterator[Feature]:
    try:
        content = json.loads(table.path.read_bytes())
    except (OSError, ValueError, RecursionError):
        content = None
    features = content.get("features") if isinstance(content, dict) else None
    if not isinstance(features, list) or not all(isinstance(feature, dict) for feature in features):
        raise _unreadable(table, "GeoJSON with a list of features")
    crs = content.get("crs")
    name = crs.get("properties", {}).get("name", "") if isinstance(crs, dict) else ""
    # urn:ogc:def:crs:OGC:1.3:CRS84, urn:ogc:def:crs:EPSG::4326, in old files
    in_degrees = tuple(of.removeprefix("OGC") for of in _DEGREES)
    if crs is not None and not str(name).replace("::", ":").endswith(in_degrees):
        raise _unreadable(table, "GeoJSON in degrees of longitude and latitude", _IN_DEGREES)
    for number, feature in enumerate(features, 1):
        properties = feature.get("properties")
        value = properties.get(code) if isinstance(properties, dict) else None
        yield Feature(number, _code(table, number, value), _shape(table, number, feature.get("geometry")))


def _shape(table: FileTable, number: int, geometry: Any) -> Any:
    if geometry is None:
        return None
    try:
        return shapely.geometry.shape(geometry)
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, RecursionError, shapely.errors.ShapelyError):
        pass
    raise _no_geometry(table, number)


def _geoparquet(table: FileTable, code: str) -> Iterator[Feature]:
    try:
        geo = json.loads((pq.read_schema(table.path).metadata or {})[b"geo"])
        name = geo["primary_column"]
        about = geo["columns"][name]
        encoding, crs = about["encoding"], about.get("crs", _DEGREES[0])
        columns = [code, name] if code in pq.read_schema(table.path).names else [name]
        with pq.ParquetFile(table.path) as file:
            read = file.read(columns=columns)
        wkb = read[name].cast(pa.binary()).to_pylist()
    except (OSError, pa.ArrowException, KeyError, TypeError, ValueError):
        raise _unreadable(table, "GeoParquet") from None
    if encoding != "WKB":
        raise _unreadable(table, "GeoParquet with shapes encoded as WKB")
    values = read[code].to_pylist() if code in columns else [None] * len(wkb)
    yield from _features(table, values, wkb, crs)


def _geopackage(table: FileTable, code: str) -> Iterator[Feature]:
    pyogrio = _package(table, "pyogrio")
    try:
        layers = [name for name, kind in pyogrio.list_layers(table.path) if kind is not None]
        if len(layers) != 1:
            raise _unreadable(table, "a GeoPackage with one layer of shapes")
        about, _, wkb, values = pyogrio.raw.read(table.path, layer=layers[0], columns=[code], force_2d=True)
    except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError, RuntimeError, ValueError):
        raise _unreadable(table, "a GeoPackage") from None
    yield from _features(table, list(values[0]) if len(values) else [None] * len(wkb), list(wkb), about["crs"])


def _features(table: FileTable, values: Sequence[Any], wkb: Sequence[bytes | None], crs: Any) -> Iterator[Feature]:
    """Yield the features of a file whose shapes are WKB, in degrees."""
    to_degrees = _to_degrees(table, crs)
    for number, (value, shape) in enumerate(zip(values, wkb, strict=True), 1):
        try:
            geometry = shapely.from_wkb(shape)
        except (shapely.errors.ShapelyError, TypeError):
            raise _no_geometry(table, number) from None
        yield Feature(number, _code(table, number, value), to_degrees(geometry))


def _to_degrees(table: FileTable, crs: Any) -> Callable[[Any], Any]:
    """Return what turns a shape in some coordinates into one in degrees of longitude and latitude.

    Args:
        crs: the coordinates: a name such as EPSG:25832, a text that describes them, or a description as GeoParquet has them.
    Raises:
        InputError: the file does not say what its coordinates are, or pyproj is missing or does not know them.
    """
    if not crs:
        raise _unreadable(table, "a file that says what its coordinates are", _IN_DEGREES)
    if _name_of(crs) in _DEGREES:
        return lambda shape: shape
    pyproj = _package(table, "pyproj")
    try:
        transformer = pyproj.Transformer.from_crs(pyproj.CRS.from_user_input(crs), _DEGREES[0], always_xy=True)
    except pyproj.exceptions.ProjError:
        raise _unreadable(table, "a file in known coordinates", _IN_DEGREES) from None
    return lambda shape: shapely.transform(shape, transformer.transform, interleaved=False) if shape else shape


def _name_of(crs: Any) -> str:
    """Return a name such as EPSG:4326 of coordinates, or nothing where they have none."""
    name = crs.get("id") if isinstance(crs, dict) else crs
    return f"{name.get('authority')}:{name.get('code')}" if isinstance(name, dict) else str(name)


def _code(table: FileTable, number: int, value: Any) -> str:
    """Return a code as text; empty where there is none."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    if isinstance(value, str):
        return in_nfc(value.strip())
    is_whole = isinstance(value, int | np.integer) or (isinstance(value, float) and value.is_integer())
    if is_whole and not isinstance(value, bool):
        return str(int(value))
    raise table.fault(
        f"feature {number} of {table.path.name} must have a code that is text or a whole number.",
        f"Set {table.field.partition('.boundaries')[0]}.code to the property that holds the codes of areas.",
    )


def _package(table: FileTable, name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        pass
    raise table.fault(f"to read {table.path.name}, Trellis needs {name}, which is not installed.", _EXTRA)


def _unreadable(table: FileTable, kind: str, hint: str = "") -> InputError:
    return table.fault(f"{table.path.name} cannot be read as {kind}.", hint)


def _no_geometry(table: FileTable, number: int) -> InputError:
    return table.fault(f"feature {number} of {table.path.name} has no shape that can be read.")
