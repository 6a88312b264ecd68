"""The Prefect server: an existing one, or a child process that lives as long as one run or as long as `trellis up`.

Importing this module does not import Prefect. Run as a script, the module is the child process.
"""

import errno
import fcntl
import logging
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from flows.server.database import begin_database, keep_empty_database
from flows.server.guard import OwnPagesOnly, new_auth, server_names, stored_auth
from storage.errors import StoreError, disk_fault
from storage.machine.files import beside

if TYPE_CHECKING:
    from fastapi import FastAPI
    from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction

ADDRESS = "address"  # in TRELLIS_HOME, the file with the address of the server of `trellis up`

START_SECONDS = 90.0  # measured: 10 on a new database, mostly for Prefect's migrations, and 3 on an existing one
_LEAST_ROOM = 2**20  # bytes; a new database has 1.5 MB
_END_WITHIN = 20.0  # seconds

_CLIENT_AUTH, _SERVER_AUTH = "PREFECT_API_AUTH_STRING", "PREFECT_SERVER_API_AUTH_STRING"

STOP_SECONDS = 10.0  # measured: 0.2. A server that gets SIGTERM during its migrations finishes them first

NO_TELEMETRY = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "PREFECT_TELEMETRY_ENABLE_RESOURCE_METRICS": "false",
}

# A server that lives for minutes schedules nothing, marks nothing as late and fires no automation.
RECORD_ONLY = {
    "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_LATE_RUNS_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_TRIGGERS_ENABLED": "false",
}

# One transaction records fifty state changes of task runs. One at a time, Prefect's default, costs the server twice the
# processor time.
RECORD_IN_BATCHES = {
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_ENABLED": "true",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_BATCH_SIZE": "50",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
}

# When many runs begin at once, Prefect's server on SQLite answers 503 to writes that collide, and a client that gives up
# crashes its run. Of twenty runs triggered in one second, a server as Prefect starts it answered 109 to 125 triggers with
# 503, and one run crashed before it began; with what follows there was no 503 and no crash. `_write_in_turn` lets our
# server wait instead of refusing, and the clients of `trellis up` retry for longer. deployments/ sets the same values, and
# its worker takes at most AT_ONCE runs.
AT_ONCE = 4  # runs that are started; runs of one dataset take turns in any case
PATIENT = {
    "PREFECT_CLIENT_MAX_RETRIES": "6",  # waits of 2, 4, … 64 seconds
    "PREFECT_CLIENT_RETRY_JITTER_FACTOR": "0.5",  # so that clients that were refused together do not return together
}
# For the clients of a child that lives as long as one run: if it does not answer, it is gone.
ON_THIS_MACHINE = {"PREFECT_CLIENT_MAX_RETRIES": "2"}


def quiet_prefect() -> None:
    """Keep Prefect's telemetry off and its logs off the terminal; its server still receives the logs of runs.

    Call this before the first import of Prefect, which reads both settings then.
    """
    os.environ.update(NO_TELEMETRY)
    os.environ["PREFECT_LOGGING_HANDLERS_DEBUG_LEVEL"] = "CRITICAL"  # its internal log, on stderr
    silent = logging.NullHandler()
    silent.setFormatter(logging.Formatter())  # Prefect leaves a root logger alone that has a handler with a formatter
    logging.getLogger().addHandler(silent)


@contextmanager
def prefect_server(prefect_home: Path, address_file: Path | None = None) -> Iterator[str]:
    """Yield the address of a Prefect API, and make it the one that flows of this process and its children use.

    It is the server at PREFECT_API_URL, or that of `trellis up`, if either answers; otherwise a child on the same database.
    A child's files are closed to group and others. What Prefect writes in this process, such as the pickled exception
    of a failed flow, follows this process's umask.

    Args:
        prefect_home: a child's `server.log` and, unless PREFECT_HOME names another place, its database.
        address_file: where `lasting_server` writes its address.
    Raises:
        StoreError: the child did not start; the message names its log.
    """
    with ExitStack() as stack:
        given = next((of for of in _given(address_file) if answers(of[0])), None)
        if given:
            address, auth = given
            stack.enter_context(_environment(_settings_for(address, prefect_home.absolute()) | auth))
        else:
            address = stack.enter_context(_child(prefect_home.absolute(), 0, RECORD_ONLY, new_auth()))
        stack.callback(_send_what_is_queued, STOP_SECONDS)  # and close the connections to this server
        yield address


