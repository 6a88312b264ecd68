"""Which answers of a release are exact: an interval of one number may be exact, or narrow by chance."""

from collections.abc import Sequence

from tasks.released.boxes import level_of
from tasks.released.folder import PublishedFolder


def is_exact(folder: PublishedFolder, levels: Sequence[int]) -> bool:
    """Return whether the counts of boxes at these axis levels are published without noise."""
    if folder.manifest.has_groups and not levels[1]:  # the list says how many groups a region has
        return True
    entry = folder.manifest.levels[level_of(folder.steps, levels)]
    return not (entry.sigma or entry.summed)
