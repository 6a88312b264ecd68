"""Guesses the levels of a codebook by how its rows nest. A codebook is public, so all of it is read."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from flows.specification.starters.headers import is_no_level
from tasks.ingest.tables import Table, read_texts

_MOST_OF_FINER = 0.6  # of the finest areas, that a level above them has


@dataclass(frozen=True, slots=True)
class GuessedLevels:
    """The levels of a codebook, coarse to fine.

    Attributes:
        by_path: whether a code is unique only together with those above it.
        labels: by level, the column of its names.
    """

    levels: list[str]
    by_path: bool
    labels: dict[str, str]


def guess_levels(table: Table) -> GuessedLevels:
    """Return the levels of a codebook: each column whose areas hold those of the next.

    The finest level is the first column that has another code in every row, if possible one that seems to hold codes. A column that says nothing new, such as a
    name beside a code, is no level. If no column has, the levels are the first columns that have together.

    Raises:
        InputError: the table cannot be read, its first line looks like a row, or no columns identify each row.
    """
    areas = read_texts(table)
    for column in areas:
        if _is_code_of(column):
            raise table.fault(
                f"the first line of {table.name} must hold the column names; {column.name} looks like the codes below it.",
                "Add a line of column names above the rows.",
            )
    coded = [column for column in areas if not (column.is_null() | column.str.contains(r"^[-+]?\d*\.\d+$")).any()]
    numbers = {column.name: column.n_unique() for column in coded}
    unique = sorted((name for name, number in numbers.items() if number == areas.height), key=is_no_level)
    finest = unique[0] if unique else None
    if finest is None:
        named = [name for name in numbers if not is_no_level(name)]
        paths = (named[:many] for many in range(2, len(named) + 1))
        path = next((path for path in paths if areas.select(path).n_unique() == areas.height), None)
        if path is None:
            raise table.fault(
                f"no column of {table.name}, and no set of columns, identifies each row.",
                "A codebook has one row per finest area, and a column for each level above it.",
            )
        return GuessedLevels(path, by_path=True, labels={})
    levels = [finest]
    most = _MOST_OF_FINER * areas.height  # more than that, and it is a number or a name of each area, not a level
    named = [name for name in numbers if numbers[name] <= most and not is_no_level(name)]
    for name in sorted(named, key=lambda name: numbers[name], reverse=True):
        pairs = areas.select(levels[0], name).n_unique() if name != levels[0] else 0
        if 1 < numbers[name] < numbers[levels[0]] and pairs == numbers[levels[0]]:
            levels.insert(0, name)
    return GuessedLevels(levels, by_path=False, labels=_labels(levels, areas))


def _is_code_of(column: pl.Series) -> bool:
    """Return whether the name of a column has several digits, and letters and digits at the same places as each of its codes."""
    name, codes = column.name, column.drop_nulls()
    shapes = pl.Series([name, *codes]).str.replace_all(r"\p{L}", "a").str.replace_all(r"\d", "0")
    return re.search(r"\d.*\d", name) is not None and len(codes) > 0 and shapes.n_unique() == 1


def _labels(levels: Sequence[str], areas: pl.DataFrame) -> dict[str, str]:
    """Return, by level, the column that has its name with `name` behind or before it and gives every area one name."""
    folded = {re.sub(r"[\W_]+", "", column).casefold(): column for column in areas.columns}
    labels = {}
    for level in levels:
        stem = re.sub(r"[\W_]+|code$|id$", "", level.casefold())
        names = (f"{stem}name", f"{stem}nname", f"{stem}sname", f"name{stem}")  # the second and third as in German
        column = next((folded[name] for name in names if name in folded), None)
        if column and areas.select(level, column).n_unique() == areas[level].n_unique():
            labels[level] = column
    return labels
