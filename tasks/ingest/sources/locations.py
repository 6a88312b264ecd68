"""Where a table is: from the text in a spec to the table, and to what may be published of the text."""

import os
import re
from pathlib import Path

from storage.errors import InputError
from storage.machine.files import sha256_of
from tasks.ingest.sources.databases import URL, is_query, relation_at
from tasks.ingest.sources.files import FileTable
from tasks.ingest.sources.matrices import Matrix
from tasks.ingest.sources.sheets import Sheet
from tasks.ingest.tables import Table

_ANY_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")

_INNER = re.compile(r"(?P<place>(?:\w+://(?:\[[^\]]*\])?)?.*?)::(?P<inner>.*)", re.DOTALL)
_TABLES = (".csv", ".csv.gz", ".parquet", ".xlsx")
_SHAPE_FILES = (".geojson", ".parquet", ".gpkg")
_MATRICES = (".csv", ".csv.gz")
_SHEET = "Save it as .xlsx, or the sheet as CSV (UTF-8), with codes as text: a spreadsheet drops their leading zeros."
_SHAPES = "Export its table of attributes as CSV: only the codes of the areas are read, not their shapes."
_CONVERT = {
    **dict.fromkeys((".xls", ".ods", ".xlsb"), _SHEET),
    **dict.fromkeys((".geojson", ".json", ".shp", ".gpkg", ".dbf", ".kml"), _SHAPES),
    ".duckdb": "Name the table inside of it: file.duckdb::table.",
    ".omx": "A matrix is named by input.matrix: file.omx::matrix, in place of input.table.",
    ".tsv": "Convert tabs to commas, and put values that contain a comma in quotes.",
    ".txt": "If it is CSV, give it a name that ends in .csv.",
    ".zip": "Unpack it.",
}


def table_at(field: str, location: str, base: Path) -> Table:
    """Return the table at a location: a file relative to `base`, or a table or a query of a database.

    Files are `file.csv`, `file.csv.gz`, `file.parquet`, `file.duckdb::table`, and `file.xlsx` or `file.xlsx::sheet`.

    Raises:
        InputError: the file does not exist, cannot be read, or has another ending; or the URL is of another kind, or holds
            credentials.
    """
    if URL.match(location):
        return relation_at(field, location)
    _refuse_other_url(field, location)
    file, _, inner = location.partition("::")
    path = _path(field, file, base)
    of_inner = (".duckdb", ".xlsx")
    if not path.name.endswith(of_inner if inner else _TABLES):
        raise InputError(
            f"{field} must end in {', '.join(_TABLES)} or .duckdb::<table>, or begin with postgresql://, got {path.name}.",
            field=field,
            hint=_CONVERT.get(path.suffix.lower(), ""),
        )
    _check_readable(field, path)
    return (Sheet if path.suffix == ".xlsx" else FileTable)(field, path, inner or None)


def matrix_at(field: str, location: str, base: Path, zones: str | None = None) -> Matrix:
    """Return the matrix at `file.omx::matrix`, `file.csv` or `file.csv.gz`, relative to `base`.

    Args:
        field: the spec's key that names it.
        location: its place.
        base: the folder to which it is relative.
        zones: the lookup that names the zones of an OMX file.
    Raises:
        InputError: the file does not exist, cannot be read, or has another ending; or zones are named for CSV.
    """
    _refuse_other_url(field, location)
    file, _, inner = location.partition("::")
    path = _path(field, file, base)
    if not path.name.endswith(".omx" if inner else _MATRICES):
        raise InputError(
            f"{field} must end in {', '.join(_MATRICES)} or .omx::<matrix>, got {path.name}.",
            field=field,
            hint="Name the matrix inside of it: file.omx::matrix." if path.suffix == ".omx" else "",
        )
    if zones and not inner:
        raise InputError(
            "input.zones must be left out for a CSV matrix: its first line and column name the zones.",
            field="input.zones",
        )
    _check_readable(field, path)
    return Matrix(field, path, inner or None, zones)


def shapes_at(field: str, location: str, base: Path) -> FileTable:
    """Return the file of shapes at `file.geojson`, `file.parquet` or `file.gpkg`, relative to `base`.

    Raises:
        InputError: the file does not exist, cannot be read, or has another ending.
    """
    _refuse_other_url(field, location)
    path = _path(field, location, base)
    if not path.name.endswith(_SHAPE_FILES):
        raise InputError(
            f"{field} must end in {', '.join(_SHAPE_FILES[:-1])} or {_SHAPE_FILES[-1]}, got {path.name}.",
            field=field,
            hint="Convert it, for example with `ogr2ogr -t_srs EPSG:4326 areas.geojson FILE`.",
        )
    _check_readable(field, path)
    return FileTable(field, path)


def sha256_at(location: str) -> str | None:
    """Return the hash of a codebook, given its `location`; None if it no longer exists or cannot be reached."""
    if not URL.match(location):
        return sha256_of(Path(location)) if Path(location).is_file() else None
    try:
        return relation_at("hierarchy", location).sha256()
    except InputError:
        return None


def published_location(location: str) -> str:
    """Return what may be published of a location: the name of a file without its folder, a table without its server; no query."""
    found = _INNER.fullmatch(location)
    if found is None:
        return Path(location).name
    if is_query(found["inner"]):
        return "a query"
    return found["inner"] if URL.match(location) else f"{Path(found['place']).name}::{found['inner']}"


def is_url(text: str) -> bool:
    """Return whether a text is a URL rather than a path."""
    return _ANY_URL.match(text) is not None


def _refuse_other_url(field: str, location: str) -> None:
    if found := _ANY_URL.match(location):
        raise InputError(
            f"{field} must be a file, or a table at postgresql://, got a location that begins with {found[1]}:.",
            field=field,
        )


def _path(field: str, file: str, base: Path) -> Path:
    path = (base / Path(file).expanduser()).absolute()
    try:
        path.is_file()
    except OSError as fault:
        raise InputError(f"{field}: cannot access {path} ({fault.strerror}).", field=field) from None
    return path


def _check_readable(field: str, path: Path) -> None:
    if not path.is_file():
        raise InputError(f"{field}: there is no file {path}.", field=field)
    if not os.access(path, os.R_OK):
        raise InputError(f"{field}: you must have permission to read {path}.", field=field)
