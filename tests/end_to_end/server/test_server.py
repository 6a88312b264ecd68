"""A server beneath a run: it records all that ran, ends with its parent, and keeps what it knows to its owner."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from flows.server.process import prefect_server, wait_until_recorded
from storage.errors import StoreError

TASK_RUNS = 60
RETRIES = "PREFECT_CLIENT_MAX_RETRIES"

# Runs a flow that logs and fails, says where its server is, and waits to be killed. The umask is the command line's.
PARENT = """
import os, subprocess, sys, time
from pathlib import Path
from flows.server.process import prefect_server, quiet_prefect, wait_until_recorded

began = subprocess.Popen
def noted(*arguments, **options):
    process = began(*arguments, **options)
    print(process.pid, flush=True)
    return process
subprocess.Popen = noted

os.umask(0o077)
quiet_prefect()
with prefect_server(Path(sys.argv[1])) as address:
    from prefect import flow, get_run_logger
    from prefect.runtime import flow_run
    @flow
    def noisy():
        print(flow_run.id)
        get_run_logger().error("said aloud")
        raise ValueError("of no interest")
    noisy(return_state=True)
    wait_until_recorded(flow_run.id, 0)
    print(os.environ["PREFECT_API_AUTH_STRING"], flush=True)
    print(address, flush=True)
    time.sleep(600)
"""


class Recorded(NamedTuple):
    """A flow run that ended, and the home of the server that recorded it."""

    home: Path
    flow_run_id: str
    task_runs: int
    task_runs_when_asked_for_more: int
    address: str
    address_inside: str
    retries: str
    retries_inside: str


def run_quick_tasks() -> str:
    """Run a flow that submits quick tasks to threads, and return its id."""
    from prefect import flow, task
    from prefect.cache_policies import NO_CACHE
    from prefect.runtime import flow_run
    from prefect.task_runners import ThreadPoolTaskRunner

    @task(cache_policy=NO_CACHE, persist_result=False)
    def quick(number: int) -> int:
        return number

    @flow(task_runner=ThreadPoolTaskRunner(max_workers=2), persist_result=False)  # type: ignore[arg-type]
    def many() -> str:
        futures = [quick.submit(number) for number in range(TASK_RUNS)]
        assert [future.result() for future in futures] == list(range(TASK_RUNS))
        return str(flow_run.id)

    return many()


class Killed(NamedTuple):
    """What a process that was killed beneath a second server on that home left behind."""

    address: str
    address_given: str
    earlier_flow_run: str
    logs: str
    refused: list[str]
    flow_run_id: str
    seconds_until_gone: float
    said_last: tuple[str, str]


@pytest.fixture(autouse=True, scope="module")
def _no_prefect_around() -> Iterator[None]:
    """Hide the Prefect of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PREFECT_")]:
            patch.delenv(name)
        yield


