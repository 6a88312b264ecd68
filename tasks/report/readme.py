"""The README of a published folder: what a statistician hands on with the tables."""

from collections.abc import Sequence

from storage.releases.register import COUNTS_POSITIVE, FIXED_TOTAL
from tasks.format.manifest import LevelEntry, Manifest, Privacy
from tasks.words.levels import level_columns
from tasks.words.numbers import format_bound, format_sigma, rounded_up

TWO_PASSES = frozenset({"inftda_reconciled", "inftda_lenient"})  # their counts are estimates from several measurements

_CSV: dict[bool | str, str] = {
    True: "- `counts.csv`: the finest level again, as CSV. Read the codes as text: leading zeros matter.\n",
    "every_level": "- `counts/level_<k>.csv`: the same tables as CSV. Read the codes as text: leading zeros matter.\n",
    False: "",
}
_METADATA = "- `metadata.json`: what the columns of the CSV are, for programs (CSVW, https://www.w3.org/ns/csvw).\n"
_NOISY_COUNTS = (
    "- `noisy_counts/level_<k>.parquet`: what was measured, a row per cell: whole counts with unbiased noise, some of them"
    " below\n  zero, and its variance, for those who estimate themselves. Areas are the numbers of"
    " `noisy_counts/codebook.parquet`.\n"
)
_RECORDS = {
    "csv": "- `records.csv`: the finest level once more, a row for each record that it counts. No row is anybody's.\n",
    "parquet": "- `records.parquet`: the finest level again, a row for each record that it counts. No row is anybody's.\n",
    "left out": "- Synthetic records were asked for and are left out: the finest level counts too many to be written each.\n",
    None: "",
}


def readme(manifest: Manifest) -> str:
    """Return the text of README.md, from the manifest alone."""
    unprotected = "\n".join(f"- {statement}" for statement in manifest.unprotected) or "- nothing"
    columns = level_columns([level.axes for level in manifest.levels])
    places = zip(*columns.values(), strict=True)
    levels = "\n".join(_row(level, place) for level, place in zip(manifest.levels, places, strict=True))
    metadata = _METADATA if manifest.csv or manifest.records == "csv" else ""
    superseded = f"\n\n{told}" if (told := revision(manifest)) else ""
    of_trips = "origin" in columns
    finest = "areas" if of_trips else "cells"
    return f"""# {manifest.id}

Counts with differential privacy, on {len(manifest.levels)} levels from the total to the finest {finest}. Made by Trellis
{manifest.versions["trellis"]} with the mechanism `{manifest.mechanism}`.{superseded}

## What is protected

{protection(manifest)}

Not protected, because published exactly:

{unprotected}

## How to read the counts

{reading(manifest)}

| level | {" | ".join(columns)} | rows | noise (sigma) | error bound (95 %) |
|---|{"---|" * len(columns)}---|---|---|
{levels}

## Files

- `counts/level_<k>.parquet`: one table per level; codes are text, coarse to fine, then `{"`, `".join(("count", *manifest.bounds))}`.
{_CSV[manifest.csv]}{_NOISY_COUNTS if manifest.noisy_counts else ""}{_RECORDS[manifest.records]}{metadata}- `report.html`: all of this with pictures, to be looked at in a browser; it needs no network.
- `manifest.json`: the spec, the guarantee, the noise of every level, the hashes of codebooks and of sealed measurements.
- `SHA256SUMS`: the hash of each file (`sha256sum --check SHA256SUMS`; `trellis verify` checks the rest).
"""


def revision(manifest: Manifest) -> str:
    """Return whose place the release takes, where it takes one's, as Markdown."""
    if manifest.supersedes is None:
        return ""
    return (
        f"**It supersedes `{manifest.supersedes}`:** take these counts in place of those. It is a new measurement with"
        " noise of its own,\nso that two counts that differ need not mean that anything has changed."
    )


