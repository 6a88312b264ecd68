"""Checks the confidential table, bounds contributions, replaces codes by area numbers, and sums the records into the vault. Shows no value."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from random import SystemRandom
from typing import NamedTuple

import numpy as np
import polars as pl

from storage.database.connections import Connection
from storage.errors import InputError
from storage.machine.caller import tell_caller
from tasks.ingest.areas import Boundaries, Labels
from tasks.ingest.codebook import ListedCodes, Recode, Unlisted, down_to
from tasks.ingest.tables import Table, TableRows, check_columns, identifier, opened
from tasks.ingest.takes import EITHER, Take
from tasks.tree.axis import IntArray, axis_from_codebook
from tasks.tree.ordered import OrderedAxis
from tasks.tree.true_tree import LARGEST_TOTAL


def keep_within(units: IntArray, places: IntArray, counts: IntArray, max_records: int, *, distinct: bool) -> IntArray:
    """Return how many records of each row are kept.

    With `distinct`, one of a unit's records in each place is kept, each with the same probability. Then, if a unit still
    has more than `max_records` records, `max_records` of them are kept, every set of this size with the same probability.
    The records kept of a unit depend on that unit alone.

    Args:
        units: int64, shape (rows,), ascending: the number of the row's unit. Confidential.
        places: int64, shape (rows,), ascending within each unit: the cell, at the level at which records are promised
            distinct.
        counts: int64, shape (rows,), records, > 0.
        max_records: >= 1.
    Returns:
        int64, shape (rows,), from 0 to `counts`.
    Raises:
        OSError: the operating system provides no entropy.
    """
    kept = counts.copy()
    if distinct:
        for rows in _runs(units, places):
            kept[rows] = _draw(kept[rows], 1)
    for rows in _runs(units):
        kept[rows] = _draw(kept[rows], max_records)
    return kept


def _runs(*keys: IntArray) -> list[slice]:
    """Return the slices of consecutive rows with equal keys."""
    changes = np.zeros(max(len(keys[0]) - 1, 0), dtype=bool)
    for key in keys:
        changes |= key[1:] != key[:-1]
    edges = [0, *(np.flatnonzero(changes) + 1).tolist(), len(keys[0])]
    return [slice(start, stop) for start, stop in pairwise(edges) if stop > start]


def _draw(counts: IntArray, most: int) -> IntArray:
    """Return the counts of `most` records drawn without replacement; all counts if there are at most `most` records."""
    total = int(counts.sum())
    if total <= most:
        return counts
    drawn = SystemRandom().sample(range(total), most)
    row = np.searchsorted(np.cumsum(counts), drawn, side="right")
    return np.bincount(row, minlength=len(counts)).astype(np.int64)


class RowRule(NamedTuple):
    """A rule for the rows of the confidential table.

    Attributes:
        broken: the SQL of whether a row breaks it.
        key: the spec's key that the refusal names.
        text: what the refusal says: the column and the rule.
        hint: what to do next; empty where the text says it.
    """

    broken: str
    key: str
    text: str
    hint: str = ""


_INTEGER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?")  # as SQL names types of whole numbers

# counts whose thousands are set apart, and what is a number at all
_MARK = r"[,_’\x27\p{Zs}]"
_GROUPED = rf"[+]?[0-9]{{1,3}}({_MARK}[0-9]{{2,3}})*{_MARK}[0-9]{{3}}([.,][0-9]*)?"
_GROUPED += r"|[+]?[0-9]{1,3}([.][0-9]{3})+,[0-9]*|[+]?[0-9]{1,3}([.][0-9]{3}){2,}"
_THOUSAND = "[+]?[0-9]{1,3}[.]000"  # or a number with a fraction of 0
_NUMBER = "[+-]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][+-]?[0-9]+)?|[+-]?(inf|infinity|nan)"
_NO_GROUPS = "It has thousands separators, as in 1,234: write numbers as digits alone, as in 1234."
_EITHER = (
    "A number such as 1.000 may be 1 or 1000. Where points set thousands apart, write it without them. Where they are before a fraction,"
    ' say so beside the key that names the file, with csv: {decimal: "."}.'
)
_NO_TEXTS = (
    "It has texts in place of numbers, such as * or <5 where counts are suppressed. They cannot be read as 0, which would be false:"
    " give the table from before its counts were suppressed. The noise protects them here."
)
_NO_RECORDS = (
    "Weights and modelled trips are no counts of records: an answer would move a count by its whole weight, and the noise hides one"
    " record. Leave input.count out to count answers, and weight the released counts by public factors:"
    " docs/how-to/shape-your-table.md#survey-weights."
)


@dataclass(frozen=True, slots=True)
class AxisSource:
    """The columns and the codes of an axis.

    Attributes:
        field: the spec's key that names its columns, for errors.
        columns: the columns of the confidential table: one with finest codes, or one per level.
        codebook: the public table, or the codes that the spec itself lists, or neither.
        levels: the codebook's columns, coarse to fine.
        finest: the level down to which the axis is released.
        own_area: whether an area without a code at a coarser level of the codebook is an area of its own there.
        labels: where the names of its areas are; None where they have none.
        boundaries: where their shapes are; None where they have none.
        take: how its codes are taken from its only column; None where its columns hold them.
        unlisted: the code of the area of records whose code is blank or not in the codebook; None where they are refused.
        recode: where the new codes of old ones are; None where no code has changed.
    """

    name: str
    field: str
    columns: tuple[str, ...]
    codebook: Table | ListedCodes | OrderedAxis | Unlisted
    levels: tuple[str, ...]
    finest: str
    own_area: bool = False
    labels: Labels | None = None
    boundaries: Boundaries | None = None
    take: Take | None = None
    unlisted: str | None = None
    recode: Recode | None = None


@dataclass(frozen=True, slots=True, eq=False)
class End:
    """One axis of the table, with all its areas.

    Attributes:
        codebook: every finest area, as `read_codebook` or `codes_of_records` returns it.
        promised: the axis level (0 for everything) at which a unit's records are promised distinct; 0 without a promise.
        listed_by: the spec's key that lists its codes; empty where a table lists them.
        recoded: the old codes and the new ones, as `read_recode` returns them; None where no code has changed.
    """

    axis: AxisSource
    codebook: pl.DataFrame
    promised: int = 0
    listed_by: str = ""
    recoded: pl.DataFrame | None = None

    @property
    def name(self) -> str:
        """The name of the axis."""
        return self.axis.name

    @property
    def released_codebook(self) -> pl.DataFrame:
        """The codebook down to the finest released level."""
        return down_to(self.codebook, self.axis.finest)

    @property
    def own_codes(self) -> list[str]:
        """The codes of the finest level without that of records whose code is not listed, whose name is nobody's form of a code."""
        return [code for code in self.codebook.to_series(-1) if code != self.axis.unlisted]

    def codes(self, rows: TableRows) -> list[str]:
        """Return the SQL of the codes of a row of the table `confidential`, in the order of the levels that they are of.

        Midnight is read as its day, and has an hour where it is of a time.
        """
        texts = [_text_of(column) for column in self.axis.columns]
        if not self.axis.take:
            return texts
        is_part = self.axis.take.take or self.axis.take.first
        if is_part and rows.types.get(self.axis.columns[0], "").startswith("TIMESTAMP"):
            texts[0] = f"({texts[0]} || CASE WHEN length({texts[0]}) = 10 THEN ' 00:00' ELSE '' END)"
        is_sure = bool(rows.decimal) or self.axis.columns[0] in rows.types
        return [self.axis.take.sql(texts[0], self.own_codes, rows.number, is_sure=is_sure)]


