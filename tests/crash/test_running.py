"""Who runs what: locks that end with their process, releases of a dataset in turn, crashes that are seen, walks that stop."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import flows.server.runs
import tasks.noise.truth
import tasks.tree.branches
from flows.execution.crashes import note_crashes
from flows.execution.reservation import new_release
from flows.mechanisms import MECHANISMS
from flows.planning.plan import Plan, make_plan
from flows.server.artifacts import Progress
from flows.server.runs import seen_alive, tell_prefect_of_crashes
from flows.spec.file import load_spec
from flows.walks.runner import report_nothing
from storage.database.connections import store
from storage.errors import HeldElsewhere, Interrupted, MadeAlready, UsageError
from storage.ledger.events import read_books
from storage.machine.claims import shard_folder
from storage.machine.home import home
from storage.machine.locks import ask_to_stop, held, holder_of, in_turn
from storage.releases.register import add_release, find_release, list_releases, set_state, state_of
from storage.releases.runs import open_run, open_runs
from storage.releases.seals import list_seals
from tasks.laws.law import Sampling
from tasks.laws.samplers import discrete_gaussian
from tasks.tree.axis import IntArray
from tests.support.draws import BRANCH_CELLS, BRANCHES, CHUNK_CELLS, Place, write_small
from tests.support.draws import read_books as read_release
from tests.support.laws import drawn_by
from tests.support.runs import finish, make

HOLD = """
import sys, time
from storage.machine.locks import held
with held(sys.argv[1], "a-run-of-prefect"):
    print("held", flush=True)
    time.sleep(600)
"""

# Holds, and starts a worker as `run: {workers: processes}` does; the worker outlives it.
HOLD_WITH_WORKER = """
import multiprocessing, sys, time
from storage.machine.locks import held

def work(seconds):
    time.sleep(seconds)

if __name__ == "__main__":
    with held(sys.argv[1]):
        worker = multiprocessing.get_context("spawn").Process(target=work, args=(600,))
        worker.start()
        print(worker.pid, flush=True)
        time.sleep(600)
"""

# Makes a release as soon as it is told to, and says when it came to ingest and to publish, and how it ended.
MAKE = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from flows.execution.driver import make_release
from flows.planning.plan import make_plan
from flows.execution.reservation import new_release
from flows.walks.runner import report_nothing
from flows.spec.file import load_spec
from storage.errors import BudgetExceeded

def submit(stage, *arguments):
    if stage.name in {"ingest", "publish"}:
        print(stage.name, time.time(), flush=True)
        time.sleep(0.3)
    return executor.submit(stage.fn, *arguments)

plan = make_plan(load_spec(Path(sys.argv[1])))
release = new_release(plan, release_id=sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
with ThreadPoolExecutor(1) as executor:
    try:
        make_release(plan, release, submit, report_nothing)
    except BudgetExceeded:
        print("refused", time.time())
"""


