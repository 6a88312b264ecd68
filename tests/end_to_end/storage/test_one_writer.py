"""One writer at a time: threads share an open store, and other processes wait for it and are told who holds it."""

import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from threading import Barrier, Thread

import pytest

from flows.cli import main as cli
from storage.counts.vault import vault
from storage.database import connections
from storage.database.connections import store, transaction
from storage.errors import StoreError
from storage.releases.seals import Seal, add_seal, list_seals

# Holds a file of TRELLIS_HOME, as somebody else's DuckDB does, until it is told to go.
HOLDER = """
import os, sys, duckdb
con = duckdb.connect(os.path.join(os.environ["TRELLIS_HOME"], sys.argv[1]))
print(os.getpid(), flush=True)
sys.stdin.readline()
con.close()
"""


@pytest.fixture(autouse=True)
def trellis_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a TRELLIS_HOME of its own, and a umask that opens files to everybody."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def hold(file: str) -> tuple["subprocess.Popen[str]", int]:
    """Start a process that holds a file, and return it with its id once it does."""
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout
    return child, int(child.stdout.readline())


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run work in so many threads that begin together; what one raises is raised here."""
    together = Barrier(count)

    def run(number: int) -> None:
        together.wait()
        work(number)

    with ThreadPoolExecutor(count) as executor:
        list(executor.map(run, range(count)))


def test_threads_share_the_store() -> None:
    """The first threads to open a store find it ready; what they add at once is all there, and others may open it then."""

    def seal(number: int) -> None:
        for level in range(3):
            with store() as con, transaction(con):
                add_seal(con, "one", Seal(level, f"b{number:02d}", "aa", number))

    in_threads(6, seal)
    with store() as con:
        assert set(list_seals(con, "one")) == {(level, f"b{number:02d}") for level in range(3) for number in range(6)}
    child, _ = hold("store.duckdb")
    child.communicate("go\n", timeout=240)
    assert child.returncode == 0


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
    child.communicate("go\n", timeout=240)
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
    stderr = StringIO()  # capfd would lose what is written while it is read
    monkeypatch.setattr(sys, "stderr", stderr)
    child, pid = hold("store.duckdb")
    began = time.monotonic()
    codes: list[int] = []
    command = Thread(target=lambda: codes.append(cli._run(["releases", "--json"])))
    command.start()
    while not stderr.getvalue().endswith("\n"):
        assert time.monotonic() - began < 240
        time.sleep(0.01)
    assert time.monotonic() - began > 1.0
    assert codes == []
    time.sleep(0.3)
    child.communicate("go\n", timeout=240)
    command.join(timeout=240)
    assert (codes, capfd.readouterr().out) == ([0], '{"releases": []}\n')
    assert stderr.getvalue() == f"Waiting for store.duckdb, held by process {pid}.\n"


def test_a_process_that_keeps_the_store_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever gives up waiting is told which process holds the store."""
    with store():
        pass
    monkeypatch.setattr(connections, "_GIVE_UP_AFTER", 0.0)
    child, pid = hold("store.duckdb")
    with pytest.raises(StoreError, match=f"process {pid} holds it"), store():
        pass
    child.communicate("go\n", timeout=240)
