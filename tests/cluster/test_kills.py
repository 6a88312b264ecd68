"""Workers, scheduler and home are killed at every event of an order; a release that goes on has one seal for each place."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flows.answers.audit import audit_answer
from storage.database.connections import store
from storage.releases.register import find_release
from storage.releases.seals import list_branches, list_seals
from storage.releases.turns import Turn, list_turns
from tasks.verify.folder import verify
from tests.support.cluster import EVENTS, Machines, cluster, run_home
from tests.support.draws import read_books

MOMENTS = [f"{phase} {event}" for event in EVENTS for phase in ("before", "after")]
SHORT = {"before draw", "after put"}  # the others are of `make cluster`

pytestmark = pytest.mark.usefixtures("own_state")


@pytest.fixture
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process look into the store of the test."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))


@contextmanager
def watched(folder: Path, at: str, name: str = "SIGKILL", **keys: str) -> Iterator[Machines]:
    """Run a cluster of two workers, one of which is killed or stopped at a moment."""
    named = {"TEST_AT": at, "TEST_ONCE": str(folder / "done"), "TEST_SIGNAL": name, "TEST_NOISE": "inftda"}
    with cluster(folder / "cluster", keys={"lost_after": "4s", **keys}, **named) as machines:
        yield machines


def assert_whole(folder: Path, machines: Machines, given_up: int) -> None:
    """Check that the release is published, each place sealed once, and each turn as it should be."""
    with store() as con:
        release, seals = find_release(con, "small"), list_seals(con, "small")
        turns: list[Turn] = list_turns(con, "small")
        branches = list_branches(con, "small")
    assert release.state == "published", machines.log()
    assert len(branches) == 4
    assert verify(Path(release.folder)) == []
    assert audit_answer().ok
    states = sorted(turn.state for turn in turns)
    assert states == sorted(["closed"] * len(seals) + ["given up"] * given_up)
    assert {(turn.level, turn.branch) for turn in turns if turn.state == "closed"} == set(seals)
    for place, seal in seals.items():
        (sealed,) = [turn for turn in turns if (turn.level, turn.branch) == place and turn.state == "closed"]
        assert sealed.turn == seal.turn
    assert [event["event"] for event in read_books("small").events].count("reserved") == 1
    assert not [path for path in machines.mailbox.rglob("*") if path.is_file()]


def published(folder: Path) -> dict[str, bytes]:
    """Return the published tables of the release."""
    with store() as con:
        found = Path(find_release(con, "small").folder)
    return {path.name: path.read_bytes() for path in (found / "counts").iterdir()}


@pytest.mark.parametrize(
    "at", [pytest.param(at, marks=[] if at in SHORT else [pytest.mark.cluster, pytest.mark.crash]) for at in MOMENTS]
)
def test_a_worker_is_killed(tmp_path: Path, at: str) -> None:
    """Whenever a worker dies, its turn is given up and another worker draws the next one; the release goes on by itself."""
    with watched(tmp_path, at) as machines:
        assert run_home(machines, tmp_path) == 0, machines.log()
        assert (tmp_path / "done").exists()
        assert_whole(tmp_path, machines, given_up=1)
