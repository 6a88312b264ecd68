"""A release that is killed at whatever becomes durable can be finished: measured once, charged once, nothing left over.

The moments are the durable events of one release, just before and just after each. A few are of every run, a sample of
`make test-all`, and all of them of `make crash`.
"""

import shutil
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from flows.answers.audit import audit_answer
from flows.execution.ending import sweep_orphans
from storage.counts.shards import noisy_path
from storage.database.connections import store
from storage.ledger.events import head
from storage.machine.deltas import DELTAS
from storage.machine.fingerprints import KEY
from storage.releases.register import list_releases
from storage.releases.seals import list_seals
from tasks.laws.gaussian import GAUSSIAN
from tasks.verify.folder import verify
from tests.support.draws import BRANCHES, LEVELS, Draws, assert_finished, read_books, write_small
from tests.support.launcher import Launcher

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the launcher reads /proc")

ID = "killed"
RESERVED = "after commit ledger reserved"
PLACES = [(level, "trunk") for level in range(3)] + [(level, branch) for level in (3, 4) for branch in BRANCHES]
COUNTS = {f"level_{level}_{branch}.counts.parquet" for level, branch in PLACES}
SHARDS = {f"level_{level}_{branch}.{kind}.parquet" for level, branch in PLACES for kind in ("noisy", "counts")}
CODEBOOKS = {"codebook_origin.parquet", "codebook_destination.parquet"}

SAMPLE = {
    "before the reservation": [
        "after commit CREATE migrations",
        "after fsync codebook_origin.parquet.partial",
        "before commit DROP summed",
        "after commit CREATE true_level_2",
    ],
    "after the reservation": [RESERVED],
    "before a turn": ["before commit turn open 2 trunk", "before commit turn open 3 b02"],
    "in a turn": ["after commit turn open 1 trunk", "after commit turn open 4 b03"],
    "after drawing": ["before fsync level_1_trunk.noisy.parquet.partial"],
    "between write and link of a shard": [
        "before link level_2_trunk.noisy.parquet",
        "before link level_3_b03.counts.parquet",
    ],
    "between a shard and its seal": ["after link level_3_b01.noisy.parquet"],
    "after a seal": ["after commit seals 1 trunk", "after commit seals 3 b02", "after commit ledger sealed 4"],
    "mid-transaction": [
        "before commit INSERT migrations",
        "before commit ledger reserved",
        "before commit INSERT branches",
        "before commit seals 4 b00",
    ],
    "between validation and publication": ["after commit INSERT checks"],
    "during the rename of the folder": [f"before rename {ID}", f"after rename {ID}"],
    "while tables are stored": [f'before commit CREATE "{ID}".level_3', f'after commit CREATE "{ID}".level_4'],
    "between publication and the end": ["before commit releases published", "after commit releases published"],
}
QUICK = {  # of every run; the others of the sample are of `make test-all`
    ("opendp", "after commit CREATE true_level_2"),
    ("opendp", "after link level_3_b01.noisy.parquet"),
    ("opendp", "before commit seals 4 b00"),
    ("opendp", "before commit releases published"),
}
BY_TABLE = {
    "when the table sampler has just begun": [RESERVED, "before fsync level_1_trunk.noisy.parquet.partial"],
    "when it has drawn in several branches": ["after link level_3_b01.noisy.parquet", "after commit seals 3 b02"],
}


@pytest.fixture(scope="module")
def specs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write a small country for each sampler, and return the paths of the specs."""
    return {named: write_small(tmp_path_factory.mktemp("small") / named, named) for named in GAUSSIAN.samplers}


@pytest.fixture(scope="module")
def moments(launch: Launcher, specs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Make a release without a kill, and return all moments that it has come by, in their order."""
    folder = tmp_path_factory.mktemp("unkilled")
    made = launch.run(folder / "home", "make", spec=str(specs["opendp"]), output=str(folder / "out"), release_id=ID)
    assert (made.code, made.left) == (0, False)
    return list(made.result)


