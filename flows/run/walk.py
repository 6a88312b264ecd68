"""The one loop that marks, draws, seals and commits: it starts the steps that come next, side by side, until there are none, and records them in the store.

It does not know Prefect: the caller passes what starts a step. What is recorded is the only truth about what is done, so that
a walk after a crash goes on where the last one ended. Only the thread of the loop records anything.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol

from flows.run.runner import Future, Report, Submit
from flows.run.steps import NOWHERE, RUNS_OF_PRIORS, Cuts, missing_branches, next_steps
from storage.counts.shard_files import is_shard, noisy_path, place_of_noisy, shard_path, shards_of_levels
from storage.database.connections import store, transaction
from storage.errors import Interrupted, StageFailed, StoreError, TrellisError, WorkerLost
from storage.ledger.events import advance, note
from storage.record import Record
from storage.releases.register import Release
from storage.releases.shards import (
    CLOSED,
    GIVEN_UP,
    OPEN,
    Branch,
    Place,
    Shard,
    add_branches,
    add_shard,
    end_turn,
    list_turns,
    open_turn,
)
from tasks.mechanisms import Mechanism
from tasks.steps import STAGES, order_of
from tasks.tree.branches import RUNS, most_cells
from tasks.tree.job import Job, cut_branch, job_of, stored_job
from tasks.work.capacity import memory_of
from tasks.work.order import Step
from tasks.work.stage import Outcome, memory_of_branch, most_branches


class InFlight:
    """The steps of a walk that have begun: the outcomes of those that have succeeded, and those whose workers were lost."""

    def __init__(self, begin: Callable[[Step], Future], check: Callable[[Step, Sequence[Shard]], None]) -> None:
        self.outcomes: list[Outcome] = []
        self.lost: list[Step] = []
        self._begin, self._check = begin, check
        self._finished: SimpleQueue[tuple[Step, Future]] = SimpleQueue()
        self._running = 0
        self._failures: dict[str, BaseException] = {}

    def __bool__(self) -> bool:
        """Return whether `take` has more steps to wait for."""
        return self._running > 0

    def start(self, step: Step) -> None:
        """Begin a step."""
        future = self._begin(step)
        self._running += 1
        future.add_done_callback(lambda done: self._finished.put((step, done)))

    def take(self) -> list[Shard]:
        """Wait until a step has ended; return what all steps have made that have succeeded by then."""
        finished = [self._finished.get()]
        while not self._finished.empty():
            finished.append(self._finished.get())
        made = list[Shard]()
        for step, future in finished:
            self._running -= 1
            try:
                outcome: Outcome = future.result()
                self._check(step, outcome.value)
            except WorkerLost:
                self.lost.append(step)
            except Exception as fault:  # noqa: BLE001 (the other branches continue; `raise_first` raises it)
                self._failures[step.branch] = fault
            else:
                self.outcomes.append(outcome)
                made += outcome.value
        return made

    def fail(self, step: Step, fault: Exception) -> None:
        """Let a step fail that does not run any more."""
        self._failures[step.branch] = fault

    def raise_first(self) -> None:
        """Raise the failure of the first branch that has failed, if any has; a request to stop the release comes first."""
        for fault in self._failures.values():
            if isinstance(fault, Interrupted):
                raise fault
        if not self._failures:
            return
        branch, *others = sorted(self._failures)
        also = f" Also failed: {', '.join(others)}." if others else ""
        first = self._failures[branch]
        if isinstance(first, TrellisError):
            raise type(first)(f"{branch}: {first}{also}", field=first.field, hint=first.hint)
        raise StageFailed(f"{branch}: {type(first).__name__}.{also}")


MOST_LOSSES = 3  # workers that one step may lose in a walk

Start = Callable[[Step], Future]  # begins a step; the future gives an `Outcome` with a shard, or a list of them


class Recorder(Protocol):
    """Who keeps the record of a release, and its shards."""

    @property
    def job(self) -> Job:
        """The work on the release as it is known now."""

    def prepare(self, step: Step) -> None:
        """Mark the charge of a level as being drawn, and open a turn; remove unread what earlier turns drew."""

    def check(self, step: Step, made: Sequence[Shard]) -> None:
        """Refuse what a step has made as that of a lost worker, unless it is what was promised."""

    def give_up(self, step: Step) -> None:
        """Give up the turn of a step whose worker was lost."""

    def cut(self, branches: Sequence[Branch]) -> None:
        """Record how a branch was cut."""

    def commit(self, shards: Sequence[Shard]) -> None:
        """Record what steps have made, all of it or nothing."""


def walk(
    recorder: Recorder,
    mechanism: Mechanism,
    start: Start,
    report: Report,
    only: str | None = None,
    cuts: Cuts = NOWHERE,
) -> tuple[list[Outcome], list[str]]:
    """Take every step that a release lacks, or that one of its branches lacks.

    A branch that fails does not stop the others. Call it in a thread that no signal interrupts: what a step has made is
    always recorded, and no step is left running.

    Args:
        only: the one branch to finish; all if left out.
    Returns:
        The outcomes of the steps, and the branches that are not finished because `only` names another one.
    Raises:
        Interrupted: the release was asked to stop.
        StoreError: a step has lost too many workers.
        TrellisError: what the first failed branch raised, once all others are done.
    """
    in_flight, begun, losses = InFlight(start, recorder.check), set[Step](), Counter[Step]()
    while True:
        for step in next_steps(mechanism, recorder.job.record, only, cuts):
            if step in begun:
                continue
            if step.kind == "cut":
                cuts = _cut(recorder, step, cuts)
                break  # what comes next is another question now
            begun.add(step)
            if step.kind == "measure":
                recorder.prepare(step)
            in_flight.start(step)
        else:
            if not in_flight:
                break
            made = in_flight.take()
            if made:
                recorder.commit(made)
                _report(recorder.job.record, made, report)
            while in_flight.lost:
                step = in_flight.lost.pop()
                if step.kind == "measure":
                    recorder.give_up(step)
                losses[step] += 1
                if losses[step] < MOST_LOSSES:
                    begun.remove(step)  # it begins again
                else:
                    in_flight.fail(step, StoreError(f"{losses[step]} workers were lost, one after the other."))
    in_flight.raise_first()
    return in_flight.outcomes, missing_branches(recorder.job.record)


def _cut(recorder: Recorder, step: Step, cuts: Cuts) -> Cuts:
    """Cut a branch, or remember that it goes on whole."""
    if cuts.most_cells is None:
        raise ValueError("nothing is to be cut.")
    shard = recorder.job.record.shards["counts"][step.level, step.branch]
    parts = cut_branch(recorder.job, shard, cuts.most_cells, cuts.runs, cuts.wanted)
    if not parts:
        return replace(cuts, whole=cuts.whole | {(step.level, step.branch)})
    recorder.cut(parts)
    return cuts


def _report(record: Record, made: Sequence[Shard], report: Report) -> None:
    """Report how far the levels are of which something was made, and those that follow."""
    parts = record.release.parts
    for shard in made:
        part, below = parts[shard.level], shard.level + 1
        if shard.kind == "noisy":
            report(shard.level, *record.cells_of(shard.level))
        elif shard.kind == "counts":
            if not part.is_measured:
                report(shard.level, 0, 0)
            if shard.level < record.finest and parts[below].is_measured and not part.is_summed:
                report(below, *record.cells_of(below))


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
