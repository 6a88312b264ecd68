"""The README of a published folder: what a statistician passes on with the tables."""

from fractions import Fraction
from textwrap import fill

from storage.counts.columns import COUNT, SIGNAL, SIZE
from storage.releases.terms import ADJUSTED, COUNTS_POSITIVE, FIXED_TOTAL, GRID
from tasks.format.manifest import LevelEntry, Manifest, Privacy, ViewEntry
from tasks.laws.named import LAWS
from tasks.report.levels import NOTHING, above_noise_of, deviations_of, noise_rows_of
from tasks.tree.ordered import ordered_axes
from tasks.words.epsilon import format_right_guess
from tasks.words.levels import level_columns
from tasks.words.numbers import format_bound, format_percent, format_probability, format_sigma, rounded_up
from tasks.words.readers import about, title_of

_CSV: dict[bool | str, str] = {
    True: "- `counts.csv`: the finest level again, as CSV. Read the codes as text: leading zeros matter.\n",
    "every_level": "- `counts/level_<k>.csv`: the same tables as CSV. Read the codes as text: leading zeros matter.\n",
    False: "",
}
_PARTS = "- `counts/level_<k>/part-0000.parquet` and so on: a large level, in parts that follow one another in the order of the codes.\n"
_METADATA = (
    "- `metadata.json`: a description of the columns of the CSV files, for programs (CSVW,"
    " https://www.w3.org/ns/csvw).\n"
)
_NOISY_COUNTS = (
    "- `noisy_counts/level_<k>.parquet`: the measurements, one row per measured cell: the count with unbiased noise, a whole\n"
    "  number that may be below zero, and the variance of the noise. Use them for your own estimates. Areas have the numbers\n"
    "  of `noisy_counts/codebook.parquet`.\n"
)
_RECORDS = {
    "csv": "- `records.csv`: the finest level again, with one row for each record that it counts. No row belongs to anyone.\n",
    "parquet": "- `records.parquet`: the finest level again, with one row for each record that it counts. No row belongs to"
    " anyone.\n",
    "left out": "- The spec asks for synthetic records. They are left out, because the finest level counts too many records to"
    " write a\n  row for each.\n",
    None: "",
}

_ALWAYS = ("rows", "noise (sigma)")  # columns that every table of levels has


def readme(manifest: Manifest, how_counted: str = ADJUSTED, formulas: str = "") -> str:
    """Return the text of README.md.

    Args:
        manifest: the release's manifest.
        how_counted: how its mechanism counts, in words that follow "the noise in one measurement,".
        formulas: a warning about codes, from `formulas_in`; empty if there is nothing to warn of.
    """
    unprotected = "\n".join(f"- {statement}" for statement in manifest.unprotected) or "- nothing"
    columns = level_columns([level.axes for level in manifest.levels])
    places = zip(*columns.values(), strict=True)
    of_levels = facts_of_levels(manifest)
    heads = list(of_levels[0])
    levels = "\n".join(
        f"| {level.level} | {' | '.join(place)} | {' | '.join(row.values())} |"
        for level, place, row in zip(manifest.levels, places, of_levels, strict=True)
    )
    metadata = _METADATA if manifest.csv or manifest.records == "csv" else ""
    superseded = f"\n\n{text}" if (text := revision(manifest)) else ""
    stated = f"{fill(text, 120)}\n\n" if (text := about(manifest.spec)) else ""
    of_trips = "origin" in columns
    finest = "areas" if of_trips else "cells"
    return f"""# {title_of(manifest.spec, manifest.id)}

`{manifest.id}`

{stated}Counts with differential privacy, on {len(manifest.levels)} levels from the total to the finest {finest}{_and_views(manifest)}. Trellis
{manifest.versions["trellis"]} made them with the mechanism `{manifest.mechanism}`.{superseded}

## What is protected

{protection(manifest)}

Not protected, because it is published exactly:

{unprotected}

## How to read the counts

{reading(manifest, how_counted, formulas)}

| level | {" | ".join(columns)} | {" | ".join(heads)} |
|---|{"---|" * (len(columns) + len(heads))}
{levels}
{_views(manifest)}{f"{chr(10)}{text}{chr(10)}" if (text := manifest.warning_of_margins) else ""}
## Files

- `counts/level_<k>.parquet`: one table per level. Codes are text, from coarse to fine; the columns after them are `{"`, `".join((COUNT, *manifest.bounds, SIGNAL))}`.
{_PARTS if any(entry.parts for entry in manifest.levels) else ""}{_CSV[manifest.csv]}{_files_of_signal(manifest)}{_files_of_views(manifest)}{_files_of_areas(manifest)}{_files_of_formats(manifest)}{_NOISY_COUNTS if manifest.noisy_counts else ""}{_file_of_records(manifest)}{metadata}- `report.html`: the same information with pictures, for a browser; it needs no network.
- `explorer.html`: look up areas, pairs and attributes by name, with their intervals and how to quote them; for a browser, without a network.
- `manifest.json`: the spec, the guarantee, the noise of every level, the hashes of codebooks and of sealed measurements.
- `SHA256SUMS`: the hash of each file. `sha256sum --check SHA256SUMS` compares them; `trellis verify` also checks the content.
"""


