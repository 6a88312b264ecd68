"""The audit: that it finds whatever was done to the ledger, the seals and the shards, and blames nothing else; and releases that end otherwise."""

import hashlib
import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import flows.run.ending
from flows.answers.audit import audit_answer
from flows.answers.ledger import budget_answer
from flows.cli.arguments import FAILED
from flows.cli.main import app
from flows.planning.composition import standing_of
from flows.planning.plan import make_plan
from flows.run.driver import make_release
from flows.run.ending import EndedRelease, abandon_release, forget_release
from flows.run.reservation import new_release
from flows.run.runner import report_nothing, submit_to
from flows.run.walk import StoredRecord
from flows.specification.file import load_spec
from storage.counts.shard_files import noisy_path
from storage.counts.vault import vault_path
from storage.database import connections
from storage.database.connections import store
from storage.errors import BudgetExceeded, StoreError, UsageError
from storage.ledger.events import read_books
from storage.machine.home import shard_folder
from storage.releases.register import state_of
from storage.releases.shards import list_shards
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tasks.work.order import Step
from tests.support.draws import place_of
from tests.support.ledger import charges_of, events_of, read_chain, replace_ledger, rows_of
from tests.support.spec import SPEC as COUNTRY
from tests.support.spec import spec_in

SPEC = COUNTRY | {
    "release": {"tree": "destination", "finest": "province"},
    "privacy": COUNTRY["privacy"] | {"epsilon": 10.0},
    "budget": {"epsilon": 40.0, "delta": 1.0e-7},
}
DEPTH = 4  # two levels at either end; level 0 is exact
TRUNK = "trunk"
NOTHING_LEFT = {"epsilon": 1e9, "left_rho": "0", "left_epsilon": 0.0}  # a standing that promises less than any other


@dataclass(frozen=True)
class World:
    """A folder with tables, a store that may be spoilt, and what it has published."""

    place: Path  # holds `data`, the store `home`, and `out`
    snapshots: Path  # copies of the place from when one release was made, a second one, and a third had failed
    ids: dict[str, str]  # of the releases `one`, `two` and `failed`

    def restore(self, snapshot, part="."):
        """Put back the place, or a part of it, as it was in a snapshot."""
        shutil.rmtree(self.place / part, ignore_errors=True)
        shutil.copytree(self.snapshots / snapshot / part, self.place / part)

    def published(self, name):
        """Return the published folder of a release."""
        return self.place / "out" / self.ids[name]

    def events(self):
        """Return the events of the ledger."""
        with store() as con:
            return events_of(con)

    def at(self, kind, name, level=None):
        """Return the position of the one event of its kind about a release, or a level of it."""
        wanted = (kind, self.ids[name])
        named = [(event["event"], event.get("release"), event.get("level")) for event in self.events()]
        [position] = [at for at, (*of, own) in enumerate(named) if tuple(of) == wanted and level in {None, own}]
        return position

    def execute(self, query, *values):
        """Do something to the store that Trellis would not."""
        with store() as con:
            con.execute(query, list(values))

    def change(self, at, keys):
        """Change keys of one event, with all hashes computed anew."""
        events = self.events()
        replace_ledger(*events[:at], events[at] | keys, *events[at + 1 :])

    def insert(self, at, *events):
        """Insert events, with all hashes computed anew."""
        replace_ledger(*self.events()[:at], *events, *self.events()[at:])

    def blames(self, position, kind, name, *folders, only=True):
        """Audit, and return the first reason, having checked what is blamed first, and that only its release is."""
        answer = audit_answer(folders)
        release = self.ids.get(name, name)
        first = answer.first_bad
        assert not answer.ok
        if kind == "missing":
            position = answer.events  # where what is missing would be
        assert (first.position, first.event, first.release) == (position, kind, release)
        if only:
            assert {finding.release for finding in answer.findings} == {release}
        return str(first.reason)


