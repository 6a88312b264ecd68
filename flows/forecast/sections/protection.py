"""The sections that say what ε means, who is protected, and what is not."""

from html import escape

from flows.forecast.sections.facts import PageFacts, bullets
from flows.planning.plan import exact_in_words
from tasks.words.epsilon import epsilon_in_words, format_right_guess, limits_guesses
from tasks.words.numbers import format_probability, rounded_up
from tasks.words.readers import axes_called, level_called


def epsilon_section(facts: PageFacts) -> str:
    """Return what ε and δ mean to one unit, in words."""
    forecast = facts.forecast
    told = epsilon_in_words(forecast.epsilon, forecast.delta, facts.unit, forecast.neighbours)
    name = f"ε = {rounded_up(forecast.epsilon)}, δ = {forecast.delta:g} ({format_probability(forecast.delta)})"
    where = (
        "<p>All of this holds only between tables that agree on every count that is published exactly.</p>"
        if facts.plan.exact_by_choice
        else ""
    )
    cap = forecast.budget.cap
    if limits_guesses(cap.epsilon, cap.delta):
        at_cap = f"a reader of all of them guesses right at most {format_right_guess(cap.epsilon, cap.delta)}"
    else:
        at_cap = "a reader of all of them may guess right every time"
    return (
        f"<p>ε says how much a release may reveal about {escape(facts.unit)}; smaller is stronger. This release has <b>{name}</b>.</p>"
        f"<p>{escape(' '.join(told))}</p>{where}"
        f"<p>All releases about these people together may reveal more: their cap is ε = {cap.epsilon:g} at"
        f" δ = {cap.delta:g}. Once it is spent, {at_cap}.</p>"
    )


def protection_section(facts: PageFacts) -> str:
    """Return who is protected, by what, and what is not protected."""
    plan, forecast = facts.plan, facts.forecast
    keys, unit = plan.file.spec.privacy, escape(facts.unit)
    many = keys.max_records_per_unit
    has = "exactly" if keys.total_is_public else "at most"
    change = (
        f"replacing the records of {unit} by other records"
        if keys.neighbours == "substitution"
        else f"adding or removing all records of {unit}"
    )
    protected = [
        f"<b>Who</b>: {unit}, which has {has} {many:,} record{'' if many == 1 else 's'} in the table."
        + (f" All {many:,} together are protected, not each by itself." if many > 1 else ""),
        f"<b>What must not show</b>: {change}.",
        f"<b>How</b>: {escape(forecast.statement)}",
        "<b>Who makes sure of the number of records</b>: Trellis, which drops the records of a unit beyond the limit when it reads the table."
        if plan.contributions.bounded_by == "ingest"
        else "<b>Who makes sure of the number of records</b>: you do. The data owner promises it, Trellis does not check it, and the manifest"
        " says so. If a unit has more records, it is protected less.",
    ]
    if keys.distinct:
        protected.append(
            f"<b>A further promise</b>: the records of a unit lie in different cells of level {escape(_called(facts, keys.distinct))}."
        )
    not_protected = [
        *map(escape, _exact(facts)),
        f"What would be known without the records of any one {_bare(unit)}: facts about everybody together.",
        "What the codebooks and the spec say: they are public.",
        "The confidential table itself, and the true counts that Trellis holds until the release is published. They stay in the office.",
    ]
    return f"<h3>Protected</h3>{bullets(protected)}<h3>Not protected</h3>{bullets(not_protected)}"


def _exact(facts: PageFacts) -> list[str]:
    """Return all counts that are published exactly, with levels in the words of readers."""
    plan = facts.plan
    chosen = [exact_in_words(level.level, axes_called(facts.spec, level.axes)) for level in plan.exact_levels]
    return [*(what for what in plan.unprotected if what not in plan.exact_by_choice), *chosen]


def _called(facts: PageFacts, level: str) -> str:
    """Return what readers call a level that the spec names without its axis."""
    words = (level_called(facts.spec, axis, level) for axis in facts.forecast.levels[0].axes)
    return next((word for word in words if word != level), level)


def _bare(unit: str) -> str:
    return unit.removeprefix("one ").removeprefix("a ").removeprefix("an ")
