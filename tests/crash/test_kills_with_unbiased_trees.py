"""A release of every node that is killed around its seals and sums can be finished: measured once, charged once, the same bytes."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from flows.answers.audit import audit_answer
from flows.answers.verify import verify_answer
from storage.database.connections import store
from tests.support.ages import SPEC, draw_people
from tests.support.draws import read_books
from tests.support.killed import ID, Killed
from tests.support.launcher import Launcher, launcher
from tests.support.town import Town

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the launcher reads /proc")

MECHANISM = "hierarchical"
CELLS = [1, 2, 4, 8, 16]  # of the levels, all of which are measured
SAMPLE = [
    "after commit seals 2 trunk",
    "before link level_3_trunk.noisy.parquet",
    "after commit frontiers 4 trunk",  # the leaves are settled, and no level is summed
]
OTHERS = [
    *(f"after commit seals {level} trunk" for level in (0, 1, 3, 4)),
    "after link level_4_trunk.noisy.parquet",
    "before link level_4_trunk.counts.parquet",
    "before commit frontiers 4 trunk",
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
    return Killed(
        launch, tmp_path, Town(tmp_path).spec(mechanism=MECHANISM, release__views=None, derived=None), MECHANISM
    )


@pytest.mark.parametrize("moment", [*SAMPLE, *(pytest.param(of, marks=pytest.mark.crash) for of in OTHERS)])
def test_what_is_sealed_is_never_drawn_again(killed: Killed, moment: str) -> None:
    """After SIGKILL what was sealed stays, the rest is drawn once and charged once, and the release is verified and audited."""
    killed.kill(moment)
    with store():
        before = read_books(ID)
    sealed = {level for level, _ in before.seals}
    assert set(killed.finish()) == set(range(5)) - sealed
    with store():
        after = read_books(ID)
        assert audit_answer().findings == []
    assert before.seals.items() <= after.seals.items()
    assert {place: seal.cells for place, seal in after.seals.items()} == {
        (level, "trunk"): cells for level, cells in enumerate(CELLS)
    }
    for level in range(5):
        assert after.events_of(level) == ["drawing", "sealed", "released"]
    assert [event["event"] for event in after.events].count("reserved") == 1
    assert verify_answer(killed.out / ID).failures == []


def test_the_same_seals_give_the_same_bytes(killed: Killed) -> None:
    """A release that is killed after its last seal, and finished twice from copies, publishes the same tables both times."""
    killed.kill("after commit seals 4 trunk")
    tables = killed.finished_twice()
    assert len(tables[0]) > 10
    assert tables[0] == tables[1]


@pytest.mark.parametrize("moment", ["after commit seals 7 trunk", "before commit frontiers 0 trunk"])
def test_a_grid_that_is_killed_is_finished(
    launch: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Pairs of levels that are views are sealed once as well, and everything is settled after the last of them."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    draw_people().write_csv(tmp_path / "people.csv")
    grid = {
        "hierarchy": {"zone": {"ordered": ["n", "s"]}, "age": {"ordered": 10}},
        "release": {"grid": ["zone", "age"]},
    }
    spec = SPEC | grid | {"mechanism": MECHANISM, "noise": {"sampler": "opendp"}}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    killed = Killed(launch, tmp_path, tmp_path / "spec.yaml", MECHANISM)
    killed.kill(moment)
    with store():
        sealed = {level for level, _ in read_books(ID).seals}
    assert set(killed.finish()) == set(range(10)) - sealed
    with store():
        after = read_books(ID)
        assert audit_answer().findings == []
    for number in range(10):
        assert after.events_of(number) == ["drawing", "sealed", "released"]
    assert verify_answer(killed.out / ID).failures == []
