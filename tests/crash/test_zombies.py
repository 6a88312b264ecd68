"""Workers that are lost and come back, and workers that end: what is sealed stays, and the release goes on by itself."""

import os
import signal
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
from storage.errors import StoreError
from storage.machine.files import sha256_of
from tasks.order import Order
from tasks.stage import Outcome, running_elsewhere
from tasks.verify.folder import verify
from tests.support.draws import BRANCH_CELLS, CHUNK_CELLS, place_of, read_books, write_small
from tests.support.runs import Around, make
from tests.support.zombies import Zombie, write_as_before_turns

pytestmark = pytest.mark.thorough
PLACE = (4, "b01")


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
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


def test_a_worker_that_wakes_after_the_seal_changes_nothing(plan: Plan) -> None:
    """Stopped with its shard open and given up, it writes on when the next turn is sealed: in a file that nobody reads."""
    release, zombie, codes = new_release(plan, release_id="woken"), Zombie(PLACE, before_turns=False), list[int]()
    with running_elsewhere(zombie):
        make(plan, release, waking_after_the_seal(zombie, codes))
    assert codes == [0]
    books = read_books("woken")
    assert books.turns == {place: ["closed"] for place in books.seals} | {PLACE: ["given up", "closed"]}
    seal = books.seals[PLACE]
    assert (seal.turn, sha256_of(noisy_path("woken", *PLACE, 1))) == (1, seal.sha256)
    assert not noisy_path("woken", *PLACE).exists()
    assert verify(Path(release.folder)) == []
    assert audit_answer().ok


def test_names_without_turns_would_lose_the_release(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same worker ruins what was sealed where both turns have one file, as they had once: the test above can fail."""
    write_as_before_turns(monkeypatch.setattr)
    release, zombie, codes = new_release(plan, release_id="lost"), Zombie(PLACE, before_turns=True), list[int]()
    with (
        running_elsewhere(zombie),
        pytest.raises(StoreError, match=r"level_4_b01\.noisy\.parquet is not what was sealed"),
    ):
        make(plan, release, waking_after_the_seal(zombie, codes))
    assert codes
    assert sha256_of(noisy_path("lost", *PLACE)) != read_books("lost").seals[PLACE].sha256


def test_what_a_worker_leaves_after_the_end_is_swept(plan: Plan) -> None:
    """Woken when the release is published, it finds its file gone, and leaves none; `clean` removes a shard that came last."""
    release, zombie = new_release(plan, release_id="late"), Zombie(PLACE, before_turns=False)
    with running_elsewhere(zombie):
        make(plan, release)
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


def test_a_release_goes_on_after_a_worker_process_was_killed(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the processes had in hand is begun again in new ones: no release is lost, and each turn that ended so is told."""
    monkeypatch.setattr("flows.walks.processes.Processes", Killing)
    release = new_release(plan, release_id="killed")
    with in_processes() as processes:
        make(plan, release)
    assert isinstance(processes, Killing)
    assert processes.has_killed
    books = read_books("killed")
    assert books.turns[PLACE] == ["given up", "closed"]
    assert all(turns == ["given up"] * books.seals[place].turn + ["closed"] for place, turns in books.turns.items())
    assert verify(Path(release.folder)) == []
    assert audit_answer().ok
