"""Published levels in the store: a schema per release, a table per level, ready for SQL."""

from pathlib import Path

from storage.database import Connection, file_literal


def partial_folder(folder: Path) -> Path:
    """Return where a published folder is written, beside its place, before it is whole."""
    return folder.with_name(f".{folder.name}.partial")


def store_levels(con: Connection, release_id: str, folder: Path, levels: int) -> None:
    """Copy the tables of a published folder into the schema named after the release."""
    schema = '"' + release_id.replace('"', '""') + '"'
    con.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    for level in range(levels):
        rows = f"read_parquet({file_literal(folder / 'counts' / f'level_{level}.parquet')}, hive_partitioning = false)"
        con.execute(f"CREATE OR REPLACE TABLE {schema}.level_{level} AS SELECT * FROM {rows}")


def published_total(con: Connection, release_id: str) -> int | None:
    """Return the total that a published release shows, None if the store does not hold its levels."""
    schema = '"' + release_id.replace('"', '""') + '"'
    there = con.execute(
        "SELECT count(*) FROM duckdb_tables() WHERE schema_name = ? AND table_name = 'level_0'", [release_id]
    ).fetchall()[0][0]
    return int(con.execute(f"SELECT sum(count) FROM {schema}.level_0").fetchall()[0][0]) if there else None
