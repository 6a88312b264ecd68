"""Stages in processes of their own: the same shards, the same release, and nothing left behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.answers.audit import audit_answer
from flows.execution.reservation import new_release
from flows.planning.plan import Plan, make_plan
from flows.spec.file import load_spec
from flows.walks.processes import in_processes
from storage.database.connections import store
from storage.errors import InputError
from storage.releases.register import state_of
from tasks.verify.folder import verify
from tests.support.runs import make

pytestmark = pytest.mark.thorough

# Waits until a worker has begun, says which processes there are, and waits to be killed.
PARENT = """
import os, sys, time
from flows.walks.processes import in_processes
with in_processes() as processes:
    print(processes.workers.submit(os.getpid).result(), flush=True)
    time.sleep(600)
"""


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
    house = str(Path(__file__).parents[2])
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], env={**os.environ, "PYTHONPATH": house}, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout
    worker = int(parent.stdout.readline())
    assert Path(f"/proc/{worker}").exists()
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 60
    while Path(f"/proc/{worker}").exists() and "Z" not in Path(f"/proc/{worker}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
