"""The kinds of files in which a release is published: what programs read in them, and that `verify` holds them to the tables."""

import functools
import json
import operator
import re
import shutil
import zipfile
from functools import partial
from pathlib import Path

import fastexcel
import geopandas
import numpy as np
import openmatrix
import polars as pl
import pyarrow.parquet as pq
import pytest
import shapely
import tables as hdf5
from pysdmx.io import get_datasets, read_sdmx
from shapely.geometry import box, mapping

from flows.answers.verify import verify_answer
from flows.api import plan, release
from flows.console.release_view import show_verification
from storage.database.connections import store
from storage.errors import SpecError
from tasks.folder.export import formats, workbook
from tasks.folder.export.formats import write_formats
from tasks.folder.export.tables import PublishedTables
from tasks.folder.verify.folder import verify
from tasks.format.manifest import published_manifest
from tasks.format.noisy_counts import CODEBOOK
from tasks.format.published_tree import tree_of_codebook
from tests.support.folders import assert_described, rewrite, table_of, with_sums
from tests.support.households import SPEC as HOMES
from tests.support.households import homes_released
from tests.support.spec import SPEC, spec_in

COUNTIES = {"A1": box(0, 0, 1, 1), "A2": box(1, 0, 2, 1), "B1": box(2, 0, 3, 1)}
REGIONS = ["01", "#2"]
# what spreadsheets spoil, or CSV must quote
PLACES = ["007", "=1+1", "@x", "+39", "-", "a,b", 'q"q', "n\nl", "c\rr", "é", " s ", "#1", "null", "_x41_"]
SHAPES = {place: box(number, 50, number + 1, 51) for number, place in enumerate(PLACES[1:]) if place == place.strip()}
NAMES = {place: f"=NAME({' '.join(place.split())})" for place in PLACES[:-1]}  # as published; the last has none
PRIVACY = SPEC["privacy"] | {"unit": "one made-up person", "epsilon": 60.0}  # so that every pair with records is there
TRIPS = {
    "name": "trips",
    "dataset": "trips",
    "input": {"table": "trips.parquet", "origin": "home", "destination": "work"},
    "hierarchy": {"table": "areas.parquet", "levels": ["region", "place"]}
    | {"labels": {"place": "called"}, "boundaries": "places.geojson"},
    "release": {"tree": "destination", "finest": "place", "rows": "signal", "csv": "every_level", "records": True}
    | {"formats": ["xlsx", "omx", "geoparquet", "sdmx"]},
    "mechanism": "inftda_reconciled",
    "privacy": PRIVACY,
    "budget": {"epsilon": 1000.0, "delta": 1.0e-6},
    "run": {"prefect": False},
}
KINDS = {"trips": TRIPS["release"]["formats"], "homes": ["xlsx", "geoparquet", "sdmx"], "hidden": ["xlsx", "sdmx"]}
OF_LIBRARY = ["walked", "settled together"]  # which have workbooks; SDMX is written besides


def shapes_in(shapes):
    """Return the shapes of areas as GeoJSON."""
    features = [
        {"type": "Feature", "properties": {"code": code}, "geometry": mapping(shape)} for code, shape in shapes.items()
    ]
    return json.dumps({"type": "FeatureCollection", "features": features})


def trips_written(folder):
    """Write trips between areas whose codes and names a spreadsheet would compute, or take for numbers, and return the spec."""
    (folder / "places.geojson").write_text(shapes_in(SHAPES))
    regions = [REGIONS[number % 2] for number in range(len(PLACES))]
    called = [NAMES.get(place) for place in PLACES]
    pl.DataFrame({"region": regions, "place": PLACES, "called": called}).write_parquet(folder / "areas.parquet")
    pairs = [(home, work) for number, home in enumerate(PLACES[:-1]) for work in PLACES[: number + 1]]
    pl.DataFrame(pairs * 20, ["home", "work"], orient="row").write_parquet(folder / "trips.parquet")
    return spec_in(folder, TRIPS)


