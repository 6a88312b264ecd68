"""The keeper of a release in the store, and the stages that take its steps."""

from collections.abc import Sequence
from typing import Any

from flows.mechanisms import Mechanism
from flows.walks.orders import carry_out, order_of, stage_of
from flows.walks.runner import Future, Report, Submit
from flows.walks.steps import CalibrateAll, Cuts, Fit, Measure, SettleTogether, Step, Sum
from flows.walks.walk import walk
from storage.counts.shards import noisy_path
from storage.database.connections import store, transaction
from storage.ledger.events import advance, note
from storage.record import Shard
from storage.releases.register import Release
from storage.releases.seals import (
    Branch,
    EstimateShard,
    FrontierShard,
    add_branches,
    add_estimates,
    add_frontier,
    add_learnt,
    add_seal,
    add_settled,
)
from tasks.capacity import memory_of
from tasks.groups.task import Sizes, settle_sizes_release
from tasks.optimize.task import sum_level
from tasks.settle.calibrate import calibrate_release
from tasks.settle.task import settle_release
from tasks.shrink.task import fit_level
from tasks.stage import Outcome, memory_of_branch, most_branches
from tasks.tree.branches import most_cells
from tasks.tree.job import Job, job_of, stored_job
from tasks.unbiased.task import Unbiased, settle_unbiased_release


def walk_release(
    release: Release, mechanism: Mechanism, submit: Submit, report: Report, only: str | None = None
) -> tuple[list[Outcome], list[str]]:
    """Take every step that a release lacks, or one of its branches, by stages; arguments and results are those of `walk`."""
    terms = release.terms
    cuts = Cuts(most_cells(memory_of_branch(memory_of(terms.run)), 1, len(terms.axes)), wanted=most_branches())
    keeper = StoredRecord(release.id)

    def start(step: Step) -> Future:
        order = order_of(step, keeper.job.record)
        if order:
            return submit(stage_of(order), order, carry_out)
        stage, *arguments = _stage_at_home(step, mechanism)
        return submit(stage, release.id, *arguments)

    return walk(keeper, mechanism, start, report, only, cuts)


def _stage_at_home(step: Step, mechanism: Mechanism) -> tuple[Any, ...]:
    """Return the stage that takes a step which no order says, and its arguments but for the release."""
    match step:
        case Sum(level, branch):
            return sum_level, level, branch
        case Fit(level, branch):
            return fit_level, level, branch
        case SettleTogether():
            if isinstance(mechanism.finish, Sizes):
                return settle_sizes_release, mechanism.finish.of.estimate
            return (settle_unbiased_release if isinstance(mechanism.finish, Unbiased) else settle_release,)
        case CalibrateAll():
            return (calibrate_release,)
        case _:
            raise TypeError(f"No stage takes {step}.")


class StoredRecord:
    """Keeps the record of a release in the store. What other processes record of the release meanwhile is not seen."""

    def __init__(self, release_id: str) -> None:
        self.job: Job = stored_job(release_id)

    def prepare(self, step: Measure) -> None:
        """Mark a charge before its level's first draw; remove unread what was drawn and never sealed."""
        record = self.job.record
        charge = record.charges.get(step.level)
        record.check_charged(step.level)
        if charge and charge.state == "reserved":
            with store() as con, transaction(con):
                advance(con, record.release.id, step.level, "drawing")
            self.job = job_of(record.with_drawing(step.level))
        self._remove_unsealed(step.level, step.branch)

    def cut(self, branches: Sequence[Branch]) -> None:
        """Record how a branch was cut; what was drawn of it beyond the cut was never sealed."""
        self._remove_unsealed(branches[0].cut_level + 1, branches[0].parent)
        record = self.job.record
        with store() as con, transaction(con):
            add_branches(con, record.release.id, branches)
        self.job = job_of(record.with_branches(branches))

    def commit(self, shards: Sequence[Shard]) -> None:
        """Record what steps have made, in one short transaction."""
        before, release_id = self.job.record, self.job.record.release.id
        record = before.with_shards(shards)
        with store() as con, transaction(con):
            for shard in shards:
                if isinstance(shard, EstimateShard):
                    (add_estimates if shard.kind == "estimates" else add_learnt)(con, release_id, shard)
                elif isinstance(shard, FrontierShard):
                    (add_frontier if shard.kind == "counts" else add_settled)(con, release_id, shard)
                elif (shard.level, shard.branch) not in before.seals:
                    add_seal(con, release_id, shard)
            for level, charge in record.charges.items():
                if charge != before.charges[level]:
                    advance(con, release_id, level, charge.state, seals=record.hashes(level))
        self.job = job_of(record)

    def _remove_unsealed(self, level: int, branch: str) -> None:
        """Remove unread what was drawn and never sealed."""
        release_id = self.job.record.release.id
        unsealed = noisy_path(release_id, level, branch)
        if unsealed.exists():
            with store() as con, transaction(con):
                note(con, "unsealed shard removed unread", release_id, level=level, branch=branch)
            unsealed.unlink()
