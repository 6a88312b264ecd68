"""The commands that read and tidy the store: releases, the ledger and its caps, the audit, and what is left over."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.arguments import DONE, FAILED, AsJson, ReleaseId, complete_dataset, print_answer
from flows.console.release_view import show_audit, show_cleaned, show_ledger, show_one, show_raised, show_releases


def releases(as_json: AsJson = False) -> None:
    """List all releases and their states."""
    from flows.answers.release_status import releases_answer

    print_answer(releases_answer(), as_json, show_releases)


def show(
    release_id: ReleaseId,
    spec: Annotated[
        bool, typer.Option("--spec", help="Print only the spec that the release was reserved with.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one release: its levels, branches, seals, checks and charges."""
    from flows.answers.release_status import reserved_spec, show_answer

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


def clean(as_json: AsJson = False) -> None:
    """Remove shards that published and abandoned releases no longer need, and what dead processes left behind."""
    from flows.execution.ending import clean as clean_up

    print_answer(clean_up(), as_json, show_cleaned)
