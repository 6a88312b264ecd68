"""What is learnt of a level before its totals are shared out: the totals of its areas, and a sample of its families.

Both come from any set of whole families, and those of several sets make those of all, whatever the sets are. So the branches of a release
may be looked at side by side, in any order, and cut in any way: what is learnt is the same. Sums are sums of whole numbers, and a family is
in the sample because of its name alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tasks.optimize.reconcile import FloatArray
from tasks.shrink.families import Families
from tasks.shrink.prior import STRATA, Sample, prior_means, stratum_of
from tasks.tree.axis import IntArray

COLUMNS = ("family", "total", "area", "value", "variance")  # of statistics as a table of floats

_UNITS = 2.0**10  # of a record, and of a record squared, in which sums are kept
_SAMPLED = 1_000  # cells of each stratum, or a family more
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
        sample: some families, in the order of their strata and names.
        names: of these, float64, shape (families,).
        areas: of their cells, int64, shape (cells,).
    """

    values: FloatArray
    variances: FloatArray
    cells: FloatArray
    sample: Families
    names: FloatArray
    areas: IntArray

    def columns(self) -> dict[str, FloatArray]:
        """Return all of it as one table: the areas, the strata, and the cells of the sample."""
        strata, sizes = np.zeros(STRATA), self.sample.sizes
        kinds = (np.full(len(self.values), float(_OF_AREA)), strata + _OF_STRATUM, np.repeat(self.names, sizes))
        totals = (np.zeros(len(self.values)), strata, np.repeat(self.sample.totals.astype(np.float64), sizes))
        areas = (np.arange(len(self.values), dtype=np.float64), strata, self.areas.astype(np.float64))
        values = (self.values, self.cells, self.sample.values)
        variances = (self.variances, strata, self.sample.variances)
        parts = (kinds, totals, areas, values, variances)
        return {name: np.concatenate(part) for name, part in zip(COLUMNS, parts, strict=True)}


def statistics_from(columns: Mapping[str, FloatArray]) -> Statistics:
    """Return the statistics that a table has."""
    kind, total, area, value, variance = (columns[name] for name in COLUMNS)
    of_areas, of_strata, rows = kind == _OF_AREA, kind == _OF_STRATUM, np.flatnonzero(kind >= 0)
    names, totals = kind[rows], total[rows].astype(np.int64)
    begins = np.flatnonzero(np.concatenate(([True], names[1:] != names[:-1]))) if len(rows) else rows
    sample = _families(np.append(begins, len(rows)), totals[begins], value[rows], variance[rows])
    areas = area[rows].astype(np.int64)
    return Statistics(value[of_areas], variance[of_areas], value[of_strata], sample, names[begins], areas)


def statistics_of(families: Families, areas: IntArray, names: FloatArray, number_of_areas: int) -> Statistics:
    """Return what is learnt of some families.

    Args:
        families: the families.
        areas: of their cells on the refined axis, int64, shape (cells,).
        names: of the families, as `names_of` gives them, shape (families,).
        number_of_areas: how many there are.
    """
    values = np.bincount(areas, np.rint(families.values * _UNITS), number_of_areas) / _UNITS
    variances = np.bincount(areas, np.rint(families.variances * _UNITS), number_of_areas) / _UNITS
    stratum = _strata(families)
    cells = np.bincount(stratum, families.sizes, STRATA).astype(np.float64)
    return Statistics(values, variances, cells, *_fewest(families, names, areas, stratum))


def nothing_learnt(number_of_areas: int) -> Statistics:
    """Return what is learnt of no family at all."""
    nothing, none = np.zeros(0), np.zeros(0, dtype=np.int64)
    sample = _families(np.zeros(1, dtype=np.int64), none, nothing, nothing)
    return Statistics(np.zeros(number_of_areas), np.zeros(number_of_areas), np.zeros(STRATA), sample, nothing, none)


def joined(parts: Sequence[Statistics]) -> Statistics:
    """Return the statistics of all the families of several; at least one part."""
    values, variances, cells = (
        np.sum([getattr(part, name) for part in parts], axis=0) for name in ("values", "variances", "cells")
    )
    first = np.concatenate(([0], np.cumsum(np.concatenate([part.sample.sizes for part in parts]))))
    totals, of_cells, of_variances = (
        np.concatenate([getattr(part.sample, name) for part in parts]) for name in ("totals", "values", "variances")
    )
    families = _families(first, totals, of_cells, of_variances)
    names, areas = np.concatenate([part.names for part in parts]), np.concatenate([part.areas for part in parts])
    return Statistics(values, variances, cells, *_fewest(families, names, areas, _strata(families)))


def sample_of(statistics: Statistics, totals_of_areas: FloatArray) -> Sample:
    """Return the cells to which the prior of a level is fitted.

    Args:
        statistics: of the level.
        totals_of_areas: M, of all areas, shape (areas,), records, >= 0.
    """
    families = statistics.sample
    totals = families.totals.astype(np.float64)
    means = prior_means(totals, families.sizes, families.first, totals_of_areas[statistics.areas])
    stratum = np.repeat(_strata(families), families.sizes)
    in_sample = np.bincount(stratum, minlength=STRATA)
    stand_for = statistics.cells[stratum] / in_sample[stratum]
    return Sample(families.values, families.variances, means, np.repeat(totals, families.sizes), stand_for)


def names_of(areas: Sequence[IntArray]) -> FloatArray:
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


def _strata(families: Families) -> IntArray:
    return stratum_of(families.totals / families.sizes)


def _fewest(
    families: Families, names: FloatArray, areas: IntArray, stratum: IntArray
) -> tuple[Families, FloatArray, IntArray]:
    """Return the families of each stratum with the smallest names, until there are enough cells; their names, and their cells' areas."""
    order = np.lexsort((names, stratum))
    sizes = families.sizes[order]
    before = np.cumsum(sizes) - sizes
    begins = np.searchsorted(stratum[order], stratum[order])
    chosen = order[before - before[begins] < _SAMPLED] if len(order) else order
    first = np.concatenate(([0], np.cumsum(families.sizes[chosen])))
    cells = np.arange(first[-1]) + np.repeat(families.first[:-1][chosen] - first[:-1], families.sizes[chosen])
    some = _families(first, families.totals[chosen], families.values[cells], families.variances[cells])
    return some, names[chosen], areas[cells]


def _families(first: IntArray, totals: IntArray, values: FloatArray, variances: FloatArray) -> Families:
    """Return families that are of no particular parents."""
    return Families(np.arange(len(totals)), np.arange(len(values)), first, totals, values, variances)
