"""A release where no server answers, as somebody in front of a terminal sees it: what begins, at once, and bars in the order of the levels."""

import json
import os
import pty
import re
from uuid import uuid4

import pytest

from tests.support.processes import processes_of
from tests.support.up import bring_up, end
from tests.support.user import TRELLIS

# Says in the terminal when a package is imported that takes its time.
TELLING = """
import sys
class Telling:
    def find_spec(self, name, path=None, target=None):
        if name in {"numpy", "polars", "prefect", "opendp"}:
            print(f"[imports {name}]", file=sys.stderr, flush=True)
sys.meta_path.insert(0, Telling())
"""


@pytest.mark.thorough
@pytest.mark.heavy("a cold release, and Trellis is up")
def test_without_a_server_a_release_is_handed_over_to_the_next_one(loner):
    """Where no server answers the command starts none, and `trellis up` lists its run with every task run; one that died has crashed."""
    # It says what begins before anything slow is imported, and then step by step; at the end there is a bar for each level.
    (loner.folder / "telling").mkdir()
    (loner.folder / "telling" / "sitecustomize.py").write_text(TELLING)
    own = {"COLUMNS": "100", "TERM": "xterm", "PYTHONPATH": str(loner.folder / "telling")}
    own |= {"PREFECT_API_URL": "http://127.0.0.1:9/api"}
    said = b""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(loner.folder)
        os.execve(TRELLIS, ["trellis", "release", "spec.yaml"], loner.environment | own)  # noqa: S606
    while True:
        try:
            said += os.read(terminal, 2**16)
        except OSError:  # the other end is closed
            break
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 0, said
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode())
    places = [
        shown.index(step)
        for step in ("planning the release of spec.yaml …", "[imports ", "reading trips.csv …", "making ")
    ]
    assert (places, "[imports prefect]" in shown) == (sorted(places), False)
    bars = re.findall(r"level +(\d+) .*? ([\d,]+) of +([\d,]+) cells", "".join(shown.rpartition("level  0")[1:]))
    assert [int(level) for level, _, _ in bars] == list(range(7))
    assert all(done == known for _, done, known in bars)
    assert processes_of(loner.folder / "home") == []
    (release,) = loner.run("releases", "--json").json()["releases"]
    (kept,) = (loner.prefect.home / "unseen").iterdir()
    run = json.loads(kept.read_text())
    died = run | {"id": str(uuid4()), "release_id": "none", "name": "none", "states": run["states"][:1]}
    kept.with_name(f"{died['id']}.json").write_text(json.dumps(died))
    (loner.folder / "specs").mkdir()
    end(bring_up(loner))
    assert list(kept.parent.iterdir()) == []
    assert [state for _, state in loner.prefect.task_runs(release["id"])] == ["COMPLETED"] * (3 + 3 * 7)
    runs = loner.prefect.rows("SELECT id, name, state_type FROM flow_run WHERE id IN (?, ?)", run["id"], died["id"])
    assert set(runs) == {(run["id"], release["id"], "COMPLETED"), (died["id"], "none", "CRASHED")}
    assert set(loner.prefect.artifacts(release["id"])) >= {"levels", "statement"}
