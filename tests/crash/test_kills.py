"""A release that is killed at whatever becomes durable can be finished: measured once, charged once, nothing left over.

The moments are the durable events of a release, just before and just after each. A few are of every run, some of each family of
mechanisms of `make test-all`, and more of `make crash`: of the small country that is walked in branches, all.
"""

import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import pytest

from flows.answers.audit import audit_answer
from flows.planning.guarantee import DELTAS
from flows.run.ending import sweep_orphans
from storage.counts.shard_files import noisy_path
from storage.database.connections import store
from storage.ledger.events import head
from storage.machine.fingerprints import KEY
from storage.releases.register import list_releases
from storage.releases.shards import list_shards
from tasks.folder.verify.folder import verify
from tasks.laws.gaussian import GAUSSIAN
from tests.support.ages import BY_AGE, SPEC, draw_people
from tests.support.draws import BRANCHES, CELLS, LEVELS, Draws, assert_finished, read_books, write_small
from tests.support.households import LISTED_TENURE, draw_homes, write_spec, write_tables
from tests.support.spec import SPEC as COUNTRY
from tests.support.spec import spec_in
from tests.support.town import VIEWS, Town
from tests.support.wide import Wide, trips

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the launcher reads /proc")

ID = "killed"
RESERVED = "after commit ledger reserved"
PLACES = [(level, "trunk") for level in range(3)] + [(level, branch) for level in (3, 4) for branch in BRANCHES]
COUNTS = {f"level_{level}_{branch}.counts.parquet" for level, branch in PLACES}
SHARDS = {f"level_{level}_{branch}.{kind}.parquet" for level, branch in PLACES for kind in ("noisy", "counts")}
CODEBOOKS = {"codebook_origin.parquet", "codebook_destination.parquet"}


def of_group_sizes(folder):
    """Write homes in counties, by their tenure."""
    write_tables(folder, draw_homes(60))
    return write_spec(folder, **LISTED_TENURE, keep_noisy_counts=True)


def of_grid(folder, mechanism="hierarchical"):
    """Write people by zone and age, whose pairs of levels are all measured; or ages by a strategy, in all zones and in each."""
    folder.mkdir()
    draw_people().write_csv(folder / "people.csv")
    grid = {"hierarchy": {"zone": ["n", "s"], "age": {"ordered": 10}}, "release": {"grid": ["zone", "age"]}}
    spec = SPEC | grid | {"mechanism": mechanism, "noise": {"sampler": "opendp"}}
    return spec_in(folder, spec)


def of_ages(folder):
    """Write people by age alone, whose ranges are measured."""
    folder.mkdir()
    draw_people().write_csv(folder / "people.csv")
    return spec_in(folder, SPEC | BY_AGE | {"noise": {"sampler": "opendp"}})


def of_trips_by_mode(folder):
    """Write trips with a mode, which are ordered and have the views as Trellis chooses."""
    town = Town(folder)
    trips = product(town.trips, ("bus", "rail"))
    rows = [f"{one},{other},{mode},{count + len(mode)}\n" for (one, other, count), mode in trips]
    (folder / "by_mode.csv").write_text("".join(["from,to,mode,n\n", *rows]))
    codebook = {"table": "zones.csv", "levels": ["district", "zone"]}
    return town.spec(
        input={"table": "by_mode.csv", "origin": "from", "destination": "to", "features": ["mode"], "count": "n"},
        hierarchy={"origin": codebook, "destination": codebook, "mode": ["bus", "rail", "walk"]},
        derived=None,
        release={"noisy_counts": True},
        mechanism="inftda_reconciled",
        expected_total=40,
    )


def of_town(mechanism, **keys):
    """Return what writes the town to be released by a mechanism, without its views."""
    return lambda folder: Town(folder).spec(mechanism=mechanism, release__views=None, derived=None, **keys)


