"""Releases that are interrupted, or made while the clock jumps back: nothing confidential is left, and nothing paid for is lost."""

import _thread
import time
from pathlib import Path
from threading import Event, Timer

import pytest

from flows.answers.audit import audit_answer
from flows.run.reservation import new_release
from storage.database.connections import store
from storage.errors import StageFailed
from storage.ledger.events import read_books
from storage.machine.home import home
from storage.releases.register import find_release, list_releases, state_of
from storage.releases.shards import list_shards
from tasks.folder.publish.task import publish
from tasks.folder.verify.folder import verify
from tasks.ingest.task import ingest
from tests.support.draws import place_of
from tests.support.ledger import charges_of
from tests.support.runs import finish, make

CLOCKS = "flows.run.reservation", "storage.ledger.events", "storage.releases.register", "storage.releases.shards"
pytestmark = pytest.mark.usefixtures("_ctrl_c_interrupts")


@pytest.mark.parametrize(
    "stage", [ingest, pytest.param(publish, marks=pytest.mark.thorough)], ids=["ingest", "publish"]
)
def test_ctrl_c_is_heard_when_the_stage_has_ended(stage, plan):
    """While ingesting it leaves nothing behind, no vault that nobody knows of either; while publishing it keeps what is sealed."""
    release, pressed = new_release(plan), Event()

    def press():
        _thread.interrupt_main()
        pressed.set()

    def around(asked, arguments):
        if asked is stage:
            Timer(0.2, press).start()
            assert pressed.wait(60)
            time.sleep(0.5)
        return asked.fn(*arguments)

    with pytest.raises(KeyboardInterrupt):
        make(plan, release, around)
    with store() as con:
        if stage is ingest:
            assert [path for folder in ("vault", "shards") for path in (home() / folder).iterdir()] == []
            assert list_releases(con) == []
            assert charges_of(con, release.id) == {}
            return
        seals, failed = list_shards(con, release.id)["noisy"], find_release(con, release.id)
        assert (failed.state, failed.reason) == ("failed", "It was interrupted.")
    finish(release.id)
    with store() as con:
        assert list_shards(con, release.id)["noisy"] == seals
        assert state_of(con, release.id) == "published"
    assert verify(Path(release.folder)) == []


@pytest.fixture
def set_clock(monkeypatch):
    """Return how to set the clock, which stands still then."""

    def set_to(time):
        for room in CLOCKS:
            monkeypatch.setattr(f"{room}.utc_now", lambda: time)

    return set_to


@pytest.mark.crash
def test_releases_of_a_clock_that_jumps_back_are_told_apart(plan, set_clock):
    """Later releases of an earlier time, or of one that was already, have ids of their own and are charged in their order."""
    made = []
    for now in ("2026-03-01T00:00:00Z", "2025-03-01T00:00:00Z", "2026-03-01T00:00:00Z", "2025-03-01T00:00:00Z"):
        set_clock(now)
        release = new_release(plan)
        make(plan, release)
        made.append(release)
    times = ["20260301T000000Z", "20250301T000000Z", "20260301T000000Z-2", "20250301T000000Z-2"]
    assert [release.id for release in made] == [f"synthetic-commuting-{time}" for time in times]
    with store() as con:
        account = read_books(con).accounts["synthetic-country"]
        assert {entry.id for entry in list_releases(con)} == {release.id for release in made}
    assert list(account.claims) == [release.id for release in made]
    assert account.spent == sum(release.levels[level].rho for release in made for level in range(len(release.levels)))
    assert [verify(Path(release.folder)) for release in made] == [[]] * 4
    assert audit_answer().ok


@pytest.mark.crash
def test_a_release_is_finished_before_the_time_at_which_it_failed(plan, set_clock):
    """What was sealed later than now stays sealed, nothing is drawn twice, and another release may come in between."""
    drawn, broken = list[int](), [2]

    def around(stage, arguments):
        if stage.name == "measure":
            level, _ = place_of(arguments)
            if level in broken:
                raise ValueError("stop")
            drawn.append(level)
        return stage.fn(*arguments)

    set_clock("2026-03-01T00:00:00Z")
    release = new_release(plan)
    with pytest.raises(StageFailed):
        make(plan, release, around)
    assert drawn == [0, 1]
    broken.clear()
    set_clock("2025-03-01T00:00:00Z")
    other = new_release(plan)
    with store() as con:
        sealed = list_shards(con, release.id)["noisy"]
        make(plan, other)
        finish(release.id, around)
        assert sealed.items() <= list_shards(con, release.id)["noisy"].items()
        assert {state_of(con, made.id) for made in (release, other)} == {"published"}
    assert sorted(drawn) == list(range(len(plan.levels)))
    assert verify(Path(release.folder)) == []
    assert audit_answer().ok
