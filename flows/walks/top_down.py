"""The top-down traversal: level by level along the trunk, then branch by branch, each seal before its optimiser.

It does not know Prefect: the caller passes a `submit`. The store is the only truth about what is done, so that a walk
after a crash continues where the seals end. Only this thread commits to the store.
"""

from collections.abc import Callable, Sequence
from typing import Any

from flows.walks.in_flight import InFlight
from flows.walks.runner import Report, Submit
from storage.counts.shards import noisy_path
from storage.database.connections import store, transaction
from storage.errors import StoreError
from storage.ledger.events import advance, note
from storage.record import load_record
from storage.releases.seals import (
    TRUNK,
    FrontierShard,
    Seal,
    add_branches,
    add_frontier,
    add_seal,
    branches_of_level,
    cells_of_level,
    list_branches,
)
from tasks.capacity import cores, memory_of
from tasks.laws.law import Sampler
from tasks.noise.task import measure_branch
from tasks.optimize.task import Optimiser, optimise_branch
from tasks.stage import Outcome
from tasks.tree.branches import most_cells
from tasks.tree.task import cut_branch

# walks a release with the sampler and the optimiser that its mechanism names
Traversal = Callable[[str, Any, Any, Submit, Report, str | None], tuple[list[Outcome], list[str]]]


def walk_top_down(
    release_id: str, sampler: Sampler, optimiser: Optimiser, submit: Submit, report: Report, only: str | None = None
) -> tuple[list[Outcome], list[str]]:
    """Measure and optimise every level of every branch, or of one branch, that the store does not hold yet.

    A branch that fails does not stop the others. Call it in a thread that no signal interrupts: what stages have finished
    is always committed, and no stage is left running.

    Returns:
        The outcomes of the stages, and the branches that are not finished because `only` names another one.
    Raises:
        Interrupted: the release was asked to stop.
        TrellisError: what the first failed branch raised, once all others are done.
    """
    walk = _Walk(release_id, sampler, optimiser, submit, report, only)
    return walk.run(), walk.missing()


class _Walk:
    def __init__(
        self,
        release_id: str,
        sampler: Sampler,
        optimiser: Optimiser,
        submit: Submit,
        report: Report,
        only: str | None,
    ) -> None:
        self.release_id, self.sampler, self.optimiser, self.only = release_id, sampler, optimiser, only
        self.in_flight, self.report = InFlight(release_id, submit), report
        with store() as con:
            record = load_record(con, release_id)
        self.release, self.branches, self.depth = record.release, record.branches, record.finest
        self.seals, self.frontiers = dict(record.seals), dict(record.frontiers)
        charges = record.charges
        self.reserved = {level for level, charge in charges.items() if charge.state == "reserved"}
        self.paid = {terms.level for terms in self.release.levels if terms.is_invariant}
        self.paid |= {level for level, charge in charges.items() if charge.state in {"reserved", "drawing"}}
        self.most_cells = most_cells(memory_of(self.release.terms.run), cores(), len(self.release.terms.axes))

    def run(self) -> list[Outcome]:
        self.go_on(TRUNK)
        while self.in_flight:
            done = self.in_flight.take()
            if done:
                self.commit([value for _, value in done])
            for branch, _ in done:
                self.go_on(branch)
        self.in_flight.raise_first()
        return self.in_flight.outcomes

    def missing(self) -> list[str]:
        """Return the branches whose finest level is not optimised; the trunk, if it is not cut yet."""
        return [
            name for name in branches_of_level(self.branches, self.depth) if (self.depth, name) not in self.frontiers
        ]

    def go_on(self, branch: str) -> None:
        """Submit what comes next on a branch, if anything does."""
        level = self.branches[branch].cut_level + 1 if branch != TRUNK else 0
        while (level, branch) in self.frontiers:
            if parts := self.parts(self.frontiers[level, branch]):
                for name in parts:
                    if self.is_included(name):
                        self.go_on(name)
                return
            level += 1
        if level > self.depth:
            return
        if (level, branch) in self.seals:
            self.in_flight.start(branch, optimise_branch, level, branch, self.optimiser)
        else:
            self.prepare_to_draw(level, branch)
            self.in_flight.start(branch, measure_branch, level, branch, self.sampler)

    def parts(self, last: FrontierShard) -> list[str]:
        """Return the branches into which a branch is cut at a frontier; the first call cuts it."""
        there = [
            name
            for name, branch in self.branches.items()
            if (branch.parent, branch.cut_level) == (last.branch, last.level)
        ]
        if there or last.level == self.depth or (last.level + 1, last.branch) in self.seals:
            return there
        parts = cut_branch(self.release, last, self.most_cells)
        if not parts:
            return []
        self.remove_unsealed(last.level + 1, last.branch)
        with store() as con, transaction(con):
            add_branches(con, self.release_id, parts)
            self.branches = list_branches(con, self.release_id)
        return [branch.name for branch in parts]

    def is_included(self, branch: str) -> bool:
        """Return whether `only` leaves a branch in: it is that branch, is part of it, or holds it."""
        only = self.only
        if only is None or only == TRUNK:
            return only is None
        return f"{branch}-".startswith(f"{only}-") or f"{only}-".startswith(f"{branch}-")

    def prepare_to_draw(self, level: int, branch: str) -> None:
        """Mark the level's charge before its first draw."""
        if level not in self.paid:
            raise StoreError(
                f"The ledger has no charge for level {level} of {self.release_id}, so Trellis cannot draw it."
            )
        if level in self.reserved:
            with store() as con, transaction(con):
                advance(con, self.release_id, level, "drawing")
            self.reserved.remove(level)
        self.remove_unsealed(level, branch)

    def remove_unsealed(self, level: int, branch: str) -> None:
        """Remove unread what was drawn and never sealed."""
        unsealed = noisy_path(self.release_id, level, branch)
        if unsealed.exists():
            with store() as con, transaction(con):
                note(con, "unsealed shard removed unread", self.release_id, level=level, branch=branch)
            unsealed.unlink()

    def commit(self, finished: Sequence[Seal | FrontierShard]) -> None:
        """Record what stages have finished, in one short transaction."""
        with store() as con, transaction(con):
            for done in finished:
                key = done.level, done.branch
                if isinstance(done, FrontierShard):
                    add_frontier(con, self.release_id, done)
                    self.frontiers[key] = done
                elif key not in self.seals:
                    add_seal(con, self.release_id, done)
                    self.seals[key] = done
                    if self.is_sealed(done.level) and not self.release.levels[done.level].is_invariant:
                        advance(con, self.release_id, done.level, "sealed", seals=self.hashes(done.level))
        for done in finished:
            self.report_progress(done)

    def hashes(self, level: int) -> dict[str, str]:
        """Return the sha256 of each sealed shard of a level, by branch: the ledger keeps them, for the audit."""
        return {branch: seal.sha256 for (of, branch), seal in self.seals.items() if of == level}

    def is_sealed(self, level: int) -> bool:
        """Return whether every branch of a level is sealed."""
        return all((level, branch) in self.seals for branch in branches_of_level(self.branches, level))

    def report_progress(self, done: Seal | FrontierShard) -> None:
        level = done.level if isinstance(done, Seal) else done.level + 1
        if level > self.depth:
            return
        self.report(level, *cells_of_level(level, self.seals, self.frontiers))
