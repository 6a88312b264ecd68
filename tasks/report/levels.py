"""What is known of a level after a release, as text: the same in the README, the report and the UI."""

from tasks.format.manifest import LevelEntry
from tasks.words.numbers import format_deviations, format_noise_rows, format_share

NOTHING = "none"  # the text of an empty cell


def noise_rows_of(level: LevelEntry) -> str:
    """Return which share of a level's rows is noise alone, estimated and at most."""
    share = level.noise_rows
    return format_noise_rows(share.estimate, share.at_most) if share else NOTHING


def deviations_of(level: LevelEntry) -> str:
    """Return the least and the most standard deviation of the counts of a level, where every node was measured."""
    return format_deviations(level.deviations.least, level.deviations.most) if level.deviations else NOTHING


def above_noise_of(level: LevelEntry) -> str:
    """Return which share of a level's rows, and of its records, is estimated to be in cells above twice the noise."""
    above = level.above_noise
    return f"{format_share(above.rows)}, {format_share(above.records)}" if above and level.sigma else NOTHING
