"""The section that says how exact the numbers would be, as planned and at two other ε."""

from html import escape

from flows.forecast.sections.facts import PageFacts, named, numbers_of, of_level, within
from flows.forecast.values import PlannedPart
from flows.forecast.worth import LevelWorth, Worth
from tasks.report.frame import table
from tasks.words.epsilon import format_right_guess
from tasks.words.levels import in_short
from tasks.words.numbers import format_rounded, format_share, format_spent, rounded_up

_EXAMPLES = (10, 100, 1_000)  # records


def worth_section(facts: PageFacts) -> str:
    """Return how exact the numbers would be: as planned, and at two other ε."""
    parts = [_in_words(facts), _example_table(facts)]
    parts.append(_adjusted(facts))
    parts += ["<h3>At three ε</h3>", _three_tables(facts)]
    return "\n".join(part for part in parts if part)


def _adjusted(facts: PageFacts) -> str:
    """Return how the published counts come from the measured ones."""
    scheme, leaf = facts.plan.scheme, facts.forecast.levels[-1]
    if scheme.is_unbiased:
        return (
            f"<p>{_measured(facts)}, and all measurements together give each count, so that counts add up. They are not adjusted"
            " further: a small count may be below zero.</p>"
        )
    if scheme.is_summed:
        lacking = " They lack what is left out at the finest level." if leaf.threshold else ""
        return (
            f"<p>Only the finest level is measured. The counts of all other levels are sums of its counts.{lacking}</p>"
        )
    return (
        "<p>This is the noise with which counts are measured. Afterwards Trellis adjusts them, so that they are whole, not below"
        " zero, and add up. That costs no privacy. It moves many small counts to zero, and may move a large count further than its"
        " noise where it stands among many empty ones. The published intervals are around what was measured, and hold whatever"
        " was adjusted.</p>"
    )


def _measured(facts: PageFacts) -> str:
    """Return which levels and groupings are measured, where all measurements together give each count."""
    if not any(part.summed for part in facts.parts):
        return f"Every level but {numbers_of(facts.exact)} is measured" if facts.exact else "Every level is measured"
    of_tree = [level for level in facts.forecast.levels if not level.summed and level not in facts.exact]
    beside = [f"view {escape(str(view.view))}" for view in facts.forecast.views if not view.summed]
    named = " and ".join([*([numbers_of(of_tree)] if of_tree else []), *([in_short(beside)] if beside else [])])
    return f"Only {named} {'is' if len(of_tree) + len(beside) == 1 else 'are'} measured"


def _in_words(facts: PageFacts) -> str:
    forecast, typical = facts.forecast, facts.forecast.typical
    leaf, worth = forecast.levels[-1], of_level(facts.planned, len(forecast.levels) - 1)
    told = []
    if leaf.threshold:
        told.append(
            f"At the finest level, only counts of at least <b>{leaf.threshold:,}</b> are published; sums lack the others."
        )
    elif worth and worth.within == 0 and not worth.is_exact:
        told.append(
            "At the finest level, 19 of 20 counts are measured <b>without any error</b>: there is hardly any noise."
        )
    elif worth and worth.within:
        told.append(
            f"At the finest level, 19 of 20 counts are measured within <b>± {worth.within:,}</b> of the truth. A count above"
            f" {worth.more_than_noise:,} is more than noise."
        )
        if leaf.bound:
            told.append(
                f"With 95% probability, no published count of that level is further off than ± {leaf.bound:,.0f}, all of them at once."
            )
    if typical is None:
        if not forecast.unlisted:
            told.append(
                f"The spec gives no guess of the number of {facts.counted} (<code>expected_total</code>), so this page cannot say down to which"
                " level most counts stand above the noise."
            )
    else:
        whose = "a guess from the spec" if typical.from_ == "expected_total" else f"from {escape(typical.from_)}"
        told.append(f"With {typical.total:,} {facts.counted} ({whose}), {_stands(facts)}")
        if typical.records_above:
            rarely, often = (format_share(share) for share in typical.records_above[-1])
            told.append(
                f"Real tables are uneven: of the finest level's {facts.counted}, typically {rarely} to {often} are in counts of more than twice"
                " the noise."
            )
        if typical.views_below_noise:
            told.append(f"The mean count is less than the noise in {escape(in_short([*typical.views_below_noise]))}.")
    return f"<p>{' '.join(told)}</p>"