def _file_of_records(manifest: Manifest) -> str:
    """Return the line about the synthetic records, and that their sums differ from views where they do."""
    line = _RECORDS[manifest.records]
    if not manifest.differences or manifest.records in {None, "left out"}:
        return line
    named = ", ".join(f"`{name}`" for name in manifest.differences)
    return f"{line.rstrip()}\n  Its sums differ from the tables of {named}, as stated above: take these totals from the views.\n"


def _and_views(manifest: Manifest) -> str:
    many = len(manifest.views)
    return f", and in {many} view{'s' if many > 1 else ''}" if many else ""


def revision(manifest: Manifest) -> str:
    """Return in Markdown which release this one replaces; empty if it replaces none."""
    if manifest.supersedes is None:
        return ""
    return (
        f"**This release supersedes `{manifest.supersedes}`:** use these counts instead of the earlier ones. They are a new"
        " measurement with\nnoise of its own, so a count that differs does not have to mean that anything has changed."
    )


def protection(manifest: Manifest) -> str:
    """Return what the release protects, what that means and what it costs: three paragraphs of Markdown."""
    privacy = manifest.privacy
    return f"{_records(privacy)}\n{_promise(manifest)}\n\n{privacy.statement}\n\n{_cost(manifest)}"


def reading(manifest: Manifest, how_counted: str, formulas: str = "") -> str:
    """Return how to read the counts: a list in Markdown."""
    of_trips = "origin" in level_columns([level.axes for level in manifest.levels])
    refinements = (
        "" if of_trips else "- Each level refines the level above it: level k counts by the first k refinements.\n"
    )
    return f"""{_counts(manifest)}
- The counts of every level add up to those of the level above it, and to the total.{_total(manifest)}
{_noise(manifest, how_counted)}{_below(_measured(manifest))}
{_rounding(manifest)}{_intervals(manifest)}{refinements}{_prefer(manifest, of_trips=of_trips)}{_below(formulas)}"""


def _measured(manifest: Manifest) -> str:
    """Return which cells were measured where that is not decided by what survives alone; empty elsewhere."""
    if not manifest.complete:
        return ""
    finest = len(manifest.levels) - 1
    if manifest.complete == finest:
        return "- Every cell of every level was measured, also where nothing was found above it."
    return (
        f"- Every cell of the levels 0 to {manifest.complete} was measured, also where nothing was found above it. At level {finest}, only\n"
        f"  cells below a cell of level {manifest.complete} that was kept were measured; of each family the largest noisy count is."
    )


def _below(line: str) -> str:
    return f"\n{line}" if line else ""


def _records(privacy: Privacy) -> str:
    """Return how many records a unit has, and who ensures it."""
    many = privacy.max_records_per_unit
    bound = "exactly" if privacy.exact_records_per_unit else "at most"
    records = f"{bound} {many} record{'' if many == 1 else 's'}"
    distinct = f", in distinct cells of the level {privacy.distinct}" if privacy.distinct else ""
    who = (
        "Trellis left out all records beyond that" if privacy.bounded_by == "ingest" else "the data owner promises this"
    )
    return f"The privacy unit is {privacy.unit}. Each unit has {records} in the table{distinct}; {who}."


