"""Offices: one without a release, and one whose table has spent its cap, released once and put back for every test."""

import shutil

import duckdb
import pytest

from flows.api import release
from storage.database.connections import store
from tests.support.office import ROWS, Office


@pytest.fixture
def fresh(tmp_path, own_home):
    """Give a folder with a table, a codebook and an empty store, which is open all the time."""
    (tmp_path / "people.csv").write_text("home,work\n" + ROWS)
    (tmp_path / "homes.csv").write_text("home\na0\na1\n")
    with store():
        yield Office(tmp_path)


@pytest.fixture(scope="session")
def _spent(tmp_path_factory):
    """Release a table, which is in a DuckDB file too; return its folder, and a copy of it."""
    top = tmp_path_factory.mktemp("office")
    place, kept = top / "place", top / "kept"
    place.mkdir()
    (place / "people.csv").write_text("home,work\n" + ROWS)
    with duckdb.connect(str(place / "people.duckdb")) as con:
        con.execute(f"CREATE TABLE people AS FROM read_csv('{place / 'people.csv'}')")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        release(Office(place).spec("first", "people.csv"))
    shutil.copytree(place, kept)
    return place, kept


@pytest.fixture
def office(_spent, monkeypatch):
    """Give the folder as it was when everything that its people can give had been spent; the store is open all the time."""
    place, kept = _spent
    shutil.rmtree(place)
    shutil.copytree(kept, place)
    monkeypatch.setenv("TRELLIS_HOME", str(place / "home"))
    with store():
        yield Office(place)
