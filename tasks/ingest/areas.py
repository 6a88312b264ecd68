"""The names and shapes of areas, from public files: matched to the codes of an axis, and put together for coarser levels."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import shapely

from storage.errors import InputError
from tasks.ingest.shape_files import Feature, polygon, polygons, read_features
from tasks.ingest.sources.files import FileTable
from tasks.ingest.tables import Table, check_columns, identifier, is_blank, opened, reader, text_columns
from tasks.words.areas import GEOMETRY, NAME, code_columns

_CODE, _LEVEL = "code", "level"
_NAME = "\0name"  # no column of codes has such a name


@dataclass(frozen=True, slots=True)
class Labels:
    """Where the names of an axis' areas are.

    Attributes:
        field: the spec's key that names them, for errors.
        columns: by level, the column of the codebook that holds its names.
        table: a table with the columns `code` and `name`, and `level` where the axis has several levels; None where the codebook
            has the names.
        codes_of: the level whose codes a table without a column `level` names; empty for the only level, and where several levels
            need that column.
    """

    field: str
    columns: Mapping[str, str]
    table: Table | None = None
    codes_of: str = ""


def read_names(
    labels: Labels, codebook: pl.DataFrame, table: Table | None, *, own_area: bool = False
) -> dict[int, pl.DataFrame]:
    """Return the names of areas by axis level, as in `Names`.

    Args:
        codebook: all areas, as `read_codebook` returns them, down to the finest released level.
        table: the codebook's table; None where the spec lists the codes.
        own_area: as for `read_codebook`: an area without a code at a coarser level has the name of the next finer level there.
    Raises:
        InputError: a table cannot be read, lacks a column, names no area, or gives an area two names.
    """
    levels = codebook.columns
    if labels.table is not None:
        given = _of_table(labels, labels.table, levels)
    elif table is not None:
        given = _of_codebook(labels, table, levels, own_area=own_area)
    else:
        given = {}
    by_level = {}
    for level, names in sorted(given.items()):
        path = levels[:level]
        areas = codebook.select(path).unique().join(names, on=names.columns[:-1], how="inner").unique()
        if areas.select(path).is_duplicated().any():
            area = areas.filter(areas.select(path).is_duplicated()).select(path).sort(path).row(0)
            written = ",".join(f"{name}={code}" for name, code in zip(path, area, strict=True))
            raise InputError(
                f"{labels.field}: the area {written} has two names.",
                field=labels.field,
                hint="Give every area one name, spelled alike in every row.",
            )
        if not areas.is_empty():
            by_level[level] = areas.sort(path).rename(
                dict(zip([*path, _NAME], [*code_columns(level), NAME], strict=True))
            )
    if not by_level:
        raise InputError(
            f"{labels.field}: no code of {labels.table.name if labels.table else 'the codebook'} that has a name is a code of the axis.",
            field=labels.field,
            hint="The usual cause is that a spreadsheet dropped the leading zeros of codes.",
        )
    return by_level


def _of_codebook(labels: Labels, table: Table, levels: Sequence[str], *, own_area: bool) -> dict[int, pl.DataFrame]:
    """Return the names in columns of the codebook, of released levels: the codes of each path, and the name."""
    wanted = {level: labels.columns[level] for level in levels if level in labels.columns}
    with reader(table) as con, opened(con, table) as rows:
        check_columns(replace(table, field=labels.field), rows, list(labels.columns.values()), levels)
        columns = [
            f"{identifier(column)}::VARCHAR AS {identifier(f'{number}')}"
            for number, column in enumerate([*levels, *wanted.values()])
        ]
        read: pl.DataFrame = con.sql(f"SELECT {', '.join(columns)} FROM {rows.scan([*levels, *wanted.values()])}").pl()
    codes = read[:, : len(levels)].rename({str(number): level for number, level in enumerate(levels)})
    names = dict(zip(wanted, read[:, len(levels) :].iter_columns(), strict=True))
    if own_area:
        codes, names = _with_own(codes, names)
    return {
        levels.index(level) + 1: _named(codes.select(levels[: levels.index(level) + 1]), name)
        for level, name in names.items()
    }


def _with_own(codes: pl.DataFrame, names: dict[str, pl.Series]) -> tuple[pl.DataFrame, dict[str, pl.Series]]:
    """Return codes and names in which an area without a code at a level has the code and the name of the next finer level."""
    finer, *coarser = reversed(codes.columns)
    for level in coarser:
        blank = is_blank(codes[level])
        codes = codes.with_columns(pl.when(blank).then(codes[finer]).otherwise(codes[level]).alias(level))
        if level in names and finer in names:
            names[level] = names[finer].zip_with(blank, names[level])
        finer = level
    return codes, names


def _of_table(labels: Labels, table: Table, levels: Sequence[str]) -> dict[int, pl.DataFrame]:
    """Return the names in a table of codes and names, by axis level: the code, and the name."""
    only = labels.codes_of or (levels[0] if len(levels) == 1 else "")
    with reader(table) as con, opened(con, table) as rows:
        has_levels = not only or _LEVEL in rows.names
        wanted = [*([_LEVEL] if has_levels else []), _CODE, NAME]
        check_columns(table, rows, wanted)
        read: pl.DataFrame = con.sql(f"SELECT {text_columns(wanted)} FROM {rows.scan(wanted)}").pl()
    if not has_levels:
        read = read.select(pl.lit(only).alias(_LEVEL), _CODE, NAME)
    by_level = {
        number: _named(named.select(pl.col(_CODE).alias(level)), named[NAME])
        for number, level in enumerate(levels, 1)
        if not (named := read.filter(pl.col(_LEVEL) == level)).is_empty()
    }
    if not by_level and not read.is_empty():
        subject = (
            f"column {_LEVEL} of {table.name}" if has_levels else f"{table.name} names areas of level {only}, and so"
        )
        raise InputError(
            f"{labels.field}: {subject} names none of the released levels.",
            field=labels.field,
            hint=f"These are {', '.join(levels)}. A column {_LEVEL} says of which of them a row's code is.",
        )
    return by_level


def _named(codes: pl.DataFrame, names: pl.Series) -> pl.DataFrame:
    """Return the codes that have a name, each once with it; blanks around and inside names are single ones."""
    clean = names.str.replace_all(r"\s+", " ").str.strip_chars()
    return codes.with_columns(clean.alias(_NAME)).filter(clean.is_not_null() & (clean != "")).unique()


CODE = "code"  # the property that holds codes, where a spec says nothing
ANY_LEVEL = ""  # of a file whose level is the one that has its codes

_ZEROS = "The usual causes are leading zeros that were dropped, and codes in another property: name it in {}.code."


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Where the shapes of an axis' areas are.

    Attributes:
        field: the spec's key that names them, for errors.
        files: by level, the file; by `ANY_LEVEL` one whose level is to be found.
        code: the property, or the column, that holds the codes.
    """

    field: str
    files: Mapping[str, FileTable]
    code: str = CODE


