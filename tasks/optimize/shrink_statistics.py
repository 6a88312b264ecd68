"""What is learnt of a level before its totals are shared out: the totals of its areas, and a sample of its families.

Both come from any set of whole families, and those of several sets make those of all, whatever the sets are. So the branches of a release
may be looked at side by side, in any order, and cut in any way: what is learnt is the same. Sums are sums of whole numbers. Of the families
with similar counts, those with the smallest names are in the sample, and a name follows from areas alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tasks.optimize.prior import STRATA, Families, Sample, prior_means, stratum_of
from tasks.tree.axis import FloatArray, IntArray

_COLUMNS = ("family", "total", "size", "area", "value", "variance")  # of statistics as a table of floats

_UNITS = 2.0**10  # of a record, and of a record squared, in which sums are kept
_SAMPLED = 1_000  # cells of each stratum, or a family more, that are kept at most
_OF_AREA, _OF_STRATUM = -1, -2  # in place of the family, in rows about areas and about strata
_MIXERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_NAME_BITS = 53  # which a float holds


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """What is learnt of some families of a level. Strata are those of the mean count of a family's cells.

    Attributes:
        values: float64, shape (areas,), records: what the estimates of an area's cells add up to, by area of the refined axis.
        variances: float64, shape (areas,), records squared: likewise of their variances.
        cells: float64, shape (strata,): how many cells there are.
        sample: some families, in the order of their strata and names; of wide ones cells at even distances.
        sizes: how many cells each of these has, float64, shape (families,).
        names: of these, float64, shape (families,).
        areas: of their cells, int64, shape (cells,).
    """

    values: FloatArray
    variances: FloatArray
    cells: FloatArray
    sample: Families
    sizes: FloatArray
    names: FloatArray
    areas: IntArray

    def columns(self) -> dict[str, FloatArray]:
        """Return all of it as one table: the areas, the strata, and the cells of the sample."""
        strata, given, of_areas = np.zeros(STRATA), self.sample.sizes, np.zeros(len(self.values))
        kinds = (of_areas + _OF_AREA, strata + _OF_STRATUM, np.repeat(self.names, given))
        totals = (of_areas, strata, np.repeat(self.sample.totals.astype(np.float64), given))
        sizes = (of_areas, strata, np.repeat(self.sizes, given))
        areas = (np.arange(len(self.values), dtype=np.float64), strata, self.areas.astype(np.float64))
        values = (self.values, self.cells, self.sample.values)
        variances = (self.variances, strata, self.sample.variances)
        parts = (kinds, totals, sizes, areas, values, variances)
        return {name: np.concatenate(part) for name, part in zip(_COLUMNS, parts, strict=True)}


def statistics_from(columns: Mapping[str, FloatArray]) -> Statistics:
    """Return the statistics that a table has."""
    kind, total, size, area, value, variance = (columns[name] for name in _COLUMNS)
    of_areas, of_strata, rows = kind == _OF_AREA, kind == _OF_STRATUM, np.flatnonzero(kind >= 0)
    names, totals = kind[rows], total[rows].astype(np.int64)
    begins = np.flatnonzero(np.concatenate(([True], names[1:] != names[:-1]))) if len(rows) else rows
    sample = _families(np.append(begins, len(rows)), totals[begins], value[rows], variance[rows])
    areas = area[rows].astype(np.int64)
    sums = value[of_areas], variance[of_areas], value[of_strata]
    return Statistics(*sums, sample, size[rows][begins], names[begins], areas)


def statistics_of(families: Families, areas: IntArray, names: FloatArray, number_of_areas: int) -> Statistics:
    """Return what is learnt of some families.

    Args:
        areas: of their cells on the refined axis, int64, shape (cells,).
        names: of the families, as `hashed_names` gives them, shape (families,).
    """
    values = np.bincount(areas, np.rint(families.values * _UNITS), number_of_areas) / _UNITS
    variances = np.bincount(areas, np.rint(families.variances * _UNITS), number_of_areas) / _UNITS
    sizes = families.sizes.astype(np.float64)
    cells = np.bincount(stratum_of(families.totals / sizes), sizes, STRATA).astype(np.float64)
    return Statistics(values, variances, cells, *_fewest(families, sizes, names, areas))


def nothing_learnt(number_of_areas: int) -> Statistics:
    """Return what is learnt of no family at all."""
    nothing, none = np.zeros(0), np.zeros(0, dtype=np.int64)
    sample = _families(np.zeros(1, dtype=np.int64), none, nothing, nothing)
    sums = np.zeros(number_of_areas), np.zeros(number_of_areas), np.zeros(STRATA)
    return Statistics(*sums, sample, nothing, nothing, none)


def joined_statistics(parts: Sequence[Statistics]) -> Statistics:
    """Return the statistics of all the families of several; at least one part."""
    values, variances, cells = (
        np.sum([getattr(part, name) for part in parts], axis=0) for name in ("values", "variances", "cells")
    )
    first = np.concatenate(([0], np.cumsum(np.concatenate([part.sample.sizes for part in parts]))))
    totals, of_cells, of_variances = (
        np.concatenate([getattr(part.sample, name) for part in parts]) for name in ("totals", "values", "variances")
    )
    families = _families(first, totals, of_cells, of_variances)
    sizes, names, areas = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("sizes", "names", "areas")
    )
    return Statistics(values, variances, cells, *_fewest(families, sizes, names, areas))


def sample_of(statistics: Statistics, totals_of_areas: FloatArray) -> Sample:
    """Return the cells to which the prior of a level is fitted.

    Args:
        totals_of_areas: M, of all areas, shape (areas,), records, >= 0.
    """
    families, sizes = statistics.sample, statistics.sizes
    totals, given = families.totals.astype(np.float64), families.sizes
    means = prior_means(totals, sizes, families.first, totals_of_areas[statistics.areas])
    stratum, of_family = np.repeat(stratum_of(totals / sizes), given), np.repeat(sizes / given, given)
    in_sample = np.bincount(stratum, of_family, STRATA)
    stand_for = of_family * statistics.cells[stratum] / in_sample[stratum]
    return Sample(families.values, families.variances, means, np.repeat(totals, given), stand_for)


def hashed_names(areas: Sequence[IntArray]) -> FloatArray:
    """Return a name for each of some nodes, by their areas alone: whole numbers of 53 bits as if at random, float64, shape (nodes,).

    Source:
        Steele, Lea and Flood (2014), the finaliser of SplitMix.
    """
    names = np.zeros(len(areas[0]), dtype=np.uint64)
    for of_axis in areas:
        names += of_axis.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        names = (names ^ (names >> np.uint64(30))) * _MIXERS[0]
        names = (names ^ (names >> np.uint64(27))) * _MIXERS[1]
        names ^= names >> np.uint64(31)
    return (names >> np.uint64(64 - _NAME_BITS)).astype(np.float64)


def _fewest(
    families: Families, sizes: FloatArray, names: FloatArray, areas: IntArray
) -> tuple[Families, FloatArray, FloatArray, IntArray]:
    """Return the families of each stratum with the smallest names, until there are enough cells, with sizes, names and areas."""
    stratum, kept = stratum_of(families.totals / sizes), np.minimum(families.sizes, _SAMPLED)
    order = np.lexsort((names, stratum))
    before = np.cumsum(kept[order]) - kept[order]
    begins = np.searchsorted(stratum[order], stratum[order])
    chosen = order[before - before[begins] < _SAMPLED] if len(order) else order
    first = np.concatenate(([0], np.cumsum(kept[chosen])))
    # the place of each cell among those of its family
    of_kept = np.arange(first[-1]) - np.repeat(first[:-1], kept[chosen])
    at = of_kept * np.repeat(families.sizes[chosen], kept[chosen]) // np.repeat(kept[chosen], kept[chosen])
    cells = np.repeat(families.first[:-1][chosen], kept[chosen]) + at
    some = _families(first, families.totals[chosen], families.values[cells], families.variances[cells])
    return some, sizes[chosen], names[chosen], areas[cells]


def _families(first: IntArray, totals: IntArray, values: FloatArray, variances: FloatArray) -> Families:
    """Return families that are of no particular parents."""
    return Families(np.arange(len(totals)), np.arange(len(values)), first, totals, values, variances)