@dataclass(frozen=True, slots=True)
class Units:
    """How many records a privacy unit may have.

    Attributes:
        column: the column that identifies the unit of a row; None where the data owner promises the bound.
        max_records: the largest number of records per unit.
        distinct: whether a unit's records are promised to be in distinct cells of the level that the axes name.
        exact: whether each unit has exactly `max_records` records, which makes the total public.
    """

    column: str | None
    max_records: int
    distinct: bool
    exact: bool


def codes_of_records(con: Connection, table: Table, end: End) -> pl.DataFrame:
    """Return the codes of an axis that occur in the records, in the form of `read_codebook`. Confidential.

    The result leaves out rows with a blank code; `ingest_trips` refuses them.

    Args:
        con: the vault. DuckDB writes what does not fit in memory to files beside it.
        end: an axis with one column per level, and an empty codebook with the names of the levels.
    Raises:
        InputError: the table cannot be read, or lacks a column.
    """
    with opened(con, table) as rows:
        check_columns(table, rows, end.axis.columns)
        _check_first(table, rows, [end])
        codes_of_row = end.codes(rows)
        named = ", ".join(f"{code} AS code_{number}" for number, code in enumerate(codes_of_row))
        there = " AND ".join(f"trim({code}) <> ''" for code in codes_of_row)
        sql = f"SELECT DISTINCT {named} FROM {rows.scan(end.axis.columns)} AS confidential WHERE {there}"
        codes: pl.DataFrame = con.sql(sql).pl()
    codes.columns = end.codebook.columns
    return codes.sort(codes.columns)


