"""The empty database that new servers begin with: made once, copied, never overwritten, and nobody's trouble where it cannot be."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from flows.server.database import DATABASE, begin_database, keep_empty_database


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the user's cache be a new folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("PREFECT_API_DATABASE_CONNECTION_URL", "PREFECT_SERVER_DATABASE_CONNECTION_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


def made(folder: Path, word: str) -> Path:
    """Make a database with a word in it, as a server would."""
    folder.mkdir()
    with closing(sqlite3.connect(folder / DATABASE)) as con:
        con.execute("CREATE TABLE told (word)")
        con.execute("INSERT INTO told VALUES (?)", [word])
        con.commit()
    return folder


def told(folder: Path) -> str:
    """Return the word in a database."""
    with closing(sqlite3.connect(folder / DATABASE)) as con:
        return str(con.execute("SELECT word FROM told").fetchone()[0])


def test_a_new_server_begins_with_the_first_one_s(tmp_path: Path, cache: Path) -> None:
    """The second server's database is a copy, closed to others; later ones do not change what is kept."""
    assert begin_database(tmp_path)
    assert not (tmp_path / DATABASE).exists()
    keep_empty_database(made(tmp_path / "one", "first"))
    keep_empty_database(made(tmp_path / "two", "second"))
    (tmp_path / "three").mkdir()
    assert begin_database(tmp_path / "three")
    assert told(tmp_path / "three") == "first"
    assert {path.stat().st_mode & 0o077 for path in [tmp_path / "three" / DATABASE, *cache.rglob("*.db")]} == {0}
    assert [path.suffix for path in (cache / "trellis").iterdir()] == [".db"]


def test_a_database_that_is_there_or_elsewhere_is_not_begun(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is there is not replaced; a server that uses PostgreSQL, or has no cache to copy from, gets no file."""
    keep_empty_database(made(tmp_path / "one", "first"))
    assert not begin_database(made(tmp_path / "two", "second"))
    assert told(tmp_path / "two") == "second"
    monkeypatch.setenv("PREFECT_API_DATABASE_CONNECTION_URL", "postgresql+asyncpg://nowhere/prefect")
    assert not begin_database(tmp_path)
    monkeypatch.delenv("PREFECT_API_DATABASE_CONNECTION_URL")
    cache.rename(tmp_path / "elsewhere")
    cache.write_text("a file where a folder should be")
    keep_empty_database(tmp_path / "one")  # which stops nothing
    assert begin_database(tmp_path)
    assert not (tmp_path / DATABASE).exists()
