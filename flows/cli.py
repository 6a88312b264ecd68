"""The command line. What takes long to import is imported by the command that needs it."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer
from typer.exceptions import TyperException

from flows import console
from flows.server import quiet_prefect
from storage.caller import heard_by_caller
from storage.errors import (
    BudgetExceeded,
    InputError,
    Interrupted,
    SpecError,
    TrellisError,
    UsageError,
    disk_fault,
    kind_and_place,
)

if TYPE_CHECKING:
    from flows.plan import Plan
    from storage.releases import Release

DONE, FAILED, WRONG, REFUSED, INTERRUPTED = 0, 1, 2, 3, 130

app = typer.Typer(
    help="Differentially private count tables over public hierarchies.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

budget = typer.Typer(help="The cap on what releases about the same people cost together.", rich_markup_mode=None)
app.add_typer(budget, name="budget")

SpecPath = Annotated[Path, typer.Argument(metavar="SPEC", help="The release spec, YAML.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else there.")]
ReleaseId = Annotated[str, typer.Argument(metavar="ID", help="A release, as `trellis releases` lists them.")]


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code.

    0 done, 1 failed, 2 wrong usage, spec or input, 3 refused by the budget, 130 interrupted.
    """
    arguments = sys.argv[1:] if argv is None else argv
    os.umask(0o077)
    quiet_prefect()
    code = INTERRUPTED  # which it stays where Ctrl-C comes before or after a command's own work
    with _interruptions() as interrupted:
        code = _run(arguments)
    return INTERRUPTED if interrupted.is_set() and code != DONE else code  # whatever a library has made of it


def _run(arguments: list[str]) -> int:
    if not arguments:
        app(args=["--help"], prog_name="trellis", standalone_mode=False)
        return WRONG
    try:
        code = app(args=arguments, prog_name="trellis", standalone_mode=False)
    except TyperException as fault:
        wrong = fault.format_message() if hasattr(fault, "format_message") else str(fault)
        hint = "`trellis --help` lists commands and options."
        return _say_error(UsageError(wrong, field="usage", hint=hint), arguments)
    except TrellisError as fault:
        return _say_error(fault, arguments)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as fault:  # noqa: BLE001 (its text could quote the data, so only its kind and place are shown)
        hint = "This is a fault of Trellis: please report it with this line."
        stopped = TrellisError(f"Trellis stopped: {kind_and_place(fault)}.", hint=hint)
        return _say_error(disk_fault(fault) or stopped, arguments)
    if code == INTERRUPTED:
        return _say_error(TrellisError("Interrupted."), arguments)
    return code or DONE


@contextmanager
def _interruptions() -> Iterator[Event]:
    """Yield an event that is set once the user presses Ctrl-C or sends SIGTERM, which also raise KeyboardInterrupt."""
    interrupted = Event()

    def interrupt(signum: int, frame: FrameType | None) -> None:
        interrupted.set()
        signal.default_int_handler(signum, frame)

    signals = (signal.SIGINT, signal.SIGTERM)
    before = {signum: signal.getsignal(signum) for signum in signals}
    for signum, handler in before.items():
        if handler is not signal.SIG_IGN:  # as a shell's background jobs have it
            signal.signal(signum, interrupt)
    try:
        yield interrupted
    except KeyboardInterrupt:
        interrupted.set()
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