Children = list["subprocess.Popen[str]"]


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """Return the plan of a small country in which people travel between all municipalities."""
    return make_plan(load_spec(write_small(tmp_path / "small")))


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[str]]]:
    """Return a list of processes that are killed at the end."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for child in started:
        child.kill()
        child.communicate()


def start(children: Children, *command: str) -> "subprocess.Popen[str]":
    """Start a Python process whose lines can be read."""
    child = subprocess.Popen([sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    children.append(child)
    return child


def line_of(child: "subprocess.Popen[str]") -> str:
    """Return the next line that a process says."""
    assert child.stdout
    return child.stdout.readline().strip()


def holding(children: Children, name: str) -> "subprocess.Popen[str]":
    """Start a process that holds a lock."""
    child = start(children, "-c", HOLD, name)
    assert line_of(child) == "held"
    return child


def kill(child: "subprocess.Popen[str]") -> None:
    """Kill a process, and wait for its end."""
    child.kill()
    child.wait()


# locks ----------------------------------------------------------------------------------------------------------------


def test_a_lock_ends_with_its_process(children: Children) -> None:
    """While it lives its holder is named, and nobody else may have it; once it is killed anybody may."""
    child = holding(children, "small-1")
    holder = holder_of("small-1")
    assert holder
    assert (holder.process, holder.run) == (child.pid, "a-run-of-prefect")
    with pytest.raises(HeldElsewhere, match=f"small-1 is run by process {child.pid}"), held("small-1"):
        pass
    kill(child)
    assert (home() / "running" / "small-1.lock").exists()  # what is left of it counts for nothing
    assert holder_of("small-1") is None
    with held("small-1"):
        own = holder_of("small-1")
        assert own
        assert (own.process, own.run) == (os.getpid(), "")
        with pytest.raises(HeldElsewhere, match=str(os.getpid())), held("small-1"):  # once in a process, too
            pass
    assert list((home() / "running").iterdir()) == []


def test_a_lock_is_not_inherited_by_workers(children: Children, tmp_path: Path) -> None:
    """Where a process is killed whose worker lives on, the lock is free."""
    (tmp_path / "hold.py").write_text(HOLD_WITH_WORKER)
    child = start(children, str(tmp_path / "hold.py"), "small-1")
    worker = int(line_of(child))
    try:
        assert holder_of("small-1")
        kill(child)
        os.kill(worker, 0)  # it is alive
        assert holder_of("small-1") is None
        with held("small-1"):
            pass
    finally:
        os.kill(worker, signal.SIGKILL)


def test_whoever_waits_for_its_turn_is_told_who_is_ahead_and_can_be_stopped(
    children: Children,
) -> None:
    """After a second the process ahead is named once; what is raised meanwhile ends the wait."""
    child = holding(children, "dataset.jobs")
    told: list[str] = []
    times = iter(range(14))

    def going_on() -> None:
        if next(times, None) is None:
            raise Interrupted("It was interrupted.")

    with pytest.raises(Interrupted), in_turn("dataset.jobs", told.append, going_on):
        pass
    assert told == [str(child.pid)]
    kill(child)
    with in_turn("dataset.jobs", told.append, going_on):
        assert holder_of("dataset.jobs")


# releases -------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_two_releases_of_a_dataset_are_made_in_turn_and_the_cap_holds(children: Children, tmp_path: Path) -> None:
    """Begun at once by two processes, one begins after the other has ended; where only one fits, one is let in."""
    spec = write_small(tmp_path / "small")
    with store():
        pass  # so that neither has to make it
    both = [start(children, "-c", MAKE, str(spec), name) for name in ("one", "other")]
    assert [line_of(child) for child in both] == ["ready", "ready"]
    for child in both:
        assert child.stdin
        child.stdin.write("go\n")
        child.stdin.flush()
    said = [dict(line.split() for line in child.communicate(timeout=240)[0].splitlines()) for child in both]
    first, second = sorted(said, key=lambda moments: float(moments["ingest"]))
    assert (set(first), set(second)) == ({"ingest", "publish"}, {"ingest", "refused"})
    assert float(second["ingest"]) > float(first["publish"])
    with store() as con:
        account = read_books(con).accounts["small-country"]
        assert sorted(entry.state for entry in list_releases(con)) == ["published", "refused"]
    assert account.spent == account.terms.cap.rho
    assert len(account.claims) == 1


def test_a_release_that_another_run_has_made_meanwhile_is_left_as_it_is(plan: Plan) -> None:
    """Two that were begun alike, as by two triggers of a day: the later is told, and harms nothing; finishing does nothing."""
    with store() as con:
        first, second = new_release(plan, release_id="small-1"), new_release(plan, release_id="small-1")
        make(plan, first)
        seals, shards = measured("small-1"), sorted(shard_folder("small-1").iterdir())
        for state in ("published", "running", "failed"):  # the last two as if the first had come so far
            set_state(con, "small-1", state)
            for again in (first, second):
                with pytest.raises(MadeAlready, match="The store already has small-1"):
                    make(plan, again)
            assert state_of(con, "small-1") == state
        with pytest.raises(MadeAlready):  # its own spending is what leaves no room
            new_release(plan, release_id="small-1")
        assert state_of(con, "small-1") == "failed"
        assert sorted(shard_folder("small-1").iterdir()) == shards
        finish("small-1")
        assert state_of(con, "small-1") == "published"
        assert measured("small-1") == seals
        assert finish("small-1") == {}
        account = read_books(con).accounts["small-country"]
    assert account.spent == account.terms.cap.rho
    assert list((home() / "running").iterdir()) == []


@pytest.mark.thorough
def test_a_release_that_was_refused_meanwhile_is_made(plan: Plan) -> None:
    """Where the cap was raised between a refusal and a trigger that asked before, the refusal is forgotten."""
    with store() as con:
        made = new_release(plan, release_id="small-1")

        def around(stage: Any, arguments: tuple[Any, ...]) -> Any:
            if stage.name == "grow_tree":  # it is not reserved yet
                add_release(con, replace(made, state="refused"))
            return stage.fn(*arguments)

        make(plan, made, around)
        assert state_of(con, "small-1") == "published"


def test_a_dead_run_is_noted_and_a_living_one_is_left_alone(children: Children, plan: Plan) -> None:
    """What is called running and is held by nobody is failed once the next command looks, and only that."""
    with store() as con:
        make(plan, new_release(plan, release_id="small-1"))
        note_crashes()
        assert state_of(con, "small-1") == "published"
        for state in ("running", "reserved"):
            set_state(con, "small-1", state)
            child = holding(children, "small-1")
            note_crashes()
            assert state_of(con, "small-1") == state
            kill(child)
            note_crashes()
            dead = find_release(con, "small-1")
            assert (dead.state, dead.reason.partition(":")[0]) == ("failed", "It crashed")


def test_a_flow_run_is_alive_until_prefect_knows_its_end(children: Children, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that plans, or has failed just now, holds no release and is left alone while its process lives; then it is ended."""
    looked: list[str] = []
    monkeypatch.setattr(flows.server.runs, "_has_ended", lambda run, _: not looked.append(run))
    with store() as con:
        open_run(con, "a-run", "small-1")
        with seen_alive("a-run"):
            tell_prefect_of_crashes()
        child = holding(children, "a-run")
        tell_prefect_of_crashes()
        assert looked == []
        assert [(run, known.release_id) for run, known in open_runs(con).items()] == [("a-run", "small-1")]
        kill(child)
        tell_prefect_of_crashes()
        assert (looked, open_runs(con)) == (["a-run"], {})


