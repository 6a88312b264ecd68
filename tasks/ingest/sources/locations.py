"""Where a table is: from the text in a spec to the table, and to what may be published of the text."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from storage.errors import InputError
from tasks.ingest.sources.csv_files import Dialect
from tasks.ingest.sources.databases import URL, is_query, relation_at
from tasks.ingest.sources.files import FileTable
from tasks.ingest.sources.matrices import Matrix
from tasks.ingest.sources.several import ENDINGS, files_at, is_several
from tasks.ingest.sources.sheets import Sheet
from tasks.ingest.sources.sqlite import SQLITE_ENDINGS, SqliteTable
from tasks.ingest.tables import Table

_ANY_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")

# What a user or a password looks like. A file may have such a name, so only what is no file is refused for it.
_SECRET = re.compile(r"(?:pass|pwd|user|uid|secret|token)\w*\s*=|@.*::|:.*@|.://", re.IGNORECASE | re.DOTALL)

_INNER = re.compile(r"(?P<place>(?:\w+://(?:\[[^\]]*\])?)?.*?)::(?P<inner>.*)", re.DOTALL)
_TABLES = (*ENDINGS, ".xlsx")
_OF_INNER = (".duckdb", ".xlsx", *SQLITE_ENDINGS)
_SHAPE_FILES = (".geojson", ".parquet", ".gpkg")
_CSV = (".csv", ".csv.gz", ".csv.zst")
_SHEET = "Save it as .xlsx, or the sheet as CSV (UTF-8), with codes as text: a spreadsheet drops their leading zeros."
_PACKAGE = (
    "Save it as .parquet or .csv with the program that wrote it, with codes as text; a weight is no count of records."
)
_SHAPES = "Export its table of attributes as CSV: only the codes of the areas are read, not their shapes."
_CONVERT = {
    **dict.fromkeys((".xls", ".ods", ".xlsb"), _SHEET),
    **dict.fromkeys((".geojson", ".shp", ".dbf", ".kml"), _SHAPES),
    **{ending: f"Name the table inside of it: file{ending}::table." for ending in (".duckdb", *SQLITE_ENDINGS)},
    ".tsv": 'Give it a name that ends in .csv, and write csv: {separator: "\\t"} beside the key that names it.',
    **dict.fromkeys((".txt", ".dat"), "If it is CSV, give it a name that ends in .csv."),
    **dict.fromkeys((".zip", ".7z", ".tar", ".tgz", ".bz2", ".xz", ".gz", ".zst"), "Unpack it."),
    **dict.fromkeys((".sav", ".por", ".dta", ".sas7bdat", ".xpt", ".rds", ".rdata"), _PACKAGE),
    **dict.fromkeys((".arrow", ".feather", ".ipc", ".orc", ".avro"), "Save it as .parquet."),
    ".json": "If it has an object in each line, give it a name that ends in .ndjson; otherwise save it as CSV.",
}


# which locations something may have, in words that follow "must be", and what to do with a database
_LOGIN = "User and password come from PGUSER and PGPASSWORD, or PGPASSFILE or PGSERVICE, in the environment."
_OF_TABLE = (
    "a file, or a table at postgresql://",
    f"Name a database as postgresql://HOST:PORT/DATABASE::SCHEMA.TABLE. {_LOGIN}",
)
_OF_MATRIX = (
    f"a file that ends in {', '.join(_CSV)} or .omx::<matrix>",
    "Matrices come from files only. A table of a database with a row per pair of zones is named by input.table.",
)
_OF_SHAPES = (
    f"a file that ends in {', '.join(_SHAPE_FILES[:-1])} or {_SHAPE_FILES[-1]}",
    "Boundaries come from files only. Export them, for example with `ogr2ogr -t_srs EPSG:4326 areas.geojson`.",
)


def table_at(field: str, location: str | Sequence[str], base: Path, csv: Dialect | None = None) -> Table:
    """Return the table at a location: files relative to `base`, or a table or a query of a database.

    Files are `file.csv`, `file.csv.gz`, `file.csv.zst`, `file.parquet`, `file.ndjson`, a folder, a pattern or a list of these, `file.duckdb::table`, `file.sqlite::table` (also .sqlite3, .db and
    .gpkg), and `file.xlsx` or `file.xlsx::sheet`.

    Raises:
        InputError: the file does not exist, cannot be read, or has another ending; or the URL is of another kind, or holds
            credentials.
    """
    several = not isinstance(location, str) or (
        "::" not in location and not is_url(location) and is_several(location, base)
    )
    if several:
        places = [location] if isinstance(location, str) else location
        for place in places:
            _path(field, place, place, base, _OF_TABLE)
        table: Table = files_at(field, places, base, csv or Dialect())
    else:
        table = _one_at(field, str(location), base, csv or Dialect())
    if csv and not any(_ends_in(path, _CSV) for path in table.paths):
        key = f"{field.rpartition('.')[0]}.csv"
        raise InputError(f"{key} must be left out, since {field} names no CSV file.", field=key)
    return table


def _one_at(field: str, location: str, base: Path, csv: Dialect) -> Table:
    if URL.match(location):
        return relation_at(field, location)
    file, _, inner = location.partition("::")
    path = _path(field, file, location, base, _OF_TABLE)
    if fault := fault_of_matrix(location):
        raise InputError(
            f"{field} {fault}", field=field, hint="With a matrix, leave out origin, destination, count and unit."
        )
    if not _ends_in(path, _OF_INNER if inner else _TABLES):
        raise InputError(
            f"{field} must end in {', '.join(_TABLES)}, .duckdb::<table> or .sqlite::<table>, or begin with postgresql://, got"
            f" {path.name}.",
            field=field,
            hint=_CONVERT.get(path.suffix.lower(), ""),
        )
    _check_readable(field, path)
    kind = Sheet if _ends_in(path, ".xlsx") else SqliteTable if _ends_in(path, SQLITE_ENDINGS) else FileTable
    return kind(field, path, inner or None, csv=csv)


def matrix_at(field: str, location: str, base: Path, zones: str | None = None, csv: Dialect | None = None) -> Matrix:
    """Return the matrix at `file.omx::matrix` or a CSV file, packed or not, relative to `base`.

    Args:
        zones: the lookup that names the zones of an OMX file.
        csv: how CSV is written; None for OMX.
    Raises:
        InputError: the file does not exist, cannot be read, or has another ending; or zones are named for CSV, or csv for OMX.
    """
    file, _, inner = location.partition("::")
    path = _path(field, file, location, base, _OF_MATRIX)
    if not _ends_in(path, ".omx" if inner else _CSV):
        raise InputError(
            f"{field} must end in {', '.join(_CSV)} or .omx::<matrix>, got {path.name}.",
            field=field,
            hint="Name the matrix inside of it: file.omx::matrix." if _ends_in(path, ".omx") else "",
        )
    if zones and not inner:
        raise InputError(
            "input.zones must be left out for a CSV matrix: its first line and column name the zones.",
            field="input.zones",
        )
    if csv and inner:
        raise InputError("input.csv must be left out, since input.matrix names no CSV file.", field="input.csv")
    _check_readable(field, path)
    return Matrix(field, path, inner or None, zones, csv=csv or Dialect())


def shapes_at(field: str, location: str, base: Path) -> FileTable:
    """Return the file of shapes at `file.geojson`, `file.parquet` or `file.gpkg`, relative to `base`.

    Raises:
        InputError: the file does not exist, cannot be read, or has another ending.
    """
    path = _path(field, location, location, base, _OF_SHAPES)
    if not _ends_in(path, _SHAPE_FILES):
        raise InputError(
            f"{field} must end in {', '.join(_SHAPE_FILES[:-1])} or {_SHAPE_FILES[-1]}, got {path.name}.",
            field=field,
            hint="Convert it, for example with `ogr2ogr -t_srs EPSG:4326 areas.geojson FILE`.",
        )
    _check_readable(field, path)
    return FileTable(field, path)


def names_a_table(text: str) -> bool:
    """Return whether a text names a file that may be a table, by its ending alone."""
    file, _, inner = text.partition("::")
    return file.lower().endswith(_OF_INNER if inner else _TABLES)


def fault_of_matrix(location: str) -> str:
    """Return which rule a location of a table breaks, in words that follow its key, if it is an OMX file; empty if none."""
    if not location.partition("::")[0].lower().endswith(".omx"):
        return ""
    return "must be a table, and an OMX file holds matrices: name one by input.matrix (file.omx::matrix) in place of input.table."


def sha256_at(location: str) -> str | None:
    """Return the hash of a public table, given its `location`; None if it no longer exists or cannot be reached."""
    at = shapes_at if not URL.match(location) and location.lower().endswith((".geojson", ".gpkg")) else table_at
    try:
        return at("hierarchy", location, Path()).sha256()
    except InputError:
        return None


def published_location(location: str) -> str:
    """Return what may be published of a location: the name of a file without its folder, a table without its server; no query."""
    match = _INNER.fullmatch(location)
    if match is None:
        return Path(location).name
    if is_query(match["inner"]):
        return "a query"
    return match["inner"] if URL.match(location) else f"{Path(match['place']).name}::{match['inner']}"


def is_url(text: str) -> bool:
    """Return whether a text is a URL rather than a path."""
    return _ANY_URL.match(text) is not None


def may_hold_credentials(text: str) -> bool:
    """Return whether a text may hold a user or a password, so that no message may repeat it."""
    return is_url(text) or _SECRET.search(text) is not None


def _ends_in(path: Path, endings: str | tuple[str, ...]) -> bool:
    """Return whether the name of a file has an ending, in upper or lower case."""
    return path.name.lower().endswith(endings)


def _path(field: str, file: str, location: str, base: Path, allowed: tuple[str, str]) -> Path:
    """Return the path of a file; refuse a URL, and what is no file and may hold credentials, without repeating it."""
    words, of_database = allowed
    if url := _ANY_URL.match(location):
        raise InputError(
            f"{field} must be {words}, got a location that begins with {url[1]}:.",
            field=field,
            hint=of_database if URL.match(location) else "",
        )
    path = (base / Path(file).expanduser()).absolute()
    is_file, failure = False, None
    try:
        is_file = path.exists()
    except OSError as fault:
        failure = fault.strerror or "no reason given"
    if not is_file and may_hold_credentials(location):
        raise InputError(
            f"{field} must be {words}, got a location that seems to hold a user or a password.",
            field=field,
            hint=of_database,
        )
    if failure:
        raise InputError(f"{field}: cannot access {path} ({failure}).", field=field)
    return path


def _check_readable(field: str, path: Path) -> None:
    if not path.is_file():
        raise InputError(f"{field}: there is no file {path}.", field=field)
    if not os.access(path, os.R_OK):
        raise InputError(f"{field}: you must have permission to read {path}.", field=field)