def ingest_trips(con: Connection, table: Table, ends: Sequence[End], count: str | None, units: Units) -> None:
    """Write the table `records` of the vault: area_0, area_1, … and true_count, summed over equal areas.

    The units of records stay in temporary tables, which are never written to the file of the vault. Arguments are those of `sum_table`.

    Raises:
        InputError: rows or units break a rule. The error names the column and the rule; only the caller learns how many.
            A table without records is refused only if its total is public.
    """
    sum_table(con, table, ends, [area_of_codes(end) for end in ends], count, units)
    areas = ", ".join(f"area_{number}" for number in range(len(ends)))
    con.execute(
        f"CREATE TABLE records AS SELECT {areas}, sum(true_count)::BIGINT AS true_count FROM summed"
        " WHERE true_count > 0 GROUP BY ALL"
    )
    con.execute("DROP TABLE summed")


def sum_table(
    con: Connection,
    table: Table,
    ends: Sequence[End],
    codes: Sequence[pl.DataFrame],
    count: str | None,
    units: Units,
    group: Sequence[str] = (),
) -> None:
    """Write the temporary table `summed`: the checked records by area, group and unit, no more of a unit than it may have.

    Args:
        codes: per axis, the areas of all possible codes, as `area_of_codes` returns them.
        count: the column of counts; None where each row is one record.
        group: the columns that together identify the group of a row; they become group_0, group_1, ….
    Raises:
        InputError: as `ingest_trips`.
    """
    with opened(con, table) as rows:
        for number, (end, of_axis) in enumerate(zip(ends, codes, strict=True)):
            con.register(f"codes_{number}", _also_shorter(of_axis, end, rows))
        also = [column for column in (*group, count, units.column) if column]
        wanted = [*dict.fromkeys([*(column for end in ends for column in end.axis.columns), *also])]
        check_columns(table, rows, wanted)
        _check_first(table, rows, ends)
        rules = _rules(ends, count, units, group, rows)
        with _joined_as_written(con):
            con.execute(_summed(rows, wanted, ends, count, units, group, rules))
    faults = con.execute(
        "SELECT fault, sum(rows)::BIGINT FROM summed WHERE fault IS NOT NULL GROUP BY fault ORDER BY fault LIMIT 1"
    ).fetchall()
    for fault, at_fault in faults:
        rule = rules[fault]
        tell_caller(f"{at_fault:,} {'row is' if at_fault == 1 else 'rows are'} at fault.")
        raise InputError(f"{table.field}: {rule.text}", field=rule.key, hint=rule.hint)
    _place_others(con, ends, units)
    total = con.execute("SELECT coalesce(sum(true_count), 0)::HUGEINT FROM summed").fetchall()[0][0]
    if total == 0 and units.exact:
        raise InputError(f"{table.field} has no records, so there is nothing to release.", field=table.field)
    if total == 0:
        tell_caller(f"{table.field} has no records: it has no rows, or no row with a count above 0.")
    if total > LARGEST_TOTAL:
        raise InputError(f"{table.field}: the counts must add up to at most 2**40.", field="input.count")
    if units.column:
        _bound_contributions(con, len(ends), units)
    if units.exact:
        _refuse_inexact(con, table, units)


