"""The tables of a report: what each file holds, how far off its counts can be, and the largest counts."""

from collections.abc import Mapping, Sequence
from html import escape

from storage.counts.columns import COUNT, column_name, flat_features
from tasks.atlas.names import STEP
from tasks.format.manifest import LevelEntry, Manifest
from tasks.report.facts import Facts, LevelFacts
from tasks.report.frame import table
from tasks.report.levels import above_noise_of, deviations_of, noise_rows_of, twice_the_noise
from tasks.report.readme.views import VIEW_HEADS, view_rows
from tasks.report.sections.largest import LargeCount
from tasks.words.levels import in_short, place
from tasks.words.numbers import (
    NOT_STATED,
    format_bound,
    format_cells,
    format_cost,
    format_percent,
    format_rounded,
    format_sigma,
)
from tasks.words.readers import Spec, axes_called

Checks = Mapping[int, tuple[int, int]]  # per level, how many checks passed, and how many there were

_MOST_COLUMNS = 6  # columns of codes that are all listed
_MOST_AXES = 6  # axes that have a column each in the table of the largest counts


def cells_called(manifest: Manifest) -> str:
    """Return the word for cells: pairs for trips."""
    return "pairs" if "origin" in manifest.roles.values() else "cells"


def counted_in(manifest: Manifest) -> str:
    """Return the word for what is counted: groups, where a count is a number of groups of one size."""
    return "groups" if manifest.counts_groups else "records"


def largest_counts(manifest: Manifest, facts: Facts) -> str:
    """Return the largest counts of the level that is best to use, with their intervals if there are any.

    Of trips, those within one area have a table of their own, which is folded.
    """
    level, of = (
        facts.largest_level,
        escape(place(axes_called(manifest.spec, manifest.levels[facts.largest_level].axes))),
    )
    is_of_flows = "origin" in manifest.roles.values() and len(facts.largest_axes) > 1
    parts = []
    if facts.largest:
        title = f"<h3>The largest {'flows' if is_of_flows else 'counts'} (level {level}: {of})</h3>"
        without = (
            f"<p>Flows within one area are left out: {facts.within_records:,} of {facts.total:,} {counted_in(manifest)}.</p>\n"
            if facts.within
            else ""
        )
        parts.append(
            f"{title}\n{without}{_caution_about_largest(manifest, facts)}{_largest(manifest, facts, facts.largest)}"
        )
    if facts.within:
        parts.append(
            f"<details><summary>The largest counts within one area (level {level})</summary>"
            f"{_largest(manifest, facts, facts.within)}</details>"
        )
    return "<div>" + "\n".join(parts) + "</div>" if parts else ""


def _largest(manifest: Manifest, facts: Facts, counts: Sequence[LargeCount]) -> str:
    """Return a table of large counts."""
    many = len(facts.largest_axes) > _MOST_AXES
    heads = [escape(in_short(facts.largest_axes))] if many else [escape(axis) for axis in facts.largest_axes]
    rows = []
    for large in counts:
        codes = _called(facts, large)
        ends = [f"{end:,}" for end in (large.low, large.high) if end is not None]
        rows.append([*([", ".join(codes)] if many else codes), f"<b>{large.count:,}</b>", *ends])
    if counts[0].low is None:
        return table([*heads, "count"], rows, kind="largest bare")
    at_once = ", all at once" if manifest.intervals.simultaneous else ""
    confidence = f"{format_percent(manifest.intervals.confidence)}{at_once}"
    heads += ["count", f"low ({confidence})", f"high ({confidence})"]
    return table(heads, rows, kind="largest")


def _called(facts: Facts, large: LargeCount) -> list[str]:
    """Return what the areas of a large count are called, as HTML: their names with their codes, or what identifies them."""
    names = facts.names
    return [
        f"{escape(name)} <small>{escape(STEP.join(codes))}</small>"
        if (name := names.name_of(axis, path))
        else escape(STEP.join(codes))
        for axis, path, codes in zip(facts.largest_axes, large.paths or large.codes, large.codes, strict=True)
    ]


