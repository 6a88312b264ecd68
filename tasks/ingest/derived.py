"""Derived columns: public functions of the axes, from a table that lists every combination of their codes once.

A grouping that was designed on the records is as confidential as they are, and no guarantee covers it. So a table that can be
recognised as the confidential one, or as made from it, is refused.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from storage.errors import InputError
from storage.ledger.recognition import Columns
from tasks.ingest.contents import same_content
from tasks.ingest.tables import Table, check_columns, in_nfc, is_blank, opened, reader, same_table, text_columns
from tasks.tree.order import Tree
from tasks.tree.views import Derived, numbered_codes

_MOST_COMBINATIONS = 10**7
_PUBLIC = "Give a public table of all combinations. One made from the records would reveal who is in them."
_REVEALS = "a grouping that is made from the records reveals them."
_NO_BLANK = "Give every row a code in every column. A code such as `none` can stand for what has no other."


@dataclass(frozen=True, slots=True)
class DerivedSource:
    """Where a derived column comes from.

    Attributes:
        table: the public table.
        of: the axis levels on which it depends: the name of the axis, and the axis level.
    """

    name: str
    table: Table
    of: tuple[tuple[str, int], ...]


def check_derived(source: DerivedSource, confidential: Table, columns: Columns) -> None:
    """Refuse the table of a derived column if it is the confidential one, by its content.

    Raises:
        InputError: it is.
    """
    if same_content(source.table, confidential, columns):
        raise source.table.confidential(_REVEALS, _PUBLIC)


def read_derived(
    source: DerivedSource, confidential: Table, codes: Collection[str], count: str | None, tree: Tree
) -> Derived:
    """Return a derived column. Does not open the confidential table.

    Args:
        codes: the confidential table's columns of codes.
        count: its column of counts; None where each row is one record.
        tree: the axes, down to the finest released levels.
    Raises:
        InputError: the table is the confidential one by its place or its columns, cannot be read, lacks a column or a
            combination, lists one twice, or has a blank or unknown code.
    """
    wanted = [*(axis for axis, _ in source.of), source.name]
    if same_table(source.table, confidential):
        raise source.table.confidential(_REVEALS, _PUBLIC)
    of_records = {*codes, *([count] if count else [])}
    with reader(source.table) as con, opened(con, source.table) as rows:
        check_columns(source.table, rows, wanted)
        if len(of_records) > len(source.of) and {*map(in_nfc, of_records)} <= {*rows.names}:
            raise source.table.fault(f"{source.table.name} has the columns of the confidential table.", _PUBLIC)
        table: pl.DataFrame = con.sql(f"SELECT {text_columns(wanted)} FROM {rows.scan(wanted)}").pl()
    for column in table.iter_columns():
        if is_blank(column).any():
            raise source.table.fault(f"column {column.name} has a blank code.", _NO_BLANK)
    places = _places(source, tree)
    return numbered_codes(source.name, places, _codes(source, tree, table, places))


def _places(source: DerivedSource, tree: Tree) -> tuple[tuple[int, int], ...]:
    """Return the axis levels on which a derived column depends, by their numbers."""
    numbers = {axis.name: number for number, axis in enumerate(tree.axes)}
    places = tuple((numbers[axis], level) for axis, level in source.of)
    if (combinations := _combinations(tree, places)) > _MOST_COMBINATIONS:
        field = f"derived.{source.name}.of"
        raise InputError(
            f"{field} must have at most {_MOST_COMBINATIONS:,} combinations, got {combinations:,}.", field=field
        )
    return places


def _codes(source: DerivedSource, tree: Tree, table: pl.DataFrame, places: Sequence[tuple[int, int]]) -> pl.Series:
    """Return the code of every combination."""
    combination = np.zeros(table.height, dtype=np.int64)
    for number, own in places:
        axis = tree.axes[number]
        codes = axis.codes[own - 1]
        if codes.n_unique() < len(codes):
            raise source.table.fault(
                f"the codes of level {axis.level_names[own - 1]} must be unique for axis {axis.name}, since the table has one column"
                " for it."
            )
        known = pl.DataFrame({axis.name: codes}).with_row_index("area")
        area = table.select(axis.name).join(known, on=axis.name, how="left", maintain_order="left")["area"]
        if area.has_nulls():
            raise source.table.fault(
                f"column {axis.name} has a code that level {axis.level_names[own - 1]} of the codebook does not list.",
                "The table must list the codes of exactly this level, as they are in the codebook.",
            )
        combination = combination * len(codes) + area.to_numpy().astype(np.int64)
    combinations = _combinations(tree, places)
    listed = np.bincount(combination, minlength=combinations)
    if (listed > 1).any():
        raise source.table.fault(
            f"{source.table.name} lists a combination twice.",
            f"Keep one row for each combination of {' and '.join(axis for axis, _ in source.of)}, with one code.",
        )
    if not listed.all():
        raise source.table.fault(
            f"{source.table.name} must list all {combinations:,} combinations of codes, and lacks some.", _PUBLIC
        )
    return table[source.name].gather(np.argsort(combination))


def _combinations(tree: Tree, places: Sequence[tuple[int, int]]) -> int:
    return math.prod(tree.axes[axis].areas(level) for axis, level in places)
