"""The traversal of mechanisms that measure leaves only: measure, seal, keep, then sum level by level up to the root.

It does not know Prefect: the caller passes a `submit`. The store is the only truth about what is done, so that a walk
after a crash continues where the last one ended. There is one branch, the trunk.
"""

from typing import Any

from flows.walks.runner import Report, Submit, result_of
from storage.counts.shards import noisy_path
from storage.database.connections import store, transaction
from storage.errors import StageFailed, StoreError, TrellisError
from storage.ledger.events import advance, note
from storage.record import Record, load_record
from storage.releases.seals import TRUNK, FrontierShard, Seal, add_frontier, add_seal
from tasks.optimize.task import keep_leaves, sum_level
from tasks.stage import Outcome


def walk_leaves(
    measure: Any,
    release_id: str,
    sampler: Any,
    _optimiser: object,
    submit: Submit,
    report: Report,
    _only: str | None = None,
) -> tuple[list[Outcome], list[str]]:
    """Measure the leaves and sum them up to every level above; do only what the store does not hold yet.

    Call it in a thread that no signal interrupts: what a stage has finished is always committed.

    Args:
        measure: the stage that measures the leaves, and writes them as one shard.
        release_id: the release.
        sampler: adds the noise.
        submit: runs a stage and returns its future.
        report: receives the progress.
    Returns:
        The outcomes of the stages, and no branch, since none is left out.
    Raises:
        Interrupted: the release was asked to stop.
        TrellisError: what stopped a stage.
    """
    with store() as con:
        record = load_record(con, release_id)
    outcomes, finest = [], record.finest
    if (finest, TRUNK) not in record.seals:
        _prepare_to_draw(record, finest)
        outcomes.append(_done(release_id, submit(measure, release_id, sampler)))
        seal: Seal = outcomes[-1].value
        with store() as con, transaction(con):
            add_seal(con, release_id, seal)
            advance(con, release_id, finest, "sealed", seals={TRUNK: seal.sha256})
        report(finest, seal.cells, seal.cells)
    for level in reversed(range(finest + 1)):
        if (level, TRUNK) not in record.frontiers:
            stage: tuple[Any, ...] = (keep_leaves, release_id) if level == finest else (sum_level, release_id, level)
            outcomes.append(_done(release_id, submit(*stage)))
            shard: FrontierShard = outcomes[-1].value
            with store() as con, transaction(con):
                add_frontier(con, release_id, shard)
            if level < finest:
                report(level, 0, 0)
    return outcomes, []


def _prepare_to_draw(record: Record, level: int) -> None:
    """Mark the charge before the first draw; remove unread what was drawn and never sealed."""
    release_id, charge = record.release.id, record.charges.get(level)
    if charge is None or charge.state not in {"reserved", "drawing"}:
        raise StoreError(f"The ledger has no charge for level {level} of {release_id}, so Trellis cannot draw it.")
    with store() as con:
        if charge.state == "reserved":
            with transaction(con):
                advance(con, release_id, level, "drawing")
        unsealed = noisy_path(release_id, level, TRUNK)
        if unsealed.exists():
            with transaction(con):
                note(con, "unsealed shard removed unread", release_id, level=level, branch=TRUNK)
            unsealed.unlink()


def _done(release_id: str, future: Any) -> Outcome:
    try:
        return result_of(release_id, future)  # type: ignore[no-any-return]
    except TrellisError:
        raise
    except Exception as fault:  # noqa: BLE001 (any other error may quote the data: only its kind is shown)
        raise StageFailed(f"{TRUNK}: {type(fault).__name__}.") from None
