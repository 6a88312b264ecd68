"""The traversal of two passes: top-down, and once all is measured and sealed, up the tree and down it again.

The second pass reads what is sealed: it measures nothing and is charged nothing.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from flows.walks.in_flight import InFlight
from flows.walks.runner import Report, Submit
from flows.walks.top_down import walk_top_down
from storage.database.connections import Connection, store, transaction
from storage.record import load_record
from storage.releases.seals import TRUNK, add_estimates, add_settled
from tasks.laws.law import Sampler
from tasks.optimize.reconcile import Settling, settle
from tasks.optimize.second_pass import estimate_branch, settle_branch
from tasks.optimize.task import Optimiser
from tasks.stage import Outcome


def walk_twice(
    release_id: str,
    sampler: Sampler,
    optimiser: Optimiser,
    submit: Submit,
    report: Report,
    only: str | None = None,
    *,
    first_optimiser: Optimiser | None = None,
    settling: Settling = settle,
) -> tuple[list[Outcome], list[str]]:
    """Walk as `walk_top_down` does; once no branch is missing, estimate all nodes upwards, and settle them downwards.

    The other arguments, the return value and the errors are those of `walk_top_down`.

    Args:
        first_optimiser: of the first pass; that of the second if left out.
        settling: what the second pass does with its optimiser on the way down.
    """
    outcomes, missing = walk_top_down(release_id, sampler, first_optimiser or optimiser, submit, report, only)
    if missing:
        return outcomes, missing
    with store() as con:
        record = load_record(con, release_id)
    estimated, settled = {branch for _, branch in record.estimates}, {branch for _, branch in record.settled}
    parts = {name: record.parts(name) for name in (TRUNK, *record.branches)}
    outcomes += _pass(InFlight(release_id, submit), (estimate_branch,), parts, estimated, add_estimates)
    whole = {TRUNK: [], **{name: [branch.parent] for name, branch in record.branches.items()}}
    outcomes += _pass(InFlight(release_id, submit), (settle_branch, optimiser, settling), whole, settled, add_settled)
    return outcomes, []


def _pass(
    in_flight: InFlight,
    stage: tuple[Any, ...],
    waits_for: Mapping[str, Collection[str]],
    done: Collection[str],
    add: Callable[[Connection, str, Any], None],
) -> list[Outcome]:
    """Run a stage of every branch that is not done, each once the branches that it waits for are done.

    Args:
        in_flight: runs the stages.
        stage: the stage, with the arguments that follow the branch.
        waits_for: per branch, the branches that must be done first.
        done: the branches that are done already.
        add: records one of the shards that the stage returns.
    """
    over, started = set(done), set(done)
    while True:
        for branch in waits_for:
            if branch not in started and over.issuperset(waits_for[branch]):
                started.add(branch)
                in_flight.start(branch, stage[0], branch, *stage[1:])
        if not in_flight:
            in_flight.raise_first()
            return in_flight.outcomes
        ended = in_flight.take()
        with store() as con, transaction(con):
            for _, shards in ended:
                for shard in shards:
                    add(con, in_flight.release_id, shard)
        over.update(branch for branch, _ in ended)