def of_views(**keys):
    """Return what writes the town with its views."""
    return lambda folder: Town(folder).spec(release__views=VIEWS, **keys)


def of_margins(folder):
    """Write trips with so little noise that all runs have the same branches."""
    privacy = COUNTRY["privacy"] | {"unit": "one trip", "epsilon": 90.0}
    return Wide(folder, trips(flows=40)).spec(privacy=privacy)


@dataclass(frozen=True)
class Family:
    """A release: what writes its spec, its mechanism, the cells sealed of each level or view if known, what costs, a moment after the last seal, who draws."""

    write: Callable[[Path], Path]
    mechanism: str
    measured: dict[int, int | None]
    charged: Iterable[int]
    settled: str
    sampler: str = "opendp"


OF_TOWN = {0: 1, 1: 2, 2: 4, 3: 8, 4: 16}
BESIDE_THE_TREE = {0: 1, 2: 4, 4: 16, 5: 4, 6: 4, 7: 3, 8: 5}
MEASURED_BY_MODE, AFTER_MODE = dict(enumerate([1, 2, 6, 12, 24, 48, 2, 4, 4, 3, 6])), "after commit noisy 10 trunk"
FAMILIES = {
    **{f"walked by {of}": Family(partial(write_small, named=of), "inftda", {0: 1, **CELLS}, CELLS, "after commit INSERT checks", of) for of in GAUSSIAN.samplers},
    # with size 0; the total is never charged
    "group sizes": Family(of_group_sizes, "group_sizes", {1: 7, 2: 14, 3: 28, 4: 70}, [1, 2, 3, 4], "after commit noisy 4 trunk"),
    "fitted priors": Family(of_town("inftda_shrunk", measure="all"), "inftda_shrunk", OF_TOWN, OF_TOWN, "before link level_4_trunk.prior.parquet"),
    "unbiased trees": Family(of_town("hierarchical"), "hierarchical", OF_TOWN, OF_TOWN, "after commit noisy 4 trunk"),
    "ranges": Family(of_ages, "optimal_ranges", {4: 10}, [4], "after commit noisy 4 trunk"),
    "a grid": Family(of_grid, "hierarchical", dict.fromkeys(range(10)), range(10), "before commit counts 0 trunk"),
    "ranges by zone": Family(partial(of_grid, mechanism="optimal_ranges"), "optimal_ranges", {5: 20, 9: 10}, [5, 9], "after commit noisy 9 trunk"),
    "unbiased trees with views": Family(of_views(mechanism="hierarchical"), "hierarchical", OF_TOWN | BESIDE_THE_TREE, range(9), "after commit noisy 8 trunk"),
    # the total, pairs of districts, leaves, and views beside the tree
    "views": Family(of_views(run={"prefect": False}), "cbdp", BESIDE_THE_TREE, BESIDE_THE_TREE, "after commit noisy 8 trunk"),
    # the mode comes after the district of destination; margins beside the tree, and the mode by origin
    "trips by mode": Family(of_trips_by_mode, "inftda_reconciled", MEASURED_BY_MODE, range(len(MEASURED_BY_MODE)), AFTER_MODE),
    # the levels, and the margins beside them
    "margins": Family(of_margins, "inftda_reconciled", dict.fromkeys(range(8)), range(1, 8), "after commit calibrated 7 trunk"),
}  # fmt: skip
WALKED, BY_TABLE, *OTHERS = FAMILIES