def _cost(manifest: Manifest) -> str:
    """Return what the noise costs, and how that is computed."""
    privacy, finest = manifest.privacy, manifest.finest_drawn
    if finest.epsilon and not finest.threshold:
        epsilon = rounded_up(float(sum(Fraction(entry.epsilon) for entry in manifest.parts)))
        levels, views = (sum(bool(entry.epsilon) for entry in of) for of in (manifest.levels, manifest.own_views))
        also = f" and {views} view{'s' if views > 1 else ''}" if views else ""
        each = "" if levels + views == 1 else f", shared among {levels} level{'s' if levels > 1 else ''}{also}"
        return f"The {LAWS[finest.mechanism].called} costs ε = {epsilon} in all{each}, and no δ.\nThis is within ε = {rounded_up(privacy.epsilon)} and {_delta(privacy)}.{_drawn(privacy)}"
    if finest.threshold:
        return (
            f"Noise of scale {finest.scale:.6g} and the threshold {finest.threshold:,} cost ε = {rounded_up(finest.epsilon)}"
            f" and δ = {finest.delta:.3g}.\nThis is within ε = {rounded_up(privacy.epsilon)} and {_delta(privacy)}."
        )
    return (
        f"The noise costs ρ = {rounded_up(privacy.rho)} (zero-concentrated differential privacy). By the accountant"
        f" {privacy.accountant}, this\nnoise gives ε = {rounded_up(privacy.epsilon)} and {_delta(privacy)}.{_drawn(privacy)}"
    )


def _delta(privacy: Privacy) -> str:
    return f"δ = {privacy.delta:g} ({format_probability(privacy.delta)})"


def _counts(manifest: Manifest) -> str:
    """Return what a count can be, and what a missing row means."""
    zero = (
        "A missing row stands for a released count of zero;\n  its true count may be small but not zero. A row that is present"
        " may be noise alone."
    )
    if COUNTS_POSITIVE in manifest.waived:
        return f"- Every count is a whole number, and may be below zero. {zero}"
    if manifest.levels[-1].threshold:
        return (
            "- Every count is a whole number above zero. A row that is present has records. A missing row has none, or too\n"
            f"  few for the threshold.{_codes(manifest)}"
        )
    if manifest.views:
        return f"- Every count is a whole number, above zero in the tables of levels; those of views list zeros too.\n  In a level, {zero[0].lower()}{zero[1:]}"
    if manifest.statistic:
        return f"- A count is the number of groups of one size in a region: a whole number above zero. {zero}\n{_sizes(manifest)}"
    return f"- Every count is a whole number above zero. {zero}"


_MEASURED_OF_SIZES = {
    "tails": "how many groups of the region have at least that size",
    "sizes": "how many groups of the region have that size",
    "chain": "how many groups of the level are larger, or have that size and are in this region or a later one",
}


def _sizes(manifest: Manifest) -> str:
    """Return what a size is, and what was measured of it."""
    [*_, largest] = ordered_axes(manifest.spec)[SIZE].codes
    of_list = (
        "\n- Size 0 stands for the groups without a record. They are what is left of the public list of groups: the sizes of a region,\n"
        "  0 too, add up to its groups on the list, which are published exactly. Their number in a region is not protected."
        if manifest.has_groups
        else "\n- The number of groups is protected too: a group that comes or goes with its only record does not show."
    )
    return (
        f"- Size {largest} stands for {largest} records or more. What was measured of each size is\n"
        f"  {_MEASURED_OF_SIZES[manifest.statistic]}.{of_list}"
    )


def _codes(manifest: Manifest) -> str:
    """Return where codes come from that no codebook lists."""
    if not manifest.unlisted:
        return ""
    return (
        f"\n- No codebook lists the codes of {', '.join(manifest.unlisted)}: they come from the records. A code appears only if"
        " one of its\n  finest counts reached the threshold. There may be other codes."
    )


def _total(manifest: Manifest) -> str:
    """Return what the total is where it is a sum, although the number of records is public."""
    if FIXED_TOTAL not in manifest.waived:
        return ""
    return " The total is the sum of\n  the counts of the finest level, not the number of records."


