"""Shapes of areas: read from public files, put together for coarser levels, and published beside the counts."""

import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pyogrio
import pyproj
import pytest
import shapely
import yaml
from shapely.geometry import box, mapping

from flows.forecast.check import PassedCheck, check_answer
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from storage.errors import InputError, SpecError
from tasks.atlas.shapes import GEOMETRY
from tasks.format.manifest import Manifest
from tasks.format.published_tree import published_shapes
from tasks.ingest.task import read_ends, shapes_of
from tasks.verify.atlas import atlas_failures
from tasks.verify.folder import verify
from tests.support.folders import published, with_sums

AREAS = [("01", "0101"), ("01", "0102"), ("02", "0201"), ("02", "0202")]
SQUARES = {"0101": box(0, 50, 1, 51), "0102": box(1, 50, 2, 51), "0201": box(2, 50, 3, 51)}  # 0202 has none
METRES = "EPSG:3035"
SPEC: dict[str, Any] = {
    "name": "drawn",
    "dataset": "drawn",
    "input": {"table": "trips.csv", "origin": "home", "destination": "work"},
    "hierarchy": {"table": "areas.csv", "levels": ["county", "town"], "boundaries": "towns.geojson"},
    "release": {"tree": "destination", "finest": "town", "csv": "every_level"},
    "privacy": {
        "unit": "one made-up person",
        "neighbours": "substitution",
        "max_records_per_unit": 1,
        "epsilon": 20.0,
        "delta": 1e-8,
    },
    "budget": {"epsilon": 1000.0, "delta": 1e-5},
}

Features = list[tuple[Any, Any]]


def collection(features: Features, **more: Any) -> dict[str, Any]:
    """Return codes and shapes as GeoJSON; each feature also has a property that no message may show."""
    return {
        "type": "FeatureCollection",
        "features": [
            {
                "type": "Feature",
                "properties": {"code": code, "who": "Sentinel 4711"},
                "geometry": None if shape is None else mapping(shape),
            }
            for code, shape in features
        ],
    } | more


def write(folder: Path, codebook: dict[str, Any] | None = None, features: Features | None = None, **keys: Any) -> Path:
    """Write the tables and a spec of them, with other keys, and return the spec."""
    folder.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(AREAS, ["county", "town"], orient="row").write_csv(folder / "areas.csv")
    towns = [town for _, town in AREAS]
    pairs = [(home, work) for home in towns for work in towns] * 30
    pl.DataFrame(pairs, ["home", "work"], orient="row").write_csv(folder / "trips.csv")
    content = collection(list(SQUARES.items()) if features is None else features)
    (folder / "towns.geojson").write_text(json.dumps(content))
    spec = SPEC | {"hierarchy": SPEC["hierarchy"] | (codebook or {})} | keys
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec))
    return folder / "spec.yaml"


