"""A comparison of mechanisms on a public table: each is tried in memory several times, and compared with the true counts.

Nothing is charged and nothing is stored. Errors against the true counts are as confidential as the counts, so a table
is accepted only if its spec declares it public.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from flows.execution.reservation import reserved_release
from flows.mechanisms import MECHANISMS, Mechanism, mechanism_with
from flows.planning.compatibility import check_listed
from flows.planning.guarantee import guarantee_of
from flows.planning.plan import Plan, level_terms, make_plan, view_terms
from flows.planning.scheme import check_leaves, scheme_of, tree_over
from flows.spec.file import SpecFile, declares_public_data
from flows.spec.sections.privacy import Minimise, PrivacyKeys
from flows.trials.coverage import coverage_answer, coverage_row, row_columns, share_columns, spread, spread_of
from flows.trials.in_memory import SeenTable, Trial, seen_table, try_release
from flows.trials.utility import AskedUtility, asked_utilities, utility_answer
from storage.database.connections import store
from storage.errors import SpecError, UsageError
from storage.ledger.books import reserved_charges
from storage.ledger.events import read_books
from storage.releases.register import find_release, state_of
from storage.releases.terms import IntervalTerms, ViewTerms
from tasks.ingest.in_memory import read_in_memory
from tasks.laws.law import Law, LevelNoise
from tasks.publish.published_levels import ReleasedLevels
from tasks.publish.settled_levels import SettledLevels
from tasks.report.trial_results import ComparedLevel, LevelResult, MechanismResult, TrialResults
from tasks.tree.axis import IntArray
from tasks.tree.frontier import Frontier
from tasks.tree.order import Tree
from tasks.tree.views import Partition, sums_of_leaves
from tasks.uncertainty.intervals import margins_of, rounding_step
from tasks.uncertainty.repeated import for_every_level, own_levels
from tasks.validate.coverage import (
    Bounds,
    cells_covered,
    false_share,
    level_coverages,
    measured_bounds,
    rows_covered,
    summed_bounds,
    thresholded_bounds,
)
from tasks.validate.distances import cell_errors, level_errors

_SYNTHESISE = "Compare on public or synthetic data. `trellis synthesise` draws a synthetic set."

MEASURES = ("max_absolute", "mean_absolute", "l1", "false_discovery", "false_negative")

STATED = ("rows_covered", "row_width", "false_signal", "noise_rows", "noise_rows_at_most", "bound_after")

WITHOUT_VIEWS = "without_views"  # behind a colon: as if the spec named none

_REPLACED = ("epsilon", "rho", "target")  # by the ε at which a comparison is asked for


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """A mechanism at one ε.

    Attributes:
        name: as it was asked for: the mechanism, and its priority behind a colon where one was named.
        epsilon: of every one of its trials.
        plan: what a release of it would be.
    """

    name: str
    epsilon: float
    plan: Plan

    @property
    def sigmas(self) -> list[float]:
        """σ of levels 0 to T, 0 where a level is exact."""
        return [noise.sigma for noise in self.noises]

    @property
    def noises(self) -> list[LevelNoise]:
        """The noise of levels 0 to T."""
        return self.plan.scheme.noises(self.plan.guarantee.noises)

    def try_on(self, table: SeenTable) -> Trial:
        """Make a release in memory, by the steps of a release."""
        plan = self.plan
        release = reserved_release(plan, self.name, Path())
        release = replace(release, terms=replace(release.terms, unlisted=()))  # the codes are in the tree of the table
        sampler = plan.scheme.law.samplers[release.terms.sampler].draw
        return try_release(table, release, reserved_charges(release.id, release.parts), plan.mechanism, sampler)

    def bounds(self, tree: Tree, trial: Trial, terms: IntervalTerms) -> list[Bounds | None]:
        """Return the intervals of levels 0 to T as a release would state them; None where it would state none."""
        plan, confidence, noises = self.plan, terms.confidence, self.plan.guarantee.noises
        if threshold := max((level.threshold for level in plan.guarantee.by_map), default=0):
            leaves = thresholded_bounds(tree, trial.released[-1], noises[-1], threshold, confidence)
            return [None] * tree.depth + [leaves]
        if plan.scheme.is_together:
            return [None] * (tree.depth + 1)
        if plan.scheme.is_summed:
            return [summed_bounds(tree, nodes, noises[-1], confidence) for nodes in trial.released]
        steps = [rounding_step(sigma) if terms.rounded else 1 for sigma in self.sigmas]
        own = [self.noises[level.level] for level in own_levels(plan.levels)]
        margins = for_every_level(plan.levels, margins_of(own, confidence))
        return list[Bounds | None](measured_bounds(tree, trial.measured, trial.released, margins, steps))


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
        table: the table.
        entries: what is tried.
        runs: how often.
        refused: per mechanism that cannot be tried, at some ε or at any, why.
        notes: per mechanism for which not all of the spec holds, what was left out, and why.
        utilities: the measures of the leaves that are asked for.
    """

    plan: Plan
    table: SeenTable
    entries: tuple[Entry, ...]
    runs: int
    refused: dict[str, str]
    notes: dict[str, list[str]]
    utilities: tuple[AskedUtility, ...] = ()

    @property
    def true_levels(self) -> list[Frontier]:
        """The true nodes of levels 0 to T."""
        return [Frontier(level, nodes.areas, nodes.true_counts) for level, nodes in enumerate(self.table.levels)]

    @cached_property
    def views(self) -> "tuple[ComparedView, ...]":
        """The views of the spec, with their true counts; errors of their cells are compared, whoever measures them."""
        true, found = self.true_levels[-1], []
        for terms in self.plan.named_views:
            partition = Partition(self.table.tree, self.plan.scheme.view(terms.number))
            found.append(ComparedView(terms, partition, sums_of_leaves(partition, true)))
        return tuple(found)

    @property
    def interval_terms(self) -> IntervalTerms:
        """Which intervals a release by the spec would publish."""
        spec = self.plan.file.spec
        return IntervalTerms(spec.release.intervals.confidence, simultaneous=False, rounded=not spec.keep_noisy_counts)