def read_shapes(
    boundaries: Boundaries,
    codebook: pl.DataFrame,
    released: int,
    read: Callable[[FileTable, str], list[Feature]] = read_features,
) -> dict[int, pl.DataFrame]:
    """Return the shapes of areas by axis level, as in `Shapes`.

    A level without a file has what its areas' parts cover, as far as these have shapes. Codes that are none of the axis are
    passed over.

    Args:
        codebook: all areas, as `read_codebook` returns them, also those finer than any that is released.
        released: the axis level down to which shapes are asked for.
        read: reads a file; both ends of trips may share what it has read.
    Raises:
        InputError: a file cannot be read, has none of the codes, or a shape that is no polygon in degrees.
    """
    levels, of_file = codebook.columns, {}
    for name, table in boundaries.files.items():
        features = read(table, boundaries.code)
        level = _level_of(features, codebook) if name == ANY_LEVEL else levels.index(name) + 1
        of_file[level] = _shapes_at(boundaries, table, features, codebook.select(levels[:level]).unique())
    by_level: dict[int, pl.DataFrame] = {}
    for level in range(max(of_file), 0, -1):
        by_level[level] = of_file[level] if level in of_file else _together(by_level[level + 1])
    return {level: areas for level, areas in sorted(by_level.items()) if level <= released}


def _level_of(features: Sequence[Feature], codebook: pl.DataFrame) -> int:
    """Return the level most of whose codes a file has; of several, the finest."""
    codes = {feature.code for feature in features}
    shared = [len(codes.intersection(codebook[level].unique())) for level in codebook.columns]
    return max(range(1, len(shared) + 1), key=lambda level: (shared[level - 1], level))


def _shapes_at(
    boundaries: Boundaries, table: FileTable, features: Sequence[Feature], areas: pl.DataFrame
) -> pl.DataFrame:
    """Return the shapes of the areas of a level, whose codes are the last column of `areas`."""
    level = areas.columns[-1]
    known = set(areas[level])
    kept = [feature for feature in features if feature.code in known]
    if not kept:
        raise table.fault(
            f"no code of {table.path.name} in {boundaries.code} is a code of the axis.",
            _ZEROS.format(boundaries.field.partition(".boundaries")[0]),
        )
    shapes = [(of.code, shape) for of, shape in zip(kept, polygons(table, kept), strict=True) if shape is not None]
    if not shapes:
        raise table.fault(f"no area of {table.path.name} has a shape.")
    by_code = _unions(shapes)
    if areas.filter(pl.col(level).is_in(by_code.keys()))[level].is_duplicated().any():
        raise table.fault(
            f"the codes of level {level} must differ to have shapes; one is that of two areas.",
            "Give areas codes of their own in the codebook, such as those of the areas above and their own together.",
        )
    return _sorted(areas.rows(), lambda path: by_code.get(path[-1]))


def _together(finer: pl.DataFrame) -> pl.DataFrame:
    """Return what the areas of a level cover, from those of the next finer one."""
    by_path = _unions((tuple(codes[:-1]), shapely.from_wkb(shape)) for *codes, shape in finer.iter_rows())
    return _sorted(list(by_path), by_path.get)


def _unions(shapes: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return what the shapes of each key cover together."""
    parts: dict[Any, list[Any]] = {}
    for key, shape in shapes:
        parts.setdefault(key, []).append(shape)
    return {key: of[0] if len(of) == 1 else polygon(shapely.union_all(of)) for key, of in parts.items()}


def _sorted(paths: Sequence[tuple[str, ...]], shape_of: Callable[[tuple[str, ...]], Any]) -> pl.DataFrame:
    """Return the areas that have a shape as a table, sorted by their codes."""
    rows = [(*path, shape) for path in sorted(paths) if (shape := shape_of(path)) is not None]
    columns = {name: [row[place] for row in rows] for place, name in enumerate(code_columns(len(paths[0])))}
    wkb = shapely.to_wkb([row[-1] for row in rows])
    return pl.DataFrame({**columns, GEOMETRY: pl.Series(list(wkb), dtype=pl.Binary)})
