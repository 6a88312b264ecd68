"""The commands that read: the store with its releases, ledger and audit, and published folders; and those that tidy what is left over."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.cli.arguments import DONE, FAILED, AsJson, ReleaseId, complete_dataset, print_answer
from flows.console.release_view import (
    show_audit,
    show_backup,
    show_cleaned,
    show_ledger,
    show_one,
    show_raised,
    show_releases,
    show_restored,
    show_verification,
)
from flows.server.process import ADDRESS, prefect_server
from storage.errors import UsageError, disk_fault
from storage.machine.home import home, subfolder


def releases(as_json: AsJson = False) -> None:
    """List all releases and their states."""
    from flows.answers.release_status import releases_answer

    print_answer(releases_answer(), as_json, show_releases)


def show(
    release_id: ReleaseId,
    spec: Annotated[
        bool, typer.Option("--spec", help="Print only the spec that the release was reserved with.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--approved-plan", help="Print only the approved plan that the release was reserved under.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one release: its levels, branches, seals, checks and charges."""
    from flows.answers.release_status import approved_plan, reserved_spec, show_answer

    if plan or spec:
        print(approved_plan(release_id) if plan else reserved_spec(release_id), end="")  # noqa: T201 (the command line)
        return
    print_answer(show_answer(release_id), as_json, show_one)


def ledger(
    dataset: Annotated[
        str | None, typer.Argument(metavar="[DATASET]", help="Only this dataset.", autocompletion=complete_dataset)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the caps, the charges, and what is left."""
    from flows.answers.ledger import ledger_answer

    print_answer(ledger_answer(dataset), as_json, show_ledger)


def audit(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FOLDER]...", help="Published folders, or an archive of them, to check as well."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Check the ledger's chain, the seals of every release, and what published manifests recorded of the chain."""
    from flows.answers.audit import audit_answer

    answer = audit_answer(folders or ())
    print_answer(answer, as_json, show_audit)
    return DONE if answer.ok else FAILED


def raise_budget(
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET", help="A dataset of the people whose cap is raised.", autocompletion=complete_dataset
        ),
    ],
    epsilon: Annotated[float, typer.Option(help="The new cap. δ stays the same.")],
    reason: Annotated[str, typer.Option(help="Why. The ledger records the reason permanently.")],
    as_json: AsJson = False,
) -> None:
    """Raise a cap. The ledger records it permanently, and from then on only the new cap holds."""
    from flows.answers.ledger import budget_answer

    print_answer(budget_answer(dataset, epsilon, reason), as_json, show_raised)