def release_of(place, name, *, stops=False, **keys):
    """Make a release and return its id; it fails before level 2 is drawn if it is told to."""
    spec = {key: value for key, value in (SPEC | {"name": name} | keys).items() if value is not None}
    plan = make_plan(load_spec(spec_in(place, spec, f"{name}.yaml")))
    release = new_release(plan)

    def stop(*_):
        raise StoreError("The disk is full.")

    with ThreadPoolExecutor(1) as threads:
        submit = submit_to(threads)

        def submit_or_stop(stage, *arguments):
            if stops and stage.name == "measure" and place_of(arguments)[0] == 2:
                stage = type("Stopped", (), {"fn": staticmethod(stop)})
            return submit(stage, *arguments)

        with pytest.raises(StoreError, match="disk is full") if stops else nullcontext():
            make_release(plan, release, submit_or_stop, report_nothing)
    return release.id


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Make two releases and a third that fails; keep a copy of the place after each."""
    top = tmp_path_factory.mktemp("audited")
    place, snapshots = top / "place", top / "snapshots"
    country = draw_country(regions=2, provinces=4, municipalities=8, people=300, generator=np.random.default_rng(3))
    ids = {}
    with pytest.MonkeyPatch.context() as patch:
        write_country(country, place / "data")
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        ids["one"] = release_of(place, "one", keep_vault=True)
        shutil.copytree(place, snapshots / "one")
        ids["two"] = release_of(place, "two", keep_noisy_counts=False)
        shutil.copytree(place, snapshots / "two")
        ids["failed"] = release_of(place, "failed", stops=True)
        shutil.copytree(place, snapshots / "failed")
        yield World(place, snapshots, ids)


@pytest.fixture
def world(made, monkeypatch):
    """Return the place as it was when two releases had been published, the second without its noisy counts."""
    monkeypatch.setenv("TRELLIS_HOME", str(made.place / "home"))
    made.restore("two")
    return made


# what is whole --------------------------------------------------------------------------------------------------------


@pytest.mark.heavy("makes the releases that all tests here spoil")
@pytest.mark.parametrize("snapshot", ["one", "two", "failed"])
def test_what_nobody_touched_is_found_whole(world, snapshot):
    """After one release, after two, and after a third that failed midway, everything fits."""
    world.restore(snapshot)
    answer = audit_answer()
    with store() as con:
        last = rows_of(con)[-1][2]
        assert len(read_chain(con)) == answer.events
    assert answer.ok is True
    assert (answer.head, answer.first_bad) == (last, None)
    assert audit_answer([world.place / "out", world.place]) == answer
    with pytest.raises(UsageError):
        audit_answer([world.place / "nowhere"])


def test_turns_that_were_given_up_are_counted(world):
    """A draw that was given up is no finding: it is counted, and the next turn's is the one that is sealed."""
    release = world.ids["one"]
    assert audit_answer().given_up == 0
    world.execute("UPDATE turns SET turn = 1 WHERE release_id = ? AND level = 2", release)
    world.execute("INSERT INTO turns VALUES (?, 2, 'trunk', 0, 'given up')", release)
    world.execute("UPDATE shards SET turn = 1 WHERE kind = 'noisy' AND release_id = ? AND level = 2", release)
    shard = noisy_path(release, 2, TRUNK)
    shard.rename(noisy_path(release, 2, TRUNK, 1))
    answer = audit_answer()
    assert (answer.findings, answer.given_up) == ([], 1)


def test_what_trellis_does_to_a_ledger_is_no_tampering(world):
    """A refusal, a raised cap, a forgotten vault and an abandoned release leave everything fitting."""
    world.restore("failed")
    world.insert(len(world.events()), {"event": "noisy counts destroyed"})  # a note that says nothing of anybody
    with pytest.raises(BudgetExceeded):
        release_of(world.place, "dear", privacy={**SPEC["privacy"], "epsilon": 39.0}, budget=None)
    budget_answer(str(SPEC["dataset"]), 50.0, "a census year")
    forget_release(world.ids["one"])
    abandon_release(world.ids["failed"])
    assert audit_answer().findings == []


def test_another_stores_manifests_in_the_same_folder_raise_no_alarm(world, library):
    """They belong to another ledger: they are passed over where they lie, and told where one asks about them."""
    other = library["trips"].copied(world.place / "out")
    assert audit_answer().ok
    assert "another ledger" in world.blames(0, "manifest", other.name, other)


# tamperings -----------------------------------------------------------------------------------------------------------


def after(**change):
    """Return what changes keys of the event at a position."""
    return lambda world, at: world.change(at, {key: of(world.events()[at][key]) for key, of in change.items()})


