"""True counts stay in the vault: they are searched for in every error, record and file that a release leaves."""

import pickle
import re
import traceback
from itertools import product
from pathlib import Path

import pytest

import tasks.ingest.task
from flows.planning.plan import make_plan
from flows.run.reservation import new_release
from flows.specification.file import load_spec
from storage.counts.vault import vault, vault_path
from storage.database.connections import store
from storage.errors import InputError, StageFailed
from storage.ledger.events import head
from storage.machine.home import shard_folder
from storage.releases.register import find_release, list_releases
from tasks.laws.gaussian import GAUSSIAN
from tasks.laws.laplace import LAPLACE
from tasks.laws.law import Sampling
from tasks.laws.samplers import discrete_gaussian
from tasks.mechanisms import MECHANISMS
from tasks.sizes.estimators import Sizes
from tests.support import runs
from tests.support.draws import SPEC as SMALL
from tests.support.exposure import Made, Watch, hidden, left_in
from tests.support.households import LISTED_TENURE, PRIVACY, TENURE, draw_homes, write_spec, write_tables
from tests.support.laws import drawn_by
from tests.support.making import no_noise

# Epsilon is so small (sigma is 6e7) that no noisy and no released count is a true one.
SPEC = SMALL.replace("small-country", "planted").replace("small", "planted").replace("40.0", "3.0e-7")
# The same with views that cross the tree, one of them of a derived column.
SPEC_WITH_VIEWS = f"""
{SPEC.replace("inftda", "cbdp").replace("y}", "y, views: {homes: {origin: municipality}, near: {near: near}}}", 1)}
derived: {{near: {{table: near.csv, of: [origin, destination]}}}}
"""
WITH_VIEWS = "cbdp", "unbiased_tree"
# The same with a mode of each pair, in the order and with the views that Trellis chooses.
# The same of homes in an order, whose ranges are measured.
SPEC_BY_HOME = (
    SPEC.replace("origin: home, destination: work", "features: [home]")
    .replace("{table: codebook.csv, levels: [region, municipality]}", "{home: {ordered: [n1, n2, s1, s2]}}")
    .replace("{tree: destination, finest: municipality}", "{order: [home]}")
    .replace("inftda", BY_RANGES := "optimal_ranges")
)
AREAS = "{table: codebook.csv, levels: [region, municipality]}"
SPEC_BY_MODE = (
    SPEC.replace(AREAS, f"{{origin: {AREAS}, destination: {AREAS}, mode: [car, walk]}}")
    .replace("count: people", "count: people, features: [mode]")
    .replace("release: {tree: destination, finest: municipality}", "release: {}")
    .replace("inftda", BY_MODE := "inftda_reconciled")
)
CODEBOOK = "region,municipality\nnorth,n1\nnorth,n2\nsouth,s1\nsouth,s2\n"
PLANTED = [918273645 + 7654321 * number for number in range(16)]  # of the pairs of municipalities, in their order
HOMES = {sum(PLANTED[first : first + 4]) for first in range(0, 16, 4)}  # of the places of home


# Homes, by whose tails nine-digit numbers are put into the vault.
OF_HOMES = {"name": "planted", "dataset": "planted", "privacy": PRIVACY | {"epsilon": 3.0e-7, "split": "uniform"}}
PLANT = "UPDATE records SET true_count = true_count * 7654321 + 918273645"


def write_trips(folder, walks, row):
    """Write the planted counts, and a further row if one is given, and a spec."""
    places = ["n1", "n2", "s1", "s2"]
    near = [f"{home},{work},{home[0] == work[0]}" for home, work in product(places, places)]
    (folder / "near.csv").write_text("\n".join(["origin,destination,near", *near]) + "\n")
    pairs = [*zip(product(places, places), PLANTED, strict=True)]
    table = ["home,work,people", *(f"{home},{work},{count}" for (home, work), count in pairs), row]
    if walks == BY_MODE:
        table = [f"{line},{mode}" for line, mode in zip(table, ["mode", *["car"] * len(pairs)], strict=False)]
        table += [f"{home},{work},{count + 3456789},walk" for (home, work), count in pairs]
    (folder / "trips.csv").write_text("\n".join(table) + "\n")
    (folder / "codebook.csv").write_text(CODEBOOK)
    own = {BY_MODE: SPEC_BY_MODE, BY_RANGES: SPEC_BY_HOME} | {
        name: SPEC_WITH_VIEWS.replace("cbdp", name) for name in WITH_VIEWS
    }
    spec = own.get(walks, SPEC.replace("m: inftda", f"m: {walks}"))
    (folder / "spec.yaml").write_text(spec)
    return folder / "spec.yaml"