def signal_sentence(manifest: Manifest) -> str:
    """Return where the rows that stand out are by themselves; empty where they have no tables of their own."""
    if not manifest.signal_tables:
        return ""
    finest = manifest.signal_tables[-1]
    name = f"signal/level_{finest.level}.{'csv' if manifest.csv else 'parquet'}"
    remainders = f"{finest.remainders:,} remainder{'' if finest.remainders == 1 else 's'}"
    return (
        f'<p>For few rows, read <a href="{name}"><code>{name}</code></a>: {finest.rows - finest.remainders:,} rows of level'
        f" {finest.level} that stand out from the noise, and {remainders}, which make them add up to the total.</p>"
    )


def view_table(manifest: Manifest) -> str:
    """Return the views of a release; empty if it has none."""
    if not manifest.views:
        return ""
    differs = manifest.warning_of_views
    what = "lists" if differs else "is the sum of the finest level's counts, and lists"
    about = (
        f"<p>Groupings beside the tree. Each {what} all its cells, those with a count of 0 too."
        f" With {format_percent(manifest.intervals.confidence)} probability, the true count of a cell that was fixed beforehand lies in its"
        " interval.</p>\n"
    ) + (f"<p>{escape(differs).replace('`', '')}</p>\n" if differs else "")
    rows = [[f"<code>views/{escape(row[0])}.parquet</code>", *map(escape, row[1:])] for row in view_rows(manifest)]
    return f"<h3>Views</h3>\n{about}{table([escape(head) for head in VIEW_HEADS], rows, kind='tables')}"


def _caution_about_largest(manifest: Manifest, facts: Facts) -> str:
    """Return what intervals do not promise for counts chosen by their size; empty if they hold at once, or there are none."""
    if manifest.intervals.simultaneous or facts.largest[0].low is None:
        return ""
    confidence, stated = (
        format_percent(manifest.intervals.confidence),
        manifest.levels[facts.largest_level].intervals,
    )
    if stated and stated.promise == "cells":
        return (
            f"<p>Each interval covers its true count with {confidence} probability if the cell is fixed beforehand. These rows are"
            " chosen because they are large, so fewer of theirs may.</p>\n"
        )
    return (
        f"<p>The intervals cover at least {confidence} of a level's rows on average. These rows are chosen because they are large, so fewer of"
        " theirs may cover the true counts.</p>\n"
    )


def file_table(manifest: Manifest, facts: Facts, checks: Checks) -> str:
    """Return what each file holds, with the line below which most counts are small beside their noise."""
    flat = flat_features(manifest.spec)
    rows, above = [], list[str]()
    for entry, level in zip(manifest.levels, facts.levels, strict=True):
        columns = _columns(manifest.levels[: entry.level + 1], list(entry.axes), flat)
        passed, of = checks.get(entry.level, (0, 0))
        rows.append(
            [
                str(entry.level),
                f"<code>{entry.path}</code>",
                _describe_columns(columns, above),
                f"{level.rows:,}",
                format_cells(level.possible_cells),
                _describe_areas(level),
                f"{passed} of {of}" if of else "none recorded",
            ]
        )
        above = columns
        rows += _rule(manifest, facts, entry)
    heads = ["level", "file", "columns of codes, before <code>count</code>", "rows"]
    return table(
        [*heads, f"possible {cells_called(manifest)}", "areas with a count", "checks passed"], rows, kind="tables"
    )