def smuggle(rho, levels=None, **keys):
    """Return what inserts a copy of the second reservation for a release that nobody knows, with other charges."""

    def insert(world, at):
        honest = world.events()[world.at("reserved", "two")]
        charges = [level | {"rho": rho} for level in honest["levels"]][:levels]
        world.insert(at, honest | {"release": "smuggled", "levels": charges} | keys)

    return insert


def lower(epsilon, **standing):
    """Return what states another first cap, and another standing in all events that state one."""

    def rewrite(world, _):
        first, *rest = world.events()
        others = [event | (standing if "standing" in event else {}) for event in rest]
        replace_ledger(first | {"cap": first["cap"] | {"epsilon": epsilon}}, *others)

    return rewrite


def raise_cap(cap, **keys):
    """Return what inserts a raise of the cap."""

    def insert(world, at):
        raised = {key: world.events()[0][key] for key in ("dataset", "cap")} | {"reason": "war", "at": "now"}
        world.insert(at, raised | {"event": "budget raised", "cap": raised["cap"] | cap} | keys)

    return insert


def state(**keys):
    """Return what inserts a raise of the cap that states another balance than there is."""
    balance = {"epsilon": 50.0, "left_rho": "0", "left_epsilon": 0.0} | keys
    return raise_cap({"epsilon": 50.0, "rho": "1"}, standing=balance)


def swap(world, at):
    """Let two events change their places, with their hashes."""
    with store() as con:
        query = "SELECT event, hash FROM ledger WHERE position IN (?, ?) ORDER BY position DESC"
        for position, row in enumerate(con.execute(query, [at, at + 1]).fetchall(), at):
            con.execute("UPDATE ledger SET event = ?, hash = ? WHERE position = ?", [*row, position])


def alter(level, *, reseal=False):
    """Return what adds a byte to a shard of release one, and changes its seal to fit."""

    def add(world, _):
        path = noisy_path(world.ids["one"], level, TRUNK)
        path.write_bytes(path.read_bytes() + b"0")
        if reseal:
            query = "UPDATE shards SET sha256 = ? WHERE kind = 'noisy' AND release_id = ? AND level = ?"
            world.execute(query, hashlib.sha256(path.read_bytes()).hexdigest(), world.ids["one"], level)

    return add


def restore_counts(world, _):
    """Put noisy counts where they were to be destroyed."""
    shutil.copy(*(noisy_path(world.ids[name], 2, TRUNK) for name in ("one", "two")))


def edit_manifest(change):
    """Return what changes the manifest of release one."""

    def edit(world, _):
        path = world.published("one") / "manifest.json"
        manifest = json.loads(path.read_text())
        change(manifest)
        path.write_text(json.dumps(manifest))

    return edit


LATER = "2001-01-01T00:00:00Z"
EDIT = 'UPDATE ledger SET event = replace(event, \'"at":"2\', \'"at":"3\') WHERE position = {at}'
UNREADABLE = "UPDATE ledger SET event = 'spent nothing' WHERE position = {at}"
REHASH = "UPDATE ledger SET hash = repeat('0', 64) WHERE position = {at}"
DELETE, CUT = "DELETE FROM ledger WHERE position = {at}", "DELETE FROM ledger WHERE position >= {at}"
MOVE_UP = "UPDATE ledger SET position = position - 1 WHERE position > {at}"
RESEAL = "UPDATE shards SET sha256 = repeat('a', 64) WHERE kind = 'noisy' AND level = 3 AND release_id = "
SEAL = f"INSERT INTO shards VALUES ('{{failed}}', 'noisy', 3, '{TRUNK}', repeat('a', 64), 4, 0, 0, '{LATER}')"
UNSEAL = "DELETE FROM shards WHERE kind = 'noisy' AND level = 2"
NO_LEVEL = "UPDATE shards SET level = 9 WHERE kind = 'noisy' AND level = 0"
PUBLISH, FAIL = ("UPDATE releases SET state = 'published'", "UPDATE releases SET state = 'failed'")
HALVE = "UPDATE levels SET sigma = sigma / 2 WHERE level = 2"
VOID = {"event": "void", "level": 3}

