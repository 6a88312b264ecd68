"""Names and shapes of areas: read from public tables and files, published beside the codes and counts, and taken by queries."""

import json
import re
import shutil
import sys
from html import unescape
from itertools import product

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pyogrio
import pyproj
import pytest
import shapely
from shapely.geometry import box, mapping

from flows.answers.check import check_answer
from flows.answers.query import query_answer
from flows.planning.plan import make_plan
from flows.specification.file import load_spec
from storage.errors import InputError, SpecError, UsageError
from tasks.folder.verify.folder import verify
from tasks.format.manifest import Manifest
from tasks.format.published_tree import published_shapes
from tasks.ingest.task import names_of, read_ends, shapes_of
from tasks.pages.explorer.payload import payload
from tasks.released.query.overview import largest_counts
from tasks.released.sources.folder import open_folder
from tasks.words.areas import GEOMETRY
from tests.support.folders import published, rewrite, with_sums
from tests.support.spec import SPEC as COUNTRY
from tests.support.spec import spec_in

WITH_PAGES = True

AREAS = pl.DataFrame(
    {
        "county": ["01", "01", "02", "02"],
        "county called": ["Ashford", "Ashford", "  Bel\tmont ", "  Bel\tmont "],
        "town": ["0101", "0102", "0201", "0202"],
        "town called": ["Ashford", "Mill, Old", "=Mill", ""],
    }
)
SQUARES = {"0101": box(0, 50, 1, 51), "0102": box(1, 50, 2, 51), "0201": box(2, 50, 3, 51)}  # 0202 has none
METRES = "EPSG:3035"
SPEC = {
    "name": "areas",
    "dataset": "areas",
    "input": {"table": "trips.csv", "origin": "home", "destination": "work"},
    "hierarchy": {"table": "areas.csv", "levels": ["county", "town"], "boundaries": "towns.geojson"},
    "release": {"tree": "destination", "finest": "town", "csv": "every_level", "rows": "signal"},
    "privacy": COUNTRY["privacy"] | {"unit": "one made-up person", "epsilon": 20.0},
    "budget": {"epsilon": 1000.0, "delta": 1e-5},
}
WORDS = {"title": "Made-up trips", "description": "Only of people who are <made up>.", "source": "Nobody's survey"}
LABELS = {"county": "county called", "town": "town called"}
CALLED = SPEC | WORDS | {"hierarchy": SPEC["hierarchy"] | {"called": {"county": "shire"}, "labels": LABELS}}


def collection(features, **more):
    """Return codes and shapes as GeoJSON; each feature also has a property that no message may show."""
    found = []
    for code, shape in features:
        about = {"properties": {"code": code, "who": "Sentinel 4711"}, "geometry": shape and mapping(shape)}
        found.append({"type": "Feature"} | about)
    return {"type": "FeatureCollection", "features": found} | more


def write(folder, spec, areas=AREAS, features=None):
    """Write the tables, the shapes and a spec of them, and return the spec."""
    folder.mkdir(parents=True, exist_ok=True)
    areas.write_csv(folder / "areas.csv")
    pairs = [*product(AREAS["town"], AREAS["town"])] * 30
    pl.DataFrame(pairs, ["home", "work"], orient="row").write_csv(folder / "trips.csv")
    content = collection(list(SQUARES.items()) if features is None else features)
    (folder / "towns.geojson").write_text(json.dumps(content))
    return spec_in(folder, spec)


