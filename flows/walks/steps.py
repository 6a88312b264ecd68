"""Which steps come next: a pure function of the mechanism and of what is known of the release."""

from collections.abc import Collection
from dataclasses import dataclass

from flows.mechanisms import Mechanism
from storage.errors import StoreError
from storage.record import Record
from storage.releases.seals import TRUNK, Place
from tasks.groups.task import Sizes
from tasks.settle.calibrate import Calibrate
from tasks.settle.task import Together
from tasks.tree.branches import RUNS, pieces_of
from tasks.tree.views import AddUp
from tasks.unbiased.task import Unbiased


@dataclass(frozen=True, slots=True)
class Measure:
    """Draw the noisy counts of a level of a branch."""

    level: int
    branch: str


@dataclass(frozen=True, slots=True)
class Repair:
    """Turn the sealed noisy counts of a level of a branch into consistent ones."""

    level: int
    branch: str


@dataclass(frozen=True, slots=True)
class Repeat:
    """Give the cells of a level of a branch, each the only one in its parent, the counts of their parents."""

    level: int
    branch: str


@dataclass(frozen=True, slots=True)
class Sum:
    """Add up the counts of the level below."""

    level: int
    branch: str = TRUNK


@dataclass(frozen=True, slots=True)
class Up:
    """Estimate the nodes of a branch from everything that is sealed of it and below it."""

    branch: str


@dataclass(frozen=True, slots=True)
class Down:
    """Turn the estimates of a branch into the counts that are released."""

    branch: str


@dataclass(frozen=True, slots=True)
class Gather:
    """Gather what is to be learnt of a level from a branch, once the level above is settled."""

    level: int
    branch: str


@dataclass(frozen=True, slots=True)
class Fit:
    """Fit the prior of a level to what was gathered in all branches."""

    level: int
    branch: str = TRUNK


@dataclass(frozen=True, slots=True)
class Share:
    """Share the settled counts above a level out among the nodes of a branch, by the prior of the level."""

    level: int
    branch: str


@dataclass(frozen=True, slots=True)
class SettleTogether:
    """Turn everything that is sealed into the counts of the leaves, or of all levels and views."""

    branch: str = TRUNK


@dataclass(frozen=True, slots=True)
class CalibrateAll:
    """Settle the totals of single axes, and calibrate the counts of all levels to them."""

    branch: str = TRUNK


@dataclass(frozen=True, slots=True)
class Cut:
    """Cut a branch after one of its levels.

    Attributes:
        most_cells: the most cells of the next level that a part may have.
        runs: the task runs that a level of a branch takes.
        wanted: into how many parts a cluster wants the trunk to be cut; 0 where there is none.
    """

    level: int
    branch: str
    most_cells: int
    runs: int = RUNS
    wanted: int = 0


Step = Measure | Repair | Repeat | Sum | Up | Down | Gather | Fit | Share | SettleTogether | CalibrateAll | Cut


@dataclass(frozen=True, slots=True)
class Cuts:
    """Where branches may be cut.

    Attributes:
        most_cells: of one level that a branch may have; None where nothing is cut.
        whole: the levels of branches after which cutting was tried, and gives one piece.
        wanted: into how many parts a cluster wants the trunk to be cut; 0 where there is none.
    """

    most_cells: int | None = None
    whole: frozenset[Place] = frozenset()
    wanted: int = 0


NOWHERE = Cuts()

RUNS_OF_PRIORS = 4  # that a level of a branch takes where priors are fitted: to measure, optimise, gather and share


def next_steps(mechanism: Mechanism, record: Record, only: str | None = None, cuts: Cuts = NOWHERE) -> list[Step]:
    """Return every step that the record lacks and that could begin now, in the order of the tree; none once all is done.

    What is sealed is never measured again. Nothing is measured once the finish has begun.

    Args:
        mechanism: the mechanism of the release.
        record: what is known of it.
        only: the one branch to finish, with what it is part of and what is part of it; all if left out.
        cuts: where branches may be cut; nowhere if left out.
    Raises:
        StoreError: a level that comes next is not charged.
    """
    if isinstance(mechanism.finish, Together | Unbiased | Sizes):
        return _together(record) or _finish(mechanism, record)
    if not (record.estimates or record.settled or record.calibrated):
        runs = RUNS_OF_PRIORS if mechanism.shrinks else RUNS
        on_the_way_down = [
            step for branch in record.all_branches if (step := _next_of(record, branch, only, cuts, runs))
        ]
        if on_the_way_down or missing_branches(record):
            return on_the_way_down
        beside = [terms.level for terms in record.release.views if (terms.level, TRUNK) not in record.seals]
        if beside:
            return [_measure(record, beside[0], TRUNK)]
    return _finish(mechanism, record)


def missing_branches(record: Record) -> list[str]:
    """Return the branches whose finest level is not there yet; the trunk, if it is not cut yet."""
    return [name for name in record.branches_of(record.finest) if (record.finest, name) not in record.frontiers]