def protection(manifest: Manifest) -> str:
    """Return what is protected, what that means and what it costs: three paragraphs of Markdown."""
    privacy = manifest.privacy
    return f"{_records(privacy)}\n{_promise(manifest)}\n\n{privacy.statement}\n\n{_cost(manifest)}"


def reading(manifest: Manifest) -> str:
    """Return how the counts are to be read: a list in Markdown."""
    of_trips = "origin" in level_columns([level.axes for level in manifest.levels])
    marginals = (
        "" if of_trips else "- Level k counts by the first k refinements of this table, one line after the other.\n"
    )
    return f"""{_counts(manifest)}
- Every level adds up to the level above it, and each to the total.{_total(manifest)}
{_noise(manifest)}
{_intervals(manifest)}{marginals}{_prefer(manifest, of_trips=of_trips)}"""


def _records(privacy: Privacy) -> str:
    """Return how many records a unit has, and who sees to it."""
    many = privacy.max_records_per_unit
    bound = "exactly" if privacy.exact_records_per_unit else "at most"
    records = f"{bound} {many} record{'' if many == 1 else 's'}"
    distinct = f", in distinct cells of the level {privacy.distinct}" if privacy.distinct else ""
    seen_to = "records beyond were left out" if privacy.bounded_by == "ingest" else "as the data owner promises"
    return f"The privacy unit is {privacy.unit}; each has {records} in the table{distinct} ({seen_to})."


def _cost(manifest: Manifest) -> str:
    """Return what the noise costs, and how that is known."""
    privacy, finest = manifest.privacy, manifest.levels[-1]
    if finest.threshold:
        return (
            f"Noise of scale {finest.scale:.6g} and the threshold {finest.threshold:,} cost ε = {rounded_up(finest.epsilon)}"
            f" and δ = {finest.delta:.3g}, which\nis within ε = {rounded_up(privacy.epsilon)} and δ = {privacy.delta:g}."
        )
    return (
        f"The noise costs ρ = {rounded_up(privacy.rho)} (zero-concentrated differential privacy), read as\n"
        f"ε = {rounded_up(privacy.epsilon)} and δ = {privacy.delta:g} by the accountant {privacy.accountant}.{_drawn(privacy)}"
    )


def _counts(manifest: Manifest) -> str:
    """Return what a count can be, and what a row that is missing means."""
    if COUNTS_POSITIVE in manifest.waived:
        return (
            "- Every count is a whole number, and may be below zero. A row that is missing has the released count zero;\n"
            "  its true count may be small and not zero, and a row that is there may be noise alone."
        )
    if manifest.levels[-1].threshold:
        return (
            "- Every count is a whole number above zero. A row that is there has records. One that is missing has none, or"
            f" too\n  few for the threshold.{_codes(manifest)}"
        )
    return (
        "- Every count is a whole number above zero. A row that is missing has the released count zero; its true count may"
        " be\n  small and not zero, and a row that is there may be noise alone."
    )


def _codes(manifest: Manifest) -> str:
    """Return where codes come from that no codebook lists."""
    if not manifest.unlisted:
        return ""
    return (
        f"\n- No codebook lists the codes of {', '.join(manifest.unlisted)}: they come from the records, and only those are seen of"
        " which a\n  finest count reached the threshold. There may be others."
    )


def _total(manifest: Manifest) -> str:
    """Return what is to be said of a total that is a sum, where it is public."""
    if FIXED_TOTAL not in manifest.waived:
        return ""
    return " The total is that of the finest level's\n  counts, and not the number of records."


