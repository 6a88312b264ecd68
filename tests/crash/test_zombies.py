"""Workers in processes of their own, whose program this file is too: they make a release, are lost and come back, and end; what is sealed stays."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from itertools import count
from pathlib import Path

import numpy as np
import pytest

import tasks.noise.measure
import tasks.optimize.task
import tasks.tree.branches
from flows.answers.audit import audit_answer
from flows.cluster.processes import Processes, in_processes
from flows.planning.plan import make_plan
from flows.run.ending import clean
from flows.run.reservation import new_release
from flows.specification.file import load_spec
from storage.counts.shard_files import noisy_path
from storage.database.connections import store
from storage.errors import InputError, WorkerLost
from storage.machine.files import sha256_of
from storage.releases.register import find_release, state_of
from tasks.folder.verify.folder import verify
from tasks.laws.law import Sampling
from tasks.laws.samplers import discrete_gaussian
from tasks.mechanisms import MECHANISMS
from tasks.steps import STAGES
from tasks.work.order import Order
from tasks.work.stage import running_remotely
from tests.support.draws import BRANCH_CELLS, CHUNK_CELLS, place_of, read_books, write_small
from tests.support.laws import drawn_by
from tests.support.processes import look
from tests.support.runs import make
from tests.support.up import until
from tests.support.user import REPOSITORY

pytestmark = [pytest.mark.thorough, pytest.mark.heavy("processes import what they need")]
PLACE = (4, "b01")

# Waits until a worker has begun, says which processes there are, and waits to be killed.
PARENT = """
import os, sys, time
from flows.cluster.processes import in_processes
with in_processes() as processes:
    print(processes.workers.submit(os.getpid).result(), flush=True)
    time.sleep(600)