def homes_mapped(folder):
    """Release sizes of households in counties that have shapes."""
    (folder / "counties.geojson").write_text(shapes_in(COUNTIES))
    of_region = HOMES["hierarchy"]["region"] | {"boundaries": "counties.geojson"}
    asked = HOMES["release"] | {"formats": KINDS["homes"]}
    return homes_released(folder, dataset="homes", hierarchy={"region": of_region}, release=asked).folder


def hidden_released(folder):
    """Release trips with codes that no codebook lists, a column per level, and leaves that must reach a threshold."""
    pairs = [(a, f"{n}", b, f"{m}") for a in "ab" for b in "ab" for n in range(2) for m in range(2)]  # codes twice
    columns = ["home region", "home", "work region", "work"]
    pl.DataFrame(pairs * 200, columns, orient="row").write_csv(folder / "trips.csv")
    hierarchy = {"levels": ["region", "place"]}
    changed = {
        "dataset": "hidden",
        "input": {"table": "trips.csv", "origin": columns[:2], "destination": columns[2:]},
        "hierarchy": {"origin": hierarchy, "destination": hierarchy},
        "release": {"tree": "destination", "finest": "place", "formats": KINDS["hidden"]},
        "mechanism": "stability_histogram",
        "privacy": {key: value for key, value in PRIVACY.items() if key != "accountant"} | {"neighbours": "add_remove"},
    }
    return release(spec_in(folder, TRIPS | changed)).folder


def people_released(folder):
    """Release features whose names and codes are odd."""
    columns, rows = (
        ["_sex", "native country", "odd.one"],
        [(str(sex), place, "x") for sex in (0, 1) for place in PLACES],
    )
    pl.DataFrame(rows, columns, orient="row").write_parquet(folder / "people.parquet")
    changed = {
        "dataset": "people",
        "input": {"table": "people.parquet", "features": ["_sex", "native country", "odd.one"]},
        "hierarchy": {"_sex": {"values": 2}, "native country": PLACES, "odd.one": ["x", "y"]},
        "release": {"order": ["native country", "_sex", "odd.one"], "csv": True},
    }
    return release(spec_in(folder, TRIPS | changed)).folder


@pytest.fixture(scope="module")
def made(tmp_path_factory, library):
    """Return what finds a release in the kinds of files that it can have, once: its own, or one of the library."""
    place = tmp_path_factory.mktemp("formats")
    own = {
        "trips": lambda folder: release(trips_written(folder)).folder,
        "homes": homes_mapped,
        "hidden": hidden_released,
        "people": people_released,
    }

    @functools.cache
    def of(name):
        (place / name).mkdir()
        if name in own:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("TRELLIS_HOME", str(place / "home"))
                with store():  # open all the time
                    return own[name](place / name)
        folder = library[name].copied(place / name)
        rewrite(folder, lambda manifest: manifest.update(formats=["xlsx", "sdmx"]))
        write_formats(PublishedTables(folder, manifest_of(folder)), ["sdmx"], tree(folder), "")
        return folder

    return of


@pytest.fixture
def copy(made, tmp_path):
    """Return a copy of the trips, to spoil."""
    return Path(shutil.copytree(made("trips"), tmp_path / "copy"))


def manifest_of(folder):
    """Return the manifest of a folder."""
    return published_manifest(folder)


def tree(folder):
    """Return the tree of a folder."""
    return tree_of_codebook(manifest_of(folder), pl.read_parquet(folder / CODEBOOK))


def cells(folder, sheet, **how):
    """Return a sheet of a workbook, as a program reads it that is told nothing about it."""
    return fastexcel.read_excel(folder / "counts.xlsx").load_sheet(sheet, **how).to_polars()


def differences(folder, **stated):
    """Return where the files of more kinds differ from the tables, with other statements of the manifest."""
    return formats.format_failures(PublishedTables(folder, manifest_of(folder).model_copy(update=stated)))