def shaped(spec: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the shapes that ingest would keep, by axis and level, and by the codes of areas."""
    source = load_spec(spec).source()
    return {
        place: {codes[-1]: shapely.from_wkb(shape) for *codes, shape in areas.iter_rows()}
        for place, areas in shapes_of(source, read_ends(source)).items()
    }


def refusal(spec: Path) -> InputError:
    """Return the error with which shapes are refused, having checked that it shows no property of a feature."""
    with pytest.raises(InputError) as refused:
        make_plan(load_spec(spec))
    assert "4711" not in f"{refused.value} {refused.value.hint}"
    return refused.value


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the published folder of the spec above."""
    place = tmp_path_factory.mktemp("drawn")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        yield published(write(place))


def test_every_level_has_its_shapes_as_geoparquet(folder: Path) -> None:
    """Towns have the shapes of the file, counties what their towns cover, and the files say that they hold degrees."""
    manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
    assert manifest.boundaries == {"origin": ["county", "town"], "destination": ["county", "town"]}
    assert manifest.spec["hierarchy"]["boundaries"] == "towns.geojson"
    for axis in manifest.boundaries:
        towns = pq.read_table(folder / f"boundaries/{axis}_town.parquet")
        assert towns.column_names == [f"{axis}_county", f"{axis}_town", GEOMETRY]
        assert towns[f"{axis}_town"].to_pylist() == ["0101", "0102", "0201"]
        assert all(shapely.equals(shapely.from_wkb(towns[GEOMETRY].to_pylist()), list(SQUARES.values())))
        geo = json.loads(towns.schema.metadata[b"geo"])
        assert (geo["version"], geo["primary_column"]) == ("1.1.0", GEOMETRY)
        column = geo["columns"][GEOMETRY]
        assert (column["encoding"], column["geometry_types"], column["bbox"]) == ("WKB", ["Polygon"], [0, 50, 3, 51])
        assert "crs" not in column  # longitude and latitude, WGS 84
        counties = pq.read_table(folder / f"boundaries/{axis}_county.parquet")
        found = dict(zip(counties[0].to_pylist(), shapely.from_wkb(counties[GEOMETRY].to_pylist()), strict=True))
        assert found.keys() == {"01", "02"}
        assert found["01"].equals(box(0, 50, 2, 51))
        assert found["02"].equals(SQUARES["0201"])
    assert verify(folder) == []


def test_pages_and_readers_know_the_shapes(folder: Path) -> None:
    """The report has a map of each end, README.md says where the shapes are, and they are read back by axis and level with their paths."""
    report = (folder / "report.html").read_text()
    assert report.count('<svg class="map"') == 2
    assert report.index("Where trips begin") < report.index("Where trips end")
    assert "- `boundaries/<column of codes>.parquet`" in (folder / "README.md").read_text()
    manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
    shapes = published_shapes(folder, manifest)
    assert shapes.levels("origin") == shapes.levels("destination") == [1, 2]
    assert shapes.paths("origin", 2) == [("01", "0101"), ("01", "0102"), ("02", "0201")]
    assert shapes.are_alike("origin", "destination", 2)


def test_a_check_says_how_many_areas_have_a_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`trellis check` counts the areas of each level that maps will show."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    answer = check_answer(write(tmp_path))
    assert isinstance(answer, PassedCheck)
    told = [(of.axis, of.level, of.shaped, of.areas) for of in answer.shapes]
    assert told[:2] == [("origin", "county", 2, 2), ("origin", "town", 3, 4)]


def _as_table(crs: str) -> tuple[list[str], np.ndarray]:
    turn = pyproj.Transformer.from_crs("OGC:CRS84", crs, always_xy=True).transform
    shapes = [shapely.transform(shape, turn, interleaved=False) for shape in SQUARES.values()]
    return list(SQUARES), shapely.to_wkb(np.array(shapes, dtype=object))


def _write_geoparquet(path: Path, crs: str | None, name: str = "code") -> None:
    codes, wkb = _as_table(crs or "OGC:CRS84")
    about: dict[str, Any] = {"encoding": "WKB", "geometry_types": ["Polygon"]}
    about |= {} if crs is None else {"crs": pyproj.CRS(crs).to_json_dict()}
    geo = {"version": "1.1.0", "primary_column": "geom", "columns": {"geom": about}}
    pq.write_table(pa.table({name: codes, "geom": list(wkb)}, metadata={"geo": json.dumps(geo)}), path)


def _write_geopackage(path: Path, crs: str | None, name: str = "code") -> None:
    codes, wkb = _as_table(crs or "OGC:CRS84")
    fields = np.array(codes, dtype=object)
    pyogrio.raw.write(path, wkb, [fields], [name], geometry_type="Polygon", crs=crs, driver="GPKG")


@pytest.mark.parametrize(
    ("name", "writer", "crs"),
    [
        ("towns.parquet", _write_geoparquet, None),
        ("towns.parquet", _write_geoparquet, METRES),
        ("towns.gpkg", _write_geopackage, "EPSG:4326"),
        ("towns.gpkg", _write_geopackage, METRES),
    ],
)
def test_other_kinds_of_files_give_the_same_shapes(
    tmp_path: Path, name: str, writer: Callable[..., None], crs: str | None
) -> None:
    """GeoParquet and GeoPackage are read like GeoJSON; coordinates in metres become degrees."""
    spec = write(tmp_path, {"boundaries": name, "code": "GEOID"})
    writer(tmp_path / name, crs, "GEOID")
    found = shaped(spec)["destination", 2]
    assert found.keys() == SQUARES.keys()
    for code, shape in found.items():
        assert shapely.hausdorff_distance(shape, SQUARES[code]) < 1e-6


def test_a_geopackage_without_coordinates_is_refused(tmp_path: Path) -> None:
    """Nobody can draw a file that does not say what its coordinates are."""
    spec = write(tmp_path, {"boundaries": "towns.gpkg"})
    codes, wkb = _as_table(METRES)
    with pytest.warns(UserWarning, match="crs"):
        pyogrio.raw.write(tmp_path / "towns.gpkg", wkb, [np.array(codes, object)], ["code"], geometry_type="Polygon")
    told = refusal(spec)
    assert str(told).endswith("towns.gpkg cannot be read as a file that says what its coordinates are.")
    assert "EPSG:4326" in told.hint


@pytest.mark.parametrize("package", ["pyogrio", "pyproj"])
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    """A file that needs the extra says what to install; a GeoParquet file in degrees needs nothing."""
    spec = write(tmp_path, {"boundaries": "towns.gpkg"})
    _write_geopackage(tmp_path / "towns.gpkg", METRES)
    monkeypatch.setitem(sys.modules, package, None)
    told = refusal(spec)
    assert str(told) == f"hierarchy.boundaries: to read towns.gpkg, Trellis needs {package}, which is not installed."
    assert "pip install 'trellis[maps]'" in told.hint
    _write_geoparquet(tmp_path / "towns.parquet", None)
    assert shaped(write(tmp_path, {"boundaries": "towns.parquet"}))["origin", 2].keys() == SQUARES.keys()


LEFT, RIGHT = box(0, 50, 0.5, 51), box(0.5, 50, 1, 51)
BOW_TIE = shapely.Polygon([(0, 50), (1, 51), (1, 50), (0, 51)])
POINT, WEST, EAST = shapely.Point(0, 0), box(0, 50, 1, 51), box(1, 50, 2, 51)
READ: dict[
    str, tuple[dict[str, Any], Features, dict[int, dict[str, Any]]]
] = {  # keys, features, and shapes by axis level
    "unknown codes, none, empty shapes, a code twice, and a ring that crosses itself": (
        {},
        [("0101", LEFT), ("no", POINT), (None, POINT), ("0102", None), ("0101", RIGHT), ("0201", BOW_TIE)],
        {1: {"01": WEST, "02": shapely.make_valid(BOW_TIE)}, 2: {"0101": WEST, "0201": shapely.make_valid(BOW_TIE)}},
    ),
    "whole numbers as codes": (
        {"hierarchy": SPEC["hierarchy"] | {"table": "numbers.csv"}},
        [(101, WEST), (102.0, EAST)],
        {1: {"1": box(0, 50, 2, 51)}, 2: {"101": WEST, "102": EAST}},
    ),
    "the codes of counties alone": ({}, [("01", WEST), ("02", EAST)], {1: {"01": WEST, "02": EAST}}),
    "a file of each level, where a county is not made of its towns": (
        {"hierarchy": SPEC["hierarchy"] | {"boundaries": {"town": "towns.geojson", "county": "counties.geojson"}}},
        [("0101", WEST), ("0102", EAST)],
        {1: {"02": box(5, 50, 6, 51)}, 2: {"0101": WEST, "0102": EAST}},
    ),
    "towns that stay inside, of which counties are made": (
        {"release": SPEC["release"] | {"finest": "county"}},
        [("0101", WEST), ("0102", EAST)],
        {1: {"01": box(0, 50, 2, 51)}},
    ),
}


@pytest.mark.parametrize("what", READ)
def test_shapes_are_those_of_the_codes_of_the_axis(tmp_path: Path, what: str) -> None:
    """What has no code of a released level is passed over; shapes of a code are put together, and those of areas make those above."""
    keys, features, expected = READ[what]
    spec = write(tmp_path, features=features, **keys)
    (tmp_path / "numbers.csv").write_text("county,town\n1,101\n1,102\n")
    (tmp_path / "counties.geojson").write_text(json.dumps(collection([("02", box(5, 50, 6, 51))])))
    found = shaped(spec)
    for axis in ("origin", "destination"):
        of_axis = {level: shapes for (name, level), shapes in found.items() if name == axis}
        assert {level: [*shapes] for level, shapes in of_axis.items()} == {
            level: [*shapes] for level, shapes in expected.items()
        }
        for level, shapes in of_axis.items():
            assert all(shape.is_valid and shape.equals(expected[level][code]) for code, shape in shapes.items())


def text(*features: tuple[Any, Any], **more: Any) -> str:
    """Return the text of a file with features; of the squares if none are given."""
    return json.dumps(collection(list(features or SQUARES.items()), **more))


NO_LIST = "towns.geojson cannot be read as GeoJSON with a list of features."
IN_METRES = {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::25832"}}
REFUSED: dict[str, tuple[str, str]] = {
    "not JSON": ("{", NO_LIST),
    "no features": ("[]", NO_LIST),
    "a point": (
        text(("0101", SQUARES["0101"]), ("0102", shapely.Point(1, 50))),
        "feature 2 of towns.geojson must be a polygon or several, got a Point.",
    ),
    "metres": (
        text(("0101", box(400_000, 50, 400_001, 51))),
        "feature 1 of towns.geojson must lie between -180 and 180 degrees of longitude and -90 and 90 of latitude.",
    ),
    "no number": (
        text(("0101", box(0, 0, 1, 1))).replace("1.0, 0.0", "NaN, 0.0"),
        "feature 1 of towns.geojson has no shape that can be read.",
    ),
    "other coordinates": (
        text(crs=IN_METRES),
        "towns.geojson cannot be read as GeoJSON in degrees of longitude and latitude.",
    ),
    "other codes": (text(("101", WEST)), "no code of towns.geojson in code is a code of the axis."),
    "another property": (text().replace('"code"', '"GEOID"'), "no feature of towns.geojson has a code in code."),
    "a list for a code": (
        text((["4711"], WEST)),
        "feature 1 of towns.geojson must have a code that is text or a whole number.",
    ),
    "no shape": (text(("0101", None)), "no area of towns.geojson has a shape."),
    "a broken shape": (
        text(("0101", None)).replace("null", '{"type": "Polygon", "coordinates": [4711]}'),
        "feature 1 of towns.geojson has no shape that can be read.",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_files_that_break_a_rule_are_refused(tmp_path: Path, kind: str) -> None:
    """A plan refuses what cannot be drawn, before anything is reserved, and names the number of a feature at most."""
    spec = write(tmp_path)
    content, told = REFUSED[kind]
    (tmp_path / "towns.geojson").write_text(content)
    assert str(refusal(spec)) == f"hierarchy.boundaries: {told}"


@pytest.mark.parametrize(
    ("shape", "cause"),
    [
        (box(179.5, 50, 180.5, 51), "Longitudes do not go on past 180"),
        (box(181, 50, 182, 51), "Longitudes do not go on past 180"),
        (box(-180.5, -17, -179.5, -16), "Longitudes do not go on past 180"),
        (box(50, 100, 51, 101), "longitude comes first"),
        (box(400_000, 50, 400_001, 51), "a file in metres"),
    ],
)
def test_a_shape_outside_of_the_world_is_told_why(tmp_path: Path, shape: shapely.Polygon, cause: str) -> None:
    """Metres, latitudes before longitudes, and longitudes past 180 have hints of their own; up to 180 all is well."""
    spec = write(tmp_path)
    (tmp_path / "towns.geojson").write_text(text(("0101", shape)))
    assert cause in refusal(spec).hint
    (tmp_path / "towns.geojson").write_text(text(("0101", box(179.5, 50, 180, 51))))
    shapes_of(load_spec(spec).source(), read_ends(load_spec(spec).source()))


@pytest.mark.parametrize("name", ["towns.geojson", "towns.parquet", "towns.gpkg"])
def test_a_wrong_property_is_answered_with_those_that_there_are(tmp_path: Path, name: str) -> None:
    """Where no feature has a code, the hint names the properties of the file, and no value of one."""
    spec = write(tmp_path, {"boundaries": name, "code": "FIPS"})
    _write_geoparquet(tmp_path / "towns.parquet", None, "GEOID")
    _write_geopackage(tmp_path / "towns.gpkg", METRES, "GEOID")
    told = refusal(spec)
    assert str(told) == f"hierarchy.boundaries: no feature of {name} has a code in FIPS."
    assert "Set hierarchy.code to the property that holds the codes of areas. The file has " in told.hint
    assert told.hint.endswith("code, who." if name == "towns.geojson" else "GEOID.")
    assert "0101" not in told.hint


def test_of_many_properties_eight_are_named(tmp_path: Path) -> None:
    """A file with more says how many; one whose features have none says nothing of them."""
    spec = write(tmp_path, {"code": "FIPS"})
    square = {"type": "Feature", "geometry": mapping(SQUARES["0101"])}
    many, asked = (
        {f"p{number}": number for number in range(11)},
        "Set hierarchy.code to the property that holds the codes of areas.",
    )
    for features, end in [
        ([square | {"properties": many}], "The file has p0, p1, p2, p3, p4, p5, p6, p7 and 3 more."),
        *((of, asked) for of in ([], [square], [square | {"properties": None}], [square | {"properties": ["4711"]}])),
    ]:
        (tmp_path / "towns.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
        assert refusal(spec).hint.endswith(end)


def test_degrees_of_old_geojson_are_accepted(tmp_path: Path) -> None:
    """A file that states WGS 84, as GeoJSON once did, is read."""
    spec = write(tmp_path)
    for name in ("urn:ogc:def:crs:OGC:1.3:CRS84", "urn:ogc:def:crs:EPSG::4326", "EPSG:4269"):
        crs = {"type": "name", "properties": {"name": name}}
        (tmp_path / "towns.geojson").write_text(text(crs=crs))
        assert shaped(spec)["origin", 2].keys() == SQUARES.keys()


def test_a_code_of_two_areas_is_refused(tmp_path: Path) -> None:
    """A shape cannot be that of two areas, which only their counties tell apart."""
    ends = {"origin": ["county", "home"], "destination": ["county", "work"]}
    spec = write(tmp_path, input=SPEC["input"] | ends)
    (tmp_path / "areas.csv").write_text("county,town\n01,0101\n02,0101\n")
    assert str(refusal(spec)) == (
        "hierarchy.boundaries: the codes of level town must differ to have shapes; one is that of two areas."
    )


def test_other_endings_are_refused(tmp_path: Path) -> None:
    """A shapefile is refused with the command that converts it, and so is a file that is not there."""
    with pytest.raises(InputError, match=r"must end in .geojson, .parquet or .gpkg, got towns.shp") as refused:
        load_spec(write(tmp_path, {"boundaries": "towns.shp"})).source()
    assert "ogr2ogr" in refused.value.hint
    with pytest.raises(InputError, match=r"hierarchy.boundaries.town: there is no file"):
        load_spec(write(tmp_path, {"boundaries": {"town": "none.geojson"}})).source()


def test_the_confidential_table_is_no_file_of_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of records is refused as boundaries, by its path and by its content, and nothing is published."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    _write_geoparquet(tmp_path / "trips.parquet", None, "home")
    spec = write(tmp_path, {"boundaries": "trips.parquet"}, input=SPEC["input"] | {"table": "trips.parquet"})
    assert str(refusal(spec)).startswith("hierarchy.boundaries must not be the confidential table")
    shutil.copy(tmp_path / "trips.parquet", tmp_path / "shapes.parquet")
    of_home = SPEC["hierarchy"] | {"boundaries": "shapes.parquet", "code": "home"}
    features = {"table": "trips.parquet", "features": ["home"]}
    spec = write(tmp_path, input=features, hierarchy={"home": of_home}, release={"order": ["home"]})
    with pytest.raises(InputError, match=r"hierarchy.home.boundaries must not be the confidential table"):
        published(spec)
    assert not list((tmp_path / "out").glob("*"))


NO_FILE = "must have levels whose names can be names of files, to have labels or boundaries; home_a/b cannot."


@pytest.mark.parametrize(
    ("feature", "levels", "more", "told"),
    [
        ("home", ["county", "a/b"], {"boundaries": "towns.geojson"}, NO_FILE),
        ("home", ["county", "a/b"], {"labels": {"county": "name"}}, NO_FILE),
        (
            "home",
            ["county", "county_name"],
            {"labels": {"county": "name"}},
            "labels would give two columns of the published tables the name home_county_name.",
        ),
        (
            "geometry",
            ["town"],
            {"boundaries": "towns.geojson"},
            "would give two columns of a published file the name geometry",
        ),
    ],
)
def test_levels_whose_files_or_columns_cannot_be_are_refused(
    tmp_path: Path, feature: str, levels: list[str], more: dict[str, Any], told: str
) -> None:
    """A level whose name is no name of a file, and a column of names or shapes that another column is called, are refused."""
    spec = write(
        tmp_path,
        input={"table": "trips.csv", "features": [feature]},
        release={"order": [f"{feature}.{level}" for level in levels] if len(levels) > 1 else [feature]},
        hierarchy={feature: {"table": "areas.csv", "levels": levels} | more},
    )
    with pytest.raises(SpecError, match=re.escape(told)) as refused:
        load_spec(spec)
    assert f"hierarchy.{feature}" in str(refused.value)


def _changed(change: Callable[[pl.DataFrame], pl.DataFrame]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / "boundaries/origin_town.parquet"
        metadata = pq.read_schema(path).metadata
        pq.write_table(change(pl.read_parquet(path)).to_arrow().replace_schema_metadata(metadata), path)

    return spoil


def _with_shape(shape: Any) -> Callable[[Path], None]:
    wkb = pl.lit(shapely.to_wkb(shape), dtype=pl.Binary)
    return _changed(
        lambda areas: areas.with_columns(
            pl.when(pl.col("origin_town") == "0101").then(wkb).otherwise(GEOMETRY).alias(GEOMETRY)
        )
    )


def _without_metadata(folder: Path) -> None:
    path = folder / "boundaries/origin_county.parquet"
    pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)


def _another_level(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["boundaries"]["origin"] = ["block"]
    (folder / "manifest.json").write_text(json.dumps(manifest))


TOWNS = "boundaries/origin_town.parquet"
OTHER_FILES = "boundaries/ does not hold the files that manifest.json lists."
SPOILT: dict[str, tuple[Callable[[Path], None], str]] = {
    "a file less": (
        lambda folder: (folder / TOWNS).unlink(),
        OTHER_FILES,
    ),
    "a file more": (
        lambda folder: (folder / "boundaries/more.parquet").write_text(""),
        OTHER_FILES,
    ),
    "no file of its kind": (
        lambda folder: (folder / TOWNS).write_text("none"),
        "A table of boundaries/ is not a Parquet file.",
    ),
    "a level that is not released": (_another_level, "manifest.json: boundaries must list levels that are released."),
    "another order": (
        _changed(lambda areas: areas.reverse()),
        f"{TOWNS} does not have each area once, in the order of codes.",
    ),
    "an area twice": (
        _changed(lambda areas: pl.concat([areas[:1], areas])),
        f"{TOWNS} does not have each area once, in the order of codes.",
    ),
    "a column less": (
        _changed(lambda areas: areas.drop("origin_county")),
        f"{TOWNS} must have columns of codes, and geometry.",
    ),
    "a ring that crosses itself": (
        _with_shape(BOW_TIE),
        f"{TOWNS} has a shape that is not a valid polygon or several.",
    ),
    "a point": (
        _with_shape(shapely.Point(0, 50)),
        f"{TOWNS} has a shape that is not a valid polygon or several.",
    ),
    "nothing": (
        _with_shape(shapely.Polygon()),
        f"{TOWNS} has an area whose shape is empty.",
    ),
    "another place": (
        _with_shape(box(-1, 50, 1, 51)),
        f"{TOWNS} does not say what its shapes are, as GeoParquet does.",
    ),
    "no word of shapes": (
        _without_metadata,
        "boundaries/origin_county.parquet does not say what its shapes are, as GeoParquet does.",
    ),
}


@pytest.mark.parametrize("spoil", SPOILT)
def test_verify_reads_shapes(folder: Path, tmp_path: Path, spoil: str) -> None:
    """Files of shapes that are not as they should be are found; `verify` says so although all checksums fit."""
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    change, failure = SPOILT[spoil]
    change(copy)
    manifest = Manifest.model_validate_json((copy / "manifest.json").read_bytes())
    assert atlas_failures(copy, manifest) == [failure]
    if spoil == "a file less":
        with_sums(copy)
        assert failure in verify(copy)