def noise_table(manifest: Manifest, facts: Facts) -> str:
    """Return what each level costs, how noisy it is and how far off it can be, with the same line.

    The table has no columns for bounds, intervals and biases that no level has.
    """
    interval = f" ({format_percent(manifest.intervals.confidence)})"
    has_intervals = any(level.half_width is not None for level in facts.levels)
    has_bias = any(entry.bias for entry in manifest.levels)
    of_epsilon = sum(bool(entry.epsilon) for entry in manifest.levels) > 1
    columns = {
        "level": True,
        "counts by": True,
        "ε" if of_epsilon else "ρ": True,
        "noise (sigma)": True,
        "sd of a count": any(entry.deviations for entry in manifest.levels),
        "error bound (95%)": any(entry.bound is not None for entry in manifest.levels),
        "as released": any(entry.bound_after is not None for entry in manifest.levels),
        f"interval{interval}, on average": has_intervals,
        "rows that stand out": True,
        "noise rows": any(entry.noise_rows for entry in manifest.levels),
        f"rows, records above {twice_the_noise(manifest)[0]}": any(entry.above_noise for entry in manifest.levels),
        "bias": has_bias,
        "mean count": not facts.is_unlisted,
        "largest count": True,
    }
    rows = []
    for entry in manifest.levels:
        rows.append(
            [
                cell
                for cell, is_shown in zip(
                    _noise_cells(entry, facts, manifest.spec, of_epsilon=of_epsilon), columns.values(), strict=True
                )
                if is_shown
            ]
        )
        rows += _rule(manifest, facts, entry)
    about_bias = (
        f"<p>Bias: released minus noisy counts, in {counted_in(manifest)}, averaged over the cells that have one. Counts that are adjusted to be whole"
        " numbers and not negative are a little off on average; the noisy counts themselves are not.</p>"
        if has_bias
        else ""
    )
    heads = [head for head, is_shown in columns.items() if is_shown]
    return f"<h3>What each level costs, and how far off its counts can be</h3>\n{table(heads, rows, kind='noise')}\n{about_bias}"


def _noise_cells(entry: LevelEntry, facts: Facts, spec: Spec, *, of_epsilon: bool) -> list[str]:
    level, mean = facts.levels[entry.level], facts.mean_count(entry.level)
    return [
        str(entry.level),
        escape(place(axes_called(spec, entry.axes))) or "everything",
        "summed"
        if entry.summed
        else format_cost(entry.rho, entry.epsilon, of_epsilon=of_epsilon, same_as=entry.same_as),
        format_sigma(entry.sigma, summed=entry.summed),
        deviations_of(entry),
        format_bound(entry.sigma, entry.bound, summed=entry.summed),
        format_bound(entry.sigma, entry.bound_after, summed=entry.summed),
        NOT_STATED if level.half_width is None else f"± {format_rounded(level.half_width)}",
        _standing_out(entry),
        noise_rows_of(entry),
        above_noise_of(entry),
        NOT_STATED if entry.bias is None else f"{entry.bias:+,.3g}".replace("-", "−"),
        "unknown" if mean is None else format_rounded(mean),
        f"{level.most:,}",
    ]


def _standing_out(entry: LevelEntry) -> str:
    """Return how many rows of a level stand out from the noise, in per cent; nothing where there is no row."""
    rows = entry.signal.rows if entry.signal else 0
    return f"{100 * rows / entry.nonzero:.3g}%" if entry.nonzero else NOT_STATED


def _rule(manifest: Manifest, facts: Facts, entry: LevelEntry) -> list[list[str]]:
    """Return the line below which most counts are small beside their noise, if it follows this level."""
    last = manifest.levels[-1]
    if not facts.is_noise_compared or last.threshold or entry.level != (facts.finest_above_noise or 0) or entry is last:
        return []
    return [["▼ Below this line, most counts are small beside their noise"]]


def _columns(levels: Sequence[LevelEntry], axes: Sequence[str], flat: frozenset[str]) -> list[str]:
    """Return the columns of codes of the last of these levels."""
    return [
        column_name(axis, level, flat)
        for axis in axes
        for level in dict.fromkeys(entry.axes[axis] for entry in levels)
        if level
    ]


def _describe_columns(columns: Sequence[str], above: Sequence[str]) -> str:
    if not columns:
        return f"none: one row with the <code>{COUNT}</code>"
    if len(columns) <= _MOST_COLUMNS:
        return ", ".join(f"<code>{escape(column)}</code>" for column in columns)
    new = ", ".join(f"<code>{escape(column)}</code>" for column in columns if column not in above)
    return f"the {len(above)} columns of the level above, and {new}"


def _describe_areas(level: LevelFacts) -> str:
    """Return how many areas have a released count: per axis, or for many axes in all."""
    if not level.areas:
        return "all"
    if len(level.areas) > 2:
        left, possible = (
            sum(many) for many in zip(*((areas.left, areas.possible or 0) for areas in level.areas), strict=True)
        )
        return f"{left:,} of {possible:,}" if possible else f"{left:,}"
    return "<br>".join(
        f"{escape(areas.axis)} {areas.left:,}" + (f" of {areas.possible:,}" if areas.possible is not None else "")
        for areas in level.areas
    )
