"""What commands have in common: their arguments, their exit codes, and how an answer is printed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

DONE, FAILED, WRONG, REFUSED, INTERRUPTED = 0, 1, 2, 3, 130

SpecPath = Annotated[Path, typer.Argument(metavar="SPEC", help="The release spec, YAML.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else there.")]
ReleaseId = Annotated[str, typer.Argument(metavar="ID", help="A release, as `trellis releases` lists them.")]


def print_answer(answer: dict[str, Any], as_json: bool, show: Callable[[dict[str, Any]], None]) -> None:
    """Print what a command answers, as one JSON object or as it is drawn for people."""
    if as_json:
        print(json.dumps(answer, ensure_ascii=False))  # noqa: T201 (the command line)
    else:
        show(answer)
