"""The terminal: stdout for answers, stderr for progress and errors, and what answers about levels have in common."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, TypeVar, cast

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from flows.walks.runner import Report
from storage.errors import TrellisError
from tasks.words.levels import level_columns
from tasks.words.numbers import format_bound, format_cells, format_sigma

if TYPE_CHECKING:
    from flows.answers.levels import ReleasedLevel
    from flows.planning.forecast import PlannedLevel

    Level = ReleasedLevel | PlannedLevel

T = TypeVar("T")

_MANY = 10  # numbers to be listed
_WIDE = 140  # columns of a table where the output goes to a file or a pipe; sentences have a line each there

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


def warn(text: str) -> None:
    """Print on stderr what is odd and stops nothing."""
    err.print(f"[yellow]Warning:[/] {escape(text)}", soft_wrap=True)


def say(text: str) -> None:
    """Print on stderr what is being done."""
    err.print(escape(text), soft_wrap=True)


@contextmanager
def progress() -> Iterator[Report]:
    """Show a bar per level on stderr, cells measured of cells known; nothing where stderr is no terminal."""
    columns = TextColumn("level {task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("cells")
    with Progress(*columns, TimeElapsedColumn(), console=err, disable=not sys.stderr.isatty()) as bars:
        bar_of: dict[int, TaskID] = {}

        def report(level: int, measured: int, known: int) -> None:
            if level not in bar_of:
                bar_of[level] = bars.add_task(str(level))
            bars.update(bar_of[level], completed=measured, total=known)

        yield report


@contextmanager
def trials_progress(trials: int) -> Iterator[Callable[[int], None]]:
    """Show a bar of trials on stderr; nothing where stderr is no terminal. Yields a function that adds finished trials."""
    columns = TextColumn("trials"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeElapsedColumn(), console=err, disable=not sys.stderr.isatty()) as bars:
        bar = bars.add_task("", total=trials)
        yield lambda more: bars.advance(bar, more)


def show_levels(levels: "Sequence[ReleasedLevel]") -> None:
    """Draw the levels of a release."""
    counted = {
        "cells measured": [level.cells for level in levels],
        "non-zero": [level.nonzero for level in levels],
    }
    out.print(level_table(levels, counted))
    show_bound_note(levels)
    show_threshold_note(levels)


def level_table(levels: "Sequence[Level]", counted: Mapping[str, Sequence[int | None]]) -> Table:
    """Return a table of levels: what tells them apart, numbers of cells under their headings, and the noise."""
    table, columns = Table("level", box=None), level_columns([level.axes for level in levels])
    for heading in columns:
        table.add_column(heading, overflow="fold")
    for heading in (*counted, "ρ", "σ", "bound"):
        table.add_column(heading, justify="right")
    for number, level in enumerate(levels):
        reach = [texts[number] for texts in columns.values()]
        cells = [format_cells(numbers[number]) for numbers in counted.values()]
        table.add_row(str(level.level), *reach, *cells, *_noise_cells(level))
    return table


def _noise_cells(level: "Level") -> list[str]:
    summed = bool(level.summed)
    rho = "summed" if summed else "none" if level.threshold else f"{level.rho:.4g}"
    return [rho, format_sigma(level.sigma, summed=summed), format_bound(level.sigma, level.bound, summed=summed)]


def format_level_numbers(numbers: Sequence[int]) -> str:
    """Return levels in words: many that follow one another by the first and the last."""
    if len(numbers) == 1:
        return f"level {numbers[0]}"
    if len(numbers) > _MANY and list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"levels {numbers[0]} to {numbers[-1]}"
    return f"levels {', '.join(map(str, numbers))}"


def show_unlisted(axes: Sequence[str]) -> None:
    """Print which axes have codes that no codebook lists, if any."""
    if axes:
        print_line(
            f"No codebook lists the codes of {', '.join(axes)}. They come from the records, and only the codes of"
            " leaves whose noisy count reaches the threshold are published."
        )


def show_unprotected(statements: Sequence[str]) -> None:
    """Print what is published exactly."""
    for statement in statements:
        out.print(f"[bold red]unprotected:[/] {statement}")


def show_bound_note(levels: "Sequence[Level]") -> None:
    """Explain the bound, where one is stated."""
    if any(level.bound is not None for level in levels):
        out.print(
            "[dim]bound: with 95% probability, every count at this level is within this many records of the true count[/]"
        )


def show_threshold_note(levels: "Sequence[Level]") -> None:
    """Explain which leaves are kept, where some are not."""
    if threshold := levels[-1].threshold:
        out.print(
            f"[dim]A leaf is kept if its noisy count is at least {threshold:,}. The other leaves are missing from every sum,"
            " so no σ is stated for sums.[/]"
        )


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
