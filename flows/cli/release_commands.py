"""The commands that make, continue or end a release."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.arguments import AsJson, ReleaseId, SpecPath, print_answer
from flows.console import terminal
from flows.console.plan_view import show_plan
from flows.console.release_view import show_ending, show_release
from storage.errors import SpecError, TrellisError, UsageError
from storage.machine.caller import heard_by_caller

Server = Annotated[
    bool | None,
    typer.Option(
        "--server/--no-server",
        help="Run on a Prefect server, and start one if none answers; or run without Prefect. By default it runs on a server that"
        " answers; if none does, the next `trellis up` lists the run, unless run.prefect is off.",
        show_default=False,
    ),
]

if TYPE_CHECKING:
    from flows.planning.plan import Plan
    from storage.releases.register import Release


def release(
    spec: SpecPath,
    output: Annotated[Path | None, typer.Option(help="Publish below this folder instead of the spec's output.")] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Do everything that comes before the first draw. Reserve and keep nothing."),
    ] = False,
    different_people: Annotated[
        bool,
        typer.Option(
            "--different-people",
            help="Declare that the table holds other people than the datasets that used it. The ledger records this.",
        ),
    ] = False,
    records: Annotated[
        bool,
        typer.Option("--records", help="Also publish the finest level as synthetic records, as release.records does."),
    ] = False,
    approved_plan: Annotated[
        Path | None,
        typer.Option(
            "--approved-plan",
            metavar="FILE",
            help="Hold the release to an approved plan: the page or the JSON of `trellis plan`. Refuse it where the spec, a"
            " codebook or the budget differs from what was approved.",
        ),
    ] = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Release the table of a spec at every level."""
    terminal.doing(f"planning the release of {spec}")
    from flows.run.reservation import new_release
    from storage.database.connections import lingering

    began = time.monotonic()
    with lingering():
        with heard_by_caller():
            planned = _planned(spec, records, approved_plan)
            if dry_run:
                _rehearse(planned, output, different_people, as_json)
                return
            terminal.doing(f"reading {planned.source.table.name}")
            made = new_release(planned, output, different_people=different_people)
        _make(made.id, began, as_json, server, planned.file.spec.run.prefect, (planned, made))


def rerun(
    release_id: ReleaseId,
    branch: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this branch, as `trellis show` names it.")
    ] = None,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Continue a failed release. Only what is missing runs again, and nothing is charged again."""
    from flows.answers.release_status import release_answer
    from flows.planning.admission import resumable_release
    from flows.run.crashes import note_crashes
    from flows.run.reservation import run_keys_of
    from storage.errors import HeldElsewhere
    from storage.machine.locks import holder_of

    began = time.monotonic()
    terminal.doing(f"looking for {release_id}")
    note_crashes()
    release = resumable_release(release_id, branch)
    if release.state == "published":
        terminal.say(f"{release_id} is already published.")
        print_answer(release_answer(release_id, {"total": time.monotonic() - began}), as_json, show_release)
        return
    if holder := holder_of(release_id):
        raise HeldElsewhere(
            f"{release_id} is run by process {holder.process}.", field="ID", hint="`trellis show` shows its progress."
        )
    _make(release_id, began, as_json, server, run_keys_of(release).prefect, branch=branch)


def up(
    specs: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER", help="The folder of the specs that may be released from the UI, or on a schedule."
        ),
    ],
    port: Annotated[int, typer.Option(help="The port on 127.0.0.1.", min=1, max=65535)] = 4200,
    auth: Annotated[
        bool | None,
        typer.Option(
            help="Whether the server asks for a password: that of TRELLIS_AUTH, or a random one. By default it does where"
            " TRELLIS_AUTH is set or several people have an account on this machine.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Start the Prefect server with its UI, and serve releases, reruns and schedules until Ctrl-C."""
    terminal.doing(f"starting Prefect's server, and reading the specs in {specs}")
    from flows.up import run_up

    run_up(specs, port, auth, terminal.say)


def worker(
    cluster: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The cluster file of this machine; by default the one that TRELLIS_CLUSTER names."
        ),
    ] = None,
) -> None:
    """Carry out orders of releases on a cluster, until Ctrl-C or the end of its scheduler. It keeps nothing."""
    from flows.cluster.worker import run_worker

    run_worker(cluster)


