"""The terminal: stdout for answers, stderr for progress, warnings and errors; and text that is printed as it is."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar, cast

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flows.run.runner import Report
from storage.errors import TrellisError

T = TypeVar("T")

_WIDE = 140  # columns of a table where the output goes to a file or a pipe; sentences have a line each there

_DONE = "{task.completed:>11,.0f} of {task.total:>11,.0f} cells"

_is_seen = sys.stdout.isatty()
out = Console(highlight=False, emoji=False, width=None if _is_seen else _WIDE, soft_wrap=not _is_seen)
err = Console(stderr=True, highlight=False, emoji=False)


def error(fault: TrellisError) -> None:
    """Print on stderr what is wrong and what to do next."""
    err.print(f"[bold red]Error:[/] {escape(str(fault))}", soft_wrap=True)
    if fault.hint:
        err.print(escape(fault.hint), soft_wrap=True)


def print_line(markup: str) -> None:
    """Print a line of an answer, however long."""
    out.print(markup, soft_wrap=True)


def table_of(texts: Sequence[str], numbers: Sequence[str]) -> Table:
    """Return a table without lines, by its headings: columns of texts, then columns of numbers."""
    table = Table(*texts, box=None)
    for heading in numbers:
        table.add_column(heading, justify="right")
    return table


def warn(text: str) -> None:
    """Print on stderr what is odd and stops nothing."""
    err.print(f"[yellow]Warning:[/] {escape(text)}", soft_wrap=True)


def say(text: str) -> None:
    """Print on stderr what is being done."""
    err.print(escape(text), soft_wrap=True)


def doing(text: str) -> None:
    """Print on stderr what begins now, if that is a terminal: what takes seconds before it says anything looks stuck."""
    if sys.stderr.isatty():
        err.print(f"[dim]{escape(text)} …[/]", soft_wrap=True)


@contextmanager
def progress() -> Iterator[Report]:
    """Show a bar per level on stderr, cells measured of cells known; nothing where stderr is no terminal.

    The bars are in the order of the levels, whichever is measured first.
    """
    if not sys.stderr.isatty():
        yield lambda *_: None
        return
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    columns = TextColumn("level {task.description}"), BarColumn(), TextColumn(_DONE)
    with Progress(*columns, TimeElapsedColumn(), console=err) as bars:
        bar_of: list[TaskID] = []

        def report(level: int, measured: int, known: int) -> None:
            while len(bar_of) <= level:
                bar_of.append(bars.add_task(f"{len(bar_of):>2}", visible=False))
            bars.update(bar_of[level], completed=measured, total=known, visible=True)

        yield report


@contextmanager
def trials_progress(trials: int) -> Iterator[Callable[[int], None]]:
    """Show a bar of trials on stderr; nothing where stderr is no terminal. Yields a function that adds finished trials."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("trials"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeElapsedColumn(), console=err, disable=not sys.stderr.isatty()) as bars:
        bar = bars.add_task("", total=trials)
        yield lambda more: bars.advance(bar, more)


def format_bytes(size: float) -> str:
    """Return bytes as they are read, with two digits or three."""
    units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"]
    while size >= 999.5 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{size:.1f} {units[0]}" if size < 9.95 and units[0] != "B" else f"{size:,.0f} {units[0]}"


def escaped(value: T) -> T:
    """Return a value whose texts are printed as they are: what looks like Rich's markup is none."""
    if isinstance(value, str):
        return cast("T", escape(value))
    if isinstance(value, Mapping):
        return cast("T", {key: escaped(item) for key, item in value.items()})
    if isinstance(value, list | tuple):
        return cast("T", [escaped(item) for item in value])
    if is_dataclass(value) and not isinstance(value, type):
        return cast("T", replace(value, **{field.name: escaped(getattr(value, field.name)) for field in fields(value)}))
    return value
