"""Workers, scheduler and home are killed at every event of an order; a release that goes on has one seal for each place."""

import os
import secrets
import shutil
import signal
import subprocess
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from flows.answers.audit import audit_answer
from flows.run.ending import clean
from storage.counts.shard_files import shard_path
from storage.database.connections import store
from storage.machine.files import sha256_of
from storage.machine.home import shard_folder
from storage.mailbox.cluster_file import CLUSTER
from storage.releases.register import find_release
from storage.releases.shards import list_branches, list_shards, list_turns
from tasks.folder.verify.folder import verify
from tests.support.cluster import EVENTS, cluster, prepare, run_home, start_home, wait_for
from tests.support.disks import mounted
from tests.support.draws import read_books

MOMENTS = [f"{phase} {event}" for event in EVENTS for phase in ("before", "after")]

pytestmark = [pytest.mark.usefixtures("own_state"), pytest.mark.thorough, pytest.mark.heavy("a cluster runs meanwhile")]


@pytest.fixture
def own_state(own_home):
    """Let this process look into the store of the test."""


@contextmanager
def watched(folder, at, name="SIGKILL", **keys):
    """Run a cluster of two workers, one of which is killed or stopped at a moment."""
    named = {"TEST_AT": at, "TEST_ONCE": str(folder / "done"), "TEST_SIGNAL": name, "TEST_NOISE": "inftda"}
    with cluster(folder / "cluster", keys={"lost_after": "10s", **keys}, **named) as machines:
        yield machines


def assert_whole(machines, given_up, cut_into=(4,), *, is_empty=True):
    """Check that the release is published, each place sealed once, that so many turns were given up, and into how many branches it was cut; and whether the mailbox is empty."""
    with store() as con:
        release, seals = find_release(con, "small"), list_shards(con, "small")["noisy"]
        turns = list_turns(con, "small")
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
    assert not is_empty or not [path for path in machines.mailbox.rglob("*") if path.is_file()]


@pytest.mark.cluster
@pytest.mark.crash
@pytest.mark.parametrize("at", MOMENTS)
def test_a_worker_is_killed(tmp_path, at):
    """Whenever a worker dies, its turn is given up and another worker draws the next one; the release goes on by itself."""
    with watched(tmp_path, at) as machines:
        assert run_home(machines, tmp_path) == 0, machines.log()
        assert (tmp_path / "done").exists()
        assert_whole(machines, {1})


def shards():
    """Return the hashes of all shards of home."""
    return {path.name: sha256_of(path) for path in shard_folder("small").glob("level_*.parquet")}


@pytest.mark.parametrize("at", ["before draw", pytest.param("before send", marks=[pytest.mark.cluster])])
def test_a_worker_wakes_after_the_seal(tmp_path, at):
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


FAULTS = {  # what happens while a worker has stopped, the moment at which it has, and what is said of the release that fails
    "the scheduler is killed": ("before draw", "scheduler"),
    "home is killed": ("before draw", ""),
    "no worker is left": ("before draw", "no worker"),
    "the mailbox is wiped": ("before slice", ""),
    "slices are altered": ("before slice", ""),
    "a shard is altered": ("after send", ""),
    "the mailbox is full": ("before send", "full"),
    "the mailbox is read-only": ("before send", "read-only"),
}


@pytest.mark.cluster
@pytest.mark.crash
@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_fault_stops_is_made_whole_by_a_rerun(tmp_path, fault):
    """The release fails and says why, and a rerun gives the open turns up and makes it whole; only an altered shard is drawn again by itself."""
    # Where all workers are gone the rerun ends in threads of home, from the vault, without cluster or key.
    (at, said), keys = FAULTS[fault], {"lost_after": "40s", "wait_for_worker": "15s" if "no worker" in fault else "60s"}
    with ExitStack() as stack:
        disk = stack.enter_context(mounted(tmp_path / "disk")) if said in {"full", "read-only"} else None
        if disk:
            keys["mailbox"] = f"file://{disk.folder}"
        machines = stack.enter_context(watched(tmp_path, at, "SIGSTOP", **keys))
        home = start_home(machines, tmp_path)
        worker = machines.wait_until_stopped()
        if disk:
            disk.fill() if said == "full" else disk.mount("ro")
        elif "killed" in fault:
            victim = machines.processes["scheduler"] if "scheduler" in fault else home
            victim.kill()
            victim.wait()
        elif said == "no worker":
            for name in ("worker-0", "worker-1"):
                machines.processes[name].kill()
        else:
            spoil(machines, fault)
        if said != "no worker":
            os.kill(worker, signal.SIGCONT)
        ended = home.wait(300)
        assert (ended == 0) == ("shard" in fault), machines.log()
        if "shard" in fault:
            assert_whole(machines, {1, 2})
            return
        if "home" not in fault:
            with store() as con:
                failed = find_release(con, "small")
            assert failed.state == "failed"
            assert said in failed.reason
            assert disk is None or str(disk.folder) in failed.reason
        if disk:
            disk.free() if said == "full" else disk.mount("rw")
        elif said == "scheduler":
            machines.end()
            (machines.folder / "scheduler.log").unlink()
            machines.start_scheduler()
            for name in ("worker-0", "worker-1"):
                machines.start_worker(name, TEST_NOISE="inftda")
            machines.wait_for_workers(2)
        elif said == "no worker":
            (machines.folder / "mailbox.key").unlink()
        assert run_home(machines, tmp_path, "threads" if said == "no worker" else "dask", "small") == 0, machines.log()
        assert_whole(machines, range(1, 9))  # a turn is open for each of the branches, and may be once more
        assert disk is None or not [path for path in disk.folder.rglob("*") if path.is_file()]


