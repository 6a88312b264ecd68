"""How to read the counts of a release, in words: what a count can be, how noisy it is, and which level to prefer."""

from storage.counts.columns import SIZE
from storage.releases.terms import COUNTS_POSITIVE, FIXED_TOTAL
from tasks.format.manifest import Manifest
from tasks.report.readme.intervals import promises
from tasks.tree.ordered import ordered_axes


def reading(manifest: Manifest, how_counted: str, formulas: str = "") -> str:
    """Return how to read the counts: a list in Markdown."""
    has_ends = "origin" in manifest.roles.values()
    refinements = (
        "" if has_ends else "- Each level refines the level above it: level k counts by the first k refinements.\n"
    )
    return f"""{_counts(manifest)}
- The counts of every level add up to those of the level above it, and to the total.{_total(manifest)}
{_noise(manifest, how_counted)}{_below(_measured(manifest))}
{_rounding(manifest)}{promises(manifest)}{refinements}{_prefer(manifest, has_ends=has_ends)}{_below(formulas)}"""


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


def _counts(manifest: Manifest) -> str:
    """Return what a count can be, and what a missing row means."""
    zero = (
        f"A missing row {manifest.missing_row};\n  its true count may be small but not zero. A row that is present"
        " may be noise alone."
    )
    if COUNTS_POSITIVE in manifest.waived:
        return f"- Every count is a whole number, and may be below zero. No true count and no interval is. {zero}"
    if manifest.levels[-1].threshold:
        return (
            "- Every count is a whole number above zero. A row that is present has records. A missing row\n"
            f"  {manifest.missing_row}.{_codes(manifest)}"
        )
    if manifest.views:
        return f"- Every count is a whole number, above zero in the tables of levels; those of views list zeros too.\n  In a level, {zero[0].lower()}{zero[1:]}"
    if manifest.counts_groups:
        return f"- A count is the number of groups of one size in a region: a whole number above zero. {zero}\n{_sizes(manifest)}"
    return f"- Every count is a whole number above zero. {zero}"


_MEASURED_OF_GROUPS = {
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
        f"  {_MEASURED_OF_GROUPS[manifest.measured_of_groups]}.{of_list}"
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
        if manifest.sums_of_source and any(level.summed and level.sigma for level in manifest.parts):
            measured += "\n  or, at a level marked as a sum, in the widest sum of the measurements from which its intervals follow"
        return f"{measured},\n  {how_counted}."
    bound = (
        "- Counts are noisy. With 95% probability, *every* count at a level is within the level's error bound of its true\n"
        "  count (one level at a time)"
    )
    if manifest.is_unbiased:
        return (
            f"{bound}. `sigma` is the standard deviation of the noise in one measurement,\n  or, at a level that is not measured, of its"
            ' counts. A released count is settled from all measurements; "sd of a count" is the\n  standard deviation of its error'
            " (`deviations` in the manifest)."
        )
    if manifest.adds_up_leaves:
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


def _prefer(manifest: Manifest, *, has_ends: bool) -> str:
    """Return which level to use, and what happens to the noise when counts are added up."""
    if manifest.has_sources:
        return (
            "- All levels and views are sums of the finest level, so it does not matter for a count where you read it. Its interval\n"
            "  does depend on it: read the level or view that answers your question with the least noise. `trellis query` chooses it."
        )
    if manifest.is_unbiased:
        return (
            "- All levels are sums of the finest, so it does not matter where you read a count. Adjacent cells of an ordered axis\n"
            "  add up to little more noise than one of them has: `trellis query` gives the exact standard deviation of a range."
        )
    if manifest.counts_groups:
        tails = (
            " Numbers of groups of at least some size\n"
            "  bear less noise than those of one size, and `trellis query FOLDER --size 5..` answers for them."
            if manifest.measured_of_groups == "tails"
            else ""
        )
        return f"- All levels are sums of the finest, so it does not matter where you read a count.{tails}"
    if manifest.adds_up_leaves:
        return (
            "- Use any level that answers your question: a coarser level is the sum of the finest, and no closer to the truth than\n"
            "  that sum. Every sum of counts carries the noise of each of its leaves."
        )
    if manifest.warning_of_views:
        return (
            "- Read the totals of one axis in their views, and anything else at the coarsest level that answers your question.\n"
            "  `trellis query` chooses between them. A sum of counts carries the noise of each of them."
        )
    apart, one = (" of counts that have no area in common", "area") if has_ends else ("", "cell")
    return (
        f"- Use the coarsest level that answers your question. A sum{apart} carries the noise of each\n"
        f"  of them; only the counts of all children of one {one} add up to its own, less noisy count."
    )


def _below(line: str) -> str:
    return f"\n{line}" if line else ""
