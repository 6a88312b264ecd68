"""What a comparison measures besides errors: coverage by group of cells, and how useful released leaves are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Any

import polars as pl

from flows.specification.file import SpecFile
from flows.specification.keys import Spec
from flows.specification.sections.hierarchy import Values
from flows.specification.sections.utility import FleetKeys, UtilityKeys
from storage.errors import InputError, SpecError, UsageError
from tasks.ingest.sources.locations import names_a_table
from tasks.ingest.tables import read_texts
from tasks.pages.trial_results import CoverageSpread, GroupIntervals, Spread
from tasks.tree.frontier import Frontier
from tasks.tree.order import Tree
from tasks.uncertainty.noise_rows import Shares
from tasks.validate.coverage import GROUPS, Covered
from tasks.validate.sums import SUMS
from tasks.validate.utility import UTILITIES, Utility, UtilityTerms
from tasks.words.spelling import did_you_mean


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
        covered = None
        if coverage:
            error = stdev(coverage) / sqrt(len(coverage)) if len(coverage) > 1 else None
            covered = CoverageSpread(fmean(coverage), min(coverage), max(coverage), error)
        groups[group] = GroupIntervals(fmean(cells), covered, spread(width) if width else None)
    return groups


def row_columns(covered: Covered | None) -> dict[str, float | None]:
    """Return what is known of the published rows by the names of their columns."""
    coverage, width = (covered.coverage, covered.width) if covered else (None, None)
    return {"rows_covered": coverage, "row_width": width}


def share_columns(shares: Shares | None) -> dict[str, float | None]:
    """Return what a release would say of the share of noise rows, by the names of their columns."""
    noise, at_most = (shares.noise, shares.noise_at_most) if shares else (None, None)
    return {"noise_rows": noise, "noise_rows_at_most": at_most}


def spread_of(column: pl.Series) -> Spread | None:
    """Return the mean, the least and the most over the runs that have a value; None where none has."""
    values = column.drop_nulls().to_list()
    return spread(values) if values else None


def spread(values: Sequence[float]) -> Spread:
    """Return the mean, the least and the most of some values."""
    return Spread(fmean(values), min(values), max(values))


@dataclass(frozen=True, slots=True, eq=False)
class AskedUtility:
    """A measure of the leaves, of `SUMS` or, where it is asked for, of `UTILITIES`: what the spec says of it, and the names of its numbers."""

    name: str
    measure: Utility
    terms: UtilityTerms
    numbers: tuple[str, ...]

    @property
    def columns(self) -> dict[str, str]:
        """Which columns of the rows of trials hold the numbers, by the names of the numbers."""
        return {number: f"{self.name}: {number}" for number in self.numbers}

    def row(self, tree: Tree, true: Frontier, released: Frontier) -> dict[str, float | None]:
        """Return the numbers of one trial by the names of their columns."""
        numbers = self.measure(tree, true, released, self.terms)
        return {column: numbers[number] for number, column in self.columns.items()}


def asked_utilities(file: SpecFile, tree: Tree, true: Frontier, names: Sequence[str]) -> tuple[AskedUtility, ...]:
    """Return the measures of `SUMS` that say something of a tree, and others by their names.

    Each is there once, and tried on the true leaves, so that terms that do not fit are refused before any trial.

    Raises:
        UsageError: a measure is unknown.
        SpecError: the spec lacks the section of a measure.
        InputError: a table of the section cannot be read, or the terms do not fit the tree.
    """
    always = {name: tuple(measure(tree, true, true, UtilityTerms())) for name, measure in SUMS.items()}
    asked = [AskedUtility(name, SUMS[name], UtilityTerms(), of) for name, of in always.items() if of]
    for name in dict.fromkeys(names):
        if name not in UTILITIES:
            raise UsageError(
                f"--utility must be among {', '.join(UTILITIES)}, got {name}.",
                field="--utility",
                hint=did_you_mean(name, UTILITIES),
            )
        measure, terms = UTILITIES[name], _terms(file, name)
        try:
            numbers = tuple(measure(tree, true, true, terms))
        except ValueError as fault:
            key = f"utility.{name}.{fault}"
            raise InputError(key, field=key.split(" ", 1)[0]) from None
        asked.append(AskedUtility(name, measure, terms, numbers))
    return tuple(asked)


def of_leaves(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the finest level; those of views come after them."""
    return rows.filter(pl.col("level") == rows.drop_nulls("violations")["level"].max())


def utility_rows(asked: Sequence[AskedUtility], rows: pl.DataFrame) -> pl.DataFrame:
    """Return of the rows of trials a row per run, measure and number; null where a number does not exist."""
    leaves = of_leaves(rows)
    return pl.concat(
        leaves.select(
            *("mechanism", "epsilon", "run"),
            pl.lit(utility.name).alias("utility"),
            pl.lit(number).alias("number"),
            pl.col(column).cast(pl.Float64).alias("value"),
        )
        for utility in asked
        for number, column in utility.columns.items()
    )


def utility_answer(
    asked: Sequence[AskedUtility], of_entry: pl.DataFrame
) -> dict[str, Mapping[str, Spread | None]] | None:
    """Return the numbers of each measure over the runs that have them; None where no measure is asked for."""
    return {
        utility.name: {number: spread_of(of_entry[column]) for number, column in utility.columns.items()}
        for utility in asked
    } or None


def _terms(file: SpecFile, name: str) -> UtilityTerms:
    spec = file.spec
    section = spec.utility.section(name) if spec.utility else None
    keys: dict[str, Any]
    if isinstance(section, FleetKeys):
        keys, tables = section.terms(spec.released_levels), list(section.TABLES)
    elif name in UtilityKeys.model_fields:
        raise SpecError(
            f"utility.{name} must be given for --utility {name}.",
            field=f"utility.{name}",
            hint=f"Add to the spec a section such as {FleetKeys.EXAMPLE}.",
        )
    else:
        keys = dict(section or {})
        tables = [key for key, value in keys.items() if isinstance(value, str) and names_a_table(value)]
    return UtilityTerms(
        {key: value for key, value in keys.items() if key not in tables},
        {key: read_texts(file.table(f"utility.{name}.{key}", keys[key])) for key in tables},
        _listed(spec),
    )


def _listed(spec: Spec) -> dict[str, tuple[str, ...]]:
    """Return the codes of each axis whose codes the spec lists itself, in its order."""
    domains = {axis: spec.hierarchy_of(axis)[1] for axis in spec.axes}
    return {
        axis: domain.values
        for axis, domain in domains.items()
        if isinstance(domain, Values) and isinstance(domain.values, tuple)
    }
