"""One writer at a time: threads share an open store, other processes wait for it, and of two that reserve at once one is let in."""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from threading import Barrier, Thread

import pytest

from flows.answers.release_status import releases_answer
from flows.api import plan
from flows.cli import main as cli
from flows.cli.arguments import json_object
from storage.counts.vault import vault
from storage.database import connections
from storage.database.connections import store, transaction
from storage.errors import StoreError
from storage.ledger.events import read_books
from storage.releases.shards import Shard, add_shard, list_shards
from tests.support.ledger import cap_at, read_chain
from tests.support.office import ROWS, Office
from tests.support.processes import at_once

pytestmark = pytest.mark.usefixtures("own_home")

# Holds a file of TRELLIS_HOME, as somebody else's DuckDB does, until it is told to go.
HOLDER = """
import os, sys, duckdb
con = duckdb.connect(os.path.join(os.environ["TRELLIS_HOME"], sys.argv[1]))
print(os.getpid(), flush=True)
sys.stdin.readline()
con.close()
"""


def hold(file):
    """Start a process that holds a file, and return it with its id once it does."""
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", HOLDER, file], stdin=pipe, stdout=pipe, text=True)
    return child, int(child.stdout.readline())


def test_threads_share_the_store():
    """The first threads to open a store find it ready; what they add at once is all there, and others may open it then."""
    together = Barrier(6)

    def seal(number):
        together.wait()
        for level in range(3):
            with store() as con, transaction(con):
                add_shard(con, "one", Shard("noisy", level, f"b{number:02d}", "aa", number))

    with ThreadPoolExecutor(6) as executor:
        list(executor.map(seal, range(6)))
    with store() as con:
        every = {(level, f"b{number:02d}") for level in range(3) for number in range(6)}
        assert set(list_shards(con, "one")["noisy"]) == every
    child, _ = hold("store.duckdb")
    child.communicate("go\n", timeout=240)
    assert child.returncode == 0


@pytest.mark.parametrize("file", ["store.duckdb", "vault/one.duckdb"])
def test_a_file_that_another_process_holds_is_waited_for(file):
    """While another process holds the store or a vault it is not opened, and it is once that process lets go."""
    with store() as con, vault("one", read_only=False):
        add_shard(con, "one", Shard("noisy", 1, "trunk", "aa", 4))
    opened = []

    def wait_for_it():
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


def test_a_command_that_waits_says_who_holds_the_store(monkeypatch, capfd):
    """It names the process once, while it waits, and answers as soon as that one lets go; who gives up is told which it is."""
    with store():
        pass
    monkeypatch.setattr(connections, "_SAY_WHO_HOLDS_IT_AFTER", 1.0)
    stderr = StringIO()  # capfd would lose what is written while it is read
    monkeypatch.setattr(sys, "stderr", stderr)
    child, pid = hold("store.duckdb")
    with monkeypatch.context() as patch:
        patch.setattr(connections, "_GIVE_UP_AFTER", 0.0)
        with pytest.raises(StoreError, match=f"process {pid} holds it"), store():
            pass
    began, codes = time.monotonic(), list[int]()
    command = Thread(target=lambda: codes.append(cli._run(["releases", "--json"])))
    command.start()
    while not stderr.getvalue().endswith("\n"):
        assert time.monotonic() - began < 240
        time.sleep(0.01)
    assert (time.monotonic() - began > 1.0, codes) == (True, [])
    time.sleep(0.3)
    child.communicate("go\n", timeout=240)
    command.join(timeout=240)
    assert (codes, capfd.readouterr().out) == ([0], '{"releases": []}\n')
    assert stderr.getvalue() == f"Waiting for store.duckdb, held by process {pid}.\n"


# Tries in two threads to reserve two thirds of each dataset's cap once it is told to, and says how that went.
RESERVING = """
import sys
from concurrent.futures import ThreadPoolExecutor
import duckdb
from flows.planning.budget import reserve
from storage.database.connections import store, transaction
from storage.errors import BudgetExceeded
from tests.support.ledger import asked_of, cap_at, reservation_of

def tried(thread):
    asked = asked_of(dataset, cap_at(1.0))
    try:
        with store() as con, transaction(con):
            reserve(con, reservation_of(f"{dataset}-{sys.argv[1]}-{thread}", asked, [cap_at(1.0).rho * 2 / 3]))
        return "reserved"
    except (BudgetExceeded, duckdb.TransactionException):
        return "refused"

print("ready", flush=True)
sys.stdin.readline()
for dataset in sys.argv[2:]:
    with ThreadPoolExecutor(2) as threads:
        print(",".join(sorted(threads.map(tried, "ab"))))
"""


# Passes the first look at the approval, and reserves once it is told to; says how that went.
APPROVED = """
import sys
from dataclasses import replace
from pathlib import Path
from flows.run.reservation import new_release, reserve_release
from flows.planning.plan import make_plan
from flows.specification.file import load_spec
from storage.errors import BudgetNotAsApproved
from storage.releases.approvals import read_approved_plan

plans = [
    replace(make_plan(load_spec(Path(spec))), approved=read_approved_plan(Path(spec).with_suffix(".json")))
    for spec in sys.argv[1:]
]
made = [new_release(plan) for plan in plans]
print("ready", flush=True)
sys.stdin.readline()
for plan, release in zip(plans, made):
    try:
        reserve_release(release, plan)
        print("reserved")
    except BudgetNotAsApproved:
        print("refused")
"""


def test_of_two_processes_that_reserve_at_once_one_is_refused():
    """Where the cap allows one of four releases, exactly one fits, dataset after dataset, whichever thread or process comes first."""
    datasets = [f"d{number}" for number in range(6)]
    said = at_once(RESERVING, ["one", *datasets], ["other", *datasets])
    answers = [sorted(answers) for answers in zip(*said, strict=True)]
    assert answers == [["refused,refused", "refused,reserved"]] * len(datasets)
    with store() as con:
        spent = {name: account.spent for name, account in read_books(con).accounts.items()}
        assert spent == dict.fromkeys(datasets, cap_at(1.0).rho * 2 / 3)
        assert len(read_chain(con)) == 2 * len(datasets)


@pytest.mark.thorough
@pytest.mark.heavy("two processes plan three releases each")
def test_two_processes_do_not_both_pass_on_one_approval(tmp_path):
    """The cap has room for both, and both had passed the first look: one reserves, and to the other the budget is not as approved."""
    office, specs = Office(tmp_path), list[str]()
    for number in range(3):
        (tmp_path / f"people{number}.csv").write_text("home,work\n" + ROWS + f"a0,b{number % 3}\n" * number)
        spec = office.spec(f"people{number}", f"people{number}.csv", budget={"epsilon": 5.0, "delta": 1e-6})
        spec.with_suffix(".json").write_text(json.dumps(json_object(plan(spec))))
        specs.append(str(spec))
    said = at_once(APPROVED, specs, specs)
    assert [sorted(answers) for answers in zip(*said, strict=True)] == [["refused", "reserved"]] * len(specs)
    with store() as con:
        books = read_books(con)
        assert con.execute("SELECT count(*) FROM approvals").fetchall() == [(len(specs),)]
    assert {len(account.claims) for account in books.accounts.values()} == {1}
    states = sorted(listed.state for listed in releases_answer().releases)
    assert set(states) <= {"reserved", "failed", "refused"}
    assert states.count("refused") == len(specs)
