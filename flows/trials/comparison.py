"""A comparison of mechanisms on a public table: each is tried in memory several times, and compared with the true counts.

Nothing is charged and nothing is stored. Errors against the true counts are as confidential as the counts, so a table
is accepted only if its spec declares it public. In place of a confidential one a made-up table is drawn.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np
import polars as pl

from flows.planning.plan import Plan, make_plan
from flows.planning.scheme import tree_over
from flows.specification.file import SpecFile, declares_public_data
from flows.trials.contestants import Contestant, Tried
from flows.trials.entries import check_name, entries_of, has_ranges, usual_names
from flows.trials.in_memory import PublicTable, public_table
from flows.trials.made_up import made_up_table
from flows.trials.measures import (
    AskedUtility,
    asked_utilities,
    coverage_answer,
    coverage_row,
    row_columns,
    share_columns,
    spread,
    spread_of,
    utility_answer,
)
from flows.trials.sizes import emd_of_level, true_sizes
from flows.trials.verdict import verdicts
from storage.database.connections import store
from storage.errors import SpecError, UsageError
from storage.ledger.events import read_books
from storage.releases.register import find_release, state_of
from storage.releases.terms import Intervals, ViewTerms
from tasks.ingest.task import listed_groups, read_ends, read_in_memory
from tasks.pages.trial_results import ComparedLevel, LevelResult, MadeUp, MechanismResult, RangeDeviations, TrialResults
from tasks.released.estimate import Estimate
from tasks.tree.axis import IntArray
from tasks.tree.frontier import Frontier
from tasks.tree.views import Partition, sums_of_leaves
from tasks.unbiased.workloads import mean_and_worst
from tasks.validate.coverage import cells_covered, false_share, level_coverages, rows_covered
from tasks.validate.sums import SUMS
from tasks.validate.utility import cell_errors, level_errors, violations

_LIKE = "Compare on a made-up table of the same shape with --like, or on public data."

TRIED = ("mechanism", "epsilon", "run", "level")

MEASURES = ("max_absolute", "mean_absolute", "l1", "false_discovery", "false_negative")

ADDED = ("emd", "violations")  # of group sizes alone; of every level

STATED = ("rows_covered", "row_width", "false_rows", "false_signal", "noise_rows", "noise_rows_at_most", "bound_after")


@dataclass(frozen=True, slots=True, eq=False)
class ComparedView:
    """A view, and its true counts, int64, shape (cells,), records."""

    terms: ViewTerms
    partition: Partition
    true_counts: IntArray


@dataclass(frozen=True, eq=False)
class Comparison:
    """What is compared on what.

    Attributes:
        plan: of the spec, for its levels and its δ.
        refused: per mechanism that cannot be tried, at some ε or at any, why.
        notes: per mechanism for which not all of the spec holds, what was left out, and why.
        utilities: the measures of the leaves: margins and ranges, and those that are asked for.
        made_up: how the table was drawn, if it is made up.
    """

    plan: Plan
    table: PublicTable
    entries: tuple[Contestant, ...]
    runs: int
    refused: dict[str, str]
    notes: dict[str, list[str]]
    utilities: tuple[AskedUtility, ...] = ()
    made_up: MadeUp | None = None

    @cached_property
    def true_levels(self) -> list[Frontier]:
        """The true nodes of levels 0 to T; of group sizes the numbers of groups, where the table has those of at least each size."""
        if self.counts_groups:
            return true_sizes(self.table)
        return [Frontier(level, nodes.areas, nodes.true_counts) for level, nodes in enumerate(self.table.levels)]

    @property
    def counts_groups(self) -> bool:
        """Whether groups are counted by their sizes."""
        return self.plan.mechanism.counts_groups

    @cached_property
    def views(self) -> "tuple[ComparedView, ...]":
        """The views of the spec, with their true counts; errors of their cells are compared, whoever measures them."""
        leaves, views = self.true_levels[-1], []
        for terms in self.plan.named_views:
            partition = Partition(self.table.tree, self.plan.scheme.view(terms.number))
            views.append(ComparedView(terms, partition, sums_of_leaves(partition, leaves)))
        return tuple(views)

    @property
    def interval_terms(self) -> Intervals:
        """Which intervals a release by the spec would publish."""
        spec = self.plan.file.spec
        return Intervals(confidence=spec.release.intervals.confidence, rounded=not spec.keep_noisy_counts)


def make_comparison(
    file: SpecFile,
    mechanisms: Sequence[str],
    epsilons: Sequence[float],
    runs: int,
    utilities: Sequence[str] = (),
    made_up: MadeUp | None = None,
) -> Comparison:
    """Return a comparison, with its table read, or made up; refuse a table that is not public.

    Without mechanisms it is one of `usual_names`. A confidential table in place of which one is made up is not opened, and need not
    be there.

    Raises:
        SpecError: the spec does not declare its data public, a release of the table did not, or it could not be released.
        UsageError: a mechanism or a measure is unknown, an ε is out of range, or nothing is left to compare.
        InputError: the table, a codebook or a table of a measure breaks a rule.
    """
    if not made_up and not file.spec.public_data:
        raise SpecError(
            "public_data must be true for a comparison: errors against the true counts reveal confidential data.",
            field="public_data",
            hint=_LIKE,
        )
    for name in mechanisms:
        check_name(name)
    plan = make_plan(replace(file, is_closed=made_up is not None))
    names = list(dict.fromkeys(mechanisms or usual_names(plan)))
    table = made_up_table(plan, made_up) if made_up else _read(plan)
    asked = {name: entries_of(plan, name, epsilons) for name in names}
    entries = tuple(entry for of in asked.values() for entry in of.entries)
    refused = {name: " ".join(of.reasons) for name, of in asked.items() if of.reasons}
    notes = {name: [*of.notes] for name, of in asked.items() if of.notes}
    if not entries:
        raise UsageError(
            f"--mechanisms: none of them can be tried. {next(iter(refused.values()))}", field="--mechanisms"
        )
    comparison = Comparison(plan, table, entries, runs, refused, notes, made_up=made_up)
    return replace(comparison, utilities=asked_utilities(file, table.tree, comparison.true_levels[-1], utilities))


def _read(plan: Plan) -> PublicTable:
    """Return the table of a spec, which may be seen."""
    _refuse_charged(plan)
    spec = plan.file.spec
    codebooks, areas, true_counts = read_in_memory(plan.source, plan.units, plan.promised)
    tree = tree_over(codebooks, spec) if spec.unlisted else plan.tree
    table = public_table(tree, areas, true_counts, plan.derived)
    return replace(table, groups=listed_groups(plan.source, read_ends(plan.source)))


def trials_of(comparison: Comparison, entry: Contestant, runs: Sequence[int]) -> list[dict[str, Any]]:
    """Try an entry once for each of `runs`, and return a row per run and level: what was tried, its errors, seconds, and coverage.

    Of errors there are `MEASURES` and `ADDED`. Of coverage there are three columns for each group of cells (`coverage_columns`), and `STATED` for the published rows, null
    where there is nothing to say. Measures of the leaves (`AskedUtility.columns`) are null above the finest level. The views of
    the spec follow the levels, with their errors and what is said of their cells.
    """
    rows = []
    for run in runs:
        began = time.perf_counter()
        trial = entry.try_on(comparison.table)
        seconds = time.perf_counter() - began
        of_levels = _rows_of_levels(comparison, entry, trial)
        nothing = dict.fromkeys(of_levels[0])
        tried = {"mechanism": entry.name, "epsilon": entry.epsilon, "run": run, "seconds": seconds}
        rows += [nothing | of | tried for of in [*of_levels, *_rows_of_views(comparison, trial)]]
    return rows


def _rows_of_levels(comparison: Comparison, entry: Contestant, trial: Tried) -> list[dict[str, Any]]:
    """Return of levels 0 to T the errors, the coverage of questions, what is said of rows, and the measures of the leaves."""
    tree, true_levels = comparison.table.tree, comparison.true_levels
    bounds = entry.bounds(tree, trial, comparison.interval_terms)
    rows, levels = list[dict[str, Any]](), trial.released
    each = zip_longest(true_levels, levels, levels[1:], level_coverages(tree, true_levels, bounds))
    for true, nodes, below, covered in each:
        row = asdict(level_errors(tree, true, nodes)) | coverage_row(covered)
        row["violations"] = violations(tree, nodes, below)
        row["emd"] = emd_of_level(tree, true, nodes) if comparison.counts_groups else None
        for utility in comparison.utilities:
            says = true.level == tree.depth and (entry.adds_up or utility.name not in SUMS)
            row |= utility.row(tree, true, nodes) if says else dict.fromkeys(utility.columns.values())
        rows.append(row)
    stated = _stated(comparison, trial.published)
    return [row | columns for row, columns in zip(rows, stated, strict=True)]


def _stated(comparison: Comparison, published: Estimate | None) -> list[dict[str, Any]]:
    """Return `STATED` of levels 0 to T: what a release would say of its rows, and how that is; null where it says nothing."""
    tree, stated = comparison.table.tree, list[dict[str, Any]]()
    if published is None:
        return [dict.fromkeys(STATED) for _ in comparison.true_levels]
    for true in comparison.true_levels:
        rows = published.rows(true.level)[:]
        covered = rows_covered(tree, true, rows.areas, *rows.bounds[:2]) if rows.bounds else None
        marked = [areas[rows.signal] for areas in rows.areas]
        false = {"false_rows": false_share(tree, true, rows.areas), "false_signal": false_share(tree, true, marked)}
        known = published.known(true.level)
        stated.append(row_columns(covered) | false | share_columns(known.shares) | {"bound_after": known.bound})
    return stated


def _rows_of_views(comparison: Comparison, trial: Tried) -> list[dict[str, Any]]:
    """Return of the spec's views the errors, and where a release would state intervals of their cells what is covered."""
    rows, published = list[dict[str, Any]](), trial.published
    for number, view in enumerate(comparison.views, comparison.table.tree.depth + 1):
        row = asdict(cell_errors(number, view.true_counts, sums_of_leaves(view.partition, trial.released[-1])))
        if published and published.source.is_together:
            cells, _ = published.cells(view.terms.number)
            row |= row_columns(cells_covered(view.true_counts, *cells.bounds))
        rows.append(row)
    return rows


