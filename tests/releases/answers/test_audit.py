"""The audit: that it finds whatever was done to the ledger, the seals and the shards, and blames nothing else.

And the two endings that leave traces there: a release abandoned, and a vault forgotten.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import flows.execution.ending
from flows.answers.audit import audit_answer
from flows.answers.ledger import budget_answer
from flows.cli.json_object import json_object
from flows.cli.main import DONE, FAILED, app
from flows.execution.driver import make_release
from flows.execution.ending import EndedRelease, abandon_release, forget_release
from flows.execution.reservation import new_release
from flows.planning.composition import standing_of
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.walks.runner import Future, Submit, report_nothing, submit_to
from flows.walks.steps import Measure
from flows.walks.stored import StoredRecord
from storage.counts.shards import noisy_path
from storage.counts.vault import vault_path
from storage.database import connections
from storage.database.connections import store, transaction
from storage.errors import BudgetExceeded, StoreError, UsageError
from storage.ledger.events import charges_of, read_books
from storage.machine.claims import shard_folder
from storage.releases.register import set_state, state_of
from storage.releases.seals import list_seals
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country
from tests.support.draws import place_of

SPEC = {
    "dataset": "synthetic-country",
    "input": {"table": "data/trips.csv", "origin": "home", "destination": "work", "count": "people"},
    "hierarchy": {"table": "data/codebook.csv", "levels": ["region", "province", "municipality"]},
    "release": {"tree": "destination", "finest": "province"},
    "mechanism": "inftda",
    "privacy": {
        "unit": "one made-up commuter",
        "neighbours": "substitution",
        "max_records_per_unit": 1,
        "epsilon": 10.0,
        "delta": 1.0e-8,
        "accountant": "zcdp",
    },
    "budget": {"epsilon": 40.0, "delta": 1.0e-7},
}
DEPTH = 4  # two levels at either end; level 0 is exact
TRUNK = "trunk"
NOTHING_LEFT = {"epsilon": 1e9, "left_rho": "0", "left_epsilon": 0.0}  # a standing that promises less than any other

Event = dict[str, Any]


@dataclass(frozen=True)
class World:
    """A folder with tables, a store that may be spoilt, and what it has published.

    Attributes:
        place: holds `data`, the store `home`, and `out`.
        snapshots: copies of the place from when one release was made, a second one, and a third had failed.
        ids: the releases `one`, `two` and `failed`, and `other`, of another store.
    """

    place: Path
    snapshots: Path
    ids: dict[str, str]

    def restore(self, snapshot: str, part: str = ".") -> None:
        """Put back the place, or a part of it, as it was in a snapshot."""
        shutil.rmtree(self.place / part, ignore_errors=True)
        shutil.copytree(self.snapshots / snapshot / part, self.place / part)

    def published(self, name: str) -> Path:
        """Return the published folder of a release."""
        return self.place / "out" / self.ids[name]

    def events(self) -> list[Event]:
        """Return the events of the ledger."""
        with store() as con:
            return [
                json.loads(text) for (text,) in con.execute("SELECT event FROM ledger ORDER BY position").fetchall()
            ]

    def at(self, kind: str, name: str, level: int | None = None) -> int:
        """Return the position of the one event of its kind about a release, or a level of it."""
        [position] = [
            position
            for position, event in enumerate(self.events())
            if event["event"] == kind
            and event.get("release") == self.ids[name]
            and (level is None or event["level"] == level)
        ]
        return position

    def rewrite(self, events: list[Event]) -> None:
        """Replace the ledger by these events, with all hashes computed anew."""
        with store() as con, transaction(con):
            con.execute("DELETE FROM ledger")
            last = ""
            for position, event in enumerate(events):
                text = json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
                last = hashlib.sha256(f"{last}\n{text}".encode()).hexdigest()
                con.execute("INSERT INTO ledger VALUES (?, ?, ?)", [position, text, last])

    def execute(self, query: str, *values: object) -> None:
        """Do something to the store that Trellis would not."""
        with store() as con:
            con.execute(query, list(values))

    def blames(self, position: int | None, kind: str, name: str, *folders: Path, only: bool = True) -> str:
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


def submit_before(level: int, submit: Submit) -> Submit:
    """Return a `submit` whose measuring of a level stops before it has drawn anything."""

    def stop(*_: object) -> None:
        raise StoreError("The disk is full.")

    def submit_or_stop(stage: Any, *arguments: Any) -> Future:
        if stage.name == "measure_branch" and place_of(arguments)[0] == level:
            stage = type("Stopped", (), {"fn": staticmethod(stop)})
        return submit(stage, *arguments)

    return submit_or_stop


def release_of(place: Path, name: str, stops_before: int = DEPTH + 1, **keys: Any) -> str:
    """Make a release and return its id; it fails before a level is drawn if it is told to."""
    (place / f"{name}.yaml").write_text(yaml.safe_dump({"name": name, **SPEC, **keys}))
    plan = make_plan(load_spec(place / f"{name}.yaml"))
    release = new_release(plan)
    with ThreadPoolExecutor(1) as threads:
        submit = submit_before(stops_before, submit_to(threads))
        if stops_before > DEPTH:
            make_release(plan, release, submit, report_nothing)
        else:
            with pytest.raises(StoreError, match="disk is full"):
                make_release(plan, release, submit, report_nothing)
    return release.id


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Make two releases, a third that fails, and one of another store; keep a copy of the place after each."""
    top = tmp_path_factory.mktemp("audited")
    place, other, snapshots = top / "place", top / "other", top / "snapshots"
    country = draw_country(regions=2, provinces=4, municipalities=8, people=300, generator=np.random.default_rng(3))
    ids = {}
    with pytest.MonkeyPatch.context() as patch:
        for folder in (other, place):
            write_country(country, folder / "data")
        patch.setenv("TRELLIS_HOME", str(other / "home"))
        ids["other"] = release_of(other, "other")
        patch.setenv("TRELLIS_HOME", str(place / "home"))
        ids["one"] = release_of(place, "one", keep_vault=True)
        shutil.copytree(place, snapshots / "one")
        ids["two"] = release_of(place, "two", keep_noisy_counts=False)
        shutil.copytree(place, snapshots / "two")
        ids["failed"] = release_of(place, "failed", stops_before=2)
        shutil.copytree(place, snapshots / "failed")
        shutil.copytree(other / "out", snapshots / "other")
        yield World(place, snapshots, ids)


