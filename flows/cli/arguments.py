"""What commands have in common: their arguments, their exit codes, and how they print what they return."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from flows.console.terminal import escaped


def json_object(value: Any) -> Any:
    """Return a value in the types of JSON: a dataclass becomes an object whose keys are its fields, in their order.

    A field whose default is None is an optional key: it is left out while it is None. Any other field is always there.
    An underscore at the end of a field's name, which Python needs for `for_` and `from_`, is no part of the key.
    """
    if is_dataclass(value) and not isinstance(value, type):
        kept = ((field, getattr(value, field.name)) for field in fields(value))
        return {
            field.name.removesuffix("_"): json_object(item)
            for field, item in kept
            if item is not None or field.default is not None
        }
    if isinstance(value, Mapping):
        return {key: json_object(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_object(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no infinity: no ε holds at that δ
    return value


T = TypeVar("T")

DONE, FAILED, WRONG, REFUSED, INTERRUPTED = 0, 1, 2, 3, 130


def _names(column: str) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        from flows.cli.completion import known_names

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
