"""Leaves and their sums, and codes that no codebook lists: of those only the ones above the threshold leave the vault."""

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import flows.run.driver
import flows.run.walk
import tasks.noise.measure
import tasks.noise.task
import tasks.optimize.task
from flows.answers.verify import verify_answer
from flows.console.plan_view import show_plan
from flows.forecast.answer import plan_answer
from flows.planning.plan import make_plan
from flows.run.driver import rehearse
from flows.run.ending import abandon_release
from flows.run.reservation import new_release
from flows.run.runner import submit_to
from flows.specification.file import load_spec
from flows.specification.sections.privacy import Target
from storage.counts.shard_files import codebook_path, noisy_path, read_codebook, shard_path
from storage.counts.vault import vault_path
from storage.database.connections import store
from storage.errors import InputError, SpecError, StoreError, UsageError
from storage.ledger.events import read_books
from storage.machine.home import shard_folder
from storage.releases.register import find_release
from storage.releases.shards import list_shards, shard_name
from tasks.laws.law import Sampling
from tasks.laws.thresholded import thresholded_laplace
from tasks.mechanisms import MECHANISMS
from tests.support.exposure import left_in
from tests.support.folders import manifest_of, rewrite
from tests.support.laws import drawn_by
from tests.support.ledger import charges_of, events_of
from tests.support.runs import finish, make
from tests.support.spec import SPEC, spec_in

# `a` is an area of the north and another one of the south; so few people are in the last ones that they are never seen.
SEEN = {
    ("north", "a", "south", "a"): 900,
    ("north", "a", "south", "b"): 700,
    ("south", "a", "north", "a"): 800,
    ("south", "c", "south", "c"): 1000,
}
THRESHOLD = "leaves with a threshold"  # in the library
CANARY = "canary-4711"
UNSEEN = {
    ("north", CANARY, "south", "a"): 1,
    (f"0{CANARY}", "a", "north", "a"): 1,  # comes before all others, and would move their numbers
    ("north", "a", f"m{CANARY}", CANARY): 1,
    ("north", "b", "south", "zz"): 2,
}
COLUMNS = ("home_region", "home", "work_region", "work")
OF_TRIPS = {"table": "trips.csv", "origin": list(COLUMNS[:2]), "destination": list(COLUMNS[2:])}
DEPTH = 4


@dataclass(frozen=True)
class World:
    """A folder with a table of trips, a store, and what is published."""

    folder: Path

    def write(self, trips):
        """Write the table."""
        rows = "".join(f"{','.join(codes)},{people}\n" for codes, people in trips.items())
        (self.folder / "trips.csv").write_text(f"{','.join(COLUMNS)},people\n{rows}")

    def plan(self, **keys):
        """Return the plan of a release of everything, with other keys of the spec."""
        privacy = {key: value for key, value in SPEC["privacy"].items() if key != "accountant"}
        privacy |= {"epsilon": 1.0} | ({"accountant": "zcdp"} if "mechanism" in keys else {}) | keys.pop("privacy", {})
        privacy = {key: value for key, value in privacy.items() if value is not None}
        spec = SPEC | {
            "input": OF_TRIPS | {"count": "people"},
            "hierarchy": {"levels": ["region", "area"]},
            "release": {"tree": "destination", "finest": "area"},
            "mechanism": "stability_histogram",
        }
        return make_plan(load_spec(spec_in(self.folder, spec | keys | {"privacy": privacy})))

    def release(self, release_id="one", **keys):
        """Make a release and return its folder."""
        plan = self.plan(**keys)
        with store():
            make(plan, new_release(plan, release_id=release_id))
        return self.folder / "out" / release_id

    def events(self):
        """Return what the ledger has of the release, in order."""
        with store() as con:
            return [event["event"] for event in events_of(con) if event.get("release") == "one"]

    def exposed(self):
        """Return the files and the tables of the store that hold, or are named for, the code of a single unit."""
        found = [str(path) for path in left_in(self.folder) if holds_canary(path)]
        with store() as con:
            tables = con.execute("SELECT table_schema, table_name FROM information_schema.tables").fetchall()
            for schema, table in tables:
                if CANARY in repr(con.execute(f'SELECT * FROM "{schema}"."{table}"').fetchall()):
                    found.append(f"{schema}.{table}")
        return found


