"""Trellis up: a Prefect server with its UI, and the deployments that it can trigger and schedule."""

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from prefect import get_client
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterTags
from prefect.deployments.runner import RunnerDeployment
from prefect.runner import Runner
from prefect.schedules import Cron
from prefect.types.entrypoint import EntrypointType

from flows.answers.check import check_answer
from flows.planning.plan import make_plan
from flows.release import SPECS, release, rerun
from flows.run.ending import sweep_orphans
from flows.run.notices import check_addresses
from flows.run.series import foresee_series
from flows.server.guard import auth_of_up
from flows.server.process import ADDRESS, AT_ONCE, lasting_server
from flows.server.runs import UP, Scheduled, look_for_crashes, looking_after, name_scheduled_runs
from flows.specification.file import SpecFile, load_spec
from storage.errors import HeldElsewhere, SpecError, StoreError, TrellisError, UsageError
from storage.machine.home import home, subfolder
from storage.machine.locks import held

OF_SPEC = "spec"  # the tag of deployments that are made from specs
_LOOK_EVERY = 2.0  # seconds, for runs that are due
_LOG, _OLD_LOG, _LARGEST_LOG = "runs.log", "runs.log.old", 2**24  # bytes

Say = Callable[[str], None]


def run_up(specs: Path, port: int, auth: bool | None, say: Say) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        specs: the folder of the specs that everybody who reaches the server may release.
        port: the port of 127.0.0.1.
        auth: whether the server asks for a password; None for a default (`guard.auth_of_up`).
    Raises:
        UsageError: there is no such folder, or an address in TRELLIS_NOTIFY is not understood.
        StoreError: the port is in use, or `trellis up` already runs on this store.
    """
    if not specs.is_dir():
        hint = "Name the folder that holds the specs that may be released."
        raise UsageError(f"There is no folder {specs}.", field="FOLDER", hint=hint)
    specs = specs.resolve()
    check_addresses()
    try:
        with held("up"):
            _serve(specs, port, auth_of_up(auth), say)
    except HeldElsewhere as fault:
        address = home() / ADDRESS
        where = address.read_text().strip() if address.is_file() else fault
        raise StoreError(f"Trellis is already up: {where}") from None


def _serve(specs: Path, port: int, auth: str | None, say: Say) -> None:
    sweep_orphans()
    os.environ |= {SPECS: str(specs), UP: str(os.getpid()), "TRELLIS_HOME": str(home().absolute())}
    empty = subfolder("prefect").absolute() / "runs"  # where runs begin: Prefect would import what lies there first
    empty.mkdir(mode=0o700, exist_ok=True)
    with chdir(empty), lasting_server(subfolder("prefect"), home() / ADDRESS, port, auth) as address:
        look_for_crashes()
        schedules = list[Scheduled]()
        deployments = [
            _deployment(release, "release", "Release the table of a spec below the folder of specs."),
            _deployment(rerun, "rerun", "Continue a release that failed. Only what is missing runs again."),
            *_of_specs(specs, schedules, say),
        ]
        _remove_others({deployment.name for deployment in deployments})
        runner = Runner(name="trellis", pause_on_shutdown=False, limit=AT_ONCE, query_seconds=_LOOK_EVERY)
        for deployment in deployments:
            runner.add_deployment(deployment)
        say(f"Trellis is up: open {address.removesuffix('/api')}. Store: {home()}. Specs: {specs}. Ctrl-C ends it.")
        if auth:
            say(f"The page asks for a password: it is the whole line in {home() / 'auth'}.")
        care = partial(name_scheduled_runs, schedules), _keep_log_small
        with _log() as log, redirect_stdout(log), redirect_stderr(log), looking_after(*care):
            asyncio.run(_serve_until_signal(runner))
    say("Trellis is down. It keeps everything that is sealed. Schedules resume when it is up again.")


def _log() -> TextIO:
    """Start a new log of the runs that are served, and keep the last one beside it."""
    path = subfolder("prefect") / _LOG
    if path.exists():
        path.replace(path.with_name(_OLD_LOG))
    return path.open("a")  # so that what is written after `_keep_log_small` begins at its start


def _keep_log_small() -> None:
    """Once the log is large, keep a copy of it beside it, in place of the last one, and empty it."""
    path = subfolder("prefect") / _LOG
    with suppress(OSError):  # a full disk, or somebody has removed it
        if path.stat().st_size > _LARGEST_LOG:
            shutil.copyfile(path, path.with_name(_OLD_LOG))
            os.truncate(path, 0)


async def _serve_until_signal(runner: Runner) -> None:
    """Serve the deployments until SIGINT or SIGTERM. Then cancel the runs that this process started, and wait for them."""
    signalled, loop = asyncio.Event(), asyncio.get_running_loop()
    runner.handle_sigterm = lambda *_: loop.call_soon_threadsafe(signalled.set)  # type: ignore[assignment, method-assign]
    loop.add_signal_handler(signal.SIGINT, signalled.set)
    serving = asyncio.create_task(runner.start())
    waiting = asyncio.create_task(signalled.wait())
    await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if runner.started:
        await runner.astop()
    else:  # the signal came first, and no run has started
        serving.cancel()
    with suppress(asyncio.CancelledError):
        await serving


def _deployment(flow: object, name: str, description: str, **more: Any) -> RunnerDeployment:
    made: RunnerDeployment = flow.to_deployment(  # type: ignore[attr-defined]
        name, description=description, entrypoint_type=EntrypointType.MODULE_PATH, **more
    )
    return made


def _of_specs(specs: Path, schedules: list[Scheduled], say: Say) -> Iterator[RunnerDeployment]:
    """Yield a deployment for each spec, with its schedule if it has one, which is noted."""
    names = {"release", "rerun"}
    for path in sorted([*specs.rglob("*.yaml"), *specs.rglob("*.yml")]):
        refused = "No deployment"
        try:
            file = load_spec(path)
            refused = "Not scheduled" if file.spec.schedule else refused
            if file.spec.name in names:
                taken = f"name: {file.spec.name} is the name of another deployment."
                raise SpecError(taken, field="name", hint="Give the spec another name.")
            names.add(file.spec.name)
            yield _of_spec(file, path.relative_to(specs), say)
            if file.spec.schedule:
                schedules.append(Scheduled(file.spec.name, file.spec.schedule.timezone, file.spec.dataset))
        except TrellisError as fault:
            if fault.field.startswith("schedule"):
                refused = "Not scheduled"
            hints = {str(fault): fault.hint}  # what stopped it first of all
            hints |= {problem.error: problem.hint for problem in check_answer(path).problems}
            for error, hint in hints.items():
                say(f"{refused}: {path.relative_to(specs)}: {error} {hint}".rstrip())


def _of_spec(file: SpecFile, path: Path, say: Say) -> RunnerDeployment:
    spec, schedule = file.spec, file.spec.schedule
    description, runs = f"Release the table of {path}.", None
    if schedule:
        until = ""
        if schedule.until:
            ids, is_reserved = foresee_series(make_plan(file), datetime.now(UTC))
            until = f", {len(ids)} releases, the last one {ids[-1]}"
            until += "" if is_reserved else f"; they are reserved together when the first day comes, {ids[0]}"
        say(f"Scheduled: {spec.name}, at {schedule.cron} ({schedule.timezone}){until}.")
        description = f"{spec.name}: the release of each day at `{schedule.cron}` ({schedule.timezone}){until}."
        runs = Cron(schedule.cron, timezone=schedule.timezone)
    tags = [OF_SPEC, f"dataset:{spec.dataset}"]
    return _deployment(release, spec.name, description, parameters={"spec": str(path)}, schedule=runs, tags=tags)


def _remove_others(names: set[str]) -> None:
    """Remove the deployments of specs that are gone or refused."""
    with get_client(sync_client=True) as client:
        tagged = DeploymentFilter(tags=DeploymentFilterTags(all_=[OF_SPEC]))
        for deployment in client.read_deployments(deployment_filter=tagged):
            if deployment.name not in names:
                client.delete_deployment(deployment.id)
