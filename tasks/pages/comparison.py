"""The page of a comparison: one self-contained HTML file, with the figures that the papers show."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from markupsafe import Markup

from tasks.format.stated import TextTable
from tasks.pages.svg import INK, Layer, Row, Scale, chart, levels_axis, linear_axis, lines, log_axis, marks, style
from tasks.pages.templates import page
from tasks.pages.trial_results import (
    ABOUT_QUESTIONS,
    ABOUT_RANGES,
    ABOUT_SUMS,
    GroupIntervals,
    LevelResult,
    MechanismResult,
    Spread,
    TrialResults,
)
from tasks.validate.coverage import FEW_INTERVALS, TRUE_COUNTS, ZEROED, are_few


@dataclass(frozen=True, slots=True)
class _Measure:
    """A measure of errors: its name, what heads it, its unit, and whether its scale is logarithmic."""

    name: str
    title: str
    unit: str
    is_log: bool = True


_COUNTED = "records"  # or groups
_MEASURES = (
    _Measure("max_absolute", "Maximum absolute error", _COUNTED),
    _Measure("mean_absolute", "Mean absolute error", _COUNTED),
    _Measure("l1", "Sum of absolute errors (ℓ₁)", _COUNTED),
    _Measure("false_discovery", "False discovery rate", "share of the cells with a count above 0", is_log=False),
    _Measure(
        "false_negative", "False negative rate", "share of the true cells with a count of 0 or less", is_log=False
    ),
)
_ADDED = (  # where there are any
    _Measure("emd", "Earth mover's distance (EMD)", "records that are too many in a group, or missing"),
    _Measure("violations", "Violations", "counts below 0, and counts to which those of the next level do not add up"),
)
_ONE_PANEL, _WHOLE_PAGE = 650, 960  # pixels
_LABELS = {"more": "above 10"}


def comparison_page(trials: TrialResults) -> str:
    """Return the page."""
    epsilons = trials.epsilons
    measures = (replace(of, unit=trials.counted) if of.unit == _COUNTED else of for of in _MEASURES)
    shown = [*measures, *(of for of in _ADDED if trials.has(of.name))]
    return page(
        "comparison.html",
        trials=trials,
        about_questions=ABOUT_QUESTIONS,
        about_ranges=ABOUT_RANGES,
        few=FEW_INTERVALS,
        measures=[(measure, _measure_chart(trials, measure)) for measure in shown],
        seconds=_seconds_chart(trials),
        questions=[{"epsilon": of, "table": table} for of in epsilons if (table := trials.deviations(of)).rows],
        of_ranges=[{"epsilon": of, "table": table} for of in epsilons if (table := trials.of_ranges(of)).rows],
        marked=[{"epsilon": of, "table": table} for of in epsilons if (table := _marks(trials, of)).rows],
        coverage=[
            {"epsilon": epsilon, "svg": _coverage_chart(trials, epsilon, asked)}
            for epsilon in epsilons
            if (asked := trials.of_questions(epsilon))
        ],
        stated=[
            {"epsilon": epsilon, "tables": [(of.mechanism, _intervals(trials, of)) for of in stated]}
            for epsilon in epsilons
            if (stated := trials.of_rows(epsilon))
        ],
        utilities=[
            {
                "name": name,
                "about": ABOUT_SUMS.get(name),
                "tables": [{"epsilon": of, "table": trials.utility(of, name)} for of in epsilons],
            }
            for name in trials.utilities
        ],
        numbers=[
            {"epsilon": epsilon, "tables": [(of, _numbers(trials, epsilon, of)) for of in shown]}
            for epsilon in epsilons
        ],
    )


def _measure_chart(trials: TrialResults, measure: _Measure) -> Markup:
    """Draw a measure by level: a panel per ε, and a line per mechanism with bars from the minimum to the maximum."""
    mechanisms = trials.mechanisms
    spreads = {
        (result.mechanism, result.epsilon): [
            (level.level, of)
            for level in result.levels
            if (of := level.measure(measure.name)) and (of.mean or not measure.is_log)  # a logarithmic scale has no 0
        ]
        for result in trials.results
    }
    ends = [end for of_levels in spreads.values() for _, of in of_levels for end in (of.min, of.mean, of.max)]
    y = log_axis(measure.unit, ends) if measure.is_log else linear_axis(measure.unit, [0, 1])
    panels = []
    for epsilon in trials.epsilons:
        rows, bars = list[Row](), list[Row]()
        for number, mechanism in enumerate(mechanisms):
            colour = style(number)["c"]
            aside = 0.08 * (number - (len(mechanisms) - 1) / 2)  # so that bars do not hide each other
            for level, of in spreads.get((mechanism, epsilon), []):
                rows.append({"x": level + aside, "y": of.mean, "of": mechanism})
                bars += _reach(of, level + aside, 0.035, y.ends[0], "yx", colour)
        panels.append((f"ε = {epsilon:g}", [marks("rule", bars), *lines(rows)]))
    shown = {mechanism for (mechanism, _), of_levels in spreads.items() if of_levels}
    named = [(mechanism, style(number)) for number, mechanism in enumerate(mechanisms) if mechanism in shown]
    described = f"{measure.title} by level, a panel for each ε and a line for each mechanism"
    wide = _ONE_PANEL if len(panels) == 1 else max(_WHOLE_PAGE, 320 * len(panels))
    return chart(panels, (levels_axis([level.label for level in trials.levels]), y), named, described, wide)


def _reach(of: Spread, at: float, cap: float, least: float, axes: str, colour: str) -> list[Row]:
    """Return the lines of a bar from minimum to maximum along the first of two axes, with its caps; in their units."""
    along, across = axes[0], axes[1]
    low, high = max(of.min, least), max(of.max, least)
    bar = {along: low, f"{along}2": high, across: at, f"{across}2": at, "c": colour}
    caps = [
        {along: end, f"{along}2": end, across: at - cap, f"{across}2": at + cap, "c": colour} for end in (low, high)
    ]
    return [bar, *caps]


def _seconds_chart(trials: TrialResults) -> Markup:
    seconds = {(result.mechanism, result.epsilon): result.seconds for result in trials.results}
    tried = [(name, epsilon) for name in trials.mechanisms for epsilon in trials.epsilons if (name, epsilon) in seconds]
    labels = [f"{name}, ε = {epsilon:g}" for name, epsilon in tried]
    spreads = [seconds[one] for one in tried]
    ends = [end for of in spreads for end in (of.min / 1.05, of.mean, of.max)]  # so that the least bar has a length
    x = log_axis("seconds, in memory; several trials run at once", ends)
    y = Scale("", (len(tried) - 0.4, -0.6), labels)
    bars = [{"x": x.ends[0], "x2": of.mean, "y": at - 0.4, "y2": at + 0.4} for at, of in enumerate(spreads)]
    reach = [row for at, of in enumerate(spreads) for row in _reach(of, at, 0.15, x.ends[0], "xy", INK)]
    layers = [marks("rect", bars, fill="#8fabba", stroke=INK, stroke_width=0.7), marks("rule", reach)]
    described = "Seconds of one trial of each mechanism at each ε"
    return chart([("", layers)], (x, y), [], described, _ONE_PANEL, high=30 * len(tried))


def _coverage_chart(trials: TrialResults, epsilon: float, results: Sequence[MechanismResult]) -> Markup:
    """Draw coverage by level: a panel per true count, a line per mechanism, and a dashed line at the promise."""
    labels = [level.label for level in trials.levels]
    promise = marks("rule", [{"x": -0.5, "x2": len(labels) - 0.5, "y": trials.confidence}], stroke_dasharray=(6, 3))
    named = [(result.mechanism, style(trials.mechanisms.index(result.mechanism))) for result in results]
    panels, shown = list[tuple[str, list[Layer]]](), [trials.confidence, 1.0]
    for group in TRUE_COUNTS:
        rows: list[Row] = [
            {"x": level.level, "y": of.coverage.mean, "of": result.mechanism}
            for result in results
            for level in result.levels
            if level.intervals and (of := level.intervals[group]).coverage and not are_few(of.cells * trials.runs)
        ]
        shown += [row["y"] for row in rows]
        panels.append((f"true count {_LABELS.get(group, group)}", [promise, *lines(rows)]))
    described = f"Coverage of intervals by level at ε = {epsilon:g}, a panel for each true count"
    return chart(panels, (levels_axis(labels), linear_axis("covered", shown)), named, described, _WHOLE_PAGE)


def _marks(trials: TrialResults, epsilon: float) -> TextTable:
    """Return the shares of false rows among all rows and among marked ones; no row where no mechanism that was tried marks any."""
    rows = [
        [compared.label, result.mechanism, *map(_share, (level.false_rows, level.false_signal))]
        for number, compared in enumerate(trials.levels)
        if not compared.view  # views list all their cells, and mark none
        for result in trials.of_rows(epsilon)
        if (level := result.levels[number]).rows_covered
    ]
    return TextTable(["level", "mechanism", "of all rows, %", "of the marked rows, %"], rows)


def _intervals(trials: TrialResults, result: MechanismResult) -> TextTable:
    """Return the coverage and the width of a mechanism's intervals, of rows and by true count."""
    heads = ["level", "rows", "width", "false discovery: estimated", "at most"]
    heads += [head for group in TRUE_COUNTS for head in (_LABELS.get(group, group), "width")]
    compared = zip(trials.levels, result.levels, strict=True)
    return TextTable([*heads, ZEROED], [[of.label, *_interval_cells(level, trials.runs)] for of, level in compared])


