"""The top of the page of a plan: what it is about in a few sentences, its main numbers, and what must be settled first."""

from html import escape

from flows.forecast.sections.facts import PageFacts
from flows.forecast.values import Forecast
from tasks.words.epsilon import format_right_guess
from tasks.words.levels import in_short
from tasks.words.numbers import format_cells, rounded_up


def inside_notice(forecast: Forecast) -> str:
    """Return that the page is for use inside the office."""
    guess = (
        " It shows a guess of the number of records, which a release does not publish."
        if forecast.typical and forecast.typical.from_ == "expected_total"
        else ""
    )
    return f'<div class="notice"><p><b>For use inside the office.</b> This page is not part of what is published.{guess}</p></div>'


def sentence(facts: PageFacts) -> str:
    """Return what would be published of which table, who is protected, and what that costs, in a few sentences."""
    forecast, spec = facts.forecast, facts.plan.file.spec
    finest, levels = forecast.levels[-1], len(forecast.levels)
    axes = (
        " and ".join(forecast.levels[0].axes)
        if len(forecast.levels[0].axes) == 2
        else in_short([*forecast.levels[0].axes])
    )
    many = len(forecast.views)
    views = f", and {many} grouping{'' if many == 1 else 's'} beside them" if many else ""
    counted = "Groups counted by size" if facts.plan.scheme.sizes else "Records counted"
    cap, after = forecast.budget.cap, facts.planned.after
    cost = (
        f"It would be refused: with it, ε = {rounded_up(after, 4)} would be spent, and the cap is {cap.epsilon:g}."
        if not facts.planned.fits
        else f"Of a budget of ε = {cap.epsilon:g}, ε = {rounded_up(forecast.budget.before.epsilon, 4)} is spent before it and"
        f" ε = {rounded_up(after, 4)} with it."
    )
    return (
        f"{counted} from the table <b>{escape(facts.table)}</b> (dataset {escape(forecast.dataset)}), by {escape(axes)}, would be"
        f" published in {levels} tables from the total down to the finest level ({facts.place(finest.axes)}){views}."
        f" Each count gets noise on purpose, to limit what the tables reveal about <b>{escape(spec.privacy.unit)}</b>, however"
        f" much somebody knows already{_guess(facts)}. {cost}"
    )


def _guess(facts: PageFacts) -> str:
    """Return how often somebody guesses right at most; nothing where levels are exact, which limits the claim."""
    if facts.plan.exact_by_choice:
        return ""
    of_100 = format_right_guess(facts.forecast.epsilon, facts.forecast.delta)
    return f": between two equally likely possibilities they guess right at most {of_100}, instead of 50"


def cards(facts: PageFacts) -> str:
    """Return the main numbers."""
    forecast, cap = facts.forecast, facts.forecast.budget.cap
    finest = facts.planned.levels[-1 - len(forecast.views)] if facts.planned.levels else None
    leaf = forecast.levels[-1]
    cards = [
        ("Privacy", f"ε = {rounded_up(forecast.epsilon, 4)}", f"and δ = {forecast.delta:g}, for {escape(facts.unit)}"),
        (
            "Budget with it",
            f"{rounded_up(facts.planned.after, 3)} of {cap.epsilon:g}" if facts.planned.fits else "refused",
            f"ε at δ = {cap.delta:g}; {rounded_up(forecast.budget.before.epsilon, 3)} is spent before it",
        ),
        (
            f"Possible counts at level {leaf.level}",
            format_cells(leaf.possible_cells),
            facts.place(leaf.axes),
        ),
    ]
    if leaf.threshold:
        cards.append(("Smallest count kept", f"{leaf.threshold:,}", "smaller ones are missing, from sums too"))
    elif finest and finest.within is not None:
        error = f"± {finest.within:,}" if finest.within else "exact"
        cards.append((f"Noise at level {leaf.level}", error, f"{facts.counted}, of 19 of 20 counts"))
    inside = "".join(f"<div><dt>{head}</dt><dd>{value}</dd><dd>{more}</dd></div>" for head, value, more in cards)
    return f'<dl class="cards">{inside}</dl>'


def warnings(facts: PageFacts) -> str:
    """Return what must be settled or known before the release."""
    forecast, told = facts.forecast, []
    if not facts.planned.fits:
        told.append(
            "<b>Over the cap.</b> This release would be refused, because it exceeds the budget of these people."
        )
    elif forecast.budget.after.epsilon > forecast.budget.cap.epsilon:
        told.append(
            "<b>Over the cap.</b> The series as a whole would be refused, because it exceeds the budget of these people."
        )
    told += [f"<b>To settle first.</b> {escape(warning)}" for warning in forecast.warnings]
    told += [f"<b>Note.</b> {escape(forecast.caution)}"] if forecast.caution else []
    if forecast.supersedes:
        told.append(
            f"This release would replace {escape(forecast.supersedes)}. A revision is a new measurement and is charged like any release;"
            " the charge for the earlier release stays."
        )
    return "\n".join(f'<div class="warning"><p>{text}</p></div>' for text in told)
