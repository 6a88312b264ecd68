"""A release in memory, on data that may be seen: the steps of a release, on a shard_store in memory, with the truth at hand.

Nothing is stored and nothing is charged. The charges are there because no step draws what is not charged.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from flows.walks.runner import report_nothing
from flows.walks.walk import walk
from storage.counts.shard_store import shards_in_memory
from storage.ledger.books import Charge, reserved_charges
from storage.record import Record
from storage.releases.register import Release
from storage.releases.shards import TRUNK, Branch, Shard, by_kind
from storage.releases.terms import SURVIVORS, FileTerms, IntervalTerms, LevelTerms, PrivacyTerms, RunTerms, Terms
from tasks.accounting.sensitivity import sensitivity_of
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import Law, LevelNoise
from tasks.mechanisms import AUTO, Mechanism, measuring
from tasks.noise.truth import TruthInMemory
from tasks.order import Step
from tasks.released.estimate import Estimate
from tasks.released.families import estimate_of
from tasks.released.sources.job import JobSource
from tasks.stage import Outcome
from tasks.steps import take
from tasks.tree.axis import BoolArray, IntArray
from tasks.tree.frontier import Cells, Frontier, expand, locate
from tasks.tree.job import Job
from tasks.tree.leaves import joined, root_of
from tasks.tree.order import Tree
from tasks.tree.true_tree import TrueLevel, grow
from tasks.tree.views import Derived


@dataclass(frozen=True, slots=True, eq=False)
class PublicTable:
    """A table that may be seen.

    Attributes:
        tree: the axes and their order.
        levels: the true levels from 0 to T.
        derived: the derived columns of views, by name.
    """

    tree: Tree
    levels: tuple[TrueLevel, ...]
    derived: Mapping[str, Derived] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredLevel:
    """What was measured of one level.

    Attributes:
        cells: all children of the nodes that are left of the level above; at level 0 the root.
        noisy: int64, shape (cells,), records.
        kept: which cells are left, shape (cells,).
    """

    cells: Cells
    noisy: IntArray
    kept: BoolArray


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A release that was made in memory.

    Attributes:
        job: its work, all of it done.
    """

    job: Job

    @property
    def released(self) -> list[Frontier]:
        """The released nodes of levels 0 to T."""
        record = self.job.record
        return [joined(level, self.job.level(level, record.released)) for level in range(record.finest + 1)]

    @property
    def published(self) -> Estimate:
        """What a release would say about its counts; every call reads them anew."""
        return estimate_of(JobSource(self.job))

    @property
    def measured(self) -> list[MeasuredLevel]:
        """What was measured of levels 0 to T, where every level is; of one that repeats another, what was measured of that."""
        levels = list[MeasuredLevel]()
        for terms in self.job.record.release.levels:
            repeated = levels[-1].noisy[levels[-1].kept] if terms.same_as is not None else None
            levels.append(self._measured(terms.level, repeated))
        return levels

    def _measured(self, level: int, repeated: IntArray | None) -> MeasuredLevel:
        job = self.job
        nodes = job.nodes(job.record.shards["counts"][level, TRUNK])
        noisy = np.concatenate(list(job.noisy(level, TRUNK))) if repeated is None else repeated
        if level == 0:
            return MeasuredLevel(Cells(0, np.array([0, 1]), root_of(job.tree, 0).areas), noisy, np.ones(1, dtype=bool))
        cells = expand(job.tree, job.parents(level, TRUNK))
        kept = np.zeros(len(cells), dtype=bool)
        kept[locate(nodes.areas, cells.areas, job.tree.sizes(level))] = True
        return MeasuredLevel(cells, noisy, kept)


def public_table(
    tree: Tree, leaf_areas: Sequence[IntArray], true_counts: IntArray, derived: Mapping[str, Derived] | None = None
) -> PublicTable:
    """Return a table that may be seen.

    Args:
        tree: the axes and their order.
        leaf_areas: per axis, int64, shape (records,): area at the axis' finest level; no combination twice.
        true_counts: int64, shape (records,), > 0; it may be empty.
        derived: the derived columns of views, by name; none if left out.
    """
    return PublicTable(tree, tuple(grow(tree, leaf_areas, true_counts)), derived or {})


def try_release(
    table: PublicTable, release: Release, charges: Sequence[Charge], mechanism: Mechanism, sampler: Any
) -> Trial:
    """Make a release in memory.

    Args:
        table: the table.
        release: what is released, as the store would have it.
        charges: of its levels, as the ledger would have them.
        mechanism: its mechanism.
        sampler: its noise.
    Raises:
        StoreError: a level is not charged as it would be drawn.
    """
    recorder, truth = _RecordInMemory(release, charges, table), TruthInMemory(table.levels)

    def start(step: Step) -> Future[Outcome]:
        done: Future[Outcome] = Future()
        done.set_result(Outcome("", take(step, recorder.job, mechanism, truth, sampler), 0.0))
        return done

    walk(recorder, mechanism, start, report_nothing)
    return Trial(recorder.job)


