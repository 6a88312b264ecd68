"""Trellis up over a folder of specs, as an operator brings it up, triggers runs and ends it."""

import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tests.support.server import ask
from tests.support.user import User

SCHEDULE = {"cron": "0 3 1 1 *", "timezone": "UTC"}  # at New Year: in the tests it is triggered by hand


class Up(NamedTuple):
    """A user whose Trellis is up: the process of `trellis up`, what it said while it came up, and the address of the server."""

    user: User
    process: subprocess.Popen[str]
    said: str
    api: str

    def call(self, path: str, body: object = None) -> Any:
        """Ask the server, which answers however busy it is."""
        auth = Path(self.user.environment["TRELLIS_HOME"]) / "auth"
        return ask(f"{self.api}{path}", body, auth.read_text().strip() if auth.is_file() else "")

    def trigger(self, deployment: str, **parameters: object) -> str:
        """Start a run of a deployment, as its page in the UI does; return the run."""
        found = self.call(f"/deployments/name/{deployment}")
        created = self.call(f"/deployments/{found['id']}/create_flow_run", {"parameters": parameters})
        return str(created["id"])

    def set_state(self, run: str, kind: str, name: str) -> None:
        """Press Cancel or Retry."""
        self.call(f"/flow_runs/{run}/set_state", {"state": {"type": kind, "name": name}, "force": kind == "SCHEDULED"})

    def ended(self, run: str) -> dict[str, Any]:
        """Wait until a run has ended, and return it."""
        return self.reached(run, lambda found: found["state_type"] in {"COMPLETED", "FAILED", "CANCELLED", "CRASHED"})

    def reached(self, run: str, there: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until something holds of a run, and return it."""
        found: dict[str, Any] = until(lambda: (now := self.call(f"/flow_runs/{run}")) and there(now) and now)
        return found

    def shown(self, run: str) -> dict[str, Any]:
        """Return what the UI shows of a run, by its keys."""
        found = self.call("/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run]}}})
        return {entry["key"]: entry["data"] for entry in found}

    def keys(self, run: str) -> set[str]:
        """Return the keys of what the UI shows of a run."""
        return set(self.shown(run))

    def artifacts(self, run: str) -> dict[str, Any]:
        """Return what the UI shows of a run, by what it is."""
        return {key.rpartition("-")[2]: data for key, data in self.shown(run).items() if key}


def until(there: Callable[[], Any], timeout: float = 240.0) -> Any:
    """Wait until something is true, and return it."""
    deadline = time.monotonic() + timeout
    while not (found := there()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)
    return found


def free_port() -> int:
    """Return a port that nobody has, and that the system gives to nobody who asks for any (it begins at 32768)."""
    while True:
        port = random.randrange(10_000, 32_000)  # noqa: S311 (no secret)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def bring_up(user: User, *options: str, **variables: str) -> Up:
    """Start `trellis up` and wait until it says that it is."""
    process = user.start("up", "specs", "--port", str(free_port()), *options, **variables)
    assert process.stderr
    said = ""
    while "Trellis is up" not in said:
        line = process.stderr.readline()
        assert line, f"it ended: {said}"
        said += line
    return Up(user, process, said, (Path(user.environment["TRELLIS_HOME"]) / "address").read_text().strip())


def end(up: Up, signum: int = signal.SIGTERM) -> tuple[int, str]:
    """End `trellis up`; return its exit code and what it said last."""
    up.process.send_signal(signum)
    _, said = up.process.communicate(timeout=240)
    return up.process.returncode, said


def below(spec: dict[str, Any], **keys: Any) -> str:
    """Return a spec for the folder of specs, with some keys changed."""
    changed: dict[str, Any] = spec | keys
    changed["input"] = changed["input"] | {"table": f"../{changed['input']['table']}"}
    changed["hierarchy"] = changed["hierarchy"] | {"table": f"../{changed['hierarchy']['table']}"}
    return yaml.safe_dump(changed | {"output": "../out"})


def write_large(folder: Path) -> None:
    """Write the tables of a country whose release takes some seconds, in branches."""
    generator = np.random.default_rng(3)
    drawn = draw_country(regions=5, provinces=50, municipalities=3000, people=600_000, generator=generator)
    write_country(drawn, folder)


def states(user: User) -> dict[str, str]:
    """Return the state of every release."""
    return {entry["id"]: entry["state"] for entry in user.run("releases", "--json").json()["releases"]}
