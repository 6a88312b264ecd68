"""The record of a release: what the store knows of it at one moment."""

from fractions import Fraction
from pathlib import Path

import pytest

from storage.database.connections import store
from storage.errors import UsageError
from storage.record import ReleasedLevel, load_record
from storage.releases.register import Release, add_release
from storage.releases.seals import (
    TRUNK,
    Branch,
    EstimateShard,
    FrontierShard,
    Seal,
    add_branches,
    add_estimates,
    add_frontier,
    add_seal,
    add_settled,
)
from storage.releases.terms import FileTerms, IntervalTerms, LevelTerms, PrivacyTerms, RunTerms, TableTerms, Terms

TERMS = Terms(
    axes=("home", "work"),
    steps=(1, 0),
    mechanism="inftda_reconciled",
    priority=None,
    sampler="opendp",
    keep_vault=False,
    keep_noisy_counts=True,
    published_spec={"name": "one"},
    unprotected=("level 0",),
    how_counted="as measured",
    codebooks={"home": "aa", "work": "bb"},
    unlisted=(),
    waived=(),
    csv=None,
    records=False,
    noisy_counts=None,
    intervals=IntervalTerms(0.95, simultaneous=False, rounded=False),
    privacy=PrivacyTerms(
        "one job", "substitution", 1, True, None, "promise", 4.0, 1e-8, 0.1, "pld", "opendp", 0.0, "private"
    ),
    run=RunTerms("threads", None),
    files=FileTerms("spec.yaml", {"hierarchy.home.table": TableTerms("home.csv", "aa")}),
)
AXES = [{"home": home, "work": "county"} for home in (None, None, "county")]
LEVELS = tuple(LevelTerms(level, AXES[level], 4**level, not level, Fraction(1, 8), 2.0, 1, 9.0) for level in range(3))
RELEASE = Release("one", "one", "people", "reserved", "", "2026-01-01", "name: one", TERMS, "out/one", LEVELS)
SEALS = [Seal(0, TRUNK, "s0", 1), Seal(1, TRUNK, "s1", 4), Seal(2, "b00", "s2", 6), Seal(2, "b01", "s3", 10)]
FRONTIERS = [
    FrontierShard(0, TRUNK, "f0", 1, 4),
    FrontierShard(1, TRUNK, "f1", 3, 16),
    FrontierShard(2, "b01", "f3", 5, 0),
]
BRANCHES = [Branch("b00", TRUNK, 1, 0, 2, {}), Branch("b01", TRUNK, 1, 2, 3, {})]


@pytest.fixture(autouse=True)
def trellis_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each test a store with a release, which has two branches and was walked down one of them."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    with store() as con:
        add_release(con, RELEASE)
        add_branches(con, "one", BRANCHES)
        for seal in SEALS:
            add_seal(con, "one", seal)
        for shard in FRONTIERS:
            add_frontier(con, "one", shard)


def test_a_record_holds_what_the_store_knows() -> None:
    """The release, its branches, seals and optimised levels come back as they were recorded; nothing was charged."""
    with store() as con:
        record = load_record(con, "one")
    assert record.release == RELEASE
    assert record.branches == {branch.name: branch for branch in BRANCHES}
    assert record.seals == {(seal.level, seal.branch): seal for seal in SEALS}
    assert record.frontiers == {(shard.level, shard.branch): shard for shard in FRONTIERS}
    assert (record.estimates, record.settled, record.charges) == ({}, {}, {})
    assert record.finest == 2


def test_the_second_pass_is_released_once_it_has_settled_anything() -> None:
    """A record releases the first pass until a second one has settled levels; what is recorded later is in the next record alone."""
    with store() as con:
        first = load_record(con, "one")
        add_estimates(con, "one", EstimateShard(0, TRUNK, "e0"))
        add_settled(con, "one", FrontierShard(0, TRUNK, "t0", 1, 0, "settled"))
        second = load_record(con, "one")
    assert (first.estimates, first.settled) == ({}, {})
    assert first.released == first.frontiers
    assert second.released == second.settled == {(0, TRUNK): FrontierShard(0, TRUNK, "t0", 1, 0, "settled")}
    assert second.estimates == {(0, TRUNK): EstimateShard(0, TRUNK, "e0")}


def test_a_record_knows_the_levels_of_its_branches() -> None:
    """The trunk ends where it is cut and its branches begin below; cells and nodes of a level are those of all its branches."""
    with store() as con:
        record = load_record(con, "one")
    assert [list(record.levels_of(branch)) for branch in (TRUNK, "b00", "b01")] == [[0, 1], [2], [2]]
    assert (record.parts(TRUNK), record.parts("b00")) == (["b00", "b01"], [])
    assert [record.branches_of(level) for level in range(3)] == [[TRUNK], [TRUNK], ["b00", "b01"]]
    assert [record.cells_of(level) for level in range(3)] == [(1, 1), (4, 4), (16, 16)]
    levels = record.released_levels()
    assert [(level.level, level.cells, level.nonzero) for level in levels] == [(0, 1, 1), (1, 4, 3), (2, 16, 5)]
    county = {"home": "county", "work": "county"}
    noise = {"rho": 0.125, "sigma": 2.0, "l2_sensitivity": 1.0, "derivation": "", "bound": 9.0}
    assert levels[2] == ReleasedLevel(level=2, axes=county, cells=16, nonzero=5, **noise)


def test_there_is_no_record_of_an_unknown_release() -> None:
    """A release that the store does not know is an error that names it."""
    with store() as con, pytest.raises(UsageError, match="There is no release two"):
        load_record(con, "two")
