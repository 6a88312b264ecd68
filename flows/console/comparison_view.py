"""Comparisons, as a person sees them."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from flows.console.terminal import out, table_of

if TYPE_CHECKING:
    from tasks.format import stated
    from tasks.pages.trial_results import ComparedLevel, GroupIntervals, LevelResult, MechanismResult, TrialResults

_FIRST = ("level", "mechanism")
_OF_ERRORS = (*_FIRST, "maximum", "mean", "ℓ₁", "false\ndiscovery", "false\nnegative")
_ADDED = {"emd": "EMD", "violations": "violations"}  # shown where there are any
_OF_ROWS = (
    "\nlevel",
    "\nmechanism",
    "\ncovered",
    "\nwidth",
    "false rows:\nall",
    "\nmarked",
    "noise rows:\nestimated",
    "\nat most",
    "\nmaximum",
    "\nbound",
)


def show_comparison(results: "TrialResults", *, intervals: bool = False) -> None:
    """Draw a comparison: per ε and level the mean of every measure of each mechanism, and where the rest is.

    Args:
        intervals: whether coverage and width of the intervals of questions are drawn too.
    """
    from tasks.pages.trial_results import ABOUT_QUESTIONS, ABOUT_RANGES, ABOUT_SUMS

    if made_up := results.made_up:
        out.print(
            f"[bold yellow]made up:[/] the table was drawn at random in the shape of {escape(results.name)}, with"
            f" {made_up.in_words}; the table of the spec was not opened"
        )
    out.print(f"[bold]{results.name}[/], δ = {results.delta:g}, runs: {results.runs}; nothing was charged")
    for epsilon in results.epsilons:
        at = results.at(epsilon)
        out.print(f"\n[bold]ε = {epsilon:g}[/], means of the runs; errors in {results.counted}")
        added = {name: head for name, head in _ADDED.items() if results.has(name)}
        out.print(_level_table(results.levels, at, (*_OF_ERRORS, *added.values()), partial(_errors, added=added)))
        out.print(
            "false discovery: of the cells with a count above 0, those with a true count of 0; false negative: of the cells with a"
            " true count, those with a count of 0 or less"
        )
        if added:
            out.print(
                "EMD: the earth mover's distance, records that are too many in a group, or missing; violations: counts below 0, and"
                " counts to which those of the next level do not add up"
            )
        seconds = ", ".join(f"{result.mechanism} {result.seconds.mean:.2f}" for result in at)
        out.print(f"seconds of a trial: {seconds}")
        for name in results.utilities:
            out.print(f"\n[bold]{name}[/]: {ABOUT_SUMS[name]}" if name in ABOUT_SUMS else f"\n[bold]utility {name}[/]")
            out.print(_text_table(results.utility(epsilon, name), texts=2))
        if (questions := results.deviations(epsilon)).rows:
            out.print(f"\n[bold]questions about the ordered axis[/]: {ABOUT_QUESTIONS}")
            out.print(_text_table(questions, texts=1))
        if (of_ranges := results.of_ranges(epsilon)).rows:
            out.print(f"\n[bold]standard deviations of ranges[/]: {ABOUT_RANGES}")
            out.print(_text_table(of_ranges, texts=1))
        if stated := results.of_rows(epsilon):
            _show_rows(results, stated)
        if intervals and (stated := results.of_questions(epsilon)):
            _show_coverage(results, stated)
    out.print()
    for mechanism, reason in results.refused.items():
        out.print(f"[bold yellow]not tried:[/] {mechanism}: {reason}")
    for mechanism, notes in results.notes.items():
        out.print(f"[bold yellow]note:[/] for {mechanism}, {' '.join(notes)}")
    for verdict in results.verdicts:
        out.print(f"[bold]verdict:[/] {escape(verdict.text)}", soft_wrap=True)
    out.print(f"page: {results.folder}/index.html", soft_wrap=True)


def _level_table(
    levels: "Sequence[ComparedLevel]",
    results: "Sequence[MechanismResult]",
    headings: Sequence[str],
    cells_of: "Callable[[LevelResult], Iterable[str]]",
) -> Table:
    """Return a table of numbers: a row per level and mechanism that has any, those of a level beneath one another."""
    table = table_of(headings[:2], headings[2:])
    for number, compared in enumerate(levels):
        each = ((result.mechanism, [*cells_of(result.levels[number])]) for result in results)
        for place, (mechanism, cells) in enumerate((mechanism, cells) for mechanism, cells in each if cells):
            table.add_row("" if place else compared.label, mechanism, *cells)
    return table


def _text_table(numbers: "stated.TextTable", texts: int) -> Table:
    """Return a table of columns of texts, as many as are given, and of numbers."""
    table = table_of(numbers.heads[:texts], numbers.heads[texts:])
    for row in numbers.rows:
        table.add_row(*map(escape, row))  # a bracket at the start of markup would be read as a tag
    return table


def _errors(level: "LevelResult", added: Iterable[str] = ()) -> list[str]:
    errors = (f"{error.mean:,.1f}" for error in (level.max_absolute, level.mean_absolute, level.l1))
    rates = (f"{100 * rate.mean:.1f}%" for rate in (level.false_discovery, level.false_negative))
    return [*errors, *rates, *(f"{of.mean:,.1f}" if (of := level.measure(name)) else "" for name in added)]


def _show_coverage(results: "TrialResults", stated: "Sequence[MechanismResult]") -> None:
    """Draw, by true count, how many intervals hold the true count and how wide they are, and what of that is promised."""
    from tasks.validate.coverage import FEW_INTERVALS, TRUE_COUNTS, ZEROED, are_few

    def format_share(group: "GroupIntervals") -> str:
        if group.coverage is None:
            return ""
        share = f"{100 * group.coverage.mean:.1f}%"
        return f"({share})" if are_few(group.cells * results.runs) else share

    def format_width(group: "GroupIntervals") -> str:
        return f"{group.width.mean:,.1f}" if group.width else ""

    def by_group(groups: Sequence[str], written: "Callable[[GroupIntervals], str]") -> Table:
        def cells_of(level: "LevelResult") -> list[str]:
            return [written(level.intervals[group]) for group in groups] if level.intervals else []

        return _level_table(results.levels, stated, (*_FIRST, *groups), cells_of)

    promise = f"the promise is {100 * results.confidence:g}% for each fixed cell, and so, within sampling error, for each true count"
    out.print(f"\n[bold]intervals of questions[/]: the share that holds the true count, by true count; {promise}")
    out.print(by_group((*TRUE_COUNTS, ZEROED), format_share))
    out.print(f"in brackets: a share of fewer than {FEW_INTERVALS} intervals (cells times runs), which says little")
    out.print("zeroed: cells released as 0 whose true count is not 0; no coverage is promised for them")
    out.print("\n[bold]intervals of questions[/]: mean width in records, by true count")
    out.print(by_group(TRUE_COUNTS, format_width))


def _show_rows(results: "TrialResults", stated: "Sequence[MechanismResult]") -> None:
    """Draw what a release would say of its rows, and how it is."""
    out.print("\n[bold]what a release would say of its rows[/], and how it is; means of the runs")
    out.print(_level_table(results.levels, stated, _OF_ROWS, _rows))
    out.print(
        f"covered: rows with a true count from low to high, on average at least {100 * results.confidence:g}% where the number of"
        f" measured cells is public; width: in {results.counted}\n"
        "false rows: the share with a true count of 0, of all rows, and of the rows with `signal` alone, where it is on average at"
        " most the spec's signal_rate\n"
        "noise rows: that share of all rows, as the release would estimate it (mean of the runs in which it would; empty: none), and what it would say that it is at most\n"
        "bound: what the release would say that no error exceeds, after the draw; beside the largest error"
    )


def _rows(level: "LevelResult") -> list[str]:
    """Return what is said of the published rows of a level or view; nothing where no intervals are stated."""
    if not level.rows_covered:
        return []
    shares = (level.false_rows, level.false_signal, level.noise_rows, level.noise_rows_at_most)
    return [
        f"{100 * level.rows_covered.mean:.1f}%",
        f"{level.row_width.mean:,.1f}" if level.row_width else "",
        *(f"{100 * share.mean:.1f}%" if share else "" for share in shares),
        f"{level.max_absolute.mean:,.1f}",
        f"{level.bound_after.mean:,.1f}" if level.bound_after else "",
    ]
