"""Backups: what they hold, what a restored store can do, and what is refused."""

import shutil
from pathlib import Path

import pytest

from flows.answers.audit import audit_answer
from flows.answers.ledger import ledger_answer
from flows.answers.release_status import releases_answer
from flows.api import release
from flows.cli.arguments import json_object
from flows.cli.runs import run_without_prefect
from flows.run import backups
from flows.run.backups import back_up, restore
from storage.database.connections import store, transaction
from storage.errors import BudgetExceeded, HeldElsewhere, StoreError, UsageError
from storage.ledger.events import note
from storage.machine.fingerprints import KEY
from storage.machine.locks import held
from storage.releases.register import find_release, list_releases
from storage.releases.shards import CLOSED, GIVEN_UP, OPEN, list_turns
from tests.support.office import ROWS


def elsewhere(office, monkeypatch):
    """Lose the store, and let another folder be TRELLIS_HOME."""
    shutil.rmtree(office.folder / "home")
    home = office.folder / "new-home"
    monkeypatch.setenv("TRELLIS_HOME", str(home))
    return home


def test_a_restored_store_is_the_same(office, monkeypatch):
    """It lists the releases, its ledger has the same head, the audit finds nothing, and the cap still refuses."""
    ledger, listed = json_object(ledger_answer(None)), json_object(releases_answer())
    (made,) = [entry["id"] for entry in listed["releases"]]
    with store() as con:
        published = Path(find_release(con, made).folder)
    kept = back_up(office.folder / "kept")
    files = [path for path in (office.folder / "kept").rglob("*") if path.is_file()]
    assert {oct(path.stat().st_mode & 0o777) for path in files} == {"0o600"}
    assert oct((office.folder / "kept").stat().st_mode & 0o777) == "0o700"
    head = audit_answer([published]).head
    home = elsewhere(office, monkeypatch)
    restored = restore(office.folder / "kept")
    assert (restored.home, restored.backup.head) == (str(home), head) == (str(home), kept.head)
    assert kept.made in restored.statement
    assert "trellis audit" in restored.statement
    assert json_object(ledger_answer(None)) == ledger
    assert json_object(releases_answer()) == listed
    found = audit_answer([published])
    assert (found.ok, found.head, found.findings) == (True, head, [])
    with pytest.raises(BudgetExceeded):
        release(office.folder / "first.yaml")
    copy = office.folder / "copy.csv"
    shutil.copy(office.folder / "people.csv", copy)
    with pytest.raises(UsageError, match="same content"):
        release(office.spec("second", "copy.csv"))  # the key of fingerprints came along
    assert oct(home.stat().st_mode & 0o777) == "0o700"
    assert {path.stat().st_mode & 0o077 for path in home.rglob("*")} == {0}


