"""A server beneath a run: it records all that ran, ends with its parent, and keeps what it knows to its owner."""

import os
import subprocess
import sys
import urllib.error

import pytest

from flows.server.process import prefect_server, wait_until_recorded
from storage.errors import StoreError
from tests.support.processes import look
from tests.support.server import ask
from tests.support.up import until
from tests.support.user import REPOSITORY

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


@pytest.fixture(autouse=True, scope="module")
def _no_prefect_around():
    """Hide the Prefect of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PREFECT_")]:
            patch.delenv(name)
        yield


@pytest.mark.thorough
@pytest.mark.heavy("two servers record what ran")
def test_a_server_records_all_that_ran_ends_with_its_parent_and_is_closed_to_others(tmp_path):
    """Of a server of a block, and of a second one on its home, beneath a process that is killed."""
    home = tmp_path / "prefect"
    home.mkdir(mode=0o755)
    with prefect_server(home) as address:
        from prefect import flow, task
        from prefect.cache_policies import NO_CACHE
        from prefect.runtime import flow_run
        from prefect.task_runners import ThreadPoolTaskRunner

        @task(cache_policy=NO_CACHE, persist_result=False)
        def quick():
            pass

        @flow(task_runner=ThreadPoolTaskRunner(max_workers=2), persist_result=False)
        def many():
            for future in [quick.submit() for _ in range(TASK_RUNS)]:
                future.result()
            return str(flow_run.id)

        flow_run_id = many()
        # all task runs of a flow in threads reach the server, and asking for one more ends at the timeout
        assert wait_until_recorded(flow_run_id, TASK_RUNS) == TASK_RUNS
        assert wait_until_recorded(flow_run_id, TASK_RUNS + 1, timeout=1.0) == TASK_RUNS
        # clients ask a child twice more, and a server that was there before as often as the environment says
        assert os.environ[RETRIES] == "2"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(RETRIES, "6")
            with prefect_server(home) as address_inside:  # one that answers is used
                assert (address_inside, os.environ[RETRIES]) == (address, "6")
    with pytest.raises(urllib.error.URLError, match="refused"):
        ask(f"{address}/health")
    assert not [name for name in os.environ if name.startswith("PREFECT_")]

    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(home)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PREFECT_API_URL": address},  # which leads nowhere by now
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    pid, failed_run_id, auth, second = (parent.stdout.readline().strip() for _ in range(4))
    assert second != address
    earlier = ask(f"{second}/flow_runs/{flow_run_id}", auth=auth)
    assert (earlier["id"], earlier["state_type"]) == (flow_run_id, "COMPLETED")
    logs = ask(f"{second}/logs/filter", {}, auth)
    for unknown in ("", "trellis:guess"):  # it answers that run alone
        with pytest.raises(urllib.error.HTTPError, match="401"):
            ask(f"{second}/logs/filter", {}, unknown)
    assert look(int(pid))
    parent.kill()
    until(lambda: not look(int(pid)), timeout=60.0)
    with pytest.raises(urllib.error.URLError, match="refused"):
        ask(f"{second}/health")
    # with `quiet_prefect` neither flow nor server writes to the terminal, while the log of the run is kept
    assert parent.communicate(timeout=60.0) == ("", "")
    assert "said aloud" in [log["message"] for log in logs if log["flow_run_id"] == failed_run_id]
    assert home.stat().st_mode & 0o077 == 0
    files = [path for path in home.rglob("*") if path.is_file()]
    assert {"prefect.db", "server.log"} <= {path.name for path in files}
    assert [str(path) for path in files if path.stat().st_mode & 0o077] == []


def test_a_server_that_cannot_start_names_its_log(tmp_path, monkeypatch):
    """When the server ends instead of answering, the error says so and where to read why."""
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(StoreError, match=r"ended with code 1 while starting\.") as refused, prefect_server(tmp_path):
        pass
    assert refused.value.hint == f"See {tmp_path / 'server.log'}."
