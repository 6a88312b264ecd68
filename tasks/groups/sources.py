"""The source of each level of group sizes: the measured level from whose regions its intervals follow, by codebooks and noise alone."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from tasks.groups.task import region_axis
from tasks.laws.law import LevelNoise
from tasks.tree.axis import IntArray
from tasks.tree.order import Tree

Noises = Mapping[int, LevelNoise]  # of what is measured of each region and size, by the number of the level


def own_source(level: int, measured: Iterable[int]) -> int:
    """Return the measured level of the same regions as a level, by the codebook; level 1 for the total."""
    return max(number for number in measured if number <= max(level, 1))


def source_of(tree: Tree, level: int, statistic: str, measured: Noises) -> int:
    """Return, of the measured levels of the same regions or finer ones, that with the least variance in the widest region of a level.

    Of equals it is the coarsest. Sums that run through all regions of a level say nothing of a few of them: they have their own level.
    """
    own = own_source(level, measured)
    if statistic == "chain":
        return own

    def variance(source: int) -> float:
        return measured[source].variance * int(np.diff(regions_inside(tree, level, source)).max())

    return min((number for number in sorted(measured) if number >= own), key=variance)


def regions_inside(tree: Tree, level: int, source: int) -> IntArray:
    """Return where the regions of a source begin in each region of a level, and the end, int64, shape (regions + 1,)."""
    axis = region_axis(tree)
    return tree.axes[axis].first_descendants(tree.axis_levels(level)[axis], tree.axis_levels(source)[axis])


def noise_of_sum(tree: Tree, level: int, statistic: str, measured: Noises) -> LevelNoise:
    """Return the noise of a level that is not measured, in its widest region; of level 0 that of the number of all groups."""
    source, sizes = source_of(tree, level, statistic, measured), tree.possible_cells(1)
    if statistic == "chain":
        return measured[source]
    regions = int(np.diff(regions_inside(tree, level, source)).max())
    return replace(measured[source], terms=regions * (sizes if statistic == "sizes" and not level else 1))
