"""The sections of a plan's page: what is published, what it is worth, what ε means, what is protected, and what it costs."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from flows.forecast.values import Forecast, PlannedLevel
from flows.forecast.worth import LevelWorth, Worth
from flows.planning.plan import Plan
from storage.counts.columns import SIGNAL
from tasks.report.frame import table
from tasks.words.epsilon import epsilon_in_words, format_right_guess
from tasks.words.levels import in_short, place
from tasks.words.numbers import (
    format_cells,
    format_percent,
    format_probability,
    format_rounded,
    rounded_down,
    rounded_up,
)

_EXAMPLES = (10, 100, 1_000)  # records


@dataclass(frozen=True, slots=True)
class PageFacts:
    """What a page is made from.

    Attributes:
        plan: the plan.
        forecast: of it.
        worth: at three ε, the planned one in the middle.
        further: how many releases like this one would fit the cap after it.
        left: the ε of one more release that would still fit, before this one and after it, as the ledger says it.
    """

    plan: Plan
    forecast: Forecast
    worth: Sequence[Worth]
    further: int
    left: tuple[float, float]

    @property
    def planned(self) -> Worth:
        """What the release would be worth as it is planned."""
        return next(worth for worth in self.worth if worth.is_planned)

    @property
    def unit(self) -> str:
        """Who or what is protected, in words."""
        return self.plan.file.spec.privacy.unit

    @property
    def counted(self) -> str:
        """What a count is of, in a word."""
        return "groups" if self.plan.scheme.sizes else "records"

    @property
    def table(self) -> str:
        """The name of the confidential table or of its file, without its place."""
        return self.plan.source.table.name

    @property
    def parts(self) -> list[PlannedLevel]:
        """The levels, then the views that have no level of their own."""
        return [*self.forecast.levels, *self.forecast.views]


def published_section(facts: PageFacts) -> str:
    """Return which tables would be published, and in which files."""
    rows = [
        [
            _named(facts, part),
            escape(place(part.axes)) or "everything",
            format_cells(part.possible_cells),
            _how(facts, part, worth),
        ]
        for part, worth in zip(facts.parts, _padded(facts.planned.levels, len(facts.parts)), strict=True)
    ]
    heads = ["level", "counted by", "possible counts", "how"]
    listed = table(heads, rows, caption="The tables, from coarse to fine", kind="levels words")
    left_out = "" if facts.plan.scheme.is_unbiased else " Counts that end at zero are left out of the tables."
    many = (
        "<p>Possible counts are all combinations of the codes in the public codebooks, also those that nobody"
        f" has.{left_out}</p>"
    )
    unlisted = (
        f"<p>No codebook lists {escape(in_short(facts.forecast.unlisted))}, so how many counts are possible is unknown.</p>"
        if facts.forecast.unlisted
        else ""
    )
    return f"{listed}{many}{unlisted}<h3>The files</h3>{_list(_files(facts))}"


def _how(facts: PageFacts, part: PlannedLevel, worth: LevelWorth | None) -> str:
    """Return how the counts of a level come about, in few words."""
    if part.same_as is not None:
        return f"same as level {part.same_as}"
    if worth and worth.within == 0 and not part.sigma:
        return "exact, not protected"
    if part.threshold:
        return f"with noise; counts below {part.threshold:,} are left out"
    if part.summed:
        return "from the other levels" if facts.plan.scheme.is_unbiased else "sums"
    return "measured with noise"


def _files(facts: PageFacts) -> list[str]:
    """Return what a published folder would hold, in words."""
    terms = facts.plan.terms
    csv = {
        "every_level": "and as CSV",
        True: "and the finest level as CSV",
        False: "",
        None: "and the finest level as CSV if it is small",
    }
    files = [
        f"a table of counts per level, each with an interval of {format_percent(facts.forecast.confidence)} confidence: Parquet"
        f"{f' {csv[terms.csv]}' if csv[terms.csv] else ''}"
        if facts.plan.scheme.law.quantile
        else f"a table of counts per level: Parquet{f' {csv[terms.csv]}' if csv[terms.csv] else ''}"
    ]
    if terms.views:
        files.append(f"a table per grouping beside the levels: {escape(in_short([view.name for view in terms.views]))}")
    if facts.forecast.rows == SIGNAL:
        files.append("tables of the rows that stand out from the noise, by themselves")
    if terms.records:
        files.append("the finest level as synthetic records, one row per record; nobody's real record is among them")
    if terms.noisy_counts is not False:
        files.append(
            "the noisy counts as they were measured" + ("" if terms.noisy_counts else ", unless there are very many")
        )
    if formats := facts.plan.file.spec.release.more_formats:
        files.append(f"the counts in further formats: {in_short([*formats])}")
    if any(axis.labels for axis in facts.plan.source.axes):
        files.append("<code>names/</code>: what areas are called, from the public labels")
    if any(axis.boundaries for axis in facts.plan.source.axes):
        files.append("<code>boundaries/</code>: the shapes of areas, from the public boundaries")
    files.append(
        "<code>explorer.html</code>: a page on which anybody looks numbers up, made from the published files alone"
    )
    files.append("a report and a README for readers, a manifest with the guarantee and the spec, and checksums")
    return files


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
            "<p>Every level is measured, and all measurements together give each count, so that counts add up. They are not adjusted"
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


def _in_words(facts: PageFacts) -> str:
    forecast, typical = facts.forecast, facts.forecast.typical
    leaf, worth = forecast.levels[-1], _of_level(facts.planned, len(forecast.levels) - 1)
    told = []
    if leaf.threshold:
        told.append(
            f"At the finest level, only counts of at least <b>{leaf.threshold:,}</b> are published; sums lack the others."
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
                "The spec gives no guess of the number of records (<code>expected_total</code>), so this page cannot say down to which"
                " level most counts stand above the noise."
            )
    else:
        whose = "a guess from the spec" if typical.from_ == "expected_total" else f"from {escape(typical.from_)}"
        told.append(f"With {typical.total:,} records ({whose}), {_stands(facts)}")
        if typical.records_above:
            rarely, often = (format_percent(round(share, 2)) for share in typical.records_above[-1])
            told.append(
                f"Real tables are uneven: of the finest level's records, typically {rarely} to {often} are in counts of more than twice"
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
    named = escape(place(facts.forecast.levels[finest].axes))
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
        rows.append(
            [_named(facts, part), escape(place(part.axes)) or "everything", *mean, _within(worth), *examples, more]
        )
    heads = ["level", "counted by", *(["mean count"] if totals else []), "19 of 20 are within"]
    heads += [*(f"a count of {count:,}" for count in _EXAMPLES), "more than noise above"]
    caption = f"As planned, at ε = {rounded_up(facts.forecast.epsilon, 4)}: noise in {facts.counted}, and what counts of some sizes are measured as"
    legend = (
        "<p>“A count of 100” is measured between the two numbers 19 of 20 times. “More than noise above”: of all possible counts that"
        " are truly zero, fewer than one is expected to be measured above this number.</p>"
    )
    return table(heads, rows, caption=caption, kind="levels") + legend


def _example(count: int, part: PlannedLevel, worth: LevelWorth) -> str:
    if worth.within is None:
        return "–"
    if not worth.within:
        return f"{count:,}"
    if part.threshold and count + worth.within < part.threshold:
        return "left out"
    return f"{max(0, count - worth.within):,} to {count + worth.within:,}"


def _three_tables(facts: PageFacts) -> str:
    """Return the noise of every level at three ε, and what each ε would cost and how well it protects."""
    at = [f"{'planned: ' if worth.is_planned else ''}ε = {rounded_up(worth.epsilon, 4)}" for worth in facts.worth]
    rows = [
        [
            _named(facts, part),
            escape(place(part.axes)) or "everything",
            *(_marked(worth, _within(_of_level(worth, number))) for worth in facts.worth),
        ]
        for number, part in enumerate(facts.parts)
    ]
    caption = f"19 of 20 counts are measured within so many {facts.counted} of the truth"
    noise = table(["level", "counted by", *at], rows, caption=caption, kind="levels three")
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
    return rounded_up(worth.after, 4) if worth.fits else f"{rounded_up(worth.after, 4)}: <b>refused</b>"


def _down_to(facts: PageFacts, worth: Worth) -> str:
    if not worth.levels:
        return "–"
    last = len(facts.forecast.levels) - 1
    if worth.finest_above is None:
        return "at no level"
    return "at every level" if worth.finest_above == last else f"down to level {worth.finest_above}"


def _marked(worth: Worth, text: str) -> str:
    return f'<span class="planned">{text}</span>' if worth.is_planned else text


def epsilon_section(facts: PageFacts) -> str:
    """Return what ε and δ mean to one unit, in words."""
    forecast = facts.forecast
    told = epsilon_in_words(forecast.epsilon, forecast.delta, facts.unit, forecast.neighbours)
    name = f"ε = {rounded_up(forecast.epsilon, 4)}, δ = {forecast.delta:g} ({format_probability(forecast.delta)})"
    where = (
        "<p>All of this holds only between tables that agree on every count that is published exactly.</p>"
        if facts.plan.exact_by_choice
        else ""
    )
    at_cap = format_right_guess(forecast.budget.cap.epsilon, forecast.budget.cap.delta)
    return (
        f"<p>ε says how much a release may reveal about {escape(facts.unit)}; smaller is stronger. This release has <b>{name}</b>.</p>"
        f"<p>{escape(' '.join(told))}</p>{where}"
        f"<p>All releases about these people together may reveal more: their cap is ε = {forecast.budget.cap.epsilon:g} at"
        f" δ = {forecast.budget.cap.delta:g}. Once it is spent, a reader of all of them guesses right at most {at_cap}.</p>"
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
            f"<b>A further promise</b>: the records of a unit lie in different cells of level {escape(keys.distinct)}."
        )
    exact = [escape(what) for what in forecast.unprotected]
    not_protected = [
        *exact,
        f"What would be known without the records of any one {_bare(unit)}: facts about everybody together.",
        "What the codebooks and the spec say: they are public.",
        "The confidential table itself, and the true counts that Trellis holds until the release is published. They stay in the office.",
    ]
    return f"<h3>Protected</h3>{_list(protected)}<h3>Not protected</h3>{_list(not_protected)}"


def _bare(unit: str) -> str:
    return unit.removeprefix("one ").removeprefix("a ").removeprefix("an ")


def budget_section(facts: PageFacts) -> str:
    """Return the cap, what is spent before and after, and what that leaves."""
    forecast = facts.forecast
    cap, approval = forecast.budget.cap, forecast.approval.budget
    after, planned = facts.planned.after, facts.planned
    left_before, left = map(rounded_down, facts.left)
    earlier = escape(in_short([*approval.releases])) if approval.releases else "no release yet"
    rows = [
        ["cap", f"{cap.epsilon:g}", f"of all releases about these people, at δ = {cap.delta:g}"],
        ["spent before", rounded_up(forecast.budget.before.epsilon, 4), earlier],
        ["this release alone", rounded_up(forecast.epsilon, 4), f"at δ = {forecast.delta:g}"],
        [
            "spent with it",
            rounded_up(after, 4),
            "all of them together" if planned.fits else "more than the cap: it is refused",
        ],
        ["left before", left_before, "what one more release may cost"],
        ["left with it", left, _further(facts)],
    ]
    costs = table(["budget", "ε", "about"], rows, caption="The budget of these people", kind="money")
    why = (
        "<p>What releases cost together is computed anew at the δ of the cap, so their ε do not simply add up. Once anything of a release"
        " is measured, what that cost is never given back. What is left is the ε of one more release that would still fit, as"
        " <code>trellis ledger</code> says it too; it is not the cap less what is spent.</p>"
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
        f" ε = {rounded_up(budget.after.epsilon, 4)} of {budget.cap.epsilon:g} is spent.{over} The table above is of one release.</p>"
    )


def _within(worth: LevelWorth | None) -> str:
    if worth is None or worth.within is None:
        return "–"
    return f"± {worth.within:,}" if worth.within else "exact"


def _of_level(worth: Worth, number: int) -> LevelWorth | None:
    return worth.levels[number] if worth.levels else None


def _padded(levels: Sequence[LevelWorth], many: int) -> list[LevelWorth | None]:
    return [*levels, *[None] * (many - len(levels))]


def _named(facts: PageFacts, part: PlannedLevel) -> str:
    """Return the number of a level, with the name of the view that it is; of a view without a level its name."""
    named = f"view {escape(part.view)}" if part.view else ""
    if part.level >= len(facts.forecast.levels):
        return named
    return f"{part.level} ({named})" if named else str(part.level)


def _list(items: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"
