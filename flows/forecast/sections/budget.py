"""The section that says what a release costs of the budget, and what that leaves."""

from html import escape

from flows.forecast.sections.facts import PageFacts
from tasks.report.frame import table
from tasks.words.levels import in_short
from tasks.words.numbers import format_spent, rounded_down, rounded_up


def budget_section(facts: PageFacts) -> str:
    """Return the cap, what is spent before and after, and what that leaves."""
    forecast = facts.forecast
    cap, approval = forecast.budget.cap, forecast.approval.budget
    after, planned = facts.planned.after, facts.planned
    left_before, left = map(rounded_down, facts.left)
    earlier = escape(in_short([*approval.releases])) if approval.releases else "no release yet"
    rows = [
        ["cap", f"{cap.epsilon:g}", f"of all releases about these people, at δ = {cap.delta:g}"],
        ["spent before", rounded_up(forecast.budget.before.epsilon), earlier],
        ["this release alone", rounded_up(forecast.epsilon), f"at δ = {forecast.delta:g}"],
        [
            "spent with it",
            format_spent(after),
            "all of them together" if planned.fits else "more than the cap: it is refused",
        ],
        ["left before", left_before, "what one more release may cost"],
        ["left with it", left, _further(facts)],
    ]
    costs = table(["budget", "ε", "about"], rows, caption="The budget of these people", kind="money")
    why = (
        f"<p>What is spent holds for {escape(forecast.budget.holds_for)}.</p>"
        "<p>What releases cost together is computed anew at the δ of the cap, so their ε do not simply add up. Once anything of a release"
        " is measured, what that cost is never given back. What is left is the ε of one more release like this one that would"
        " still fit; it is not the cap less what is spent.</p>"
    )
    return costs + why + _scheduled(facts)


def _further(facts: PageFacts) -> str:
    if not facts.planned.fits:
        return ""
    if facts.further >= 100:
        return "a hundred more like it fit, or more"
    return {0: "no further one like it fits", 1: "one more like it fits"}.get(
        facts.further, f"{facts.further} more like it fit"
    )


def _scheduled(facts: PageFacts) -> str:
    schedule, budget = facts.forecast.schedule, facts.forecast.budget
    if schedule is None:
        return ""
    when = f"<code>{escape(schedule.cron)}</code> ({escape(schedule.timezone)})"
    first, last = escape(schedule.releases[0]), escape(schedule.releases[-1])
    if not schedule.until:
        return (
            f"<p><b>A schedule without an end</b>, at {when}. Each release is charged on its own day, until the cap refuses one. The next"
            f" ones: {escape(in_short([*schedule.releases]))}.</p>"
        )
    if schedule.declared:
        return f"<p><b>A series</b> at {when}: {len(schedule.releases)} releases, {first} to {last}. It is reserved and paid for.</p>"
    over = (
        " <b>That is more than the cap: the series is refused.</b>" if budget.after.epsilon > budget.cap.epsilon else ""
    )
    return (
        f"<p><b>A series</b> at {when}: {len(schedule.releases)} releases, {first} to {last}, which are reserved together. With all of them,"
        f" ε = {format_spent(budget.after.epsilon)} of {budget.cap.epsilon:g} is spent.{over} The table above is of one release.</p>"
    )