def holds_canary(path):
    """Return whether a file has the code in its name or its bytes, or in Parquet: in values, dictionaries and statistics."""
    content = path.read_bytes()
    held = f"{path} {content.decode('latin-1')}"
    if path.suffix == ".parquet":
        shard = pq.ParquetFile(path)
        texts = [field.name for field in shard.schema_arrow if "int" not in str(field.type)]
        held += repr(pq.read_table(path, read_dictionary=texts).to_pydict())
        for column in pq.read_table(path, read_dictionary=texts).columns:
            held += repr([chunk.dictionary.to_pylist() for chunk in column.chunks if hasattr(chunk, "dictionary")])
        groups = range(shard.num_row_groups)
        held += repr([shard.metadata.row_group(group).to_dict() for group in groups])
        held += repr(shard.schema_arrow.metadata)
    return CANARY in held


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Return a folder with a table and a store of its own, in which parts are small."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tasks.noise.task, "CHUNK_CELLS", 3)
    monkeypatch.setattr(tasks.noise.measure, "CHUNK_CELLS", 3)
    monkeypatch.setattr(tasks.optimize.task, "CHUNK_CELLS", 3)
    made = World(tmp_path)
    made.write(UNSEEN | SEEN)
    return made


def counts(folder, level=DEPTH):
    """Return the published counts of a level by their codes."""
    table = pl.read_parquet(folder / "counts" / f"level_{level}.parquet")
    return {tuple(codes): count for *codes, count in table.drop("low", "high", "signal").iter_rows()}


def go_on():
    """Go on with the release."""
    with store():
        finish("one")


def crash(*_, **__):
    """Stop a release where it stands."""
    raise MemoryError


@contextmanager
def crashing_at(kind):
    """Let a release crash in the midst of the transaction that records a shard of a kind."""
    record = flows.run.walk.add_shard
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            flows.run.walk,
            "add_shard",
            lambda con, of, shard: (crash if shard.kind == kind else record)(con, of, shard),
        )
        yield


def without_noise(monkeypatch):
    """Let the histogram keep what reaches the threshold as it is."""

    def sampler(true_counts, scale, threshold):
        rows = np.flatnonzero(true_counts >= threshold)
        return rows, true_counts[rows]

    recipe = drawn_by("stability_histogram", {"opendp": Sampling(sampler)})
    monkeypatch.setitem(MECHANISMS, "stability_histogram", recipe)


def test_only_codes_above_the_threshold_are_published(world):
    """The tables, the codebook beside the shards and the numbers of areas are those of the leaves that were kept."""
    folder = world.release(privacy={"distinct": "area"})
    found = counts(folder)
    assert found.keys() == SEEN.keys()
    assert all(abs(count - SEEN[leaf]) < 100 for leaf, count in found.items())
    assert counts(folder, 0) == {(): sum(found.values())}
    assert verify_answer(folder).failures == []
    shards = shard_folder("one")
    for axis, codes in (("origin", {leaf[:2] for leaf in SEEN}), ("destination", {leaf[2:] for leaf in SEEN})):
        assert read_codebook(shards, axis).rows() == sorted(codes)
    numbers = pq.read_table(shard_path("one", shard_name("counts", DEPTH, "trunk")))
    assert [sorted(set(numbers[f"area_{axis}"].to_pylist())) for axis in (0, 1)] == [[0, 1, 2], [0, 1, 2, 3]]
    with store() as con:
        assert list_shards(con, "one")["noisy"][DEPTH, "trunk"].rows == len(SEEN)
        assert [level.possible_cells for level in find_release(con, "one").levels] == [1, *[None] * DEPTH]
        assert con.execute('SELECT count(*) FROM "one".level_4').fetchall() == [(len(SEEN),)]
    manifest = manifest_of(folder)
    assert manifest["codebooks"] == dict.fromkeys(("origin", "destination"), "from the released counts")
    assert [level["sigma"] > 0 for level in manifest["levels"]] == [False] * (len(manifest["levels"]) - 1) + [True]
    with store() as con:
        [charge] = charges_of(con, "one").values()
    assert (charge.rho, charge.epsilon, charge.delta) == (0, 1.0, pytest.approx(4.23e-9, rel=1e-3))
    assert (manifest["levels"][-1]["scale"], manifest["levels"][-1]["threshold"]) == (2.0, 40)
    shard = pq.ParquetFile(noisy_path("one", DEPTH, "trunk"))  # its parts do not tell how many leaves have records
    assert [shard.metadata.row_group(n).num_rows for n in range(shard.num_row_groups)] == [3, 1]
    assert "No codebook lists the codes of origin, destination" in (folder / "README.md").read_text().replace("\n", " ")