def stopped(office, at):
    """Release other people's table until a step, which fails; return the id."""

    def interrupted(*_):
        raise StoreError("stopped here")

    (office.folder / "others.csv").write_text("home,work\n" + ROWS + "a0,b0\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(at, interrupted)
        with pytest.raises(StoreError, match="stopped here"):
            release(office.spec("second", "others.csv"))
    with store() as con:
        return next(listed.id for listed in list_releases(con) if listed.state == "failed")


@pytest.mark.parametrize("vaults", [False, True])
def test_true_counts_are_copied_where_that_is_asked_for(office, vaults, monkeypatch):
    """A release that failed once it was measured is finished from either backup, at no cost; only one holds true counts."""
    failed = stopped(office, "flows.run.driver._validate")
    back_up(office.folder / "kept", vaults=vaults)
    assert len(list((office.folder / "kept").rglob("vault/*.duckdb"))) == int(vaults)
    elsewhere(office, monkeypatch)
    restore(office.folder / "kept")
    ledger = json_object(ledger_answer("second"))["datasets"][0]["spent"]
    run_without_prefect(failed)  # everything is sealed, so nothing is measured again
    with store() as con:
        assert find_release(con, failed).state == "published"
    assert json_object(ledger_answer("second"))["datasets"][0]["spent"] == ledger


def test_turns_are_kept(office, monkeypatch):
    """A restored store knows which turns were open, closed and given up: an open one is given up, and the next one draws."""
    failed = stopped(office, "flows.run.walk.StoredRecord.check")  # once something is drawn, before it is sealed
    turns = turns_of_all()
    assert [id_ for id_, of in turns.items() if any(turn.state == OPEN for turn in of)] == [failed]
    assert [turn.state for id_, of in turns.items() if id_ != failed for turn in of].count(CLOSED) > 0
    back_up(office.folder / "kept", vaults=True)
    elsewhere(office, monkeypatch)
    restore(office.folder / "kept")
    assert turns_of_all() == turns
    run_without_prefect(failed)
    (opened,) = turns[failed]
    of_place = [turn for turn in turns_of_all()[failed] if (turn.level, turn.branch) == (opened.level, opened.branch)]
    assert [(turn.turn, turn.state) for turn in of_place] == [(0, GIVEN_UP), (1, CLOSED)]
    found = audit_answer([])
    assert (found.ok, found.given_up) == (True, 1)


def turns_of_all():
    """Return the turns of every release."""
    with store() as con:
        return {listed.id: list_turns(con, listed.id) for listed in list_releases(con)}


def test_nothing_is_copied_while_a_release_runs(office):
    """Its shards come and go, so the backup is refused, and leaves nothing behind."""
    with store() as con:
        (listed,) = list_releases(con)
    with held(listed.id), pytest.raises(HeldElsewhere, match="is running"):
        back_up(office.folder / "kept")
    assert not list(office.folder.glob("kept*"))


def test_a_store_that_changes_meanwhile_is_not_backed_up(tmp_path, monkeypatch):
    """Once the database is copied, another process writes to the ledger: no backup is left whose parts are of different moments."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    copy_files = backups._copy_files

    def copied_while_a_release_begins(target, *, vaults):
        copy_files(target, vaults=vaults)
        with store() as con, transaction(con):
            note(con, "table", "another", table="trips.csv")

    monkeypatch.setattr(backups, "_copy_files", copied_while_a_release_begins)
    with pytest.raises(StoreError, match="changed while it was copied"):
        back_up(tmp_path / "kept")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_a_store_is_not_replaced(office):
    """A ledger is not lost by a restore, nor a backup or what lies beside it by a backup; none lies in the store that it copies."""
    (office.folder / "kept.partial").mkdir()
    back_up(office.folder / "kept")
    assert (office.folder / "kept.partial").is_dir()
    assert not list(office.folder.glob(".kept*"))
    for refused, words in (
        (lambda: back_up(office.folder / "home" / "shards" / "kept"), "inside of TRELLIS_HOME"),
        (lambda: back_up(office.folder / "kept"), "exists already"),
        (lambda: restore(office.folder / "kept"), "has a store already"),
        (lambda: restore(office.folder / "nowhere"), "is no backup"),
    ):
        with pytest.raises(UsageError, match=words):
            refused()


@pytest.mark.parametrize("part", ["store.duckdb", KEY, "shards"])
def test_a_spoilt_backup_is_refused(office, part, monkeypatch):
    """A file that is altered or missing is named, and nothing is restored."""
    kept = office.folder / "kept"
    back_up(kept)
    home = elsewhere(office, monkeypatch)
    place = kept / part
    file = place if place.is_file() else next(path for path in place.rglob("*") if path.is_file())
    file.write_bytes(file.read_bytes() + b"\0")
    for _ in ("altered", "missing"):
        with pytest.raises(StoreError, match=f"{file.name} is missing or was altered"):
            restore(kept)
        assert not (home / "store.duckdb").exists()
        file.unlink(missing_ok=True)