def _noise(manifest: Manifest, how_counted: str) -> str:
    """Return how far counts can be from the true counts."""
    finest = manifest.levels[-1]
    if finest.threshold:
        return (
            "- Counts are noisy, and leaves (cells of the finest level) that did not reach the threshold are missing from every\n"
            "  sum, so no error bound is stated. `sigma` is the standard deviation of the noise of one leaf. Sums have no\n"
            "  stated sigma, because leaves are missing from them as well."
        )
    after = (
        " With 95% probability, no count\n  at any level is further from its true count than its level's bound as released, which is computed from the noisy counts."
        if finest.bound_after is not None
        else ""
    )
    if finest.bound is None:
        known = "known before the noise is drawn" if after else "stated"
        measured = f"- Counts are noisy; no error bound is {known}.{after} `sigma` is the standard deviation of the noise in one measurement"
        if any(level.summed for level in manifest.parts) and manifest.is_settled_together:
            measured += "\n  or, at a level marked as a sum, in the widest sum of the measurements from which its intervals follow"
        return f"{measured},\n  {how_counted}."
    bound = (
        "- Counts are noisy. With 95% probability, *every* count at a level is within the level's error bound of its true\n"
        "  count (one level at a time)"
    )
    if manifest.covariance:
        return (
            f"{bound}. `sigma` is the standard deviation of the noise in one measurement,\n  or, at a level that is not measured, of its"
            ' counts. A released count is settled from all measurements; "sd of a count" is the\n  standard deviation of its error'
            " (`deviations` in the manifest)."
        )
    if manifest.levels[0].summed:
        return f"{bound}. `sigma` is the standard deviation of the noise in the level's widest cell."
    return f"{bound}; most counts are far closer.{after} `sigma` is the standard deviation of the noise in one measurement."


def _rounding(manifest: Manifest) -> str:
    """Return which counts rounding has moved by one record or more; empty where it has moved none so far."""
    if manifest.rounding is None or manifest.rounding.exact:
        return ""
    moved = ", ".join(f"`{name}` by {of:.3g}" for name, of in manifest.rounding.deviation.items() if of >= 1)
    return (
        "- Groupings that cross cannot all keep their sums when leaves become whole counts. Rounding has moved counts of these by\n"
        f"  one record or more, at most: {moved}.\n"
    )


def _intervals(manifest: Manifest) -> str:
    """Return what `low` and `high` promise, and what they do not promise."""
    confidence = format_percent(manifest.intervals.confidence)
    none = " Sums have no interval,\n  because leaves are missing from them." if manifest.levels[-1].threshold else ""
    rounded = (
        "\n  The ends are multiples of sigma, rounded up, because the noisy counts were not kept. Many noisy counts can still be\n"
        "  computed from what is published, and the guarantee does not depend on hiding them."
        if manifest.intervals.rounded
        else ""
    )
    at_once = (
        f"\n- With {confidence} probability, the true counts of all cells at all levels lie between `simultaneous_low` and\n"
        "  `simultaneous_high` at once. Use these columns for cells that you choose for their counts."
        if manifest.intervals.simultaneous
        else ""
    )
    missing = "leaf" if manifest.levels[-1].threshold else "row"
    has_all = (
        not manifest.statistic or manifest.noisy_counts
    )  # otherwise it follows from noisy counts that are not there
    also = f"\n  A missing {missing} has an interval too: the explorer and `trellis query` show it." if has_all else ""
    alone = (
        ""
        if manifest.noisy_counts or manifest.levels[-1].threshold
        else "\n  The noisy counts are not published, so `trellis verify` cannot compute these intervals, `signal`, the shares of noise and the\n"
        "  bounds as released again. What they promise is the same."
    )
    return (
        f"{_promise_of_rows(manifest, confidence)}{none}{rounded}{alone}{also}{at_once}\n"
        f"{_signal(manifest)}{_signal_tables(manifest)}{_shares(manifest)}"
    )


def _promise_of_rows(manifest: Manifest, confidence: str) -> str:
    """Return what `low` and `high` promise, in two sentences or three, without the end of the line."""
    question = (
        f"  A question that you fix before you see the counts has an interval of its own, in the explorer and from\n"
        f"  `trellis query`: it covers the true count with a probability of at least {confidence}, over all noise."
    )
    if manifest.levels[-1].threshold:
        return (
            f"- With a probability of at least {confidence}, over all noise, the true count of a cell that you fix beforehand lies\n"
            "  between `low` and `high`. For the rows of a table together nothing is promised, because the number of measured\n"
            "  cells is secret."
        )
    if manifest.covariance == GRID:
        return (
            f"- With a probability of at least {confidence}, over all noise, the true count of a cell that you fix beforehand lies\n"
            "  between `low` and `high`. For the rows of a table together nothing is promised, because errors of cells that\n"
            "  differ on both axes go the same way. `trellis query` gives such an interval for any rectangle too."
        )
    outside = format_percent(1 - manifest.intervals.confidence)
    return (
        f"- Of the rows of a level, on average at most {outside} have a true count that is not between `low` and `high`, although\n"
        "  many cells have a row only because their noise was high. This holds for a level's rows together, not for a part of\n"
        f"  them that you pick.\n{question}"
    )