@pytest.fixture(scope="module")
def recorded(_no_prefect_around: None, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Run many quick tasks beneath a server of their own, in a home that was open to others."""
    home = tmp_path_factory.mktemp("server") / "prefect"
    home.mkdir(mode=0o755)
    with prefect_server(home) as address:
        flow_run_id = run_quick_tasks()
        task_runs = wait_until_recorded(flow_run_id, TASK_RUNS)
        of_more = wait_until_recorded(flow_run_id, TASK_RUNS + 1, timeout=1.0)
        retries = os.environ[RETRIES]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(RETRIES, "6")
            with prefect_server(home) as address_inside:
                retries_inside = os.environ[RETRIES]
    return Recorded(home, flow_run_id, task_runs, of_more, address, address_inside, retries, retries_inside)


@pytest.fixture(scope="module")
def killed(recorded: Recorded) -> Killed:
    """Start a process with a second server on the same home, ask that server, and kill the process."""
    dead = recorded.address
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(recorded.home)],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]), "PREFECT_API_URL": dead},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout
    pid, flow_run_id, auth, address = (parent.stdout.readline().strip() for _ in range(4))
    earlier_flow_run = answer(f"{address}/flow_runs/{recorded.flow_run_id}", auth=auth)
    logs = answer(f"{address}/logs/filter", b"{}", auth=auth)
    refused = [answer(f"{address}/logs/filter", b"{}"), answer(f"{address}/logs/filter", b"{}", auth="trellis:guess")]
    assert not is_gone(int(pid))
    parent.kill()
    seconds = seconds_until(lambda: is_gone(int(pid)), at_most=60.0)
    said_last = parent.communicate(timeout=60.0)
    return Killed(address, dead, earlier_flow_run, logs, refused, flow_run_id, seconds, said_last)


def answer(address: str, body: bytes | None = None, auth: str = "") -> str:
    """Return what a server says at an address, or why it says nothing."""
    headers = {"Content-Type": "application/json"}
    if auth:
        headers["Authorization"] = f"Basic {b64encode(auth.encode()).decode()}"
    request = urllib.request.Request(address, body, headers)  # noqa: S310 (our own server)
    try:
        with urllib.request.urlopen(request, timeout=60.0) as response:  # noqa: S310 (our own server)
            return str(response.read().decode())
    except urllib.error.URLError as fault:
        return str(fault.reason)


def seconds_until(holds: Callable[[], bool], at_most: float) -> float:
    """Return the seconds until a condition holds, infinity if it does not in time."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > at_most:
            return float("inf")
        time.sleep(0.02)
    return time.monotonic() - began


def is_gone(pid: int) -> bool:
    """Return whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_every_task_run_is_recorded(recorded: Recorded) -> None:
    """All task runs of a flow in threads reach the server, and asking for one more ends at the timeout."""
    assert recorded.task_runs == TASK_RUNS
    assert recorded.task_runs_when_asked_for_more == TASK_RUNS


def test_a_server_that_answers_is_used(recorded: Recorded) -> None:
    """With PREFECT_API_URL at a server that answers no other is started."""
    assert recorded.address_inside == recorded.address


def test_clients_of_a_given_server_retry_as_often_as_the_caller_says(recorded: Recorded) -> None:
    """Clients ask a child twice more, and a server that was there before as often as the environment says."""
    assert recorded.retries == "2"
    assert recorded.retries_inside == "6"


def test_a_server_ends_with_its_block(recorded: Recorded) -> None:
    """After the block the server is gone and the environment is as before."""
    assert "refused" in answer(f"{recorded.address}/health")
    assert not [name for name in os.environ if name.startswith("PREFECT_")]


def test_a_second_start_remembers(recorded: Recorded, killed: Killed) -> None:
    """A second server on the same home knows the earlier flow run, also when PREFECT_API_URL leads nowhere."""
    assert killed.address != killed.address_given
    assert json.loads(killed.earlier_flow_run)["id"] == recorded.flow_run_id
    assert json.loads(killed.earlier_flow_run)["state_type"] == "COMPLETED"


def test_a_killed_process_takes_its_server_along(killed: Killed) -> None:
    """After `kill -9` of the process that started it a server ends in seconds."""
    assert killed.seconds_until_gone < 60.0
    assert "refused" in answer(f"{killed.address}/health")


def test_the_server_of_a_run_answers_that_run_alone(killed: Killed) -> None:
    """Nobody on this machine can ask it without the password that it was given when it started."""
    assert killed.refused == ["Unauthorized", "Unauthorized"]


def test_the_terminal_stays_clean(killed: Killed) -> None:
    """With `quiet_prefect` neither flow nor server writes to the terminal, while the log of the run is kept."""
    assert killed.said_last == ("", "")
    assert "said aloud" in [
        log["message"] for log in json.loads(killed.logs) if log["flow_run_id"] == killed.flow_run_id
    ]


def test_a_server_that_cannot_start_names_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the server ends instead of answering, the error says so and where to read why."""
    monkeypatch.setattr(sys, "executable", "false")
    with (
        pytest.raises(StoreError, match=r"ended with code 1 while starting\.") as refused,
        prefect_server(tmp_path),
    ):
        pass
    assert refused.value.hint == f"See {tmp_path / 'server.log'}."


def test_no_one_else_can_read_what_it_wrote(recorded: Recorded, killed: Killed) -> None:
    """The home is closed to group and others, and so is every file below it."""
    assert recorded.home.stat().st_mode & 0o077 == 0
    files = [path for path in recorded.home.rglob("*") if path.is_file()]
    assert {"prefect.db", "server.log"} <= {path.name for path in files}
    assert [str(path) for path in files if path.stat().st_mode & 0o077] == []