def _place_others(con: Connection, ends: Sequence[End], units: Units) -> None:
    """Put the rows of `summed` whose code is not listed into the area for these; the caller, and nobody else, hears how many there are."""
    for number, end in enumerate(ends):
        if others := area_of_others(end):
            there = f"WHERE area_{number} IS NULL"
            rows = con.execute(f"SELECT coalesce(sum(rows), 0)::BIGINT FROM summed {there}").fetchall()[0][0]
            tell_caller(
                f"Rows that count as {end.axis.unlisted} of {end.name}, because their codes are not listed: {rows:,}."
            )
            place = f", place_{number} = {others[1]}" if units.column else ""
            con.execute(f"UPDATE summed SET area_{number} = {others[0]}{place} {there}")


@contextmanager
def _joined_as_written(con: Connection) -> Iterator[None]:
    """Keep the codes in memory and let the rows pass: of rows that are streamed DuckDB expects one, and would keep them all."""
    con.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
    try:
        yield
    finally:
        con.execute("RESET disabled_optimizers")


def _bound_contributions(con: Connection, axes: int, units: Units) -> None:
    """Cut the units of `summed` that have more records than promised, and tell the caller their number."""
    places = ", ".join(f"place_{number}" for number in range(axes))
    repeats = f" OR sum(true_count) > count(DISTINCT ({places}))" if units.distinct else ""
    con.execute(
        "CREATE TEMP TABLE cut AS SELECT unit FROM summed WHERE true_count > 0 GROUP BY unit"
        f" HAVING sum(true_count) > {units.max_records}{repeats}"
    )
    con.execute(
        f"CREATE TEMP TABLE excess AS SELECT summed.rowid AS row, dense_rank() OVER (ORDER BY unit) AS unit_number,"
        f" dense_rank() OVER (ORDER BY {places}) AS place, true_count::BIGINT AS true_count"
        " FROM summed JOIN cut USING (unit) WHERE true_count > 0"
    )
    excess = con.execute("SELECT * FROM excess ORDER BY unit_number, place").fetchnumpy()
    kept = keep_within(
        excess["unit_number"], excess["place"], excess["true_count"], units.max_records, distinct=units.distinct
    )
    kept_rows = pl.DataFrame({"row": excess["row"], "kept": kept})  # noqa: F841 (DuckDB finds it by its name)
    con.execute("UPDATE summed SET true_count = kept FROM kept_rows WHERE summed.rowid = kept_rows.row")
    cut_units = con.execute("SELECT count(*) FROM cut").fetchall()[0][0]
    most = f"{units.max_records} distinct" if units.distinct else f"{units.max_records}"
    tell_caller(f"{cut_units:,} {'unit was' if cut_units == 1 else 'units were'} cut to at most {most} records.")
    con.execute("DROP TABLE cut")
    con.execute("DROP TABLE excess")


def _refuse_inexact(con: Connection, table: Table, units: Units) -> None:
    """Refuse a table with units that do not have exactly `max_records` records."""
    if units.column:
        per_unit = f"SELECT unit FROM summed GROUP BY unit HAVING sum(true_count) <> {units.max_records}"
        wrong = con.execute(f"SELECT count(*) FROM ({per_unit})").fetchall()[0][0]
        if wrong:
            tell_caller(f"{wrong:,} {'unit is' if wrong == 1 else 'units are'} at fault.")
    else:
        wrong = con.execute(f"SELECT sum(true_count) % {units.max_records} <> 0 FROM summed").fetchall()[0][0]
    if wrong:
        rule = f"every unit must have exactly {units.max_records} records (privacy.exact_records_per_unit)."
        raise InputError(f"{table.field}: {rule}", field="privacy.exact_records_per_unit")


def area_of_codes(end: End) -> pl.DataFrame:
    """Return, for each possible code (or path of codes) of a row, the numbers of two areas that contain it.

    `area` is at the finest released level, `place` at the level at which records are promised distinct.
    """
    axis = axis_from_codebook(end.name, end.codebook)
    finest_area = pl.int_range(end.codebook.height, eager=True).to_numpy()
    area = axis.ancestors(finest_area, axis.depth, end.codebook.columns.index(end.axis.finest) + 1)
    place = axis.ancestors(finest_area, axis.depth, end.promised)
    levels = end.codebook.columns[-len(end.axis.columns) :]
    keys = {f"code_{number}": end.codebook[level] for number, level in enumerate(levels)}
    areas = pl.DataFrame(keys | {"area": area, "place": place})
    if end.recoded is None:
        return areas
    new = end.recoded.join(areas, left_on="new", right_on="code_0").select("area", "place", code_0="old")
    return pl.concat([areas.join(new, on="code_0", how="anti"), new.select(areas.columns)])