@contextmanager
def lasting_server(prefect_home: Path, address_file: Path, port: int, auth: str | None) -> Iterator[str]:
    """Run a server that schedules, on a port of 127.0.0.1, and write its address to a file, so that runs find it.

    Args:
        prefect_home: as for `prefect_server`.
        port: of 127.0.0.1; 0 for any.
        auth: the name and the password that it asks for, as `guard.auth_of_up` returns them; None for none.

    Yields:
        The address of its API. If the server ends too early, this process gets SIGTERM.
    Raises:
        StoreError: the port is in use, or the server did not start.
    """

    def forget_address() -> None:
        address_file.unlink(missing_ok=True)

    with _child(prefect_home.absolute(), port, {}, auth, forget_address) as address, _environment(PATIENT):
        with beside(address_file) as file:
            file.write(f"{address}\n".encode())
        try:
            yield address
        finally:
            forget_address()


def _given(address_file: Path | None) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the addresses of servers that may be there, with what their clients need to be let in."""
    yield os.environ.get("PREFECT_API_URL", "").rstrip("/"), {}
    if address_file and address_file.is_file():
        auth = stored_auth()
        yield address_file.read_text().strip(), {_CLIENT_AUTH: auth} if auth else {}


def server_answers(address_file: Path) -> bool:
    """Return whether a server answers that a command would use: at PREFECT_API_URL, or that of `trellis up`."""
    return any(answers(address) for address, _ in _given(address_file))


def wait_until_recorded(flow_run_id: UUID | str, task_runs: int, timeout: float = 60.0) -> int:
    """Wait until the server holds the final states of `task_runs` task runs of a flow run; return how many it holds.

    After `timeout` seconds, or if the server does not answer, return fewer and raise nothing. Call this after the flow in
    the same process: a thread of Prefect sends the states after the tasks end.
    """
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.objects import TERMINAL_STATES

    deadline = time.monotonic() + timeout
    _send_what_is_queued(timeout)
    ended = {
        "flow_runs": {"id": {"any_": [str(flow_run_id)]}},
        "task_runs": {"state": {"type": {"any_": sorted(TERMINAL_STATES)}}},
    }
    recorded = 0
    try:
        with get_client(sync_client=True) as client:
            while True:
                recorded = int(client.request("POST", "/task_runs/count", json=ended).json())
                if recorded >= task_runs or time.monotonic() >= deadline:
                    return recorded
                time.sleep(0.1)
    except (httpx.HTTPError, RuntimeError):  # RuntimeError: what the client makes of a server that is gone
        return recorded


def _send_what_is_queued(timeout: float) -> None:
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    for worker in (EventsWorker, APILogWorker):
        worker.drain_all(timeout=timeout, at_exit=False)


def answers(address: str) -> bool:
    """Return whether a Prefect server answers at an address, within two seconds."""
    import urllib.request  # here, because every command imports this module, and few ask a server
    from http.client import HTTPException

    try:
        with urllib.request.urlopen(f"{address}/health", timeout=2.0) as response:  # noqa: S310 (the caller's own URL)
            return bool(response.status == 200)
    except (OSError, HTTPException, ValueError):
        return False


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables for this process and those it starts, also for a Prefect that was imported before."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    _reread_environment()
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        _reread_environment()


def _reread_environment() -> None:
    if context := sys.modules.get("prefect.context"):
        context.refresh_global_settings_context()


@contextmanager
def _child(
    prefect_home: Path,
    port: int,
    settings: Mapping[str, str],
    auth: str | None,
    last: Callable[[], None] | None = None,
) -> Iterator[str]:
    """Run a server on a socket that listens before the server starts, so that nobody else can take its port; 0 for any port.

    With `auth`, a name and a password, it answers only who has them. With `last`, this process ends soon after the server, and
    calls `last` if it cannot end in order.
    """
    prefect_home.mkdir(mode=0o700, parents=True, exist_ok=True)
    prefect_home.chmod(0o700)
    log = prefect_home / "server.log"
    with ExitStack() as stack:
        listening = stack.enter_context(_listen(port))
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/api"
        let_in = {_CLIENT_AUTH: auth} if auth else {}
        stack.enter_context(_environment(_settings_for(address, prefect_home) | ON_THIS_MACHINE | let_in))
        log.touch(mode=0o600)
        output = stack.enter_context(log.open("ab"))
        fcntl.flock(output, fcntl.LOCK_EX)  # of two servers that migrate one database at once, one fails
        database = Path(os.environ["PREFECT_HOME"])
        is_new = begin_database(database)
        server = subprocess.Popen(  # noqa: S603 (our own interpreter and file)
            [sys.executable, "-P", __file__, str(listening.fileno()), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env={
                **os.environ,
                **RECORD_IN_BATCHES,
                "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": address.removesuffix("/api").replace("127.0.0.1", "localhost"),
                **settings,
                **({_SERVER_AUTH: auth} if auth else {}),
                "PREFECT_UI_STATIC_DIRECTORY": str(prefect_home / "ui"),
            },
            pass_fds=[listening.fileno()],
            umask=0o077,
            start_new_session=True,  # a terminal's Ctrl-C is for the parent, which ends the child last
        )
        stack.callback(_end, server)
        listening.close()
        import prefect.context  # noqa: F401 (takes a second, which the child needs for the same)

        _wait_for(server, address, log)
        if is_new:
            keep_empty_database(database)
        fcntl.flock(output, fcntl.LOCK_UN)
        if last:
            expected = threading.Event()
            stack.callback(expected.set)
            threading.Thread(target=_end_without, args=[server, expected, last], daemon=True).start()
        yield address
        if last and server.poll() is not None:
            raise StoreError(
                "The Prefect server ended, so Trellis ended too.", hint=f"See {log}, then start Trellis again."
            )


def _listen(port: int) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as fault:
        reason = f"Port {port} of 127.0.0.1 cannot be used ({fault.strerror})."
        raise StoreError(reason, field="--port", hint="Name another port with --port.") from None


def _end_without(server: subprocess.Popen[bytes], expected: threading.Event, last: Callable[[], None]) -> None:
    """End this process if its server ends unexpectedly, so that the service manager starts both again."""
    os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
    if not expected.is_set():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_END_WITHIN)
        last()
        os._exit(1)  # a thread that waits for an answer of that server may wait for long


def _settings_for(address: str, prefect_home: Path) -> dict[str, str]:
    """Return what this process and those it starts need to reach a server. How often they try is for the caller to set."""
    direct = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    direct = f"{direct},127.0.0.1".lstrip(",")  # Prefect's clients would ask a proxy for 127.0.0.1
    return {
        **NO_TELEMETRY,
        "PYTHONSAFEPATH": "1",  # or runs would import whatever lies in the folder in which they begin
        "PREFECT_API_URL": address,
        "PREFECT_HOME": os.environ.get("PREFECT_HOME") or str(prefect_home),
        "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
        "NO_PROXY": direct,
        "no_proxy": direct,
    }


def _wait_for(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not answers(address):
        if server.poll() is not None:
            raise _not_started(f"ended with code {server.returncode} while starting", log)
        if time.monotonic() > deadline:
            raise _not_started(f"did not answer within {START_SECONDS:.0f} s", log)
        time.sleep(0.05)


def _not_started(what: str, log: Path) -> StoreError:
    """Return why there is no server. A server without room for its database writes that to its log at best."""
    full = disk_fault(OSError(errno.ENOSPC, "")) if shutil.disk_usage(log.parent).free < _LEAST_ROOM else None
    return full or StoreError(f"The Prefect server {what}.", hint=f"See {log}.")


def _end(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.communicate(timeout=STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.kill()
        server.communicate()


def _serve(listening: int, parent: int) -> None:
    """Run the server in the child process.

    It serves the first of Prefect's two UIs. The second one asks amplitude.com for its configuration whatever the
    telemetry settings are, and hides Retry in a menu.
    """
    threading.Thread(target=_end_with, args=[parent], daemon=True).start()
    import prefect
    import uvicorn

    prefect.__ui_v2_static_path__ = Path(__file__).with_name("no second UI")
    config = uvicorn.Config(create_app, factory=True, log_level="warning", timeout_graceful_shutdown=3)
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=listening)])


def create_app() -> "FastAPI":
    """Return Prefect's server, with its services, for uvicorn. Pages from elsewhere cannot ask it anything.

    Its transactions on SQLite wait for each other.

    For a worker pool with a server on SQLite, uvicorn can run this app too: docs/operations.md has the command.
    """
    from prefect.server.api.server import create_app as app_of_prefect

    from flows.server.handover import take_runs

    _write_in_turn()
    app = app_of_prefect()
    take_runs(app)
    app.add_middleware(OwnPagesOnly, names=server_names())
    return app


def _write_in_turn() -> None:
    """Make this server's transactions on SQLite wait for each other, up to the minute that Prefect lets SQLite wait.

    Prefect begins most transactions as readers. If a reader wants to write after somebody else has written, SQLite refuses
    at once (SQLITE_BUSY_SNAPSHOT). No timeout applies, and Prefect has no setting for how transactions begin. A
    transaction that begins as a writer waits for its turn.
    """
    from prefect.server.database.configurations import AioSqliteConfiguration

    begin = AioSqliteConfiguration.begin_transaction

    def begin_as_writer(
        self: AioSqliteConfiguration,
        session: "AsyncSession",
        with_for_update: bool = False,  # noqa: ARG001 (it always is)
    ) -> AbstractAsyncContextManager["AsyncSessionTransaction"]:
        return begin(self, session, with_for_update=True)

    AioSqliteConfiguration.begin_transaction = begin_as_writer  # type: ignore[assignment, method-assign]


def _end_with(parent: int) -> None:
    """End this process soon after its parent ends, for whatever reason.

    The parent's death closes our standard input. If a fork of the parent still holds the other end, our parent changes.
    """
    while os.getppid() == parent and not select.select([sys.stdin], [], [], 1.0)[0]:
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    _serve(listening=int(sys.argv[1]), parent=int(sys.argv[2]))
