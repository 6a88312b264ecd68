"""The keeper of a release in the store, and the stages that take its steps."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from flows.mechanisms import Mechanism
from flows.walks.orders import carry_out, order_of, stage_of
from flows.walks.runner import Future, Report, Submit
from flows.walks.steps import CalibrateAll, Cuts, Fit, Measure, SettleTogether, Step, Sum
from flows.walks.walk import walk
from storage.counts.shards import (
    estimates_name,
    frontier_path,
    is_shard,
    noisy_path,
    place_of_noisy,
    shard_path,
    shards_of_levels,
)
from storage.database.connections import store, transaction
from storage.errors import WorkerLost
from storage.ledger.events import advance, note
from storage.record import Record, Shard
from storage.releases.register import Release
from storage.releases.seals import (
    Branch,
    EstimateShard,
    FrontierShard,
    Place,
    Seal,
    add_branches,
    add_estimates,
    add_frontier,
    add_learnt,
    add_seal,
    add_settled,
)
from storage.releases.turns import OPEN, close_turn, give_up_turn, list_turns, open_turn
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
        order = order_of(step, keeper.job.record, keeper.turn_of(step))
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
    """Keeps the record of a release in the store. What other processes record of the release meanwhile is not seen.

    First it gives up the turns that a run left open which was stopped, and removes what that left and nobody recorded.
    """

    def __init__(self, release_id: str) -> None:
        self.job: Job = stored_job(release_id)
        self._turns: dict[Place, int] = {}
        with store() as con:
            left_open = [turn for turn in list_turns(con, release_id) if turn.state == OPEN]
        if left_open:
            with store() as con, transaction(con):
                for turn in left_open:
                    give_up_turn(con, release_id, (turn.level, turn.branch), turn.turn)
        recorded = _paths_of(self.job.record)
        self._remove_unread(path for path in shards_of_levels(release_id) if path not in recorded)

    def turn_of(self, step: Step) -> int:
        """Return the turn in which a step is taken; 0 where it draws nothing."""
        return self._turns[step.level, step.branch] if isinstance(step, Measure) else 0

    def prepare(self, step: Measure) -> None:
        """Mark a charge before its level's first draw, and open a turn, after what earlier turns drew is removed unread."""
        record, place = self.job.record, (step.level, step.branch)
        record.check_charged(step.level)
        self._remove_unread(path for path in shards_of_levels(record.release.id) if place_of_noisy(path) == place)
        charge = record.charges.get(step.level)
        begins = charge is not None and charge.state == "reserved"
        with store() as con, transaction(con):
            if begins:
                advance(con, record.release.id, step.level, "drawing")
            self._turns[place] = open_turn(con, record.release.id, place)
        if begins:
            self.job = job_of(record.with_drawing(step.level))

    def check(self, step: Step, made: Sequence[Shard]) -> None:
        """Refuse what was drawn in any turn but the open one, and a shard that is not what its hash says."""
        if isinstance(step, Measure):
            ordered = step.level, step.branch, self._turns[step.level, step.branch]
            if len(made) != 1 or not _is_drawn(self.job.record.release.id, made[0], ordered):
                raise WorkerLost(f"What was drawn for level {step.level} is not what was promised.")

    def give_up(self, step: Measure) -> None:
        """Give up the turn of a step: what was drawn in it will not be read, whenever it arrives."""
        place, release_id = (step.level, step.branch), self.job.record.release.id
        with store() as con, transaction(con):
            give_up_turn(con, release_id, place, self._turns.pop(place))

    def cut(self, branches: Sequence[Branch]) -> None:
        """Record how a branch was cut."""
        record = self.job.record
        with store() as con, transaction(con):
            add_branches(con, record.release.id, branches)
        self.job = job_of(record.with_branches(branches))

    def commit(self, shards: Sequence[Shard]) -> None:
        """Record what steps have made, in one short transaction. A seal closes its turn."""
        before, release_id = self.job.record, self.job.record.release.id
        record = before.with_shards(shards)
        with store() as con, transaction(con):
            for shard in shards:
                if isinstance(shard, EstimateShard):
                    (add_estimates if shard.kind == "estimates" else add_learnt)(con, release_id, shard)
                elif isinstance(shard, FrontierShard):
                    (add_frontier if shard.kind == "counts" else add_settled)(con, release_id, shard)
                else:
                    close_turn(con, release_id, (shard.level, shard.branch), shard.turn)
                    add_seal(con, release_id, shard)
            for level, charge in record.charges.items():
                if charge != before.charges[level]:
                    advance(con, release_id, level, charge.state, seals=record.hashes(level))
        self.job = job_of(record)

    def _remove_unread(self, paths: Iterable[Path]) -> None:
        """Remove files that nobody has read; the ledger notes noisy counts among them."""
        release_id = self.job.record.release.id
        for path in paths:
            if place := place_of_noisy(path):
                with store() as con, transaction(con):
                    note(con, "unsealed shard removed unread", release_id, level=place[0], branch=place[1])
            path.unlink(missing_ok=True)


def _is_drawn(release_id: str, made: Shard, ordered: tuple[int, str, int]) -> bool:
    """Return whether what was made is the seal of a level, a branch and a turn, and its shard is there and has its hash."""
    return (
        isinstance(made, Seal)
        and (made.level, made.branch, made.turn) == ordered
        and is_shard(noisy_path(release_id, *ordered), made.sha256)
    )


def _paths_of(record: Record) -> set[Path]:
    """Return the paths of all shards of a record."""
    release_id = record.release.id
    sealed = {noisy_path(release_id, *place, seal.turn) for place, seal in record.seals.items()}
    counts = [*record.frontiers.values(), *record.settled.values(), *record.calibrated.values()]
    learnt = [*record.estimates.values(), *record.statistics.values(), *record.priors.values()]
    names = [estimates_name(shard.level, shard.branch, shard.kind) for shard in learnt]
    return sealed | {frontier_path(release_id, of) for of in counts} | {shard_path(release_id, name) for name in names}
