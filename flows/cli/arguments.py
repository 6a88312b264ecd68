"""What commands have in common: their arguments, their exit codes, and how they print what they return."""

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from flows.console.terminal import escaped
from storage.errors import UsageError
from storage.machine.home import STORE, place_of_home


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


_TAKEN: dict[Any, Callable[[Any], Any]] = {str: str, Path: Path, bool: bool, list[str]: list}


@dataclass(frozen=True, slots=True)
class _AsGiven:
    """What takes a text, a path or a flag as it is given. Typer's would import Pydantic for each, which takes a tenth of a second."""

    take: Callable[[Any], Any]

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:  # noqa: ARG002 (as Typer's)
        """Return the value that a command gets."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        return self.take(value)


def _taken_as_given(params: list[Any]) -> list[Any]:
    for param in params:
        take = _TAKEN.get(getattr(getattr(param, "type_descriptor", None), "annotation", None))
        if take is not None:
            param._runtime_param = _AsGiven(take)
    return params


class Group(TyperGroup):
    """A group of commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, and `--help`."""
        return _taken_as_given(super().get_params(ctx))


class Command(TyperCommand):
    """A command that refuses an option with one value which is given twice; otherwise the last one would win without a word."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, and `--help`."""
        return _taken_as_given(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments as usual, once each option is found to be given as often as it may be."""
        _, _, given = ([], [], []) if ctx.resilient_parsing else self.make_parser(ctx).parse_args(args=list(args))
        for option, times in Counter[Any](given).items():
            is_one = option.param_type_name == "option" and not option.multiple
            if times > 1 and is_one and (option.secondary_opts or not option.is_bool_flag):
                names = "/".join([*option.opts, *option.secondary_opts])
                fault = f"{names} may be given once, and was given {times} times."
                raise UsageError(fault, field=option.opts[0], hint="For another value, run the command again.")
        return super().parse_args(ctx, args)


def _names(column: str) -> Callable[[str], list[str]]:
    """Return what completes the ids of releases, or the names of their datasets: those in the store that begin so, the newest first.

    It runs at each key press: it waits for no lock, shows no error, and neither creates nor migrates a store.

    Args:
        column: `id` or `dataset`.
    """

    def complete(incomplete: str) -> list[str]:
        import duckdb

        path = place_of_home() / STORE
        if not path.is_file():  # DuckDB would create it
            return []
        try:
            with duckdb.connect(str(path), read_only=True) as con:
                rows = con.execute(f"SELECT {column} FROM releases ORDER BY created DESC, id").fetchall()
        except (duckdb.Error, OSError):
            return []
        return [name for name in dict.fromkeys(row[0] for row in rows) if name.startswith(incomplete)]

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
