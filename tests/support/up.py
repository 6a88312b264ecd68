"""Trellis up over a folder of specs, as an operator brings it up, triggers runs and ends it."""

import random
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

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

    def call(self, path, body=None):
        """Ask the server, which answers however busy it is."""
        auth = Path(self.user.environment["TRELLIS_HOME"]) / "auth"
        return ask(f"{self.api}{path}", body, auth.read_text().strip() if auth.is_file() else "")

    def trigger(self, deployment, **parameters):
        """Start a run of a deployment, as its page in the UI does; return the run."""
        found = self.call(f"/deployments/name/{deployment}")
        created = self.call(f"/deployments/{found['id']}/create_flow_run", {"parameters": parameters})
        return str(created["id"])

    def set_state(self, run, kind, name):
        """Press Cancel or Retry."""
        self.call(f"/flow_runs/{run}/set_state", {"state": {"type": kind, "name": name}, "force": kind == "SCHEDULED"})

    def ended(self, run):
        """Wait until a run has ended, and return it."""
        return self.reached(run, lambda found: found["state_type"] in {"COMPLETED", "FAILED", "CANCELLED", "CRASHED"})

    def reached(self, run, there):
        """Wait until something holds of a run, and return it."""
        return until(lambda: (now := self.call(f"/flow_runs/{run}")) and there(now) and now)

    def shown(self, run):
        """Return what the UI shows of a run, by its keys."""
        found = self.call("/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run]}}})
        return {entry["key"]: entry["data"] for entry in found}

    def keys(self, run):
        """Return the keys of what the UI shows of a run."""
        return set(self.shown(run))

    def artifacts(self, run):
        """Return what the UI shows of a run, by what it is."""
        return {key.rpartition("-")[2]: data for key, data in self.shown(run).items() if key}


def until(there, timeout=240.0):
    """Wait until something is true, and return it."""
    deadline = time.monotonic() + timeout
    while not (found := there()):
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)
    return found


def free_port():
    """Return a port that nobody has, and that the system gives to nobody who asks for any (it begins at 32768)."""
    while True:
        port = random.randrange(10_000, 32_000)  # noqa: S311 (no secret)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def bring_up(user, *options, **variables):
    """Start `trellis up` and wait until it says that it is."""
    process = user.start("up", "specs", "--port", str(free_port()), *options, **variables)
    said = ""
    while "Trellis is up" not in said:
        line = process.stderr.readline()
        assert line, f"it ended: {said}"
        said += line
    return Up(user, process, said, (Path(user.environment["TRELLIS_HOME"]) / "address").read_text().strip())


def end(up, signum=signal.SIGTERM):
    """End `trellis up`; return its exit code and what it said last."""
    up.process.send_signal(signum)
    _, said = up.process.communicate(timeout=240)
    return up.process.returncode, said


def below(spec, **keys):
    """Return a spec for the folder of specs, with some keys changed."""
    changed = spec | keys
    changed["input"] = changed["input"] | {"table": f"../{changed['input']['table']}"}
    changed["hierarchy"] = changed["hierarchy"] | {"table": f"../{changed['hierarchy']['table']}"}
    return yaml.safe_dump(changed | {"output": "../out"})


def write_large(folder):
    """Write the tables of a country whose release takes some seconds, in branches."""
    generator = np.random.default_rng(3)
    drawn = draw_country(regions=5, provinces=50, municipalities=3000, people=600_000, generator=generator)
    write_country(drawn, folder)


def states(user):
    """Return the state of every release."""
    return {entry["id"]: entry["state"] for entry in user.run("releases", "--json").json()["releases"]}
