"""Who runs what: locks that end with their process, releases of a dataset in turn, crashes that are seen, walks that stop."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import flows.server.runs
import tasks.noise.measure
import tasks.tree.branches
from flows.planning.plan import make_plan
from flows.run.crashes import note_crashes
from flows.run.reservation import new_release
from flows.server.runs import seen_alive, tell_prefect_of_crashes
from flows.specification.file import load_spec
from storage.database.connections import store
from storage.errors import HeldElsewhere, Interrupted, MadeAlready
from storage.ledger.events import read_books
from storage.machine.home import home, shard_folder
from storage.machine.locks import ask_to_stop, held, holder_of
from storage.releases.register import add_release, find_release, open_run, open_runs, set_state, state_of
from storage.releases.shards import list_shards
from tasks.laws.law import Sampling
from tasks.laws.samplers import discrete_gaussian
from tasks.mechanisms import MECHANISMS
from tests.support.draws import BRANCH_CELLS, BRANCHES, CHUNK_CELLS, write_small
from tests.support.draws import read_books as read_release
from tests.support.laws import drawn_by
from tests.support.runs import finish, make
from tests.support.up import until

# Holds a lock, and, if it is asked to, starts a worker as `run: {workers: processes}` does; the worker outlives it.
HOLD = """
import multiprocessing, sys, time
from storage.machine.locks import held
with held(sys.argv[1], "a-run-of-prefect"):
    worker = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    if sys.argv[2:]:
        worker.start()
    print(worker.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def plan(tmp_path):
    """Return the plan of a small country in which people travel between all municipalities."""
    return make_plan(load_spec(write_small(tmp_path / "small")))


@pytest.fixture
def children():
    """Return a list of processes that are killed at the end."""
    started = []
    yield started
    for child in started:
        child.kill()
        child.communicate()


def holding(children, name, *options):
    """Start a process that holds a lock."""
    child = subprocess.Popen([sys.executable, "-c", HOLD, name, *options], stdout=subprocess.PIPE, text=True)
    children.append(child)
    until(lambda: holder_of(name))
    return child


def kill(child):
    """Kill a process, and wait for its end."""
    child.kill()
    child.wait()


# locks ----------------------------------------------------------------------------------------------------------------


def test_a_lock_ends_with_its_process(children):
    """While it lives its holder is named, and nobody else may have it; once it is killed anybody may, though a worker of it lives on."""
    child = holding(children, "small-1", "with a worker")
    worker = int(child.stdout.readline())
    try:
        holder = holder_of("small-1")
        assert (holder.process, holder.run) == (child.pid, "a-run-of-prefect")
        with pytest.raises(HeldElsewhere, match=f"small-1 is run by process {child.pid}"), held("small-1"):
            pass
        kill(child)
        os.kill(worker, 0)  # it is alive
        assert (home() / "running" / "small-1.lock").exists()  # what is left of it counts for nothing
        assert holder_of("small-1") is None
        with held("small-1"):
            own = holder_of("small-1")
            assert (own.process, own.run) == (os.getpid(), "")
            with pytest.raises(HeldElsewhere, match=str(os.getpid())), held("small-1"):  # once in a process, too
                pass
        assert list((home() / "running").iterdir()) == []
    finally:
        os.kill(worker, signal.SIGKILL)


# releases -------------------------------------------------------------------------------------------------------------


def test_releases_of_a_dataset_are_made_in_turn(children, plan, capsys):
    """While another process has the turn of the dataset nothing is begun: who waits is told once, and can be stopped; then the release is made."""
    child, begun = holding(children, "dataset.small-country"), list[str]()

    def around(stage, arguments):
        begun.append(stage.name)
        return stage.fn(*arguments)

    with store() as con, ThreadPoolExecutor(1) as pool:
        for is_stopped in (True, False):
            made = pool.submit(make, plan, new_release(plan, release_id="small-1"), around)
            until(lambda: f"small-1 waits: process {child.pid} runs another" in capsys.readouterr().err)
            with pytest.raises(TimeoutError):
                made.result(2)
            assert (begun, capsys.readouterr().err) == ([], "")
            if is_stopped:
                ask_to_stop("small-1")
                with pytest.raises(Interrupted):
                    made.result(240)
        kill(child)
        made.result(240)
        assert begun[0] == "ingest"
        assert state_of(con, "small-1") == "published"


def test_a_release_that_another_run_has_made_meanwhile_is_left_as_it_is(plan):
    """Two that were begun alike, as by two triggers of a day: the later is told, and harms nothing; a refusal before is forgotten."""
    with store() as con:
        first, second = new_release(plan, release_id="small-1"), new_release(plan, release_id="small-1")

        def refused(stage, arguments):  # by a cap that was raised since
            if stage.name == "grow_tree":
                add_release(con, replace(first, state="refused"))
            return stage.fn(*arguments)

        make(plan, first, refused)
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


def test_a_dead_run_is_noted_and_a_living_one_is_left_alone(children, plan):
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


def test_a_flow_run_is_alive_until_prefect_knows_its_end(children, monkeypatch):
    """One that plans, or has failed just now, holds no release and is left alone while its process lives; then it is ended."""
    looked = []
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


def measured(release_id):
    """Return what is sealed, by level and branch, having seen that the shard is what was sealed."""
    books = read_release(release_id)
    sealed = {place: seal.sha256 for place, seal in books.seals.items()}
    assert sealed.items() <= books.shards.items()
    return sealed


def test_a_release_that_is_asked_to_stop_ends_at_its_next_chunk(plan, monkeypatch):
    """What is sealed by then stays, what is being drawn reaches no shard, and going on draws only what is missing."""
    # A stop that was asked for before meant the run before.
    monkeypatch.setattr(tasks.tree.branches, "BRANCH_CELLS", BRANCH_CELLS)
    monkeypatch.setattr(tasks.noise.measure, "CHUNK_CELLS", CHUNK_CELLS)
    drawn = list[int]()

    def sample(true_counts, scale):
        drawn.append(len(true_counts))
        if len(drawn) == 5:
            ask_to_stop("small-1")
        return discrete_gaussian(true_counts, scale)

    monkeypatch.setitem(MECHANISMS, "inftda", drawn_by("inftda", {"opendp": Sampling(sample)}))
    ask_to_stop("small-1")
    with store() as con:
        release = new_release(plan, release_id="small-1")
        with pytest.raises(Interrupted, match="interrupted") as stopped:
            make(plan, release, threads=1)
        assert "trellis rerun small-1" in stopped.value.hint
        before = measured("small-1")
        assert len(drawn) == 5  # the chunk that was being drawn is the last
        assert (state_of(con, "small-1"), find_release(con, "small-1").reason) == ("failed", "It was interrupted.")
        assert set(before) >= {(0, "trunk"), (1, "trunk"), (2, "trunk")}
        assert len(before) < 3 + 2 * len(BRANCHES)

        drawn[:] = [0] * 5  # so that no call is the fifth
        finish("small-1", threads=1)
        assert state_of(con, "small-1") == "published"
        after = list_shards(con, "small-1")["noisy"]
    assert before.items() <= measured("small-1").items()
    assert sum(drawn) == sum(seal.rows for place, seal in after.items() if place not in before)
    assert list((home() / "running").iterdir()) == []
