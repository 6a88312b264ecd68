"""How a step of a walk is taken: what it makes of a job, whoever takes it and wherever its shards are."""

from collections.abc import Sequence
from typing import Any

from flows.mechanisms import Mechanism
from flows.walks.steps import (
    CalibrateAll,
    Down,
    Fit,
    Gather,
    Measure,
    Repair,
    Repeat,
    SettleTogether,
    Share,
    Step,
    Sum,
    Up,
)
from storage.record import Shard
from tasks.groups.task import Sizes, settle_sizes
from tasks.noise.task import draw
from tasks.noise.truth import Truth
from tasks.optimize.second_pass import estimate, settle
from tasks.optimize.task import add_up, repair, repeat
from tasks.settle.calibrate import calibrate
from tasks.settle.task import settle_together
from tasks.shrink.task import fit, gather, share
from tasks.tree.job import Job
from tasks.unbiased.task import Unbiased, settle_unbiased


def take(
    step: Step, job: Job, mechanism: Mechanism, truth: Truth | None, sampler: Any, turn: int = 0
) -> Shard | Sequence[Shard]:
    """Take a step.

    Args:
        step: any but a cut.
        job: the release.
        mechanism: its mechanism.
        truth: its true counts, which measuring reads; None for any other step.
        sampler: its noise, likewise.
        turn: of measuring.
    """
    match step:
        case Measure(level, branch) if truth:
            return draw(job, truth, level, branch, mechanism.cells, sampler, turn)
        case Repair(level, branch):
            optimiser = mechanism.optimiser(job.record.release.terms.priority)
            return repair(job, level, branch, mechanism.cells, optimiser, keeps_leaves=mechanism.keeps_leaves)
        case Repeat(level, branch):
            return repeat(job, level, branch, keeps_leaves=mechanism.keeps_leaves)
        case Sum(level, branch):
            return add_up(job, level, branch)
        case Up(branch) if mechanism.second_pass:
            return estimate(job, branch, mechanism.second_pass)
        case Down(branch) if mechanism.second_pass:
            return settle(job, branch, mechanism.second_pass)
        case Gather(level, branch):
            return gather(job, level, branch)
        case Fit(level, branch):
            return fit(job, level, branch)
        case Share(level, branch) if mechanism.shrinks:
            return share(job, level, branch, mechanism.shrinks)
        case SettleTogether():
            if isinstance(mechanism.finish, Sizes):
                return settle_sizes(job, mechanism.finish.of.estimate)
            return settle_unbiased(job) if isinstance(mechanism.finish, Unbiased) else settle_together(job)
        case CalibrateAll():
            return calibrate(job)
        case _:
            raise TypeError(f"{mechanism.name} does not take {step}.")