@pytest.fixture
def world(made: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """Return the place as it was when two releases had been published, the second without its noisy counts."""
    monkeypatch.setenv("TRELLIS_HOME", str(made.place / "home"))
    made.restore("two")
    return made


# what is whole --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("snapshot", ["one", "two", "failed"])
def test_what_nobody_touched_is_found_whole(world: World, snapshot: str) -> None:
    """After one release, after two, and after a third that failed midway, everything fits."""
    world.restore(snapshot)
    answer = audit_answer()
    last = ""
    for event in world.events():
        text = json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        last = hashlib.sha256(f"{last}\n{text}".encode()).hexdigest()
    assert answer.ok is True
    assert (answer.events, answer.head, answer.first_bad) == (len(world.events()), last, None)
    assert audit_answer([world.place / "out", world.place]) == answer


def test_turns_that_were_given_up_are_counted(world: World) -> None:
    """A draw that was given up is no finding: it is counted, and the next turn's is the one that is sealed."""
    release = world.ids["one"]
    assert audit_answer().given_up == 0
    world.execute("UPDATE turns SET turn = 1 WHERE release_id = ? AND level = 2", release)
    world.execute("INSERT INTO turns VALUES (?, 2, 'trunk', 0, 'given up')", release)
    world.execute("UPDATE seals SET turn = 1 WHERE release_id = ? AND level = 2", release)
    shard = noisy_path(release, 2, TRUNK)
    shard.rename(noisy_path(release, 2, TRUNK, 1))
    answer = audit_answer()
    assert (answer.findings, answer.given_up) == ([], 1)


@pytest.mark.parametrize(
    "change", ["turns SET turn = 1", "turns SET state = 'given up'", "turns SET state = 'open'", "seals SET turn = 1"]
)
def test_a_seal_of_a_turn_that_is_not_closed_is_found(world: World, change: str) -> None:
    """What is sealed was drawn in the one turn that is closed."""
    world.execute(f"UPDATE {change} WHERE release_id = ? AND level = 2", world.ids["one"])
    reasons = [finding.reason for finding in audit_answer().findings]
    assert "what is sealed of level 2 of trunk is not what its closed turn drew." in reasons


def test_a_store_without_releases_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty ledger has no head and nothing that does not fit."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    answer = audit_answer()
    assert (answer.ok, answer.events, answer.head, answer.first_bad) == (True, 0, "", None)


def test_what_trellis_does_to_a_ledger_is_no_tampering(world: World) -> None:
    """A refusal, a raised cap, a forgotten vault and an abandoned release leave everything fitting."""
    world.restore("failed")
    with pytest.raises(BudgetExceeded):
        release_of(world.place, "dear", privacy={**SPEC["privacy"], "epsilon": 39.0}, budget=None)  # type: ignore[dict-item]
    budget_answer(str(SPEC["dataset"]), 50.0, "a census year")
    forget_release(world.ids["one"])
    abandon_release(world.ids["failed"])
    assert audit_answer().findings == []


def test_another_stores_manifests_in_the_same_folder_raise_no_alarm(world: World) -> None:
    """They belong to another ledger: they are passed over where they lie, and told where one asks about them."""
    shutil.copytree(world.snapshots / "other" / world.ids["other"], world.published("other"))
    assert audit_answer().ok
    reason = world.blames(0, "manifest", "other", world.published("other"))
    assert "another ledger" in reason


def test_the_command_says_it_with_its_exit_code(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """`trellis audit --json` prints the answer and ends with 0 where everything fits, with 1 where not."""
    for code in (DONE, FAILED):
        assert app(args=["audit", "--json"], prog_name="trellis", standalone_mode=False) == code
        assert json.loads(capsys.readouterr().out) == json_object(audit_answer())
        noisy_path(world.ids["one"], 2, TRUNK).unlink(missing_ok=True)
    with pytest.raises(UsageError):
        audit_answer([world.place / "nowhere"])


# the chain ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name", "level"),
    [("reserved", "one", None), ("sealed", "one", 3), ("reserved", "two", None), ("vault deleted", "two", None)],
)
def test_an_edited_event_is_found(world: World, kind: str, name: str, level: int | None) -> None:
    """A single digit of an event's time is enough, be it early or the last."""
    at = world.at(kind, name, level)
    world.execute('UPDATE ledger SET event = replace(event, \'"at":"2\', \'"at":"3\') WHERE position = ?', at)
    assert "hash" in world.blames(at, kind, name)
    world.restore("two")
    world.execute("UPDATE ledger SET hash = repeat('0', 64) WHERE position = ?", at)
    assert "hash" in world.blames(at, kind, name)


def test_an_event_that_is_none_is_found(world: World) -> None:
    """What cannot be read is told by its position."""
    world.execute("UPDATE ledger SET event = 'spent nothing' WHERE position = 4")
    world.blames(4, "unreadable", "")


def test_a_deleted_event_is_found(world: World) -> None:
    """The position that is missing is told, with the event that stands there now."""
    at = world.at("drawing", "one", 2)
    world.execute("DELETE FROM ledger WHERE position = ?", at)
    assert "missing" in world.blames(at, "sealed", "one")
    world.execute("UPDATE ledger SET position = position - 1 WHERE position > ?", at)
    assert "hash" in world.blames(at, "sealed", "one")


def test_a_deleted_beginning_is_found(world: World) -> None:
    """Without its first event the chain does not begin at position 0."""
    world.execute("DELETE FROM ledger WHERE position = 0")
    world.blames(0, "reserved", "one")


def test_two_swapped_events_are_found(world: World) -> None:
    """Where two neighbours change places, the first of the two places is told."""
    at = world.at("drawing", "two", 2)
    with store() as con:
        rows = con.execute(
            "SELECT event, hash FROM ledger WHERE position IN (?, ?) ORDER BY position", [at, at + 1]
        ).fetchall()
        for position, row in ((at, rows[1]), (at + 1, rows[0])):
            con.execute("UPDATE ledger SET event = ?, hash = ? WHERE position = ?", [*row, position])
    world.blames(at, "sealed", "two")


# the laws, with hashes that are right ---------------------------------------------------------------------------------


def illegal(world: World) -> dict[str, Event]:
    """Return events that nothing allows after two releases were published."""
    one = {"release": world.ids["one"], "level": 1}
    reserved = world.events()[1]
    return {
        "a void after the release": {"event": "void", **one},
        "a second drawing": {"event": "drawing", **one},
        "a second release": {"event": "released", **one},
        "a level that was never charged": {"event": "drawing", **one, "level": DEPTH + 1},
        "a release that was never reserved": {"event": "drawing", "release": "nobody", "level": 1},
        "a second reservation": reserved,
        "a reservation of nothing": {**reserved, "release": "nobody", "levels": None},
        "a raise of another's cap": {"event": "budget raised", "dataset": "nobody", "cap": world.events()[0]["cap"]},
    }


@pytest.mark.parametrize(
    "what",
    [
        "a void after the release",
        "a second drawing",
        "a second release",
        "a level that was never charged",
        "a release that was never reserved",
        "a second reservation",
        "a reservation of nothing",
        "a raise of another's cap",
    ],
)
def test_an_inserted_event_that_breaks_a_law_is_found(world: World, what: str) -> None:
    """With all hashes right, an illegal event is still told by its position, at the end and in the midst."""
    events, event = world.events(), illegal(world)[what]
    release = event.get("release", "")
    world.rewrite([*events, event])
    world.blames(len(events), event["event"], release)
    midst = world.at("reserved", "two")  # where all of release one is over
    world.rewrite([*events[:midst], event, *events[midst:]])
    world.blames(midst, event["event"], release)


def test_a_void_before_the_drawing_is_found_at_the_drawing(world: World) -> None:
    """What was given back cannot be drawn: the void follows, the drawing after it does not."""
    events, at = world.events(), world.at("drawing", "one", 3)
    world.rewrite([*events[:at], {"event": "void", "release": world.ids["one"], "level": 3}, *events[at:]])
    assert "void" in world.blames(at + 1, "drawing", "one")


def test_an_inserted_overspending_is_found(world: World) -> None:
    """A reservation beyond the cap is told, whatever it says of its standing and of its own ε."""
    events = world.events()
    honest = events[world.at("reserved", "two")]
    for rho, epsilon in (("1000", 0.001), ("3", 10.0)):
        levels = [{**level, "rho": rho} for level in honest["levels"]]
        world.rewrite([*events, {**honest, "release": "smuggled", "levels": levels, "epsilon": epsilon}])
        assert "above its cap" in world.blames(len(events), "reserved", "smuggled")


def test_a_reservation_that_states_less_than_it_costs_is_found(world: World) -> None:
    """Below the cap too, the standing that is recorded must be what the charges come to."""
    events, at = world.events(), world.at("reserved", "two")
    honest = events[at]
    dearer = {**honest, "levels": [{**honest["levels"][0], "rho": "1"}, *honest["levels"][1:]]}
    world.rewrite([*events[:at], dearer, *events[at + 1 :]])
    assert "records epsilon" in world.blames(at, "reserved", "two")
    modest = {**honest, "standing": {**honest["standing"], "epsilon": honest["standing"]["epsilon"] * 0.999}}
    world.rewrite([*events[:at], modest, *events[at + 1 :]])
    assert "records epsilon" in world.blames(at, "reserved", "two")


def test_a_lowered_cap_is_found_at_the_release_that_passes_it(world: World) -> None:
    """Against a smaller cap the releases are told that would never have fitted, or that say that more is left."""
    events = world.events()
    world.rewrite([{**events[0], "cap": {**events[0]["cap"], "epsilon": 10.5}}, *events[1:]])
    world.blames(world.at("reserved", "one"), "reserved", "one")
    stating_too_much = [event | ({"standing": NOTHING_LEFT} if "standing" in event else {}) for event in events[1:]]
    world.rewrite([{**events[0], "cap": {**events[0]["cap"], "epsilon": 10.5}}, *stating_too_much])
    assert "above its cap" in world.blames(world.at("reserved", "two"), "reserved", "two")


def test_a_reservation_of_a_release_that_there_is_not_is_found(world: World) -> None:
    """A reservation that fits is told too: the store knows no such release."""
    events = world.events()
    honest = events[world.at("reserved", "two")]
    levels = [{**honest["levels"][0], "rho": "1/1000"}]
    world.rewrite([*events, honest | {"release": "smuggled", "levels": levels, "standing": NOTHING_LEFT}])
    assert "does not know" in world.blames(len(events), "reserved", "smuggled")


# manifests and states -------------------------------------------------------------------------------------------------


def seen(folder: Path) -> int:
    """Return how many events a published manifest saw."""
    return int(json.loads((folder / "manifest.json").read_text())["ledger"]["length"])


def test_a_rewritten_past_is_found_by_the_manifests_that_saw_another(world: World) -> None:
    """With the whole chain hashed anew, the last event that each manifest saw is not the one that it recorded."""
    events, at = world.events(), world.at("reserved", "two")
    later = {**events[at], "at": "2001-01-01T00:00:00Z"}
    world.rewrite([*events[:at], later, *events[at + 1 :]])
    assert "another event" in world.blames(seen(world.published("two")) - 1, "manifest", "two")
    world.rewrite([events[0], {**events[1], "at": "2001-01-01T00:00:00Z"}, *events[2:]])
    world.blames(seen(world.published("one")) - 1, "manifest", "one", only=False)
    assert [finding.release for finding in audit_answer().findings] == [world.ids["one"], world.ids["two"]]


def test_a_rewritten_beginning_is_found(world: World) -> None:
    """A ledger whose first event is another is not the one that the published manifests name."""
    events = world.events()
    world.rewrite([{**events[0], "cap": {**events[0]["cap"], "epsilon": 400.0}}, *events[1:]])
    assert "another ledger" in world.blames(0, "manifest", "one", only=False)
    assert {finding.position for finding in audit_answer().findings} == {0}


def test_a_truncated_tail_is_found_by_a_manifest(world: World) -> None:
    """A ledger cut back to its first release is shorter than what the second one's manifest saw."""
    cut = world.at("reserved", "two")
    world.execute("DELETE FROM ledger WHERE position >= ?", cut)
    assert "cut off" in world.blames(cut, "manifest", "two")
    answer = audit_answer()
    assert "no reservation" in answer.findings[-1].reason


@pytest.mark.parametrize("level", range(1, DEPTH + 1))
def test_a_published_releases_own_tail_is_found_by_its_state(world: World, level: int) -> None:
    """What happened after the manifest was written, no manifest saw; but what is published must be released."""
    world.restore("one")
    cut = world.at("released", "one", level)
    assert cut >= seen(world.published("one"))
    world.execute("DELETE FROM ledger WHERE position >= ?", cut)
    assert world.blames(None, "missing", "one") == f"it is published, but the charge of level {level} is sealed."
    assert len(audit_answer().findings) == DEPTH + 2 - level  # the levels, and what became of the noisy counts


def test_an_older_copy_of_the_store_is_found_by_what_lies_beside(world: World) -> None:
    """A store restored from before the second release does not know it; its folder, beside the first, does."""
    world.restore("one", "home")
    cut = len(world.events())
    reason = world.blames(cut, "manifest", "two")
    assert f"records {seen(world.published('two'))} events, but the ledger has {cut}" in reason


def test_an_older_copy_of_the_store_is_found_by_an_archive(world: World) -> None:
    """Where the second release was moved away nothing contradicts the older copy, but an archive that is given."""
    archive = world.place / "archive" / "of" / "2026"
    archive.mkdir(parents=True)
    shutil.move(world.published("two"), archive)
    assert audit_answer().ok
    world.restore("one", "home")
    assert audit_answer().ok
    cut = len(world.events())
    for given in (world.place / "archive", archive / world.ids["two"]):
        world.blames(cut, "manifest", "two", given)


def test_an_empty_store_is_found_by_an_archive(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store begun anew has seen none of the events that the manifests saw."""
    shutil.rmtree(world.place / "home")
    monkeypatch.setattr(connections, "_SEEN", set())  # as in another process: this one has seen the store that is gone
    assert audit_answer().ok
    world.blames(0, "manifest", "one", world.place / "out", only=False)


def test_a_release_that_the_store_forgot_is_found(world: World) -> None:
    """A reservation without its release is told at its position; a release without a reservation by its name."""
    world.execute("DELETE FROM releases WHERE id = ?", world.ids["two"])
    world.blames(world.at("reserved", "two"), "reserved", "two")
    world.restore("failed")
    world.execute("DELETE FROM ledger WHERE position >= ?", world.at("reserved", "failed"))
    assert "no reservation" in world.blames(None, "missing", "failed")


def test_a_release_that_is_said_to_be_published_and_is_not_is_found(world: World) -> None:
    """The state of a release cannot run ahead of its charges."""
    world.restore("failed")
    with store() as con:
        set_state(con, world.ids["failed"], "published")
    assert "it is published, but the charge of level 1 is sealed" in world.blames(None, "missing", "failed")


def test_a_manifest_that_is_not_whole_is_found(world: World) -> None:
    """A manifest that lacks what it must say is told by its folder."""
    path = world.published("one") / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({key: value for key, value in manifest.items() if key != "ledger"}))
    world.blames(None, "manifest", "one")


# seals and shards -----------------------------------------------------------------------------------------------------


def test_an_edited_seal_is_found(world: World) -> None:
    """A seal with another hash is not the one that the ledger recorded when its level was sealed."""
    at = world.at("sealed", "one", 3)
    world.execute("UPDATE seals SET sha256 = repeat('a', 64) WHERE release_id = ? AND level = 3", world.ids["one"])
    assert "seals of level 3" in world.blames(at, "sealed", "one")
    assert {finding.position for finding in audit_answer().findings} == {at, None}  # None: the manifest's seals


def test_an_edited_seal_of_counts_that_are_gone_is_found(world: World) -> None:
    """Where the noisy counts were destroyed, the ledger alone still knows their hashes."""
    world.execute("UPDATE seals SET sha256 = repeat('a', 64) WHERE release_id = ? AND level = 3", world.ids["two"])
    world.blames(world.at("sealed", "two", 3), "sealed", "two")


def test_a_deleted_seal_is_found(world: World) -> None:
    """A level that the ledger calls sealed must have its seals."""
    world.execute("DELETE FROM seals WHERE release_id = ? AND level = 2", world.ids["one"])
    world.blames(world.at("sealed", "one", 2), "sealed", "one")


def test_a_seal_of_what_was_only_reserved_is_found(world: World) -> None:
    """A seal without a drawing is told; nothing may be drawn that is not charged as drawn."""
    world.restore("failed")
    level = DEPTH - 1
    world.execute(
        "INSERT INTO seals VALUES (?, ?, ?, repeat('a', 64), 4, '2001-01-01T00:00:00Z', 0)",
        *(world.ids["failed"], level, TRUNK),
    )
    reason = world.blames(world.at("reserved", "failed"), "reserved", "failed")
    assert reason == f"level {level} is sealed, but its charge is reserved."


def test_a_seal_of_what_was_never_charged_is_found(world: World) -> None:
    """A level beyond those that the ledger charged cannot be sealed."""
    world.execute("UPDATE seals SET level = 9 WHERE release_id = ? AND level = 0", world.ids["two"])
    reason = world.blames(world.at("reserved", "two"), "reserved", "two")
    assert reason == "level 9 is sealed, but the release has no such level."
    assert any("other seals" in finding.reason for finding in audit_answer().findings)


@pytest.mark.parametrize("level", range(1, DEPTH + 1))
def test_an_altered_shard_is_found(world: World, level: int) -> None:
    """One byte more, and the shard is not what was sealed; the event that sealed it is told."""
    path, at = noisy_path(world.ids["one"], level, TRUNK), world.at("sealed", "one", level)
    with path.open("ab") as file:
        file.write(b"0")
    assert world.blames(at, "sealed", "one") == f"{path.name} is not what was sealed."
    assert len(audit_answer().findings) == 1
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    world.execute("UPDATE seals SET sha256 = ? WHERE release_id = ? AND level = ?", sha256, world.ids["one"], level)
    assert f"seals of level {level}" in world.blames(at, "sealed", "one")


def test_a_deleted_shard_is_found(world: World) -> None:
    """A shard that was to be kept and is not there is told with the event that sealed it."""
    path = noisy_path(world.ids["one"], 2, TRUNK)
    path.unlink()
    assert world.blames(world.at("sealed", "one", 2), "sealed", "one") == f"{path.name} is missing."
    assert len(audit_answer().findings) == 1


def test_an_altered_shard_of_an_exact_level_is_found(world: World) -> None:
    """What was published exactly has a seal and no charge: its shard is told without a position."""
    noisy_path(world.ids["one"], 0, TRUNK).write_bytes(b"")
    world.blames(None, "sealed", "one")


def test_destroyed_counts_must_be_gone(world: World) -> None:
    """Noisy counts that were to be destroyed fit while they are gone, are told where not, and can be forgotten then."""
    with store() as con:
        shards = [noisy_path(world.ids["two"], level, branch) for level, branch in list_seals(con, world.ids["two"])]
    assert len(shards) == DEPTH + 1
    assert not any(shard.exists() for shard in shards)
    shutil.copy(noisy_path(world.ids["one"], 2, TRUNK), shards[2])
    assert "still there" in world.blames(world.at("sealed", "two", 2), "sealed", "two")
    assert forget_release(world.ids["two"]).deleted == ["shards"]
    assert audit_answer().ok


def test_counts_that_are_not_recorded_as_destroyed_are_missed(world: World) -> None:
    """Where the event is cut off that says they were destroyed, it is missed where it would be."""
    world.execute("DELETE FROM ledger WHERE position >= ?", world.at("noisy counts destroyed", "two"))
    assert "what became of its noisy counts" in world.blames(None, "missing", "two")


# endings --------------------------------------------------------------------------------------------------------------


def states(world: World, name: str) -> dict[int, str]:
    """Return the states of the charges of a release."""
    with store() as con:
        return {level: charge.state for level, charge in charges_of(con, world.ids[name]).items()}


def test_a_forgotten_vault_is_gone_and_recorded(world: World) -> None:
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


def test_an_abandoned_release_gives_back_what_it_has_not_drawn(world: World) -> None:
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
        kept = {
            noisy_path(world.ids["failed"], level, branch)
            for level, branch in list_seals(con, world.ids["failed"])
            if level  # level 0 is exact, and was not published
        }
    left = {path for path in shard_folder(world.ids["failed"]).iterdir() if not path.name.startswith("codebook_")}
    assert left == kept
    assert {event["release"] for event in added} == {world.ids["failed"]}
    with store() as con:
        account = read_books(con).account_of(world.ids["failed"])
        assert state_of(con, world.ids["failed"]) == "abandoned"
    assert account
    drawn = [charge.rho for charge in account.charges_of(world.ids["failed"]).values() if charge.state != "void"]
    assert account.spendings[-1].rho == sum(drawn) > 0
    assert account.standing == standing_of(account.spendings, account.terms.cap)
    assert audit_answer().ok


def test_what_was_given_back_can_be_spent(world: World) -> None:
    """After an abandonment more is left than before it, and less than had the release never drawn."""
    left = []
    for snapshot, ends in (("failed", False), ("failed", True), ("two", False)):
        world.restore(snapshot)
        if ends:
            abandon_release(world.ids["failed"])
        with store() as con:
            account = read_books(con).account(str(SPEC["dataset"]))
        assert account
        left.append(account.standing.left_rho)
    assert left == sorted(set(left))


@pytest.mark.parametrize("end", [abandon_release, forget_release])
def test_a_release_has_one_end(world: World, end: Callable[[str], EndedRelease]) -> None:
    """What is published cannot be abandoned, what may go on cannot be forgotten, and nobody's release has any end."""
    world.restore("failed")
    before = world.events()
    for name in ("one", "nobody") if end is abandon_release else ("failed", "nobody"):
        with pytest.raises(UsageError):
            end(world.ids.get(name, name))
    assert world.events() == before
    assert vault_path(world.ids["one"]).exists()
    assert vault_path(world.ids["failed"]).exists()
    abandon_release(world.ids["failed"])
    with pytest.raises(UsageError):
        abandon_release(world.ids["failed"])


def test_a_crash_while_abandoning_leaves_the_release_as_it_was(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it is one transaction: until it ends nothing is given back and nothing is deleted."""
    world.restore("failed")
    before = world.events()

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(flows.execution.ending, "set_state", crash)
        with pytest.raises(KeyboardInterrupt):
            abandon_release(world.ids["failed"])
    assert world.events() == before
    assert vault_path(world.ids["failed"]).exists()
    assert abandon_release(world.ids["failed"]).deleted == ["vault", "shards"]


def test_a_crash_after_abandoning_leaves_a_vault_that_can_be_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the vault outlives the transaction, `forget` deletes it and gives back nothing a second time."""
    world.restore("failed")
    with monkeypatch.context() as patch:
        patch.setattr(flows.execution.ending, "forget_release", lambda id_: EndedRelease(id_, "abandoned", [], ""))
        abandon_release(world.ids["failed"])
    assert vault_path(world.ids["failed"]).exists()
    before = world.events()
    assert forget_release(world.ids["failed"]).deleted == ["vault", "shards"]
    assert not vault_path(world.ids["failed"]).exists()
    assert [event["event"] for event in world.events()[len(before) :]] == ["vault deleted"]
    assert audit_answer().ok


# balances -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "charge",
    [{"rho": "1/0"}, {"rho": "Infinity"}, {"rho": "-1"}, {"rho": "0"}, {"rho": None}, {"level": None}],
    ids=str,
)
def test_a_charge_that_is_none_is_found(world: World, charge: dict[str, Any]) -> None:
    """A ρ that is no number above zero cannot buy budget back, nor stop the audit."""
    events, at = world.events(), world.at("reserved", "two")
    wrong = [{**events[at]["levels"][0], **charge}, *events[at]["levels"][1:]]
    world.rewrite([*events[:at], {**events[at], "levels": wrong}, *events[at + 1 :]])
    first = audit_answer().first_bad
    assert at <= first.position <= at + len(wrong)
    if charge != {"level": None}:
        with store() as con, pytest.raises(StoreError, match="does not add up"):
            read_books(con)


@pytest.mark.parametrize("epsilon", [5.0, 11.9], ids=str)
def test_a_cap_that_is_lowered_by_an_event_is_found(world: World, epsilon: float) -> None:
    """A raise that raises nothing is none."""
    events = world.events()
    cap = {**events[0]["cap"], "epsilon": min(epsilon, events[0]["cap"]["epsilon"])}
    dataset = events[0]["dataset"]
    world.rewrite([*events, {"event": "budget raised", "dataset": dataset, "cap": cap, "reason": "none", "at": "now"}])
    assert "not above its old one" in audit_answer().first_bad.reason


def test_a_balance_that_says_too_much_is_found(world: World) -> None:
    """What an event says is left must be what a computation finds."""
    events = world.events()
    cap = {**events[0]["cap"], "epsilon": 50.0, "rho": "1"}
    for standing in (
        {"epsilon": -5.0, "left_rho": "0", "left_epsilon": 0.0},
        {"epsilon": 50.0, "left_rho": "99", "left_epsilon": 0.0},
        {"epsilon": 50.0, "left_rho": "0", "left_epsilon": 49.9},
        {"epsilon": None, "left_rho": "0", "left_epsilon": 0.0},
    ):
        raised = {"event": "budget raised", "dataset": events[0]["dataset"], "cap": cap, "reason": "war", "at": "now"}
        world.rewrite([*events, {**raised, "standing": standing}])
        assert audit_answer().first_bad.position == len(events)


def test_levels_of_the_store_must_be_those_of_the_ledger(world: World) -> None:
    """Another σ for a level than was charged is told."""
    world.execute("UPDATE levels SET sigma = sigma / 2 WHERE release_id = ? AND level = 2", world.ids["one"])
    assert "level 2" in world.blames(world.at("reserved", "one"), "reserved", "one")


def test_a_note_without_a_release_does_not_stop_the_audit(world: World) -> None:
    """A note that says nothing of anybody changes nothing."""
    world.rewrite([*world.events(), {"event": "noisy counts destroyed"}])
    assert audit_answer().ok


@pytest.mark.parametrize(
    "change", ["is_invariant = true", "l2_sensitivity_squared = 1", "rho = '1/7'", "is_invariant = true, rho = '0'"]
)
def test_a_level_that_is_not_as_charged_is_not_drawn(world: World, change: str) -> None:
    """A store that calls a charged level exact, or cheaper, cannot have it drawn so; the audit tells."""
    world.restore("failed")
    world.execute(f"UPDATE levels SET {change} WHERE release_id = ? AND level = 3", world.ids["failed"])
    with pytest.raises(StoreError, match="differs from its charge in the ledger"):
        StoredRecord(world.ids["failed"]).prepare(Measure(3, TRUNK))
    assert "tau for level 3" in world.blames(world.at("reserved", "failed"), "reserved", "failed")


def test_a_state_that_the_charges_contradict_is_found(world: World) -> None:
    """A release whose charges are released is published, whatever the store says."""
    world.execute("UPDATE releases SET state = 'failed' WHERE id = ?", world.ids["one"])
    assert "calls it failed" in world.blames(None, "missing", "one", only=False)


def test_a_manifest_that_states_less_is_found(world: World) -> None:
    """The ε that a manifest states must be the one that was reserved."""
    path = world.published("one") / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["privacy"]["epsilon"] /= 2
    path.write_text(json.dumps(manifest))
    assert "another epsilon" in world.blames(None, "manifest", "one")
