"""A clock that jumps back: ids stay apart, what was sealed stays, and the ledger goes by its order, not by its times."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import flows.execution.reservation
import storage.ledger.events
import storage.releases.register
import storage.releases.seals
from flows.answers.audit import audit_answer
from flows.execution.reservation import new_release
from flows.planning.plan import Plan
from storage.database.connections import store
from storage.errors import StageFailed
from storage.ledger.events import read_books
from storage.releases.register import list_releases, state_of
from storage.releases.seals import list_seals
from tasks.verify.folder import verify
from tests.support.draws import place_of
from tests.support.runs import finish, make

SetClock = Callable[[str], None]

pytestmark = pytest.mark.crash


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> SetClock:
    """Return how to set the clock, which stands still then."""

    def set_to(time: str) -> None:
        for room in (
            flows.execution.reservation,
            storage.ledger.events,
            storage.releases.register,
            storage.releases.seals,
        ):
            monkeypatch.setattr(room, "utc_now", lambda: time)

    return set_to


def test_releases_of_a_clock_that_jumps_back_are_told_apart(plan: Plan, set_clock: SetClock) -> None:
    """Later releases of an earlier time, or of one that was already, have ids of their own and are charged in their order."""
    made = []
    for time in ("2026-03-01T00:00:00Z", "2025-03-01T00:00:00Z", "2026-03-01T00:00:00Z", "2025-03-01T00:00:00Z"):
        set_clock(time)
        release = new_release(plan)
        make(plan, release)
        made.append(release)
    assert [release.id.removeprefix("synthetic-commuting-") for release in made] == [
        "20260301T000000Z",
        "20250301T000000Z",
        "20260301T000000Z-2",
        "20250301T000000Z-2",
    ]
    with store() as con:
        account = read_books(con).accounts["synthetic-country"]
        assert {entry.id for entry in list_releases(con)} == {release.id for release in made}
    assert list(account.claims) == [release.id for release in made]
    assert account.spent == sum(release.levels[level].rho for release in made for level in range(len(release.levels)))
    assert [verify(Path(release.folder)) for release in made] == [[]] * 4
    assert audit_answer().ok


def test_a_release_is_finished_before_the_time_at_which_it_failed(plan: Plan, set_clock: SetClock) -> None:
    """What was sealed later than now stays sealed, nothing is drawn twice, and another release may come in between."""
    drawn: list[tuple[int, str]] = []
    broken = {2}

    def around(stage: Any, arguments: tuple[Any, ...]) -> Any:
        if stage.name == "measure_branch":
            if place_of(arguments)[0] in broken:
                raise ValueError("stop")
            drawn.append(place_of(arguments))
        return stage.fn(*arguments)

    set_clock("2026-03-01T00:00:00Z")
    release = new_release(plan)
    with pytest.raises(StageFailed):
        make(plan, release, around)
    assert [level for level, _ in drawn] == [0, 1]
    with store() as con:
        sealed = list_seals(con, release.id)
    broken.clear()
    set_clock("2025-03-01T00:00:00Z")
    other = new_release(plan)
    make(plan, other)
    finish(release.id, around)
    with store() as con:
        assert sealed.items() <= list_seals(con, release.id).items()
        assert {state_of(con, made.id) for made in (release, other)} == {"published"}
    assert sorted(level for level, _ in drawn) == list(range(len(plan.levels)))
    assert verify(Path(release.folder)) == []
    assert audit_answer().ok
