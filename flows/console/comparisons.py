"""Comparisons, as a person sees them."""

from collections.abc import Callable, Sequence

from rich.table import Table

from flows.console.terminal import (
    Answer,
    escaped,
    out,
)


def show_comparison(answer: Answer, *, intervals: bool = False) -> None:
    """Draw a comparison: per ε and level the mean of every measure of each mechanism, and where the rest is.

    Args:
        answer: what is said of it.
        intervals: whether coverage and width of the intervals are drawn too.
    """
    answer = escaped(answer)
    out.print(f"[bold]{answer['name']}[/], δ = {answer['delta']:g}, runs: {answer['runs']}; nothing was charged")
    for epsilon in dict.fromkeys(result["epsilon"] for result in answer["results"]):
        at = [result for result in answer["results"] if result["epsilon"] == epsilon]
        out.print(f"\n[bold]ε = {epsilon:g}[/], means of the runs; errors in records")
        out.print(_error_table(answer["levels"], at))
        seconds = ", ".join(f"{result['mechanism']} {result['seconds']['mean']:.2f}" for result in at)
        out.print(f"seconds of a trial: {seconds}")
        if intervals:
            _show_coverage(answer["confidence"], answer["runs"], at)
    out.print()
    for mechanism, reason in answer["refused"].items():
        out.print(f"[bold yellow]not tried:[/] {mechanism}: {reason}")
    for mechanism, notes in answer["notes"].items():
        out.print(f"[bold yellow]mind:[/] for {mechanism} {' '.join(notes)}")
    out.print(f"page: {answer['folder']}/index.html", soft_wrap=True)


def _error_table(levels: list[Answer], results: list[Answer]) -> Table:
    """Return a table of errors: a row per mechanism, those of a level beneath one another, and a column per measure."""
    table = Table("level", "mechanism", box=None)
    for heading in ("maximum", "mean", "ℓ₁", "false\ndiscovery", "false\nnegative"):
        table.add_column(heading, justify="right")
    for number, level in enumerate(levels):
        for place, result in enumerate(results):
            of_level = result["levels"][number]
            table.add_row(
                "" if place else str(level["level"]),
                result["mechanism"],
                *(f"{of_level[measure]['mean']:,.1f}" for measure in ("max_absolute", "mean_absolute", "l1")),
                *(f"{100 * of_level[measure]['mean']:.1f} %" for measure in ("false_discovery", "false_negative")),
            )
    return table


def _show_coverage(confidence: float, runs: int, results: list[Answer]) -> None:
    """Draw, by true count, how many intervals hold the truth and how wide they are, and say what of that is promised."""
    from tasks.validate.coverage import FEW_INTERVALS, SELECTED, TRUE_COUNTS, are_few

    def format_share(of: Answer) -> str:
        share = f"{100 * of['coverage']['mean']:.1f} %"
        return f"({share})" if are_few(of["cells"] * runs) else share

    stated = [result for result in results if any(level["intervals"] for level in result["levels"])]
    if not stated:
        return
    promised = (
        f"{100 * confidence:g} % are promised for each fixed cell, and so, within sampling error, for each true count"
    )
    out.print(f"\n[bold]intervals[/]: share that holds the truth, by true count; {promised}")
    out.print(_group_table(stated, "coverage", (*TRUE_COUNTS, *SELECTED), format_share))
    out.print(f"in brackets: of fewer than {FEW_INTERVALS} intervals, cells times runs, which says little")
    out.print(
        "non-zero: released so; zeroed: released as 0, while the true count is not; nothing is promised for either"
    )
    out.print("\n[bold]intervals[/]: mean width, by true count; records")
    out.print(_group_table(stated, "width", TRUE_COUNTS, lambda of: f"{of['width']['mean']:,.1f}"))


def _group_table(results: list[Answer], measure: str, groups: Sequence[str], said: Callable[[Answer], str]) -> Table:
    """Return a table of a measure of intervals: a row per level and mechanism that states some, a column per group."""
    table = Table("level", "mechanism", box=None)
    for group in groups:
        table.add_column("non-zero" if group == "nonzero" else group, justify="right")
    for of_level in zip(*(result["levels"] for result in results), strict=True):
        rows = [
            (result["mechanism"], level) for result, level in zip(results, of_level, strict=True) if level["intervals"]
        ]
        for place, (mechanism, level) in enumerate(rows):
            of_groups = [level["intervals"][group] for group in groups]
            table.add_row(
                "" if place else str(level["level"]),
                mechanism,
                *(said(of_group) if of_group[measure] else "" for of_group in of_groups),
            )
    return table