def _interval_cells(level: LevelResult, runs: int) -> Iterator[str]:
    yield f"{100 * level.rows_covered.mean:.1f}" if level.rows_covered else ""
    yield f"{level.row_width.mean:,.1f}" if level.row_width else ""
    for share in (level.noise_rows, level.noise_rows_at_most):
        yield f"{100 * share.mean:.1f}" if share else ""
    groups = level.intervals or {}
    for group in TRUE_COUNTS:
        of = groups.get(group)
        yield _covered(of, runs)
        yield f"{of.width.mean:,.1f}" if of and of.width else ""
    yield _covered(groups.get(ZEROED), runs)


def _covered(of: GroupIntervals | None, runs: int) -> str:
    if not of or not of.coverage:
        return ""
    error = of.coverage.standard_error
    share = f"{100 * of.coverage.mean:.1f}" + ("" if error is None else f" ± {100 * error:.1f}")
    return f"({share})" if are_few(of.cells * runs) else share


def _numbers(trials: TrialResults, epsilon: float, measure: _Measure) -> TextTable:
    """Return a measure by level, a column per mechanism; empty where it is none of a level."""
    results, form = trials.at(epsilon), _number if measure.is_log else partial(_share, sign="%")
    rows = [
        [level.label, *(form(of) if (of := result.levels[number].measure(measure.name)) else "" for result in results)]
        for number, level in enumerate(trials.levels)
    ]
    return TextTable(["level", *(result.mechanism for result in results)], rows)


def _share(share: Spread | None, sign: str = "") -> str:
    """Return a share in per cent as the mean of the runs, with the least and the most; empty where there is none."""
    return share.written(lambda value: f"{100 * value:.1f}").replace(" [", f"{sign} [") if share else ""


def _number(spread: Spread) -> str:
    """Return a number of records, with tenths if it is small."""
    return spread.written(lambda value: f"{value:,.0f}" if value >= 1000 else f"{value:,.1f}")