@pytest.fixture
def make(tmp_path, monkeypatch, capfd):
    """Return the maker of a release of the planted counts, or tails, with a sampler."""
    ingest = tasks.ingest.task.ingest_groups

    def planting(con, *arguments):
        listed = ingest(con, *arguments)
        con.execute(PLANT)
        return listed

    monkeypatch.setattr(tasks.ingest.task, "ingest_groups", planting)

    def make(sampler, row="", *, named="opendp", walks="inftda"):
        mechanism, counts_trips = MECHANISMS[walks], not isinstance(MECHANISMS[walks].finish, Sizes)
        if counts_trips:
            spec = write_trips(tmp_path, walks, row)
        else:
            write_tables(tmp_path, draw_homes(60))
            spec = write_spec(
                tmp_path, **OF_HOMES, mechanism=walks, **(LISTED_TENURE if mechanism.takes_list else TENURE)
            )
        spec.write_text(f"{spec.read_text()}noise: {{sampler: {named}}}\noutput: out\n")
        watch = Watch(tmp_path, set(PLANTED)) if counts_trips else Watch(tmp_path, least=10**6)
        watch.secrets.update({*PLANTED, *HOMES} if walks == BY_RANGES else ())  # beside the sums that are measured
        sampling = Sampling(watch.on(sampler), mechanism.default_law.samplers[named].tau)
        monkeypatch.setitem(MECHANISMS, walks, drawn_by(walks, {named: sampling}))
        plan, release_id, fault = make_plan(load_spec(spec)), "unmade", None
        try:
            release = new_release(plan)
            release_id = release.id
            with store():
                runs.make(plan, release)
        except BaseException as raised:  # noqa: BLE001 (the tests look at it)
            fault = raised
        return Made(release_id, tmp_path, watch.secrets, fault, "".join(capfd.readouterr()), watch.meanwhile)

    return make


def all_that_shows(fault):
    """Return an exception as anybody could record it: its text, its traceback with all variables, and its pickle."""
    traced = traceback.TracebackException.from_exception(fault, capture_locals=True)
    ours = [frame for frame in traced.stack if frame.filename == __file__]
    for frame in ours:
        traced.stack.remove(frame)
    return f"{fault} {fault!r} {fault.args} {vars(fault)} {''.join(traced.format())} {pickle.dumps(fault)!r}"


def hiding(named, walks="inftda"):
    """Return one of the samplers of users, at a scale for which it has its own way, and so much noise more."""
    # The table sampler leaves scales such as this release's to OpenDP.
    draw = (LAPLACE if "sizes" in walks else GAUSSIAN).samplers[named].draw
    return lambda true_counts, scale: draw(true_counts, 64.0) - true_counts + hidden(true_counts, scale)


WHOLE = {f"level_{level}.parquet" for level in (1, 2, 3, 4)}
FAMILIES = [  # mechanism, sampler, how many levels have shards, and what else is published of counts; the first is of every run
    pytest.param("inftda", "opendp", (1, 2, 3, 4), WHOLE | {"counts.csv"}),
    *(
        pytest.param(*family, marks=pytest.mark.thorough)
        for family in (
            ("inftda", "table", (1, 2, 3, 4), WHOLE | {"counts.csv"}),
            ("cbdp", "opendp", (4,), {"homes.parquet", "near.parquet", "view_homes.parquet", "view_near.parquet"}),
            ("cascade", "opendp", (1, 2, 3, 4), WHOLE),
            (
                "unbiased_tree",
                "opendp",
                (4,),
                {"homes.parquet", "near.parquet", "view_homes.parquet", "view_near.parquet"},
            ),
            (BY_RANGES, "opendp", (2,), {"level_2.parquet"}),
            (BY_MODE, "opendp", (5,), {"mode.parquet", "view_mode.parquet"}),
            ("inftda_shrunk", "opendp", (), set()),
            ("group_sizes", "opendp", (1, 2, 3, 4), set()),
            ("sizes_chain", "opendp", (), set()),
        )
    ),
]
families = pytest.mark.parametrize(("walks", "named", "levels", "others"), FAMILIES)