def _next_of(record: Record, branch: str, only: str | None, cuts: Cuts, runs: int) -> Step | None:
    """Return the step of the way down that a branch lacks; None if it lacks none or `only` leaves it out."""
    if not _is_included(branch, only):
        return None
    measured = (level for level in record.levels_of(branch) if not record.release.levels[level].is_summed)
    level = next((level for level in measured if (level, branch) not in record.frontiers), None)
    if level is None:
        return None
    if record.release.levels[level].same_as is not None:
        return Repeat(level, branch)
    if (level, branch) in record.seals:
        return Repair(level, branch)
    if cuts.most_cells is not None:
        cut = Cut(level - 1, branch, cuts.most_cells, runs, cuts.wanted)
        if _is_worth_it(record, cut, cuts.whole):
            return cut
    return _measure(record, level, branch)


def _measure(record: Record, number: int, branch: str) -> Measure:
    """Return the step that measures a level or view of a branch, which must be charged."""
    charge = record.charges.get(number)
    if not record.release.parts[number].is_invariant and (
        charge is None or charge.state not in {"reserved", "drawing"}
    ):
        raise StoreError(
            f"The ledger has no charge for level {number} of {record.release.id}, so Trellis cannot draw it."
        )
    return Measure(number, branch)


def _together(record: Record) -> list[Step]:
    """Return what comes next where every cell of levels and views is measured, one after the other, and then settled at once."""
    if (record.finest, TRUNK) in record.frontiers:
        return []
    begun = bool(record.estimates or record.frontiers or record.settled or record.calibrated)
    measured = [terms.level for terms in record.release.parts if terms.is_measured]
    left = [number for number in measured if (number, TRUNK) not in record.seals]
    return [_measure(record, left[0], TRUNK)] if left and not begun else [SettleTogether()]


def _is_included(branch: str, only: str | None) -> bool:
    """Return whether `only` leaves a branch in: it is that branch, is part of it, or holds it, as the trunk does."""
    if only is None or branch == TRUNK:
        return True
    return only != TRUNK and (f"{branch}-".startswith(f"{only}-") or f"{only}-".startswith(f"{branch}-"))


def _is_worth_it(record: Record, cut: Cut, whole: Collection[Place]) -> bool:
    """Return whether a cut makes several branches, as far as is known."""
    above = record.frontiers.get((cut.level, cut.branch))
    if above is None or (cut.level, cut.branch) in whole:
        return False
    sizes = record.finest, cut.level, above.nonzero, above.cells_below
    return pieces_of(*sizes, cut.most_cells, is_trunk=cut.branch == TRUNK, runs=cut.runs, wanted=cut.wanted) > 0


def _finish(mechanism: Mechanism, record: Record) -> list[Step]:
    """Return what comes next once everything is sealed."""
    if mechanism.second_pass and not record.calibrated:
        estimated = {branch for _, branch in record.estimates}
        up = [
            Up(branch)
            for branch in record.all_branches
            if branch not in estimated and estimated.issuperset(record.parts(branch))
        ]
        if up:
            return list(up)
        down = _shares(record) if mechanism.shrinks else _downs(record)
        if down or not all(_is_settled(record, level) for level in range(record.finest + 1)):
            return down
    if isinstance(mechanism.finish, AddUp | Unbiased | Sizes):
        summed = range(record.finest)
        missing = [level for level in reversed(summed) if (level, TRUNK) not in record.frontiers]
        return [Sum(level) for level in missing[:1]]
    if isinstance(mechanism.finish, Calibrate) and not record.calibrated:
        return [CalibrateAll()]
    return []


def _downs(record: Record) -> list[Step]:
    """Return the branches that can be settled next, each with all of its levels."""
    settled = {branch for _, branch in record.settled}
    return [
        Down(branch)
        for branch in record.all_branches
        if branch not in settled and (branch == TRUNK or record.branches[branch].parent in settled)
    ]


def _shares(record: Record) -> list[Step]:
    """Return what comes next of the first level that is not settled: all branches gather, the prior is fitted, and all share."""
    unsettled = (level for level in range(record.finest + 1) if not _is_settled(record, level))
    if (level := next(unsettled, None)) is None:
        return []
    branches = record.branches_of(level)
    left = [branch for branch in branches if (level, branch) not in record.settled]
    if not (level and record.release.levels[level].is_charged) or (level, TRUNK) in record.priors:
        return [Share(level, branch) for branch in left]
    lacking = [Gather(level, branch) for branch in branches if (level, branch) not in record.statistics]
    return list(lacking) if lacking else [Fit(level)]


def _is_settled(record: Record, level: int) -> bool:
    """Return whether a level is settled in all of its branches."""
    return all((level, branch) in record.settled for branch in record.branches_of(level))
