"""What commands have in common: their arguments, their exit codes, and how an answer is printed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

DONE, FAILED, WRONG, REFUSED, INTERRUPTED = 0, 1, 2, 3, 130


def _names(column: str) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        from storage.database.completion import known_names

        return [name for name in known_names(column) if name.startswith(incomplete)]

    return complete


complete_release, complete_dataset = _names("id"), _names("dataset")

SpecPath = Annotated[Path, typer.Argument(metavar="SPEC", help="The release spec, YAML.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else there.")]
ReleaseId = Annotated[
    str,
    typer.Argument(metavar="ID", help="A release, as `trellis releases` lists them.", autocompletion=complete_release),
]


def print_answer(answer: dict[str, Any], as_json: bool, show: Callable[[dict[str, Any]], None]) -> None:
    """Print what a command answers, as one JSON object or as it is drawn for people."""
    if as_json:
        print(json.dumps(answer, ensure_ascii=False))  # noqa: T201 (the command line)
    else:
        show(answer)
