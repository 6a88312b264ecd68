"""The database of a server that is new: a copy of an empty one, which Prefect has made once for this version of it.

Prefect makes a new database by a hundred migrations, which takes most of the time of a small release. So an empty one is kept in
the user's cache. It holds tables and block types, and nothing of any release.
"""

import os
import shutil
from contextlib import closing, suppress
from pathlib import Path

from storage.machine.files import beside

DATABASE = "prefect.db"  # in PREFECT_HOME

_ELSEWHERE = ("PREFECT_API_DATABASE_CONNECTION_URL", "PREFECT_SERVER_DATABASE_CONNECTION_URL")


def begin_database(prefect_home: Path) -> bool:
    """Copy the empty database to a server's folder that has none; return whether there was none.

    If there is no empty one yet, or it cannot be read, the server makes its database itself.
    """
    path = prefect_home / DATABASE
    if path.exists() or any(name in os.environ for name in _ELSEWHERE):
        return False
    with suppress(OSError), _empty_database().open("rb") as source, beside(path, closed=True) as file:
        shutil.copyfileobj(source, file)
    return True


def keep_empty_database(prefect_home: Path) -> None:
    """Keep a copy of a database that a server has just made, unless there is one. If it cannot be kept, the next server makes its own."""
    import sqlite3  # here, because every command imports this module, and few start a server

    kept = _empty_database()
    with suppress(OSError, sqlite3.Error):
        if kept.exists():
            return
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = kept.with_name(f"{kept.name}.{os.getpid()}.partial")
        try:
            with (
                closing(sqlite3.connect(f"file:{prefect_home / DATABASE}?mode=ro", uri=True)) as made,
                closing(sqlite3.connect(partial)) as copy,
            ):
                made.backup(copy)
            partial.chmod(0o600)
            partial.rename(kept)
        finally:
            partial.unlink(missing_ok=True)


def _empty_database() -> Path:
    from importlib.metadata import version

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "trellis" / f"prefect-{version('prefect')}.db"