"""


@pytest.fixture
def in_branches(tmp_path, monkeypatch):
    """Return the plan of a small country that is walked in branches, in parts."""
    monkeypatch.setattr(tasks.tree.branches, "BRANCH_CELLS", BRANCH_CELLS)
    for module in (tasks.noise.measure, tasks.optimize.task):
        monkeypatch.setattr(module, "CHUNK_CELLS", CHUNK_CELLS)
    return make_plan(load_spec(write_small(tmp_path / "small")))


class Zombie:
    """Carries out the first turn of a place in a worker that stops halfway; everything else is taken at home."""

    memory: None = None
    branches: None = None

    def __init__(self):
        self.width = 2
        self.worker = None

    def takes(self, order):
        """Return whether it is the first turn of the place."""
        return (order.kind, order.level, order.branch, self.worker) == ("measure", *PLACE, None)

    def run(self, order):
        """Begin a worker, and lose it once it has stopped."""
        command = [sys.executable, "-m", "tests.crash.test_zombies", order.to_json()]
        self.worker = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(REPOSITORY)})
        _, status = os.waitpid(self.worker.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        raise WorkerLost("It does not answer.")

    def wake(self):
        """Let the worker go on, and return its exit code."""
        self.worker.send_signal(signal.SIGCONT)
        return self.worker.wait(120)


def work(said):
    """Carry out an order, and stop at the second call of the sampler, when the shard is open and has a part."""
    calls = count(1)

    def sample(true_counts, scale):
        if next(calls) == 2:
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(1)  # the stop is not immediate: without a pause, this thread might write on
        return np.asarray(discrete_gaussian(true_counts, scale))

    MECHANISMS["inftda"] = drawn_by("inftda", {"opendp": Sampling(sample)})
    tasks.noise.measure.CHUNK_CELLS = CHUNK_CELLS
    order = Order.from_json(said)
    STAGES[order.kind].fn(order)


def made_with(zombie, plan, release_id, *, wakes=True):
    """Make a release, and wake the zombie once another turn of its place is sealed; return how it has ended."""
    codes = list[int]()

    def around(stage, arguments):
        if wakes and stage.name == "repair" and place_of(arguments) == PLACE:
            codes.append(zombie.wake())
        return stage.fn(*arguments)

    with running_remotely(zombie):
        make(plan, new_release(plan, release_id=release_id), around)
    return codes


def test_a_worker_that_wakes_after_the_seal_changes_nothing(in_branches):
    """Stopped with its shard open and given up, it writes on when the next turn is sealed: in a file that nobody reads."""
    assert made_with(Zombie(), in_branches, "woken") == [0]
    books = read_books("woken")
    assert books.turns == {place: ["closed"] for place in books.seals} | {PLACE: ["given up", "closed"]}
    seal = books.seals[PLACE]
    assert (seal.turn, sha256_of(noisy_path("woken", *PLACE, 1))) == (1, seal.sha256)
    assert not noisy_path("woken", *PLACE).exists()
    assert_whole("woken")


def assert_whole(release_id):
    """Check a published folder, and the store."""
    with store() as con:
        assert verify(Path(find_release(con, release_id).folder)) == []
    assert audit_answer().ok


def test_what_a_worker_leaves_after_the_end_is_swept(in_branches):
    """Woken when the release is published, it finds its file gone, and leaves none; `clean` removes a shard that came last."""
    zombie = Zombie()
    made_with(zombie, in_branches, "late", wakes=False)
    there, left = read_books("late").shards, noisy_path("late", *PLACE)
    assert zombie.wake() == 1
    assert [path for path in left.parent.iterdir() if path.name.startswith(left.stem)] == []
    left.write_bytes(b"whoever reads this fails")
    clean()
    assert not left.exists()
    assert read_books("late").shards == there
    assert audit_answer().ok


class Killing(Processes):
    """Processes of which one is killed when it is to measure a place for the first time."""

    def __init__(self, width):
        super().__init__(width)
        self.has_killed = False

    def run(self, order):
        """Carry out an order, once a process has been killed."""
        if order.kind == "measure" and (order.level, order.branch) == PLACE and not self.has_killed:
            self.has_killed, workers = True, self.workers
            os.kill(workers.submit(os.getpid).result(), signal.SIGKILL)
            with suppress(BrokenProcessPool):
                while True:  # until it is noticed
                    workers.submit(os.getpid).result()
            return self.run_in(workers, order)  # others may have taken their place by now
        return super().run(order)


def test_a_release_goes_on_after_a_worker_process_was_killed(in_branches, monkeypatch):
    """What the processes had in hand is begun again in new ones: no release is lost, and each turn that ended so is told."""
    monkeypatch.setattr("flows.cluster.processes.Processes", Killing)
    with in_processes() as processes:
        make(in_branches, new_release(in_branches, release_id="killed"))
    assert processes.has_killed
    books = read_books("killed")
    assert books.turns[PLACE] == ["given up", "closed"]
    assert all(turns == ["given up"] * books.seals[place].turn + ["closed"] for place, turns in books.turns.items())
    assert_whole("killed")


def test_an_error_of_a_stage_in_a_process_is_what_it_is_in_a_thread(plan, tmp_path):
    """A table that a worker refuses is refused as by anybody, and nothing is left of the release."""
    head, first, *_ = (tmp_path / "data" / "trips.csv").read_text().splitlines()
    (tmp_path / "data" / "trips.csv").write_text(f"{head}\nnowhere{first[first.index(',') :]}\n")
    refused = new_release(plan)
    with in_processes(), pytest.raises(InputError, match="codes that the codebook lacks"):
        make(plan, refused)
    with store() as con:
        assert state_of(con, refused.id) is None


def test_workers_end_with_their_parent():
    """After SIGKILL of the process that has started them, no worker is left."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    worker = int(parent.stdout.readline())
    assert look(worker)
    parent.kill()
    parent.wait()
    until(lambda: not look(worker), timeout=60)


if __name__ == "__main__":
    work(sys.argv[1])
