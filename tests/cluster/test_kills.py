"""Workers, scheduler and home are killed at every event of an order; a release that goes on has one seal for each place."""

import os
import signal
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from flows.answers.audit import audit_answer
from flows.execution.ending import clean
from storage.counts.shards import shard_path
from storage.database.connections import store
from storage.machine.claims import shard_folder
from storage.machine.files import sha256_of
from storage.mailbox.cluster_file import CLUSTER
from storage.releases.register import find_release
from storage.releases.seals import list_branches, list_seals
from storage.releases.turns import Turn, list_turns
from tasks.verify.folder import verify
from tests.support.cluster import EVENTS, Machines, cluster, run_home, start_home, wait_for
from tests.support.disks import mounted
from tests.support.draws import read_books

MOMENTS = [f"{phase} {event}" for event in EVENTS for phase in ("before", "after")]

pytestmark = [pytest.mark.usefixtures("own_state"), pytest.mark.thorough, pytest.mark.heavy("a cluster runs meanwhile")]


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process look into the store of the test."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))


@contextmanager
def watched(folder: Path, at: str, name: str = "SIGKILL", **keys: str) -> Iterator[Machines]:
    """Run a cluster of two workers, one of which is killed or stopped at a moment."""
    named = {"TEST_AT": at, "TEST_ONCE": str(folder / "done"), "TEST_SIGNAL": name, "TEST_NOISE": "inftda"}
    with cluster(folder / "cluster", keys={"lost_after": "10s", **keys}, **named) as machines:
        yield machines


def assert_whole(machines: Machines, given_up: Collection[int], cut_into: Collection[int] = (4,)) -> None:
    """Check that the release is published, each place sealed once, that so many turns were given up, and into how many branches it was cut."""
    with store() as con:
        release, seals = find_release(con, "small"), list_seals(con, "small")
        turns: list[Turn] = list_turns(con, "small")
        branches = list_branches(con, "small")
    assert release.state == "published", machines.log()
    assert len(branches) in cut_into
    assert verify(Path(release.folder)) == []
    assert audit_answer().ok
    states = Counter(turn.state for turn in turns)
    assert set(states) <= {"closed", "given up"}
    assert states["closed"] == len(seals)
    assert states["given up"] in given_up
    assert {(turn.level, turn.branch) for turn in turns if turn.state == "closed"} == set(seals)
    for place, seal in seals.items():
        (sealed,) = [turn for turn in turns if (turn.level, turn.branch) == place and turn.state == "closed"]
        assert sealed.turn == seal.turn
    assert [event["event"] for event in read_books("small").events].count("reserved") == 1
    assert not [path for path in machines.mailbox.rglob("*") if path.is_file()]


@pytest.mark.cluster
@pytest.mark.crash
@pytest.mark.parametrize("at", MOMENTS)
def test_a_worker_is_killed(tmp_path: Path, at: str) -> None:
    """Whenever a worker dies, its turn is given up and another worker draws the next one; the release goes on by itself."""
    with watched(tmp_path, at) as machines:
        assert run_home(machines, tmp_path) == 0, machines.log()
        assert (tmp_path / "done").exists()
        assert_whole(machines, {1})


def shards() -> dict[str, str]:
    """Return the hashes of all shards of home."""
    return {path.name: sha256_of(path) for path in shard_folder("small").glob("level_*.parquet")}


@pytest.mark.parametrize("at", ["before draw", pytest.param("before send", marks=[pytest.mark.cluster])])
def test_a_worker_wakes_after_the_seal(tmp_path: Path, at: str) -> None:
    """A worker that is stopped with its shard open, or before it sends it, and wakes after publication changes nothing at home."""
    with watched(tmp_path, at, "SIGSTOP") as machines:
        assert run_home(machines, tmp_path) == 0, machines.log()
        assert_whole(machines, {1})
        before = shards()
        os.kill(machines.wait_until_stopped(), signal.SIGCONT)
        if at == "before send":
            wait_for(
                lambda: any("shards" in str(path) for path in machines.mailbox.rglob("*.noisy*")), "it sends nothing"
            )
        else:
            time.sleep(3)  # for what it might do: there is nothing to wait for
        assert shards() == before
        with store() as con:
            assert verify(Path(find_release(con, "small").folder)) == []
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(CLUSTER, str(machines.file))
            clean()
        assert not [path for path in machines.mailbox.rglob("*") if path.is_file()]
        assert audit_answer().ok


@pytest.mark.cluster
def test_a_result_that_was_gathered_is_not_made_again(tmp_path: Path) -> None:
    """A worker that is killed while Dask keeps its result, which home has gathered, costs no turn."""
    with cluster(tmp_path / "cluster", keys={"lost_after": "10s"}, TEST_NOISE="inftda") as machines:
        made = tmp_path / "killed"
        assert run_home(machines, tmp_path, TEST_RECOMPUTE=str(made)) == 0, machines.log()
        assert made.exists()
        assert_whole(machines, {0, 1})  # 1 where home sends it the next order before the scheduler knows of its end