@families
def test_nothing_but_the_vault_holds_a_true_count(make, walks, named, levels, others):
    """A release with so much noise that no count is right leaves no right count, and no true tail, in any file or record."""
    made = make(hiding(named, walks), named=named, walks=walks)
    assert made.fault is None
    places = range(4)
    near = {sum(PLANTED[4 * home + work] for home in places for work in places if home // 2 == work // 2)}
    planted = set() if "sizes" in walks else set(PLANTED) | (HOMES | near if walks in WITH_VIEWS else set())
    assert planted <= made.secrets
    assert len(made.secrets) > 10
    made.assert_hidden()
    assert not vault_path(made.release_id).exists()


@families
def test_the_search_finds_a_count_that_is_there(make, walks, named, levels, others):
    """Without noise the same search finds true counts in every shard, every published table and the store."""
    made = make(no_noise, named=named, walks=walks)
    assert made.fault is None
    found = made.exposed()
    names = {Path(file).name for file in found}
    assert {f"level_{level}_trunk.noisy.parquet" for level in levels} | others <= names
    if "sizes" in walks:
        assert any("noisy_counts" in file for file in found)
        return
    assert {f"level_{level}_trunk.counts.parquet" for level in levels} <= names
    assert {f"{made.release_id}.level_{level}" for level in levels} <= found
    assert f"out/{made.release_id}/counts/level_0.parquet" not in found or walks != "inftda"


class PanicException(BaseException):
    """As the panics of Polars are: no Exception."""


@pytest.mark.parametrize(("kind", "level", "named"), [
    (ValueError, 1, "opendp"),
    (PanicException, 1, "opendp"),
    pytest.param(ValueError, 3, "table", marks=pytest.mark.thorough),
])  # fmt: skip
def test_an_error_that_quotes_true_counts_stays_with_them(make, kind, level, named):
    """What a sampler raises comes out as its kind and place: its text, its causes and its notes are left behind."""
    calls = 0

    def quote(true_counts, scale):
        nonlocal calls
        calls += 1
        if calls < level:
            return hiding(named)(true_counts, scale)
        error = kind(f"cannot add noise to {true_counts.tolist()}")
        error.add_note(f"they were {true_counts.tolist()}")
        raise error from KeyError(int(true_counts[0]))

    made = make(quote, named=named)
    assert isinstance(made.fault, StageFailed)
    told = rf"trunk: measure stopped: {kind.__name__} at tasks/noise/measure\.py:\d+\."
    assert re.fullmatch(told, str(made.fault))
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


@pytest.mark.parametrize(("row", "secret", "said"), [
    ("n1,n2,12x4567", "12x4567", "column people must hold whole numbers."),
    ("n1,n2,-918273645", "918273645", "column people must be >= 0."),
    ("n1,n2,99999999918273645000", "918273645", "column people must hold numbers below 2**63."),
    ("n1,n2,9918273645000", "918273645", "the counts must add up to at most 2**40."),
    ("n1,x918273645,5", "918273645", "column work has codes that the codebook lacks."),
    ("n1,n2,5,918273645", "918273645", ""),
    ('n1,n2,"918273645', "918273645", ""),
], ids=["no number", "negative", "overflow", "total", "unknown code", "a field too many", "an open quote"])  # fmt: skip
def test_a_faulty_row_is_not_quoted(row, secret, said, make):
    """A table that is refused is refused by column and rule, and leaves nothing: no count, no code, no release."""
    made = make(discrete_gaussian, row)
    assert isinstance(made.fault, InputError)
    assert said in str(made.fault)
    assert secret not in all_that_shows(made.fault)
    assert secret not in made.said
    assert made.secrets == set()
    assert [str(path) for path in left_in(made.folder) if secret.encode() in path.read_bytes()] == []
    assert not vault_path(made.release_id).exists()
    shards = shard_folder(made.release_id)
    assert not shards.exists() or list(shards.iterdir()) == []
    with store() as con:
        assert list_releases(con) == []
        assert head(con).length == 0
