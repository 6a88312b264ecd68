"""What the store knows of each release: made, refused, listed, or shown with its levels, branches, seals and checks."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from flows.answers.ledger import BudgetBalance, LevelCharge, balance_answer, charge_answer
from flows.run.crashes import note_crashes
from storage.database.connections import store
from storage.errors import BudgetExceeded, TrellisError, UsageError
from storage.ledger.spending import Cost
from storage.machine.home import home
from storage.record import KNOWN_AFTER, ReleasedPart, load_record
from storage.releases.approvals import KeptApproval, kept_approval, kept_plan
from storage.releases.register import (
    REPORT,
    CheckResult,
    ListedRelease,
    find_release,
    has_run,
    list_checks,
    list_releases,
    superseding,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Release:
    """What is said of every release.

    Attributes:
        reason: why it is not published; empty where it is.
        folder: where it is published; None where nothing is there.
        report: the file of its report; None where nothing is there.
        unprotected: what it publishes exactly, in words.
        statement: its guarantee, in words.
        views: the views that the spec names; one that is a level has its number as `same_as`, and costs nothing itself.
    """

    id: str
    state: str
    reason: str
    folder: str | None
    report: str | None
    levels: Sequence[ReleasedPart]
    unprotected: Sequence[str]
    statement: str
    views: Sequence[ReleasedPart]


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeRelease(_Release):
    """What a command has just made: a whole release, or one branch of it.

    Attributes:
        seconds: thread seconds per stage, and the wall time as `total`.
        home: the store.
    """

    budget: BudgetBalance
    seconds: Mapping[str, float]
    home: str


@dataclass(frozen=True, slots=True)
class ErrorMessage:
    """An error: what is wrong, the key, option or file at fault, and what to do next."""

    error: str
    field: str
    hint: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """A release that its dataset's cap refuses."""

    id: str
    state: str
    reason: str
    left: Cost


@dataclass(frozen=True, slots=True)
class ReleaseList:
    """Every release, the newest last."""

    releases: Sequence[ListedRelease]

    def __repr__(self) -> str:
        newest = f", the newest {self.releases[-1].id}" if self.releases else ""
        return f"<{len(self.releases)} release{'s' * (len(self.releases) != 1)}{newest}>"


@dataclass(frozen=True, slots=True)
class BranchState:
    """A branch of a release.

    Attributes:
        state: `cut` into further branches, `open`, or `optimised`.
        holds: per axis the codes of its first and last areas.
    """

    branch: str
    state: str
    holds: Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class SealedShard:
    """The seal of one level of one branch."""

    level: int
    branch: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownRelease(_Release):
    """One release as the store knows it.

    Attributes:
        supersedes: the release whose place it takes; `superseded_by` the published one that takes its own.
        unlisted: the axes whose codes no codebook lists.
        in_ui: whether it ever ran on Prefect, whose UI then lists it.
        approved_plan: the approved plan that it was reserved under; left out where there was none.
    """

    dataset: str
    created: str
    supersedes: str | None
    superseded_by: str | None
    branches: Sequence[BranchState]
    seals: Sequence[SealedShard]
    checks: Sequence[CheckResult]
    charges: Sequence[LevelCharge]
    unlisted: Sequence[str]
    in_ui: bool
    approved_plan: KeptApproval | None = None


def release_answer(release_id: str, seconds: Mapping[str, float]) -> MadeRelease:
    """Return a release that was just made.

    Args:
        seconds: thread seconds per stage, and the wall time as `total`.
    """
    shown = show_answer(release_id)
    return MadeRelease(
        **{field.name: getattr(shown, field.name) for field in fields(_Release)},
        budget=balance_answer(shown.dataset),
        seconds={stage: round(taken, 3) for stage, taken in seconds.items()},
        home=str(home()),
    )


def error_answer(fault: TrellisError) -> ErrorMessage | Refusal:
    """Return the message of an error, or the refusal of a release that its dataset's cap forbids."""
    if isinstance(fault, BudgetExceeded):
        return Refusal(fault.release_id, "refused", str(fault), Cost(fault.left_epsilon, float(fault.left)))
    return ErrorMessage(str(fault), fault.field, fault.hint)


def releases_answer() -> ReleaseList:
    """Return every release with its state, the newest last."""
    note_crashes()
    with store() as con:
        return ReleaseList(list_releases(con))


def show_answer(release_id: str) -> ShownRelease:
    """Return one release with its levels, branches, seals, checks and charges."""
    note_crashes()
    with store() as con:
        record, checks = load_record(con, release_id), list_checks(con, release_id)
        in_ui, approved = has_run(con, release_id), kept_approval(con, release_id)
        later = [id_ for id_, state in superseding(con, release_id).items() if state == "published"]
    release, last = record.release, record.branches_of(record.finest)
    states = {name: "optimised" if (record.finest, name) in record.shards["counts"] else "open" for name in last}
    return ShownRelease(
        id=release.id,
        dataset=release.dataset,
        state=release.state,
        reason=release.reason,
        created=release.created,
        supersedes=release.supersedes,
        superseded_by=later[-1] if later else None,
        levels=_with_known(record.released_levels(), Path(release.folder)),
        branches=[
            BranchState(name, states.get(name, "cut"), dict(branch.holds)) for name, branch in record.branches.items()
        ],
        seals=[SealedShard(seal.level, seal.branch, seal.sha256) for seal in record.shards["noisy"].values()],
        checks=checks,
        charges=[charge_answer(charge) for charge in record.charges.values()],
        unprotected=list(release.terms.unprotected),
        unlisted=list(release.terms.unlisted),
        statement=release.terms.privacy.statement,
        folder=release.folder if Path(release.folder).is_dir() else None,
        report=str(report) if (report := Path(release.folder, REPORT)).is_file() else None,
        in_ui=in_ui,
        views=_with_known(record.released_views(), Path(release.folder), "views", ("deviations",)),
        approved_plan=approved,
    )


def _with_known(
    parts: Sequence[ReleasedPart], folder: Path, key: str = "levels", names: Sequence[str] = KNOWN_AFTER
) -> Sequence[ReleasedPart]:
    """Return levels or views with what a published folder says of them under a key of its manifest, where it is there."""
    try:
        stated = json.loads((folder / "manifest.json").read_bytes())[key]
        pairs = zip(parts, stated, strict=True)
        return [replace(part, **{name: known.get(name) for name in names}) for part, known in pairs]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # no folder, or no manifest of this release
        return parts


def reserved_spec(release_id: str) -> str:
    """Return the spec that a release was reserved with, as it was written."""
    with store() as con:
        return find_release(con, release_id).spec


def approved_plan(release_id: str) -> str:
    """Return the file of the approved plan that a release was reserved under, as it was given.

    Raises:
        UsageError: there is no such release, or it was reserved under no approved plan.
    """
    with store() as con:
        find_release(con, release_id)
        plan = kept_plan(con, release_id)
    if plan is None:
        raise UsageError(f"{release_id} was reserved under no approved plan.", field="ID")
    return plan
