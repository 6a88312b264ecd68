"""What the tables of a new store hold, with the words that the schema has for each table and column."""

import re
from dataclasses import dataclass

import duckdb

from storage.database.schema import STEPS


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the store.

    Attributes:
        name: the column.
        type: in DuckDB's words.
        may_be_null: whether it may be.
        says: what it holds; empty where the schema has no comment beside it.
    """

    name: str
    type: str
    may_be_null: bool
    says: str


@dataclass(frozen=True, slots=True)
class StoreTable:
    """A table of the store, or a view.

    Attributes:
        name: the table.
        says: what a row is; empty where the schema has no comment above it.
        columns: in their order.
    """

    name: str
    says: str
    columns: tuple[Column, ...]


def catalogue() -> list[StoreTable]:
    """Return the tables and views of a new store, in the order in which they are created; no store is opened."""
    says = _comments("\n".join(STEPS))
    with duckdb.connect() as con:
        for step in STEPS:
            con.execute(step)
        rows = con.execute(
            "SELECT table_name, column_name, data_type, is_nullable FROM duckdb_columns() WHERE NOT internal"
            " ORDER BY table_oid, column_index"
        ).fetchall()
    tables: dict[str, list[Column]] = {}
    for table, column, kind, nullable in rows:
        tables.setdefault(table, []).append(Column(column, kind, nullable, says.get((table, column), "")))
    return [StoreTable(name, says.get((name, ""), ""), tuple(columns)) for name, columns in tables.items()]


def _comments(schema: str) -> dict[tuple[str, str], str]:
    """Return the comments by table and column; those above a table by the table and no column."""
    says: dict[tuple[str, str], str] = {}
    table, above = "", ""
    for line in schema.splitlines():
        code, _, comment = (part.strip() for part in line.partition("--"))
        if named := re.match(r"(CREATE|ALTER) (?:TABLE|VIEW) (\w+)", code):
            table = named[2]
            if named[1] == "CREATE":
                says[table, ""] = above
        # `column TYPE …` of a table, `… AS column` of a view, or `ALTER TABLE … ADD COLUMN column …`
        column = re.search(r'ADD COLUMN "?(\w+)', code) or re.search(r'\bAS "?(\w+)"?,?$|^"?(\w+)"? [A-Z]', code)
        if column and comment:
            says[table, next(filter(None, column.groups()))] = comment
        above = comment if not code else ""
    return says
