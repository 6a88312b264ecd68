"""A release of group sizes that is killed around its seals and its sums can be finished: measured once, charged once, the same bytes."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.answers.audit import audit_answer
from flows.answers.verify import verify_answer
from storage.database.connections import store
from tests.support.draws import read_books
from tests.support.households import LARGEST, LISTED, draw_homes, write_spec, write_tables
from tests.support.killed import ID, Killed
from tests.support.launcher import Launcher, launcher

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the launcher reads /proc")

MECHANISM = "group_sizes"
CELLS = {1: LARGEST + 1, 2: 2 * (LARGEST + 1), 3: 5 * (LARGEST + 1)}  # of the measured levels, with size 0
SAMPLE = [
    "after commit seals 2 trunk",
    "before link level_3_trunk.noisy.parquet",
    "after commit frontiers 3 trunk",  # the finest sizes are settled, and no level is summed
]
OTHERS = [
    *(f"after commit seals {level} trunk" for level in (1, 3)),
    "after link level_3_trunk.noisy.parquet",
    "before link level_3_trunk.counts.parquet",
    "before commit frontiers 3 trunk",
    "after link level_1_trunk.counts.parquet",
    "after commit frontiers 0 trunk",
]


@pytest.fixture(scope="module")
def launch() -> Iterator[Launcher]:
    """Start the warm process that forks a child per run."""
    with launcher() as started:
        yield started


@pytest.fixture
def killed(launch: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Killed:
    """Return the maker of releases that are killed."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    write_tables(tmp_path, draw_homes(60))
    return Killed(launch, tmp_path, write_spec(tmp_path, **LISTED, keep_noisy_counts=True), MECHANISM)


@pytest.mark.parametrize("moment", [*SAMPLE, *(pytest.param(of, marks=pytest.mark.crash) for of in OTHERS)])
def test_what_is_sealed_is_never_drawn_again(killed: Killed, moment: str) -> None:
    """After SIGKILL what was sealed stays, the rest is drawn once and charged once, and the total is never charged."""
    killed.kill(moment)
    with store():
        before = read_books(ID)
    sealed = {level for level, _ in before.seals}
    assert set(killed.finish()) == {1, 2, 3} - sealed
    with store():
        after = read_books(ID)
        assert audit_answer().findings == []
    assert before.seals.items() <= after.seals.items()
    assert {level: seal.cells for (level, _), seal in after.seals.items()} == CELLS
    assert after.events_of(0) == []
    for level in CELLS:
        assert after.events_of(level) == ["drawing", "sealed", "released"]
    assert [event["event"] for event in after.events].count("reserved") == 1
    assert verify_answer(killed.out / ID).failures == []


def test_the_same_seals_give_the_same_bytes(killed: Killed) -> None:
    """A release that is killed after its last seal, and finished twice from copies, publishes the same tables both times."""
    killed.kill("after commit seals 3 trunk")
    tables = killed.finished_twice()
    assert len(tables[0]) > 7
    assert tables[0] == tables[1]
