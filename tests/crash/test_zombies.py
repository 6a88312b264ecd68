"""Workers in processes of their own: they make a release, are lost and come back, and end; what is sealed stays."""

import os
import signal
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tasks.noise.truth
import tasks.optimize.task
import tasks.tree.branches
from flows.answers.audit import audit_answer
from flows.execution.ending import clean
from flows.execution.reservation import new_release
from flows.planning.plan import Plan, make_plan
from flows.spec.file import load_spec
from flows.walks.processes import Processes, in_processes
from storage.counts.shards import noisy_path
from storage.database.connections import store
from storage.errors import InputError, StoreError
from storage.machine.files import sha256_of
from storage.releases.register import state_of
from tasks.order import Order
from tasks.stage import Outcome, running_elsewhere
from tasks.verify.folder import verify
from tests.support.draws import BRANCH_CELLS, CHUNK_CELLS, place_of, read_books, write_small
from tests.support.processes import look
from tests.support.runs import Around, make
from tests.support.up import until
from tests.support.user import REPOSITORY
from tests.support.zombies import Zombie, write_as_before_turns

pytestmark = [pytest.mark.thorough, pytest.mark.heavy("processes import what they need")]
PLACE = (4, "b01")

# Waits until a worker has begun, says which processes there are, and waits to be killed.
PARENT = """
import os, sys, time
from flows.walks.processes import in_processes
with in_processes() as processes:
    print(processes.workers.submit(os.getpid).result(), flush=True)
    time.sleep(600)
"""


@pytest.fixture
def in_branches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """Return the plan of a small country that is walked in branches, in parts."""
    monkeypatch.setattr(tasks.tree.branches, "BRANCH_CELLS", BRANCH_CELLS)
    for module in (tasks.noise.truth, tasks.optimize.task):
        monkeypatch.setattr(module, "CHUNK_CELLS", CHUNK_CELLS)
    return make_plan(load_spec(write_small(tmp_path / "small")))


def waking_after_the_seal(zombie: Zombie, codes: list[int]) -> Around:
    """Wake a worker once another turn of its place is sealed, and wait for its end."""

    def around(stage: Any, arguments: tuple[Any, ...]) -> Any:
        if stage.name == "optimise_branch" and place_of(arguments) == PLACE:
            codes.append(zombie.wake())
        return stage.fn(*arguments)

    return around


def test_a_worker_that_wakes_after_the_seal_changes_nothing(in_branches: Plan) -> None:
    """Stopped with its shard open and given up, it writes on when the next turn is sealed: in a file that nobody reads."""
    release, zombie, codes = (
        new_release(in_branches, release_id="woken"),
        Zombie(PLACE, before_turns=False),
        list[int](),
    )
    with running_elsewhere(zombie):
        make(in_branches, release, waking_after_the_seal(zombie, codes))
    assert codes == [0]
    books = read_books("woken")
    assert books.turns == {place: ["closed"] for place in books.seals} | {PLACE: ["given up", "closed"]}
    seal = books.seals[PLACE]
    assert (seal.turn, sha256_of(noisy_path("woken", *PLACE, 1))) == (1, seal.sha256)
    assert not noisy_path("woken", *PLACE).exists()
    assert verify(Path(release.folder)) == []
    assert audit_answer().ok


def test_names_without_turns_would_lose_the_release(in_branches: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same worker ruins what was sealed where both turns have one file, as they had once: the test above can fail."""
    write_as_before_turns(monkeypatch.setattr)
    release, zombie, codes = new_release(in_branches, release_id="lost"), Zombie(PLACE, before_turns=True), list[int]()
    with (
        running_elsewhere(zombie),
        pytest.raises(StoreError, match=r"level_4_b01\.noisy\.parquet is not what was sealed"),
    ):
        make(in_branches, release, waking_after_the_seal(zombie, codes))
    assert codes
    assert sha256_of(noisy_path("lost", *PLACE)) != read_books("lost").seals[PLACE].sha256


def test_what_a_worker_leaves_after_the_end_is_swept(in_branches: Plan) -> None:
    """Woken when the release is published, it finds its file gone, and leaves none; `clean` removes a shard that came last."""
    release, zombie = new_release(in_branches, release_id="late"), Zombie(PLACE, before_turns=False)
    with running_elsewhere(zombie):
        make(in_branches, release)
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

    def __init__(self, width: int) -> None:
        super().__init__(width)
        self.has_killed = False

    def run(self, order: Order) -> Outcome:
        """Carry out an order, once a process has been killed."""
        if order.stage == "measure_branch" and (order.level, order.branch) == PLACE and not self.has_killed:
            self.has_killed, workers = True, self.workers
            os.kill(workers.submit(os.getpid).result(), signal.SIGKILL)
            with suppress(BrokenProcessPool):
                while True:  # until it is noticed
                    workers.submit(os.getpid).result()
            return self.run_in(workers, order)  # others may have taken their place by now
        return super().run(order)


def test_a_release_goes_on_after_a_worker_process_was_killed(
    in_branches: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the processes had in hand is begun again in new ones: no release is lost, and each turn that ended so is told."""
    monkeypatch.setattr("flows.walks.processes.Processes", Killing)
    release = new_release(in_branches, release_id="killed")
    with in_processes() as processes:
        make(in_branches, release)
    assert isinstance(processes, Killing)
    assert processes.has_killed
    books = read_books("killed")
    assert books.turns[PLACE] == ["given up", "closed"]
    assert all(turns == ["given up"] * books.seals[place].turn + ["closed"] for place, turns in books.turns.items())
    assert verify(Path(release.folder)) == []
    assert audit_answer().ok


def test_a_release_in_processes_is_a_release(plan: Plan, tmp_path: Path) -> None:
    """Made by workers, it is published, verified and audited; an error of a stage is what it is in a thread."""
    head, first, *_ = (tmp_path / "data" / "trips.csv").read_text().splitlines()
    (tmp_path / "data" / "wrong.csv").write_text(f"{head}\nnowhere{first[first.index(',') :]}\n")
    spec = (tmp_path / "spec.yaml").read_text().replace("data/trips.csv", "data/wrong.csv")
    (tmp_path / "wrong.yaml").write_text(spec)
    with in_processes():
        release = new_release(plan)
        make(plan, release)
        faulty = make_plan(load_spec(tmp_path / "wrong.yaml"))
        refused = new_release(faulty)
        with pytest.raises(InputError, match="codes that the codebook lacks"):
            make(faulty, refused)
    assert verify(Path(release.folder)) == []
    assert audit_answer().ok
    with store() as con:
        assert (state_of(con, release.id), state_of(con, refused.id)) == ("published", None)


def test_workers_end_with_their_parent() -> None:
    """After SIGKILL of the process that has started them, no worker is left."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout
    worker = int(parent.stdout.readline())
    assert look(worker)
    parent.kill()
    parent.wait()
    until(lambda: not look(worker), timeout=60)
