"""Public codebooks: every finest area with the areas that contain it. Errors name the column and the rule."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise

import polars as pl

from storage.errors import InputError
from storage.releases.terms import RELEASED_CODES
from tasks.ingest.tables import Table, check_columns, in_nfc, is_blank, opened, reader, rows_named, text_columns

MOST_CHILDREN = 2**20  # of one area: keeps products of fan-out and count inside 64 bits


@dataclass(frozen=True, slots=True)
class ListedCodes:
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

    @property
    def sha256(self) -> str:
        """The text that stands for the hash of a codebook."""
        return RELEASED_CODES

    def codebook(self) -> pl.DataFrame:
        """Return the codebook as it is known before the records are read: its levels, and no area."""
        return pl.DataFrame(schema=dict.fromkeys(self.levels, pl.String))


@dataclass(frozen=True, slots=True)
class Recode:
    """A public table of codes that have changed, with its columns of old and of new codes."""

    table: Table
    old: str
    new: str


def read_recode(recode: Recode, codebook: pl.DataFrame) -> pl.DataFrame:
    """Return each old code once, with the new code in its place: the columns old and new, text.

    Raises:
        InputError: the table cannot be read or lacks a column; a code is blank, or new and not in the codebook; or an old one has two new
            ones.
    """
    table, columns = recode.table, [recode.old, recode.new]
    with reader(table) as con, opened(con, table) as rows:
        check_columns(table, rows, columns)
        read: pl.DataFrame = con.sql(f"SELECT {text_columns(columns)} FROM {rows.scan(columns)}").pl()
    old, new = read.rename(dict(zip(columns, ("old", "new"), strict=True)))
    codes = pl.DataFrame([old, new]).unique()
    several = codes["old"].filter(codes["old"].is_duplicated())
    split = (
        "A record would be split by weights, and a part of a record is no record. Keep one of its rows; or take a codebook of larger areas,"
        " so that both are in one of them, and recode every code to these."
    )
    for column, at_fault, rule, hint in (
        (recode.old, is_blank(old), "must not be empty", ""),
        (
            recode.new,
            ~new.is_in(codebook.to_series(-1).implode()).fill_null(value=False),
            "must hold codes of the axis",
            "Delete rows for other areas: codes without a row stay. Of codes that changed twice, write the last one, since it is applied once.",
        ),
        (recode.old, old.is_in(several.implode()), "must have one new code for each old one", split),
    ):
        if at_fault.any():
            raise table.fault(f"column {column} {rule}; see row {rows_named(at_fault)}, not counting the header.", hint)
    return codes


def with_unlisted_area(codebook: pl.DataFrame, code: str, table: Table) -> pl.DataFrame:
    """Return the codebook with a public area of records whose code it lacks: its own area of that code, or a new one at every level.

    Raises:
        InputError: several areas have this code, or one above the finest level.
    """
    known = int((codebook.to_series(-1) == code).sum())
    if known > 1 or (not known and any(code in codebook[level] for level in codebook.columns)):
        field = f"{table.field.removesuffix('.table')}.unlisted"
        raise InputError(f"{field} must be a code of the finest level that one area has, or a new code.", field=field)
    new = pl.DataFrame({level: [code] for level in codebook.columns})
    return codebook if known else pl.concat([codebook, new]).sort(codebook.columns)


def read_codebook(
    table: Table, levels: Sequence[str], *, by_path: bool, not_all_of: frozenset[str] | None, own_area: bool = False
) -> pl.DataFrame:
    """Return the codebook: a row per finest area, a text column per level, coarse to fine, sorted by all columns.

    Args:
        levels: the columns of the table, coarse to fine.
        not_all_of: the confidential table's columns of codes. A table that has all of them is not a public codebook. None
            skips this check.
        by_path: whether the whole path of codes identifies an area; otherwise a code identifies it within its level.
        own_area: whether an area without a code at a coarser level is an area of its own there, with the code that it has
            at the next finer level.
    Raises:
        InputError: the table cannot be read, lacks a column, is empty, has a blank code, repeats a finest area, or puts
            an area under two parents.
    """
    with reader(table) as con:
        with opened(con, table) as rows:
            check_columns(table, rows, levels)
            if not_all_of is not None and {*map(in_nfc, not_all_of)} <= set(rows.names):
                raise table.fault(
                    f"{table.name} has the columns of the confidential table.",
                    "Give a public codebook of all areas. A codebook made from the records would reveal who is in them.",
                )
            codebook: pl.DataFrame = con.sql(f"SELECT {text_columns(levels)} FROM {rows.scan(levels)}").pl()
        with opened(con, table, as_written=True) as rows:
            _check_one_form(con.sql(f"SELECT {text_columns(levels)} FROM {rows.scan(levels)}").pl(), table)
    if codebook.is_empty():
        raise table.fault(f"{table.name} has no rows.")
    _check_no_blank(codebook[levels[-1]], table, is_finest=True)
    if own_area:
        codebook = _with_own_areas(codebook, table)
    for level in levels[:-1]:
        _check_no_blank(codebook[level], table, is_finest=False)
    finest = list(levels) if by_path else [levels[-1]]
    if codebook.select(finest).is_duplicated().any():
        raise _repeated(codebook, table, levels, finest)
    codebook = codebook.sort(levels)
    if codebook.height > MOST_CHILDREN:
        for depth, level in enumerate(levels):
            areas = codebook.select(levels[: depth + 1]).unique()
            if areas.group_by(levels[:depth] or pl.lit(0)).len()["len"].max() > MOST_CHILDREN:  # type: ignore[operator]
                raise table.fault(f"column {level} must have at most 2**20 areas in one area of the level above.")
    if not by_path:
        for above, level in pairwise(levels):
            pairs = codebook.select(above, level).unique()
            if not (twice := pairs.filter(pairs[level].is_duplicated()).sort(level, above)).is_empty():
                parents = " and ".join(twice.filter(pl.col(level) == twice[level][0])[above][:2])
                raise table.fault(
                    f"an area of column {level} lies under two areas of column {above}: {twice[level][0]} under {parents}.",
                    "Correct the codebook, or give one input column per level, so that the whole path identifies an area.",
                )
    return codebook


def _check_one_form(written: pl.DataFrame, table: Table) -> None:
    """Refuse a codebook that writes one code in two ways, with a letter and its accent as one character and as two."""
    for codes in written:
        forms = codes.drop_nulls().unique().str.normalize("NFC")
        if forms.is_duplicated().any():
            raise table.fault(
                f"column {codes.name} writes {forms.filter(forms.is_duplicated()).sort()[0]} in two ways, which look the same: a"
                " letter and its accent are one character in one row, and two in another.",
                "Write every code in one way, for example in NFC: unicodedata.normalize('NFC', code) in Python.",
            )


def _check_no_blank(codes: pl.Series, table: Table, *, is_finest: bool) -> None:
    """Refuse blank codes, by their rows."""
    blank = is_blank(codes)
    if rows := blank.sum():
        raise table.fault(
            f"column {codes.name} has a blank code in {rows:,} {'row' if rows == 1 else 'rows'}:"
            f" {rows_named(blank)}, not counting the header.",
            "Every row is an area and needs a code at the finest level. Delete rows that are empty. An area without children has its"
            f" own code at {codes.name} too, and none at the levels between: B,,B in place of B,B,, with blank: own_area beside table."
            if is_finest
            else f"Fill the codes in; or, if such an area stands alone at {codes.name}, write blank: own_area beside table.",
        )


def _with_own_areas(codebook: pl.DataFrame, table: Table) -> pl.DataFrame:
    """Return the codebook in which a blank code is that of the next finer level, where no other area has it.

    Raises:
        InputError: an area would get the code of another one.
    """
    finer, *coarser = reversed(codebook.columns)
    for level in coarser:
        blank, own = is_blank(codebook[level]), codebook[finer]
        if own.filter(blank).is_in(codebook[level].filter(~blank).implode()).any():
            raise table.fault(
                f"column {level} has a blank code, and another area there has the code that {finer} gives it.",
                f"Fill in the blank codes of column {level}.",
            )
        codebook = codebook.with_columns(pl.when(blank).then(own).otherwise(codebook[level]).alias(level))
        finer = level
    return codebook


def _repeated(codebook: pl.DataFrame, table: Table, levels: Sequence[str], finest: Sequence[str]) -> InputError:
    """Return the refusal of a codebook in which the finest level repeats a code, or a path; `finest` are the columns of these."""
    area = "/".join(codebook.filter(codebook.select(finest).is_duplicated()).sort(levels).select(finest).row(0))
    if not codebook[levels[0]].is_duplicated().any() and 2 * codebook[levels[-1]].n_unique() <= codebook.height:
        field = f"{table.field.removesuffix('.table')}.levels"
        return InputError(
            f"{field} must go from coarse to fine, and looks reversed: column {levels[0]} has another code in every row, and"
            f" column {levels[-1]} repeats {area}.",
            field=field,
            hint=f"Write levels: [{', '.join(reversed(levels))}].",
        )
    return table.fault(
        f"column {levels[-1]} repeats an area; a codebook must have one row per finest area.",
        f"{area} has several rows. Keep one of them; or, to tell areas under different parents apart by the whole path, give one"
        " input column per level.",
    )


def down_to(codebook: pl.DataFrame, finest: str) -> pl.DataFrame:
    """Return the codebook of the levels down to `finest`, with one row per area of `finest`."""
    levels = codebook.columns[: codebook.columns.index(finest) + 1]
    return codebook.select(levels).unique(maintain_order=True)
