"""The names of areas, from columns of a public codebook or from a public table of codes and names."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import duckdb
import polars as pl

from storage.errors import InputError
from tasks.atlas.names import NAME, code_columns
from tasks.ingest.tables import Table, check_columns, identifier, is_blank, opened, text_columns

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
        labels: where the names are.
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
    found = {}
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
            found[level] = areas.sort(path).rename(dict(zip([*path, _NAME], [*code_columns(level), NAME], strict=True)))
    if not found:
        raise InputError(
            f"{labels.field}: no code of {labels.table.name if labels.table else 'the codebook'} that has a name is a code of the axis.",
            field=labels.field,
            hint="The usual cause is that a spreadsheet dropped the leading zeros of codes.",
        )
    return found


def _of_codebook(labels: Labels, table: Table, levels: Sequence[str], *, own_area: bool) -> dict[int, pl.DataFrame]:
    """Return the names in columns of the codebook, of released levels: the codes of each path, and the name."""
    wanted = {level: labels.columns[level] for level in levels if level in labels.columns}
    with duckdb.connect() as con, opened(con, table) as rows:
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
    with duckdb.connect() as con, opened(con, table) as rows:
        has_levels = not only or _LEVEL in rows.names
        wanted = [*([_LEVEL] if has_levels else []), _CODE, NAME]
        check_columns(table, rows, wanted)
        read: pl.DataFrame = con.sql(f"SELECT {text_columns(wanted)} FROM {rows.scan(wanted)}").pl()
    if not has_levels:
        read = read.select(pl.lit(only).alias(_LEVEL), _CODE, NAME)
    found = {
        number: _named(named.select(pl.col(_CODE).alias(level)), named[NAME])
        for number, level in enumerate(levels, 1)
        if not (named := read.filter(pl.col(_LEVEL) == level)).is_empty()
    }
    if not found and not read.is_empty():
        subject = (
            f"column {_LEVEL} of {table.name}" if has_levels else f"{table.name} names areas of level {only}, and so"
        )
        raise InputError(
            f"{labels.field}: {subject} names none of the released levels.",
            field=labels.field,
            hint=f"These are {', '.join(levels)}. A column {_LEVEL} says of which of them a row's code is.",
        )
    return found


def _named(codes: pl.DataFrame, names: pl.Series) -> pl.DataFrame:
    """Return the codes that have a name, each once with it; blanks around and inside names are single ones."""
    clean = names.str.replace_all(r"\s+", " ").str.strip_chars()
    return codes.with_columns(clean.alias(_NAME)).filter(clean.is_not_null() & (clean != "")).unique()