def _signal(manifest: Manifest) -> str:
    """Return what the column `signal` says."""
    if manifest.levels[-1].threshold:
        return "- `signal` is true in every row: only cells with records have rows.\n"
    rate = format_percent(manifest.intervals.signal_rate)
    return (
        f"- `signal` is true for rows that stand out from the noise. Of a level's rows that do, on average at most {rate} have a\n"
        "  true count of 0. A row that does not stand out may well have records.\n"
    )


def _signal_tables(manifest: Manifest) -> str:
    """Return how to read the tables of the rows that stand out; empty without them."""
    if not manifest.signal_tables:
        return ""
    if any(of.half_width is not None for of in manifest.signal_tables):
        outside = format_percent(1 - manifest.intervals.confidence)
        intervals = (
            f"Of the rows of a table in `signal/` that are no remainders, on average at most {outside} have a true count that is not\n"
            "  between `low` and `high`. These intervals are wider than in `counts/`, where the promise is for all rows of a level and\n"
            "  does not hold for those that stand out alone."
        )
    else:
        intervals = (
            "`low` and `high` are empty in `signal/`: in `counts/` the promise is for all rows of a level and does not hold for\n"
            "  those that stand out alone."
        )
    at_once = (
        "\n  `simultaneous_low` and `simultaneous_high` hold for remainders too."
        if manifest.intervals.simultaneous
        else ""
    )
    return (
        "- For few rows, read `signal/`. A table there has the rows of its level with `signal`, and remainders, where `remainder` is\n"
        "  true. A remainder is what the other rows leave of a count above them. It has the codes of that count, and none if that is\n"
        "  the total; its other codes are empty. It stands for all cells inside that have no row of their own there. Their counts\n"
        "  need not be 0, and may be noise alone.\n"
        "- The rows of a table in `signal/` add up to the total. Each of them is split up in the table of the next level, into the\n"
        "  rows inside it that stand out and one remainder. A remainder of 0 has no row.\n"
        f"- {intervals} A remainder has no such interval,\n  because the noise decides which cells it adds up.{at_once}\n"
    )


def _shares(manifest: Manifest) -> str:
    """Return what the shares of the levels say; empty where none are stated."""
    stated = [level.noise_rows for level in manifest.levels if level.noise_rows]
    if not stated:
        return ""
    above = "Above 2 sigma: the estimated share of rows with a true count above twice the noise, and of the records in them.\n"
    if {of.estimate for of in stated if of.at_most} == {None}:
        return (
            "- Noise rows are rows whose true count is 0. With 95% probability their share is no larger than the figure. It is not\n"
            f"  estimated, because rows were not chosen by their own measurement alone.\n  {above}"
        )
    unknown = (
        "  Where one figure stands, rows were not chosen by their own measurement alone, and no share is estimated.\n"
    )
    return (
        "- Noise rows are rows whose true count is 0. Their share is estimated; with 95% probability it is no larger than the\n"
        "  second figure. The two can be far apart, because where the noise is large nothing tells a true count of 1 from one\n"
        f"  of 0. {above}"
    ) + unknown * any(of.estimate is None for of in stated)


