"""A worker that the network cuts off, and that comes back after the seal: workers are in network namespaces of their own."""

import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from flows.answers.audit import audit_answer
from storage.database.connections import store
from storage.machine.claims import shard_folder
from storage.machine.files import sha256_of
from storage.releases.register import find_release
from storage.releases.turns import list_turns
from tasks.verify.folder import verify
from tests.support.cluster import prepare, start_home

pytestmark = pytest.mark.cluster


@dataclass(frozen=True)
class Network:
    """Home with the scheduler on one side of a bridge, and a namespace for each worker on the other.

    Attributes:
        name: of the bridge; namespaces and links have names that begin with it.
        address: of home.
    """

    name: str
    address: str

    def link(self, worker: int, state: str) -> None:
        """Set the link of a worker `up` or `down`."""
        run(f"ip link set {self.name}h{worker} {state}")


def run(command: str) -> None:
    """Run a command as the administrator of the network."""
    subprocess.run(command.split(), check=True, capture_output=True, text=True)


@pytest.fixture
def network() -> Iterator[Network]:
    """Make a bridge and two namespaces; skip where that is not allowed."""
    if not shutil.which("ip"):
        pytest.skip("there is no iproute2")
    name, subnet = f"t{secrets.token_hex(2)}", f"10.{secrets.randbelow(100) + 100}.{secrets.randbelow(250)}"
    network = Network(name, f"{subnet}.1")
    try:
        try:
            run(f"ip link add {name} type bridge")
            run(f"ip addr add {subnet}.1/24 dev {name}")
            run(f"ip link set {name} up")
            for worker in (0, 1):
                home, away, space = (f"{name}{side}{worker}" for side in "hwn")
                run(f"ip netns add {space}")
                run(f"ip link add {home} type veth peer name {away} netns {space}")
                run(f"ip link set {home} master {name}")
                run(f"ip link set {home} up")
                run(f"ip -n {space} addr add {subnet}.{worker + 2}/24 dev {away}")
                run(f"ip -n {space} link set {away} up")
                run(f"ip -n {space} link set lo up")
        except subprocess.CalledProcessError as fault:
            pytest.skip(f"no network can be made here: {fault.stderr.strip()}")
        yield network
    finally:
        for command in ([f"{name}n0"], [f"{name}n1"]):
            subprocess.run(["ip", "netns", "del", *command], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", name], check=False, capture_output=True)


def test_a_worker_that_was_cut_off_comes_back_after_the_seal(
    tmp_path: Path, network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its link is down for longer than `lost_after` while it draws: another worker draws the next turn, and what it sends is not read."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    machines = prepare(tmp_path / "cluster", lost_after="10s")
    machines.host = network.address
    machines.file.write_text(machines.file.read_text().replace("127.0.0.1", network.address))
    stops = {"TEST_AT": "before draw", "TEST_ONCE": str(tmp_path / "done"), "TEST_SIGNAL": "SIGSTOP"}
    try:
        machines.start_scheduler()
        for number in (0, 1):
            within = ("ip", "netns", "exec", f"{network.name}n{number}")
            machines.start_worker(f"worker-{number}", before=within, TEST_NOISE="inftda", **stops)
        machines.wait_for_workers(2)
        home = start_home(machines, tmp_path)
        process = machines.wait_until_stopped()
        (worker,) = [number for number in (0, 1) if machines.processes[f"worker-{number}"].pid == process]
        network.link(worker, "down")
        os.kill(process, signal.SIGCONT)  # it draws on, and nobody hears of it
        assert home.wait(300) == 0, machines.log()
        before = {path.name: sha256_of(path) for path in shard_folder("small").glob("level_*")}
        network.link(worker, "up")
        machines.processes[f"worker-{1 - worker}"].kill()
        with pytest.raises(subprocess.TimeoutExpired):  # for what it might do: there is nothing to wait for
            machines.processes["scheduler"].wait(5)
        assert {path.name: sha256_of(path) for path in shard_folder("small").glob("level_*")} == before
        with store() as con:
            release, turns = find_release(con, "small"), list_turns(con, "small")
        assert release.state == "published"
        assert [turn.state for turn in turns].count("given up") == 1
        assert verify(Path(release.folder)) == []
        assert audit_answer().ok
    finally:
        machines.end()
