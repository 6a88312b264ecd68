"""Stages in processes of their own: the same shards, the same release, and nothing left behind."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from flows.answers.audit import audit_answer
from flows.execution.driver import make_release
from flows.execution.reservation import new_release
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.synthetic import write_ready
from flows.walks.processes import in_processes
from flows.walks.runner import report_nothing, submit_to
from storage.database.connections import store
from storage.errors import InputError
from storage.releases.register import state_of
from tasks.synthesize.country import draw_country
from tasks.verify.folder import verify

# Waits until a worker has begun, says which processes there are, and waits to be killed.
PARENT = """
import os, sys, time
from flows.walks.processes import in_processes
with in_processes() as processes:
    print(processes.workers.submit(os.getpid).result(), flush=True)
    time.sleep(600)
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the spec of a small made-up country, whose stages run in processes."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    country = draw_country(regions=2, provinces=4, municipalities=12, people=500, generator=np.random.default_rng(1))
    spec = write_ready(country, tmp_path, "synthetic-commuting", "synthetic-country", epsilon=4.0)
    spec.write_text(spec.read_text().replace("delta: 1.0e-8", "delta: 1.0e-8\n  accountant: zcdp"))
    return spec


def test_a_release_in_processes_is_a_release(spec: Path) -> None:
    """Made by workers, it is published, verified and audited; an error of a stage is what it is in a thread."""
    plan = make_plan(load_spec(spec))
    wrong = spec.with_name("wrong.yaml")
    wrong.write_text(spec.read_text().replace("data/trips.csv", "data/wrong.csv"))
    table = (spec.parent / "data" / "trips.csv").read_text().splitlines()
    (spec.parent / "data" / "wrong.csv").write_text(
        "\n".join([table[0], "nowhere" + table[1][table[1].index(",") :], ""])
    )
    with in_processes(), ThreadPoolExecutor(2) as executor:
        release = new_release(plan)
        make_release(plan, release, submit_to(executor), report_nothing)
        faulty = make_plan(load_spec(wrong))
        refused = new_release(faulty)
        with pytest.raises(InputError, match="codes that the codebook lacks"):
            make_release(faulty, refused, submit_to(executor), report_nothing)
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