def make_comparison(
    file: SpecFile,
    mechanisms: Sequence[str],
    epsilons: Sequence[float],
    runs: int,
    utilities: Sequence[str] = (),
) -> Comparison:
    """Return a comparison, with its table read; refuse a table that is not public.

    Raises:
        SpecError: the spec does not declare its data public, a release of the table did not, or it could not be released.
        UsageError: a mechanism or a measure is unknown, an ε is out of range, or nothing is left to compare.
        InputError: the table, a codebook or a table of a measure breaks a rule.
    """
    if not file.spec.public_data:
        raise SpecError(
            "public_data must be true for a comparison: errors against the true counts reveal confidential data.",
            field="public_data",
            hint=_SYNTHESISE,
        )
    wanted = [_named(name) for name in dict.fromkeys(mechanisms)]
    plan = make_plan(file)
    _refuse_charged(plan)
    codebooks, areas, true_counts = read_in_memory(plan.source, plan.units, plan.promised)
    tree = tree_over(codebooks, file.spec) if plan.unlisted else plan.tree
    table = seen_table(tree, areas, true_counts, plan.derived)
    entries: list[Entry] = []
    refused, notes = {}, {}
    for mechanism, named in wanted:
        name = f"{mechanism.name}:{named}" if named else mechanism.name
        tried, reasons = _entries(plan, name, mechanism, named, epsilons)
        entries += tried
        if reasons:
            refused[name] = " ".join(reasons)
        if tried and (left_out := _notes(plan, mechanism, named)):
            notes[name] = left_out
    if not entries:
        raise UsageError(
            f"--mechanisms: none of them can be tried. {next(iter(refused.values()))}", field="--mechanisms"
        )
    comparison = Comparison(plan, table, tuple(entries), runs, refused, notes)
    return replace(comparison, utilities=asked_utilities(file, tree, comparison.true_levels[-1], utilities))


def trials_of(comparison: Comparison, entry: Entry, runs: Sequence[int]) -> list[dict[str, Any]]:
    """Try an entry so many times, and return a row per run and level: what was tried, its errors, seconds, and coverage.

    Of coverage there are three columns for each group of cells (`coverage_columns`), and `STATED` for the published rows, null
    where there is nothing to say. Measures of the leaves (`AskedUtility.columns`) are null above the finest level.
    """
    table, true_levels, rows = comparison.table, comparison.true_levels, []
    for run in runs:
        began = time.perf_counter()
        trial = entry.try_on(table)
        seconds = time.perf_counter() - began
        coverages = level_coverages(table.tree, true_levels, entry.bounds(table.tree, trial, comparison.interval_terms))
        is_settled = entry.plan.scheme.is_together
        published = SettledLevels(trial.job) if is_settled else ReleasedLevels(trial.job)
        of_run = list[dict[str, Any]]()
        for true, nodes, covered in zip(true_levels, trial.released, coverages, strict=True):
            errors = asdict(level_errors(table.tree, true, nodes))
            row = {"mechanism": entry.name, "epsilon": entry.epsilon, "run": run} | errors | {"seconds": seconds}
            of_rows = published.rows(true.level)
            stated = rows_covered(table.tree, true, of_rows.areas, *of_rows.bounds[:2]) if of_rows.bounds else None
            false = false_share(table.tree, true, [areas[of_rows.signal] for areas in of_rows.areas])
            shares = share_columns(published.shares(true.level))
            of_run.append(row | coverage_row(covered) | row_columns(stated) | {"false_signal": false} | shares)
            for utility in comparison.utilities:
                is_finest = true.level == table.tree.depth
                of_run[-1] |= utility.row(table.tree, true, nodes) if is_finest else utility.no_row()
        rows += [row | {"bound_after": of.bound} for row, of in zip(of_run, published.known_after(), strict=True)]
        for number, view in enumerate(comparison.views, table.tree.depth + 1):
            counts = sums_of_leaves(view.partition, trial.released[-1])
            row = dict.fromkeys(of_run[0]) | {"bound_after": None, "mechanism": entry.name, "epsilon": entry.epsilon}
            row |= {"run": run, "seconds": seconds} | asdict(cell_errors(number, view.true_counts, counts))
            if isinstance(published, SettledLevels):
                low, high = published.view_intervals(view.terms)
                row |= row_columns(cells_covered(view.true_counts, low, high))
            rows.append(row)
    return rows


