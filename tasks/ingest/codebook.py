"""Public codebooks: every finest area with the areas that contain it. Errors name the column and the rule."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise

import duckdb
import polars as pl

from storage.errors import InputError
from tasks.ingest.tables import Table, check_columns, column_names, identifier, opened

MOST_CHILDREN = 2**20  # of one area: keeps products of fan-out and count inside 64 bits


@dataclass(frozen=True, slots=True)
class Values:
    """The codes of a feature that the spec itself lists: a codebook with one level and without a file.

    Attributes:
        feature: the name of the feature and of its level.
        codes: the listed codes, or a number n for the codes `0` to n − 1, as text.
    """

    feature: str
    codes: int | tuple[str, ...]

    def codebook(self) -> pl.DataFrame:
        """Return the codebook that `read_codebook` would return for a table of these codes."""
        return pl.DataFrame({self.feature: self._sorted()}, schema={self.feature: pl.String}).sort(self.feature)

    @property
    def sha256(self) -> str:
        """The sha256 of the sorted codes as canonical JSON, in place of that of a codebook's file."""
        return sha256(json.dumps(self._sorted(), ensure_ascii=False, separators=(",", ":")).encode()).hexdigest()

    def _sorted(self) -> list[str]:
        codes = map(str, range(self.codes)) if isinstance(self.codes, int) else self.codes
        return sorted(codes)


@dataclass(frozen=True, slots=True)
class Unlisted:
    """Codes without a codebook: those in the records, which are as confidential as the records.

    Attributes:
        levels: the names of the levels, coarse to fine.
    """

    levels: tuple[str, ...]

    def codebook(self) -> pl.DataFrame:
        """Return the codebook as it is known before the records are read: its levels, and no area."""
        return pl.DataFrame(schema=dict.fromkeys(self.levels, pl.String))


def read_codebook(
    table: Table, levels: Sequence[str], *, by_path: bool, not_all_of: frozenset[str] | None
) -> pl.DataFrame:
    """Return the codebook: a row per finest area, a text column per level, coarse to fine, sorted by all columns.

    Args:
        table: the codebook.
        levels: its columns, coarse to fine.
        not_all_of: the confidential table's columns of codes. A table that has all of them is not a public codebook. None
            skips this check.
        by_path: whether the whole path of codes identifies an area; otherwise a code identifies it within its level.
    Raises:
        InputError: the table cannot be read, lacks a column, is empty, has a blank code, repeats a finest area, or puts
            an area under two parents.
    """
    with duckdb.connect() as con, opened(con, table) as rows:
        check_columns(con, table, rows, levels)
        if not_all_of is not None and not_all_of <= set(column_names(con, rows)):
            raise InputError(
                f"{table.field}: {table.path.name} has the columns of the confidential table.",
                field=table.field,
                hint="Give a public codebook of all areas. A codebook made from the records would reveal who is in them.",
            )
        columns = ", ".join(f"{identifier(level)}::VARCHAR AS {identifier(level)}" for level in levels)
        codebook: pl.DataFrame = con.sql(f"SELECT {columns} FROM {rows}").pl()
    if codebook.is_empty():
        raise InputError(f"{table.field}: {table.path.name} has no rows.", field=table.field)
    for level in levels:
        if (codebook[level].is_null() | (codebook[level].str.strip_chars() == "")).any():
            raise InputError(f"{table.field}: column {level} has a blank code.", field=table.field)
    finest = list(levels) if by_path else [levels[-1]]
    if codebook.select(finest).is_duplicated().any():
        raise InputError(
            f"{table.field}: column {levels[-1]} repeats an area; a codebook must have one row per finest area.",
            field=table.field,
        )
    codebook = codebook.sort(levels)
    if codebook.height > MOST_CHILDREN:
        for depth, level in enumerate(levels):
            areas = codebook.select(levels[: depth + 1]).unique()
            if areas.group_by(levels[:depth] or pl.lit(0)).len()["len"].max() > MOST_CHILDREN:  # type: ignore[operator]
                raise InputError(
                    f"{table.field}: column {level} must have at most 2**20 areas in one area of the level above.",
                    field=table.field,
                )
    if not by_path:
        for above, level in pairwise(levels):
            if codebook.select(above, level).unique()[level].is_duplicated().any():
                raise InputError(
                    f"{table.field}: an area of column {level} lies under two areas of column {above}.",
                    field=table.field,
                    hint="Correct the codebook, or give one input column per level, so that the whole path identifies an area.",
                )
    return codebook


def down_to(codebook: pl.DataFrame, finest: str) -> pl.DataFrame:
    """Return the codebook of the levels down to `finest`, with one row per area of `finest`."""
    levels = codebook.columns[: codebook.columns.index(finest) + 1]
    return codebook.select(levels).unique(maintain_order=True)
