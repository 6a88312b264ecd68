"""Releases that kill themselves with SIGKILL at a durable event: an fsync, a link, a rename, or a commit of DuckDB.

A moment is named by the event and by whether it is just before or just after it, so that it is the same moment at every
run, whichever branch is faster. This file is also the program of a warm process that imports everything once and
forks a child per run: it starts no thread and opens nothing itself. Only its children are watched; nothing in the
packages knows of it. Which file an fsync is for, Linux's /proc tells.
"""

import atexit
import gc
import json
import os
import re
import select
import signal
import subprocess
import sys
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock, active_count, local
from typing import Any, NamedTuple

import duckdb
import numpy.ctypeslib  # noqa: F401 (this and the next two are imported late: once here, instead of in every child)
import opendp.prelude  # noqa: F401
import pyarrow.dataset  # noqa: F401

import tasks.noise.measure
import tasks.noise.task
import tasks.optimize.task
import tasks.tree.branches
from flows.planning.plan import make_plan
from flows.run.driver import finish_release, make_release
from flows.run.reservation import new_release
from flows.run.runner import report_nothing, submit_to
from flows.specification.file import load_spec
from storage.database.connections import store
from storage.releases.shards import KINDS
from tasks.laws.law import Sampling
from tasks.mechanisms import MECHANISMS
from tests.support.draws import BRANCH_CELLS, CHUNK_CELLS, Draws
from tests.support.laws import drawn_by
from tests.support.user import REPOSITORY

PATIENCE = 120.0  # seconds for one run; it takes one or two
_OWN_NAME = re.compile(r"\.[0-9a-f]{32}(?=\.partial$)")  # of an unfinished file, other at every run
_WRITES = {"INSERT", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "COPY"}


class Durable:
    """What becomes durable in this process, in its order, and the moment at which the process kills itself."""

    def __init__(self, kill_at):
        self.kill_at = kill_at
        self.moments = []
        self._times = Counter()
        self._lock = Lock()
        self._renamed = local()

    def watch(self):
        """Put a watch on fsync, on links, on renames, and on every connection to DuckDB that is opened from now on."""
        fsync, connect = os.fsync, duckdb.connect
        os.fsync = self._watched(fsync, self._name_of_fsync)
        os.link = self._watched(os.link, self._name_of_link)
        os.rename = self._watched(os.rename, self._name_of_rename)  # Path.rename and Path.replace call these two
        os.replace = self._watched(os.replace, self._name_of_rename)
        duckdb.connect = self._watching(connect)

    @contextmanager
    def event(self, *names):
        """Be killed just before or just after an event, if that is asked for; it may have several names."""
        self._now("before", names)
        yield
        self._now("after", names)

    def _now(self, phase, names):
        for name in names:
            with self._lock:
                moment = f"{phase} {name}"
                self._times[moment] += 1
                moment += f" ({self._times[moment]})" if self._times[moment] > 1 else ""
                self.moments.append(moment)
            if moment == self.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    def _watching(self, connect):
        def connect_to(*path, **options):
            return Watched(connect(*path, **options), self) if path else connect()  # without a path: in memory

        return connect_to

    def _watched(self, function, name_of):
        def watched(*arguments, **options):
            with self.event(name_of(*arguments)):
                return function(*arguments, **options)

        return watched

    def _name_of_fsync(self, descriptor):
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        renamed = getattr(self._renamed, "path", None)
        if renamed and path == renamed.parent:
            return f"fsync the folder of {renamed.name}"
        return f"fsync {_OWN_NAME.sub('', path.name)}"

    def _name_of_link(self, _, target):
        self._renamed.path = Path(target)
        return f"link {Path(target).name}"

    def _name_of_rename(self, _, target):
        self._renamed.path = Path(target)
        return f"rename {Path(target).name}"


class Watched:
    """A connection to DuckDB of which every commit is an event: an explicit one, or a write outside a transaction."""

    def __init__(self, connection, durable):
        self._connection, self._durable = connection, durable
        self._written = None  # what the transaction has written; None outside
        connection.execute("SET python_scan_all_frames = true")  # or it would look for `rows` in this file alone

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def cursor(self):
        """Return a cursor that is watched too."""
        return Watched(self._connection.cursor(), self._durable)

    def execute(self, query, *parameters):
        """Execute a statement; if it commits, as an event."""
        verb = query.split(maxsplit=1)[0].upper()
        if verb in _WRITES and self._written is None and " TEMP " not in query:
            with self._durable.event(f"commit {_written_by(query, *parameters)}"):
                return self._connection.execute(query, *parameters)
        if verb == "COMMIT":
            names, self._written = _telling(self._written or []), None
            with self._durable.event(*(f"commit {name}" for name in names)):
                return self._connection.execute(query)
        if verb in {"BEGIN", "ROLLBACK"}:
            self._written = [] if verb == "BEGIN" else None
        elif verb in _WRITES and self._written is not None:
            self._written.append(_written_by(query, *parameters))
        return self._connection.execute(query, *parameters)