class Killed:
    """Kills releases, and looks at what is left of them and at how they go on."""

    def __init__(
        self,
        launch: Launcher,
        specs: dict[str, Path],
        moments: list[str],
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.launch, self.specs, self.moments, self.folder = launch, specs, moments, folder
        self.monkeypatch, self.sampler = monkeypatch, "opendp"
        self.home, self.out = folder / "home", folder / "out"

    def check(self, moment: str, *, hold: bool) -> None:
        """Kill a release at a moment, and check that all is well after it has gone on."""
        assert moment in self.moments
        self.monkeypatch.setenv("TRELLIS_HOME", str(self.home))
        assert self.make(ID, kill_at=moment, hold=hold) == (-signal.SIGKILL, None, False)
        if moment in self.moments[: self.moments.index(RESERVED)]:
            self.check_that_it_has_cost_nothing()
        else:
            self.check_that_it_goes_on()
        shutil.rmtree(self.home)
        shutil.rmtree(self.out)

    def make(self, release_id: str, **options: str | bool) -> tuple[object, ...]:
        """Make a release in a child, and return how that ended."""
        of_this_spec = {"spec": str(self.specs[self.sampler]), "output": str(self.out), "release_id": release_id}
        return self.launch.run(self.home, "make", **of_this_spec, **options)

    def check_that_it_goes_on(self) -> None:
        """Finish the release: what was sealed stays, what was not is drawn, once, and nothing else is left."""
        with store():
            before = read_books(ID)
        assert before.state in {"reserved", "running", "published"}
        assert {place: seal.sha256 for place, seal in before.seals.items()}.items() <= before.shards.items()
        shards = self.home / "shards" / ID
        for place in before.unsealed():
            noisy_path(ID, *place).write_bytes(b"whoever reads this fails")
        ended = self.launch.run(self.home, "finish", release_id=ID, sampler=self.sampler)
        assert (ended.code, ended.left) == (0, False)
        with store():
            drawn = Counter({(level, branch): cells for level, branch, cells in ended.result})
            assert_finished(ID, before, Draws(cells=drawn))
            assert audit_answer().findings == []
        with store() as con:
            sealed = {noisy_path(ID, *place, seal.turn).name for place, seal in list_seals(con, ID).items()}
        assert len(sealed) == len(PLACES)
        assert {path.name for path in shards.iterdir()} == sealed | COUNTS | CODEBOOKS
        assert list((self.home / "vault").iterdir()) == []

    def check_that_it_has_cost_nothing(self) -> None:
        """Sweep: nothing is left, and another release may cost all that there is."""
        with store() as con:
            assert list_releases(con) == []
            assert head(con).length == 0
            sweep_orphans()
            left = {path.name for path in self.home.rglob("*")} - {"shards", "vault", "tmp", "running"}
        assert left <= {"store.duckdb", "store.duckdb.wal", KEY, f"{KEY}.partial", DELTAS, f"{DELTAS}.partial"}
        assert not self.out.exists()
        assert self.make("next", hold=True)[0] == 0
        with store():
            assert verify(self.out / "next") == []
            assert audit_answer().findings == []
        assert [path.name for path in self.out.iterdir()] == ["next"]
        assert list((self.home / "vault").iterdir()) == []
        assert [path.name for path in (self.home / "shards").iterdir()] == ["next"]


@pytest.fixture
def killed(
    launch: Launcher, specs: dict[str, Path], moments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Killed:
    """Return the maker of releases that are killed."""
    return Killed(launch, specs, moments, tmp_path, monkeypatch)


def test_every_durable_event_of_a_release_is_noticed(moments: list[str]) -> None:
    """Every shard's write, rename and record, every charge's step, and everything published is a moment, and one only."""
    assert len(moments) == len(set(moments)) > 200
    events = {moment.removeprefix("before ") for moment in moments if moment.startswith("before ")}
    assert {moment.removeprefix("after ") for moment in moments if moment.startswith("after ")} == events
    for shard in SHARDS | CODEBOOKS:
        named = "rename" if shard in CODEBOOKS else "link"
        assert {f"fsync {shard}.partial", f"{named} {shard}", f"fsync the folder of {shard}"} <= events
    for level, branch in PLACES:
        assert {f"commit seals {level} {branch}", f"commit frontiers {level} {branch}"} <= events
        assert {f"commit turn {state} {level} {branch}" for state in ("open", "closed")} <= events
    for level in LEVELS:
        assert {f"commit ledger drawing {level}", f"commit ledger sealed {level}"} <= events
    texts = {"README.md", "report.html", "explorer.html", "counts.csv", "metadata.json", "manifest.json", "SHA256SUMS"}
    published = texts | {f"level_{of}.parquet" for of in range(5)}
    assert {f"fsync {file}" for file in published} <= events
    assert {"commit ledger reserved", "commit INSERT checks", f"rename {ID}", "commit releases published"} <= events


@pytest.mark.parametrize(
    ("phase", "moment", "sampler"),
    [
        pytest.param(phase, moment, sampler, marks=() if (sampler, moment) in QUICK else pytest.mark.thorough)
        for sampler, sample in (("opendp", SAMPLE), ("table", BY_TABLE))
        for phase, in_it in sample.items()
        for moment in in_it
    ],
)
def test_a_release_survives_a_kill(phase: str, moment: str, sampler: str, killed: Killed) -> None:
    """After SIGKILL a reserved release is finished with every level drawn and charged once; another has cost nothing."""
    killed.sampler = sampler
    killed.check(moment, hold="commit" in moment)


@pytest.mark.crash
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("hold", [False, True], ids=["at every moment", "at every commit, with all of it in the log"])
def test_a_release_survives_every_kill(
    hold: bool, moments: list[str], killed: Killed, subtests: pytest.Subtests
) -> None:
    """The same holds for all moments; and for all commits while the store stays open, so that its log has everything."""
    for number, moment in enumerate(moments):
        if "commit" in moment or not hold:
            killed.home, killed.out = killed.folder / f"home-{number}", killed.folder / f"out-{number}"
            with subtests.test(moment=moment):
                killed.check(moment, hold=hold)