# what is done, and at which position: that of an event (its kind, release and level), a number, or none; what is blamed,
# where it is not that event; and words of the reason
TAMPERINGS = {
    "an early time": (EDIT, "reserved one", "", "hash"),
    "a level's time": (EDIT, "sealed one 3", "", "hash"),
    "the last time": (EDIT, "vault deleted two", "", "hash"),
    "a hash": (REHASH, "sealed one 3", "", "hash"),
    "the last hash": (REHASH, "vault deleted two", "", "hash"),
    "no event": (UNREADABLE, "4", "unreadable ", ""),
    "a deleted event": (DELETE, "drawing one 2", "sealed one", "missing"),
    "a deleted event, its gap closed": (f"{DELETE}; {MOVE_UP}", "drawing one 2", "sealed one", "hash"),
    "a deleted beginning": (DELETE, "0", "reserved one", ""),
    "swapped events": (swap, "drawing two 2", "sealed two", ""),
    # with all hashes right
    "a void before the drawing": (lambda world, at: world.insert(at - 1, VOID | {"release": world.ids["one"]}), "sealed one 3", "drawing one", "void"),
    "an overspending that states little": (smuggle("1000", epsilon=0.001), "end", "reserved smuggled", "above its cap"),
    "an overspending by little": (smuggle("3", epsilon=10.0), "end", "reserved smuggled", "above its cap"),
    "dearer than it states": (after(levels=lambda levels: [levels[0] | {"rho": "1"}, *levels[1:]]), "reserved two", "", "records epsilon"),
    "a modest standing": (after(standing=lambda standing: standing | {"epsilon": standing["epsilon"] * 0.999}), "reserved two", "", "records epsilon"),
    "a lower cap": (lower(10.5), "reserved one", "", ""),
    "a lower cap, all spent": (lower(10.5, standing=NOTHING_LEFT), "reserved two", "", "above its cap"),
    "a rewritten beginning": (lower(400.0), "0", "manifest one", "another ledger"),
    "a release that there is not": (smuggle("1/1000", levels=1, standing=NOTHING_LEFT), "end", "reserved smuggled", "does not know"),
    "a raise to less": (raise_cap({"epsilon": 5.0}), "end", "budget raised ", "not above its old one"),
    "a raise to the same": (raise_cap({}), "end", "budget raised ", "not above its old one"),
    "a balance below 0": (state(epsilon=-5.0), "end", "budget raised ", ""),
    "a balance of none": (state(epsilon=None), "end", "budget raised ", ""),
    "too much rho left": (state(left_rho="99"), "end", "budget raised ", ""),
    "too much epsilon left": (state(left_epsilon=49.9), "end", "budget raised ", ""),
    # manifests and states
    "a manifest without ledger": (edit_manifest(lambda own: own.pop("ledger")), "none", "manifest one", ""),
    "a manifest that states less": (
        edit_manifest(lambda own: own["privacy"].update(epsilon=own["privacy"]["epsilon"] / 2)),
        *("none", "manifest one", "another epsilon"),
    ),
    "a tail that a manifest saw": (CUT, "reserved two", "manifest two", "cut off"),
    "a reservation that nothing follows": (CUT, "reserved failed", "missing failed", "no reservation"),
    "counts of which nothing is said": (CUT, "noisy counts destroyed two", "missing two", "became of its noisy counts"),
    "a forgotten release": ("DELETE FROM releases WHERE id = '{two}'", "reserved two", "", ""),
    "a state ahead": (PUBLISH + " WHERE id = '{failed}'", "none", "missing failed", "charge of level 1 is sealed"),
    "a state behind": (FAIL + " WHERE id = '{one}'", "none", "missing one", "calls it failed"),
    "another scale": (HALVE + " AND release_id = '{one}'", "reserved one", "", "level 2"),
    # seals and shards
    "a seal": (RESEAL + "'{one}'", "sealed one 3", "", "seals of level 3"),
    "a seal of counts that are gone": (RESEAL + "'{two}'", "sealed two 3", "", ""),
    "a deleted seal": (UNSEAL + " AND release_id = '{one}'", "sealed one 2", "", ""),
    "a seal of what is reserved": (SEAL, "reserved failed", "", "level 3 is sealed, but its charge is reserved."),
    "a seal of no level": (NO_LEVEL + " AND release_id = '{two}'", "reserved two", "", "level 9 is sealed, but the release has no such level."),
    "a shard": (alter(1), "sealed one 1", "", f"level_1_{TRUNK}.noisy.parquet is not what was sealed."),
    "the last shard": (alter(DEPTH), "sealed one 4", "", f"level_4_{TRUNK}.noisy.parquet is not what was sealed."),
    "a shard and its seal": (alter(2, reseal=True), "sealed one 2", "", "seals of level 2"),
    "a deleted shard": (lambda world, _: noisy_path(world.ids["one"], 2, TRUNK).unlink(), "sealed one 2", "", f"level_2_{TRUNK}.noisy.parquet is missing."),
    "an exact shard": (alter(0), "none", "sealed one", ""),
    "counts that were destroyed": (restore_counts, "sealed two 2", "", "still there"),
}  # fmt: skip
FINDINGS = {"a seal": 3, "a shard": 1, "a deleted shard": 1}  # a seal: that of its shard and of the manifest too


