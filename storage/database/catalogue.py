"""What the store's tables hold: their columns as the migrations make them, and what is said of each.

A column is explained by the comment beside it in the migration that made it; what recurs in many tables is said here once.
"""

import re
from dataclasses import dataclass

import duckdb

from storage.database.migrations import MIGRATIONS

_TABLES = {
    "releases": "every release, in whatever state",
    "levels": "the levels of every release, with their noise",
    "branches": "the slices of a frontier that are walked by themselves; the trunk is none of them",
    "seals": "the shards of noisy counts that are sealed; what is not here was read by nobody",
    "frontiers": "the shards of released counts, on the way down",
    "estimates": "the shards of estimates, where a mechanism goes over its noisy counts twice",
    "settled": "the shards of released counts, where a mechanism goes over its noisy counts twice",
    "checks": "what was checked before publication",
    "ledger": "the events of the ledger, each hashed onto the one before; what is spent is a view of them",
    "runs": "Prefect's flow runs, by which a crash is noticed",
    "published": "what is published: a row per release and level, to begin a query with",
    "published_levels": "the tables of published levels",
}
_COLUMNS = {
    "id": "`<name>-<UTC time>`, or `<name>-<day>` of a schedule",
    "release": "the release's id",
    "release_id": "the release's id",
    "name": "the spec's",
    "dataset": "whose people; their budget is charged",
    "level": "of the tree; 0 is everything",
    "branch": "its name; `trunk` for what is above all branches",
    "first_node": "of the slice",
    "cells": "in the shard",
    "rows": "in its table",
    "view": "its name in the schema of the release",
    "nonzero": "cells with a released count that is not 0",
    "sealed_at": "UTC, ISO 8601",
    "checked_at": "UTC, ISO 8601",
    "check": "its name",
    "passed": "whether it was",
    "bound": "with 95 % every count of the level is within so many records of the truth",
    "l2_sensitivity_squared": "of one unit on the level, in squared records",
    "delta": "of a mechanism that is only (epsilon, delta)",
    "position": "from 0 on, without a gap",
    "mechanism": "what is drawn",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the store.

    Attributes:
        name: the column.
        type: in DuckDB's words.
        may_be_null: whether it may be.
        says: what it holds; empty where nobody has said it.
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
        says: what a row is; empty where nobody has said it.
        columns: in their order.
    """

    name: str
    says: str
    columns: tuple[Column, ...]


def catalogue() -> list[StoreTable]:
    """Return the tables and views of a new store, in the order in which they came about; a store is not opened."""
    comments = _comments()
    with duckdb.connect() as con:
        for migration in MIGRATIONS:
            con.execute(migration)
        rows = con.execute(
            "SELECT table_name, column_name, data_type, is_nullable FROM duckdb_columns() WHERE NOT internal"
            " ORDER BY table_oid, column_index"
        ).fetchall()
    tables: dict[str, list[Column]] = {}
    for table, column, kind, nullable in rows:
        beside = comments.get((table, column)) or next(
            (said for (_, named), said in comments.items() if named == column and column not in _COLUMNS), ""
        )
        said = "; ".join(text for text in (_COLUMNS.get(column, ""), beside) if text)
        tables.setdefault(table, []).append(Column(column, kind, nullable, said))
    return [StoreTable(name, _TABLES.get(name, ""), tuple(columns)) for name, columns in tables.items()]


def _comments() -> dict[tuple[str, str], str]:
    """Return, by table and column, the comment beside the column in the last migration that says something of it."""
    said: dict[tuple[str, str], str] = {}
    table = ""
    for line in "\n".join(MIGRATIONS).splitlines():
        if begun := re.match(r"(?:CREATE|ALTER) TABLE (\w+)", line):
            table = begun[1]
        comment = re.search(r"--\s*(.+?)\s*$", line)
        column = re.search(r'(?:ADD COLUMN|RENAME COLUMN \w+ TO|ALTER) (?!TABLE)"?(\w+)|^\s+"?(\w+)"? [A-Z]', line)
        if comment and column and table:
            said[table, column[1] or column[2]] = comment[1]
    return said
