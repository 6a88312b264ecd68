"""A release in memory, on data that may be seen: the steps of a release, on a shard_store in memory, with the truth at hand.

Nothing is stored and nothing is charged. The charges are there because no step draws what is not charged.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from flows.run.runner import report_nothing
from flows.run.walk import walk
from storage.counts.shard_files import shards_in_memory
from storage.ledger.accounts import Charge
from storage.record import Record
from storage.releases.register import Release
from storage.releases.shards import TRUNK, Branch, Shard, by_kind
from tasks.mechanisms import Mechanism
from tasks.noise.measure import TruthInMemory
from tasks.released.estimate import Estimate
from tasks.released.families import estimate_of
from tasks.released.sources.job import JobSource
from tasks.steps import take
from tasks.tree.axis import IntArray
from tasks.tree.frontier import Cells, Frontier, expand, joined, locate, root_of
from tasks.tree.job import Job
from tasks.tree.order import Tree
from tasks.tree.true_tree import TrueLevel, grow
from tasks.tree.views import Derived
from tasks.validate.coverage import MeasuredCells
from tasks.work.order import Step
from tasks.work.stage import Outcome


@dataclass(frozen=True, slots=True, eq=False)
class PublicTable:
    """A table that may be seen: its tree, the true levels from 0 to T, and the derived columns of views, by name.

    Attributes:
        groups: how many groups each finest region has, int64, where a public list says so; None otherwise.
    """

    tree: Tree
    levels: tuple[TrueLevel, ...]
    derived: Mapping[str, Derived] = field(default_factory=dict)
    groups: IntArray | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """A release that was made in memory: its work, all of it done."""

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
    def measured(self) -> list[MeasuredCells]:
        """What was measured of levels 0 to T, where every level is; of one that repeats another, what was measured of that."""
        levels = list[MeasuredCells]()
        for terms in self.job.record.release.levels:
            repeated = levels[-1].noisy[levels[-1].kept] if terms.same_as is not None else None
            levels.append(self._measured(terms.level, repeated))
        return levels

    def _measured(self, level: int, repeated: IntArray | None) -> MeasuredCells:
        job = self.job
        nodes = job.nodes(job.record.shards["counts"][level, TRUNK])
        noisy = np.concatenate(list(job.noisy(level, TRUNK))) if repeated is None else repeated
        if level == 0:
            return MeasuredCells(Cells(0, np.array([0, 1]), root_of(job.tree, 0).areas), noisy, np.ones(1, dtype=bool))
        cells = expand(job.tree, job.parents(level, TRUNK))
        kept = np.zeros(len(cells), dtype=bool)
        kept[locate(nodes.areas, cells.areas, job.tree.sizes(level))] = True
        return MeasuredCells(cells, noisy, kept)


def public_table(
    tree: Tree, leaf_areas: Sequence[IntArray], true_counts: IntArray, derived: Mapping[str, Derived] | None = None
) -> PublicTable:
    """Return a table that may be seen; its records are given as to `grow`.

    Args:
        derived: the derived columns of views, by name; none if left out.
    """
    return PublicTable(tree, tuple(grow(tree, leaf_areas, true_counts)), derived or {})


def try_release(
    table: PublicTable, release: Release, charges: Sequence[Charge], mechanism: Mechanism, sampler: Any
) -> Trial:
    """Make a release in memory, with its levels charged as the ledger would have them.

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


class _RecordInMemory:
    """Keeps the record of a release that nobody charges."""

    def __init__(self, release: Release, charges: Sequence[Charge], table: PublicTable) -> None:
        record = Record(release, {charge.level: charge for charge in charges}, {}, by_kind([]))
        store, tree = shards_in_memory(), table.tree.cascading(release.terms.cascades)
        self.job = Job(
            record, store, lambda: tree, lambda: None, lambda: table.derived, load_groups=lambda: table.groups
        )

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