def located(world, where):
    """Return the position that is named, and the kind and release of the event there, where that is how it is named."""
    if where.isdigit():
        return int(where), ""
    if where in {"none", "end"}:
        return (None if where == "none" else len(world.events())), ""
    kind, name, level = re.fullmatch(r"(.+?) (one|two|failed)(?: (\d))?", where).groups()  # type: ignore[union-attr]
    return world.at(kind, name, int(level) if level else None), f"{kind} {name}"


@pytest.mark.parametrize("what", TAMPERINGS)
def test_what_was_done_is_found_where_it_was_done(world, what):
    """Whatever is changed of ledger, states, manifests, seals and shards, its place is told, and its release alone."""
    act, where, blamed, words = TAMPERINGS[what]
    if "failed" in blamed + where:
        world.restore("failed")
    with store():  # open all the time
        position, event = located(world, where)
        if isinstance(act, str):
            world.execute(act.format(**world.ids, at=position))
        else:
            act(world, position or 0)
        kind, name = (blamed or event).rsplit(" ", 1)
        assert words in world.blames(position, kind, name, only=what not in {"a state behind", "a rewritten beginning"})
        assert what not in FINDINGS or FINDINGS[what] == len(audit_answer().findings)


@pytest.mark.parametrize("level", [1, DEPTH])
def test_a_published_releases_own_tail_is_found_by_its_state(world, level):
    """What happened after the manifest was written, no manifest saw; but what is published must be released."""
    world.restore("one")
    cut = world.at("released", "one", level)
    assert cut >= seen(world.published("one"))
    world.execute("DELETE FROM ledger WHERE position >= ?", cut)
    assert world.blames(None, "missing", "one") == f"it is published, but the charge of level {level} is sealed."
    assert len(audit_answer().findings) == DEPTH + 2 - level  # the levels, and what became of the noisy counts


@pytest.mark.parametrize("midst", [False, True])
def test_an_inserted_event_that_breaks_a_law_is_found(world, midst):
    """With all hashes right, an illegal event is still told by its position, at the end and in the midst."""
    one, nobody, events = {"release": world.ids["one"], "level": 1}, {"release": "nobody"}, world.events()
    illegal = [
        *({"event": kind} | one for kind in ("void", "drawing", "released")),
        {"event": "drawing"} | one | {"level": DEPTH + 1},
        {"event": "drawing", "level": 1} | nobody,
        events[1],  # a second reservation
        events[1] | nobody | {"levels": None},
        {"event": "budget raised", "dataset": "nobody", "cap": events[0]["cap"]},
    ]
    at = world.at("reserved", "two") if midst else len(events)  # where all of release one is over
    for event in illegal:
        replace_ledger(*events[:at], event, *events[at:])
        world.blames(at, event["event"], event.get("release", ""))


@pytest.mark.parametrize(
    "change", ["turns SET turn = 1", "turns SET state = 'given up'", "turns SET state = 'open'", "shards SET turn = 1"]
)
def test_a_seal_of_a_turn_that_is_not_closed_is_found(world, change):
    """What is sealed was drawn in the one turn that is closed."""
    world.execute(f"UPDATE {change} WHERE release_id = ? AND level = 2", world.ids["one"])
    reasons = [finding.reason for finding in audit_answer().findings]
    assert "what is sealed of level 2 of trunk is not what its closed turn drew." in reasons


