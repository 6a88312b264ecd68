"""A release with views that is killed around each of its seals can be finished: measured once, charged once, the same bytes."""

import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.answers.audit import audit_answer
from flows.answers.verify import verify_answer
from storage.database.connections import store
from tests.support.draws import Books, read_books
from tests.support.launcher import Launcher, launcher
from tests.support.town import VIEWS, Town
from tests.support.wide import Wide, trips

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the launcher reads /proc")

ID = "killed"
MEASURED = [0, 2, 4, 5, 6, 7, 8]  # the total, the pairs of districts, the leaves, and the views beside the tree
SAMPLE = [
    "after commit seals 4 trunk",
    "before link level_7_trunk.noisy.parquet",
    "after commit frontiers 4 trunk",  # everything is settled
]
OTHERS = [
    *(f"after commit seals {number} trunk" for number in MEASURED if number != 4),
    "after link level_8_trunk.noisy.parquet",
    "before link level_4_trunk.counts.parquet",
    "before commit frontiers 4 trunk",
]


@pytest.fixture(scope="module")
def launch() -> Iterator[Launcher]:
    """Start the warm process that forks a child per run."""
    with launcher() as started:
        yield started


class Killed:
    """Kills a release, and finishes it in copies of its store."""

    def __init__(self, launch: Launcher, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.launch, self.folder, self.monkeypatch = launch, folder, monkeypatch
        self.home, self.out = folder / "home", folder / "out"
        self.spec = Town(folder).spec(run={"prefect": False}, release__views=VIEWS)

    def kill(self, moment: str) -> Books:
        """Kill a release at a moment, and return what is left."""
        options = {"spec": str(self.spec), "output": str(self.out), "release_id": ID}
        assert self.launch.run(self.home, "make", **options, kill_at=moment) == (-signal.SIGKILL, None, False)
        return self.books()

    def finish(self, mechanism: str = "cbdp") -> dict[int, int]:
        """Finish it, and return how many cells it has drawn of each level and view."""
        ended = self.launch.run(self.home, "finish", release_id=ID, sampler="opendp", mechanism=mechanism)
        assert (ended.code, ended.left) == (0, False)
        return {number: cells for number, _, cells in ended.result}

    def books(self) -> Books:
        """Return what is known of it."""
        self.monkeypatch.setenv("TRELLIS_HOME", str(self.home))
        with store():
            return read_books(ID)


@pytest.fixture
def killed(launch: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Killed:
    """Return the maker of releases that are killed."""
    return Killed(launch, tmp_path, monkeypatch)


@pytest.mark.parametrize("moment", [*SAMPLE, *(pytest.param(of, marks=pytest.mark.crash) for of in OTHERS)])
def test_what_is_sealed_of_views_is_never_drawn_again(killed: Killed, moment: str) -> None:
    """After SIGKILL what was sealed stays, the rest is drawn once and charged once, and the release is verified and audited."""
    before = killed.kill(moment)
    sealed = {number for number, _ in before.seals}
    drawn = killed.finish()
    assert set(drawn) == set(MEASURED) - sealed
    after = killed.books()
    assert before.seals.items() <= after.seals.items()
    assert {place: seal.cells for place, seal in after.seals.items()} == {
        (number, "trunk"): cells for number, cells in zip(MEASURED, (1, 4, 16, 4, 4, 3, 5), strict=True)
    }
    for number in MEASURED:
        assert after.events_of(number) == ["drawing", "sealed", "released"]
    assert [event["event"] for event in after.events].count("reserved") == 1
    with store():
        assert audit_answer().findings == []
    assert verify_answer(killed.out / ID).failures == []


WIDE_MEASURED = [0, 1, 2, 3, 4, 5, 6, 7]  # the levels, and the margins beside them
WIDE_SAMPLE = ["after commit seals 6 trunk", "before commit INSERT calibrated"]
WIDE_OTHERS = [
    "after commit INSERT settled",
    "after link level_7_trunk.noisy.parquet",
    "before link level_1_trunk.calibrated.parquet",
    "after link level_5_trunk.calibrated.parquet",
    "after commit INSERT calibrated",
]


@pytest.mark.parametrize("moment", [*WIDE_SAMPLE, *(pytest.param(of, marks=pytest.mark.crash) for of in WIDE_OTHERS)])
def test_what_is_sealed_of_margins_is_never_drawn_again(killed: Killed, moment: str) -> None:
    """The same holds where the levels are calibrated to margins, which are measured after them."""
    killed.spec = Wide(killed.folder / "wide", trips(flows=40)).spec()
    before = killed.kill(moment)
    sealed = {number for number, _ in before.seals}
    drawn = killed.finish("inftda_reconciled")
    assert set(drawn) == set(WIDE_MEASURED) - sealed
    after = killed.books()
    assert before.seals.items() <= after.seals.items()
    assert sorted({number for number, _ in after.seals}) == WIDE_MEASURED
    for number in WIDE_MEASURED[1:]:
        assert after.events_of(number) == ["drawing", "sealed", "released"]
    with store():
        assert audit_answer().findings == []
    assert verify_answer(killed.out / ID).failures == []


def test_the_same_seals_give_the_same_bytes(killed: Killed) -> None:
    """A release that is killed after its last seal, and finished twice from copies, publishes the same tables both times."""
    killed.kill("after commit seals 8 trunk")
    shutil.copytree(killed.home, killed.folder / "copy")
    tables = []
    for _ in range(2):
        assert killed.finish() == {}
        files = [*(killed.out / ID).rglob("*.parquet"), *(killed.out / ID).rglob("*.csv")]
        tables.append({str(file): file.read_bytes() for file in files})
        shutil.rmtree(killed.out)
        shutil.rmtree(killed.home)
        shutil.copytree(killed.folder / "copy", killed.home)
    assert len(tables[0]) > 20
    assert tables[0] == tables[1]
