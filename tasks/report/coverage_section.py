"""The intervals on the page of a comparison: their coverage and their width, of published rows and by true count."""

from collections.abc import Sequence
from html import escape

from tasks.report.frame import table
from tasks.report.svg import Layer, chart, levels_axis, linear_axis, lines, marks, style
from tasks.report.trial_results import GroupIntervals, MechanismResult, Spread, TrialResults
from tasks.validate.coverage import FEW_INTERVALS, TRUE_COUNTS, ZEROED, are_few

_WIDE = 960  # pixels, of the whole page

_LABELS = {"more": "above 10"}

_MARKS = """<h2>False rows, without the mark and with it</h2>
<p>A false row is a released row whose true count is 0. A release by this spec would mark the rows that stand out from the
noise (<code>signal</code>). Of the marked rows, on average at most the share <code>release.signal_rate</code> of the spec is
expected to be false. Each entry is the mean over the runs, with the minimum and the maximum in brackets; it is
empty where no row was marked in any run.</p>
{tables}"""

_SECTION = """<h2>Intervals</h2>
<p>A release by this spec would state two kinds of intervals. Those in the tables are for rows: on average over all noise, at least
{confidence} of a level's rows have a true count inside, however they came to be rows. Those of <code>trellis query</code> are for
questions that are fixed beforehand: for each fixed cell, over all noise, the interval contains the true count with a probability
of at least {confidence}. The true counts, by which cells are grouped here, were fixed before any noise was drawn.
So the coverage of each group is at least {confidence} on average over runs, within sampling
error; the dashed line marks {confidence}. A share of fewer than {few} intervals (cells times runs) says little: the pictures leave
it out, and the tables show it in brackets. Every possible cell of a level counts, measured or not.</p>
<p>There is no promise for zeroed cells, which the noise selected. A zeroed cell is released as 0, measured or not, while its true
count is not 0. The mechanism <code>stability_histogram</code> promises nothing for rows either: how many cells it measures is secret.</p>
{figures}
{tables}"""


def coverage_section(found: TrialResults) -> str:
    """Return the section; empty if no mechanism that was tried states intervals.

    Args:
        found: the results of the comparison.
    """
    figures, tables = list[str](), list[str]()
    for epsilon in found.epsilons:
        asked, stated = (
            [result for result in results if result.epsilon == epsilon]
            for results in (found.with_intervals, found.with_any_intervals)
        )
        if asked:
            figures.append(_figure(found, epsilon, asked))
        if stated:
            tables.append(_tables(found, epsilon, stated))
    if not tables:
        return ""
    return _SECTION.format(
        confidence=f"{100 * found.confidence:g}%",
        few=FEW_INTERVALS,
        figures="\n".join(figures),
        tables="\n".join(tables),
    )


def marks_section(found: TrialResults) -> str:
    """Return the section of false discovery among all rows and among marked ones; empty if no mechanism that was tried marks rows.

    Args:
        found: the results of the comparison.
    """
    tables = []
    for epsilon in found.epsilons:
        rows = [
            [
                escape(compared.label),
                escape(result.mechanism),
                *map(_percent, (level.false_rows, level.false_signal)),
            ]
            for number, compared in enumerate(found.levels)
            if not compared.view  # views list all their cells, and mark none
            for result in found.with_any_intervals
            if result.epsilon == epsilon and (level := result.levels[number]).rows_covered
        ]
        if rows:
            heads = ["level", "mechanism", "of all rows, %", "of the marked rows, %"]
            tables.append(table(heads, rows, caption=f"False rows at ε = {epsilon:g}"))
    return _MARKS.format(tables="\n".join(tables)) if tables else ""


def _percent(share: Spread | None) -> str:
    """Return a share as the mean of the runs, with the least and the most; empty where there is none."""
    return f"{100 * share.mean:.1f} [{100 * share.min:.1f}, {100 * share.max:.1f}]" if share else ""


