"""What commands have in common: their arguments, their exit codes, and how they print what they return."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from flows.cli.json_object import json_object
from flows.console.terminal import escaped

T = TypeVar("T")

DONE, FAILED, WRONG, REFUSED, INTERRUPTED = 0, 1, 2, 3, 130


def _names(column: str) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        from storage.database.completion import known_names

        return [name for name in known_names(column) if name.startswith(incomplete)]

    return complete


complete_release, complete_dataset = _names("id"), _names("dataset")

SpecPath = Annotated[Path, typer.Argument(metavar="SPEC", help="The release spec, a YAML file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else.")]
ReleaseId = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="The id of a release, as `trellis releases` lists it.", autocompletion=complete_release
    ),
]


def print_answer(answer: T, as_json: bool, show: Callable[[T], None]) -> None:
    """Print the value that a command returns, as one JSON object or drawn for people, who see its texts as they are."""
    if as_json:
        print_json(answer)
    else:
        show(escaped(answer))


def print_json(value: object) -> None:
    """Print a value as one JSON object on stdout."""
    print(json.dumps(json_object(value), ensure_ascii=False))  # noqa: T201 (the command line)