class Killed:
    """Kills a release of a family at moments, and looks at what is left of it and at how it goes on."""

    def __init__(self, launch, folder, monkeypatch, family):
        self.launch, self.family, self.monkeypatch, self.folder = launch, family, monkeypatch, folder
        self.spec = family.write(folder / "tables")
        self.begin_anew("first")

    def moments(self):
        """Make a release without a kill, and return all moments that it comes by, in their order."""
        made = self.make(ID)
        assert (made.code, made.left) == (0, False)
        self.begin_anew("after none")
        return list(made.result)

    def begin_anew(self, name):
        """Have a store and an output folder that nobody has used."""
        self.home, self.out = self.folder / f"home [of] * {name}", self.folder / f"out {name}"

    def check(self, moment, *, hold):
        """Kill a release at a moment, and check that all is well after it has gone on."""
        self.kill(moment, hold=hold)
        with store() as con:
            is_there = bool(list_releases(con))
        if is_there:
            self.check_that_it_goes_on()
        else:
            self.check_that_it_has_cost_nothing()

    def kill(self, moment, *, hold=False):
        """Kill it at a moment."""
        self.monkeypatch.setenv("TRELLIS_HOME", str(self.home))
        assert self.make(ID, kill_at=moment, hold=hold) == (-signal.SIGKILL, None, False)

    def make(self, release_id, **options):
        """Make a release."""
        of_this = {"spec": str(self.spec), "output": str(self.out), "release_id": release_id}
        return self.launch.run(self.home, "make", **of_this, **options)

    def finish(self):
        """Finish it, and return how many cells it has drawn of each place."""
        how = {"sampler": self.family.sampler, "mechanism": self.family.mechanism}
        ended = self.launch.run(self.home, "finish", release_id=ID, **how)
        assert (ended.code, ended.left) == (0, False)
        return Counter({(level, branch): cells for level, branch, cells in ended.result})

    def check_that_it_goes_on(self):
        """Finish the release: what was sealed stays, what was not is drawn, once, and nothing else is left."""
        with store():
            before = read_books(ID)
        assert before.state in {"reserved", "running", "published"}
        assert {place: seal.sha256 for place, seal in before.seals.items()}.items() <= before.shards.items()
        for place in before.unsealed():
            noisy_path(ID, *place).write_bytes(b"whoever reads this fails")
        drawn = self.finish()
        with store() as con:
            assert_finished(ID, before, Draws(cells=drawn), None, self.family.measured, set(self.family.charged))
            assert audit_answer().findings == []
            sealed = {noisy_path(ID, *place, seal.turn).name for place, seal in list_shards(con, ID)["noisy"].items()}
        shards = {path.name for path in (self.home / "shards" / ID).iterdir()}
        assert {name for name in shards if ".noisy." in name} == sealed
        assert self.family.mechanism != "inftda" or shards == sealed | COUNTS | CODEBOOKS
        assert list((self.home / "vault").iterdir()) == []

    def check_that_it_has_cost_nothing(self):
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
def killed(launch, tmp_path, monkeypatch):
    """Return the maker of releases of a family that are killed."""
    return lambda name: Killed(launch, tmp_path, monkeypatch, FAMILIES[name])


def test_every_durable_event_of_a_release_is_noticed(killed):
    """Every shard's write, rename and record, every charge's step, and everything published is a moment, and one only."""
    moments = killed(WALKED).moments()
    assert len(moments) == len(set(moments)) > 200
    events = {moment.removeprefix("before ") for moment in moments if moment.startswith("before ")}
    assert {moment.removeprefix("after ") for moment in moments if moment.startswith("after ")} == events
    for shard in SHARDS | CODEBOOKS:
        named = "rename" if shard in CODEBOOKS else "link"
        assert {f"fsync {shard}.partial", f"{named} {shard}", f"fsync the folder of {shard}"} <= events
    for level, branch in PLACES:
        assert {f"commit noisy {level} {branch}", f"commit counts {level} {branch}"} <= events
        assert {f"commit turn {state} {level} {branch}" for state in ("open", "closed")} <= events
    for level in LEVELS:
        assert {f"commit ledger drawing {level}", f"commit ledger sealed {level}"} <= events
    texts = {"README.md", "report.html", "explorer.html", "counts.csv", "metadata.json", "manifest.json", "SHA256SUMS"}
    published = texts | {f"level_{of}.parquet" for of in range(5)}
    assert {f"fsync {file}" for file in published} <= events
    assert {"commit ledger reserved", "commit INSERT checks", f"rename {ID}", "commit releases published"} <= events


