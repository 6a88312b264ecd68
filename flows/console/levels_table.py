"""The table of a release's levels, planned or made, and the notes beneath it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from flows.console.terminal import out, print_line
from tasks.words.levels import level_columns
from tasks.words.numbers import format_bound, format_cells, format_cost, format_sigma

if TYPE_CHECKING:
    from flows.planning.forecast import PlannedLevel
    from storage.record import ReleasedLevel

    Level = ReleasedLevel | PlannedLevel

_MANY = 10  # numbers to be listed


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
    of_epsilon = (
        sum(bool(level.epsilon) for level in levels) > 1
    )  # which the levels share; the cost of one is stated elsewhere
    for heading in (*counted, "ε" if of_epsilon else "ρ", "σ", "bound"):
        table.add_column(heading, justify="right")
    for number, level in enumerate(levels):
        reach = [texts[number] for texts in columns.values()]
        cells = [format_cells(numbers[number]) for numbers in counted.values()]
        table.add_row(str(level.level), *reach, *cells, *_noise_cells(level, of_epsilon=of_epsilon))
    return table


def _noise_cells(level: "Level", *, of_epsilon: bool) -> list[str]:
    summed = bool(level.summed)
    cost = "summed" if summed else format_cost(level.rho, level.epsilon or 0.0, of_epsilon=of_epsilon)
    return [cost, format_sigma(level.sigma, summed=summed), format_bound(level.sigma, level.bound, summed=summed)]


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