def error_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return of the rows of trials what was tried, its errors and its seconds."""
    return rows.select("mechanism", "epsilon", "run", "level", *MEASURES, "seconds")


def stated_rows(rows: pl.DataFrame) -> pl.DataFrame:
    """Return of the rows of trials what was tried, and what is said and true of the published rows of each level."""
    return rows.select("mechanism", "epsilon", "run", "level", *STATED, "false_discovery")


def comparison_answer(comparison: Comparison, rows: pl.DataFrame, folder: str) -> TrialResults:
    """Return what a comparison found: per mechanism, ε and level the mean, the least and the most of every measure."""
    spec = comparison.plan.file.spec
    levels = [
        ComparedLevel(terms.level, dict(terms.axes), terms.possible_cells, len(true))
        for terms, true in zip(comparison.plan.levels, comparison.table.levels, strict=True)
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
    return TrialResults(
        name=spec.name,
        dataset=spec.dataset,
        delta=spec.privacy.delta,
        neighbours=spec.privacy.neighbours,
        runs=comparison.runs,
        confidence=comparison.interval_terms.confidence,
        levels=levels,
        results=[_result(entry, rows, comparison.utilities) for entry in comparison.entries],
        refused=comparison.refused,
        notes=comparison.notes,
        folder=folder,
    )


def _named(name: str) -> tuple[Mechanism, str]:
    """Return the mechanism, and what is named behind a colon: one of its priorities, or that it goes without the spec's views."""
    of, _, priority = name.partition(":")
    if of not in MECHANISMS:
        raise UsageError(f"--mechanisms must be among {', '.join(MECHANISMS)}, got {of}.", field="--mechanisms")
    of_views = [WITHOUT_VIEWS] if MECHANISMS[of].cells == "survivors" else []
    if priority and priority not in [*MECHANISMS[of].repair, *of_views]:
        of_it = ", ".join([*MECHANISMS[of].repair, *of_views]) or "none"
        raise UsageError(f"--mechanisms: {of} has the priorities {of_it}; got {priority}.", field="--mechanisms")
    return MECHANISMS[of], priority


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
                    hint=_SYNTHESISE,
                )


def _entries(
    plan: Plan, name: str, mechanism: Mechanism, named: str, epsilons: Sequence[float]
) -> tuple[list[Entry], list[str]]:
    """Return a mechanism at every ε at which it can be tried, and why it cannot be at the others."""
    try:
        mechanism = _with_views(plan, mechanism, named)
        check_listed(plan.file.spec, mechanism)
        check_leaves(plan.file.spec, plan.tree, mechanism)
    except SpecError as reason:
        return [], [str(reason)]
    entries, reasons = [], []
    for epsilon in dict.fromkeys(epsilons):
        try:
            priority = named if named in mechanism.repair else _priority(plan, mechanism)
            entries.append(_entry(plan, name, mechanism, priority, epsilon))
        except SpecError as reason:
            reasons.append(f"At epsilon {epsilon:g}: {reason}")
    return entries, reasons


def _with_views(plan: Plan, mechanism: Mechanism, named: str) -> Mechanism:
    """Return a mechanism as it is with the spec's views, unless it is asked for without them.

    Raises:
        SpecError: it needs views, and the spec has none.
    """
    has_views = bool(plan.named_views) and named != WITHOUT_VIEWS
    if mechanism.cells == "views" and not has_views:
        raise SpecError(f"release.views must be given for mechanism {mechanism.name}.", field="release.views")
    return mechanism if named in mechanism.repair and named else mechanism_with(mechanism, has_views=has_views)


