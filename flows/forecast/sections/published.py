"""The section that says which tables would be published, and in which files."""

from collections.abc import Sequence
from html import escape

from flows.forecast.sections.facts import PageFacts, bullets, named
from flows.forecast.values import PlannedPart
from flows.forecast.worth import LevelWorth
from storage.counts.columns import SIGNAL
from tasks.report.frame import table
from tasks.words.levels import in_short
from tasks.words.numbers import format_cells, format_percent


def published_section(facts: PageFacts) -> str:
    """Return which tables would be published, and in which files."""
    rows = [
        [
            named(facts, part),
            facts.place(part.axes),
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
    return f"{listed}{many}{unlisted}<h3>The files</h3>{bullets(_files(facts))}"


def _how(facts: PageFacts, part: PlannedPart, worth: LevelWorth | None) -> str:
    """Return how the counts of a level come about, in few words."""
    if part.same_as is not None:
        return f"same as level {part.same_as}"
    if worth and worth.is_exact:
        return "exact, not protected"
    if part.threshold:
        return f"with noise; counts below {part.threshold:,} are left out"
    if part.summed:
        return "from what is measured" if facts.plan.scheme.is_unbiased else "sums"
    return "measured with hardly any noise" if worth and worth.within == 0 else "measured with noise"


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
        files.append(
            "the finest level as synthetic records, one row per record, made from the published counts: no row is copied from a record of"
            " the table, but a row may be equal to one by chance"
        )
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


def _padded(levels: Sequence[LevelWorth], many: int) -> list[LevelWorth | None]:
    return [*levels, *[None] * (many - len(levels))]