def clean(
    runs_older_than: Annotated[
        str | None,
        typer.Option(
            metavar="DAYS", help="Also delete from Prefect's database the runs that ended so long ago, for example 90d."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Remove shards that published and abandoned releases no longer need, and what dead processes left behind."""
    from dataclasses import replace

    from flows.run.ending import clean as clean_up

    age = None if runs_older_than is None else _age(runs_older_than)
    cleaning = clean_up()
    if age is not None:
        with prefect_server(subfolder("prefect"), home() / ADDRESS):
            # Prefect has to find the server's address when it is first imported
            from flows.server.runs import delete_old_runs

            cleaning = replace(cleaning, runs=delete_old_runs(age))
    print_answer(cleaning, as_json, show_cleaned)


def _age(text: str) -> timedelta:
    number = re.fullmatch(r"(\d{1,5})d", text)
    if not number:
        raise UsageError(
            f"--runs-older-than must be a number of days such as 90d, got {text}.", field="--runs-older-than"
        )
    return timedelta(days=int(number[1]))


def metrics(
    textfile: Annotated[
        Path | None,
        typer.Option(help="Write to this file, which node_exporter's textfile collector reads, instead of stdout."),
    ] = None,
) -> None:
    """Print metrics for Prometheus: releases by state, budgets, bytes, and the age of the last success."""
    from flows.answers.metrics import metrics_answer, write_metrics

    if textfile:
        try:
            write_metrics(textfile)
        except OSError as fault:
            raise disk_fault(fault, "--textfile", str(textfile)) or UsageError(
                f"{textfile} cannot be written ({fault.strerror}).",
                field="--textfile",
                hint="Name a file in a folder that exists.",
            ) from None
    else:
        print(metrics_answer(), end="")  # noqa: T201 (the command line)


def backup(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to create.")],
    vaults: Annotated[
        bool,
        typer.Option(
            "--with-vaults", help="Copy true counts too, so that failed releases can be finished from the backup."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Copy the store to a new folder: the ledger, the seals, the shards, and the key that recognises tables."""
    from flows.run.backups import back_up

    print_answer(back_up(folder, vaults=vaults), as_json, show_backup)


def restore(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that `trellis backup` created.")],
    as_json: AsJson = False,
) -> None:
    """Make TRELLIS_HOME, which must have no store yet, what a backup holds."""
    from flows.run.backups import restore as give_back

    print_answer(give_back(folder), as_json, show_restored)


FolderPath = Annotated[Path, typer.Argument(metavar="FOLDER", help="A published folder.")]


def verify(
    folder: FolderPath,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many files to read at once; one per core if left out.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Check a published folder on its own: its checksums, every level, the manifest, and (ε, δ) against the noise."""
    from flows.answers.verify import verify_answer

    answer = verify_answer(folder, workers)
    print_answer(answer, as_json, show_verification)
    return DONE if answer.ok else FAILED


GroupTables = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[NAME=]FILE",
        help="A public table of groups of areas, made without a look at the counts, with the columns code and group: one count for each group."
        " NAME is the end, feature or derived column of the codes, where several have them and the table has no column axis.",
    ),
]
OtherFolder = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Also state the difference to another published folder.")
]
Whole = Annotated[
    str | None, typer.Option(metavar="NAME=AREA", help="Also state the share of a whole, for example mode=all.")
]


def query(
    context: typer.Context,
    folder: FolderPath,
    origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="AREA",
            help="A code or a name, or all. LEVEL=CODE if several levels have the code; LEVEL=CODE,LEVEL=CODE if only the path is unique."
            " A+B adds up areas, FIRST..LAST all from one to another. Repeat the option for several areas: one count each.",
        ),
    ] = None,
    destination: Annotated[list[str] | None, typer.Option(metavar="AREA", help="As for --origin.")] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=AREA",
            help="An area of any end or feature. Repeat the option for others, or for several areas of one: one count each.",
        ),
    ] = None,
    simultaneous: Annotated[
        bool,
        typer.Option(
            "--simultaneous", help="State an interval that holds together with the intervals of all other questions."
        ),
    ] = False,
    areas: GroupTables = None,
    minus: OtherFolder = None,
    share_of: Whole = None,
    as_json: AsJson = False,
) -> None:
    """Count the records in any areas, from a published folder alone. Shows the count, its interval, and how both came about.

    After the folder, `--NAME AREA` is short for `--where NAME=AREA`. A + adds up areas, or codes of a derived column, and a range has all codes from its first to
    its last one: `--origin 001+010..019`, `--age 18..24`; on a clock or a calendar it may go over the end: `--hour 22..2` is from 22:00 to 2:59.
    A name may stand for a code.
    """
    from flows.answers.query import query_answer
    from flows.console.release_view import show_query

    asked = [*(where or ()), *_by_axis(folder, context.args)]
    compared: dict[str, Any] = {"areas": areas or (), "minus": minus, "share_of": share_of}
    answer = query_answer(folder, origin or [], destination or [], asked, simultaneous=simultaneous, **compared)
    print_answer(answer, as_json, show_query)


def _by_axis(folder: Path, arguments: list[str]) -> list[str]:
    """Return arguments of the form `--NAME AREA` or `--NAME=AREA` as `NAME=AREA`.

    Raises:
        UsageError: an argument has another form, or the folder does not come first.
    """
    conditions, left = list[str](), [str(folder), *arguments] if str(folder).startswith("-") else [*arguments]
    while left:
        name, equals, area = left.pop(0).removeprefix("--").partition("=")
        if str(folder).startswith("-") or not name or not (equals or left):
            raise UsageError(
                "query takes a folder, and then --NAME AREA for each axis.",
                field=f"--{name}",
                hint="For example trellis query FOLDER --age 18..24 --hour 7..9.",
            )
        conditions.append(f"{name}={area if equals else left.pop(0)}")
    return conditions
