"""The answer to a question about areas, as a person sees it: the count, its interval, and how both were put together."""

from typing import TYPE_CHECKING

from rich.table import Table

from flows.console.terminal import out, print_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flows.answers.query import AreaCounted, QueryAnswer, QueryAnswers


def show_query(answer: "QueryAnswer | QueryAnswers") -> None:
    """Draw an answer in a few lines, several as a table with the codes that were asked for."""
    from flows.answers.query import QueryAnswers

    if isinstance(answer, QueryAnswers):
        _show_several(answer.answers)
        return
    asked = [f"{axis} {_called(area)} ({area.level})" for axis, area in answer.where.items() if area]
    print_line(f"[bold]{', '.join(asked) or 'everything'}[/]")
    print_line(f"count: [bold]{answer.count:,}[/]")
    if answer.sd is not None:
        print_line(f"standard deviation: {answer.sd:,.3g}" if answer.sd else "standard deviation: 0")
    if answer.low is None or answer.high is None or answer.confidence is None:
        print_line("interval: none can be stated")
    elif answer.exact:
        print_line("interval: none, because the count is published exactly")
    else:
        held = (
            "it and the intervals of all other questions hold their true counts"
            if answer.simultaneous
            else "it holds the true count of a question that was fixed beforehand"
        )
        within = f"with {100 * answer.confidence:g}% probability, over all noise"
        print_line(f"interval: {answer.low:,} to {answer.high:,}; {within}, {held}")
        if answer.count < answer.high == 0:
            print_line(
                "the count is further below 0 than its noise usually takes it: the true count is small, if not 0"
            )
    print_line(f"how: {answer.how}")


def _called(area: "AreaCounted") -> str:
    """Return the name of an area, if it has one, and its codes, without those of made ranges above it."""
    from tasks.tree.ordered import RANGE

    *above, own = area.path
    codes = " ".join([*(code for code in above if RANGE not in code), own])
    return codes if area.name is None or area.name == codes else f"{area.name}, {codes}"


def _show_several(answers: "Sequence[QueryAnswer]") -> None:
    first = answers[0]
    axes = [axis for axis in first.where if any(answer.where[axis] for answer in answers)]
    table = Table(box=None, pad_edge=False)
    for axis in axes:
        table.add_column(axis)
    deviations = any(answer.sd is not None for answer in answers)
    for heading in ("count", *(["sd"] if deviations else []), "low", "high"):
        table.add_column(heading, justify="right")
    for answer in answers:
        areas = (answer.where[axis] for axis in axes)
        count, *ends = ("–" if number is None else f"{number:,}" for number in (answer.count, answer.low, answer.high))
        deviation = [f"{answer.sd or 0:,.3g}"] if deviations else []
        table.add_row(*(_called(area) if area else "all" for area in areas), count, *deviation, *ends)
    out.print(table)
    if first.confidence is not None:
        held = "all at once" if first.simultaneous else "each by itself, if it was asked for beforehand"
        print_line(f"intervals: with {100 * first.confidence:g}% probability, over all noise, {held}")