def test_the_search_finds_a_code_that_no_row_has(tmp_path):
    """In a compressed shard it is seen where only the dictionary of a column has it, or the statistics."""
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array(["a", CANARY]))
    pq.write_table(pa.table([codes], names=["code"]), tmp_path / "dictionary.parquet", compression="zstd")
    pq.write_table(pa.table([pa.array(["a", "b"])], names=["code"]), tmp_path / "clean.parquet", compression="zstd")
    assert [holds_canary(tmp_path / name) for name in ("dictionary.parquet", "clean.parquet")] == [True, False]


def test_nothing_but_the_vault_holds_the_code_of_one_unit(world, monkeypatch):
    """It is nowhere while leaves are measured, once they are sealed, after a crash on either side of that, and at the end."""
    before = []
    drawn = []

    def sampler(true_counts, scale, threshold):
        before.extend(path for path in left_in(world.folder) if holds_canary(path))
        drawn.extend(true_counts.tolist())
        return thresholded_laplace(true_counts, scale, threshold)

    recipe = drawn_by("stability_histogram", {"opendp": Sampling(sampler)})
    monkeypatch.setitem(MECHANISMS, "stability_histogram", recipe)
    with crashing_at("noisy"), pytest.raises(MemoryError):
        world.release(keep_vault=True)
    assert world.exposed() == []
    assert sorted(drawn) == sorted((UNSEEN | SEEN).values())
    with crashing_at("counts"), pytest.raises(MemoryError):
        go_on()
    assert world.exposed() == []
    go_on()
    assert world.exposed() == []
    assert before == []
    assert CANARY.encode() in vault_path("one").read_bytes()  # so that it could have been found


def test_what_is_left_does_not_depend_on_codes_that_were_not_kept(world, monkeypatch):
    """Of two tables that differ in leaves below the threshold, every shard, every seal and every published table is the same."""
    without_noise(monkeypatch)

    def made(release_id, trips):
        world.write(trips)
        folder = world.release(release_id, budget={"epsilon": 10.0, "delta": 1e-7})
        shards = {path.name: path.read_bytes() for path in shard_folder(release_id).iterdir()}
        public = {path.name: path.read_bytes() for path in [*folder.glob("counts/*"), folder / "counts.csv"]}
        manifest = manifest_of(folder)
        told = {key: value for key, value in manifest.items() if key not in {"id", "ledger"}}
        with store() as con:
            events = events_of(con)
            terms = "SELECT * EXCLUDE (release_id) FROM levels WHERE release_id = ?"
            terms = con.execute(terms, [release_id]).fetchall()
        of_release = [event for event in events if event.get("release") == release_id]
        charged = [{key: event[key] for key in event.keys() - {"release", "at", "standing"}} for event in of_release]
        return {"shards": shards, "public": public, "manifest": told, "terms": terms, "charged": charged}

    one, two = made("one", SEEN), made("two", UNSEEN | SEEN)
    assert len(one["shards"]) == 1 + DEPTH + 1 + 2
    assert one == two


def test_a_rerun_draws_what_was_not_sealed_anew_and_its_codes_with_it(world):
    """Before the seal there is no codebook beside the shards; afterwards one of what was sealed, however often it is made."""
    with crashing_at("noisy"), pytest.raises(MemoryError):
        world.release()
    with store() as con:
        assert (list_shards(con, "one")["noisy"], charges_of(con, "one")[DEPTH].state) == ({}, "drawing")
        spent = read_books(con).accounts["synthetic-country"].spendings
    unsealed = noisy_path("one", DEPTH, "trunk").read_bytes()
    assert [path.name for path in shard_folder("one").iterdir()] == [noisy_path("one", DEPTH, "trunk").name]
    with crashing_at("counts"), pytest.raises(MemoryError):
        go_on()
    sealed = noisy_path("one", DEPTH, "trunk", 1).read_bytes()
    codes = codebook_path("one", "origin").read_bytes()
    assert sealed != unsealed
    go_on()
    assert noisy_path("one", DEPTH, "trunk", 1).read_bytes() == sealed
    assert codebook_path("one", "origin").read_bytes() == codes
    assert counts(world.folder / "out" / "one").keys() == SEEN.keys()
    with store() as con:
        assert list_shards(con, "one")["noisy"][DEPTH, "trunk"].sha256 == sha256(sealed).hexdigest()
        assert read_books(con).accounts["synthetic-country"].spendings == spent
    expected = ["reserved", "drawing", "unsealed shard removed unread", "sealed", "released"]
    assert [event for event in world.events() if event in expected] == expected


