"""The names that a shell completes: of releases and datasets, read from the store if no other process has it open."""

import duckdb

from storage.machine.home import STORE, place_of_home


def known_names(column: str) -> list[str]:
    """Return the ids of the releases, or their datasets, the newest first; nothing if the store cannot be read at once.

    Completion runs at each key press: it waits for no lock, shows no error, and neither creates nor migrates a store.

    Args:
        column: `id` or `dataset`.
    """
    path = place_of_home() / STORE
    if not path.is_file():  # DuckDB would create it
        return []
    try:
        with duckdb.connect(str(path), read_only=True) as con:
            rows = con.execute(f"SELECT {column} FROM releases ORDER BY created DESC, id").fetchall()
    except (duckdb.Error, OSError):
        return []
    return list(dict.fromkeys(row[0] for row in rows))