def seen(folder):
    """Return how many events a published manifest saw."""
    return int(json.loads((folder / "manifest.json").read_text())["ledger"]["length"])


def test_a_rewritten_past_is_found_by_the_manifests_that_saw_another(world):
    """With the whole chain hashed anew, the last event that each manifest saw is not the one that it recorded."""
    world.change(world.at("reserved", "two"), {"at": LATER})
    assert "another event" in world.blames(seen(world.published("two")) - 1, "manifest", "two")
    world.restore("two", "home")
    world.change(1, {"at": LATER})
    world.blames(seen(world.published("one")) - 1, "manifest", "one", only=False)
    assert [finding.release for finding in audit_answer().findings] == [world.ids["one"], world.ids["two"]]


def test_an_older_copy_of_the_store_is_found_by_what_lies_beside_or_by_an_archive(world):
    """It does not know the second release, but its folder does, beside the first or in an archive that is given."""
    archive = world.place / "archive" / "of" / "2026"
    world.restore("one", "home")
    cut = len(world.events())
    told = f"records {seen(world.published('two'))} events, but the ledger has {cut}"
    assert told in world.blames(cut, "manifest", "two")
    archive.mkdir(parents=True)
    shutil.move(world.published("two"), archive)
    assert audit_answer().ok
    for given in (world.place / "archive", archive / world.ids["two"]):
        world.blames(cut, "manifest", "two", given)
    world.restore("two", "home")
    assert audit_answer().ok


def test_an_empty_store_is_found_by_an_archive(world, monkeypatch):
    """A store begun anew has seen none of the events that the manifests saw."""
    shutil.rmtree(world.place / "home")
    monkeypatch.setattr(connections, "_SEEN", set())  # as in another process: this one has seen the store that is gone
    answer = audit_answer()
    assert (answer.ok, answer.events, answer.head, answer.first_bad) == (True, 0, "", None)
    world.blames(0, "manifest", "one", world.place / "out", only=False)


def test_destroyed_counts_must_be_gone(world):
    """Noisy counts that were to be destroyed are gone, and where they are not they can be forgotten."""
    with store() as con:
        there = list_shards(con, world.ids["two"])["noisy"]
        shards = [noisy_path(world.ids["two"], level, branch) for level, branch in there]
    assert [shard.exists() for shard in shards] == [False] * (DEPTH + 1)
    restore_counts(world, 0)
    assert not audit_answer().ok
    assert app(args=["audit"], prog_name="trellis", standalone_mode=False) == FAILED
    assert forget_release(world.ids["two"]).deleted == ["shards"]
    assert audit_answer().ok


@pytest.mark.parametrize(
    "charge",
    [{"rho": "1/0"}, {"rho": "Infinity"}, {"rho": "-1"}, {"rho": "0"}, {"rho": None}, {"level": None}],
    ids=str,
)
def test_a_charge_that_is_none_is_found(world, charge):
    """A ρ that is no number above zero cannot buy budget back, nor stop the audit."""
    at = world.at("reserved", "two")
    levels = world.events()[at]["levels"]
    world.change(at, {"levels": [levels[0] | charge, *levels[1:]]})
    assert at <= audit_answer().first_bad.position <= at + len(levels)
    if charge != {"level": None}:
        with store() as con, pytest.raises(StoreError, match="does not add up"):
            read_books(con)


@pytest.mark.parametrize(
    "change", ["is_invariant = true", "l2_sensitivity_squared = 1", "rho = '1/7'", "is_invariant = true, rho = '0'"]
)
def test_a_level_that_is_not_as_charged_is_not_drawn(world, change):
    """A store that calls a charged level exact, or cheaper, cannot have it drawn so; the audit tells."""
    world.restore("failed")
    world.execute(f"UPDATE levels SET {change} WHERE release_id = ? AND level = 3", world.ids["failed"])
    with pytest.raises(StoreError, match="differs from its charge in the ledger"):
        StoredRecord(world.ids["failed"]).prepare(Step("measure", 3, TRUNK))
    assert "tau for level 3" in world.blames(world.at("reserved", "failed"), "reserved", "failed")


