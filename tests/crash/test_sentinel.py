"""True counts stay in the vault: they are searched for in every error, record and file that a release leaves."""

import pickle
import re
import traceback
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from flows.execution.reservation import new_release
from flows.mechanisms import MECHANISMS
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from storage.counts.vault import vault, vault_path
from storage.database.connections import store
from storage.errors import InputError, StageFailed
from storage.ledger.events import head
from storage.machine.claims import shard_folder
from storage.releases.register import find_release, list_releases
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.law import Sampler, Sampling
from tasks.laws.samplers import discrete_gaussian
from tasks.tree.axis import IntArray
from tests.support import runs
from tests.support.exposure import Made, Watch, hidden, return_the_truth
from tests.support.laws import drawn_by

# Epsilon is so small (sigma is 6e7) that no noisy and no released count is a true one.
SPEC = """
name: planted
dataset: planted
input: {table: trips.csv, origin: home, destination: work, count: people}
hierarchy: {table: codebook.csv, levels: [region, municipality]}
release: {tree: destination, finest: municipality}
mechanism: inftda
privacy: {unit: one commuter, neighbours: substitution, max_records_per_unit: 1, epsilon: 3.0e-7, delta: 1.0e-8, accountant: zcdp}
budget: {epsilon: 3.0e-7, delta: 1.0e-8}
"""
# The same with views that cross the tree, one of them of a derived column.
SPEC_WITH_VIEWS = f"""
{SPEC.replace("inftda", "cbdp").replace("y}", "y, views: {homes: {origin: municipality}, near: {near: near}}}", 1)}
derived: {{near: {{table: near.csv, of: [origin, destination]}}}}
"""
CODEBOOK = "region,municipality\nnorth,n1\nnorth,n2\nsouth,s1\nsouth,s2\n"
PLANTED = [918273645 + 7654321 * number for number in range(16)]  # of the pairs of municipalities, in their order


Make = Callable[..., Made]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Make:
    """Return the maker of a release of the planted counts, and of a further row if one is given, with a sampler."""

    def make(sampler: Sampler, row: str = "", *, named: str = "opendp", walks: str = "inftda") -> Made:
        places = ["n1", "n2", "s1", "s2"]
        spec = SPEC_WITH_VIEWS if walks == "cbdp" else SPEC.replace("mechanism: inftda", f"mechanism: {walks}")
        near = [f"{home},{work},{home[0] == work[0]}" for home, work in product(places, places)]
        (tmp_path / "near.csv").write_text("\n".join(["origin,destination,near", *near]) + "\n")
        rows = [f"{home},{work},{count}" for (home, work), count in zip(product(places, places), PLANTED, strict=True)]
        (tmp_path / "trips.csv").write_text("\n".join(["home,work,people", *rows, row]) + "\n")
        (tmp_path / "codebook.csv").write_text(CODEBOOK)
        (tmp_path / "spec.yaml").write_text(f"{spec}noise: {{sampler: {named}}}\n")
        watch, fault = Watch(tmp_path, set(PLANTED)), None
        sampling = Sampling(watch.on(sampler), GAUSSIAN.samplers[named].tau)
        monkeypatch.setitem(MECHANISMS, walks, drawn_by(walks, {named: sampling}))
        plan = make_plan(load_spec(tmp_path / "spec.yaml"))
        release_id = "unmade"
        try:
            release = new_release(plan)
            release_id = release.id
            with store():
                runs.make(plan, release)
        except BaseException as raised:  # noqa: BLE001 (the tests look at it)
            fault = raised
        return Made(release_id, tmp_path, watch.secrets, fault, "".join(capfd.readouterr()), watch.meanwhile)

    return make


def all_that_shows(fault: BaseException) -> str:
    """Return an exception as anybody could record it: its text, its traceback with all variables, and its pickle."""
    traced = traceback.TracebackException.from_exception(fault, capture_locals=True)
    ours = [frame for frame in traced.stack if frame.filename == __file__]
    for frame in ours:
        traced.stack.remove(frame)
    return f"{fault} {fault!r} {fault.args} {vars(fault)} {''.join(traced.format())} {pickle.dumps(fault)!r}"


def hiding(named: str) -> Sampler:
    """Return one of the samplers of users, at a scale for which it has its own way, and so much noise more.

    The table sampler leaves scales such as this release's to OpenDP.
    """
    return lambda true_counts, scale: (
        GAUSSIAN.samplers[named].draw(true_counts, 64.0) - true_counts + hidden(true_counts, scale)
    )


FAMILIES = [  # of mechanisms and samplers, and what else is published of counts; the first is of every run
    pytest.param("inftda", "opendp", {"counts.csv"}),
    pytest.param("inftda", "table", {"counts.csv"}, marks=pytest.mark.thorough),
    pytest.param(
        "cbdp",
        "opendp",
        {"homes.parquet", "near.parquet", "view_homes.parquet", "view_near.parquet"},
        marks=pytest.mark.thorough,
    ),
    pytest.param("cascade", "opendp", set(), marks=pytest.mark.thorough),
    pytest.param("inftda_shrunk", "opendp", set(), marks=pytest.mark.thorough),
]


