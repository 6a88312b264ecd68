"""Which steps come next: a pure function of the mechanism and of what is known of the release."""

from dataclasses import dataclass

from storage.errors import StoreError
from storage.record import Record
from storage.releases.shards import TRUNK, Place
from tasks.mechanisms import Mechanism
from tasks.tree.branches import RUNS, pieces_of
from tasks.work.order import Step


@dataclass(frozen=True, slots=True)
class Cuts:
    """Where branches may be cut.

    Attributes:
        most_cells: of one level that a branch may have; None where nothing is cut.
        whole: the levels of branches after which cutting was tried, and gives one piece.
        wanted: into how many parts a cluster wants the trunk to be cut; 0 where there is none.
        runs: the task runs that a level of a branch takes.
    """

    most_cells: int | None = None
    whole: frozenset[Place] = frozenset()
    wanted: int = 0
    runs: int = RUNS


NOWHERE = Cuts()

RUNS_OF_PRIORS = 4  # that a level of a branch takes where priors are fitted: to measure, optimise, gather and share


def next_steps(mechanism: Mechanism, record: Record, only: str | None = None, cuts: Cuts = NOWHERE) -> list[Step]:
    """Return every step that the record lacks and that could begin now, in the order of the tree; none once all is done.

    What is sealed is never measured again. Nothing is measured once the finish has begun.

    Args:
        only: the one branch to finish, with what it is part of and what is part of it; all if left out.
    Raises:
        StoreError: a level that comes next is not charged.
    """
    if mechanism.settles_whole_parts:
        return _together(record) or _finish(mechanism, record)
    if not (record.shards["estimates"] or record.shards["settled"] or record.shards["calibrated"]):
        on_the_way_down = [step for branch in record.all_branches if (step := _next_of(record, branch, only, cuts))]
        if on_the_way_down or missing_branches(record):
            return on_the_way_down
        beside = [terms.level for terms in record.release.views if (terms.level, TRUNK) not in record.shards["noisy"]]
        if beside:
            return [_measure(record, beside[0], TRUNK)]
    return _finish(mechanism, record)


def missing_branches(record: Record) -> list[str]:
    """Return the branches whose finest level is not there yet; the trunk, if it is not cut yet."""
    return [name for name in record.branches_of(record.finest) if (record.finest, name) not in record.shards["counts"]]


def _next_of(record: Record, branch: str, only: str | None, cuts: Cuts) -> Step | None:
    """Return the step of the way down that a branch lacks; None if it lacks none or `only` leaves it out."""
    if not _is_included(branch, only):
        return None
    measured = (level for level in record.levels_of(branch) if not record.release.levels[level].is_summed)
    level = next((level for level in measured if (level, branch) not in record.shards["counts"]), None)
    if level is None:
        return None
    if record.release.levels[level].same_as is not None:
        return Step("repeat", level, branch)
    if (level, branch) in record.shards["noisy"]:
        return Step("repair", level, branch)
    if cuts.most_cells is not None:
        cut = Step("cut", level - 1, branch)
        if _is_worth_it(record, cut, cuts):
            return cut
    return _measure(record, level, branch)


def _measure(record: Record, number: int, branch: str) -> Step:
    """Return the step that measures a level or view of a branch, which must be charged."""
    charge = record.charges.get(number)
    if not record.release.parts[number].is_invariant and (
        charge is None or charge.state not in {"reserved", "drawing"}
    ):
        raise StoreError(
            f"The ledger has no charge for level {number} of {record.release.id}, so Trellis cannot draw it."
        )
    return Step("measure", number, branch)


def _together(record: Record) -> list[Step]:
    """Return what comes next where every cell of levels and views is measured, one after the other, and then settled at once."""
    if (record.finest, TRUNK) in record.shards["counts"]:
        return []
    begun = bool(
        record.shards["estimates"] or record.shards["counts"] or record.shards["settled"] or record.shards["calibrated"]
    )
    measured = [terms.level for terms in record.release.parts if terms.is_measured]
    left = [number for number in measured if (number, TRUNK) not in record.shards["noisy"]]
    return [_measure(record, left[0], TRUNK)] if left and not begun else [Step("together", 0)]


def _is_included(branch: str, only: str | None) -> bool:
    """Return whether `only` leaves a branch in: it is that branch, is part of it, or holds it, as the trunk does."""
    if only is None or branch == TRUNK:
        return True
    return only != TRUNK and (f"{branch}-".startswith(f"{only}-") or f"{only}-".startswith(f"{branch}-"))


def _is_worth_it(record: Record, cut: Step, cuts: Cuts) -> bool:
    """Return whether a cut makes several branches, as far as is known."""
    above = record.shards["counts"].get((cut.level, cut.branch))
    if above is None or cuts.most_cells is None or (cut.level, cut.branch) in cuts.whole:
        return False
    sizes = record.finest, cut.level, above.rows, above.cells_below
    is_trunk = cut.branch == TRUNK
    return pieces_of(*sizes, cuts.most_cells, is_trunk=is_trunk, runs=cuts.runs, wanted=cuts.wanted) > 0


def _finish(mechanism: Mechanism, record: Record) -> list[Step]:
    """Return what comes next once everything is sealed."""
    if mechanism.second_pass and not record.shards["calibrated"]:
        estimated = {branch for _, branch in record.shards["estimates"]}
        up = [
            Step("estimate", record.levels_of(branch)[0], branch)
            for branch in record.all_branches
            if branch not in estimated and estimated.issuperset(record.pieces(branch))
        ]
        if up:
            return up
        down = _shares(record) if mechanism.shrinks else _downs(record)
        if down or not all(_is_settled(record, level) for level in range(record.finest + 1)):
            return down
    if mechanism.adds_up_leaves or mechanism.is_unbiased or mechanism.counts_groups:
        summed = range(record.finest)
        missing = [level for level in reversed(summed) if (level, TRUNK) not in record.shards["counts"]]
        return [Step("sum", level) for level in missing[:1]]
    if mechanism.calibrates and not record.shards["calibrated"]:
        return [Step("calibrate", 0)]
    return []


def _downs(record: Record) -> list[Step]:
    """Return the branches that can be settled next, each with all of its levels."""
    settled = {branch for _, branch in record.shards["settled"]}
    return [
        Step("settle", record.levels_of(branch)[0], branch)
        for branch in record.all_branches
        if branch not in settled and (branch == TRUNK or record.branches[branch].parent in settled)
    ]


def _shares(record: Record) -> list[Step]:
    """Return what comes next of the first level that is not settled: all branches gather, the prior is fitted, and all share."""
    unsettled = (level for level in range(record.finest + 1) if not _is_settled(record, level))
    if (level := next(unsettled, None)) is None:
        return []
    branches = record.branches_of(level)
    left = [branch for branch in branches if (level, branch) not in record.shards["settled"]]
    if not (level and record.release.levels[level].is_charged) or (level, TRUNK) in record.shards["prior"]:
        return [Step("share", level, branch) for branch in left]
    lacking = [
        Step("gather", level, branch) for branch in branches if (level, branch) not in record.shards["statistics"]
    ]
    return lacking or [Step("fit", level)]


def _is_settled(record: Record, level: int) -> bool:
    """Return whether a level is settled in all of its branches."""
    return all((level, branch) in record.shards["settled"] for branch in record.branches_of(level))
