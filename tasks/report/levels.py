"""What is known of a level after a release, as text: the same in the README, the report and the UI."""

from collections.abc import Sequence

from tasks.format.manifest import LevelEntry, Manifest
from tasks.report.facts import Facts
from tasks.words.numbers import NOT_STATED, format_deviations, format_noise_rows, format_share


def twice_the_noise(manifest: Manifest) -> tuple[str, str]:
    """Return above what a true count stands above the noise, in short and in words: unbiased counts have a deviation of their own."""
    return ("2 sd", "twice its standard deviation") if manifest.is_unbiased else ("2 sigma", "twice the noise")


def noise_series(levels: Sequence[LevelEntry], facts: Facts) -> dict[str, list[float | None]]:
    """Return what a report draws of the noise of levels 0 to T beside their mean counts, by its name; None where it is not stated."""
    if any(level.deviations for level in levels):
        noise = {"sd of a count": [level.deviations.most if level.deviations else None for level in levels]}
    else:
        noise = {"noise (σ)": [level.sigma for level in levels]}
    return {
        "mean count": [facts.mean_count(level.level) for level in levels],
        **noise,
        "half of the interval": [level.half_width for level in facts.levels],
        "error bound (95%)": [level.bound for level in levels],
        "threshold": [level.threshold for level in levels],
    }


def noise_rows_of(level: LevelEntry) -> str:
    """Return which share of a level's rows is noise alone, estimated and at most."""
    share = level.noise_rows
    return format_noise_rows(share.estimate, share.at_most) if share else NOT_STATED


def deviations_of(level: LevelEntry) -> str:
    """Return the least and the most standard deviation of the counts of a level, where every node was measured."""
    return format_deviations(level.deviations.least, level.deviations.most) if level.deviations else NOT_STATED


def above_noise_of(level: LevelEntry) -> str:
    """Return which share of a level's rows, and of its records, is estimated to be in cells above twice the noise."""
    above = level.above_noise
    return f"{format_share(above.rows)}, {format_share(above.records)}" if above and level.sigma else NOT_STATED
