"""Releases of every family of mechanisms, killed around their seals and what follows, are finished: measured once, charged once."""

import shutil
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from flows.answers.audit import audit_answer
from flows.answers.verify import verify_answer
from storage.database.connections import store
from tests.support.ages import SPEC, draw_people
from tests.support.draws import Place, read_books
from tests.support.households import LISTED, draw_homes, write_spec, write_tables
from tests.support.launcher import Launcher
from tests.support.town import VIEWS, Town
from tests.support.wide import Wide, trips

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the launcher reads /proc")

ID = "killed"


def of_group_sizes(folder: Path) -> Path:
    """Write homes in counties."""
    write_tables(folder, draw_homes(60))
    return write_spec(folder, **LISTED, keep_noisy_counts=True)


def of_town(**changes: object) -> Callable[[Path], Path]:
    """Return what writes the town's trips."""
    return lambda folder: Town(folder).spec(**changes)


def of_grid(folder: Path) -> Path:
    """Write people by zone and age, whose pairs of levels are all measured."""
    draw_people().write_csv(folder / "people.csv")
    grid = {
        "hierarchy": {"zone": {"ordered": ["n", "s"]}, "age": {"ordered": 10}},
        "release": {"grid": ["zone", "age"]},
    }
    spec = SPEC | grid | {"mechanism": "hierarchical", "noise": {"sampler": "opendp"}}
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec))
    return folder / "spec.yaml"


def of_margins(folder: Path) -> Path:
    """Write trips of a wide country, whose levels are calibrated to margins."""
    return Wide(folder / "wide", trips(flows=40)).spec()


@dataclass(frozen=True)
class Family:
    """A release of a mechanism, and when it is killed.

    Attributes:
        write: writes its tables and its spec to a folder.
        mechanism: its mechanism.
        measured: how many cells are sealed of each level and view that is measured; None where that depends on the noise.
        charged: those of them that cost something.
        settled: a moment after the last seal.
        moments: others.
        rare: further ones, of `make crash` alone.
    """

    write: Callable[[Path], Path]
    mechanism: str
    measured: dict[int, int | None]
    charged: Iterable[int]
    settled: str
    moments: list[str]
    rare: list[str]


PLAIN_TOWN = {"release__views": None, "derived": None}
FAMILIES = {
    "group sizes": Family(
        of_group_sizes,
        "group_sizes",
        {1: 7, 2: 14, 3: 35},  # with size 0; the total is never charged
        [1, 2, 3],
        "after commit seals 3 trunk",
        ["before link level_3_trunk.noisy.parquet", "after commit seals 2 trunk", "after commit frontiers 3 trunk"],
        [
            "after commit seals 1 trunk",
            "after link level_3_trunk.noisy.parquet",
            "before link level_3_trunk.counts.parquet",
            "before commit frontiers 3 trunk",
            "after link level_1_trunk.counts.parquet",
            "after commit frontiers 0 trunk",
        ],
    ),
    "fitted priors": Family(
        of_town(mechanism="inftda_shrunk", **PLAIN_TOWN),
        "inftda_shrunk",
        {0: 1, 1: 2, 2: 4, 3: 8, 4: 16},
        range(5),
        "before link level_4_trunk.prior.parquet",
        [
            "after link level_4_b01.statistics.parquet",
            "after commit seals 2 trunk",
            "after link level_3_trunk.statistics.parquet",
        ],
        [
            "after commit seals 4 b00",
            "before link level_1_trunk.statistics.parquet",
            "after link level_2_trunk.prior.parquet",
            "after link level_0_trunk.settled.parquet",
            "before link level_4_b00.settled.parquet",
            "after link level_4_b01.settled.parquet",
        ],
    ),
    "unbiased trees": Family(
        of_town(mechanism="hierarchical", **PLAIN_TOWN),
        "hierarchical",
        {0: 1, 1: 2, 2: 4, 3: 8, 4: 16},
        range(5),
        "after commit seals 4 trunk",
        ["before link level_3_trunk.noisy.parquet", "after commit seals 2 trunk", "after commit frontiers 4 trunk"],
        [
            *(f"after commit seals {level} trunk" for level in (0, 1, 3)),
            "after link level_4_trunk.noisy.parquet",
            "before link level_4_trunk.counts.parquet",
            "before commit frontiers 4 trunk",
            "after link level_1_trunk.counts.parquet",
            "after commit frontiers 0 trunk",
        ],
    ),
    "a grid": Family(
        of_grid,
        "hierarchical",
        dict.fromkeys(range(10)),
        range(10),
        "before commit frontiers 0 trunk",
        ["after commit seals 7 trunk"],
        [],
    ),
    "views": Family(
        of_town(run={"prefect": False}, release__views=VIEWS),
        "cbdp",
        {0: 1, 2: 4, 4: 16, 5: 4, 6: 4, 7: 3, 8: 5},  # the total, pairs of districts, leaves, and views beside the tree
        [0, 2, 4, 5, 6, 7, 8],
        "after commit seals 8 trunk",
        ["before link level_7_trunk.noisy.parquet", "after commit seals 4 trunk", "after commit frontiers 4 trunk"],
        [
            *(f"after commit seals {number} trunk" for number in (0, 2, 5, 6, 7)),
            "after link level_8_trunk.noisy.parquet",
            "before link level_4_trunk.counts.parquet",
            "before commit frontiers 4 trunk",
        ],
    ),
    "margins": Family(
        of_margins,
        "inftda_reconciled",
        dict.fromkeys(range(8)),  # the levels, and the margins beside them
        range(1, 8),
        "after commit INSERT settled",
        ["before commit INSERT calibrated", "after commit seals 6 trunk"],
        [
            "after link level_7_trunk.noisy.parquet",
            "before link level_1_trunk.calibrated.parquet",
            "after link level_5_trunk.calibrated.parquet",
            "after commit INSERT calibrated",
        ],
    ),
}
QUICK = {(name, FAMILIES[name].moments[0]) for name in ("fitted priors", "unbiased trees", "views")}
MOMENTS = [
    pytest.param(name, moment, marks=() if (name, moment) in QUICK else mark)
    for name, family in FAMILIES.items()
    for mark, moments in ((pytest.mark.thorough, family.moments), (pytest.mark.crash, family.rare))
    for moment in moments
]


