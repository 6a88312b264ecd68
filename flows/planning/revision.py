"""Revisions: a release that replaces an earlier one, in a chain without forks.

A revision measures the same people again and is charged like any release. The earlier release stays charged.
"""

from flows.planning.budget import agreed_terms
from flows.planning.plan import Plan
from storage.database.connections import Connection
from storage.errors import SpecError, UsageError
from storage.ledger.books import Books
from storage.machine.locks import holder_of
from storage.releases.register import Release, find_release, has_folder, state_of, superseding


def check_supersedes(con: Connection, plan: Plan, books: Books) -> None:
    """Refuse a spec whose `supersedes` names a release that it cannot replace.

    Raises:
        SpecError: the named release does not exist, is not published, is about other people, or is already superseded.
    """
    earlier = plan.file.spec.supersedes
    if earlier is None:
        return
    state = state_of(con, earlier)
    if state is None:
        raise SpecError(
            f"supersedes must name a published release; there is no release {earlier}.",
            field="supersedes",
            hint="`trellis releases` lists all releases.",
        )
    if state != "published":
        raise SpecError(
            f"supersedes must name a published release; {earlier} is {state}.",
            field="supersedes",
            hint="A release that is not published needs no revision. Remove supersedes.",
        )
    account = books.account_of(earlier)
    if account is None or account.terms.dataset != agreed_terms(books, plan.asked()).dataset:
        raise SpecError(
            f"supersedes must name a release about the same people; {earlier} belongs to dataset"
            f" {find_release(con, earlier).dataset}, which does not share the budget of {plan.file.spec.dataset}.",
            field="supersedes",
            hint="If both datasets hold the same people, set same_people_as in the spec of a new dataset.",
        )
    for later, its_state in superseding(con, earlier).items():
        if _counts(con, later, its_state):
            raise SpecError(
                f"supersedes: {earlier} is already superseded by {later}, which is {its_state}.",
                field="supersedes",
                hint=_supersede(later, its_state),
            )


def check_still_supersedes(con: Connection, release: Release) -> None:
    """Refuse to resume a release if another release has superseded the same one since it stopped.

    Raises:
        UsageError: another release has; the error names it.
    """
    if release.supersedes is None:
        return
    for later, its_state in superseding(con, release.supersedes).items():
        if later != release.id and _counts(con, later, its_state):
            raise UsageError(
                f"{release.id} cannot supersede {release.supersedes}: {later} supersedes it now, and is {its_state}.",
                field="ID",
                hint=f"Run `trellis abandon {release.id}`. {_supersede(later, its_state)}",
            )


def _counts(con: Connection, later: str, state: str) -> bool:
    """Return whether a release that supersedes another counts: it is published, or a process is making it.

    It is published once its folder exists, even if the ledger does not yet say so.
    """
    if state in {"refused", "abandoned"}:
        return False
    return state == "published" or has_folder(find_release(con, later)) or holder_of(later) is not None


def _supersede(later: str, state: str) -> str:
    first = "" if state == "published" else "Once it is published, "
    return f"{first}{'s' if first else 'S'}upersede that release: set supersedes: {later}."