def _prefer(manifest: Manifest, *, of_trips: bool) -> str:
    """Return which level to use, and what happens to the noise when counts are added up."""
    if manifest.is_settled_together:
        return (
            "- All levels and views are sums of the finest level, so it does not matter for a count where you read it. Its interval\n"
            "  does depend on it: read the level or view that answers your question with the least noise. `trellis query` chooses it."
        )
    if manifest.covariance:
        return (
            "- All levels are sums of the finest, so it does not matter where you read a count. Adjacent cells of an ordered axis\n"
            "  add up to little more noise than one of them has: `trellis query` gives the exact standard deviation of a range."
        )
    if manifest.statistic:
        return (
            "- All levels are sums of the finest, so it does not matter where you read a count. Numbers of groups of at least some size\n"
            "  bear less noise than those of one size, and `trellis query FOLDER --size 5..` answers for them."
        )
    if manifest.levels[0].summed:
        return (
            "- Use any level that answers your question: a coarser level is the sum of the finest, and no closer to the truth than\n"
            "  that sum. Every sum of counts carries the noise of each of its leaves."
        )
    if manifest.warning_of_views:
        return (
            "- Read the totals of one axis in their views, and anything else at the coarsest level that answers your question.\n"
            "  `trellis query` chooses between them. A sum of counts carries the noise of each of them."
        )
    apart, one = (" of counts that have no area in common", "area") if of_trips else ("", "cell")
    return (
        f"- Use the coarsest level that answers your question. A sum{apart} carries the noise of each\n"
        f"  of them; only the counts of all children of one {one} add up to its own, less noisy count."
    )


def _views(manifest: Manifest) -> str:
    """Return the views as a table in Markdown; empty if there is none."""
    if not manifest.views:
        return ""
    confidence = format_percent(manifest.intervals.confidence)
    rows = "\n".join(f"| {' | '.join(row)} |" for row in view_rows(manifest))
    return f"""
Views are groupings beside the tree. Each lists all its cells, those with a count of 0 too. With {confidence} probability, the true count of
a cell that was fixed beforehand lies between `low` and `high`.

| {" | ".join(VIEW_HEADS)} |
|{"---|" * len(VIEW_HEADS)}
{rows}
{_below(_wrapped(manifest.warning_of_views))}"""


VIEW_HEADS = ("view", "counts by", "cells", "cost", "noise (sigma)", "interval")


def view_rows(manifest: Manifest) -> list[list[str]]:
    """Return a row per view: its name, what it counts by, its cells, its cost, its noise and its interval."""
    return [
        [
            view.name,
            ", ".join(f"{level} of {axis}" if level != axis else axis for axis, level in view.axes.items() if level)
            or "everything",
            f"{view.cells:,}",
            _cost_of_view(view),
            "exact" if not view.sigma else format_sigma(view.sigma, summed=view.summed),
            "exact" if not view.sigma else "differs" if view.half_width is None else f"± {view.half_width:,}",
        ]
        for view in manifest.views
    ]


def _wrapped(paragraph: str) -> str:
    return f"{fill(paragraph, 118, break_on_hyphens=False)}\n" if paragraph else ""


def _cost_of_view(view: ViewEntry) -> str:
    """Return what a view costs, or with which level it shares its cells and its cost."""
    if view.same_as is not None or view.summed:
        return f"as level {view.source if view.same_as is None else view.same_as}"
    return f"ε = {view.epsilon:.4g}" if view.epsilon else f"ρ = {view.rho:.4g}"


def _files_of_signal(manifest: Manifest) -> str:
    """Return the line about the tables of the rows that stand out; empty without them."""
    if not manifest.signal_tables:
        return ""
    finest, also = manifest.signal_tables[-1], "; the same as CSV beside it" if manifest.csv else ""
    return (
        "- `signal/level_<k>.parquet`: the rows of each level that stand out, and remainder rows, so that they add up: "
        f"{finest.rows:,} rows\n  at the finest level{also}.\n"
    )


_FORMATS = {
    "xlsx": "- `counts.xlsx`: a workbook for spreadsheets, with a sheet for each table. Its first sheet says how to read the others.\n",
    "omx": "- `omx/level_<k>.omx`: matrices for transport models (Open Matrix), of each level with the same areas at both ends: rows are\n"
    "  origins, columns destinations. A missing row has the count 0, and no `low` and `high`. The mapping `zone_code` has the codes.\n",
    "geoparquet": "- `geo/level_<k>.parquet`: the tables of levels with the shapes of areas (GeoParquet), for maps. With two axes, a row is a\n"
    "  line from a point in one area to a point in the other.\n",
    "sdmx": "- `sdmx/level_<k>.csv`: the tables of levels as SDMX-CSV 2.0. `sdmx/structure.xml` has their structure, as SDMX-ML 3.0.\n",
}


def _files_of_formats(manifest: Manifest) -> str:
    """Return the lines about the files of more kinds, and the tables that are too large for one; empty if there are none."""
    lines = ""
    for name in manifest.formats:
        lines += _FORMATS[name]
        if left_out := manifest.left_out.get(name):
            tables = ", ".join(f"`{path}`" for path in left_out)
            lines += f"  Tables that are too large for it are left out: {tables}.\n"
    return lines