# releases that are asked to stop --------------------------------------------------------------------------------------


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut small releases into branches and chunks."""
    monkeypatch.setattr(tasks.tree.branches, "BRANCH_CELLS", BRANCH_CELLS)
    monkeypatch.setattr(tasks.noise.truth, "CHUNK_CELLS", CHUNK_CELLS)


class StoppedAt:
    """A sampler that counts the cells that it draws, and asks the release to stop at a call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call: int) -> None:
        self.cells, self.calls, self.call = 0, 0, call
        monkeypatch.setitem(MECHANISMS, "inftda", drawn_by("inftda", {"opendp": Sampling(self.sample)}))

    def sample(self, true_counts: IntArray, scale: float) -> IntArray:
        """Draw."""
        self.calls += 1
        if self.calls == self.call:
            ask_to_stop("small-1")
        self.cells += len(true_counts)
        return discrete_gaussian(true_counts, scale)


def measured(release_id: str) -> dict[Place, str]:
    """Return what is sealed, by level and branch, having seen that the shard is what was sealed."""
    books = read_release(release_id)
    sealed = {place: seal.sha256 for place, seal in books.seals.items()}
    assert sealed.items() <= books.shards.items()
    return sealed


@pytest.mark.usefixtures("small_pieces")
def test_a_release_that_is_asked_to_stop_ends_at_its_next_chunk(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is sealed by then stays, what is being drawn reaches no shard, and going on draws only what is missing.

    What the UI is told of it counts the levels that are sealed, before anything is drawn; a stop that was asked for before
    meant the run before.
    """
    ask_to_stop("small-1")
    sampling = StoppedAt(monkeypatch, 5)
    shown: list[float] = []
    monkeypatch.setattr(Progress, "_update", lambda _, per_cent: shown.append(per_cent))
    with store() as con:
        release = new_release(plan, release_id="small-1")
        progress = Progress(release, report_nothing)
        assert progress.of_level == {}
        with pytest.raises(Interrupted, match="interrupted") as stopped:
            make(plan, release, report=progress, threads=1)
        assert "trellis rerun small-1" in stopped.value.hint
        before = measured("small-1")
        assert sampling.calls == 5  # the chunk that was being drawn is the last
        assert (state_of(con, "small-1"), find_release(con, "small-1").reason) == ("failed", "It was interrupted.")
        assert set(before) >= {(0, "trunk"), (1, "trunk"), (2, "trunk")}
        assert len(before) < 3 + 2 * len(BRANCHES)

        going_on = Progress(release, report_nothing)
        assert going_on.of_level == progress.of_level
        assert [going_on.of_level[level] for level in range(3)] == [1.0] * 3
        assert 0.0 < going_on.of_level[3] < 1.0
        sampling.cells = 0
        shown.clear()
        finish("small-1", report=going_on, threads=1)
        assert shown[0] > 100 * 3 / 5
        assert sum(going_on.of_level.values()) == 5.0
        assert state_of(con, "small-1") == "published"
        after = list_seals(con, "small-1")
    assert before.items() <= measured("small-1").items()
    assert sampling.cells == sum(seal.cells for place, seal in after.items() if place not in before)
    assert list((home() / "running").iterdir()) == []


@pytest.mark.thorough
@pytest.mark.usefixtures("small_pieces")
def test_one_branch_alone_is_finished_and_the_others_are_named(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its levels are drawn; the release is failed with the names of those that are missing, until the last is done."""
    sampling = StoppedAt(monkeypatch, 3)  # the first draw below the trunk
    with store() as con:
        with pytest.raises(Interrupted):
            make(plan, new_release(plan, release_id="small-1"), threads=1)
        assert set(measured("small-1")) <= {(level, "trunk") for level in range(3)} | {(3, "b00")}
        left = set(BRANCHES)
        for branch in ["b02", "b00", "b03", "b01"]:
            before = set(measured("small-1"))
            sampling.cells = 0
            finish("small-1", only=branch, threads=1)
            new = set(measured("small-1")) - before
            assert {of for _, of in new} == {branch}
            assert sampling.cells == sum(list_seals(con, "small-1")[place].cells for place in new)
            left.remove(branch)
            reason = f"Still missing: {', '.join(sorted(left))}." if left else ""
            now = find_release(con, "small-1")
            assert (now.state, now.reason) == ("failed" if left else "published", reason)
        with pytest.raises(UsageError, match="no branch b09; it has trunk, b00, b01, b02, b03"):
            finish("small-1", only="b09")