@pytest.mark.parametrize(("walks", "named", "others"), FAMILIES)
def test_nothing_but_the_vault_holds_a_true_count(make: Make, walks: str, named: str, others: set[str]) -> None:
    """A release with so much noise that no count is right leaves no right count in any file or record."""
    made = make(hiding(named), named=named, walks=walks)
    assert made.fault is None
    places = range(4)
    homes = {sum(PLANTED[4 * home + work] for work in places) for home in places}
    near = {sum(PLANTED[4 * home + work] for home in places for work in places if home // 2 == work // 2)}
    assert set(PLANTED) | (homes | near if walks == "cbdp" else set()) <= made.secrets
    made.assert_hidden()
    assert not vault_path(made.release_id).exists()


@pytest.mark.parametrize(("walks", "named", "others"), FAMILIES[:4])
def test_the_search_finds_a_count_that_is_there(make: Make, walks: str, named: str, others: set[str]) -> None:
    """Without noise the same search finds true counts in every shard, every published table and the store."""
    made = make(return_the_truth, named=named, walks=walks)
    assert made.fault is None
    found = made.exposed()
    names = {Path(file).name for file in found}
    levels = {1, 2, 3, 4} if walks != "cbdp" else {4}
    assert {f"level_{level}_trunk.{kind}.parquet" for level in levels for kind in ("noisy", "counts")} <= names
    assert {f"level_{level}.parquet" for level in levels} | others <= names
    assert {f"{made.release_id}.level_{level}" for level in levels} <= found
    assert f"out/{made.release_id}/counts/level_0.parquet" not in found or walks != "inftda"


@pytest.mark.parametrize(("level", "named"), [(1, "opendp"), pytest.param(3, "table", marks=pytest.mark.thorough)])
def test_an_error_that_quotes_true_counts_stays_with_them(make: Make, level: int, named: str) -> None:
    """What a sampler raises comes out as its kind and place: its text, its causes and its notes are left behind."""
    calls = 0

    def quote(true_counts: IntArray, scale: float) -> IntArray:
        nonlocal calls
        calls += 1
        if calls < level:
            return hiding(named)(true_counts, scale)
        error = ValueError(f"cannot add noise to {true_counts.tolist()}")
        error.add_note(f"they were {true_counts.tolist()}")
        raise error from KeyError(int(true_counts[0]))

    made = make(quote, named=named)
    assert isinstance(made.fault, StageFailed)
    assert re.fullmatch(r"trunk: measure_branch stopped: ValueError at tasks/noise/measure\.py:\d+\.", str(made.fault))
    assert made.fault.__cause__ is None
    assert made.fault.__context__ is None
    assert made.secrets
    assert made.secrets_in(all_that_shows(made.fault)) == set()
    assert made.secrets_in(made.said) == set()
    with store() as con:
        assert find_release(con, made.release_id).reason == str(made.fault)
    assert made.exposed() == set()
    with vault(made.release_id) as con:
        kept = con.execute("SELECT true_count FROM true_level_4 ORDER BY true_count").fetchall()
    assert kept == [(count,) for count in PLANTED]


def test_a_panic_that_quotes_true_counts_stays_with_them(make: Make) -> None:
    """What is no Exception, as the panics of Polars are, is told by its kind and place too."""

    class PanicException(BaseException):
        pass

    def panic(true_counts: IntArray, scale: float) -> IntArray:
        raise PanicException(f"index out of bounds: {true_counts.tolist()}")

    made = make(panic)
    assert made.fault
    assert made.secrets
    assert made.secrets_in(str(made.fault)) == set()
    assert isinstance(made.fault, StageFailed)


@pytest.mark.parametrize(
    ("row", "secret", "said"),
    [
        ("n1,n2,12x4567", "12x4567", "column people must hold whole numbers."),
        ("n1,n2,-918273645", "918273645", "column people must be >= 0."),
        ("n1,n2,99999999918273645000", "918273645", "column people must hold numbers below 2**63."),
        ("n1,n2,9918273645000", "918273645", "the counts must add up to at most 2**40."),
        ("n1,x918273645,5", "918273645", "column work has codes that the codebook lacks."),
        ("n1,n2,5,918273645", "918273645", ""),
        ('n1,n2,"918273645', "918273645", ""),
    ],
    ids=["no number", "negative", "overflow", "total", "unknown code", "a field too many", "an open quote"],
)
def test_a_faulty_row_is_not_quoted(row: str, secret: str, said: str, make: Make) -> None:
    """A table that is refused is refused by column and rule, and leaves nothing: no count, no code, no release."""
    made = make(discrete_gaussian, row)
    assert isinstance(made.fault, InputError)
    assert said in str(made.fault)
    assert secret not in all_that_shows(made.fault)
    assert secret not in made.said
    assert made.secrets == set()
    assert [str(path) for path in made.files() if secret.encode() in path.read_bytes()] == []
    assert not vault_path(made.release_id).exists()
    shards = shard_folder(made.release_id)
    assert not shards.exists() or list(shards.iterdir()) == []
    with store() as con:
        assert list_releases(con) == []
        assert head(con).length == 0
