"""Which answers of a release are exact: an interval of one number may be exact, or narrow by chance."""

from tasks.query.boxes import level_of
from tasks.query.folder import PublishedFolder
from tasks.tabulate.tables import AxisLevels


def is_exact(folder: PublishedFolder, levels: AxisLevels) -> bool:
    """Return whether the counts of boxes at these axis levels are published without noise, as `trellis query` says of each."""
    entry = folder.manifest.levels[level_of(folder.steps, levels)]
    return not (entry.sigma or entry.summed)
