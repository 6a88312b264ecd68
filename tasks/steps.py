"""How each kind of step is taken: the stage that carries an order out, and what it makes of the release, whoever takes it and wherever."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from storage.record import Record
from storage.releases.shards import Shard
from tasks.mechanisms import Mechanism, mechanism_of
from tasks.noise.measure import Truth
from tasks.noise.task import draw, opened_vault
from tasks.optimize.shrink import fit, gather, share
from tasks.optimize.task import add_up, estimate_branch, repair, repeat, settle_branch
from tasks.settle.task import Together, calibrate, settle_together
from tasks.sizes.estimators import Sizes
from tasks.sizes.task import settle_sizes
from tasks.tree.job import Job, job_of
from tasks.unbiased.task import Unbiased, settle_unbiased
from tasks.work.order import Order, Step, StepKind, part_for
from tasks.work.stage import Stage, stage

Made = Shard | Sequence[Shard]


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a kind of step is taken.

    Attributes:
        run_name: of its task runs, for people; a template of its order.
        take: from the work on a release and its mechanism to what is made; None of measuring, which reads the true counts.
        is_of_branch: whether it needs no more of the record than its branch stands on, so that its order may travel.
    """

    run_name: str
    take: Callable[[Job, Step, Mechanism], Made] | None
    is_of_branch: bool = True


def _repair(job: Job, step: Step, mechanism: Mechanism) -> Made:
    optimiser = mechanism.optimiser(job.record.release.terms.priority)
    return repair(job, step.level, step.branch, mechanism.cells, optimiser, keeps_leaves=mechanism.shrinks is not None)


def _together(job: Job, step: Step, mechanism: Mechanism) -> Made:
    match mechanism.finish:
        case Sizes(estimate=estimate):
            return settle_sizes(job, estimate)
        case Unbiased():
            return settle_unbiased(job)
        case Together() as finish:
            return settle_together(job, finish)
        case _:
            raise TypeError(f"The mechanism does not take {step}.")


def _given(finish: Any, step: Step) -> Any:
    if finish is None:
        raise TypeError(f"The mechanism does not take {step}.")
    return finish


_KINDS: Mapping[StepKind, _Kind] = {
    "measure": _Kind("measure level {order.level} {order.branch}", None),
    "repair": _Kind("optimise level {order.level} {order.branch}", _repair),
    "repeat": _Kind(
        "repeat level {order.level} {order.branch}",
        lambda job, step, of: repeat(job, step.level, step.branch, keeps_leaves=of.shrinks is not None),
    ),
    "sum": _Kind("sum level {order.level}", lambda job, step, _: add_up(job, step.level, step.branch), False),
    "estimate": _Kind("estimate {order.branch}", lambda job, step, _: estimate_branch(job, step.branch)),
    "settle": _Kind(
        "settle {order.branch}", lambda job, step, of: settle_branch(job, step.branch, _given(of.second_pass, step))
    ),
    "gather": _Kind(
        "gather level {order.level} {order.branch}", lambda job, step, _: gather(job, step.level, step.branch)
    ),
    "fit": _Kind("fit level {order.level}", lambda job, step, _: fit(job, step.level, step.branch), False),
    "share": _Kind(
        "share level {order.level} {order.branch}",
        lambda job, step, of: share(job, step.level, step.branch, _given(of.shrinks, step)),
    ),
    "together": _Kind("settle all levels", _together, False),
    "calibrate": _Kind("calibrate", lambda job, *_: calibrate(job), False),
}


def take(
    step: Step, job: Job, mechanism: Mechanism, truth: Truth | None = None, sampler: Any = None, turn: int = 0
) -> list[Shard]:
    """Take a step, and return the shards that it has made; taken again, they are the same.

    Args:
        step: any but a cut.
        truth: its true counts, which measuring reads; None for any other step.
        sampler: the noise that measuring draws; None for any other step.
    """
    taken = _KINDS[step.kind].take
    if taken:
        made = taken(job, step, mechanism)
    elif truth:
        made = draw(job, truth, step.level, step.branch, mechanism.cells, sampler, turn)
    else:
        raise TypeError(f"{step} needs the true counts.")
    return [made] if isinstance(made, Shard) else list(made)


def order_of(step: Step, record: Record, turn: int = 0) -> Order:
    """Return the order to take a step, with what it needs of the record."""
    return Order(step, turn, part_for(record, step.branch) if may_travel(step.kind) else record)


def may_travel(kind: StepKind) -> bool:
    """Return whether orders of a kind may be carried out elsewhere; others need the record of the whole release."""
    return _KINDS[kind].is_of_branch


def carry_out(order: Order, job: Job, truth: Truth | None = None) -> list[Shard]:
    """Carry out an order.

    Args:
        job: its release: its record is that of the order, and its shard store has the shards that this names.
        truth: the true counts of the release, for an order to measure; None for others.
    Returns:
        What was made; its shards are in the shard store.
    Raises:
        StoreError: the release is charged for other noise than its mechanism draws, or a shard is not what was recorded.
    """
    release = order.record.release
    mechanism, sampler = mechanism_of(release), None
    if order.kind == "measure":
        sampler = mechanism.sampler(release.levels[-1].mechanism, release.terms.sampler)
    return take(order.step, job, mechanism, truth, sampler, order.turn)


def _carry_out_here(order: Order) -> list[Shard]:
    """Carry out an order about a release that the store of this machine has."""
    job = job_of(order.record)
    if order.kind != "measure":
        return carry_out(order, job)
    with opened_vault(order) as truth:
        return carry_out(order, job, truth)


STAGES: Mapping[StepKind, Stage[[Order]]] = {
    kind: stage(of.run_name, kind, "noise" if kind == "measure" else "optimize")(_carry_out_here)
    for kind, of in _KINDS.items()
}
