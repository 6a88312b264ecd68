"""The one loop that marks, draws, seals and commits: it starts the steps that come next until there are none.

It does not know Prefect: the caller passes what starts a step. What is recorded is the only truth about what is done, so that
a walk after a crash goes on where the last one ended. Only the thread of the loop records anything.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from flows.walks.in_flight import InFlight
from flows.walks.runner import Future, Report
from flows.walks.steps import NOWHERE, Cuts, missing_branches, next_steps
from storage.errors import StoreError
from storage.record import Record
from storage.releases.shards import Branch, Shard
from tasks.mechanisms import Mechanism
from tasks.order import Step
from tasks.stage import Outcome
from tasks.tree.job import Job, cut_branch

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
        """Refuse what a step has made, unless it is what was promised.

        Raises:
            WorkerLost: it is not.
        """

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
        recorder: keeps the record of the release.
        mechanism: the mechanism of the release.
        start: begins a step.
        report: receives the progress.
        only: the one branch to finish; all if left out.
        cuts: where branches may be cut; nowhere if left out.
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
                _tell(recorder.job.record, made, report)
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


def _tell(record: Record, made: Sequence[Shard], report: Report) -> None:
    """Report how far the levels are of which something was made, and those that follow."""
    for shard in made:
        if shard.kind == "noisy":
            report(shard.level, *record.cells_of(shard.level))
        elif shard.kind == "counts":
            levels = record.release.parts
            if not levels[shard.level].is_measured:
                report(shard.level, 0, 0)
            if (
                shard.level < record.finest
                and levels[shard.level + 1].is_measured
                and not levels[shard.level].is_summed
            ):
                report(shard.level + 1, *record.cells_of(shard.level + 1))
