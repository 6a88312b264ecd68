"""Revisions: a release that takes the place of an earlier one, in a chain without forks.

A revision is a new measurement of the same people, charged like any release; what the earlier one has cost stays charged.
"""

from flows.planning.charging import agreed_terms
from flows.planning.plan import Plan
from storage.database.connections import Connection
from storage.errors import SpecError, UsageError
from storage.ledger.books import Books
from storage.machine.locks import holder_of
from storage.releases.register import Release, find_release, is_out, state_of, superseding


def check_supersedes(con: Connection, plan: Plan, books: Books) -> None:
    """Refuse a spec that supersedes what it cannot.

    Raises:
        SpecError: there is no such release, it is not published, of other people, or superseded already.
    """
    earlier = plan.file.spec.supersedes
    if earlier is None:
        return
    state = state_of(con, earlier)
    if state is None:
        raise SpecError(
            f"supersedes must name a published release; there is none called {earlier}.",
            field="supersedes",
            hint="`trellis releases` lists those there are.",
        )
    if state != "published":
        raise SpecError(
            f"supersedes must name a published release; {earlier} is {state}.",
            field="supersedes",
            hint="What nobody has been given needs no revision: leave it out.",
        )
    account = books.account_of(earlier)
    if account is None or account.terms.dataset != agreed_terms(books, plan.asked()).dataset:
        raise SpecError(
            f"supersedes must name a release about the same people; {earlier} is of dataset {find_release(con, earlier).dataset},"
            f" which has another account than {plan.file.spec.dataset}.",
            field="supersedes",
            hint="same_people_as in the spec says whose people a new dataset holds.",
        )
    for later, its_state in superseding(con, earlier).items():
        if _counts(con, later, its_state):
            raise SpecError(
                f"supersedes: {earlier} is superseded already by {later}, which is {its_state}.",
                field="supersedes",
                hint=_supersede(later, its_state),
            )


def check_still_supersedes(con: Connection, release: Release) -> None:
    """Refuse to go on with a release whose place in the chain another has taken since it stopped.

    Raises:
        UsageError: names the other.
    """
    if release.supersedes is None:
        return
    for later, its_state in superseding(con, release.supersedes).items():
        if later != release.id and _counts(con, later, its_state):
            raise UsageError(
                f"{release.id} supersedes {release.supersedes}, which {later} does meanwhile; that one is {its_state}.",
                field="ID",
                hint=f"`trellis abandon {release.id}`. {_supersede(later, its_state)}",
            )


def _counts(con: Connection, later: str, state: str) -> bool:
    """Return whether a release that supersedes another has its place: it is out, or somebody is making it.

    It is out once its folder is there, also where its books could not be closed yet.
    """
    if state in {"refused", "abandoned"}:
        return False
    return state == "published" or is_out(find_release(con, later)) or holder_of(later) is not None


def _supersede(later: str, state: str) -> str:
    first = "" if state == "published" else "Once it is published, "
    return f"{first}{'s' if first else 'S'}upersede that one: supersedes: {later}."
