"""The page of a comparison: one self-contained HTML file, with the figures that the papers show."""

from collections.abc import Sequence
from html import escape

from tasks.report.coverage_section import coverage_section, marks_section
from tasks.report.frame import page, table
from tasks.report.svg import (
    INK,
    Axis,
    Row,
    chart,
    levels_axis,
    linear_axis,
    lines,
    log_axis,
    marks,
    style,
)
from tasks.report.trial_results import ABOUT_QUESTIONS, QUESTIONS, Spread, TrialResults, format_deviation, format_ratio
from tasks.words.numbers import format_probability

_FIGURES = (
    ("max_absolute", "Maximum absolute error", "records", "log"),
    ("mean_absolute", "Mean absolute error", "records", "log"),
    ("l1", "Sum of absolute errors (ℓ₁)", "records", "log"),
    ("false_discovery", "False discovery rate", "share of the cells with a count above 0", "linear"),
    ("false_negative", "False negative rate", "share of the true cells with a count of 0 or less", "linear"),
)

_ONE_PANEL, _WHOLE_PAGE = 650, 960  # pixels

_SAYS = {
    "fleet": "It divides the vehicles that the released trips need by those that the true trips need. <b>busy</b>: each zone keeps"
    " vehicles for its busiest period. <b>flow</b>: the fewest vehicles, which drive on from zone to zone. <b>pooled</b>: likewise,"
    " where trips of the same period and pair of zones share vehicles."
}

_STYLE = "svg { min-width: 30rem }\n"

_BODY = """<h1>{title}</h1>
<p>{summary}</p>
{refused}
{notes}
{figures}
{questions}
{marks}
{intervals}
{utilities}
<h2>In numbers</h2>
{tables}
<p>Each entry is the mean over the runs, with the minimum and the maximum in brackets. The mean absolute error is taken over the
cells that have a true or a released count. <code>trellis compare</code> made this page. In the same folder,
<code>errors.parquet</code> holds the rows of every run, and <code>coverage.parquet</code> those of the intervals.</p>"""


def comparison_page(found: TrialResults) -> str:
    """Return the page.

    Args:
        found: the results of the comparison.
    """
    epsilons, mechanisms = found.epsilons, found.mechanisms
    runs = f"{found.runs} run{'' if found.runs == 1 else 's'}"
    views = " The views of the spec follow by their names." if any(level.view for level in found.levels) else ""
    summary = (
        f"This page compares the counts of each mechanism with the true counts of the public table"
        f" <b>{escape(found.name)}</b>: {runs} each, with fresh noise, at"
        f" ε = {', '.join(f'{epsilon:g}' for epsilon in epsilons)} and δ = {found.delta:g}"
        f" ({format_probability(found.delta)}), neighbours by {escape(found.neighbours)}. Level 0 is the total; each"
        f" level below it is finer.{views}"
    )
    refused = "".join(
        f"<p><b>{escape(mechanism)}</b> could not be tried: {escape(reason)}</p>"
        for mechanism, reason in found.refused.items()
    )
    notes = "".join(
        f"<p>For <b>{escape(mechanism)}</b> {escape(' '.join(of_it))}</p>" for mechanism, of_it in found.notes.items()
    )
    title = f"Comparison of {len(mechanisms)} mechanism{'' if len(mechanisms) == 1 else 's'} on {found.name}"
    body = _BODY.format(
        title=escape(title),
        summary=summary,
        refused=refused,
        notes=notes,
        figures="\n".join(_figure(found, *what) for what in _FIGURES) + _seconds(found),
        questions=_questions(found),
        marks=marks_section(found),
        intervals=coverage_section(found),
        utilities="\n".join(_utility(found, name, numbers) for name, numbers in found.utilities.items()),
        tables="\n".join(_tables(found, epsilon, is_open=len(epsilons) == 1) for epsilon in epsilons),
    )
    return page(title, body, _STYLE)


def _figure(found: TrialResults, measure: str, title: str, unit: str, scale: str) -> str:
    """Draw a measure by level: a panel per ε, and a line per mechanism with bars from the minimum to the maximum."""
    mechanisms, is_log = found.mechanisms, scale == "log"
    spreads = {
        (result.mechanism, result.epsilon): [
            (level.level, of)
            for level in result.levels
            if (of := level.measure(measure)).mean or not is_log  # a logarithmic scale has no 0
        ]
        for result in found.results
    }
    ends = [end for of_levels in spreads.values() for _, of in of_levels for end in (of.min, of.mean, of.max)]
    y = log_axis(unit, ends) if is_log else linear_axis(unit, [0, 1], -1)
    panels = []
    for epsilon in found.epsilons:
        rows, bars = list[Row](), list[Row]()
        for number, mechanism in enumerate(mechanisms):
            look = style(number) | {"of": number}
            aside = 0.08 * (number - (len(mechanisms) - 1) / 2)  # so that bars do not hide each other
            for level, of in spreads.get((mechanism, epsilon), []):
                rows.append({"x": level + aside, "y": of.mean, **look})
                bars += _reach(of, level + aside, 0.035, y.ends[0], "yx", look["c"])
        panels.append((f"ε = {epsilon:g}", [marks("rule", bars), *lines(rows)]))
    shown = {mechanism for (mechanism, _), of_levels in spreads.items() if of_levels}
    named = [(mechanism, style(number)) for number, mechanism in enumerate(mechanisms) if mechanism in shown]
    described = f"{title} by level, a panel for each ε and a line for each mechanism"
    wide = _ONE_PANEL if len(panels) == 1 else max(_WHOLE_PAGE, 320 * len(panels))
    x = levels_axis([level.label for level in found.levels])
    svg = chart(panels, (x, y), named, described, wide)
    without_errors = (
        " A level without an error in any run is left out, because a logarithmic scale has no 0." if is_log else ""
    )
    caption = f"{unit.capitalize()}. Lines show the mean of the runs, bars their minimum and maximum.{without_errors}"
    return f'<h2>{title}</h2>\n<figure><div class="scroll">{svg}</div><figcaption>{caption}</figcaption></figure>'


