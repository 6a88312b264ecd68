"""A store of an older version: copied, brought to this version in one transaction, and left as it was where that fails."""

import os
import signal
import subprocess
import sys
from stat import S_IMODE

import duckdb
import pytest

from storage.database import connections
from storage.database.connections import store
from storage.errors import SealedAlready, StoreError
from storage.ledger.events import head, note
from storage.machine.home import home
from storage.releases.shards import Shard, add_shard, list_shards

# Brings the store to a further version, and is killed on the way: with a copy that is not finished, with one that is,
# or with a step that is not committed.
MIGRANT = """
import os, signal, sys
from contextlib import contextmanager
from storage.database import connections

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

@contextmanager
def uncommitted(con):
    con.execute("BEGIN")
    yield
    killed()

connections.STEPS += (sys.argv[2],)
if sys.argv[1] == "copying":
    connections.replace = killed
elif sys.argv[1] == "copied":
    connections._all_or_nothing = killed
else:
    connections._all_or_nothing = uncommitted
with connections.store():
    pass
"""


NOW = len(connections.STEPS)  # the version of a new store

# A made-up version after it.
SECOND_STEP = """
ALTER TABLE releases ADD COLUMN remark VARCHAR DEFAULT 'none';
CREATE TABLE sealed_releases AS SELECT release_id, 'none' AS remark FROM seals;
"""


@pytest.fixture(autouse=True)
def trellis_home(tmp_path, own_home):
    """Give each test a TRELLIS_HOME of its own, and a umask that lets files be made for everybody to read."""
    before = os.umask(0o022)
    yield tmp_path / "home"
    os.umask(before)


def test_a_store_of_a_newer_version_is_refused():
    """A store that a newer Trellis wrote is not opened, and stays as it is."""
    with store() as con:
        con.execute("INSERT INTO migrations VALUES (999, now()::TIMESTAMP)")
    with pytest.raises(StoreError, match="version 999"), store():
        pass
    assert versions(home() / "store.duckdb")[-1] == 999


def test_a_step_that_fails_leaves_the_version_before(monkeypatch):
    """A step and its record are one transaction: a step that fails midway is undone, and runs once it can."""
    with store() as con:
        add_shard(con, "one", Shard("noisy", 1, "trunk", "aa", 4))
    first = connections.STEPS
    monkeypatch.setattr(connections, "STEPS", (*first, "CREATE TABLE later (a INTEGER); SELECT nonsense"))
    with pytest.raises(StoreError) as refusal, store():
        pass
    assert str(refusal.value) == f"The store cannot be brought from version {NOW} to {NOW + 1} (BinderException)."
    assert str(backup_path(NOW)) in refusal.value.hint
    assert versions(backup_path(NOW)) == versions(home() / "store.duckdb") == [*range(1, NOW + 1)]
    monkeypatch.setattr(connections, "STEPS", (*first, "CREATE TABLE later (a INTEGER)"))
    for _ in range(2):
        with store() as con:
            assert con.execute("SELECT count(*) FROM later").fetchall() == [(0,)]
            assert set(list_shards(con, "one")["noisy"]) == {(1, "trunk")}
    assert versions(home() / "store.duckdb") == [*range(1, NOW + 2)]


def backup_path(version):
    """Return where the copy of a store of an older version is."""
    return home() / f"store.duckdb.version-{version}.backup"


def versions(path):
    """Return the steps that a store has taken, by opening it as it is."""
    with duckdb.connect(str(path), read_only=True) as con:
        return [row[0] for row in con.execute("SELECT version FROM migrations ORDER BY version").fetchall()]


def contents(path):
    """Return the columns and the rows of each table of a store, by opening it as it is."""
    with duckdb.connect(str(path), read_only=True) as con:
        tables = con.execute("SELECT schema_name, table_name, sql FROM duckdb_tables() ORDER BY ALL").fetchall()
        rows = [con.execute(f'FROM "{schema}"."{table}" ORDER BY ALL').fetchall() for schema, table, _ in tables]
    return {sql: of_table for (_, _, sql), of_table in zip(tables, rows, strict=True)}