@pytest.mark.parametrize(("stopped_at", "keys", "left"), [
    ("noisy", {}, set()),
    ("counts", {"keep_noisy_counts": False}, set()),
    ("counts", {}, {"codebook_origin", "codebook_destination", "level_4_trunk.noisy"}),
], ids=["not sealed", "not kept", "kept"])  # fmt: skip
def test_an_abandoned_release_leaves_codes_only_beside_sealed_counts(world, stopped_at, keys, left):
    """What was drawn and never sealed goes with the vault, codes and all, and so does what is not to be kept."""
    with crashing_at(stopped_at), pytest.raises(MemoryError):
        world.release(**keys)
    abandon_release("one")
    assert {path.stem for path in shard_folder("one").iterdir()} == left
    assert not vault_path("one").exists()


@pytest.mark.parametrize("neighbours", [pytest.param("substitution", marks=pytest.mark.thorough), "add_remove"])
def test_a_release_may_show_no_code_at_all(world, neighbours):
    """Where no leaf reaches the threshold, every level below the total is an empty table, and it is verified."""
    world.write(UNSEEN if neighbours == "substitution" else {})
    folder = world.release(privacy={"neighbours": neighbours})
    assert counts(folder, 0) == {(): 0}
    assert [counts(folder, level) for level in range(1, DEPTH + 1)] == [{}] * DEPTH
    assert read_codebook(shard_folder("one"), "origin").shape == (0, 2)
    assert verify_answer(folder).failures == []
    assert world.exposed() == []


def test_an_altered_code_is_found(world, monkeypatch):
    """A codebook that is not of what was sealed stops the publication, and a published table with another code is told."""
    with monkeypatch.context() as patch:
        patch.setattr(flows.run.driver, "_validate", crash)
        with pytest.raises(MemoryError):
            world.release()
    codebook = codebook_path("one", "origin")
    right = codebook.read_bytes()
    read_codebook(shard_folder("one"), "origin").with_columns(area=pl.col("area") + "x").write_parquet(codebook)
    with pytest.raises(StoreError, match="codes_as_sealed at level 4 failed"):
        go_on()
    codebook.write_bytes(right)
    go_on()
    folder = world.folder / "out" / "one"
    level = folder / "counts" / "level_4.parquet"
    pl.read_parquet(level).with_columns(pl.col("origin_area").str.replace("c", "d")).write_parquet(level)
    assert verify_answer(folder).failures[0] == "counts/level_4.parquet is not the file that was published."


def test_no_other_mechanism_can_say_that_it_has_taken_them(world):
    """A manifest of one that lists what it measures, with codes from the counts, is a failure that says so."""
    folder = world.release()
    waived = sorted(MECHANISMS["gaussian"].waived)
    rewrite(folder, lambda manifest: manifest.update(mechanism="gaussian", waived=waived))
    assert verify_answer(folder).failures == [
        "manifest.json: mechanism gaussian does not accept codes that no codebook lists."
    ]


OTHERS = [name for name, recipe in MECHANISMS.items() if not (recipe.shows_codes or recipe.counts_groups)]


@pytest.mark.parametrize("mechanism", OTHERS)
@pytest.mark.parametrize("axis", ["both", "origin"])
def test_every_other_mechanism_refuses_them(world, mechanism, axis):
    """It would measure what the records alone list; the error names the key, the reason and what to do."""
    (world.folder / "areas.csv").write_text("region,area\nnorth,a\nsouth,a\n")
    unlisted, listed = {"levels": ["region", "area"]}, {"table": "areas.csv", "levels": ["region", "area"]}
    hierarchy = unlisted if axis == "both" else {"origin": unlisted, "destination": listed}
    more = {"views": "margins"} if MECHANISMS[mechanism].cells == "views" else {}
    release = {"tree": "destination", "finest": "area"} | more
    with pytest.raises(SpecError, match=f"must be given with mechanism {mechanism}, .* who is in them") as refused:
        world.plan(mechanism=mechanism, hierarchy=hierarchy, release=release)
    assert refused.value.field == ("hierarchy.table" if axis == "both" else "hierarchy.origin.table")
    assert "stability_histogram" in refused.value.hint