def drawn(folder, codebook=None, features=None, **keys):
    """Write the tables and a spec without names, with other keys, and return the spec."""
    return write(folder, SPEC | {"hierarchy": SPEC["hierarchy"] | (codebook or {})} | keys, features=features)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the published folder of the spec above."""
    place = tmp_path_factory.mktemp("named")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        yield published(write(place, CALLED))


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """Return a release with more noise, whose names come from a table of their own; two of its towns are called alike."""
    place = tmp_path_factory.mktemp("noisy")
    (place / "secret place").mkdir()
    names = {"level": "town", "code": AREAS["town"], "name": ["Springfield", "Mill", "Springfield", "Hill"]}
    pl.DataFrame(names).write_csv(place / "secret place" / "names.csv")
    keys = {"privacy": SPEC["privacy"] | {"epsilon": 0.3}, "mechanism": "inftda"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        yield published(write(place, with_labels("secret place/names.csv") | keys))


@pytest.fixture
def copy(folder, tmp_path):
    """Return a copy of the folder that a test may change."""
    shutil.copytree(folder, tmp_path / "copy")
    return tmp_path / "copy"


def with_labels(labels, **hierarchy):
    """Return the spec with other labels, or other keys of its hierarchy."""
    return CALLED | {"hierarchy": CALLED["hierarchy"] | {"labels": labels} | hierarchy}


def shaped(spec):
    """Return the shapes that ingest would keep, by axis and level, and by the codes of areas."""
    source = load_spec(spec).source()
    return {
        place: {codes[-1]: shapely.from_wkb(shape) for *codes, shape in areas.iter_rows()}
        for place, areas in shapes_of(read_ends(source)).items()
    }


def refusal(spec):
    """Return the error with which shapes are refused, having checked that it shows no property of a feature."""
    with pytest.raises(InputError) as refused:
        make_plan(load_spec(spec))
    assert "4711" not in f"{refused.value} {refused.value.hint}"
    return refused.value


# names --------------------------------------------------------------------------------------------------------------


def test_every_csv_has_names_beside_codes(folder):
    """A column of names follows each column of codes that has names; in Parquet, a natural join with their table adds them."""
    calls = {"0101": "Ashford", "0102": "Mill, Old", "0201": "=Mill", "0202": None}
    for name in ("counts/level_4.csv", "signal/level_4.csv"):
        table = pl.read_csv(folder / name, infer_schema=False)
        levels = [f"{end}_{level}" for end in ("origin", "destination") for level in ("county", "town")]
        assert table.columns[:8] == [column for level in levels for column in (level, f"{level}_name")]
        rows = table.filter(pl.col("origin_town").is_not_null() & (pl.col("origin_town") != ""))
        assert rows.height
        assert rows["origin_town_name"].to_list() == [calls[code] for code in rows["origin_town"]]
        assert set(rows["origin_county_name"]) == {"Ashford", "Bel mont"}
    assert "origin_county_name" not in pl.read_parquet(folder / "counts/level_4.parquet").columns
    names = pl.read_parquet(folder / "names/origin_town.parquet")
    assert names.rows() == [("01", "0101", "Ashford"), ("01", "0102", "Mill, Old"), ("02", "0201", "=Mill")]
    query = f"SELECT * FROM '{folder}/counts/level_4.parquet' NATURAL LEFT JOIN '{folder}/names/origin_town.parquet'"
    with duckdb.connect() as con:
        assert set(con.sql(query).pl()["origin_town_name"]) == {*calls.values()}


def test_every_page_says_what_is_counted_and_by_whom(folder):
    """Title, description and source stand in README, report, explorer and metadata, where levels have the words of the spec."""
    readme, report = (folder / "README.md").read_text(), (folder / "report.html").read_text()
    said = "Only of people who are <made up>. Source: Nobody's survey."
    assert readme.startswith("# Made-up trips\n")
    assert said in readme
    assert f'<p class="about">{said}</p>' in unescape(report)
    shown = payload(open_folder(folder))
    assert {key: shown["release"][key] for key in WORDS} == WORDS
    metadata = json.loads((folder / "metadata.json").read_text())
    assert (metadata["dc:title"], metadata["dc:source"]) == (WORDS["title"], WORDS["source"])
    assert metadata["dc:description"].startswith(WORDS["description"])
    shire = [report, metadata["tables"][2]["dc:title"], shown["axes"][0]["levels"][0]["called"]]
    assert all("shire" in of for of in shire)
    for page in (readme, report):  # since the CSV files have names as the codebook does
        assert re.search(r"takes codes and names that begin with[^.]*compute[^.]*=Mill", " ".join(page.split()))


def test_the_manifest_publishes_no_path_of_names(folder, noisy):
    """The manifest lists the levels that have names, and the spec in it has columns, or the name of a file without its folder."""
    both = {"origin": ["county", "town"], "destination": ["county", "town"]}
    alone = {"origin": ["town"], "destination": ["town"]}
    for place, names, labels in ((folder, both, LABELS), (noisy, alone, "names.csv")):
        manifest = json.loads((place / "manifest.json").read_text())
        assert (manifest["names"], manifest["spec"]["hierarchy"]["labels"]) == (names, labels)
        assert verify(place) == []


@pytest.mark.parametrize(("asked", "path", "name"), [
    ("bel mont", ["02"], "Bel mont"),
    ("Mill,  OLD", ["01", "0102"], "Mill, Old"),
    ("town=ashford", ["01", "0101"], "Ashford"),
    ("county=Ashford", ["01"], "Ashford"),
    ("county=Bel mont,town==Mill", ["02", "0201"], "=Mill"),
    ("0202", ["02", "0202"], None),
])  # fmt: skip
def test_areas_are_found_by_their_names(folder, asked, path, name):
    """A name stands for a code, whatever its case and blanks; the answer has code and name, and is that of the code."""
    told = query_answer(folder, asked, None, [], simultaneous=False)
    assert (told.where["origin"].path, told.where["origin"].name) == (path, name)
    assert told.count == query_answer(folder, path[-1], None, [], simultaneous=False).count


@pytest.mark.parametrize(("asked", "told", "hint"), [
    ("Ashford", "2 areas are called Ashford.", "Write county=01 or county=01,town=0101."),
    ("mill", "no level has an area mill.", "Did you mean =Mill (town=0201) or Mill, Old (town=0102)?"),
    ("Ashfrod", "no level has an area Ashfrod.", "Did you mean Ashford (county=01)"),
    ("county=Mill, Old", "there is no area county=Mill, Old.", "Did you mean Mill, Old"),
    ("town=Springfield", "2 areas are called Springfield.", "Write county=01,town=0101 or county=02,town=0201."),
])  # fmt: skip
def test_a_name_that_is_not_one_areas_is_refused(folder, noisy, asked, told, hint):
    """Several areas of one name, a part of a name and a misspelt name are refused with the areas that may be meant."""
    of = noisy if "Springfield" in asked else folder
    with pytest.raises(UsageError) as refusal:
        query_answer(of, asked, None, [], simultaneous=False)
    assert str(refusal.value).partition("\n")[0] == f"origin: {told}"
    assert refusal.value.hint.startswith(hint)
    settled = query_answer(noisy, "county=02,town=Springfield", None, [], simultaneous=False).where["origin"]
    assert settled.path == ["02", "0201"]


def test_report_explorer_and_prefect_begin_with_one_level(folder, noisy):
    """The largest flows are everywhere those of the finest level down to which most rows stand above the noise."""
    # They are called by their names, and leave out trips that stay within one area.
    for place, level in ((folder, 4), (noisy, 2)):
        found = largest_counts(open_folder(place), 5)
        assert (found.axes, found.without_within) == (("origin", "destination"), True)
        titled = re.search(r"<h3>The largest flows \(level (\d+):", (place / "report.html").read_text())
        assert (found.level, payload(open_folder(place))["first"], int(titled[1])) == (level, level, level)
        table = pl.read_parquet(place / f"counts/level_{level}.parquet")
        ends = [table.select(pl.concat_str(f"^{end}_.*$")).to_series() for end in ("origin", "destination")]
        table = table.filter(ends[0] != ends[1])
        assert [count for _, count in found.rows] == table["count"].sort(descending=True).head(5).to_list()
        if place == folder:
            calls = {"Ashford (0101)", "Mill, Old (0102)", "=Mill (0201)", "0202"}
            assert {name for names, _ in found.rows for name in names} <= calls


def of_ages(labels, **release):
    """Return a spec of an ordered feature, with names of a table."""
    hierarchy = {"age": {"ordered": 8, "labels": labels}}
    return SPEC | {"input": AGES, "hierarchy": hierarchy, "release": {"order": ["age"]} | release}


AGES = {"table": "people.csv", "features": ["age"]}
TABLES = {  # of codes and names
    "any.csv": "level,code,name\ntown,0201,A\ncounty,01,B\ntown,9,C\nblock,01,D\n",
    "sexes.csv": "code,name\nf,women\nm,men\n",
    "single.csv": "code,name\n0,Newborn\n7,Seven\n",
    "every.csv": "level,code,name\nage,7,Seven\nage_1,0..3,Small\n",
    "wrong.csv": "level,code,name\naeg,7,Seven\n",
    "people.csv": "age,sex\n0,f\n5,m\n",
}
SEVEN = ("4..7", "6..7", "7", "Seven")
# where an area stands alone, it is its own county, and is called there as it is at its own level
ALONE = AREAS.with_columns(
    pl.Series("county", ["01", "01", "02", None]), pl.Series("town called", ["Ashford", "Old", "Mill", "Free"])
)
OF_SEX = {"input": AGES | {"features": ["sex"]}, "release": {"order": ["sex"]}}
READ_NAMES = {
    "a table of any levels, with other codes and levels": (
        with_labels("any.csv"),
        AREAS,
        {("origin", 1): {("01", "B")}, ("destination", 1): {("01", "B")}, ("origin", 2): {("02", "0201", "A")}},
    ),
    "values that the spec lists": (
        SPEC | OF_SEX | {"hierarchy": {"sex": {"values": ["m", "f"], "labels": "sexes.csv"}}},
        AREAS,
        {("sex", 1): {("f", "women"), ("m", "men")}},
    ),
    "single codes of an ordered feature": (of_ages("single.csv"), AREAS, {("age", 3): {("0..3", "0..1", "0", "Newborn"), SEVEN}}),
    "areas of any level of an ordered feature": (of_ages("every.csv"), AREAS, {("age", 1): {("0..3", "Small")}, ("age", 3): {SEVEN}}),
    "an area that stands alone": (
        with_labels(LABELS, blank="own_area"),
        ALONE,
        {("origin", 1): {("0202", "Free")}, ("origin", 2): {("0202", "0202", "Free")}},
    ),
}  # fmt: skip


def named(spec, folder, areas=AREAS):
    """Return the names that ingest would keep, by axis and level."""
    path = write(folder, spec, areas)
    for name, table in TABLES.items():
        (folder / name).write_text(table)
    source = load_spec(path).source()
    return {place: names.rows() for place, names in names_of(read_ends(source)).items()}


@pytest.mark.parametrize("what", READ_NAMES)
def test_tables_of_names_name_the_areas_of_the_levels_that_they_have(tmp_path, what):
    """By codes alone, by levels and codes, for listed values, ordered features and areas that stand alone."""
    spec, areas, expected = READ_NAMES[what]
    found = named(spec, tmp_path, areas)
    for place, names in expected.items():
        assert names == set(found[place]) if areas is AREAS else names <= set(found[place])


OTHER_LEVELS = "hierarchy.age.labels: single.csv names areas of level age, and so names none of the released levels."
OTHER_TABLE = (
    "hierarchy.labels must not be the confidential table or a view of it, nor in a file with it: "
    "its areas would reveal who is in it."
)
UNNAMED = AREAS.with_columns(pl.lit(" ").alias("town called"))
OF_LEVELS = {"table": "areas.csv", "levels": ["county", "town"]}
REFUSED_NAMES = [
    (of_ages("single.csv", finest={"age": "age_2"}), AREAS, OTHER_LEVELS),
    (of_ages("wrong.csv"), AREAS, "hierarchy.age.labels: column level of wrong.csv names none of the released levels."),
    (with_labels({"county": "called"}), AREAS, "hierarchy.labels: areas.csv has no column called."),
    (with_labels({"county": "town called"}), AREAS, "hierarchy.labels: the area county=01 has two names."),
    (with_labels({"town": "town called"}), UNNAMED, "hierarchy.labels: no code of the codebook that has a name is a code of the axis."),
    (with_labels("trips.csv"), AREAS, OTHER_TABLE),
    *(
        (
            SPEC | {"hierarchy": OF_LEVELS | {key: {"block": "x"}}},
            AREAS,
            f"hierarchy.{key} must name levels (county, town), got block.",
        )
        for key in ("labels", "called", "boundaries")
    ),
    (
        SPEC | {"hierarchy": OF_LEVELS | {"code": "GEOID"}},
        AREAS,
        "hierarchy.code must be left out without boundaries, whose property it names.",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "areas", "told"), REFUSED_NAMES, ids=[told for _, _, told in REFUSED_NAMES])
def test_names_that_break_a_rule_are_refused(tmp_path, spec, areas, told):
    """Missing columns and levels, two names of one area, no name at all, and the confidential table are refused with the key."""
    with pytest.raises((InputError, SpecError)) as refusal:
        named(spec, tmp_path, areas)
    assert str(refusal.value) == told
    if isinstance(refusal.value, InputError):
        assert refusal.value.field == re.split(":| must", told)[0]
    if "released levels" in told:  # the hint lists them, and does not speak of leading zeros
        assert refusal.value.hint.startswith("These are age_1, age_2")


# shapes ------------------------------------------------------------------------------------------------------------


def test_every_level_has_its_shapes_as_geoparquet(folder):
    """Towns have the shapes of the file, counties what their towns cover, the files say that they hold degrees, and maps show them."""
    manifest = Manifest.model_validate_json((folder / "manifest.json").read_bytes())
    assert manifest.boundaries == {"origin": ["county", "town"], "destination": ["county", "town"]}
    assert manifest.spec["hierarchy"]["boundaries"] == "towns.geojson"
    shapes = published_shapes(folder, manifest)
    wanted = {"town": SQUARES, "county": {"01": box(0, 50, 2, 51), "02": SQUARES["0201"]}}
    for axis, (number, level) in product(manifest.boundaries, enumerate(wanted, 1)):
        table = pq.read_table(folder / f"boundaries/{axis}_{level}.parquet")
        above = [f"{axis}_county"] if level == "town" else []
        assert table.column_names == [*above, f"{axis}_{level}", GEOMETRY]
        assert table[f"{axis}_{level}"].to_pylist() == [*wanted[level]]
        assert all(shapely.equals(shapely.from_wkb(table[GEOMETRY].to_pylist()), [*wanted[level].values()]))
        geo = json.loads(table.schema.metadata[b"geo"])
        assert (geo["version"], geo["primary_column"]) == ("1.1.0", GEOMETRY)
        column = geo["columns"][GEOMETRY]
        assert (column["encoding"], column["geometry_types"], column["bbox"]) == ("WKB", ["Polygon"], [0, 50, 3, 51])
        assert "crs" not in column  # longitude and latitude, WGS 84
        assert [path[-1] for path in shapes.paths(axis, 3 - number)] == [*wanted[level]]
    assert verify(folder) == []
    assert (folder / "report.html").read_text().count('<svg class="map"') == 2
    assert "- `boundaries/<column of codes>.parquet`" in (folder / "README.md").read_text()


def _as_table(crs):
    turn = pyproj.Transformer.from_crs("OGC:CRS84", crs, always_xy=True).transform
    shapes = [shapely.transform(shape, turn, interleaved=False) for shape in SQUARES.values()]
    return list(SQUARES), shapely.to_wkb(np.array(shapes, dtype=object))


def _write_geoparquet(path, crs, name="code"):
    codes, wkb = _as_table(crs or "OGC:CRS84")
    about = {"encoding": "WKB", "geometry_types": ["Polygon"]}
    about |= {} if crs is None else {"crs": pyproj.CRS(crs).to_json_dict()}
    geo = {"version": "1.1.0", "primary_column": "geom", "columns": {"geom": about}}
    pq.write_table(pa.table({name: codes, "geom": list(wkb)}, metadata={"geo": json.dumps(geo)}), path)


def _write_geopackage(path, crs, name="code", *, is_placed=True):
    codes, wkb = _as_table(crs or "OGC:CRS84")
    fields = [np.array(codes, dtype=object)]
    crs = (crs or "EPSG:4326") if is_placed else None
    pyogrio.raw.write(path, wkb, fields, [name], geometry_type="Polygon", crs=crs, driver="GPKG")


@pytest.mark.parametrize(("name", "writer", "crs"), [
    ("towns.parquet", _write_geoparquet, None),
    ("towns.parquet", _write_geoparquet, METRES),
    ("towns.gpkg", _write_geopackage, "EPSG:4326"),
    ("towns.gpkg", _write_geopackage, METRES),
])  # fmt: skip
def test_other_kinds_of_files_give_the_same_shapes(tmp_path, name, writer, crs):
    """GeoParquet and GeoPackage are read like GeoJSON; coordinates in metres become degrees."""
    spec = drawn(tmp_path, {"boundaries": name, "code": "GEOID"})
    writer(tmp_path / name, crs, "GEOID")
    found = shaped(spec)["destination", 2]
    assert found.keys() == SQUARES.keys()
    for code, shape in found.items():
        assert shapely.hausdorff_distance(shape, SQUARES[code]) < 1e-6


@pytest.mark.parametrize("package", ["pyogrio", "pyproj"])
def test_a_missing_package_is_named_with_its_extra(tmp_path, monkeypatch, package):
    """A file that needs the extra says what to install."""
    spec = drawn(tmp_path, {"boundaries": "towns.gpkg"})
    _write_geopackage(tmp_path / "towns.gpkg", METRES)
    monkeypatch.setitem(sys.modules, package, None)
    told = refusal(spec)
    assert str(told) == f"hierarchy.boundaries: to read towns.gpkg, Trellis needs {package}, which is not installed."
    assert "pip install 'trellis[maps]'" in told.hint


LEFT, RIGHT = box(0, 50, 0.5, 51), box(0.5, 50, 1, 51)
BOW_TIE = shapely.Polygon([(0, 50), (1, 51), (1, 50), (0, 51)])
POINT, WEST, EAST = shapely.Point(0, 0), box(0, 50, 1, 51), box(1, 50, 2, 51)
READ = {  # keys, features, and shapes by axis level
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
def test_shapes_are_those_of_the_codes_of_the_axis(tmp_path, what):
    """What has no code of a released level is passed over; shapes of a code are put together, and those of areas make those above."""
    keys, features, expected = READ[what]
    spec = drawn(tmp_path, features=features, **keys)
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


def text(*features, **more):
    """Return the text of a file with features; of the squares if none are given."""
    return json.dumps(collection(list(features or SQUARES.items()), **more))


IN_METRES = {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::25832"}}
PLACED = "feature 1 must lie between -180 and 180 degrees of longitude and -90 and 90 of latitude."
ASKED = "Set hierarchy.code to the property that holds the codes of areas."
BARE = {"type": "Feature", "geometry": mapping(SQUARES["0101"])}
REFUSED = [  # the file, what is told of it, and words of the hint
    ("{", "cannot be read as GeoJSON with a list of features.", ""),
    ("[]", "cannot be read as GeoJSON with a list of features.", ""),
    (text(("0101", SQUARES["0101"]), ("0102", POINT)), "feature 2 must be a polygon or several, got a Point.", ""),
    (text(("0101", box(0, 0, 1, 1))).replace("1.0, 0.0", "NaN, 0.0"), "feature 1 has no shape that can be read.", ""),
    (text(("0101", None)).replace("null", '{"type": "Polygon", "coordinates": [4711]}'), "feature 1 has no shape that can be read.", ""),
    (text(crs=IN_METRES), "cannot be read as GeoJSON in degrees of longitude and latitude.", ""),
    (text(("101", WEST)), "no code in code is a code of the axis.", ""),
    (text((["4711"], WEST)), "feature 1 must have a code that is text or a whole number.", ""),
    (text(("0101", None)), "no area has a shape.", ""),
    (text().replace('"code"', '"GEOID"'), "no feature has a code in code.", f"{ASKED} The file has GEOID, who."),
    (json.dumps(collection([])), "no feature has a code in code.", ASKED),
    (json.dumps(collection([]) | {"features": [BARE | {"properties": ["4711"]}]}), "no feature has a code in code.", ASKED),
    (text(("0101", box(400_000, 50, 400_001, 51))), PLACED, "a file in metres"),
    (text(("0101", box(50, 100, 51, 101))), PLACED, "longitude comes first"),
    (text(("0101", box(179.5, 50, 180.5, 51))), PLACED, "Longitudes do not go on past 180"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "told", "hint"), REFUSED, ids=range(len(REFUSED)))
def test_files_that_break_a_rule_are_refused(tmp_path, content, told, hint):
    """A plan refuses what cannot be drawn, before anything is reserved, and names the number of a feature and properties at most."""
    spec = drawn(tmp_path)
    (tmp_path / "towns.geojson").write_text(content)
    refused = refusal(spec)
    said = str(refused).removeprefix("hierarchy.boundaries: ")
    assert "towns.geojson" in said
    assert re.sub(r"( of)? ?towns.geojson", "", said).strip() == told
    assert hint in refused.hint


@pytest.mark.parametrize("crs", ["urn:ogc:def:crs:OGC:1.3:CRS84", "urn:ogc:def:crs:EPSG::4326", "EPSG:4269"])
def test_degrees_of_old_geojson_are_accepted(tmp_path, crs):
    """A file that states WGS 84, as GeoJSON once did, is read; so is a shape that ends at 180 degrees."""
    spec = drawn(tmp_path)
    named = {"type": "name", "properties": {"name": crs}}
    (tmp_path / "towns.geojson").write_text(text(("0101", box(179.5, 50, 180, 51)), crs=named))
    assert shaped(spec)["origin", 2].keys() == {"0101"}


def test_files_of_other_kinds_that_break_a_rule_are_refused(tmp_path):
    """A wrong column is answered with those that there are; nobody can draw a file that does not say what its coordinates are."""
    for name, writer in (("towns.parquet", _write_geoparquet), ("towns.gpkg", _write_geopackage)):
        spec = drawn(tmp_path, {"boundaries": name, "code": "FIPS"})
        writer(tmp_path / name, METRES, "GEOID")
        told = refusal(spec)
        assert str(told) == f"hierarchy.boundaries: no feature of {name} has a code in FIPS."
        assert told.hint.endswith("GEOID.")
        assert "0101" not in told.hint
    (tmp_path / "towns.gpkg").unlink()
    with pytest.warns(UserWarning, match="crs"):
        _write_geopackage(tmp_path / "towns.gpkg", None, "FIPS", is_placed=False)
    told = refusal(spec)
    assert str(told).endswith("towns.gpkg cannot be read as a file that says what its coordinates are.")
    assert "EPSG:4326" in told.hint
    with pytest.raises(InputError, match=r"must end in .geojson, .parquet or .gpkg, got towns.shp") as refused:
        load_spec(drawn(tmp_path, {"boundaries": "towns.shp"})).source()
    assert "ogr2ogr" in refused.value.hint
    with pytest.raises(InputError, match=r"hierarchy.boundaries.town: there is no file"):
        load_spec(drawn(tmp_path, {"boundaries": {"town": "none.geojson"}})).source()


def test_a_code_of_two_areas_is_refused(tmp_path, own_home):
    """A shape cannot be that of two areas, which only their counties tell apart; `trellis check` counts the areas with shapes."""
    answer = check_answer(drawn(tmp_path))
    told = [(of.axis, of.level, of.shaped, of.areas) for of in answer.shapes]
    assert told[:2] == [("origin", "county", 2, 2), ("origin", "town", 3, 4)]
    ends = {"origin": ["county", "home"], "destination": ["county", "work"]}
    spec = drawn(tmp_path, input=SPEC["input"] | ends)
    (tmp_path / "areas.csv").write_text("county,town\n01,0101\n02,0101\n")
    assert str(refusal(spec)) == (
        "hierarchy.boundaries: the codes of level town must differ to have shapes; one is that of two areas."
    )


def test_the_confidential_table_is_no_file_of_shapes(tmp_path, own_home):
    """The table of records is refused as boundaries, by its path and by its content, and nothing is published."""
    _write_geoparquet(tmp_path / "trips.parquet", None, "home")
    spec = drawn(tmp_path, {"boundaries": "trips.parquet"}, input=SPEC["input"] | {"table": "trips.parquet"})
    assert str(refusal(spec)).startswith("hierarchy.boundaries must not be the confidential table")
    shutil.copy(tmp_path / "trips.parquet", tmp_path / "shapes.parquet")
    of_home = SPEC["hierarchy"] | {"boundaries": "shapes.parquet", "code": "home"}
    features = {"table": "trips.parquet", "features": ["home"]}
    spec = drawn(tmp_path, input=features, hierarchy={"home": of_home}, release={"order": ["home"]})
    with pytest.raises(InputError, match=r"hierarchy.home.boundaries must not be the confidential table"):
        published(spec)
    assert not list((tmp_path / "out").glob("*"))


NO_FILE = "must have levels whose names can be names of files, to have labels or boundaries; home_a/b cannot."
TWICE = "labels would give two columns of the published tables the name home_county_name."
DRAWN, NAMED = {"boundaries": "towns.geojson"}, {"labels": {"county": "name"}}


@pytest.mark.parametrize(("feature", "levels", "more", "told"), [
    ("home", ["county", "a/b"], DRAWN, NO_FILE),
    ("home", ["county", "a/b"], NAMED, NO_FILE),
    ("home", ["county", "county_name"], NAMED, TWICE),
    ("geometry", ["town"], DRAWN, "would give two columns of a published file the name geometry"),
])  # fmt: skip
def test_levels_whose_files_or_columns_cannot_be_are_refused(tmp_path, feature, levels, more, told):
    """A level whose name is no name of a file, and a column of names or shapes that another column is called, are refused."""
    order = [f"{feature}.{level}" for level in levels] if len(levels) > 1 else [feature]
    hierarchy = {feature: {"table": "areas.csv", "levels": levels} | more}
    asked = {"table": "trips.csv", "features": [feature]}
    spec = drawn(tmp_path, input=asked, release={"order": order}, hierarchy=hierarchy)
    with pytest.raises(SpecError, match=re.escape(told)) as refused:
        load_spec(spec)
    assert f"hierarchy.{feature}" in str(refused.value)


TOWNS, NAMES = "boundaries/origin_town.parquet", "names/origin_town.parquet"


def _changed(name, change):
    def spoil(folder):
        metadata = pq.read_schema(folder / name).metadata
        pq.write_table(
            change(pl.read_parquet(folder / name)).to_arrow().replace_schema_metadata(metadata), folder / name
        )

    return spoil


def _with_shape(shape):
    is_first, wkb = pl.col("origin_town") == "0101", pl.lit(shapely.to_wkb(shape), dtype=pl.Binary)
    return _changed(TOWNS, lambda of: of.with_columns(pl.when(is_first).then(wkb).otherwise(GEOMETRY).alias(GEOMETRY)))


def _without_metadata(folder):
    path = folder / "boundaries/origin_county.parquet"
    pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)


OTHER_FILES = "boundaries/ does not hold the files that manifest.json lists."
IN_ORDER = f"{TOWNS} does not have each area once, in the order of codes."
NOT_VALID = f"{TOWNS} has a shape that is not a valid polygon or several."
UNSAID = "boundaries/origin_{}.parquet does not say what its shapes are, as GeoParquet does."
SPOILT = {
    "a file less": (lambda folder: (folder / TOWNS).unlink(), OTHER_FILES),
    "a file more": (lambda folder: (folder / "boundaries/more.parquet").write_text(""), OTHER_FILES),
    "no file of its kind": (lambda folder: (folder / TOWNS).write_text("none"), "A table of boundaries/ is not a Parquet file."),
    "a level that is not released": (
        lambda folder: rewrite(folder, lambda of: of["boundaries"].update(origin=["block"])),
        "manifest.json: boundaries must list levels that are released.",
    ),
    "another order": (_changed(TOWNS, lambda areas: areas.reverse()), IN_ORDER),
    "a column less": (_changed(TOWNS, lambda areas: areas.drop("origin_county")), f"{TOWNS} must have columns of codes, and geometry."),
    "a ring that crosses itself": (_with_shape(BOW_TIE), NOT_VALID),
    "nothing": (_with_shape(shapely.Polygon()), f"{TOWNS} has an area whose shape is empty."),
    "another place": (_with_shape(box(-1, 50, 1, 51)), UNSAID.format("town")),
    "no word of shapes": (_without_metadata, UNSAID.format("county")),
    "other names than in the CSV": (
        _changed(NAMES, lambda areas: areas.with_columns(pl.lit("Elsewhere").alias("origin_town_name"))),
        "level_4.csv differs from the table of level 4.",
    ),
    "an area with two rows": (
        _changed(NAMES, lambda areas: pl.concat([areas[:1], areas])),
        f"{NAMES} does not name each area once, in the order of codes.",
    ),
    "a table of names less": (lambda folder: (folder / NAMES).unlink(), "names/ does not hold the files that manifest.json lists."),
    "no table of names": (lambda folder: (folder / NAMES).write_text("none"), "A table of names/ is not a Parquet file."),
}  # fmt: skip


@pytest.mark.parametrize("spoil", SPOILT)
def test_verify_reads_names_and_shapes(copy, spoil):
    """Names and shapes that are not as they should be are found; `verify` says so although all checksums fit."""
    change, failure = SPOILT[spoil]
    change(copy)
    with_sums(copy)
    assert failure in verify(copy)
