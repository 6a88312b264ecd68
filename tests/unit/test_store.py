"""The store: seals once, shards whole or absent, files closed to others, and one writer at a time."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from stat import S_IMODE
from tempfile import TemporaryDirectory
from threading import Barrier, Thread

import duckdb
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from flows.cli import main as cli
from storage.counts.shards import noisy_path, read_shard, write_codebook, write_shard
from storage.counts.vault import remove_vault, vault, vault_path
from storage.database import connections
from storage.database.connections import store, transaction
from storage.errors import SealedAlready, StoreError
from storage.ledger.events import head, note
from storage.machine.claims import shard_folder
from storage.machine.files import sha256_of
from storage.machine.home import home, subfolder
from storage.releases.seals import Seal, add_seal, list_seals

# Holds a file of TRELLIS_HOME, as somebody else's DuckDB does, until it is told to go.
HOLDER = """
import os, sys, duckdb
con = duckdb.connect(os.path.join(os.environ["TRELLIS_HOME"], sys.argv[1]))
print(os.getpid(), flush=True)
sys.stdin.readline()
con.close()
"""

# Brings the store to a second version, and is killed on the way: with a copy that is not finished, with one that is,
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

# A made-up second version of the store.
SECOND_STEP = """
ALTER TABLE releases ADD COLUMN remark VARCHAR DEFAULT 'none';
CREATE TABLE sealed_releases AS SELECT release_id, 'none' AS remark FROM seals;
"""

WHOLE_RANGE = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture(autouse=True)
def trellis_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a TRELLIS_HOME of its own, and a umask that opens files to everybody."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def _open_umask() -> Iterator[None]:
    """Let files be made for everybody to read, unless the code sees to it."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def hold(file: str) -> tuple["subprocess.Popen[str]", int]:
    """Start a process that holds a file, and return it with its id once it does."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout
    return child, int(child.stdout.readline())


def in_threads(count: int, work: Callable[[int], None]) -> list[BaseException]:
    """Run work in so many threads that begin together, and return what they raised."""
    together = Barrier(count)
    faults: list[BaseException] = []

    def run(number: int) -> None:
        together.wait()
        try:
            work(number)
        except BaseException as fault:  # noqa: BLE001 (the test looks at it)
            faults.append(fault)

    threads = [Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return faults


def row_groups_of(groups: list[list[int]]) -> list[dict[str, NDArray[np.int64]]]:
    """Return row groups of one column and its negation."""
    arrays = [np.array(group, dtype=np.int64) for group in groups]
    return [{"noisy": array, "flipped": ~array} for array in arrays]


def test_a_level_of_a_branch_is_sealed_once() -> None:
    """A second seal is SealedAlready and the first stays; other levels, branches and releases are sealed as they are."""
    seals = [Seal(1, "trunk", "aa", 4), Seal(2, "trunk", "bb", 8), Seal(2, "b00", "cc", 16)]
    with store() as con:
        for seal in seals:
            add_seal(con, "one", seal)
        add_seal(con, "other", seals[0])
        with pytest.raises(SealedAlready):
            add_seal(con, "one", Seal(2, "trunk", "dd", 8))
    with store() as con:
        assert list_seals(con, "one") == {(seal.level, seal.branch): seal for seal in seals}


def test_a_transaction_that_fails_seals_nothing() -> None:
    """Seals that are added together with one that is there already are all refused."""

    def add_both() -> None:
        with transaction(con):
            add_seal(con, "one", Seal(1, "b00", "bb", 4))
            add_seal(con, "one", Seal(1, "b01", "cc", 4))

    with store() as con:
        add_seal(con, "one", Seal(1, "b01", "aa", 4))
        with pytest.raises(SealedAlready):
            add_both()
        assert set(list_seals(con, "one")) == {(1, "b01")}


@given(st.lists(st.lists(WHOLE_RANGE, min_size=1, max_size=5), min_size=1, max_size=4))
def test_a_shard_reads_as_it_was_written(groups: list[list[int]]) -> None:
    """Integers of the whole range come back in their order, whatever the row groups, of which each is written."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "shard.parquet"
        sha256 = write_shard(path, ("noisy", "flipped"), iter(row_groups_of(groups)))
        columns = read_shard(path, sha256)
        assert list(columns) == ["noisy", "flipped"]
        assert columns["noisy"].dtype == np.int64
        assert columns["noisy"].tolist() == [count for group in groups for count in group]
        assert (columns["flipped"] == ~columns["noisy"]).all()
        assert pq.read_metadata(path).num_row_groups == len(groups)
        assert [file.name for file in Path(folder).iterdir()] == [path.name]