def comparison_answer(comparison: Comparison, rows: pl.DataFrame, folder: str) -> TrialResults:
    """Return the results of a comparison: per mechanism, ε and level the mean, the least and the most of every measure."""
    spec = comparison.plan.file.spec
    levels = [
        ComparedLevel(terms.level, dict(terms.axes), terms.possible_cells, len(true))
        for terms, true in zip(comparison.plan.levels, comparison.true_levels, strict=True)
    ]
    levels += [
        ComparedLevel(
            number,
            {name: level for name, level in view.partition.view.names.items() if level},
            len(view.partition),
            int(np.count_nonzero(view.true_counts)),
            view.terms.name,
        )
        for number, view in enumerate(comparison.views, len(levels))
    ]
    results = [_result(comparison, entry, rows) for entry in comparison.entries]
    return TrialResults(
        name=spec.name,
        dataset=spec.dataset,
        delta=spec.privacy.delta,
        neighbours=spec.privacy.neighbours,
        runs=comparison.runs,
        confidence=comparison.interval_terms.confidence,
        levels=levels,
        results=results,
        made_up=comparison.made_up,
        counted="groups" if comparison.counts_groups else "records",
        verdicts=verdicts(comparison.entries, comparison.utilities, rows, comparison.runs, results),
        refused=comparison.refused,
        notes=comparison.notes,
        folder=folder,
    )


