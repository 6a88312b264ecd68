"""The commands that look into the store, and keep it: releases, the ledger and its caps, the audit, what is left over."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.arguments import DONE, FAILED, AsJson, ReleaseId, complete_dataset, print_answer
from flows.console.release_view import show_audit, show_cleaned, show_ledger, show_one, show_raised, show_releases


def releases(as_json: AsJson = False) -> None:
    """List what was released, and in which state it is."""
    from flows.answers.store import releases_answer

    print_answer(releases_answer(), as_json, show_releases)


def show(
    release_id: ReleaseId,
    spec: Annotated[
        bool, typer.Option("--spec", help="Print the spec that it was reserved with, and nothing else.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one release with its levels, branches, seals, checks and charges."""
    from flows.answers.store import reserved_spec, show_answer

    if spec:
        print(reserved_spec(release_id), end="")  # noqa: T201 (the command line)
        return
    print_answer(show_answer(release_id), as_json, show_one)


def ledger(
    dataset: Annotated[
        str | None, typer.Argument(metavar="[DATASET]", help="Only this dataset.", autocompletion=complete_dataset)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show caps, charges, and what is left."""
    from flows.answers.store import ledger_answer

    print_answer(ledger_answer(dataset), as_json, show_ledger)


def audit(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FOLDER]...", help="Published folders, or an archive of them, to compare besides."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Walk the ledger's chain, every release's seals, and what published manifests recorded of the chain."""
    from flows.answers.audit import audit_answer

    answer = audit_answer(folders or ())
    print_answer(answer, as_json, show_audit)
    return DONE if answer.ok else FAILED


def raise_budget(
    dataset: Annotated[
        str,
        typer.Argument(
            metavar="DATASET", help="The dataset whose people's cap is raised.", autocompletion=complete_dataset
        ),
    ],
    epsilon: Annotated[float, typer.Option(help="The new cap, at the δ of the old one.")],
    reason: Annotated[str, typer.Option(help="Why; recorded for good.")],
    as_json: AsJson = False,
) -> None:
    """Raise a cap. Recorded for good; from then on only the new cap is true."""
    from flows.answers.store import budget_answer

    print_answer(budget_answer(dataset, epsilon, reason), as_json, show_raised)


def clean(as_json: AsJson = False) -> None:
    """Remove shards that published and abandoned releases do not need, and what dead processes have left."""
    from flows.execution.ending import clean as clean_up

    print_answer(clean_up(), as_json, show_cleaned)
