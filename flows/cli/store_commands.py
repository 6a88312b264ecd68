"""The commands that read and tidy the store: releases, the ledger and its caps, the audit, and what is left over."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated

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
)
from flows.server.process import prefect_server
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

    from flows.execution.ending import clean as clean_up

    age = None if runs_older_than is None else _age(runs_older_than)
    cleaning = clean_up()
    if age is not None:
        with prefect_server(subfolder("prefect"), home() / "address"):
            # Prefect has to find the server's address when it is first imported
            from flows.server.upkeep import delete_old_runs

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
    from flows.execution.backups import back_up

    print_answer(back_up(folder, vaults=vaults), as_json, show_backup)


def restore(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that `trellis backup` created.")],
    as_json: AsJson = False,
) -> None:
    """Make TRELLIS_HOME, which must have no store yet, what a backup holds."""
    from flows.execution.backups import restore as give_back

    print_answer(give_back(folder), as_json, show_restored)