def _refuse_charged(plan: Plan) -> None:
    """Refuse a table for which a release was charged whose spec did not declare it public.

    Raises:
        SpecError: names the release; what was confidential then is not made public by another spec.
    """
    table = plan.read_table()
    with store() as con:
        for release_id in read_books(con).charged_on(table.with_copies(con).is_of):
            if state_of(con, release_id) is None or not declares_public_data(find_release(con, release_id).spec):
                is_there = release_id in read_books(con).charged_on(plan.place_of_table.is_of)
                seen = "input.table" if is_there else "input.table has the same content as a table that"
                raise SpecError(
                    f"{seen} was charged by release {release_id}, whose spec did not set public_data: true."
                    " Errors against the true counts would reveal what that release protects.",
                    field="input.table",
                    hint=_LIKE,
                )


def _result(comparison: Comparison, entry: Contestant, rows: pl.DataFrame) -> MechanismResult:
    of_entry = rows.filter(mechanism=entry.name, epsilon=entry.epsilon)
    levels = list[LevelResult]()
    for (level,), tried in of_entry.group_by("level", maintain_order=True):
        spreads: dict[str, Any] = {column: spread_of(tried[column]) for column in (*MEASURES, *ADDED, *STATED)}
        levels.append(LevelResult(int(level), intervals=coverage_answer(tried), **spreads))
    seconds = spread(of_entry.filter(level=0)["seconds"].to_list())
    utility = utility_answer(comparison.utilities, of_entry)
    is_ordered = bool(comparison.plan.tree.ordered)
    deviations = {name: math.sqrt(variance) for name, variance in entry.variances.items()} if is_ordered else {}
    of_ranges = _of_ranges(entry) if has_ranges(comparison.plan.tree) else {}
    return MechanismResult(entry.name, entry.epsilon, entry.sigmas, seconds, levels, utility, deviations, of_ranges)


def _of_ranges(entry: Contestant) -> dict[str, RangeDeviations]:
    """Return the exact standard deviations of the ranges of a single ordered axis; nothing where the counts have a part in them."""
    variances, found = entry.range_variances, dict[str, RangeDeviations]()
    for workload, of in (mean_and_worst(variances) if variances is not None else {}).items():
        at_least = entry.least_mean_variance(workload)
        bound = None if at_least is None else math.sqrt(at_least)
        found[workload] = RangeDeviations(math.sqrt(of.mean), math.sqrt(of.worst), bound)
    return found
