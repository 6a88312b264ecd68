"""The top of the page of a plan: what it is about in a few sentences, its main numbers, and what must be settled first."""

from html import escape

from flows.forecast.sections.facts import PageFacts, numbers_of, within
from tasks.words.epsilon import format_right_guess, limits_guesses
from tasks.words.levels import in_short
from tasks.words.numbers import format_cells, format_spent, rounded_up


def inside_notice(facts: PageFacts) -> str:
    """Return that the page is for use inside the office."""
    forecast = facts.forecast
    guess = (
        f" It shows a guess of the number of {facts.counted}, which a release does not publish."
        if forecast.typical and forecast.typical.from_ == "expected_total"
        else ""
    )
    return f'<div class="notice"><p><b>For use inside the office.</b> This page is not part of what is published.{guess}</p></div>'


def sentence(facts: PageFacts) -> str:
    """Return a few sentences: what the release publishes, from which table, whom it protects, and what it costs."""
    forecast = facts.forecast
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
        f"It would be refused: with it, ε = {format_spent(after)} would be spent, and the cap is {cap.epsilon:g} at δ = {cap.delta:g}."
        if not facts.planned.fits
        else f"Of a budget of ε = {cap.epsilon:g}, ε = {rounded_up(forecast.budget.before.epsilon)} is spent before it and"
        f" ε = {rounded_up(after)} with it."
    )
    return (
        f"{counted} from the table <b>{escape(facts.table)}</b> (dataset {escape(forecast.dataset)}), by {escape(axes)}, would be"
        f" published in {levels} tables from the total down to the finest level ({facts.place(finest.axes)}){views}."
        f" {_limit(facts)} {cost}"
    )


def _limit(facts: PageFacts) -> str:
    """Return what the noise limits: how often somebody guesses right at most, where no level is exact by choice."""
    epsilon, delta, unit = facts.forecast.epsilon, facts.forecast.delta, f"<b>{escape(facts.unit)}</b>"
    noise = f"Each count{f' but those of {numbers_of(facts.exact)}' if facts.exact else ''} gets noise on purpose"
    if not limits_guesses(epsilon, delta):
        return f"{noise}, but ε is so large that it limits nothing that matters: the tables may reveal everything about {unit}."
    if facts.plan.exact_by_choice:
        guess = ""
    else:
        guess = (
            ": between two equally likely possibilities they guess right at most"
            f" {format_right_guess(epsilon, delta)}, instead of 50"
        )
    return f"{noise}, to limit what the tables reveal about {unit}, however much somebody knows already{guess}."


def cards(facts: PageFacts) -> str:
    """Return the main numbers."""
    forecast, cap = facts.forecast, facts.forecast.budget.cap
    finest = facts.planned.levels[-1 - len(forecast.views)] if facts.planned.levels else None
    leaf = forecast.levels[-1]
    cards = [
        ("Privacy", f"ε = {rounded_up(forecast.epsilon)}", f"and δ = {forecast.delta:g}, for {escape(facts.unit)}"),
        (
            "ε spent with it",
            rounded_up(facts.planned.after) if facts.planned.fits else "refused",
            f"of {cap.epsilon:g} at δ = {cap.delta:g}; {rounded_up(forecast.budget.before.epsilon)} is spent before it",
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
        cards.append((f"Noise at level {leaf.level}", within(finest), f"{facts.counted}, of 19 of 20 counts"))
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
    if not limits_guesses(forecast.epsilon, forecast.delta):
        told.append(
            f"<b>Hardly any protection.</b> With ε = {rounded_up(forecast.epsilon)}, whoever reads the tables may guess right every time."
        )
    if few := facts.with_hardly_any_noise:
        told.append(
            f"<b>Hardly any noise.</b> Of {numbers_of(few)}, 19 of 20 counts are measured without any error: they are those of the"
            " confidential table."
        )
    told += [f"<b>To settle first.</b> {escape(warning)}" for warning in forecast.warnings]
    told += [f"<b>Note.</b> {escape(forecast.caution)}"] if forecast.caution else []
    if forecast.supersedes:
        told.append(
            f"This release would replace {escape(forecast.supersedes)}. A revision is a new measurement and is charged like any release;"
            " the charge for the earlier release stays."
        )
    return "\n".join(f'<div class="warning"><p>{text}</p></div>' for text in told)