def _reach(of: Spread, at: float, cap: float, least: float, axes: str, colour: str) -> list[Row]:
    """Return the lines of a bar from minimum to maximum along the first of two axes, with its caps; in their units."""
    along, across = axes[0], axes[1]
    low, high = max(of.min, least), max(of.max, least)
    bar = {along: low, f"{along}2": high, across: at, f"{across}2": at, "c": colour}
    caps = [
        {along: end, f"{along}2": end, across: at - cap, f"{across}2": at + cap, "c": colour} for end in (low, high)
    ]
    return [bar, *caps]


def _seconds(found: TrialResults) -> str:
    seconds = {(result.mechanism, result.epsilon): result.seconds for result in found.results}
    tried = [(name, epsilon) for name in found.mechanisms for epsilon in found.epsilons if (name, epsilon) in seconds]
    labels = {at: f"{name}, ε = {epsilon:g}" for at, (name, epsilon) in enumerate(tried)}
    spreads = [seconds[one] for one in tried]
    ends = [end for of in spreads for end in (of.min / 1.05, of.mean, of.max)]  # so that the least bar has a length
    x = log_axis("seconds, in memory; several trials run at once", ends)
    y = Axis("", (len(tried) - 0.4, -0.6), labels, is_bare=True)
    bars = [{"x": x.ends[0], "x2": of.mean, "y": at - 0.4, "y2": at + 0.4} for at, of in enumerate(spreads)]
    reach = [row for at, of in enumerate(spreads) for row in _reach(of, at, 0.15, x.ends[0], "xy", INK)]
    layers = [marks("rect", bars, fill="#8fabba", stroke=INK, strokeWidth=0.7), marks("rule", reach)]
    described = "Seconds of one trial of each mechanism at each ε"
    svg = chart([("", layers)], (x, y), [], described, _ONE_PANEL, high=30 * len(tried))
    return (
        f'<h2>Seconds</h2>\n<figure><div class="scroll">{svg}</div><figcaption>The time of one trial, from the true counts in memory'
        " to the released counts.</figcaption></figure>"
    )


def _questions(found: TrialResults) -> str:
    """Return the section of questions about an ordered axis: a table per ε, with a row per mechanism; empty without such results."""
    if not found.with_deviations:
        return ""
    tables = [
        table(
            ["mechanism", *QUESTIONS.values()],
            [
                [escape(result.mechanism), *(format_deviation(result, question) for question in QUESTIONS)]
                for result in found.with_deviations
                if result.epsilon == epsilon
            ],
            caption=f"ε = {epsilon:g}",
        )
        for epsilon in found.epsilons
    ]
    said = f"{ABOUT_QUESTIONS[0].upper()}{ABOUT_QUESTIONS[1:]}."
    return f"<h2>Questions about the ordered axis</h2>\n<p>{said}</p>\n{chr(10).join(tables)}"


def _utility(found: TrialResults, name: str, numbers: Sequence[str]) -> str:
    """Return the section of a measure of the leaves: a table per ε, with a row per mechanism and a column per number."""
    tables = [
        table(
            ["mechanism", *map(escape, numbers)],
            [
                [escape(result.mechanism), *(format_ratio((result.utility or {})[name][number]) for number in numbers)]
                for result in found.at(epsilon)
            ],
            caption=f"ε = {epsilon:g}",
        )
        for epsilon in found.epsilons
    ]
    described = (
        f"How useful the released counts of the finest level are, by the measure <code>{escape(name)}</code>. A dash means that the"
        " number does not exist for this table. In the same folder, <code>utility.parquet</code> holds the numbers of every run."
    )
    also = f" {_SAYS[name]}" if name in _SAYS else ""
    return f"<h2>Utility: {escape(name)}</h2>\n<p>{described}{also}</p>\n{chr(10).join(tables)}"


def _tables(found: TrialResults, epsilon: float, *, is_open: bool) -> str:
    results = {result.mechanism: result for result in found.at(epsilon)}
    mechanisms = [name for name in found.mechanisms if name in results]
    heads = ["level", *map(escape, mechanisms)]
    tables = []
    for measure, title, unit, _ in _FIGURES:
        rows = [
            [escape(level.label)]
            + [_format_spread(results[name].levels[number].measure(measure), measure) for name in mechanisms]
            for number, level in enumerate(found.levels)
        ]
        tables.append(table(heads, rows, caption=f"{title}, {unit}"))
    opened = " open" if is_open else ""
    return f"<details{opened}><summary>ε = {epsilon:g}</summary>\n{chr(10).join(tables)}\n</details>"


def _format_spread(spread: Spread, measure: str) -> str:
    if measure.startswith("false"):
        return f"{100 * spread.mean:.1f}% [{100 * spread.min:.1f}, {100 * spread.max:.1f}]"
    mean, least, most = map(_number, (spread.mean, spread.min, spread.max))
    return f"{mean} [{least}, {most}]"


def _number(value: float) -> str:
    """Return a number of records, with tenths if it is small."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}"