def _also_shorter(codes: pl.DataFrame, end: End, rows: TableRows) -> pl.DataFrame:
    """Return the areas of codes also by the texts that typed columns have for them: 101 where 101.0 is listed, and a day for its midnight.

    Raises:
        InputError: two areas have codes of one value.
    """
    forms = {f"code_{number}": rows.left_out.get(column, "") for number, column in enumerate(end.axis.columns)}
    if isinstance(end.axis.codebook, Unlisted) or not any(forms.values()):
        return codes
    shorter = codes.with_columns(pl.col(key).str.replace(form, "${1}") for key, form in forms.items() if form)
    areas = pl.concat([codes, shorter]).unique(maintain_order=True)
    if areas.select([*forms]).is_duplicated().any():
        field, column = end.listed_by or end.axis.field, " and ".join(end.axis.columns)
        raise InputError(
            f"{field} must list one code for each value of column {column}, which is of numbers or times, not both 101 and 101.0.",
            field=field,
            hint=f"Keep one of the two; or give a view in which {column} is text.",
        )
    return areas


def area_of_others(end: End) -> tuple[int, int] | None:
    """Return the area and the place, as in `area_of_codes`, of records whose code is not listed; None where they are refused."""
    if end.axis.unlisted is None:
        return None
    row = area_of_codes(replace(end, recoded=None)).filter(end.codebook.to_series(-1) == end.axis.unlisted)
    return row["area"][0], row["place"][0]


def _rules(
    ends: Sequence[End], count: str | None, units: Units, group: Sequence[str], table: TableRows
) -> list[RowRule]:
    """Return every rule that a row may break."""
    rules, types = list[RowRule](), table.types
    for number, end in enumerate(ends):
        blank, column = _blank(end.axis.columns), f"column {' and '.join(end.axis.columns)}"
        if end.axis.unlisted is None:
            lacks, hint = _unlisted(end, types)
            unlisted = f"NOT ({blank}) AND codes_{number}.area IS NULL"
            rules.append(RowRule(blank, end.axis.field, f"{column} must not be empty."))
            if end.axis.take and end.axis.take.bins:
                taken = table.number(f"trim({_text_of(end.axis.columns[0])})")
                why = {_GROUPED: _NO_GROUPS} if table.decimal else {EITHER: _EITHER, _GROUPED: _NO_GROUPS}
                rules += [
                    RowRule(
                        f"{unlisted} AND regexp_full_match({taken}, '{form}')",
                        end.axis.field,
                        f"{column} {lacks}",
                        how,
                    )
                    for form, how in why.items()
                ]
            rules.append(RowRule(unlisted, end.axis.field, f"{column} {lacks}", hint))
    digits, whole, value = _number(count, table)
    column, negative = f"column {count}", f"regexp_matches({digits}, '^-([0-9.]|inf)')"
    broken, must_be_whole = f"{digits} <> '' AND NOT {negative} AND NOT {whole}", f"{column} must hold whole numbers."
    rules.append(RowRule(f"{digits} IS NULL OR {digits} = ''", "input.count", f"{column} must not be empty."))
    kind = types.get(count or "", "")
    if kind and not _is_number(kind):
        of_type = f"{column} must hold whole numbers; it is of type {kind}."
        rules.append(RowRule(f"NOT {whole}", "input.count", of_type, "Cast it to whole numbers in a view."))
    if count and not table.decimal:
        either = RowRule(f"regexp_full_match({digits}, '{_THOUSAND}')", "input.count", must_be_whole, _EITHER)
        rules.append(either)
    rules += [
        RowRule(negative, "input.count", f"{column} must be >= 0."),
        RowRule(f"{broken} AND regexp_full_match({digits}, '{_GROUPED}')", "input.count", must_be_whole, _NO_GROUPS),
        RowRule(f"{broken} AND NOT regexp_full_match({digits}, '{_NUMBER}')", "input.count", must_be_whole, _NO_TEXTS),
        RowRule(broken, "input.count", must_be_whole, _NO_RECORDS),
        RowRule(f"{whole} AND {value} IS NULL", "input.count", f"{column} must hold numbers below 2**63."),
    ]
    if units.column:
        rules.append(RowRule(_blank([units.column]), "input.unit", f"column {units.column} must not be empty."))
    if group:
        rules.append(RowRule(_blank(group), "input.group", f"column {' and '.join(group)} must not be empty."))
    return rules