# endings --------------------------------------------------------------------------------------------------------------


def states(world, name):
    """Return the states of the charges of a release."""
    with store() as con:
        return {level: charge.state for level, charge in charges_of(con, world.ids[name]).items()}


def test_a_forgotten_vault_is_gone_and_recorded(world):
    """The true counts that a release was told to keep are deleted once, with an event; no charge moves."""
    before = world.events()
    assert vault_path(world.ids["one"]).exists()
    assert forget_release(world.ids["one"]).deleted == ["vault"]
    assert not vault_path(world.ids["one"]).exists()
    *rest, last = world.events()
    assert rest == before
    assert (last["event"], last["release"]) == ("vault deleted", world.ids["one"])
    assert set(states(world, "one").values()) == {"released"}
    assert forget_release(world.ids["one"]).deleted == []
    assert world.events() == [*before, last]


def test_an_abandoned_release_gives_back_what_it_has_not_drawn(world):
    """What is only reserved becomes void, what is drawn stays charged, the vault is deleted, and all of it recorded."""
    world.restore("failed")
    before = world.events()
    assert states(world, "failed") == {1: "sealed", 2: "drawing", 3: "reserved", 4: "reserved"}
    assert vault_path(world.ids["failed"]).exists()
    assert abandon_release(world.ids["failed"]).deleted == ["vault", "shards"]
    assert states(world, "failed") == {1: "sealed", 2: "drawing", 3: "void", 4: "void"}
    assert not vault_path(world.ids["failed"]).exists()
    added = world.events()[len(before) :]
    assert [(event["event"], event.get("level")) for event in added] == [
        *(("void", 3), ("void", 4)),
        *(("abandoned", None), ("noisy counts kept", None), ("vault deleted", None)),
    ]
    with store() as con:
        sealed = list_shards(con, world.ids["failed"])["noisy"]  # of which level 0 is exact, and was not published
        account = read_books(con).account_of(world.ids["failed"])
        assert state_of(con, world.ids["failed"]) == "abandoned"
    left = {path for path in shard_folder(world.ids["failed"]).iterdir() if not path.name.startswith("codebook_")}
    assert left == {noisy_path(world.ids["failed"], level, branch) for level, branch in sealed if level}
    assert {event["release"] for event in added} == {world.ids["failed"]}
    drawn = [charge.rho for charge in account.charges_of(world.ids["failed"]).values() if charge.state != "void"]
    assert account.spendings[-1].rho == sum(drawn) > 0
    assert account.standing == standing_of(account.spendings, account.terms.cap)
    assert audit_answer().ok


def test_a_release_has_one_end(world):
    """What is published cannot be abandoned, what may go on cannot be forgotten, and nobody's release has any end."""
    world.restore("failed")
    before = world.events()
    for end, name in ((abandon_release, "one"), (forget_release, "failed")):
        for id_ in (world.ids[name], "nobody"):
            with pytest.raises(UsageError):
                end(id_)
        assert vault_path(world.ids[name]).exists()
    assert world.events() == before
    abandon_release(world.ids["failed"])
    with pytest.raises(UsageError):
        abandon_release(world.ids["failed"])


def test_a_crash_while_abandoning_leaves_what_can_be_ended(world, monkeypatch):
    """Until the transaction ends nothing is given back or deleted; a vault that outlives it is deleted by `forget`."""
    world.restore("failed")
    before = world.events()

    def crash(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(flows.run.ending, "set_state", crash)
        with pytest.raises(KeyboardInterrupt):
            abandon_release(world.ids["failed"])
    assert world.events() == before
    assert vault_path(world.ids["failed"]).exists()
    with monkeypatch.context() as patch:
        patch.setattr(flows.run.ending, "forget_release", lambda id_: EndedRelease(id_, "abandoned", [], ""))
        abandon_release(world.ids["failed"])
    assert vault_path(world.ids["failed"]).exists()
    before = world.events()
    assert forget_release(world.ids["failed"]).deleted == ["vault", "shards"]
    assert not vault_path(world.ids["failed"]).exists()
    assert [event["event"] for event in world.events()[len(before) :]] == ["vault deleted"]
    assert audit_answer().ok