def spoil(machines, fault):
    """Remove or alter what is in the mailbox."""
    for path in [path for path in machines.mailbox.rglob("*") if path.is_file()]:
        is_new = ".noisy." in path.name and not shard_path("small", path.name.rpartition(".")[0]).exists()
        if "wiped" in fault:
            path.unlink()
        elif is_new if "shard" in fault else "slices" in path.parts:
            content = bytearray(path.read_bytes())
            content[100] ^= 1
            path.write_bytes(content)


@pytest.mark.cluster
@pytest.mark.crash
def test_a_hundred_random_kills(tmp_path):
    """Workers are killed at random moments, a hundred in all: no release is lost, and no place has two seals."""
    generator, kills, keys = np.random.default_rng(5), 0, {"lost_after": "10s", "wait_for_worker": "120s"}
    with cluster(tmp_path / "cluster", TEST_NOISE="inftda", keys=keys) as machines:
        alive = ["worker-0", "worker-1"]
        for number in range(1000):
            folder = tmp_path / f"run-{number}"
            folder.mkdir()
            begun = ()
            while True:
                home = start_home(machines, folder, *begun)
                while home.poll() is None:
                    time.sleep(float(generator.uniform(0.5, 3.0)))
                    if kills < 100 and home.poll() is None:
                        victim = alive.pop(int(generator.integers(len(alive))))
                        machines.processes[victim].kill()
                        kills += 1
                        alive.append(f"worker-{kills + 1}")
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


# The network cuts a worker off: workers are in network namespaces of their own.


def ip(command):
    """Set something of the network."""
    subprocess.run(["ip", *command.split()], check=True, capture_output=True, text=True)


@pytest.fixture
def network():
    """Make a bridge and two namespaces, and return the bridge's name, with which theirs begin, and the address of home; skip where that is not allowed."""
    if not shutil.which("ip"):
        pytest.skip("there is no iproute2")
    name, subnet = f"t{secrets.token_hex(2)}", f"10.{secrets.randbelow(100) + 100}.{secrets.randbelow(250)}"
    try:
        try:
            for command in (
                f"link add {name} type bridge",
                f"addr add {subnet}.1/24 dev {name}",
                f"link set {name} up",
            ):
                ip(command)
            for worker in (0, 1):
                home, away, space = (f"{name}{side}{worker}" for side in "hwn")
                ip(f"netns add {space}")
                ip(f"link add {home} type veth peer name {away} netns {space}")
                ip(f"link set {home} master {name}")
                ip(f"link set {home} up")
                ip(f"-n {space} addr add {subnet}.{worker + 2}/24 dev {away}")
                for link in (away, "lo"):
                    ip(f"-n {space} link set {link} up")
        except subprocess.CalledProcessError as fault:
            pytest.skip(f"no network can be made here: {fault.stderr.strip()}")
        yield name, f"{subnet}.1"
    finally:
        for command in (f"netns del {name}n0", f"netns del {name}n1", f"link del {name}"):
            subprocess.run(["ip", *command.split()], check=False, capture_output=True)


@pytest.mark.cluster
def test_a_worker_that_was_cut_off_comes_back_after_the_seal(tmp_path, network):
    """Its link is down for longer than `lost_after` while it draws: another worker draws the next turn, and what it sends is not read."""
    name, address = network
    machines = prepare(tmp_path / "cluster", lost_after="10s")
    machines.host = address
    machines.file.write_text(machines.file.read_text().replace("127.0.0.1", address))
    stops = {"TEST_AT": "before draw", "TEST_ONCE": str(tmp_path / "done"), "TEST_SIGNAL": "SIGSTOP"}
    try:
        machines.start_scheduler()
        for number in (0, 1):
            within = ("ip", "netns", "exec", f"{name}n{number}")
            machines.start_worker(f"worker-{number}", before=within, TEST_NOISE="inftda", **stops)
        machines.wait_for_workers(2)
        home = start_home(machines, tmp_path)
        process = machines.wait_until_stopped()
        (worker,) = [number for number in (0, 1) if machines.processes[f"worker-{number}"].pid == process]
        ip(f"link set {name}h{worker} down")
        os.kill(process, signal.SIGCONT)  # it draws on, and nobody hears of it
        assert home.wait(300) == 0, machines.log()
        before = shards()
        ip(f"link set {name}h{worker} up")
        machines.processes[f"worker-{1 - worker}"].kill()
        time.sleep(5)  # for what it might do: there is nothing to wait for
        assert shards() == before
        assert_whole(machines, {1}, is_empty=False)
    finally:
        machines.end()