@given(st.data())
def test_a_shard_with_one_other_byte_is_refused(data: st.DataObject) -> None:
    """Any byte that is altered, missing or too many makes a shard not what was sealed, and it stays as it is."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "shard.parquet"
        sha256 = write_shard(path, ("noisy", "flipped"), row_groups_of([[1, 2], [3]]))
        whole = path.read_bytes()
        position = data.draw(st.integers(0, len(whole) - 1))
        other = bytes([whole[position] ^ data.draw(st.integers(1, 255))])
        altered = data.draw(
            st.sampled_from([whole[:position] + other + whole[position + 1 :], whole[:position], whole + other])
        )
        path.write_bytes(altered)
        with pytest.raises(StoreError, match=r"shard\.parquet is not what was sealed\."):
            read_shard(path, sha256)
        assert path.read_bytes() == altered


def test_a_missing_shard_is_refused(tmp_path: Path) -> None:
    """A shard that is not there is an error that says so, names the file and promises no new draw."""
    path = tmp_path / "shard.parquet"
    sha256 = write_shard(path, ("noisy", "flipped"), row_groups_of([[1]]))
    path.unlink()
    with pytest.raises(StoreError, match=r"shard\.parquet is missing\.") as refusal:
        read_shard(path, sha256)
    assert "never drawn again" in refusal.value.hint
    assert not path.exists()


def test_a_shard_that_is_not_finished_is_not_there(tmp_path: Path) -> None:
    """Where drawing stops halfway no shard appears, and one that was there is still whole."""

    def stopped() -> Iterator[dict[str, NDArray[np.int64]]]:
        yield from row_groups_of([[1, 2]])
        raise OSError("the sampler broke")

    path, earlier = tmp_path / "shard.parquet", tmp_path / "earlier.parquet"
    sha256 = write_shard(earlier, ("noisy", "flipped"), row_groups_of([[1]]))
    for place in (path, earlier):
        with pytest.raises(OSError, match="the sampler broke"):
            write_shard(place, ("noisy", "flipped"), stopped())
    assert list(tmp_path.iterdir()) == [earlier]
    assert sha256_of(earlier) == sha256


@pytest.mark.usefixtures("_open_umask")
def test_what_trellis_home_holds_is_closed_to_others(trellis_home: Path) -> None:
    """The folder itself is its owner's alone; so are its folders, the store and the vaults."""
    with store() as con, vault("one", read_only=False) as of_one:
        add_seal(con, "one", Seal(1, "trunk", "aa", 4))
        of_one.execute("CREATE TABLE true_level_0 AS SELECT 1 AS true_count")
    write_shard(noisy_path("one", 1, "trunk"), ("noisy", "flipped"), row_groups_of([[1]]))
    write_codebook("one", "origin", pl.DataFrame({"region": ["a"]}))
    modes = {str(path.relative_to(trellis_home)): S_IMODE(path.stat().st_mode) for path in trellis_home.rglob("*")}
    assert S_IMODE(trellis_home.stat().st_mode) == 0o700
    assert {"vault", "shards", "shards/one", "tmp", "store.duckdb", "vault/one.duckdb"} <= set(modes)
    for path, mode in modes.items():
        if (trellis_home / path).is_dir():
            assert mode == 0o700, path
        elif path.endswith(".duckdb"):
            assert mode == 0o600, path
    assert os.umask(0o022) == 0o022


def test_a_home_that_is_open_to_others_is_refused(trellis_home: Path) -> None:
    """A folder that others may look into is refused, and stays as it is: it may be somebody's for another purpose."""
    trellis_home.mkdir()
    trellis_home.chmod(0o755)
    with pytest.raises(StoreError, match="open to other users"), store():
        pass
    assert S_IMODE(trellis_home.stat().st_mode) == 0o755


