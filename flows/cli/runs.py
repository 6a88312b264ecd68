"""Releases and comparisons as a command runs them: in its own process, with a progress bar, on a Prefect server or without.

Some imports come late: Prefect has to find the server's address when it is first imported.
"""

import json
import math
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain, count
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from flows.cli.arguments import json_object
from flows.console import terminal
from flows.server.process import ADDRESS, prefect_server, wait_until_recorded
from flows.specification.file import SpecFile
from storage.database.connections import store
from storage.errors import InputError, Interrupted, StoreError, UsageError, disk_fault, public_errors
from storage.machine.caller import heard_by_caller
from storage.machine.clock import utc_now
from storage.machine.files import beside
from storage.machine.home import home, subfolder
from storage.releases.register import how_to_go_on

if TYPE_CHECKING:
    from flows.planning.plan import Plan
    from storage.releases.register import Release
    from tasks.pages.trial_results import MadeUp, TrialResults

_LISTEN_EVERY = 1.0  # seconds


def run_on_prefect(
    release_id: str, planned: "tuple[Plan, Release] | None" = None, branch: str | None = None
) -> dict[str, float]:
    """Make or finish a release as a flow of Prefect, with a server and a progress bar; return the thread seconds per stage.

    Args:
        planned: its plan, and the release from `new_release`; None to finish a release that the store knows.
        branch: the only branch to finish; all of them if left out.
    Raises:
        Interrupted: by Ctrl-C, SIGTERM, or Cancel in the UI.
        TrellisError: what stopped it.
    """
    terminal.doing("starting Prefect's server")
    with prefect_server(subfolder("prefect"), home() / ADDRESS), terminal.progress() as report:
        terminal.doing(f"making {release_id}")
        from httpx import HTTPError

        from flows.release import RunRequest, release, requesting, rerun
        from flows.server.runs import end_cancelled, look_for_crashes

        look_for_crashes()
        with heard_by_caller(), requesting(RunRequest(report, planned)) as request, _cancel_heard(request):
            try:
                if planned:
                    state = release(str(planned[0].file.path.absolute()), return_state=True)
                else:
                    state = rerun(release_id, branch, return_state=True)
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
    release_id: str,
    planned: "tuple[Plan, Release] | None" = None,
    branch: str | None = None,
    *,
    is_recorded: bool = False,
) -> dict[str, float]:
    """Make or finish a release without Prefect, with a progress bar; otherwise as `run_on_prefect`.

    Args:
        is_recorded: whether the next server is told of the run.
    """
    from flows.run.driver import finish_release, make_release, without_prefect
    from flows.run.reservation import refresh_run_keys
    from flows.server.handover import Unseen, unseen

    terminal.doing(f"making {release_id}")
    release = planned[1] if planned else refresh_run_keys(release_id)
    if planned:
        parameters: dict[str, object] = {"spec": str(planned[0].file.path.absolute()), "measure_again": False}
        record = Unseen(release_id, release.dataset, "release", release_id, parameters)
    else:
        name = f"{release_id} again" + (f", {branch} only" if branch else "")
        parameters = {"release_id": release_id, "branch": branch}
        record = Unseen(release_id, release.dataset, "rerun", name, parameters)
    with ExitStack() as stack:
        report = stack.enter_context(terminal.progress())
        stack.enter_context(heard_by_caller())
        if is_recorded:
            stack.enter_context(unseen(record))
        submit, run = stack.enter_context(without_prefect(release.terms.run.workers)), ""
        if is_recorded:
            submit, run = partial(record.submit, submit), record.id
        if planned:
            return make_release(*planned, submit, report, run)
        return finish_release(release_id, submit, report, only=branch, run=run)


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


def numbers_of(option: str, text: str) -> list[float]:
    """Return the numbers of an option that lists them; refuse one that is not a number above zero."""
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(math.isfinite(number) and number > 0 for number in numbers):
        raise UsageError(f"{option} must list numbers > 0, such as 0.1,1,10; got {text}.", field=option)
    return numbers


def compare_and_write(
    file: SpecFile,
    mechanisms: list[str],
    epsilons: list[float],
    runs: int,
    out: Path | None,
    utilities: Sequence[str] = (),
    made_up: "MadeUp | None" = None,
) -> "TrialResults":
    """Compare mechanisms on the table of a spec, or on a made-up one like it, write the page, the rows and the figures, and return the results.

    Without a named folder each comparison has a new one. In a named folder it replaces an earlier comparison.

    Raises:
        TrellisError: as `make_comparison`; or the folder cannot be written, or the server is gone.
    """
    folder = (out or new_folder(file)).absolute()
    with prefect_server(subfolder("prefect"), home() / ADDRESS):
        from httpx import HTTPError

        from flows.parallel_trials import run_trials
        from flows.trials.comparison import ADDED, MEASURES, STATED, TRIED, comparison_answer, make_comparison
        from flows.trials.measures import coverage_rows, utility_rows
        from tasks.pages.comparison import comparison_page

        comparison = make_comparison(file, mechanisms, epsilons, runs, utilities, made_up)
        with terminal.trials_progress(len(comparison.entries) * runs) as tried:
            try:
                rows, run, task_runs = run_trials(comparison, tried)
            except HTTPError as fault:
                raise StoreError(f"The Prefect server no longer answers ({type(fault).__name__}).") from None
        wait_until_recorded(run, task_runs)
    results = comparison_answer(comparison, rows, str(folder))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "utility.parquet").unlink(missing_ok=True)  # of an earlier comparison
        tables = {
            "errors": rows.select(*TRIED, *MEASURES, *ADDED, "seconds"),
            "coverage": coverage_rows(rows),
            "rows": rows.select(*TRIED, *STATED),
        }
        if comparison.utilities:
            tables["utility"] = utility_rows(comparison.utilities, rows)
        for name, table in tables.items():
            with beside(folder / f"{name}.parquet") as written:
                table.write_parquet(written)
        with beside(folder / "comparison.json") as written:
            written.write(json.dumps(json_object(results), ensure_ascii=False, indent=2).encode() + b"\n")
        with beside(folder / "index.html") as written:
            written.write(comparison_page(results).encode())
    except OSError as fault:
        raise disk_fault(fault, "--out", str(folder)) or InputError(
            f"--out: {folder} cannot be written ({fault.strerror}).", field="--out"
        ) from None
    return results


def new_folder(file: SpecFile) -> Path:
    """Return `compare-<name>-<UTC time>` below the spec's output, with a number behind it where that is there."""
    wanted = f"compare-{file.spec.name}-{utc_now().replace('-', '').replace(':', '')}"
    names = chain([wanted], (f"{wanted}-{number}" for number in count(2)))
    return next(folder for folder in (file.output() / name for name in names) if not folder.exists())
