"""The orders of a release: from a step to the order that says it, and from an order to what comes of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.mechanisms import mechanism_of
from flows.walks.steps import Down, Gather, Measure, Repair, Repeat, Share, Step, Up
from flows.walks.take import take
from storage.record import Record, Shard
from tasks.noise.task import measure_branch
from tasks.noise.truth import Truth
from tasks.optimize.second_pass import estimate_branch, settle_branch
from tasks.optimize.task import optimise_branch, repeat_branch
from tasks.order import Order, part_for
from tasks.shrink.task import gather_branch, share_branch
from tasks.stage import Stage
from tasks.tree.job import Job


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of orders.

    Attributes:
        stage: carries it out at home.
        step: from the level and the branch of an order to the step that it says.
    """

    stage: Stage[Any]
    step: Callable[[int, str], Step]


_KINDS: Mapping[type[Any], _Kind] = {
    Measure: _Kind(measure_branch, Measure),
    Repair: _Kind(optimise_branch, Repair),
    Repeat: _Kind(repeat_branch, Repeat),
    Gather: _Kind(gather_branch, Gather),
    Share: _Kind(share_branch, Share),
    Up: _Kind(estimate_branch, lambda _, branch: Up(branch)),
    Down: _Kind(settle_branch, lambda _, branch: Down(branch)),
}
_BY_STAGE = {kind.stage.name: kind for kind in _KINDS.values()}


def order_of(step: Step, record: Record, turn: int = 0) -> Order | None:
    """Return the order to take a step; None for a step that is always taken at home.

    Args:
        step: any.
        record: of the release.
        turn: of measuring; 0 for others.
    """
    kind = _KINDS.get(type(step))
    if kind is None:
        return None
    level = getattr(step, "level", record.levels_of(step.branch)[0])
    return Order(kind.stage.name, level, step.branch, turn, part_for(record, step.branch))


def stage_of(order: Order) -> Stage[Any]:
    """Return the stage that carries out an order at home, as `stage.fn(order, carry_out)`."""
    return _BY_STAGE[order.stage].stage


def carry_out(order: Order, job: Job, truth: Truth | None = None) -> Shard | Sequence[Shard]:
    """Carry out an order.

    Args:
        order: the order.
        job: its release: its record is that of the order, and its shelf has the shards that this names.
        truth: the true counts of the release, for an order to measure; None for others.
    Returns:
        What was made; its shards are on the shelf.
    Raises:
        StoreError: the release is charged for other noise than its mechanism draws, or a shard is not what was recorded.
    """
    step, release = _BY_STAGE[order.stage].step(order.level, order.branch), order.record.release
    mechanism, sampler = mechanism_of(release), None
    if isinstance(step, Measure):
        sampler = mechanism.sampler(release.levels[-1].mechanism, release.terms.sampler)
    return take(step, job, mechanism, truth, sampler, order.turn)