def _files_of_areas(manifest: Manifest) -> str:
    """Return the lines about the names and the shapes of areas; empty if there are none."""
    lines = ""
    if manifest.names:
        lines += (
            "- `names/<column of codes>.parquet`: what areas are called; CSV files have the names beside the codes.\n"
        )
    if manifest.boundaries:
        lines += "- `boundaries/<column of codes>.parquet`: the shapes of areas, as GeoParquet in degrees (WGS 84).\n"
    return lines


def _files_of_views(manifest: Manifest) -> str:
    """Return the lines about the files of views and of derived columns; empty if there are none."""
    if not manifest.views:
        return ""
    lines = "- `views/<name>.parquet`: one table per view: its codes, `count`, `low` and `high`" + (
        "; the same as CSV beside it.\n" if manifest.csv else ".\n"
    )
    if manifest.derived:
        names = ", ".join(f"`{name}`" for name in manifest.derived)
        lines += f"- `derived/<name>.parquet`: what {names} is for every combination of codes on which it depends.\n"
    return lines


def _drawn(privacy: Privacy) -> str:
    """Return how far an inexact sampler may be from the stated noise."""
    if not privacy.tau:
        return ""
    return (
        f"\nThe sampler drew the noise from tables. Over everything that one unit can touch, the noise is within a total\n"
        f"variation distance of τ = {privacy.tau:.2g} of its stated distribution. The cost of this, (1 + e^ε) τ, is included in δ."
    )


def exact_levels(manifest: Manifest) -> list[int]:
    """Return the levels that are published exactly and that a unit could change; empty where only a public total is exact."""
    exact = [level.level for level in manifest.levels if not (level.sigma or level.summed or level.same_as is not None)]
    return exact if len(exact) > 1 or not manifest.privacy.exact_records_per_unit else []


def _promise(manifest: Manifest) -> str:
    """Return what the guarantee means to one unit or, where levels are published exactly, what it does not cover."""
    privacy = manifest.privacy
    if exact := exact_levels(manifest):
        levels = f"Levels {exact[0]} to {exact[-1]} are" if len(exact) > 1 else f"Level {exact[0]} is"
        their, those = ("their", "those") if len(exact) > 1 else ("its", "these")
        return (
            f"**{levels} published exactly. The release does not protect at all in which of {their} cells a unit is.**"
            f" It protects\nonly where the unit is within {those} cells."
        )
    its = "its record" if privacy.max_records_per_unit == 1 else "its records"
    doubt = (
        f"two possibilities for {its} equally likely"
        if privacy.neighbours == "substitution"
        else f"it equally likely that {its} {'is' if privacy.max_records_per_unit == 1 else 'are'} in the table and not"
    )
    return (
        "Whatever anyone knows about all other units, the guarantee limits what these tables tell them about a unit:\n"
        f"if they hold {doubt}, they guess right at most\n"
        f"{format_right_guess(privacy.epsilon, privacy.delta)} with these tables, and 50 of 100 times without (neighbours by"
        f" {privacy.neighbours})."
    )


def facts_of_levels(manifest: Manifest) -> list[dict[str, str]]:
    """Return, per level, what tables of levels say of it, by heading; no column that would be empty."""
    rows = [_row(level) for level in manifest.levels]
    heads = [head for head in rows[0] if head in _ALWAYS or any(row[head] != NOTHING for row in rows)]
    return [{head: row[head] for head in heads} for row in rows]


def _row(level: LevelEntry) -> dict[str, str]:
    """Return the cells of a level by their headings."""
    return {
        "rows": f"{level.nonzero:,}",
        "noise (sigma)": format_sigma(level.sigma, summed=level.summed, digits=2)
        + ("" if level.same_as is None else f", same as level {level.same_as}")
        + (", a sum" if level.summed and level.source is not None else ""),
        "sd of a count": deviations_of(level),
        "noise rows": noise_rows_of(level),
        "rows, records above 2 sigma": above_noise_of(level),
        "error bound (95%)": format_bound(level.sigma, level.bound, summed=level.summed),
        "bound as released": format_bound(level.sigma, level.bound_after, summed=level.summed),
    }
