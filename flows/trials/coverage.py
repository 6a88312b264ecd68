"""Coverage in a comparison: columns of the rows of its trials, a table of its own, and a summary by group of cells."""

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import fmean, stdev

import polars as pl

from tasks.pages.trial_results import CoverageSpread, GroupIntervals, Spread
from tasks.uncertainty.shares import Shares
from tasks.validate.coverage import GROUPS, Covered


def coverage_columns(group: str) -> dict[str, str]:
    """Return which columns of the rows of trials hold the measures of a group's coverage."""
    return {measure: f"{measure} of {group}" for measure in ("cells", "coverage", "width")}


def coverage_row(covered: Mapping[str, Covered] | None) -> dict[str, float | None]:
    """Return the measures of all groups by the names of their columns."""
    return {
        column: getattr(covered[group], measure) if covered else None
        for group in GROUPS
        for measure, column in coverage_columns(group).items()
    }


def coverage_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return of the rows of trials a row per run, level and group of cells, where intervals are stated."""
    groups = [
        rows.select("mechanism", "epsilon", "run", "level", pl.lit(group).alias("group"), **coverage_columns(group))
        for group in GROUPS
    ]
    return pl.concat(groups, how="vertical_relaxed").drop_nulls("cells")


def coverage_answer(rows: pl.DataFrame) -> dict[str, GroupIntervals] | None:
    """Return the intervals of each group of cells, over the runs that had such cells; None where none are stated."""
    groups = {}
    for group in GROUPS:
        columns = coverage_columns(group)
        cells, coverage, width = (rows[columns[measure]].drop_nulls().to_list() for measure in columns)
        if not cells:
            return None
        groups[group] = GroupIntervals(fmean(cells), _coverage(coverage), spread(width) if width else None)
    return groups


def row_columns(covered: Covered | None) -> dict[str, float | None]:
    """Return what is known of the published rows by the names of their columns."""
    return {
        "rows_covered": covered.coverage if covered else None,
        "row_width": covered.width if covered else None,
    }


def share_columns(shares: Shares | None) -> dict[str, float | None]:
    """Return what a release would say of the share of noise rows, by the names of their columns."""
    return {
        "noise_rows": shares.noise if shares else None,
        "noise_rows_at_most": shares.noise_at_most if shares else None,
    }


def spread_of(column: pl.Series) -> Spread | None:
    """Return the mean, the least and the most over the runs that have a value; None where none has."""
    values = column.drop_nulls().to_list()
    return spread(values) if values else None


def spread(values: Sequence[float]) -> Spread:
    """Return the mean, the least and the most of some values."""
    return Spread(fmean(values), min(values), max(values))


def _coverage(values: Sequence[float]) -> CoverageSpread | None:
    if not values:
        return None
    error = stdev(values) / sqrt(len(values)) if len(values) > 1 else None
    return CoverageSpread(fmean(values), min(values), max(values), error)
