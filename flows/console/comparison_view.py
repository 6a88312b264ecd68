"""Comparisons, as a person sees them."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from flows.console.terminal import escaped, out

if TYPE_CHECKING:
    from tasks.pages.trial_results import ComparedLevel, GroupIntervals, MechanismResult, Spread, TrialResults


def show_comparison(found: "TrialResults", *, intervals: bool = False) -> None:
    """Draw a comparison: per ε and level the mean of every measure of each mechanism, and where the rest is.

    Args:
        found: what the comparison found.
        intervals: whether coverage and width of the intervals of questions are drawn too.
    """
    found = escaped(found)
    out.print(f"[bold]{found.name}[/], δ = {found.delta:g}, runs: {found.runs}; nothing was charged")
    for epsilon in found.epsilons:
        at = found.at(epsilon)
        out.print(f"\n[bold]ε = {epsilon:g}[/], means of the runs; errors in records")
        out.print(_error_table(found.levels, at))
        out.print(
            "false discovery: of the cells with a count above 0, those with a true count of 0; false negative: of the cells with a"
            " true count, those with a count of 0 or less"
        )
        seconds = ", ".join(f"{result.mechanism} {result.seconds.mean:.2f}" for result in at)
        out.print(f"seconds of a trial: {seconds}")
        for name, numbers in found.utilities.items():
            out.print(f"\n[bold]utility {name}[/], mean of the runs, with the least and the most in brackets")
            out.print(_utility_table(name, numbers, at))
        _show_questions(found, epsilon)
        _show_rows(found, epsilon)
        if intervals:
            _show_coverage(found, epsilon)
    out.print()
    for mechanism, reason in found.refused.items():
        out.print(f"[bold yellow]not tried:[/] {mechanism}: {reason}")
    for mechanism, notes in found.notes.items():
        out.print(f"[bold yellow]note:[/] for {mechanism}, {' '.join(notes)}")
    out.print(f"page: {found.folder}/index.html", soft_wrap=True)


def _error_table(levels: "Sequence[ComparedLevel]", results: "Sequence[MechanismResult]") -> Table:
    """Return a table of errors: a row per mechanism, those of a level beneath one another, and a column per measure."""
    table = Table("level", "mechanism", box=None)
    for heading in ("maximum", "mean", "ℓ₁", "false\ndiscovery", "false\nnegative"):
        table.add_column(heading, justify="right")
    for number, level in enumerate(levels):
        for place, result in enumerate(results):
            of_level = result.levels[number]
            table.add_row(
                "" if place else level.label,
                result.mechanism,
                *(f"{error.mean:,.1f}" for error in (of_level.max_absolute, of_level.mean_absolute, of_level.l1)),
                *(f"{100 * rate.mean:.1f}%" for rate in (of_level.false_discovery, of_level.false_negative)),
            )
    return table


def _utility_table(name: str, numbers: Sequence[str], results: "Sequence[MechanismResult]") -> Table:
    """Return a table of a measure of the leaves: a row per mechanism, and a column per number."""
    from tasks.pages.trial_results import format_ratio

    table = Table("mechanism", box=None)
    for number in numbers:
        table.add_column(number, justify="right")
    for result in results:
        of_measure = (result.utility or {})[name]
        # a bracket at the start of markup would be read as a tag
        table.add_row(result.mechanism, *(escape(format_ratio(of_measure[number])) for number in numbers))
    return table


def _show_questions(found: "TrialResults", epsilon: float) -> None:
    """Draw how far ranges and other questions about an ordered axis deviate."""
    from tasks.pages.trial_results import ABOUT_QUESTIONS, QUESTIONS, format_deviation

    stated = [result for result in found.with_deviations if result.epsilon == epsilon]
    if not stated:
        return
    table = Table("mechanism", box=None)
    for heading in QUESTIONS.values():
        table.add_column(heading, justify="right")
    for result in stated:
        table.add_row(result.mechanism, *(format_deviation(result, question) for question in QUESTIONS))
    out.print(f"\n[bold]questions about the ordered axis[/]: {ABOUT_QUESTIONS}")
    out.print(table)


def _show_coverage(found: "TrialResults", epsilon: float) -> None:
    """Draw, by true count, how many intervals hold the true count and how wide they are, and what of that is promised."""
    from tasks.validate.coverage import FEW_INTERVALS, TRUE_COUNTS, ZEROED, are_few

    def format_share(group: "GroupIntervals") -> str:
        if group.coverage is None:
            return ""
        share = f"{100 * group.coverage.mean:.1f}%"
        return f"({share})" if are_few(group.cells * found.runs) else share

    def format_width(group: "GroupIntervals") -> str:
        return f"{group.width.mean:,.1f}" if group.width else ""

    stated = [result for result in found.with_intervals if result.epsilon == epsilon]
    if not stated:
        return
    promise = f"the promise is {100 * found.confidence:g}% for each fixed cell, and so, within sampling error, for each true count"
    out.print(f"\n[bold]intervals of questions[/]: the share that holds the true count, by true count; {promise}")
    out.print(_group_table(found.levels, stated, (*TRUE_COUNTS, ZEROED), format_share))
    out.print(f"in brackets: a share of fewer than {FEW_INTERVALS} intervals (cells times runs), which says little")
    out.print("zeroed: cells released as 0 whose true count is not 0; no coverage is promised for them")
    out.print("\n[bold]intervals of questions[/]: mean width in records, by true count")
    out.print(_group_table(found.levels, stated, TRUE_COUNTS, format_width))


def _show_rows(found: "TrialResults", epsilon: float) -> None:
    """Draw what a release would say of its rows, and how it is."""
    stated = [result for result in found.with_any_intervals if result.epsilon == epsilon]
    if not stated:
        return
    out.print("\n[bold]what a release would say of its rows[/], and how it is; means of the runs")
    out.print(_row_table(found.levels, stated))
    out.print(
        f"covered: rows with a true count from low to high, on average at least {100 * found.confidence:g}% where the number of"
        " measured cells is public; width: in records\n"
        "false rows: the share with a true count of 0, of all rows, and of the rows with `signal` alone, where it is on average at"
        " most the spec's signal_rate\n"
        "noise rows: that share of all rows, as the release would estimate it (mean of the runs in which it would; empty: none), and what it would say that it is at most\n"
        "bound: what the release would say that no error exceeds, after the draw; beside the largest error"
    )


def _row_table(levels: "Sequence[ComparedLevel]", results: "Sequence[MechanismResult]") -> Table:
    """Return a table of the published rows: a row per level or view, and mechanism that states intervals there."""

    def format_share(share: "Spread | None") -> str:
        return f"{100 * share.mean:.1f}%" if share else ""

    table = Table("\nlevel", "\nmechanism", box=None)
    of_each = (
        "\ncovered",
        "\nwidth",
        "false rows:\nall",
        "\nmarked",
        "noise rows:\nestimated",
        "\nat most",
    )
    for heading in (*of_each, "\nmaximum", "\nbound"):
        table.add_column(heading, justify="right")
    for number, compared in enumerate(levels):
        of_level = [(result.mechanism, result.levels[number]) for result in results]
        stated = [(mechanism, level) for mechanism, level in of_level if level.rows_covered]
        for place, (mechanism, level) in enumerate(stated):
            shares = (level.false_rows, level.false_signal, level.noise_rows, level.noise_rows_at_most)
            table.add_row(
                "" if place else compared.label,
                mechanism,
                format_share(level.rows_covered),
                f"{level.row_width.mean:,.1f}" if level.row_width else "",
                *map(format_share, shares),
                f"{level.max_absolute.mean:,.1f}",
                f"{level.bound_after.mean:,.1f}" if level.bound_after else "",
            )
    return table


def _group_table(
    levels: "Sequence[ComparedLevel]",
    results: "Sequence[MechanismResult]",
    groups: Sequence[str],
    written: "Callable[[GroupIntervals], str]",
) -> Table:
    """Return a table of a measure of intervals: a row per level and mechanism that states some, a column per group."""
    table = Table("level", "mechanism", box=None)
    for group in groups:
        table.add_column(group, justify="right")
    for number, compared in enumerate(levels):
        of_level = [(result.mechanism, result.levels[number].intervals) for result in results]
        rows = [(mechanism, intervals) for mechanism, intervals in of_level if intervals]
        for place, (mechanism, intervals) in enumerate(rows):
            cells = (written(intervals[group]) for group in groups)
            table.add_row("" if place else compared.label, mechanism, *cells)
    return table
