"""What the intervals, the signal and the shares of noise of a release promise, in words."""

from storage.releases.terms import COUNTS_POSITIVE
from tasks.format.manifest import Manifest
from tasks.format.published_tree import tree_of_spec
from tasks.report.levels import twice_the_noise
from tasks.words.numbers import format_percent


def promises(manifest: Manifest) -> str:
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
    # by the deviations of unbiased counts, if the spec lists all areas
    by_deviations = manifest.is_unbiased and tree_of_spec(manifest) is not None
    # otherwise it follows from noisy counts that are not there
    has_all = manifest.noisy_counts or by_deviations or not (manifest.is_unbiased or manifest.counts_groups)
    also = f"\n  A missing {missing} has an interval too: the explorer and `trellis query` show it." if has_all else ""
    alone = (
        ""
        if manifest.noisy_counts or by_deviations or manifest.levels[-1].threshold
        else "\n  The noisy counts are not published, so `trellis verify` cannot compute again what is said here of the noise. What it promises\n"
        "  is the same."
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
    if manifest.is_grid:
        return (
            f"- With a probability of at least {confidence}, over all noise, the true count of a cell that you fix beforehand lies\n"
            "  between `low` and `high`. For the rows of a table together nothing is promised, because errors of cells that\n"
            "  differ on both axes go the same way. `trellis query` gives such an interval for any rectangle too."
        )
    outside = format_percent(1 - manifest.intervals.confidence)
    return (
        f"- Of the rows of a level, on average at most {outside} have a true count that is not between `low` and `high`, although\n"
        "  many cells have a row only because of their noise. This holds for a level's rows together, not for a part of\n"
        f"  them that you pick.\n{question}"
    )


def _signal(manifest: Manifest) -> str:
    """Return what the column `signal` says."""
    if manifest.levels[-1].threshold:
        return "- `signal` is true in every row: only cells with records have rows.\n"
    rate = format_percent(manifest.intervals.signal_rate)
    adjusted = (
        ""
        if COUNTS_POSITIVE in manifest.waived  # they are the noisy counts, or settled from them without bias
        else " The noisy counts decide, before they are adjusted to add\n"
        "  up, so a row may stand out beside one with a larger count that does not."
    )
    return (
        f"- `signal` is true for rows that stand out from the noise. Of a level's rows that do, on average at most {rate} have a\n"
        f"  true count of 0. A row that does not stand out may well have records.{adjusted}\n"
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
    short, twice = twice_the_noise(manifest)
    above = f"Above {short}: the estimated share of rows with a true count above {twice}, and of the records in them.\n"
    if {of.estimate for of in stated if of.at_most} == {None}:
        return (
            "- Noise rows are rows whose true count is 0. With 95% probability their share is no larger than the figure. It is not\n"
            "  estimated, because where the noise is large nothing tells a true count of 1 from one of 0.\n"
            f"  {above}"
        )
    unknown = "  Where one figure stands, no share is estimated: nothing tells a true count of 1 from one of 0 there.\n"
    return (
        "- Noise rows are rows whose true count is 0. Their share is estimated, usually within ten percentage points; with 95%\n"
        f"  probability it is no larger than the second figure, where there is one. {above}"
    ) + unknown * any(of.estimate is None for of in stated)