def _stands(facts: PageFacts) -> str:
    typical, leaf = facts.forecast.typical, facts.forecast.levels[-1]
    finest = typical.finest_above_noise if typical else None
    if leaf.threshold:
        return (
            "a count of the mean size is published."
            if finest == leaf.level
            else "<b>most counts of the finest level are left out</b>, and all sums lack them."
        )
    if finest == leaf.level:
        return "<b>the mean count is at least twice the noise at every level</b>."
    if finest is None:
        return "<b>the mean count is less than twice the noise at every level</b> below the total: only large counts say something."
    named = facts.place(facts.forecast.levels[finest].axes)
    return (
        f"<b>the mean count is at least twice the noise down to level {finest}</b> ({named}). Below it, only large counts say something:"
        " most small ones are mostly noise."
    )


def _example_table(facts: PageFacts) -> str:
    """Return what counts of example sizes would be measured as, level by level, at the planned ε."""
    levels = facts.planned.levels
    if not any(level.within for level in levels):
        return ""
    totals = any(part.typical_count is not None for part in facts.parts)
    rows = []
    for part, worth in zip(facts.parts, levels, strict=True):
        mean = [format_rounded(part.typical_count) if part.typical_count is not None else "–"] if totals else []
        examples = [_example(count, part, worth) for count in _EXAMPLES]
        more = "–" if worth.more_than_noise is None or not worth.within else f"{worth.more_than_noise:,}"
        rows.append([named(facts, part), facts.place(part.axes), *mean, within(worth), *examples, more])
    heads = ["level", "counted by", *(["mean count"] if totals else []), "19 of 20 are within"]
    heads += [*(f"a count of {count:,}" for count in _EXAMPLES), "more than noise above"]
    caption = f"As planned, at ε = {rounded_up(facts.forecast.epsilon)}: noise in {facts.counted}, and what counts of some sizes are measured as"
    legend = (
        "<p>“A count of 100” is measured between the two numbers 19 of 20 times. “More than noise above”: of all possible counts that"
        " are truly zero, fewer than one is expected to be measured above this number.</p>"
    )
    return table(heads, rows, caption=f"<span>{caption}</span>", kind="levels") + legend


def _example(count: int, part: PlannedPart, worth: LevelWorth) -> str:
    if worth.within is None:
        return "–"
    if not worth.within:
        return f"{count:,}"
    if part.threshold and count + worth.within < part.threshold:
        return "left out"
    return f"{max(0, count - worth.within):,} to {count + worth.within:,}"


def _three_tables(facts: PageFacts) -> str:
    """Return the noise of every level at three ε, and what each ε would cost and how well it protects."""
    at = [f"{'planned: ' if worth.is_planned else ''}ε&nbsp;= {rounded_up(worth.epsilon)}" for worth in facts.worth]
    rows = [
        [
            named(facts, part),
            facts.place(part.axes),
            *(_marked(worth, within(of_level(worth, number))) for worth in facts.worth),
        ]
        for number, part in enumerate(facts.parts)
    ]
    caption = f"19 of 20 counts are measured within so many {facts.counted} of the truth"
    noise = table(["level", "counted by", *at], rows, caption=f"<span>{caption}</span>", kind="levels three")
    return noise + table(
        ["at", *at],
        _costs_and_protection(facts),
        caption="What each ε costs, and how well it protects",
    )


def _costs_and_protection(facts: PageFacts) -> list[list[str]]:
    cap, delta = facts.forecast.budget.cap.epsilon, facts.forecast.delta
    rows = [
        [f"ε spent, of {cap:g}", *(_marked(worth, _cost(worth)) for worth in facts.worth)],
        [
            "a reader guesses right",
            *(_marked(worth, format_right_guess(worth.epsilon, delta)) for worth in facts.worth),
        ],
    ]
    if facts.forecast.typical and not facts.forecast.unlisted:
        above = [_marked(worth, _down_to(facts, worth)) for worth in facts.worth]
        rows.append(["the mean count is at least twice the noise", *above])
    return rows


def _cost(worth: Worth) -> str:
    if not worth.levels:
        return "not possible"
    return rounded_up(worth.after) if worth.fits else f"{format_spent(worth.after)}: <b>refused</b>"


def _down_to(facts: PageFacts, worth: Worth) -> str:
    if not worth.levels:
        return "–"
    last = len(facts.forecast.levels) - 1
    if worth.finest_above is None:
        return "at no level"
    return "at every level" if worth.finest_above == last else f"down to level {worth.finest_above}"


def _marked(worth: Worth, text: str) -> str:
    return f'<span class="planned">{text}</span>' if worth.is_planned else text
