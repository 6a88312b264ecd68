"""The commands that a published folder answers by itself, wherever it is."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.arguments import DONE, FAILED, AsJson, print_answer
from flows.console.release_view import show_verification

FolderPath = Annotated[Path, typer.Argument(metavar="FOLDER", help="A published folder.")]


def verify(folder: FolderPath, as_json: AsJson = False) -> int:
    """Check a published folder by itself: checksums, consistency of every level, manifest, (ε, δ) against the noise."""
    from flows.answers.verify import verify_answer

    answer = verify_answer(folder)
    print_answer(answer, as_json, show_verification)
    return DONE if answer.ok else FAILED


def query(
    folder: FolderPath,
    origin: Annotated[
        str | None,
        typer.Option(
            metavar="AREA",
            help="A code; LEVEL=CODE where several levels have it, LEVEL=CODE,LEVEL=CODE where only the path tells; or all.",
        ),
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
    from flows.answers.query import query_answer
    from flows.console.query_view import show_query

    print_answer(query_answer(folder, origin, destination, where or (), simultaneous=simultaneous), as_json, show_query)