def test_a_home_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A TRELLIS_HOME below a file, or below a folder that is not there, is refused with its path; nothing is made."""
    (tmp_path / "file").touch()
    for below in ("file", "gone"):
        monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / below / "home"))
        with pytest.raises(StoreError, match=str(tmp_path / below / "home")):
            home()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_forgetting_deletes_the_vault_and_its_log() -> None:
    """Nothing of a release's true counts is left once its vault is removed; another release's stays."""
    for release in ("one", "other"):
        with vault(release, read_only=False) as con:
            con.execute("CREATE TABLE true_level_0 AS SELECT 1 AS true_count")
    vault_path("one").with_name("one.duckdb.wal").touch()
    remove_vault("one")
    remove_vault("one")
    assert [path.name for path in subfolder("vault").iterdir()] == ["other.duckdb"]


def test_measuring_cannot_write_the_vault() -> None:
    """A vault that is opened as measuring opens it takes no change."""
    with vault("one", read_only=False) as con:
        con.execute("CREATE TABLE true_level_0 AS SELECT 1 AS true_count")
    with vault("one") as con, pytest.raises(duckdb.InvalidInputException, match="read-only"):
        con.execute("DELETE FROM true_level_0")


def test_threads_share_the_store() -> None:
    """What several threads add at once is all there, and the store is free for others afterwards."""

    def seal(number: int) -> None:
        for level in range(3):
            with store() as con, transaction(con):
                add_seal(con, "one", Seal(level, f"b{number:02d}", "aa", number))

    with store():
        pass
    assert in_threads(6, seal) == []
    with store() as con:
        assert set(list_seals(con, "one")) == {(level, f"b{number:02d}") for level in range(3) for number in range(6)}
    child, _ = hold("store.duckdb")
    child.communicate("go\n", timeout=60)
    assert child.returncode == 0


def test_threads_open_a_new_store_at_once() -> None:
    """The first threads to open a store find it ready, whichever of them makes its tables."""

    def list_nothing(number: int) -> None:
        with store() as con:
            assert list_seals(con, "one") == {}

    assert in_threads(6, list_nothing) == []


@pytest.mark.parametrize("file", ["store.duckdb", "vault/one.duckdb"])
def test_a_file_that_another_process_holds_is_waited_for(file: str) -> None:
    """While another process holds the store or a vault it is not opened, and it is once that process lets go."""
    with store() as con, vault("one", read_only=False):
        add_seal(con, "one", Seal(1, "trunk", "aa", 4))
    opened: list[str] = []

    def wait_for_it() -> None:
        with store() if file == "store.duckdb" else vault("one"):
            opened.append(file)

    child, _ = hold(file)
    waiting = Thread(target=wait_for_it)
    waiting.start()
    waiting.join(timeout=0.3)
    assert opened == []
    child.communicate("go\n", timeout=60)
    waiting.join()
    assert opened == [file]


def test_a_command_that_waits_says_who_holds_the_store(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It names the process once, while it waits and not before its time, and answers as soon as that one lets go."""
    with store():
        pass
    assert connections._SAY_WHO_HOLDS_IT_AFTER == 10.0
    monkeypatch.setattr(connections, "_SAY_WHO_HOLDS_IT_AFTER", 1.0)
    child, pid = hold("store.duckdb")
    began, told = time.monotonic(), ""
    codes: list[int] = []
    command = Thread(target=lambda: codes.append(cli._run(["releases", "--json"])))
    command.start()
    while not told.endswith("\n"):
        assert time.monotonic() - began < 60
        told += capfd.readouterr().err
    assert time.monotonic() - began > 1.0
    assert (told, codes) == (f"Waiting for store.duckdb, held by process {pid}.\n", [])
    time.sleep(0.3)
    child.communicate("go\n", timeout=60)
    command.join(timeout=60)
    assert (codes, capfd.readouterr()) == ([0], ('{"releases": []}\n', ""))


