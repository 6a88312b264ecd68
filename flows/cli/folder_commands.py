"""The commands that need nothing but a published folder."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.arguments import DONE, FAILED, AsJson, print_answer
from flows.console.release_view import show_verification
from storage.errors import UsageError

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


def query(
    context: typer.Context,
    folder: FolderPath,
    origin: Annotated[
        str | None,
        typer.Option(
            metavar="AREA",
            help="A code or a name, or all. LEVEL=CODE if several levels have the code; LEVEL=CODE,LEVEL=CODE if only the path is unique.",
        ),
    ] = None,
    destination: Annotated[str | None, typer.Option(metavar="AREA", help="As for --origin.")] = None,
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
    as_json: AsJson = False,
) -> None:
    """Count the records in any areas, from a published folder alone. Shows the count, its interval, and how both came about.

    After the folder, `--NAME AREA` is short for `--where NAME=AREA`. An area of an ordered axis may be a range: `--age 18..24`. A name
    may stand for a code.
    """
    from flows.answers.query import query_answer
    from flows.console.query_view import show_query

    asked = [*(where or ()), *_by_axis(folder, context.args)]
    print_answer(query_answer(folder, origin, destination, asked, simultaneous=simultaneous), as_json, show_query)


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
