"""A Prefect server for the commands of the tests: one that all workers share, or one of a test's own."""

import fcntl
import json
import os
import sqlite3
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Prefect:
    """A Prefect server, or what one has left behind in its PREFECT_HOME."""

    home: Path
    environment: Mapping[str, str]  # makes commands use it; empty where each starts its own

    def rows(self, query, *values):
        """Return what its database answers."""
        with closing(sqlite3.connect(f"file:{self.home}/prefect.db?mode=ro", uri=True)) as con:
            return con.execute(query, values).fetchall()

    def task_runs(self, release_id):
        """Return name and state of the task runs of a release's flow run."""
        return self.rows(
            "SELECT task_run.name, task_run.state_type FROM task_run JOIN flow_run ON flow_run.id = flow_run_id"
            " WHERE flow_run.name = ?",
            release_id,
        )

    def artifacts(self, release_id):
        """Return the artifacts of a release, by what they show."""
        key = release_id.lower()
        found = self.rows("SELECT key, data FROM artifact WHERE key LIKE ?", f"{key}-%")
        read = {name: data if isinstance(data, int | float) else json.loads(data) for name, data in found}
        return {name.removeprefix(f"{key}-"): data for name, data in read.items()}

    def parameters(self, release_id):
        """Return the parameters of the flow runs of a release."""
        found = self.rows("SELECT parameters FROM flow_run WHERE name = ?", release_id)
        return [json.loads(parameters) for (parameters,) in found]


@contextmanager
def shared_server(together):
    """Hold a Prefect server open for all workers, which see a folder: the first starts it, and ends it once no other uses it any more."""
    known = together / "prefect.json"
    with (together / "users.lock").open("w") as users, ExitStack() as stack:
        with (together / "start.lock").open("w") as start:
            fcntl.flock(start, fcntl.LOCK_EX)
            if mine := not known.exists():
                shared = stack.enter_context(started(together / "prefect"))
                known.write_text(json.dumps(dict(shared.environment)))
            shared = Prefect(together / "prefect", json.loads(known.read_text()))
            fcntl.flock(users, fcntl.LOCK_SH)
        yield shared
        fcntl.flock(users, fcntl.LOCK_UN)
        if mine:
            with (together / "start.lock").open("w") as start:
                fcntl.flock(start, fcntl.LOCK_EX)
                known.unlink()
            fcntl.flock(users, fcntl.LOCK_EX)


@contextmanager
def started(home, **settings):
    """Start a server, with settings of its own and its clients'; this process itself sees nothing of it."""
    from flows.server.process import prefect_server  # takes a second, which few suites need

    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("PREFECT_")]:
            patch.delenv(name)
        before = dict(os.environ)
        os.environ.update(settings)
        with prefect_server(home):
            given = {name: value for name, value in os.environ.items() if before.get(name) != value}
            for name in given:
                os.environ.pop(name)
            os.environ.update({name: before[name] for name in given if name in before})
            yield Prefect(home, given)


def copy_database(prefect, home):
    """Copy a server's database to a new PREFECT_HOME, in which it need not be made again."""
    home.mkdir()
    with (
        closing(sqlite3.connect(f"file:{prefect.home}/prefect.db?mode=ro", uri=True)) as con,
        closing(sqlite3.connect(home / "prefect.db")) as copy,
    ):
        con.backup(copy)


def ask(address, body=None, auth=""):
    """Return what a server on this machine answers, however busy it is, to who has a name and a password."""
    headers = {"Content-Type": "application/json"}
    if auth:
        headers["Authorization"] = f"Basic {b64encode(auth.encode()).decode()}"
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, content, headers)  # noqa: S310 (our own server)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with direct.open(request, timeout=240.0) as response:
        return json.load(response)