def _unlisted(end: End, types: Mapping[str, str]) -> tuple[str, str]:
    """Return what a refusal says, behind the column, of codes that are not listed, and what to do next."""
    listed = end.listed_by or "the codebook"
    others = "" if end.axis.field == "input.group" else ", or write unlisted: OTHER beside the codes of the axis"
    hint = f"Add every possible code to {listed}, or correct the table{others}. Codes are compared as text, with their zeros, blanks and capitals."
    if spaced := _code_with(r"^\s|\s$", end):
        hint += f' The codebook has codes with blanks around them, such as "{spaced}": delete the blanks there.'
    if hidden := _code_with(r"\p{Cf}", end):
        hint += f" The codebook has codes with characters that are not seen, such as {hidden!a}."
    if take := end.axis.take:
        times = (
            "Times are written 2024-05-17 08:30 or 08:30; name their zone if they have one, and only then. For others write a view"
            f" (docs/how-to/shape-your-table.md), with strptime({identifier(end.axis.columns[0])}, '%d.%m.%Y %H:%M'). Otherwise: "
        )
        how = (
            times if take.take else "What is no number, or below the first of bins, has no code. " if take.bins else ""
        )
        return f"has values that give no code of {listed}.", f"{how}{hint}"
    lacks = f"has codes that {listed} lacks"
    levels = end.codebook.columns[-len(end.axis.columns) :]
    for column, level in zip(end.axis.columns, levels, strict=True):
        kind, codes = types.get(column, ""), end.codebook[level]
        have_zeros, width = _zeros_before(codes)
        if have_zeros and not (kind and width):
            hint += " Some listed codes begin with 0, which programs that read them as numbers drop."
        if kind and (width or not _INTEGER.fullmatch(kind)):
            lacks += f"; column {column} is of type {kind}"
            hint = f"Write it as the codes are written, for example as {_cast(identifier(column), kind, width)} in a view. {hint}"
    return f"{lacks}.", hint


def _check_first(table: Table, rows: TableRows, ends: Sequence[End]) -> None:
    """Refuse to take the beginning of what is not text, by its type: 6001, which was 06001, would be another county, 60."""
    for end in ends:
        column, first = end.axis.columns[0], end.axis.take.first if end.axis.take else 0
        if first and (kind := rows.types.get(column)):
            cast, width = identifier(column), first + 3
            raise InputError(
                f"{table.field}: column {column} must hold text, of which first: {first} is the beginning; it is of type {kind}.",
                field=end.axis.field,
                hint=f"Write it in a view as {_cast(cast, kind, width)}, with the length of your codes in place of {width}."
                if _is_number(kind)
                else f"Write it as the codes are written, for example as {_cast(cast, kind, 0)} in a view.",
            )


def _is_number(kind: str) -> bool:
    return kind.startswith(("DOUBLE", "FLOAT", "DECIMAL")) or bool(_INTEGER.fullmatch(kind))


def _cast(column: str, kind: str, width: int) -> str:
    """Return the SQL that writes a column as codes are written: days, digits alone, or digits with zeros before them, up to a width."""
    if kind.startswith("TIMESTAMP"):
        local = f"timezone('Europe/Rome', {column})" if kind.endswith("ZONE") else column
        return f"{local}::DATE::VARCHAR"
    if kind == "BOOLEAN":
        return f"{column}::INT::VARCHAR"
    if kind.endswith("]"):
        return f"{column}[1]::VARCHAR"
    if not _is_number(kind):
        return f"{column}::VARCHAR"
    digits = f"{column}::VARCHAR" if _INTEGER.fullmatch(kind) else f"{column}::BIGINT::VARCHAR"
    return f"lpad({digits}, {width}, '0')" if width else digits