@pytest.fixture
def _second_version(monkeypatch):
    """Write a store of the first version, with a seal, an event and a published table, and let Trellis have a made-up second one."""
    with store() as con:
        add_shard(con, "old", Shard("noisy", 1, "trunk", "aa", 4))
        note(con, "vault deleted", "old")
        con.execute('CREATE SCHEMA "old"')
        con.execute('CREATE TABLE "old".level_0 AS SELECT 7 AS count')
    monkeypatch.setattr(connections, "STEPS", (*connections.STEPS, SECOND_STEP))


def assert_second_version():
    """Check that the store has the second version, with all that it held in the first."""
    with store() as con:
        assert con.execute("SELECT release_id, remark FROM sealed_releases").fetchall() == [("old", "none")]
        assert list_shards(con, "old")["noisy"] == {(1, "trunk"): Shard("noisy", 1, "trunk", "aa", 4)}
        assert head(con).length == 1
        assert con.execute('FROM "old".level_0').fetchall() == [(7,)]
    assert versions(home() / "store.duckdb") == [*range(1, NOW + 2)]


@pytest.mark.usefixtures("_second_version")
def test_an_old_store_is_copied_before_it_is_changed(trellis_home):
    """A copy of an old store, table by table what it was and closed to others, lies beside it once, and is a store itself."""
    assert not backup_path(NOW).exists()
    before = contents(trellis_home / "store.duckdb")
    assert_second_version()
    copy = backup_path(NOW).stat().st_mtime_ns
    assert_second_version()
    assert contents(backup_path(NOW)) == before
    assert versions(backup_path(NOW)) == [*range(1, NOW + 1)]
    assert S_IMODE(backup_path(NOW).stat().st_mode) == 0o600
    assert backup_path(NOW).stat().st_mtime_ns == copy
    files = {path.name for path in trellis_home.iterdir() if path.is_file()}
    assert files == {"store.duckdb", f"store.duckdb.version-{NOW}.backup"}
    backup_path(NOW).replace(trellis_home / "store.duckdb")  # it can be put back, and is brought here again
    assert_second_version()
    with store() as con, pytest.raises(SealedAlready):
        add_shard(con, "old", Shard("noisy", 1, "trunk", "bb", 4))


@pytest.mark.usefixtures("_second_version")
def test_a_store_stays_locked_while_it_is_copied(monkeypatch):
    """No other process opens a store between its copy and the end of its steps."""
    other = f"import duckdb; duckdb.connect({str(home() / 'store.duckdb')!r})"
    refused, back_up = list[str](), connections._back_up

    def and_look(con, version):
        copy = back_up(con, version)
        refused.append(subprocess.run([sys.executable, "-c", other], capture_output=True, text=True).stderr)
        return copy

    monkeypatch.setattr(connections, "_back_up", and_look)
    assert_second_version()
    assert ["Could not set lock" in said for said in refused] == [True]


@pytest.mark.usefixtures("_second_version")
@pytest.mark.parametrize("moment", ["copying", "copied", "uncommitted"])
def test_a_store_whose_steps_were_killed_is_as_it_was(moment, trellis_home):
    """After SIGKILL an old store is still one of its version, and the next who opens it brings it to this one."""
    before = contents(trellis_home / "store.duckdb")
    child = subprocess.run([sys.executable, "-c", MIGRANT, moment, SECOND_STEP])
    assert child.returncode == -signal.SIGKILL
    assert backup_path(NOW).exists() == (moment != "copying")
    assert bool(list(trellis_home.glob("*.partial"))) == (moment == "copying")
    assert contents(trellis_home / "store.duckdb") == before
    assert_second_version()
    assert contents(backup_path(NOW)) == before
    assert list(trellis_home.glob("*.partial*")) == []
