"""Coverage in a comparison: columns of the rows of its trials, a table of their own, and what is said of them."""

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import fmean, stdev
from typing import Any

import polars as pl

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


def coverage_answer(of_level: pl.DataFrame) -> dict[str, Any] | None:
    """Return, per group of cells, how they were covered in the runs in which there were any; None where nothing is stated."""
    groups = {}
    for group in GROUPS:
        columns = coverage_columns(group)
        cells, coverage, width = (of_level[columns[measure]].drop_nulls().to_list() for measure in columns)
        if not cells:
            return None
        error = stdev(coverage) / sqrt(len(coverage)) if len(coverage) > 1 else None
        groups[group] = {
            "cells": fmean(cells),
            "coverage": spread(coverage) | {"standard_error": error} if coverage else None,
            "width": spread(width) if width else None,
        }
    return groups


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return the mean, the least and the most of some values."""
    return {"mean": fmean(values), "min": min(values), "max": max(values)}