LISTED = {"hierarchy": {"table": "areas.csv", "levels": ["region", "area"]}}
EXACT = {"invariants": ["region"], "i_accept_unprotected": True}
TARGET = {"level": "area", "max_error": 9, "confidence": 0.9}
ONE_COLUMN = OF_TRIPS | {"origin": "home"}
DEEP = {
    "input": {"table": "trips.csv", "features": ["home"]},
    "hierarchy": {"home": {"levels": ["region", "home"]}},
    "release": {"order": ["home"]},
}
GAUSSIAN = LISTED | {"mechanism": "gaussian"}
OF_NO_USE = "must be left out with mechanism"
REFUSED = [
    ({"input": ONE_COLUMN}, "hierarchy.table must be given: input.origin names one column"),
    (DEEP, "hierarchy.home.table must be given: a feature has one column"),
    (GAUSSIAN | {"privacy": EXACT}, f"privacy.invariants {OF_NO_USE} gaussian: "),
    ({"privacy": EXACT}, f"privacy.invariants {OF_NO_USE} stability_histogram: "),
    ({"privacy": {"epsilon": None, "rho": 0.1}}, f"privacy.rho {OF_NO_USE} stability_histogram: "),
    ({"privacy": {"epsilon": None, "target": TARGET}}, f"privacy.target {OF_NO_USE} stability_histogram: "),
    ({"privacy": {"split": "uniform"}}, f"privacy.split {OF_NO_USE} stability_histogram: "),
    ({"privacy": {"accountant": "zcdp"}}, "privacy.accountant must be left out"),
    ({"noise": {"sampler": "table"}}, "sampler must be opendp with mechanism stability_histogram, got table"),
    (GAUSSIAN | {"release": {"tree": "origin", "finest": "area", "records": True}}, f"release.records {OF_NO_USE} gaussian"),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "said"), REFUSED)
def test_what_leaves_cannot_be_is_refused(world, keys, said):
    """Only a whole path places an area that nobody has listed; keys without meaning are refused with the reason."""
    (world.folder / "areas.csv").write_text("region,area\nnorth,a\nsouth,b\n")
    with pytest.raises(SpecError, match=re.escape(said)):
        world.plan(**keys)


def test_leaves_are_planned(world):
    """Of sums of leaves σ is √w times that of one, or none; a target is met on them; no bound stands beside a threshold; not too many."""
    (world.folder / "areas.csv").write_text("region,area\nn,a\nn,b\ns,c\ns,d\ns,e\n")
    sigmas = [level.sigma for level in world.plan(**GAUSSIAN).levels]
    assert sigmas == pytest.approx([sigmas[-1] * leaves**0.5 for leaves in (25, 15, 9, 3, 1)])
    *sums, leaf = world.plan().levels
    assert [(level.sigma, level.is_summed, leaf.sigma > 0) for level in sums] == [(0, True, True)] * DEPTH
    target = {"level": "region", "max_error": 60, "confidence": 0.95}
    bound = world.plan(**GAUSSIAN, privacy={"epsilon": None, "target": target}).levels[2].bound
    assert 60 * (1 - 1e-9) <= bound <= 60
    with pytest.raises(UsageError, match="no error bound"):
        plan_answer(world.plan(), Target(**TARGET))
    (world.folder / "areas.csv").write_text("region,area\n" + "".join(f"r{n % 7},x{n}\n" for n in range(10_001)))
    with pytest.raises(SpecError, match=r"at most 100,000,000 leaves with mechanism gaussian, .* got 100,020,001") as e:
        world.plan(**GAUSSIAN)
    assert e.value.field == "release.finest"
    assert world.plan(**LISTED).levels[-1].possible_cells == 10_001**2