@pytest.mark.cluster
@pytest.mark.crash
@pytest.mark.parametrize("who", ["scheduler", "home"])
def test_the_scheduler_or_home_is_killed(tmp_path: Path, who: str) -> None:
    """While a worker draws, the scheduler or home dies: a rerun gives the open turns up, and makes the release whole."""
    with watched(tmp_path, "before draw", "SIGSTOP", lost_after="30s") as machines:
        home = start_home(machines, tmp_path)
        worker = machines.wait_until_stopped()
        victim = machines.processes["scheduler"] if who == "scheduler" else home
        victim.kill()
        victim.wait()
        os.kill(worker, signal.SIGCONT)
        assert home.wait(300) != 0
        if who == "scheduler":
            with store() as con:
                assert find_release(con, "small").state == "failed"
                assert "scheduler" in find_release(con, "small").reason
            machines.end()
            (machines.folder / "scheduler.log").unlink()
            machines.start_scheduler()
            for name in ("worker-0", "worker-1"):
                machines.start_worker(name, TEST_NOISE="inftda")
            machines.wait_for_workers(2)
        assert run_home(machines, tmp_path, "dask", "small") == 0, machines.log()
        assert_whole(machines, range(1, 5))  # a turn is open for each of the branches


@pytest.mark.cluster
@pytest.mark.parametrize("deed", ["wipe", "alter slices", "alter shard"])
def test_the_mailbox_is_wiped_or_altered(tmp_path: Path, deed: str) -> None:
    """An altered shard is drawn again in another turn; after anything else the release fails, and a rerun makes it whole."""
    at = "after send" if deed == "alter shard" else "before slice"
    with watched(tmp_path, at, "SIGSTOP", lost_after="40s") as machines:
        home = start_home(machines, tmp_path)
        worker = machines.wait_until_stopped()
        for path in [path for path in machines.mailbox.rglob("*") if path.is_file()]:
            is_new = ".noisy." in path.name and not shard_path("small", path.name.rpartition(".")[0]).exists()
            if deed == "wipe":
                path.unlink()
            elif is_new if deed == "alter shard" else "slices" in path.parts:
                content = bytearray(path.read_bytes())
                content[100] ^= 1
                path.write_bytes(content)
        os.kill(worker, signal.SIGCONT)
        if deed == "alter shard":
            assert home.wait(300) == 0, machines.log()
            assert_whole(machines, {1, 2})
            return
        assert home.wait(300) != 0
        with store() as con:
            assert find_release(con, "small").state == "failed"
        assert run_home(machines, tmp_path, "dask", "small") == 0, machines.log()
        assert_whole(machines, range(1, 9))


@pytest.mark.cluster
@pytest.mark.parametrize("deed", ["full", "read-only"])
def test_the_mailbox_takes_nothing(tmp_path: Path, deed: str) -> None:
    """Where a worker cannot leave its shard because the mailbox is full or read-only, the release fails and says so; a rerun makes it whole."""
    with (
        mounted(tmp_path / "disk") as disk,
        watched(tmp_path, "before send", "SIGSTOP", lost_after="40s", mailbox=f"file://{disk.folder}") as machines,
    ):
        home = start_home(machines, tmp_path)
        worker = machines.wait_until_stopped()
        if deed == "full":
            disk.fill()
        else:
            disk.mount("ro")
        os.kill(worker, signal.SIGCONT)
        assert home.wait(300) != 0
        with store() as con:
            reason = find_release(con, "small").reason
        assert deed in reason
        assert str(disk.folder) in reason
        if deed == "full":
            disk.free()
        else:
            disk.mount("rw")
        assert run_home(machines, tmp_path, "dask", "small") == 0, machines.log()
        assert_whole(machines, range(1, 9))
        assert not [path for path in disk.folder.rglob("*") if path.is_file()]


@pytest.mark.cluster
def test_no_worker_is_left(tmp_path: Path) -> None:
    """With all workers gone the release fails after a while; it ends in threads of home, from the vault, without cluster or key."""
    with watched(tmp_path, "before draw", "SIGSTOP", wait_for_worker="15s") as machines:
        home = start_home(machines, tmp_path)
        machines.wait_until_stopped()
        for name in ("worker-0", "worker-1"):
            machines.processes[name].kill()
        assert home.wait(300) != 0
        with store() as con:
            assert "no worker" in find_release(con, "small").reason
        (machines.folder / "mailbox.key").unlink()
        assert run_home(machines, tmp_path, "threads", "small") == 0, machines.log()
        assert_whole(machines, range(1, 9))


@pytest.mark.cluster
@pytest.mark.crash
def test_a_hundred_random_kills(tmp_path: Path) -> None:
    """Workers are killed at random moments, a hundred in all: no release is lost, and no place has two seals."""
    generator, kills, names = np.random.default_rng(5), 0, iter(range(2, 1000))
    with cluster(
        tmp_path / "cluster", TEST_NOISE="inftda", keys={"lost_after": "10s", "wait_for_worker": "120s"}
    ) as machines:
        alive = ["worker-0", "worker-1"]
        for number in range(1000):
            folder = tmp_path / f"run-{number}"
            folder.mkdir()
            begun: tuple[str, ...] = ()
            while True:
                home = start_home(machines, folder, *begun)
                while home.poll() is None:
                    time.sleep(float(generator.uniform(0.5, 3.0)))
                    if kills < 100 and home.poll() is None:
                        victim = alive.pop(int(generator.integers(len(alive))))
                        machines.processes[victim].kill()
                        kills += 1
                        alive.append(f"worker-{next(names)}")
                        machines.start_worker(alive[-1], TEST_NOISE="inftda")
                if home.returncode == 0:
                    break
                begun = ("dask", "small") if (folder / "home" / "shards" / "small").exists() else ()
                time.sleep(5)
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("TRELLIS_HOME", str(folder / "home"))
                assert_whole(machines, range(300), (2, 4))  # branches, as home finds one worker or two when it begins
            if kills >= 100:
                return