# CSV, and the store that is read as SQL ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["trips", "people"])
def test_readers_of_csv_get_the_codes_as_they_are(made, name):
    """By its metadata alone a reader gets every code to the letter, and counts as numbers; what is said of columns is there."""
    folder = made(name)
    rows, manifest = assert_described(folder), manifest_of(folder)
    assert verify(folder) == []
    content = json.loads((folder / "metadata.json").read_text())
    assert content["dc:identifier"] == manifest.id
    assert content["dc:description"] == manifest.privacy.statement
    assert content["notes"][0]["epsilon"] == manifest.privacy.epsilon
    assert "dc:license" not in content  # which is left to the publisher
    for table in content["tables"]:
        columns = table["tableSchema"]["columns"]
        assert all(column["dc:description"] for column in columns)
        codes = [of["name"] for of in columns if of["datatype"] == "string" and not of["name"].endswith("_name")]
        is_keyed = table["url"].startswith("counts")
        assert table["tableSchema"].get("primaryKey", []) == (codes if is_keyed else [])
    if name == "people":
        columns = content["tables"][0]["tableSchema"]["columns"]
        assert [column["name"] for column in columns][:3] == ["%5Fsex", "native%20country", "odd%2Eone"]
    else:
        assert len(rows["records.csv"]) == table_of(folder, 0)["count"].item()
        assert {row["destination_place"] for row in rows["records.csv"]} <= {*PLACES}


# workbooks -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*KINDS, *OF_LIBRARY])
def test_a_workbook_says_what_the_counts_are(made, name):
    """Its first sheet names the release, ε, the unit, what is not protected and what the columns are, and lists the other sheets."""
    folder = made(name)
    words = cells(folder, "Read me", header_row=None, dtypes="string").fill_null("")
    manifest, text = manifest_of(folder), "\n".join(words["__UNNAMED__0"])
    assert words.item(0, 0) == manifest.id
    for said in (f"ε = {manifest.privacy.epsilon:.6g}", manifest.privacy.unit, "low and high", "signal is true"):
        assert said in text
    assert all(statement in text for statement in manifest.unprotected)
    assert not {"`", "**"} & {*text}
    sheets = fastexcel.read_excel(folder / "counts.xlsx").sheet_names
    assert [of for of in words["__UNNAMED__1"].to_list() if of][1:] == sheets[1:]
    tables = [*(folder / "counts").glob("*.parquet"), *folder.glob("views/*.parquet"), *folder.glob("signal/*.parquet")]
    assert len(sheets) == 1 + len(tables)
    if name in KINDS:  # those of the library are read by the laws of them
        assert verify(folder) == []
        assert (manifest.formats, manifest.left_out) == (KINDS[name], {})


def test_no_code_is_a_formula_or_a_number(made):
    """Codes and names that begin like formulas, or look like numbers, are text cells beside each other; no cell is a formula or a link."""
    folder = made("trips")
    sheet, table = cells(folder, "level 4"), table_of(folder, 4)
    ends = [f"{end}_{of}" for end in ("origin", "destination") for of in ("region", "place", "place_name")]
    assert sheet.columns == [*ends, "count", "low", "high", "signal"]
    assert sheet.select(table.columns).rows() == table.rows()
    assert sheet["destination_place_name"].to_list() == [NAMES.get(place) for place in table["destination_place"]]
    assert sheet.schema["origin_place"] == pl.String
    assert set(PLACES) >= set(sheet["origin_place"]) >= {"007", "=1+1", "@x", "+39", "-"}
    few = pl.read_parquet(folder / "signal/level_4.parquet")
    assert cells(folder, "level 4 signal", dtypes=dict.fromkeys(few.columns[:4], "string")).select(few.columns).height
    with zipfile.ZipFile(folder / "counts.xlsx") as parts:
        sheets = [parts.read(name) for name in parts.namelist() if name.startswith("xl/worksheets/sheet")]
    assert len(sheets) == 10
    assert not any(b"<f" in of or b"<hyperlink" in of for of in sheets)
    assert b'<c r="A2" t="inlineStr"' in re.sub(rb' s="\d+"', b"", sheets[2])
    ages = made("settled together")
    assert cells(ages, "view ages").rows() == pl.read_parquet(ages / "views" / "ages.parquet").rows()