class Killed:
    """Kills a release of a family, and finishes it."""

    def __init__(self, launch: Launcher, folder: Path, home: Path, family: Family) -> None:
        self.launch, self.home, self.out, self.mechanism = launch, home, folder / "out", family.mechanism
        self.spec = family.write(folder)

    def kill(self, moment: str) -> None:
        """Kill the release at a moment."""
        options = {"spec": str(self.spec), "output": str(self.out), "release_id": ID}
        assert self.launch.run(self.home, "make", **options, kill_at=moment) == (-signal.SIGKILL, None, False)

    def finish(self) -> dict[Place, int]:
        """Finish it, and return how many cells it has drawn of each place."""
        ended = self.launch.run(self.home, "finish", release_id=ID, sampler="opendp", mechanism=self.mechanism)
        assert (ended.code, ended.left) == (0, False)
        return {(level, branch): cells for level, branch, cells in ended.result}

    def tables(self) -> dict[str, bytes]:
        """Return what is published of counts."""
        files = [*(self.out / ID).rglob("*.parquet"), *(self.out / ID).rglob("*.csv")]
        return {str(file): file.read_bytes() for file in files}


@pytest.mark.parametrize(("name", "moment"), MOMENTS)
def test_what_is_sealed_is_never_drawn_again(
    name: str, moment: str, launch: Launcher, tmp_path: Path, home: Path
) -> None:
    """After SIGKILL what was sealed stays, the rest is drawn once, all cells of it, and charged once."""
    family = FAMILIES[name]
    killed = Killed(launch, tmp_path, home, family)
    killed.kill(moment)
    before = read_books(ID)
    drawn = killed.finish()
    after = read_books(ID)
    assert before.seals.items() <= after.seals.items()
    assert drawn == {place: seal.cells for place, seal in after.seals.items() if place not in before.seals}
    cells = dict.fromkeys(family.measured, 0)
    for (level, _), seal in after.seals.items():
        cells[level] += seal.cells
    assert cells == {level: cells[level] if of is None else of for level, of in family.measured.items()}
    for level in family.measured:
        assert after.events_of(level) == (["drawing", "sealed", "released"] if level in family.charged else [])
    assert {event.get("level") for event in after.events} <= {None, *family.measured}
    assert [event["event"] for event in after.events].count("reserved") == 1
    assert verify_answer(killed.out / ID).failures == []
    with store():
        assert audit_answer().findings == []


@pytest.mark.thorough
@pytest.mark.parametrize("name", FAMILIES)
def test_the_same_seals_give_the_same_bytes(name: str, launch: Launcher, tmp_path: Path, home: Path) -> None:
    """A release that is killed after its last seal, and finished twice from copies, publishes the same tables both times."""
    killed = Killed(launch, tmp_path, home, FAMILIES[name])
    killed.kill(FAMILIES[name].settled)
    shutil.copytree(home, tmp_path / "copy")
    assert killed.finish() == {}
    tables = killed.tables()
    shutil.rmtree(killed.out)
    shutil.rmtree(home)
    shutil.copytree(tmp_path / "copy", home)
    assert killed.finish() == {}
    assert killed.tables() == tables
    assert len(tables) > 5
