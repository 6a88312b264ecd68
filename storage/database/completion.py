"""The names that a shell completes: of releases and datasets, from a store that is there and free."""

import duckdb

from storage.machine.home import place_of_home


def known_names(column: str) -> list[str]:
    """Return the ids of the releases, or their datasets, the newest first; nothing where the store cannot say at once.

    Who presses a key waits for no lock, sees no error, and makes or migrates no store.

    Args:
        column: `id` or `dataset`.
    """
    path = place_of_home() / "store.duckdb"
    if not path.is_file():  # DuckDB would make it
        return []
    try:
        with duckdb.connect(str(path), read_only=True) as con:
            rows = con.execute(f"SELECT {column} FROM releases ORDER BY created DESC, id").fetchall()
    except (duckdb.Error, OSError):
        return []
    return list(dict.fromkeys(row[0] for row in rows))