def _noise(manifest: Manifest) -> str:
    """Return how far counts can be from the truth."""
    finest = manifest.levels[-1]
    if finest.threshold:
        return (
            "- Counts are noisy, and leaves that did not reach the threshold are missing from every sum: no error bound is"
            " stated.\n  `sigma` is the standard deviation of the noise of one leaf; a sum, which lacks leaves too, has none."
        )
    if finest.bound is None:
        measured = "- Counts are noisy; no error bound is stated. `sigma` is the standard deviation of the noise of one measurement"
        if manifest.mechanism in TWO_PASSES:
            return (
                f"{measured},\n  and not of a count: each is estimated from its own measurement and those below it, and"
                " made to add up."
            )
        return f"{measured},\n  before counts were made to add up."
    if manifest.levels[0].summed:
        return (
            "- Counts are noisy. With a probability of 95 % *every* count of a level is within its bound of the truth (one"
            " level\n  at a time); `sigma` is the standard deviation of the noise of the level's widest cell."
        )
    return (
        "- Counts are noisy. With a probability of 95 % *every* count of a level is within its bound of the truth (one level"
        " at a\n  time); most are far nearer: `sigma` is the standard deviation of the noise of one measurement."
    )


def _intervals(manifest: Manifest) -> str:
    """Return what `low` and `high` promise, and what they do not."""
    sure = f"{100 * manifest.intervals.confidence:g} %"
    none = " Sums have none, since leaves are missing from them." if manifest.levels[-1].threshold else ""
    rounded = (
        " They end at multiples of sigma, rounded up, since the\n  noisy counts were not kept; many of those can be computed from"
        " what is published all the same, and the guarantee does not\n  rest on their being hidden."
        if manifest.intervals.rounded
        else ""
    )
    at_once = (
        f"\n- `simultaneous_low` and `simultaneous_high` cover the true counts of all cells of all levels at once, with {sure}:"
        " take these\n  for cells that were picked for their counts."
        if manifest.intervals.simultaneous
        else ""
    )
    return (
        f"- With a probability of at least {sure}, over all noise, the true count of a cell lies from `low` to `high`, whichever"
        " cell it\n  is that you ask for. Of cells that are picked for their released counts, such as the largest ones, fewer"
        f" may.{none}{rounded}\n  A row that is missing has an interval too: `trellis query` tells it.{at_once}\n"
    )


def _prefer(manifest: Manifest, *, of_trips: bool) -> str:
    """Return which level to take, and what becomes of the noise where counts are added up."""
    if manifest.levels[0].summed:
        return (
            "- Take any level that answers the question: a coarser one is the sum of the finest, and no nearer to the truth"
            " than\n  that is. Every sum of counts bears the noise of each of its leaves."
        )
    apart, one = (" of counts that have no area in common", "area") if of_trips else ("", "cell")
    return (
        f"- Prefer the coarsest level that answers the question. A sum{apart} bears the noise of\n  each; only all children of"
        f" one {one} add up to its own, less noisy count."
    )


def _drawn(privacy: Privacy) -> str:
    """Return what is to be said of a sampler that is not exact."""
    if not privacy.tau:
        return ""
    return (
        f"\nIt was drawn from tables, within a total variation distance of τ = {privacy.tau:.2g} of its law over all that one"
        " unit\ncan touch; what that costs, (1 + e^ε) τ, is in δ."
    )


def _promise(manifest: Manifest) -> str:
    """Return what the guarantee means to one unit, and where levels are published exactly, what it does not mean."""
    privacy = manifest.privacy
    exact = [level.level for level in manifest.levels if not (level.sigma or level.summed)]
    if len(exact) > 1 or (exact and not privacy.exact_records_per_unit):
        return (
            f"**Levels {exact[0]} to {exact[-1]} are published exactly, and in which of their cells a unit is, is not"
            " protected at all.** What is protected is where it is within them."
        )
    many = "its record reads as it does" if privacy.max_records_per_unit == 1 else "its records read as they do"
    change = f"{many} or otherwise" if privacy.neighbours == "substitution" else "it is in the table or not"
    return (
        f"Whatever anybody knows of all others, these tables say almost the same about a unit whether {change}"
        f" (neighbours by {privacy.neighbours})."
    )


def _row(level: LevelEntry, place: Sequence[str]) -> str:
    names = " | ".join(place)
    noise = format_sigma(level.sigma, summed=level.summed, digits=2)
    bound = format_bound(level.sigma, level.bound, summed=level.summed)
    return f"| {level.level} | {names} | {level.nonzero:,} | {noise} | {bound} |"