def _priority(plan: Plan, mechanism: Mechanism) -> str:
    """Return the spec's priority where the mechanism has it."""
    priority = plan.file.spec.priority
    return priority if priority and priority in mechanism.repair else ""


def _notes(plan: Plan, mechanism: Mechanism, named: str) -> list[str]:
    """Return which keys of the spec hold for a mechanism in another way than for the others, in sentences."""
    spec = plan.file.spec
    notes = [
        f"privacy.{key} is left out: {reason}."
        for key, reason in _refused(plan, mechanism).items()
        if key not in _REPLACED
        and getattr(spec.privacy, key) != PrivacyKeys.model_fields[key].get_default(call_default_factory=True)
    ]
    if spec.noise.sampler not in _law(plan, mechanism).samplers:
        notes.append(f"noise.sampler is {_sampler(plan, mechanism)}, because it has no {spec.noise.sampler}.")
    if plan.named_views and _with_views(plan, mechanism, named).cells != "views":
        notes.append("release.views is left out: its views are sums of what it releases.")
    if spec.priority and not named:
        has = spec.priority in mechanism.repair
        notes.append(
            f"priority is {spec.priority}." if has else f"priority is left out, because it has no {spec.priority}."
        )
    return notes


def _law(plan: Plan, mechanism: Mechanism) -> Law:
    """Return the law of the spec's noise where the mechanism has it, otherwise its default."""
    return mechanism.laws.get(plan.law, mechanism.default_law)


def _refused(plan: Plan, mechanism: Mechanism) -> dict[str, str]:
    """Return the keys of the spec's privacy that a mechanism does not take with its law, with the reasons."""
    return {**_law(plan, mechanism).refused, **mechanism.refused}


def _sampler(plan: Plan, mechanism: Mechanism) -> str:
    """Return the spec's sampler where the mechanism has it, otherwise its first."""
    sampler: str = plan.file.spec.noise.sampler
    samplers = _law(plan, mechanism).samplers
    return sampler if sampler in samplers else next(iter(samplers))


def _entry(plan: Plan, name: str, mechanism: Mechanism, priority: str, epsilon: float) -> Entry:
    """Return a mechanism at an ε; the spec's other privacy keys hold where the mechanism uses them."""
    spec = plan.file.spec
    without = {
        key: PrivacyKeys.model_fields[key].get_default(call_default_factory=True) for key in _refused(plan, mechanism)
    }
    keys = spec.privacy.model_copy(update={**without, **dict.fromkeys(_REPLACED), "epsilon": epsilon})
    sampler = _sampler(plan, mechanism)
    law = _law(plan, mechanism)
    has_views = mechanism.cells == "views"
    if isinstance(keys.split, dict | Minimise) and not has_views:
        keys = keys.model_copy(update={"split": "uniform"})
    views = plan.scheme.named_views if has_views else []
    scheme = scheme_of(keys, plan.tree, plan.whole, mechanism, sampler, law, views)
    guarantee = guarantee_of(scheme)
    tried = spec.model_copy(
        update={
            "mechanism": mechanism.name,
            "priority": priority or None,
            "privacy": keys,
            "noise": spec.noise.model_copy(update={"sampler": sampler}),
        }
    )
    return Entry(
        name,
        epsilon,
        replace(
            plan,
            file=replace(plan.file, spec=tried),
            mechanism=mechanism,
            law=plan.law if plan.law in mechanism.laws else next(iter(mechanism.laws)),
            scheme=scheme,
            guarantee=guarantee,
            levels=level_terms(scheme, guarantee),
            views=view_terms(scheme, guarantee) if has_views else (),
            named_views=plan.named_views if has_views else (),
        ),
    )


def _result(entry: Entry, rows: pl.DataFrame, utilities: Sequence[AskedUtility]) -> MechanismResult:
    of_entry = rows.filter(mechanism=entry.name, epsilon=entry.epsilon)
    levels = [
        LevelResult(
            int(level),
            **{measure: spread(of_level[measure].to_list()) for measure in MEASURES},
            intervals=coverage_answer(of_level),
            rows_covered=spread_of(of_level["rows_covered"]),
            row_width=spread_of(of_level["row_width"]),
            false_signal=spread_of(of_level["false_signal"]),
            noise_rows=spread_of(of_level["noise_rows"]),
            noise_rows_at_most=spread_of(of_level["noise_rows_at_most"]),
            bound_after=spread_of(of_level["bound_after"]),
        )
        for (level,), of_level in of_entry.group_by("level", maintain_order=True)
    ]
    seconds = spread(of_entry.filter(level=0)["seconds"].to_list())
    utility = utility_answer(utilities, of_entry)
    return MechanismResult(entry.name, entry.epsilon, entry.sigmas, seconds, levels, utility)
