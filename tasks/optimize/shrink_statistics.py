"""What is learnt of a level before its totals are shared out: the totals of its areas, and a sample of its families.

Both come from any set of whole families, and those of several sets make those of all, whatever the sets are. So the branches of a release
may be looked at side by side, in any order, and cut in any way: what is learnt is the same. Sums are sums of whole numbers. Of the families
with similar counts, those with the smallest names are in the sample, and a name follows from areas alone. Each cell within one area is
in the sample once more, alone: of most families there is none, and of others one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tasks.optimize.prior import (
    STRATA,
    Families,
    LevelPrior,
    Sample,
    fitted,
    mean_of_part,
    parts_among_siblings,
    prior_means,
    shrunk_totals,
    stratum_of,
)
from tasks.optimize.reconcile import NodeEstimates
from tasks.tree.axis import BoolArray, FloatArray, IntArray

FEWEST = 300  # cells of a level to share out from which on a prior is fitted

_COLUMNS = ("family", "total", "size", "area", "value", "variance")  # of statistics as a table of floats

_UNITS = 2.0**10  # of a record, and of a record squared, in which sums are kept
_SAMPLED = 1_000  # cells of each stratum, or a family more, that are kept at most
_OF_AREA, _OF_STRATUM = -1, -2  # in place of the family, in rows about areas and about strata
_MIXERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_NAME_BITS = 52
_ALONE = (
    2.0**_NAME_BITS
)  # is added to the names of cells within one area that are in the sample alone; a float holds both


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """What is learnt of some families of a level. Strata are those of the mean count of a family's cells.

    Attributes:
        values: float64, shape (areas,), records: what the estimates of an area's cells add up to, by area of the refined axis.
        variances: float64, shape (areas,), records squared: likewise of their variances.
        cells: float64, shape (2 · strata,): how many cells there are, and how many within one area.
        sample: some families, in the order of their strata and names; of wide ones cells at even distances. Then some cells within one area.
        sizes: how many cells each of these has, float64, shape (families,).
        names: of these, float64, shape (families,).
        areas: of their cells, int64, shape (cells,); ~a for a cell within the area a.
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
        strata, given, of_areas = np.zeros(2 * STRATA), self.sample.sizes, np.zeros(len(self.values))
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


def statistics_of(
    families: Families, areas: IntArray, within: BoolArray, names: FloatArray, number_of_areas: int
) -> Statistics:
    """Return what is learnt of some families.

    Args:
        areas: of their cells on the refined axis, int64, shape (cells,).
        within: which of their cells count trips within one area, where their siblings do not, shape (cells,).
        names: of the families, as `hashed_names` gives them, shape (families,).
    """
    values = np.bincount(areas, np.rint(families.values * _UNITS), number_of_areas) / _UNITS
    variances = np.bincount(areas, np.rint(families.variances * _UNITS), number_of_areas) / _UNITS
    sizes, own = families.sizes.astype(np.float64), np.flatnonzero(within)
    of = families.family[own]
    alone = _families(np.arange(len(own) + 1), families.totals[of], families.values[own], families.variances[own])
    sample = _joined([families, alone])
    sizes_of_sample, names = np.append(sizes, sizes[of]), np.append(names, names[of] + _ALONE)
    cells = np.bincount(_strata(sample, sizes_of_sample, names), np.append(sizes, np.ones(len(own))), 2 * STRATA)
    fewest = _fewest(sample, sizes_of_sample, names, np.append(np.where(within, ~areas, areas), ~areas[own]))
    return Statistics(values, variances, cells.astype(np.float64), *fewest)


def nothing_learnt(number_of_areas: int) -> Statistics:
    """Return what is learnt of no family at all."""
    nothing, none = np.zeros(0), np.zeros(0, dtype=np.int64)
    sample = _families(np.zeros(1, dtype=np.int64), none, nothing, nothing)
    sums = np.zeros(number_of_areas), np.zeros(number_of_areas), np.zeros(2 * STRATA)
    return Statistics(*sums, sample, nothing, nothing, none)


def joined_statistics(parts: Sequence[Statistics]) -> Statistics:
    """Return the statistics of all the families of several; at least one part."""
    values, variances, cells = (
        np.sum([getattr(part, name) for part in parts], axis=0) for name in ("values", "variances", "cells")
    )
    sizes, names, areas = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("sizes", "names", "areas")
    )
    return Statistics(values, variances, cells, *_fewest(_joined([part.sample for part in parts]), sizes, names, areas))


def level_prior(learnt: Statistics, first_child: IntArray, measured: NodeEstimates | None = None) -> LevelPrior:
    """Return the prior of a level by what was learnt of all its families; without weights where there are too few cells to share out.

    Args:
        first_child: where the children of each area above begin on the refined axis, shape (areas above + 1,).
        measured: the totals of its areas where they are measured besides, shape (areas,). Those of the level's cells count by their
            variances beside them.
    """
    values, variances = learnt.values, learnt.variances
    if measured:
        own = measured.variances / (variances + measured.variances)
        values, variances = own * values + (1 - own) * measured.values, own * variances
    of_areas = shrunk_totals(values, variances, first_child)
    is_enough = np.split(learnt.cells, 2)[0].sum() >= FEWEST
    return LevelPrior(fitted(sample_of(learnt, of_areas, first_child)) if is_enough else np.zeros((0, 0)), of_areas)


def sample_of(statistics: Statistics, of_areas: FloatArray, first_child: IntArray) -> Sample:
    """Return the cells to which the prior of a level is fitted.

    Args:
        of_areas: M, of all areas, shape (areas,), records, >= 0.
        first_child: as in `level_prior`.
    """
    families, sizes, given = statistics.sample, statistics.sizes, statistics.sample.sizes
    alone, within = np.repeat(statistics.names >= _ALONE, given), statistics.areas < 0
    area, totals = np.where(within, ~statistics.areas, statistics.areas), families.totals.astype(np.float64)
    of_cells, of_families = np.repeat(totals, given), np.repeat(sizes, given)
    parts = parts_among_siblings(of_areas, first_child)[area]
    means = prior_means(totals, sizes, families.first, of_areas[area])
    means = np.where(alone, mean_of_part(of_cells, of_families, parts), means)
    stand_for = np.where(alone, 1.0, of_families / np.repeat(given, given))
    stratum = np.repeat(_strata(families, sizes, statistics.names), given)
    stand_for *= (statistics.cells / np.maximum(np.bincount(stratum, stand_for, 2 * STRATA), 1))[stratum]
    return Sample(families.values, families.variances, means, of_cells, stand_for, within)[alone | ~within]


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
    stratum, kept = _strata(families, sizes, names), np.minimum(families.sizes, _SAMPLED)
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


def _strata(families: Families, sizes: FloatArray, names: FloatArray) -> IntArray:
    """Return the strata of some families, of those of which there is only the cell within one area in the second half, shape (families,)."""
    return stratum_of(families.totals / sizes) + STRATA * (names >= _ALONE)


def _joined(parts: Sequence[Families]) -> Families:
    """Return the families of several, of no particular parents."""
    first = np.concatenate(([0], np.cumsum(np.concatenate([part.sizes for part in parts]))))
    totals, values, variances = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("totals", "values", "variances")
    )
    return _families(first, totals, values, variances)


def _families(first: IntArray, totals: IntArray, values: FloatArray, variances: FloatArray) -> Families:
    """Return families that are of no particular parents."""
    return Families(np.arange(len(totals)), np.arange(len(values)), first, totals, values, variances)
