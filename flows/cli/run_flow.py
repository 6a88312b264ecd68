"""A release that a command runs in its own process, with a progress bar: on Prefect, where Cancel in the UI ends it, or without.

Some imports come late: Prefect has to find the server's address when it is first imported.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from flows.console import terminal
from flows.server.process import prefect_server, wait_until_recorded
from storage.database.connections import store
from storage.errors import Interrupted, StoreError, public_errors
from storage.machine.caller import heard_by_caller
from storage.machine.home import home, subfolder
from storage.releases.register import how_to_go_on

if TYPE_CHECKING:
    from flows.planning.plan import Plan
    from storage.releases.register import Release

_LISTEN_EVERY = 1.0  # seconds


def run_on_prefect(
    flow_name: str,
    parameters: dict[str, Any],
    release_id: str,
    planned: "tuple[Plan, Release] | None" = None,
) -> dict[str, float]:
    """Run a Prefect flow with a server and a progress bar; return the thread seconds per stage.

    Raises:
        Interrupted: by Ctrl-C, SIGTERM, or Cancel in the UI.
        TrellisError: what stopped it.
    """
    terminal.doing("starting Prefect's server")
    with prefect_server(subfolder("prefect"), home() / "address"), terminal.progress() as report:
        terminal.doing(f"making {release_id}")
        from httpx import HTTPError

        import flows.release
        from flows.release import RunRequest, requesting
        from flows.server.runs import end_cancelled, look_for_crashes

        look_for_crashes()
        plan, made = planned or (None, None)
        with heard_by_caller(), requesting(RunRequest(report, plan, made)) as request, _cancel_heard(request):
            try:
                state = getattr(flows.release, flow_name)(**parameters, return_state=True)
                if not state.is_final():  # cancelled in the UI, too late to be heard
                    end_cancelled(request.flow_run_id)
                if state.is_cancelled() or not state.is_final():
                    raise interrupted(release_id)
                state.result()
            except (HTTPError, RuntimeError) as fault:  # RuntimeError: what the client makes of a server that is gone
                gone = f"{release_id}: the Prefect server no longer answers ({type(fault).__name__})."
                raise StoreError(gone, hint=_how_to_go_on(release_id)) from None
            finally:
                recorded = wait_until_recorded(request.flow_run_id, request.task_runs) if request.flow_run_id else 0
                if recorded < request.task_runs:
                    terminal.warn(f"Prefect recorded {recorded} of {request.task_runs} task runs.")
    return request.seconds


@public_errors
def run_without_prefect(
    release_id: str, planned: "tuple[Plan, Release] | None" = None, branch: str | None = None
) -> dict[str, float]:
    """Make or finish a release without Prefect, with a progress bar; return the thread seconds per stage.

    Args:
        release_id: the release.
        planned: its plan, and the release from `new_release`; None to finish a release that the store knows.
        branch: the only branch to finish; all of them if left out.
    Raises:
        TrellisError: what stopped it.
    """
    from flows.execution.driver import finish_release, make_release
    from flows.execution.plain import without_prefect
    from flows.execution.resumption import refresh_run_keys

    terminal.doing(f"making {release_id}")
    release = planned[1] if planned else refresh_run_keys(release_id)
    with terminal.progress() as report, heard_by_caller(), without_prefect(release.terms.run.workers) as submit:
        if planned:
            return make_release(*planned, submit, report)
        return finish_release(release_id, submit, report, only=branch)


@contextmanager
def _cancel_heard(request: Any) -> Iterator[None]:
    """Interrupt this process when its flow run is cancelled in the UI: Prefect itself reaches only runs of deployments."""
    from flows.server.runs import is_cancelled

    ended = Event()

    def listen() -> None:
        while not ended.wait(_LISTEN_EVERY):
            if request.flow_run_id and is_cancelled(request.flow_run_id):
                os.kill(os.getpid(), signal.SIGTERM)  # SIGINT is ignored in a shell's background
                return

    listener = Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield
    finally:
        ended.set()


def interrupted(release_id: str) -> Interrupted:
    """Return the error of a command that was interrupted."""
    return Interrupted(f"{release_id} was interrupted.", hint=_how_to_go_on(release_id))


def _how_to_go_on(release_id: str) -> str:
    with store() as con:
        return how_to_go_on(con, release_id)
