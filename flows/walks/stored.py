"""The recorder of a release in the store, and the stages that take its steps."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from flows.walks.runner import Future, Report, Submit
from flows.walks.steps import RUNS_OF_PRIORS, Cuts
from flows.walks.walk import walk
from storage.counts.shard_files import (
    is_shard,
    noisy_path,
    place_of_noisy,
    shard_path,
    shards_of_levels,
)
from storage.database.connections import store, transaction
from storage.errors import WorkerLost
from storage.ledger.events import advance, note
from storage.releases.register import Release
from storage.releases.shards import Branch, Place, Shard, add_branches, add_shard
from storage.releases.turns import CLOSED, GIVEN_UP, OPEN, end_turn, list_turns, open_turn
from tasks.capacity import memory_of
from tasks.mechanisms import Mechanism
from tasks.order import Step
from tasks.stage import Outcome, memory_of_branch, most_branches
from tasks.steps import STAGES, order_of
from tasks.tree.branches import RUNS, most_cells
from tasks.tree.job import Job, job_of, stored_job


def walk_release(
    release: Release, mechanism: Mechanism, submit: Submit, report: Report, only: str | None = None
) -> tuple[list[Outcome], list[str]]:
    """Take every step that a release lacks, or one of its branches, by stages; arguments and results are those of `walk`."""
    terms = release.terms
    cuts = Cuts(
        most_cells(memory_of_branch(memory_of(terms.run)), 1, len(terms.axes)),
        wanted=most_branches(),
        runs=RUNS_OF_PRIORS if mechanism.shrinks else RUNS,
    )
    recorder = StoredRecord(release.id)

    def start(step: Step) -> Future:
        return submit(STAGES[step.kind], order_of(step, recorder.job.record, recorder.turn_of(step)))

    return walk(recorder, mechanism, start, report, only, cuts)


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
                    end_turn(con, release_id, (turn.level, turn.branch), turn.turn, GIVEN_UP)
        recorded = {shard_path(release_id, shard.name) for shard in self.job.record.all_shards}
        self._remove_unread(path for path in shards_of_levels(release_id) if path not in recorded)

    def turn_of(self, step: Step) -> int:
        """Return the turn in which a step is taken; 0 where it draws nothing."""
        return self._turns[step.level, step.branch] if step.kind == "measure" else 0

    def prepare(self, step: Step) -> None:
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
        if step.kind == "measure":
            ordered = step.level, step.branch, self._turns[step.level, step.branch]
            path = noisy_path(self.job.record.release.id, *ordered)
            drawn = [(shard.kind, *shard.place, shard.turn) for shard in made]
            if drawn != [("noisy", *ordered)] or not is_shard(path, made[0].sha256):
                raise WorkerLost(f"What was drawn for level {step.level} is not what was promised.")

    def give_up(self, step: Step) -> None:
        """Give up the turn of a step: what was drawn in it will not be read, whenever it arrives."""
        place, release_id = (step.level, step.branch), self.job.record.release.id
        with store() as con, transaction(con):
            end_turn(con, release_id, place, self._turns.pop(place), GIVEN_UP)

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
                if shard.kind == "noisy":
                    end_turn(con, release_id, shard.place, shard.turn, CLOSED)
                add_shard(con, release_id, shard)
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
