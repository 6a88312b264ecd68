"""The table of a release's levels, planned or made, and the notes beneath it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from flows.console.terminal import out, print_line, table_of
from tasks.words.levels import grouped_by, level_columns
from tasks.words.numbers import (
    NOT_STATED,
    format_bound,
    format_cells,
    format_cost,
    format_deviations,
    format_noise_rows,
    format_sigma,
)

if TYPE_CHECKING:
    from storage.record import ReleasedPart
    from storage.releases.parts import StatedPart

_MANY = 10  # numbers to be listed


def show_levels(levels: "Sequence[ReleasedPart]") -> None:
    """Draw the levels of a release."""
    counted = {"cells measured": [level.cells for level in levels], "non-zero": [level.nonzero for level in levels]}
    known, notes = deviations_of(levels), []
    if any(level.bound_after is not None for level in levels):
        bounds = [format_bound(level.sigma, level.bound_after, summed=bool(level.summed)) for level in levels]
        known["as released"] = bounds
        notes.append(
            "as released: with 95% probability, no count at any level is further from its true count than this, as the noisy counts show"
        )
    if any(level.noise_rows for level in levels):
        known["noise rows"] = [
            format_noise_rows(share["estimate"], share["at_most"] or 0.0) if (share := level.noise_rows) else NOT_STATED
            for level in levels
        ]
        notes.append(
            "noise rows: the share of rows whose true count is 0: estimated, where the noisy counts allow it, and at most, with 95% probability"
        )
    out.print(level_table(levels, counted, known))
    show_bound_note(levels)
    for note in notes:
        out.print(f"[dim]{note}[/]")
    show_threshold_note(levels)


def deviations_of(levels: "Sequence[StatedPart]") -> dict[str, list[str]]:
    """Return the standard deviations of the counts of all levels, by the heading of their column; nothing where none are stated."""
    if not any(level.deviations for level in levels):
        return {}
    texts = [format_deviations(of["least"], of["most"]) if (of := level.deviations) else "" for level in levels]
    return {"sd of a count": texts}


def show_views(views: "Sequence[ReleasedPart]") -> None:
    """Draw the views of a release by their names; nothing where there are none."""
    if not views:
        return
    known = deviations_of(views)
    table = table_of(["view", "of"], ["cells measured", "non-zero", "σ", *known])
    for number, view in enumerate(views):
        numbers = (format_cells(view.cells), format_cells(view.nonzero), format_sigma(view.sigma, summed=False))
        table.add_row(view.view, grouped_by(view), *numbers, *(of[number] for of in known.values()))
    out.print(table)


def level_table(
    levels: "Sequence[StatedPart]",
    counted: Mapping[str, Sequence[int | None]],
    known: Mapping[str, Sequence[str]],
) -> Table:
    """Return a table of levels.

    Args:
        levels: 0 to T. What tells them apart and their noise have columns of their own.
        counted: numbers of cells by their headings.
        known: what else is known of each, by headings.
    """
    table, columns = Table("level", box=None), level_columns([level.axes for level in levels])
    for heading in columns:
        table.add_column(heading, overflow="fold")
    # which the levels share; the cost of one is stated elsewhere
    of_epsilon = sum(bool(level.epsilon) for level in levels) > 1
    for heading in (*counted, "ε" if of_epsilon else "ρ", "σ", "bound", *known):
        table.add_column(heading, justify="right")
    for number, level in enumerate(levels):
        reach = [texts[number] for texts in columns.values()]
        cells = [format_cells(numbers[number]) for numbers in counted.values()]
        summed = bool(level.summed)
        cost = format_cost(level.rho, level.epsilon or 0.0, of_epsilon=of_epsilon, same_as=level.same_as)
        noise = [format_sigma(level.sigma, summed=summed), format_bound(level.sigma, level.bound, summed=summed)]
        further = [texts[number] for texts in known.values()]
        table.add_row(str(level.level), *reach, *cells, "summed" if summed else cost, *noise, *further)
    return table


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


def show_bound_note(levels: "Sequence[StatedPart]") -> None:
    """Explain the bound, where one is stated."""
    if any(level.bound is not None for level in levels):
        out.print(
            "[dim]bound: with 95% probability, every count at this level is within this many records of the true count[/]"
        )


def show_threshold_note(levels: "Sequence[StatedPart]") -> None:
    """Explain which leaves are kept, where some are not."""
    if threshold := levels[-1].threshold:
        out.print(
            f"[dim]A leaf is kept if its noisy count is at least {threshold:,}. The other leaves are missing from every sum,"
            " so no σ is stated for sums.[/]"
        )