def test_a_process_that_keeps_the_store_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever gives up waiting is told which process holds the store."""
    with store():
        pass
    monkeypatch.setattr(connections, "_GIVE_UP_AFTER", 0.0)
    child, pid = hold("store.duckdb")
    with pytest.raises(StoreError, match=f"process {pid} holds it"), store():
        pass
    child.communicate("go\n", timeout=60)


def test_a_store_of_a_newer_version_is_refused() -> None:
    """A store that a newer Trellis wrote is not opened, and stays as it is."""
    with store() as con:
        con.execute("INSERT INTO migrations VALUES (999, now()::TIMESTAMP)")
    with pytest.raises(StoreError, match="version 999"), store():
        pass
    with duckdb.connect(str(home() / "store.duckdb"), read_only=True) as con:
        assert con.execute("SELECT max(version) FROM migrations").fetchall() == [(999,)]


def test_a_step_that_fails_leaves_the_version_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step and its record are one transaction: a step that fails midway is undone, and runs once it can."""
    with store() as con:
        add_seal(con, "one", Seal(1, "trunk", "aa", 4))
    first = connections.STEPS
    monkeypatch.setattr(connections, "STEPS", (*first, "CREATE TABLE later (a INTEGER); SELECT nonsense"))
    with pytest.raises(StoreError) as refusal, store():
        pass
    assert str(refusal.value) == "The store cannot be brought from version 1 to 2 (BinderException)."
    assert str(backup_path(1)) in refusal.value.hint
    assert versions(backup_path(1)) == versions(home() / "store.duckdb") == [1]
    monkeypatch.setattr(connections, "STEPS", (*first, "CREATE TABLE later (a INTEGER)"))
    for _ in range(2):
        with store() as con:
            assert con.execute("SELECT count(*) FROM later").fetchall() == [(0,)]
            assert con.execute("SELECT max(version) FROM migrations").fetchall() == [(2,)]
            assert set(list_seals(con, "one")) == {(1, "trunk")}


def backup_path(version: int) -> Path:
    """Return where the copy of a store of an older version is."""
    return home() / f"store.duckdb.version-{version}.backup"


def versions(path: Path) -> list[int]:
    """Return the steps that a store has taken, by opening it as it is."""
    with duckdb.connect(str(path), read_only=True) as con:
        return [row[0] for row in con.execute("SELECT version FROM migrations ORDER BY version").fetchall()]