def abandon(release_id: ReleaseId, as_json: AsJson = False) -> None:
    """End a failed release for good. What it has drawn stays charged, and its vault is deleted."""
    from flows.run.ending import abandon_release

    print_answer(abandon_release(release_id), as_json, show_ending)


def forget(release_id: ReleaseId, as_json: AsJson = False) -> None:
    """Delete the vault of a published or abandoned release that kept it."""
    from flows.run.ending import forget_release

    print_answer(forget_release(release_id), as_json, show_ending)


def _make(
    release_id: str,
    began: float,
    as_json: bool,
    server: bool | None,
    prefect: bool,
    planned: "tuple[Plan, Release] | None" = None,
    branch: str | None = None,
) -> None:
    """Make a planned release or continue one, on a Prefect server or without, and print the outcome.

    Args:
        server: what the command says.
        prefect: what the spec says, which counts if the command says nothing: then a run that no server sees is recorded.
    """
    from flows.answers.release_status import release_answer
    from flows.cli.runs import interrupted, run_on_prefect, run_without_prefect
    from flows.server.process import ADDRESS, server_answers
    from storage.machine.home import home

    seconds: dict[str, float] = {}
    try:
        if_there = server is None and prefect  # a server that answers; otherwise the next one is told
        if server or (if_there and server_answers(home() / ADDRESS)):
            seconds = run_on_prefect(release_id, planned, branch)
        else:
            seconds = run_without_prefect(release_id, planned, branch, is_recorded=if_there)
    except BaseException as fault:
        if _show_outcome(release_id) != "published":  # otherwise only the wait for Prefect was interrupted
            if isinstance(fault, KeyboardInterrupt):
                raise interrupted(release_id) from None
            raise  # Prefect's own TerminationSignal too, which is what SIGTERM becomes inside its engine
        if not isinstance(fault, KeyboardInterrupt | TrellisError):
            raise
    seconds["total"] = time.monotonic() - began
    print_answer(release_answer(release_id, seconds), as_json, show_release)


def _planned(spec: Path, records: bool, approved_plan: Path | None) -> "Plan":
    """Return the plan of a spec, with synthetic records where the command asks for them, held to an approved plan if there is one."""
    from dataclasses import replace

    from flows.planning.plan import make_plan
    from flows.specification.file import load_spec
    from storage.releases.approvals import read_approved_plan

    approved, file = read_approved_plan(approved_plan) if approved_plan else None, load_spec(spec)
    try:
        return replace(make_plan(file.with_records() if records else file), approved=approved)
    except SpecError as fault:
        if not records or fault.field != "release.records" or file.spec.release.records:
            raise
        message = str(fault).replace("release.records", "--records", 1)
        raise UsageError(message, field="--records", hint=fault.hint) from None


def _rehearse(planned: "Plan", output: Path | None, different_people: bool, as_json: bool) -> None:
    """Check the table, codebooks and budget of a release, and print its plan."""
    from concurrent.futures import ThreadPoolExecutor
    from dataclasses import replace

    from flows.forecast.answer import plan_answer
    from flows.run.driver import rehearse
    from flows.run.runner import submit_to

    with ThreadPoolExecutor(1) as executor:
        rehearse(planned, submit_to(executor), output, different_people=different_people)
    forecast = replace(plan_answer(planned), dry_run=True)
    if different_people:
        forecast = replace(forecast, warnings=[])
    print_answer(forecast, as_json, show_plan)


def _show_outcome(release_id: str) -> str | None:
    """Print on stderr the state of a release that has stopped and what it is charged, and return the state; None for one not known."""
    from flows.planning.budget import charge_in_words
    from storage.database.connections import store
    from storage.ledger.events import read_books
    from storage.machine.home import give_up_claim, home
    from storage.releases.register import state_of

    give_up_claim(release_id)
    with store() as con:
        state, charge = state_of(con, release_id), charge_in_words(read_books(con), release_id)
    if state:
        terminal.say(f"{release_id} is {state}. {charge} Store: {home()}")
    return state
