"""Published levels in the store: a schema per release, a table per level, ready for SQL."""

from pathlib import Path

from storage.database import Connection, file_literal


def store_levels(con: Connection, release_id: str, folder: Path, levels: int) -> None:
    """Copy the tables of a published folder into the schema named after the release."""
    schema = '"' + release_id.replace('"', '""') + '"'
    con.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    for level in range(levels):
        rows = f"read_parquet({file_literal(folder / 'counts' / f'level_{level}.parquet')}, hive_partitioning = false)"
        con.execute(f"CREATE OR REPLACE TABLE {schema}.level_{level} AS SELECT * FROM {rows}")
