"""What is known of a level after a release, as text: the same in the README, the report and the UI."""

from tasks.format.manifest import LevelEntry
from tasks.words.numbers import NOT_STATED, format_deviations, format_noise_rows, format_share


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