def _figure(found: TrialResults, epsilon: float, results: Sequence[MechanismResult]) -> str:
    """Draw coverage by level: a panel per true count, a line per mechanism, and a dashed line at the promise."""
    labels = [level.label for level in found.levels]
    promise = marks("rule", [{"x": -0.5, "x2": len(labels) - 0.5, "y": found.confidence, "d": [6, 3]}])
    named = [(result.mechanism, style(found.mechanisms.index(result.mechanism))) for result in results]
    panels, shown = list[tuple[str, list[Layer]]](), [found.confidence, 1.0]
    for group in TRUE_COUNTS:
        rows = [
            {"x": level.level, "y": of.coverage.mean, **look, "of": name}
            for result, (name, look) in zip(results, named, strict=True)
            for level in result.levels
            if level.intervals and (of := level.intervals[group]).coverage and not _are_few(of, found.runs)
        ]
        shown += [row["y"] for row in rows]
        panels.append((f"true count {_LABELS.get(group, group)}", [promise, *lines(rows)]))
    described = f"Coverage of intervals by level at ε = {epsilon:g}, a panel for each true count"
    axes = levels_axis(labels), linear_axis("covered", shown, -2)
    svg = chart(panels, axes, named, described, _WIDE)
    caption = f"ε = {epsilon:g}: the share of cells whose interval contains the true count, mean of the runs."
    return f'<figure><div class="scroll">{svg}</div><figcaption>{caption}</figcaption></figure>'


def _are_few(of: GroupIntervals, runs: int) -> bool:
    """Return whether a group of cells has, in all runs, too few intervals for a meaningful share."""
    return are_few(of.cells * runs)


def _tables(found: TrialResults, epsilon: float, results: Sequence[MechanismResult]) -> str:
    tables = "\n".join(_table(found, result) for result in results)
    return (
        f"<details><summary>Coverage and mean width of intervals, ε = {epsilon:g}</summary>\n{tables}\n<p>Rows: the share of the"
        " published rows whose interval contains the true count, in percent, as the mean over the runs; estimated: the share of"
        " all rows whose true count is 0, as the release would estimate it (the mean over the runs in which it would), and what it would"
        " say it is at most. By true count: the share"
        " of fixed cells that is covered, with its standard error, in brackets where there are fewer than"
        f" {FEW_INTERVALS} intervals. Widths are means of high − low, in records.</p></details>"
    )


def _table(found: TrialResults, result: MechanismResult) -> str:
    heads = ["level", "rows", "width", "false discovery: estimated", "at most"]
    for group in TRUE_COUNTS:
        heads += [_LABELS.get(group, group), "width"]
    heads.append(ZEROED)
    rows, runs = [], found.runs
    for compared, level in zip(found.levels, result.levels, strict=True):
        groups = level.intervals or {}
        cells = [
            text for group in TRUE_COUNTS for text in (_covered(groups.get(group), runs), _width(groups.get(group)))
        ]
        of_rows = [f"{100 * level.rows_covered.mean:.1f}" if level.rows_covered else ""]
        of_rows.append(f"{level.row_width.mean:,.1f}" if level.row_width else "")
        shares = (level.noise_rows, level.noise_rows_at_most)
        of_rows += [f"{100 * share.mean:.1f}" if share else "" for share in shares]
        rows.append([escape(compared.label), *of_rows, *cells, _covered(groups.get(ZEROED), runs)])
    return table(heads, rows, caption=escape(result.mechanism))


def _covered(of: GroupIntervals | None, runs: int) -> str:
    if not of or not of.coverage:
        return ""
    error = of.coverage.standard_error
    share = f"{100 * of.coverage.mean:.1f}" + ("" if error is None else f" ± {100 * error:.1f}")
    return f"({share})" if _are_few(of, runs) else share


def _width(of: GroupIntervals | None) -> str:
    return f"{of.width.mean:,.1f}" if of and of.width else ""