def try_scales(
    table: PublicTable,
    mechanism: Mechanism,
    scales: Sequence[float | None],
    sampler: Any,
    priority: str | None = None,
    law: Law = GAUSSIAN,
) -> Trial:
    """Make a release in memory with noise of given scales, which no budget has to be found for.

    Args:
        table: the table.
        mechanism: the mechanism; where it does not say which cells of its tree are measured, the rule of `measuring` does.
        scales: of the noise of each level from 0 to T, records; 0 where a level is exact, None where it repeats the level
            above. Levels above the mechanism's first view have no noise, whatever their scales: they are exact, or sums.
        sampler: draws the noise.
        priority: which of equally good counts are taken; the mechanism's first choice if left out.
        law: of the noise; the discrete Gaussian if left out.
    """
    tree, first, sums = table.tree, mechanism.views(table.tree)[0].number, mechanism.adds_up_leaves
    levels = tuple(
        _level_of_scale(tree, level, scale if sums or level >= first else 0.0, law, is_summed=sums and level < first)
        if scale is not None
        else replace(
            _level_of_scale(tree, level, 0.0, law, is_summed=True), is_summed=False, same_as=_own_above(scales, level)
        )
        for level, scale in enumerate(scales)
    )
    mechanism = measuring(mechanism, tree)
    privacy = PrivacyTerms("", "substitution", 1, True, None, "promise", 0.0, 0.0, 0.0, "", "", 0.0, "")
    terms = Terms(
        axes=tuple(axis.name for axis in tree.axes),
        steps=tree.steps,
        mechanism=mechanism.name,
        priority=priority,
        sampler="",
        keep_vault=False,
        keep_noisy_counts=True,
        published_spec={},
        unprotected=(),
        how_counted="",
        codebooks={},
        unlisted=(),
        waived=(),
        csv=None,
        records=False,
        noisy_counts=False,
        intervals=IntervalTerms(0.9, simultaneous=False, rounded=False),
        privacy=privacy,
        run=RunTerms("threads", None),
        files=FileTerms("", {}),
        measure=SURVIVORS if mechanism.measure == AUTO else mechanism.measure,
    )
    release = Release("trial", "trial", "trial", "reserved", "", "", "", terms, "", levels)
    return try_release(table, release, reserved_charges(release.id, levels), mechanism, sampler)


def _own_above(scales: Sequence[float | None], level: int) -> int:
    """Return the nearest level above that repeats none."""
    return max(above for above in range(level) if scales[above] is not None)


def _level_of_scale(tree: Tree, level: int, scale: float, law: Law, *, is_summed: bool) -> LevelTerms:
    """Return the terms of a level at the cost of its scale, for one record per unit."""
    plain = LevelTerms(
        level=level,
        axes=tree.level_names(level),
        possible_cells=tree.possible_cells(level),
        is_invariant=not (scale or is_summed),
        rho=Fraction(0),
        sigma=LevelNoise(law, scale).sigma if scale else 0.0,
        l2_sensitivity_squared=0,
        bound=None,
        is_summed=is_summed,
    )
    if is_summed or not scale:
        return plain
    moved = sensitivity_of("substitution", 1, is_root=level == 0)
    cost = law.cost(scale, 0, moved)
    return replace(
        plain,
        rho=Fraction(cost.rho),
        l2_sensitivity_squared=moved.l2_squared if law.costs_rho else 0,
        mechanism=law.name,
        epsilon=cost.epsilon,
        scale=LevelNoise(law, scale).stated_scale,
    )


class _RecordInMemory:
    """Keeps the record of a release that nobody charges."""

    def __init__(self, release: Release, charges: Sequence[Charge], table: PublicTable) -> None:
        record = Record(release, {charge.level: charge for charge in charges}, {}, by_kind([]))
        self.job = Job(record, shards_in_memory(), lambda: table.tree, lambda: None, lambda: table.derived)

    def prepare(self, step: Step) -> None:
        self.job.record.check_charged(step.level)
        if step.level in self.job.record.charges:
            self._know(self.job.record.with_drawing(step.level))

    def check(self, step: Step, made: Sequence[Shard]) -> None:
        """Trust what was made in this thread."""

    def give_up(self, step: Step) -> None:
        """Give nothing up: no turn is kept."""

    def cut(self, branches: Sequence[Branch]) -> None:
        self._know(self.job.record.with_branches(branches))

    def commit(self, shards: Sequence[Shard]) -> None:
        self._know(self.job.record.with_shards(shards))

    def _know(self, record: Record) -> None:
        self.job = replace(self.job, record=record)
