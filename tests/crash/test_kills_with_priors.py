"""A release whose counts follow from fitted priors is finished after a kill: measured once, and the same bytes."""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.answers.audit import audit_answer
from flows.answers.verify import verify_answer
from storage.database.connections import store
from tests.support.draws import read_books
from tests.support.killed import ID, Killed
from tests.support.launcher import Launcher, launcher
from tests.support.town import Town

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the launcher reads /proc")

MECHANISM = "inftda_shrunk"
SAMPLE = [
    "after commit seals 2 trunk",
    "after link level_3_trunk.statistics.parquet",
    "before link level_4_trunk.prior.parquet",
    "after link level_4_b01.statistics.parquet",
]
OTHERS = [
    "after commit seals 4 b00",
    "before link level_1_trunk.statistics.parquet",
    "after link level_2_trunk.prior.parquet",
    "after link level_0_trunk.settled.parquet",
    "before link level_4_b00.settled.parquet",
    "after link level_4_b01.settled.parquet",
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
    spec = Town(tmp_path).spec(mechanism=MECHANISM, release__views=None, derived=None)
    return Killed(launch, tmp_path, spec, MECHANISM)


@pytest.mark.parametrize("moment", [*SAMPLE, *(pytest.param(of, marks=pytest.mark.crash) for of in OTHERS)])
def test_what_is_sealed_is_never_drawn_again(killed: Killed, moment: str) -> None:
    """After SIGKILL what was sealed stays, the rest is drawn once, all cells of it, and the release is verified and audited."""
    killed.kill(moment)
    with store():
        before = read_books(ID)
    begun = {level for level, _ in before.seals}
    drawn = killed.finish()
    assert not set(drawn) & (begun - {4})  # of level 4 one branch may be sealed, and the other be drawn
    with store():
        after = read_books(ID)
        assert audit_answer().findings == []
    assert before.seals.items() <= after.seals.items()
    cells = Counter[int]()
    for (level, _), seal in after.seals.items():
        cells[level] += seal.cells
    assert cells == {0: 1, 1: 2, 2: 4, 3: 8, 4: 16}
    for level in range(1, 5):
        assert after.events_of(level) == ["drawing", "sealed", "released"]
    assert verify_answer(killed.out / ID).failures == []


def test_the_same_seals_give_the_same_bytes(killed: Killed) -> None:
    """A release that is killed after its last seal, and finished twice from copies, publishes the same tables both times."""
    killed.kill("before link level_4_trunk.prior.parquet")
    tables = killed.finished_twice()
    assert len(tables[0]) > 5
    assert tables[0] == tables[1]