@app.command()
def plan(
    spec: SpecPath,
    wanted: Annotated[
        str | None,
        typer.Option("--for", metavar="LEVEL=ERROR@CONFIDENCE", help="Say which ε it takes, such as county=50@95%."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a release would protect, cost and be worth. Spends nothing and does not read the confidential table."""
    from flows.forecast import plan_answer
    from flows.plan import make_plan
    from flows.spec import load_spec, parse_target

    target = parse_target(wanted) if wanted is not None else None
    answer = plan_answer(make_plan(load_spec(spec)), target)
    _print(answer, as_json, console.show_plan)


@app.command()
def release(
    spec: SpecPath,
    output: Annotated[
        Path | None, typer.Option(help="The folder below which to publish, in place of the spec's.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Do all that comes before the first draw; reserve and keep nothing.")
    ] = False,
    different_people: Annotated[
        bool,
        typer.Option("--different-people", help="The table holds other people than datasets that used it; recorded."),
    ] = False,
    records: Annotated[
        bool,
        typer.Option("--records", help="Publish the finest level as synthetic records too, as release.records would."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Release the table of a spec at every level."""
    from flows.reservation import new_release

    if dry_run:
        _rehearse(spec, output, different_people, records, as_json)
        return
    began = time.monotonic()
    planned = _planned(spec, records=records)
    made = new_release(planned, output, different_people=different_people)
    _make(made.id, "release", {"spec": str(spec.absolute())}, began, as_json, (planned, made))


@app.command()
def rerun(
    release_id: ReleaseId,
    branch: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this branch, as `trellis show` names it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Go on with a release that has failed: only what is missing runs again, and nothing is charged again."""
    from flows.answers import release_answer
    from flows.crashes import note_crashes
    from flows.driver import check_can_go_on
    from storage.errors import HeldElsewhere
    from storage.running import holder_of

    began = time.monotonic()
    note_crashes()
    if check_can_go_on(release_id, branch) == "published":
        console.say(f"{release_id} is published already.")
        _print(release_answer(release_id, {"total": time.monotonic() - began}), as_json, console.show_release)
        return
    if holder := holder_of(release_id):
        raise HeldElsewhere(
            f"{release_id} is run by process {holder.process}.", field="ID", hint="`trellis show` says how far it is."
        )
    _make(release_id, "rerun", {"release_id": release_id, "branch": branch}, began, as_json)


def _make(
    release_id: str,
    flow_name: str,
    parameters: dict[str, Any],
    began: float,
    as_json: bool,
    planned: "tuple[Plan, Release] | None" = None,
) -> None:
    """Run a flow that makes a release or goes on with one, and say what became of it."""
    from flows.answers import release_answer
    from flows.direct import interrupted, run_directly

    seconds: dict[str, float] = {}
    try:
        seconds = run_directly(flow_name, parameters, release_id, planned)
    except BaseException as fault:
        if _say_what_became_of(release_id) != "published":  # otherwise only the wait for Prefect was interrupted
            if isinstance(fault, KeyboardInterrupt):
                raise interrupted(release_id) from None
            raise  # Prefect's own TerminationSignal too, which is what SIGTERM becomes inside its engine
        if not isinstance(fault, KeyboardInterrupt | TrellisError):
            raise
    seconds["total"] = time.monotonic() - began
    _print(release_answer(release_id, seconds), as_json, console.show_release)


@app.command()
def compare(
    spec: SpecPath,
    mechanisms: Annotated[
        str, typer.Option(metavar="NAME,…", help="What to try: mechanisms, as a spec names them.")
    ] = "inftda,inftda_reconciled",
    epsilon: Annotated[str, typer.Option(metavar="NUMBER,…", help="At which ε; δ is the spec's.")] = "0.1,1,10",
    runs: Annotated[int, typer.Option(help="How often each is tried.", min=1, max=10_000)] = 10,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where the page and the rows go, in place of those there; a new one below the spec's output if left out.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Try mechanisms on a table that may be seen, and hold them against the truth. Charges and releases nothing."""
    from flows.comparing import compare_directly, numbers_of
    from flows.spec import load_spec

    names = [name.strip() for name in mechanisms.split(",") if name.strip()]
    answer = compare_directly(load_spec(spec), names, numbers_of("--epsilon", epsilon), runs, out)
    _print(answer, as_json, console.show_comparison)


@app.command()
def up(
    specs: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The specs that may be released, or scheduled, from the UI.")
    ],
    port: Annotated[int, typer.Option(help="Of 127.0.0.1.", min=1, max=65535)] = 4200,
) -> None:
    """Bring up the Prefect server with its UI, and serve releases, reruns and the schedules of specs until Ctrl-C."""
    from flows.up import be_up

    be_up(specs, port, console.say)


@app.command()
def releases(as_json: AsJson = False) -> None:
    """List what was released, and in which state it is."""
    from flows.answers import releases_answer

    _print(releases_answer(), as_json, console.show_releases)


@app.command()
def show(
    release_id: ReleaseId,
    spec: Annotated[
        bool, typer.Option("--spec", help="Print the spec that it was reserved with, and nothing else.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one release with its levels, branches, seals, checks and charges."""
    from flows.answers import reserved_spec, show_answer

    if spec:
        print(reserved_spec(release_id), end="")  # noqa: T201 (the command line)
        return
    _print(show_answer(release_id), as_json, console.show_one)


@app.command()
def ledger(
    dataset: Annotated[str | None, typer.Argument(metavar="[DATASET]", help="Only this dataset.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show caps, charges, and what is left."""
    from flows.answers import ledger_answer

    _print(ledger_answer(dataset), as_json, console.show_ledger)


@app.command()
def verify(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A published folder.")], as_json: AsJson = False
) -> int:
    """Check a published folder by itself: checksums, consistency of every level, manifest, (ε, δ) against the noise."""
    from flows.verification import verify_answer

    answer = verify_answer(folder)
    _print(answer, as_json, console.show_verification)
    return DONE if answer["ok"] else FAILED


@app.command()
def query(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A published folder.")],
    origin: Annotated[
        str | None,
        typer.Option(metavar="AREA", help="A code; LEVEL=CODE, or LEVEL=CODE,LEVEL=CODE, where it takes that; or all."),
    ] = None,
    destination: Annotated[str | None, typer.Option(metavar="AREA", help="Likewise.")] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=AREA", help="An area of any end or feature; may be said for several of them."),
    ] = None,
    simultaneous: Annotated[
        bool,
        typer.Option("--simultaneous", help="State an interval that holds together with those of all other questions."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Answer how many there are in any areas, from a published folder alone: the count, its interval, and how."""
    from flows.query import query_answer
    from flows.shown_query import show_query

    answer = query_answer(folder, origin, destination, where or (), simultaneous=simultaneous)
    _print(answer, as_json, show_query)


@app.command()
def audit(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FOLDER]...", help="Published folders, or an archive of them, to compare besides."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Walk the ledger's chain, every release's seals, and what published manifests recorded of the chain."""
    from flows.audit import audit_answer

    answer = audit_answer(folders or ())
    _print(answer, as_json, console.show_audit)
    return DONE if answer["ok"] else FAILED


@budget.command("raise")
def raise_budget(
    dataset: Annotated[str, typer.Argument(metavar="DATASET", help="The dataset whose people's cap is raised.")],
    epsilon: Annotated[float, typer.Option(help="The new cap, at the δ of the old one.")],
    reason: Annotated[str, typer.Option(help="Why; recorded for good.")],
    as_json: AsJson = False,
) -> None:
    """Raise a cap. Recorded for good; from then on only the new cap is true."""
    from flows.answers import budget_answer

    _print(budget_answer(dataset, epsilon, reason), as_json, console.show_raised)


@app.command()
def abandon(release_id: ReleaseId, as_json: AsJson = False) -> None:
    """End a failed release for good: what it has drawn stays charged, the rest is given back, its vault is deleted."""
    from flows.ending import abandon_release

    _print(
        {"id": release_id, "state": "abandoned", "deleted": abandon_release(release_id)}, as_json, console.show_ending
    )


@app.command()
def clean(as_json: AsJson = False) -> None:
    """Remove shards that published and abandoned releases do not need, and what dead processes have left."""
    from flows.ending import clean as clean_up

    cleaned = clean_up()
    _print({"cleaned": cleaned, "bytes": sum(entry["bytes"] for entry in cleaned)}, as_json, console.show_cleaned)


@app.command()
def forget(release_id: ReleaseId, as_json: AsJson = False) -> None:
    """Delete the vault that a published or abandoned release has kept."""
    from flows.ending import forget_release
    from storage.database import store
    from storage.releases import state_of

    deleted = forget_release(release_id)
    with store() as con:
        state = state_of(con, release_id)
    _print({"id": release_id, "state": state, "deleted": deleted}, as_json, console.show_ending)


@app.command()
def synthesise(
    kind: Annotated[Literal["binary", "random"], typer.Argument(help="The hierarchy at both ends of a trip.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to write tables and spec; new, or empty.")],
    density: Annotated[
        Literal["complete", "dense", "sparse"],
        typer.Option(help="Whether all pairs of areas have people, half of them, or one in a hundred."),
    ] = "complete",
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds draw equal sets.")] = 2025,
    as_json: AsJson = False,
) -> None:
    """Draw one of the paper's made-up sets of trips, with a codebook and a spec that releases it."""
    from flows.made_up import synthesise_answer

    _print(synthesise_answer(kind, density, out, seed), as_json, console.show_synthesised)


def _planned(spec: Path, *, records: bool) -> "Plan":
    """Return the plan of a spec, with synthetic records where the command asks for them."""
    from flows.plan import make_plan
    from flows.spec import load_spec

    file = load_spec(spec)
    if not records:
        return make_plan(file)
    try:
        return make_plan(file.with_records())
    except SpecError as fault:
        if fault.field != "release.records" or file.spec.release.records:
            raise
        told = str(fault).replace("release.records", "--records", 1)
        raise UsageError(told, field="--records", hint=fault.hint) from None


def _rehearse(spec: Path, output: Path | None, different_people: bool, records: bool, as_json: bool) -> None:
    """Say what a release would be once its table, codebooks and budget have been found to do."""
    from concurrent.futures import ThreadPoolExecutor

    from flows.driver import rehearse
    from flows.forecast import plan_answer
    from flows.runner import submit_to

    planned = _planned(spec, records=records)
    with ThreadPoolExecutor(1) as executor, heard_by_caller():
        rehearse(planned, submit_to(executor), output, different_people=different_people)
    answer = plan_answer(planned) | {"dry_run": True}
    if different_people:
        answer["warnings"] = []
    _print(answer, as_json, console.show_plan)


def _say_what_became_of(release_id: str) -> str | None:
    """Say on stderr how far a release came that has stopped, and return its state; None where nothing was reserved."""
    from storage.claims import give_up_claim
    from storage.database import store
    from storage.home import home
    from storage.releases import state_of

    give_up_claim(release_id)
    with store() as con:
        state = state_of(con, release_id)
    if state:
        console.say(f"{release_id} is {state}; what it has drawn stays charged. Store: {home()}")
    return state


def _print(answer: dict[str, Any], as_json: bool, show: Any) -> None:
    if as_json:
        print(json.dumps(answer, ensure_ascii=False))  # noqa: T201 (the command line)
    else:
        show(answer)


def _say_error(fault: TrellisError, arguments: list[str]) -> int:
    from flows.answers import error_answer

    if "--json" in arguments:
        print(json.dumps(error_answer(fault), ensure_ascii=False))  # noqa: T201 (the command line)
    else:
        console.error(fault)
    if isinstance(fault, BudgetExceeded):
        return REFUSED
    if isinstance(fault, Interrupted):
        return INTERRUPTED
    return WRONG if isinstance(fault, SpecError | InputError | UsageError) else FAILED


def run() -> NoReturn:
    """Be the `trellis` command, and leave at once: the threads that Prefect leaves behind have nothing more to do."""
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