def _zeros_before(codes: pl.Series) -> tuple[bool, int]:
    """Return whether some codes have zeros before other digits, and then the length of all codes of digits; 0 where they have several."""
    digits = codes.filter(codes.str.contains(r"^[0-9]+$"))
    have_zeros, lengths = digits.str.contains("^0.").any(), digits.str.len_chars().unique()
    return have_zeros, int(lengths[0]) if have_zeros and len(lengths) == 1 else 0


def _code_with(form: str, end: End) -> str:
    """Return the first code of a public codebook with a text of that form in it; empty if none has one."""
    if end.listed_by or not isinstance(end.axis.codebook, Table):
        return ""
    found = (codes.filter(codes.str.contains(form)) for codes in end.codebook)
    return next((codes[0] for codes in found if len(codes)), "")


def _summed(
    rows: TableRows,
    wanted: Sequence[str],
    ends: Sequence[End],
    count: str | None,
    units: Units,
    group: Sequence[str],
    rules: Sequence[RowRule],
) -> str:
    """Return the only query over the confidential table: sums per combination of areas, and how many rows break a rule.

    `fault` is the number of the first rule that the rows break, or null. With a column of units, sums are also per unit and per place
    at which its records are promised distinct; with columns of groups, also per group.

    Args:
        wanted: all columns that it reads.
    """
    joins = []
    for number, end in enumerate(ends):
        codes = (f"codes_{number}.code_{part} = {code}" for part, code in enumerate(end.codes(rows)))
        joins.append(f"LEFT JOIN codes_{number} ON {' AND '.join(codes)}")
    keys = [f"codes_{number}.area AS area_{number}" for number in range(len(ends))]
    if units.column:
        places = (f"codes_{number}.place AS place_{number}" for number in range(len(ends)))
        keys += [f"{_text_of(units.column)} AS unit", *places]
    keys += [f"{_text_of(column)} AS group_{part}" for part, column in enumerate(group)]
    cases = " ".join(f"WHEN {rule.broken} THEN {number}" for number, rule in enumerate(rules))
    digits, whole, value = _number(count, rows)
    few = f"regexp_full_match({digits}, '[0-9]{{1,18}}')"  # which is quickly seen, and keeps every rule of counts
    return (
        f"CREATE TEMP TABLE summed AS SELECT {', '.join(keys)},"
        f" CASE WHEN {' AND '.join([few, *_coded(ends, units, group)])} THEN NULL {cases} END AS fault, count(*) AS rows,"
        f" sum(CASE WHEN {few} THEN TRY_CAST({digits} AS BIGINT) WHEN {whole} THEN {value} END) AS true_count"
        f" FROM {rows.scan(wanted)} AS confidential {' '.join(joins)} GROUP BY ALL"
    )


def _coded(ends: Sequence[End], units: Units, group: Sequence[str]) -> Iterator[str]:
    """Yield conditions that hold in nearly all rows, and together let a row keep every rule but those of counts."""
    for number, end in enumerate(ends):
        if end.axis.unlisted is None:
            yield f"codes_{number}.area IS NOT NULL"
            is_listed = isinstance(end.axis.codebook, Table) and end.axis.take is None and end.recoded is None
            if not is_listed or len(end.axis.columns) > 1:  # no other codebook is known to be without a blank code
                yield f"NOT ({_blank(end.axis.columns)})"
    if columns := [*([units.column] if units.column else []), *group]:
        yield f"NOT ({_blank(columns)})"


def _text_of(column: str) -> str:
    return f"confidential.{identifier(column)}::VARCHAR"


def _blank(columns: Sequence[str]) -> str:
    """Return the SQL of whether a row has no text in one of some columns."""
    return " OR ".join(f"{text} IS NULL OR trim({text}) = ''" for text in map(_text_of, columns))


def _number(count: str | None, rows: TableRows) -> tuple[str, str, str]:
    """Return the SQL of the text of a row's count, of whether it is a whole number, and of that number."""
    digits = rows.number(f"trim({_text_of(count)})") if count else "'1'"
    whole = f"regexp_full_match({digits}, '[+]?[0-9]+([.]0*)?')"
    return digits, whole, f"TRY_CAST(regexp_extract({digits}, '[0-9]+') AS BIGINT)"
