"""The terminal: stdout for answers, stderr for progress and errors, and what answers about levels have in common."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from flows.walks.runner import Report
from storage.errors import TrellisError
from tasks.words.levels import level_columns
from tasks.words.numbers import format_bound, format_cells, format_sigma

Answer = dict[str, Any]

_MANY = 10  # numbers to be listed
_WIDE = 140  # columns of a table where the output goes to a file or a pipe; sentences have a line each there

_is_seen = sys.stdout.isatty()
out = Console(highlight=False, emoji=False, width=None if _is_seen else _WIDE, soft_wrap=not _is_seen)
err = Console(stderr=True, highlight=False, emoji=False)


def error(fault: TrellisError) -> None:
    """Say on stderr what is wrong and what to do next."""
    err.print(f"[bold red]Error:[/] {escape(str(fault))}", soft_wrap=True)
    if fault.hint:
        err.print(escape(fault.hint), soft_wrap=True)


def tell(markup: str) -> None:
    """Print a line of an answer, however long."""
    out.print(markup, soft_wrap=True)


def warn(text: str) -> None:
    """Say on stderr what is odd and stops nothing."""
    err.print(f"[yellow]Warning:[/] {escape(text)}", soft_wrap=True)


def say(text: str) -> None:
    """Say on stderr what is being done."""
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
    """Show a bar on stderr, of trials; nothing where stderr is no terminal. Yields what is told how many more are done."""
    columns = TextColumn("trials"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeElapsedColumn(), console=err, disable=not sys.stderr.isatty()) as bars:
        bar = bars.add_task("", total=trials)
        yield lambda more: bars.advance(bar, more)


def show_levels(levels: list[Answer]) -> None:
    """Draw the levels of a release."""
    out.print(level_table(levels, {"cells": "cells measured", "nonzero": "non-zero"}))
    show_bound_note(levels)
    show_threshold_note(levels)


def level_table(levels: list[Answer], counted: dict[str, str]) -> Table:
    """Return a table of levels: what tells them apart, some of their numbers under headings, and their noise."""
    table, columns = Table("level", box=None), level_columns([level["axes"] for level in levels])
    for heading in columns:
        table.add_column(heading, overflow="fold")
    for heading in (*counted.values(), "ρ", "σ", "bound"):
        table.add_column(heading, justify="right")
    for level, *where in zip(levels, *columns.values(), strict=True):
        table.add_row(str(level["level"]), *where, *(format_cells(level[key]) for key in counted), *_noise_cells(level))
    return table


def _noise_cells(level: Answer) -> list[str]:
    summed = bool(level.get("summed"))
    rho = "summed" if summed else "none" if level.get("threshold") else f"{level['rho']:.4g}"
    sigma, bound = level["sigma"], level["bound"]
    return [rho, format_sigma(sigma, summed=summed), format_bound(sigma, bound, summed=summed)]


def format_level_numbers(numbers: list[int]) -> str:
    """Return levels in words: many that follow one another by the first and the last."""
    if len(numbers) == 1:
        return f"level {numbers[0]}"
    if len(numbers) > _MANY and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"levels {numbers[0]} to {numbers[-1]}"
    return f"levels {', '.join(map(str, numbers))}"


def show_unlisted(axes: list[str]) -> None:
    """Say which codes no codebook lists, if any."""
    if axes:
        out.print(
            f"no codebook lists the codes of {', '.join(axes)}: they come from the records, and of them only those above the"
            " threshold are seen",
            soft_wrap=True,
        )


def show_unprotected(statements: list[str]) -> None:
    """Say what is published exactly."""
    for statement in statements:
        out.print(f"[bold red]unprotected:[/] {statement}")


def show_bound_note(levels: list[Answer]) -> None:
    """Say what a bound is, where one is stated."""
    if any(level["bound"] is not None for level in levels):
        out.print("[dim]bound: with 95 % every count of the level is within so many records of the truth[/]")


def show_threshold_note(levels: list[Answer]) -> None:
    """Say from which count on leaves are kept, where some are not."""
    if threshold := levels[-1].get("threshold"):
        told = f"leaves are kept from a noisy count of {threshold:,} on; the others are missing from every sum, which has no σ"
        out.print(f"[dim]{told}[/]")


def format_bytes(size: float) -> str:
    """Return bytes as they are read, with two digits or three."""
    units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"]
    while size >= 999.5 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{size:.1f} {units[0]}" if size < 9.95 and units[0] != "B" else f"{size:,.0f} {units[0]}"


def escaped(value: Any) -> Any:
    """Return an answer with its texts as they are to be read: what looks like Rich's markup is none."""
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, dict):
        return {key: escaped(item) for key, item in value.items()}
    return [escaped(item) for item in value] if isinstance(value, list) else value