LIES = [
    ("leaves", lambda of: of.pop("waived"), "other than zero|above zero|waives"),
    ("leaves", lambda of: of["waived"].remove("fixed_total"), "waives other things"),
    ("leaves", lambda of: of["levels"][2].pop("summed"), "seal"),
    ("leaves", lambda of: of.update(mechanism="inftda"), "waives other things"),
    ("leaves", lambda of: of["levels"][1].update(rho=0.5), "rho|cost nothing"),
    (THRESHOLD, lambda of: of["levels"][-1].update(threshold=of["levels"][-1]["threshold"] - 9), "scale and threshold cost"),
    (THRESHOLD, lambda of: of["levels"][-1].update(scale=of["levels"][-1]["scale"] / 2), "scale and threshold cost"),
    (THRESHOLD, lambda of: of["privacy"].update(max_records_per_unit=2), "cost more"),
    (THRESHOLD, lambda of: of.update(mechanism="none"), "no mechanism none"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "lie", "told"), LIES, ids=[f"{number}: {lie[2]}" for number, lie in enumerate(LIES)])
def test_verification_finds_what_a_manifest_has_no_right_to_say(library, tmp_path, name, lie, told):
    """What is waived, summed or charged otherwise than by the mechanism's recipe and map is a failure that says so."""
    folder = library[name].copied(tmp_path)
    rewrite(folder, lie)
    failures = verify_answer(folder).failures
    assert any(part in failure for part in told.split("|") for failure in failures), failures


def test_a_plan_does_not_pretend_to_know_them(world, capsys):
    """Possible cells are unknown, bytes on disk are not forecast, a public guess bounds the leaves, and the table is not read."""
    (world.folder / "trips.csv").write_text("")
    answer = plan_answer(world.plan())
    assert [level.possible_cells for level in answer.levels] == [1, *[None] * DEPTH]
    assert (answer.disk, answer.typical, answer.unlisted) == (None, None, ["origin", "destination"])
    show_plan(answer)
    said = capsys.readouterr().out
    assert "on disk" not in said
    assert "only the codes of leaves whose noisy count reaches the threshold are published" in said


@pytest.mark.parametrize("blank", ["", " ", '""'])
def test_a_blank_code_is_refused_and_none_is_quoted(world, blank):
    """The column and the rule are named, and nothing of the table is left."""
    with (world.folder / "trips.csv").open("a") as table:
        table.write(f"north,{CANARY},{blank},a,3\n")
    with pytest.raises(InputError, match=r"column work_region and work must not be empty") as refused:
        world.release()
    assert CANARY not in f"{refused.value} {refused.value.hint}"
    assert world.exposed() == []


def test_a_missing_column_and_a_rehearsal_leave_nothing(world):
    """A dry run reads the codes and keeps none of them, and a column that is not there is named."""
    with store(), ThreadPoolExecutor(2) as executor:
        rehearse(world.plan(), submit_to(executor))
        assert world.exposed() == []
        assert list((world.folder / "home" / "vault").iterdir()) == []
        with pytest.raises(InputError, match="has no column nowhere"):
            rehearse(world.plan(input=OF_TRIPS | {"origin": ["home_region", "nowhere"]}), submit_to(executor))


def test_units_are_bounded_where_their_codes_are_known_from_records_alone(world):
    """A unit that has more records than promised, in codes of its own or in others', is cut to them."""
    rows = "".join(f"u{number},north,a,south,b\n" * 3 + f"u{number},north,a,south,c\n" for number in range(300))
    (world.folder / "trips.csv").write_text(f"who,{','.join(COLUMNS)}\n{rows}")
    bounds = {"max_records_per_unit": 2, "exact_records_per_unit": False, "distinct": "area"}
    found = counts(world.release(input=OF_TRIPS | {"unit": "who"}, privacy=bounds))
    assert found.keys() == {("north", "a", "south", "b"), ("north", "a", "south", "c")}
    assert all(abs(count - 300) < 100 for count in found.values())


@pytest.mark.thorough
def test_the_command_line_shows_prefect_no_code_of_one_unit(newcomer):
    """Neither Prefect's database nor its logs, nor what is published, printed or kept, holds what only one unit has."""
    world = World(newcomer.folder)
    world.write(UNSEEN | SEEN)
    world.plan()
    said = newcomer.run("release", "spec.yaml", "--json")
    assert said.code == 0
    released = said.json()
    assert counts(Path(released["folder"])).keys() == SEEN.keys()
    assert CANARY not in said.stdout + said.stderr
    searched = 0
    for path in newcomer.prefect.home.rglob("*"):
        with suppress(OSError):  # a folder, or a journal that is gone by now
            assert CANARY.encode() not in path.read_bytes()
            searched += 1
    assert searched
    assert newcomer.prefect.task_runs(released["id"])
    assert [path for path in left_in(world.folder) if "data" not in path.parts and holds_canary(path)] == []