def test_a_table_with_too_many_rows_is_left_out(made, copy):
    """A level of 1.2 million rows gets no sheet: the first sheet, the manifest and verify know; a small one may not be left out."""
    other = "manifest.json leaves out other tables of {} than those that are too large."
    assert differences(made("trips"), left_out={"sdmx": ["counts/level_4.parquet"]}) == [other.format("sdmx")]
    (copy / "counts.xlsx").unlink()
    finest = table_of(copy, 4)
    many = pl.concat([finest] * (1_200_000 // finest.height + 1))
    many.write_parquet(copy / "counts" / "level_4.parquet")
    tables = PublishedTables(copy, manifest_of(copy))
    left_out = write_formats(tables, ["xlsx"], tree(copy), [("What this is", ["Counts."])])
    assert left_out == {"xlsx": ["counts/level_4.parquet"]}
    sheets = fastexcel.read_excel(copy / "counts.xlsx").sheet_names
    assert {"level 3", "level 4"} & {*sheets} == {"level 3"}
    words = "\n".join(cells(copy, "Read me", header_row=None, dtypes="string")["__UNNAMED__0"].drop_nulls())
    assert "Left out, because a sheet holds at most 1,048,575 rows: counts/level_4.parquet." in words
    for folder in ("omx", "geo", "sdmx"):
        shutil.rmtree(copy / folder)
    assert differences(copy, formats=["xlsx"], left_out=left_out) == []
    assert differences(copy, formats=["xlsx"], left_out={}) == [other.format("xlsx")]


def test_names_of_sheets_are_short_and_differ():
    """Names of views that a spreadsheet cannot have as names of sheets are cut, and made to differ."""
    long = "view " + "x" * 40
    titles = enumerate([long, long.upper(), "a/b"])
    found = workbook.sheets_of([workbook.PublishedTable(f"{n}", title, "", {}) for n, title in titles])
    assert list(found) == [long[:31], long.upper()[:27] + " (2)", "a_b"]


# matrices ------------------------------------------------------------------------------------------------------------------


def test_matrices_have_the_counts_of_pairs_of_zones(made):
    """Each level with the same zones at both ends has matrices: rows are origins, a missing row is 0, and has no interval."""
    folder = made("trips")
    assert sorted(path.name for path in (folder / "omx").iterdir()) == ["level_2.omx", "level_4.omx"]
    with openmatrix.open_file(str(folder / "omx" / "level_4.omx")) as file:
        assert file.version() == b"0.2"
        assert file.mapping("zone") == {number: number - 1 for number in range(1, len(PLACES) + 1)}
        entries = [file.map_entries(name) for name in ("zone_code", "zone_name", "zone_code_1")]
        codes, names, regions = ([text.decode() for text in of] for of in entries)
        matrices = {name: file[name][:] for name in file.list_matrices()}
        assert file.root._v_attrs["trellis_release"] == manifest_of(folder).id
    assert matrices.keys() == {"count", "high", "low"}
    assert sorted(codes) == sorted(PLACES)
    assert list(zip(regions, codes, strict=True)) == sorted(zip(regions, codes, strict=True))
    assert names == [NAMES.get(code, "") for code in codes]
    table = table_of(folder, 4)
    for name, matrix in matrices.items():
        expected = np.full((len(PLACES), len(PLACES)), 0.0 if name == "count" else np.nan)
        for row in table.iter_rows(named=True):
            expected[codes.index(row["origin_place"]), codes.index(row["destination_place"])] = row[name]
        np.testing.assert_array_equal(matrix, expected)
    assert np.isnan(matrices["low"]).sum() == len(PLACES) ** 2 - table.height > 0


@pytest.mark.thorough
@pytest.mark.heavy("AequilibraE is imported in ten seconds")
def test_aequilibrae_reads_the_matrices(made):
    """AequilibraE, which assigns trips to networks, loads the matrices with their zones."""
    from aequilibrae.matrix import AequilibraeMatrix

    found = AequilibraeMatrix()
    found.load(str(made("trips") / "omx" / "level_4.omx"))
    found.computational_view(["count"])
    assert found.index.tolist() == list(range(1, len(PLACES) + 1))
    assert found.matrix_view.sum() == table_of(made("trips"), 4)["count"].sum()


# maps ----------------------------------------------------------------------------------------------------------------------


def test_trips_are_lines_between_areas(made):
    """A row of trips is a line from inside its origin to inside its destination; trips within an area, or to one without a shape, have none."""
    folder = made("trips")
    assert sorted(path.name for path in (folder / "geo").iterdir()) == [f"level_{k}.parquet" for k in (1, 2, 3, 4)]
    table, own = geopandas.read_parquet(folder / "geo" / "level_4.parquet"), cells(folder, "level 4")
    assert list(table.columns) == [*own.columns, "geometry"]
    assert pl.DataFrame(pq.read_table(folder / "geo" / "level_4.parquet").drop_columns("geometry")).rows() == own.rows()
    lines = 0
    for home, work, line in zip(own["origin_place"], own["destination_place"], table["geometry"], strict=True):
        if home == work or home not in SHAPES or work not in SHAPES:
            assert line is None
            continue
        lines += 1
        first, last = map(shapely.Point, line.coords)
        assert SHAPES[home].contains(first)
        assert SHAPES[work].contains(last)
    assert lines > 20
    geo = json.loads(pq.read_metadata(folder / "geo" / "level_4.parquet").metadata[b"geo"])
    assert (geo["version"], geo["primary_column"]) == ("1.1.0", "geometry")
    assert geo["columns"]["geometry"]["geometry_types"] == ["LineString"]
    assert geo["columns"]["geometry"]["bbox"] == pytest.approx(table.total_bounds.tolist())


def test_areas_of_one_axis_are_polygons(made):
    """Where one axis has shapes, a row is the shape of its area; all tables with shapes are in degrees, and have the counts."""
    finest = len(manifest_of(made("homes")).levels) - 1
    for folder in (made("trips"), made("homes")):
        for file in (folder / "geo").iterdir():
            found = geopandas.read_parquet(file)
            assert found.crs.to_epsg() == 4326 or found.crs.to_string() == "OGC:CRS84"
            assert found["count"].tolist() == table_of(folder, int(file.stem[6:]))["count"].to_list()
    table = geopandas.read_parquet(made("homes") / "geo" / f"level_{finest}.parquet")
    assert {*table["region_county"]} & {*COUNTIES}
    for code, shape in zip(table["region_county"], table["geometry"], strict=True):
        assert shape is None if code not in COUNTIES else shape.equals(COUNTIES[code])


# SDMX ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*KINDS, *OF_LIBRARY])
def test_the_structure_is_valid_and_has_all_codes(made, name):
    """The structure is valid by the schemas of SDMX-ML 3.0, and has a data structure per level and every code with its name."""
    folder = made(name)
    assert differences(folder) == []
    structure = folder / "sdmx" / "structure.xml"
    message = read_sdmx(structure.read_text(), validate=True)
    assert len({of.id for of in message.get_dataflows()}) == len(manifest_of(folder).levels) - 1
    lists = {of.id: {code.id: code.name for code in of.items} for of in message.get_codelists()}
    if name == "trips":
        codes = lists["CL_origin_place"]
        assert len(codes) == len(PLACES)
        odd = {"007": "=NAME(007)", "_x3D_1_x2B_1": "=NAME(=1+1)", "_x5F_x41_": "_x41_"}
        assert {code: codes[code] for code in odd} == odd
    for of in message.get_data_structure_definitions():
        number = int(of.id.rpartition("_")[2])
        table = pl.read_csv(folder / "sdmx" / f"level_{number}.csv", infer_schema=False)
        assert table.columns[:3] == ["STRUCTURE", "STRUCTURE_ID", "ACTION"]
        assert set(table.columns[3:]) == {component.id for component in of.components}
        assert set(table["STRUCTURE_ID"]) == {f"TRELLIS:{of.id}(1.0)"}
        for component in of.components.dimensions:
            assert set(table[component.id]) <= lists[f"CL_{component.id}"].keys()
        assert table["OBS_VALUE"].cast(pl.Int64).to_list() == table_of(folder, number)["count"].to_list()
        [read] = get_datasets(folder / "sdmx" / f"level_{number}.csv", structure)
        assert read.data["OBS_VALUE"].tolist() == table_of(folder, number)["count"].to_list()
    if name == "hidden":  # codes that several areas have stand with those above; sums have no interval
        assert set(table["origin_place"]) == {"a@0", "a@1", "b@0", "b@1"}
        sums = cells(folder, "level 2", dtypes={"low": "float", "high": "float"})
        assert sums["low"].null_count() == sums["high"].null_count() == sums.height > 0


# what verify finds ---------------------------------------------------------------------------------------------------------


def change_part(name, old, new, folder):
    """Change the first place of a part of the workbook that matches."""
    with zipfile.ZipFile(folder / "counts.xlsx") as book:
        parts = {info: book.read(info) for info in book.infolist()}
    with zipfile.ZipFile(folder / "counts.xlsx", "w", zipfile.ZIP_DEFLATED) as book:
        for info, content in parts.items():
            changed = re.sub(old, new, content, count=1) if info.filename == name else content
            assert (changed != content) == (info.filename == name)
            book.writestr(info, changed)


def change_matrices(change, folder):
    """Change the matrices of level 4."""
    with hdf5.open_file(str(folder / "omx" / "level_4.omx"), "a") as file:
        change(file)


def change_text(name, old, new, folder):
    """Change the first place of a text file that matches."""
    text = (folder / name).read_text()
    changed = re.sub(old, new, text, count=1)
    assert changed != text
    (folder / name).write_text(changed)


def change_map(change, folder, *, more=0):
    """Change the lines of level 4, the bounds that the file states, and its counts by so many records."""
    path = folder / "geo" / "level_4.parquet"
    table, geo = pq.read_table(path), json.loads(pq.read_metadata(path).metadata[b"geo"])
    lines = change(shapely.from_wkb(table["geometry"].to_pylist()))
    geo["columns"]["geometry"]["bbox"] = shapely.total_bounds(lines[lines != None]).tolist()  # noqa: E711
    shapes = pl.Series("geometry", shapely.to_wkb(lines).tolist(), pl.Binary)
    changed = pl.DataFrame(table).with_columns(shapes, pl.col("count") + more)
    written = changed.to_arrow().cast(table.schema.remove_metadata())
    pq.write_table(written.replace_schema_metadata({b"geo": json.dumps(geo).encode()}), path)


OTHER_MAP = "geo/level_4.parquet differs from counts/level_4.parquet or from the shapes of boundaries/."
SHEET = "counts.xlsx: the sheet level {0} differs from counts/level_{0}.parquet."
FORMULA = (rb"<v>(\d+)</v>", rb"<f>1+1</f><v>\1</v>")
OBSERVATION = (r",\d+,(\d+,\d+,(true|false))\n", r",5555,\1\n")
SHEETS, OMX = "xl/worksheets/sheet{}.xml", "omx/level_4.omx: "
STRUCTURE = "sdmx/structure.xml"
NO_MAP = "geo/level_4.parquet is missing or is not a GeoParquet file of level 4."
SPOIL = [
    (partial(change_part, SHEETS.format(6), rb"<v>\d+</v>", b"<v>5555</v>"), SHEET.format(4)),
    (partial(change_part, SHEETS.format(3), rb">01<", b">1<"), SHEET.format(1)),
    (partial(change_part, SHEETS.format(6), *FORMULA), "counts.xlsx has a cell that is a formula."),
    (partial(change_part, SHEETS.format(1), rb">trips-", b">other-"), "counts.xlsx: the first sheet is that of another release."),
    (lambda of: (of / "counts.xlsx").write_text("none"), "counts.xlsx is missing or is not a workbook."),
    (lambda of: (of / "counts.xlsx").unlink(), "counts.xlsx is missing."),
    (
        partial(change_matrices, lambda file: operator.setitem(file.root.data.count, (0, 1), 5555)),
        f"{OMX}the matrix count differs from counts/level_4.parquet.",
    ),
    (
        partial(change_matrices, lambda file: operator.setitem(file.root.lookup.zone, slice(2), [2, 1])),
        f"{OMX}its zones are not the areas of the codebook, numbered in the order of their codes.",
    ),
    (
        partial(change_matrices, lambda file: file.remove_node("/data/low")),
        f"{OMX}its matrices are not those of the numbers of counts/level_4.parquet.",
    ),
    (
        lambda of: shutil.copy(of / "omx" / "level_4.omx", of / "omx" / "level_3.omx"),
        "omx/level_3.omx is no file that manifest.json lists.",
    ),
    (partial(change_map, lambda lines: lines, more=1), OTHER_MAP),
    (partial(change_map, shapely.reverse), OTHER_MAP),
    # lines may end anywhere in their areas: other versions of a library find other points
    (partial(change_map, lambda lines: shapely.transform(lines, lambda ends: ends + 0.125)), ""),
    (lambda of: (of / "geo" / "level_4.parquet").write_text("none"), NO_MAP),
    (partial(change_text, "sdmx/level_4.csv", *OBSERVATION), "sdmx/level_4.csv differs from counts/level_4.parquet."),
    (partial(change_text, STRUCTURE, r"=NAME\(007\)", "other"), f"{STRUCTURE} has other names than names/."),
    (partial(change_text, STRUCTURE, r'<str:Code id="007">', '<str:Code id="7">'), f"{STRUCTURE} lacks codes of sdmx/level_3.csv."),
    (partial(change_text, STRUCTURE, "isPartial=", "isWhole="), f"{STRUCTURE} is missing or is not SDMX-ML (Invalid)."),
    (lambda of: (of / "sdmx" / "level_1.csv").unlink(), "sdmx/level_1.csv is missing."),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "said"), SPOIL)
def test_verify_finds_what_differs_from_the_tables(copy, spoil, said):
    """Whatever is changed in a file is found, in one sentence that names the file."""
    spoil(copy)
    assert differences(copy) == ([said] if said else [])


def test_other_files_are_no_part_of_a_release(copy):
    """Files that no release with this manifest has, or whose kind it does not list, are found, although their checksums are listed."""
    others = ["more.txt", "counts/level_9.parquet", "counts/level_4.omx", "records.parquet", "other/a.csv"]
    for name in others:
        (copy / name).parent.mkdir(exist_ok=True)
        (copy / name).write_text("a,b\n1,2\n")
    rewrite(copy, lambda manifest: manifest.update(formats=["xlsx", "omx", "geoparquet"]))
    with_sums(copy)
    unlisted = ["structure.xml", *(f"level_{number}.csv" for number in (1, 2, 3, 4))]
    told = [f"{name} is no file of this release." for name in others]
    told += [f"sdmx/{name} is there, but manifest.json does not list sdmx." for name in unlisted]
    assert sorted(verify(copy)) == sorted(told)


def test_verify_says_what_it_cannot_read(made, monkeypatch, capsys):
    """Where a package is not installed, verify compares only the checksums of its files, says so, and finds no fault in it."""
    monkeypatch.setattr(formats, "find_spec", lambda package: None if package == "openmatrix" else package)
    found = verify_answer(made("trips"))
    assert found.ok
    show_verification(found)
    told = "not read: omx/*: only the checksum was compared, because the package openmatrix is not installed."
    assert told in " ".join(capsys.readouterr().out.split())


def test_a_missing_package_is_found_before_anything_is_spent(tmp_path, monkeypatch):
    """A spec whose formats need a package that is not installed is refused while it is planned, with what to install."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(formats, "find_spec", lambda package: None if package == "xlsxwriter" else package)
    spec = trips_written(tmp_path)
    for refused in (plan, release):
        with pytest.raises(SpecError, match="lists xlsx, which needs the package xlsxwriter") as fault:
            refused(spec)
        assert fault.value.field == "release.formats"
        assert "pip install 'trellis[formats]'" in fault.value.hint