def contents(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return the columns and the rows of each table of a store, by opening it as it is."""
    with duckdb.connect(str(path), read_only=True) as con:
        tables = con.execute("SELECT schema_name, table_name, sql FROM duckdb_tables() ORDER BY ALL").fetchall()
        rows = [con.execute(f'FROM "{schema}"."{table}" ORDER BY ALL').fetchall() for schema, table, _ in tables]
    return {sql: of_table for (_, _, sql), of_table in zip(tables, rows, strict=True)}


def write_first_version() -> None:
    """Write a store of the first version, with a seal, an event of the ledger and a published table."""
    with store() as con:
        add_seal(con, "old", Seal(1, "trunk", "aa", 4))
        note(con, "vault deleted", "old")
        con.execute('CREATE SCHEMA "old"')
        con.execute('CREATE TABLE "old".level_0 AS SELECT 7 AS count')


@pytest.fixture
def _second_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a store of the first version, and let Trellis have a made-up second one, which reads and changes tables."""
    write_first_version()
    monkeypatch.setattr(connections, "STEPS", (*connections.STEPS, SECOND_STEP))


def assert_second_version() -> None:
    """Check that the store has the second version, with all that it held in the first."""
    with store() as con:
        assert con.execute("SELECT version FROM migrations ORDER BY version").fetchall() == [(1,), (2,)]
        assert con.execute("SELECT release_id, remark FROM sealed_releases").fetchall() == [("old", "none")]
        assert list_seals(con, "old") == {(1, "trunk"): Seal(1, "trunk", "aa", 4)}
        assert head(con).length == 1
        assert con.execute('FROM "old".level_0').fetchall() == [(7,)]


@pytest.mark.usefixtures("_open_umask", "_second_version")
def test_an_old_store_is_copied_before_it_is_changed(trellis_home: Path) -> None:
    """A copy of an old store, table by table what it was and closed to others, lies beside it once; a new one has none."""
    assert not backup_path(1).exists()
    before = contents(trellis_home / "store.duckdb")
    assert_second_version()
    copy = backup_path(1).stat().st_mtime_ns
    assert_second_version()
    assert contents(backup_path(1)) == before
    assert versions(backup_path(1)) == [1]
    assert S_IMODE(backup_path(1).stat().st_mode) == 0o600
    assert backup_path(1).stat().st_mtime_ns == copy
    files = {path.name for path in trellis_home.iterdir() if path.is_file()}
    assert files == {"store.duckdb", "store.duckdb.version-1.backup"}


@pytest.mark.usefixtures("_second_version")
def test_the_copy_of_an_old_store_is_a_store(trellis_home: Path) -> None:
    """What was copied before a step can be put back in its place and is brought to this version again."""
    assert_second_version()
    backup_path(1).replace(trellis_home / "store.duckdb")
    assert_second_version()
    with store() as con, pytest.raises(SealedAlready):
        add_seal(con, "old", Seal(1, "trunk", "bb", 4))


def test_a_new_store_takes_every_step_and_needs_no_copy(monkeypatch: pytest.MonkeyPatch, trellis_home: Path) -> None:
    """A store that is created has the last version, as if it had been brought there."""
    monkeypatch.setattr(connections, "STEPS", (*connections.STEPS, SECOND_STEP))
    with store() as con:
        assert con.execute("SELECT count(*) FROM sealed_releases").fetchall() == [(0,)]
    assert versions(trellis_home / "store.duckdb") == [1, 2]
    assert not backup_path(1).exists()


@pytest.mark.usefixtures("_second_version")
def test_a_store_stays_locked_while_it_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other process opens a store between its copy and the end of its steps."""
    other = f"import duckdb; duckdb.connect({str(home() / 'store.duckdb')!r})"
    refused = []
    back_up = connections._back_up

    def and_look(con: connections.Connection, version: int) -> Path:
        copy = back_up(con, version)
        refused.append(subprocess.run([sys.executable, "-c", other], capture_output=True, text=True).stderr)
        return copy

    monkeypatch.setattr(connections, "_back_up", and_look)
    assert_second_version()
    assert len(refused) == 1
    assert "Could not set lock" in refused[0]


@pytest.mark.usefixtures("_second_version")
@pytest.mark.parametrize("moment", ["copying", "copied", "uncommitted"])
def test_a_store_whose_steps_were_killed_is_as_it_was(moment: str, trellis_home: Path) -> None:
    """After SIGKILL an old store is still one of its version, and the next who opens it brings it to this one."""
    before = contents(trellis_home / "store.duckdb")
    child = subprocess.run([sys.executable, "-c", MIGRANT, moment, SECOND_STEP])
    assert child.returncode == -signal.SIGKILL
    assert backup_path(1).exists() == (moment != "copying")
    assert bool(list(trellis_home.glob("*.partial"))) == (moment == "copying")
    assert contents(trellis_home / "store.duckdb") == before
    assert_second_version()
    assert contents(backup_path(1)) == before
    assert list(trellis_home.glob("*.partial*")) == []


@pytest.mark.parametrize("killed", [False, True])
def test_what_a_vault_spills_lies_beside_it_and_goes_with_it(killed: bool) -> None:
    """Memory that does not suffice spills into the vault's own folder, closed to others, and nowhere else."""
    with vault("one", read_only=False) as con:
        con.execute("SET memory_limit = '40MB'")
        con.execute("SET threads = 1")
        con.execute("CREATE TEMP TABLE confidential AS SELECT hash(i) AS a, hash(i + 1) AS b FROM range(6000000) t(i)")
        spilled = {path.parent for path in home().rglob("*") if path.is_file() and "duckdb_temp" in path.name}
        assert spilled == {vault_path("one").with_name("one.duckdb.tmp")}
        assert S_IMODE(vault_path("one").parent.stat().st_mode) == 0o700
    if killed:  # DuckDB removes its folder when it is closed, which a killed process does not do
        left = vault_path("one").with_name("one.duckdb.tmp")
        left.mkdir(exist_ok=True)
        (left / "duckdb_temp_storage-0.tmp").write_bytes(b"confidential")
    remove_vault("one")
    assert list(vault_path("one").parent.iterdir()) == []


def test_shards_of_two_releases_lie_apart() -> None:
    """Each level of each branch of each release has a place of its own."""
    places = {
        noisy_path(release, level, branch)
        for release in ("one", "other")
        for level in (1, 11)
        for branch in ("trunk", "b00", "b01")
    }
    assert len(places) == 12
    assert {place.parent for place in places} == {shard_folder("one"), shard_folder("other")}