def _written_by(query, parameters=()):
    """Return what a statement writes, in a few words: a seal with its place, an event of the ledger, or a table."""
    found = re.search(r"(?:INTO|UPDATE|FROM|TABLE|SCHEMA IF NOT EXISTS)\s+([\w.\"-]+)", query)
    table = found[1] if found else "?"
    if table == "shards":
        return "{} {} {}".format(*parameters[1:4])
    if table == "ledger":
        event = json.loads(parameters[1])
        return f"ledger {event['event']} {event.get('level', '')}".strip()
    if table == "turns":
        told = ("open", *parameters[1:3]) if query.startswith("INSERT") else (parameters[0], *parameters[2:4])
        return "turn {} {} {}".format(*told)
    if table == "releases" and query.startswith("UPDATE"):
        return f"releases {parameters[0]}"
    return f"{query.split(maxsplit=1)[0]} {table}"


def _telling(written):
    """Return the names of a commit: every shard, turn or sealed level in it, however many share it, or its last."""
    telling = (*KINDS, "turn", "ledger drawing", "ledger sealed", "ledger reserved")
    return [name for name in written if name.startswith(telling)] or written[-1:] or ["nothing"]


# What a child does. Whatever depends on the driver is here.


def make(spec, output, release_id, kill_at="", *, hold=False):
    """Make a release, unless killed at a moment before, with the store held open or not; return the moments that it has come by, in their order."""
    durable = Durable(kill_at)
    durable.watch()
    plan = make_plan(load_spec(Path(spec)))
    with store() if hold else nullcontext(), ThreadPoolExecutor(2) as executor:
        release = new_release(plan, Path(output), release_id)
        make_release(plan, release, submit_to(executor), report_nothing)
    return durable.moments


def finish(release_id, sampler, mechanism="inftda", kill_at=""):
    """Finish a release by its sampler, the only one that there is here, with the store kept open, unless killed at a moment before; return level, branch and cells of all that it drew."""
    Durable(kill_at).watch()
    claimed = MECHANISMS[mechanism].default_law.samplers[sampler]
    draws = Draws(sampler=claimed.draw)
    MECHANISMS[mechanism] = drawn_by(mechanism, {sampler: Sampling(draws.sample, claimed.tau)})
    with store(), ThreadPoolExecutor(2) as executor:
        finish_release(release_id, draws.submit_to(executor), report_nothing)
    return [(*place, cells) for place, cells in draws.cells.items()]


_DEEDS = {"make": make, "finish": finish}


# The warm process, seen from inside and from outside.


class Ended(NamedTuple):
    """How a child ended: its exit code, None where it had to be stopped; what it returned; whether a process of its own outlived it."""

    code: int | None
    result: Any
    left: bool


def _run_forked(home, deed, options):
    """Do something in a child with a store of its own, and wait for its end."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        _be_the_child(write, home, deed, options)
    os.close(write)
    with os.fdopen(read) as answer:
        in_time = bool(select.select([answer], [], [], PATIENCE)[0])  # it answers, or ends
        if not in_time:
            os.killpg(child, signal.SIGKILL)
        result = answer.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        os.killpg(child, signal.SIGKILL)
        left = True
    except ProcessLookupError:
        left = False
    return Ended(code if in_time else None, json.loads(result) if code == 0 else None, left)


def _be_the_child(write, home, deed, options):
    code = 1
    try:
        os.setsid()
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        os.environ["TRELLIS_HOME"] = home
        tasks.tree.branches.BRANCH_CELLS = BRANCH_CELLS
        tasks.noise.measure.CHUNK_CELLS = tasks.optimize.task.CHUNK_CELLS = CHUNK_CELLS
        with os.fdopen(write, "w") as answer:
            json.dump(_DEEDS[deed](**options), answer)
        code = 0
    except BaseException:  # noqa: BLE001 (the test reads it)
        traceback.print_exc()
    finally:
        os._exit(code)


def serve():
    """Answer each request of stdin, in turn, until there are no more."""
    if active_count() > 1:
        raise SystemExit("The process that forks must have one thread.")
    gc.freeze()  # children leave what was imported alone, so that none of it is copied
    for request in sys.stdin:
        print(json.dumps(_run_forked(**json.loads(request))), flush=True)  # noqa: T201 (the answer)
    gc.unfreeze()


@dataclass(frozen=True, slots=True)
class Launcher:
    """The warm process, to be asked."""

    process: subprocess.Popen[str]

    def run(self, home, deed, **options):
        """Let a child make or finish a release in a store."""
        print(json.dumps({"home": str(home), "deed": deed, "options": options}), file=self.process.stdin, flush=True)
        return Ended(*json.loads(self.process.stdout.readline()))


@cache
def launcher():
    """Start the warm process of this test process, which ends with it."""
    few_threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", __spec__.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | few_threads | {"PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    atexit.register(process.communicate)
    return Launcher(process)


if __name__ == "__main__":
    serve()