@pytest.mark.parametrize(("name", "moment"), [
    (WALKED, "after commit CREATE true_level_2"),
    pytest.param(WALKED, "after link level_3_b01.noisy.parquet", marks=pytest.mark.thorough),
    (WALKED, "before commit noisy 4 b00"),
    (WALKED, "before commit releases published"),
    ("fitted priors", "after link level_4_b01.statistics.parquet"),
    pytest.param("unbiased trees", "before link level_3_trunk.noisy.parquet", marks=pytest.mark.thorough),
    pytest.param("views", "before link level_7_trunk.noisy.parquet", marks=pytest.mark.thorough),
    ("ranges", "before link level_4_trunk.noisy.parquet"),
    ("unbiased trees with views", "before link level_8_trunk.noisy.parquet"),
    pytest.param("group sizes", "after commit noisy 2 trunk", marks=pytest.mark.thorough),
    pytest.param("trips by mode", "after link level_9_trunk.noisy.parquet", marks=pytest.mark.thorough),
    pytest.param("a grid", "after commit noisy 7 trunk", marks=pytest.mark.thorough),
    pytest.param("ranges by zone", "after link level_5_trunk.noisy.parquet", marks=pytest.mark.thorough),
])  # fmt: skip
def test_a_release_survives_a_kill(name, moment, killed):
    """After SIGKILL a reserved release is finished with every level drawn and charged once; another has cost nothing."""
    killed(name).check(moment, hold="commit" in moment)


def walks(name, every, mark, hold=None):
    """Return a row of the table of walks over moments."""
    at = "every commit, with all of it in the log" if hold else f"one of {every} moments"
    return pytest.param(name, every, hold, id=f"{name}, at {at}", marks=[mark, pytest.mark.heavy("many releases")])


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("name", "every", "hold"), [
    *(walks(name, 29 if name == WALKED else 101, pytest.mark.thorough) for name in FAMILIES),
    *(walks(WALKED, 1, pytest.mark.crash, hold) for hold in (False, True)),
    *(walks(name, 7, pytest.mark.crash) for name in OTHERS),
])  # fmt: skip
def test_a_release_of_any_family_survives_any_kill(name, every, hold, killed, subtests):
    """The same holds of every family for so many of its moments, with the store held open where they are commits, or as is said."""
    releases = killed(name)
    moments = releases.moments()
    for number, moment in enumerate(moments):
        if number % every == every // 2 and (not hold or "commit" in moment):
            releases.begin_anew(str(number))
            with subtests.test(moment=moment):
                releases.check(moment, hold="commit" in moment if hold is None else hold)
                with store() as con:  # what is reserved is there, and nothing before
                    there = {entry.id for entry in list_releases(con)}
                assert there == ({ID} if number >= moments.index(RESERVED) else {"next"})


@pytest.mark.thorough
@pytest.mark.parametrize("name", [WALKED, "group sizes", "unbiased trees", "views"])
def test_the_same_seals_give_the_same_bytes(name, killed):
    """A release that is killed after its last seal, and finished twice from copies, publishes the same tables both times."""
    release, published = killed(name), list[dict[str, bytes]]()
    release.kill(FAMILIES[name].settled)
    copy = release.folder / "copy"
    shutil.copytree(release.home, copy)
    for _ in range(2):
        shutil.rmtree(release.home)
        shutil.rmtree(release.out, ignore_errors=True)
        shutil.copytree(copy, release.home)
        assert not release.finish()
        files = [*(release.out / ID).rglob("*.parquet"), *(release.out / ID).rglob("*.csv")]
        published.append({str(file): file.read_bytes() for file in files})
    assert published[0] == published[1]
    assert len(published[0]) > 5
