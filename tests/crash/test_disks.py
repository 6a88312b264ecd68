"""Disks that are full, cannot be written or are gone: the caller is told which, and nothing that was sealed is lost."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from flows.answers.audit import audit_answer
from flows.run.reservation import new_release
from storage.counts.vault import list_vaults, vault, vault_path
from storage.database import connections
from storage.database.connections import store
from storage.errors import StageFailed, StoreError, public_errors
from storage.ledger.events import head
from storage.releases.register import find_release, list_releases, state_of
from storage.releases.shards import list_shards
from tasks.folder.verify.folder import verify
from tests.support.disks import mounted
from tests.support.draws import place_of
from tests.support.ledger import charges_of
from tests.support.runs import finish, make

# Commands in a process of their own, one after the other: what each prints with --json, and its exit code.
COMMANDS = """
import json, sys
from flows.cli.main import main
for command in json.loads(sys.argv[1]):
    code = main([*command, "--json"])
    print(code, flush=True)
"""


pytestmark = pytest.mark.crash


@pytest.fixture
def new_disk(tmp_path):
    """Return the maker of disks, which are unmounted at the end."""
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(mounted(tmp_path / name))


@pytest.fixture
def disk(new_disk, monkeypatch):
    """Return the disk that holds TRELLIS_HOME."""
    disk = new_disk("disk")
    monkeypatch.setenv("TRELLIS_HOME", str(disk.folder / "home"))
    return disk


def at(moment, act):
    """Do something before or after a stage, such as `before measure 2`."""
    when, name, *level = moment.split()

    def around(stage, arguments):
        here = stage.name == name and [str(part) for part in place_of(arguments)[: len(level)]] == level
        if here and when == "before":
            act()
        outcome = stage.fn(*arguments)
        if here and when == "after":
            act()
        return outcome

    return around


def run_commands(folder, *commands):
    """Run commands in a folder, and return the exit code and the answer of each; none of them blames Trellis."""
    argv = json.dumps([command.split() for command in commands])
    run = [sys.executable, "-c", COMMANDS, argv]
    said = subprocess.run(run, cwd=folder, env=os.environ | {"HOME": str(folder)}, capture_output=True, text=True)
    lines = said.stdout.splitlines()
    assert "Traceback" not in said.stderr + said.stdout
    assert "bug in Trellis" not in said.stdout
    assert len(lines) == 2 * len(commands), said.stderr
    return [(int(code), json.loads(answer)) for answer, code in zip(lines[::2], lines[1::2], strict=True)]


SEALED_BEFORE = {  # how many levels are sealed when the disk, or another one for what is published, is full from this moment on
    "before measure 2": {2},
    "after measure 2": {2, 3},  # the seal of what is drawn may have room in the last block of the store's log
    "before repair 2": {3},
    "before publish": {7},
    "before publish elsewhere": {7},
    "after publish": {7},
}


@pytest.mark.parametrize("moment", SEALED_BEFORE)
def test_a_release_on_a_full_disk_is_finished_once_there_is_room(moment, disk, new_disk, plan):
    """Whatever cannot be written, the disk is named; with room, the release goes on and every seal is what it was."""
    where = new_disk("other") if "elsewhere" in moment else disk
    release = new_release(plan, where.folder / "out")
    with pytest.raises(StoreError) as stopped:
        make(plan, release, at(moment.removesuffix(" elsewhere"), where.fill))
    says_output = moment.startswith("before publish")
    place = where.folder / "out" if says_output else f"TRELLIS_HOME={disk.folder / 'home'}"
    assert str(stopped.value).endswith(f"The disk that holds {place} is full.")
    assert stopped.value.field == ("output" if says_output else "TRELLIS_HOME")
    assert stopped.value.hint == "Free some space, then run the command again. Trellis keeps everything it has sealed."
    assert list(where.folder.rglob("*.partial")) == []
    if where != disk:
        assert [path.name for path in where.folder.rglob("*") if path.is_file()] == ["ballast"]

    where.free()
    with store() as con:
        before, known = list_shards(con, release.id)["noisy"], find_release(con, release.id)
    assert len({level for level, _ in before}) in SEALED_BEFORE[moment]
    assert known.state in {"failed", "running"}  # the disk may have had no room for the word
    assert where == disk or (known.state, known.reason) == ("failed", str(stopped.value))
    finish(release.id)
    with store() as con:
        assert before.items() <= list_shards(con, release.id)["noisy"].items()
        assert state_of(con, release.id) == "published"
        assert {charge.state for charge in charges_of(con, release.id).values()} == {"released"}
    assert verify(Path(release.folder)) == []
    assert list_vaults() == []
    assert audit_answer().ok


@pytest.mark.parametrize("moment", ["before ingest", "after ingest", "before grow_tree", "after grow_tree"])
def test_a_disk_that_is_full_before_the_reservation_costs_nothing(moment, disk, plan):
    """Where the true counts have no room the disk is named, and neither release nor charge nor vault is left."""
    with pytest.raises(StoreError, match="is full") as stopped:
        make(plan, new_release(plan, disk.folder / "out"), at(moment, disk.fill))
    assert stopped.value.field == "TRELLIS_HOME"
    disk.free()
    with store() as con:
        assert (list_releases(con), head(con).length) == ([], 0)
    assert [*list_vaults(), *(disk.folder / "home" / "shards").iterdir()] == []


def test_a_spill_that_finds_no_room_is_a_full_disk(disk):
    """DuckDB's word for it, that it may spill no more, is said as what it is."""

    @public_errors
    def spill():
        with vault("one", read_only=False) as con:
            con.execute("SET memory_limit = '40MB'")
            con.execute("SET threads = 1")
            con.execute("CREATE TEMP TABLE wide AS SELECT hash(i) AS a, hash(i + 1) AS b FROM range(12000000) t(i)")

    with pytest.raises(StoreError, match="is full"):
        spill()
    assert list(vault_path("one").with_name("one.duckdb.tmp").glob("*")) == []


def test_a_command_on_a_full_disk_says_so(disk, plan, tmp_path):
    """A full disk is no fault of Trellis, whichever part of a command finds it so; what only reads is answered."""
    with store():
        pass
    disk.fill()
    writing = ["release spec.yaml", "release spec.yaml --dry-run"]
    for code, answer in run_commands(tmp_path, *writing):
        assert (code, answer["field"]) == (1, "TRELLIS_HOME")
        assert answer["error"].endswith("is full.")
    assert [code for code, _ in run_commands(tmp_path, "releases", "ledger")] == [0, 0]
    disk.free()
    assert list_vaults() == []


def test_a_store_that_can_only_be_read_is_read(disk, plan, tmp_path, monkeypatch):
    """On a read-only disk what was released is told and audited; what would write, or must first be brought to this version, is refused."""
    release, broken = new_release(plan, tmp_path / "out", "made"), new_release(plan, tmp_path / "out", "broken")

    def stop():
        raise ValueError("stop")

    make(plan, release)
    with pytest.raises(StageFailed):
        make(plan, broken, at("before measure 1", stop))
    disk.mount("ro")
    before = {path: path.read_bytes() for path in disk.folder.rglob("*") if path.is_file()}
    reading = ["releases", "show made", "ledger", "audit", "plan spec.yaml"]
    answers = run_commands(tmp_path, *reading)
    assert [code for code, _ in answers] == [0] * len(reading)
    assert {entry["id"] for entry in answers[0][1]["releases"]} == {"broken", "made"}
    assert answers[3][1]["ok"]
    writing = ["release spec.yaml", "release spec.yaml --dry-run", "abandon broken"]
    writing += ["budget raise synthetic-country --epsilon 100 --reason test"]
    for code, answer in run_commands(tmp_path, *writing):
        assert (code, answer["field"]) == (1, "TRELLIS_HOME")
        assert answer["error"] == f"TRELLIS_HOME={disk.folder / 'home'} is mounted read-only."
        assert answer["hint"]
    with pytest.raises(StoreError, match="is mounted read-only"):
        finish("broken")
    now = len(connections.STEPS)
    refusal = f"version {now} and must be brought to version {now + 1}, but it is mounted read-only"
    with monkeypatch.context() as later:
        later.setattr(connections, "STEPS", (*connections.STEPS, "CREATE TABLE later (a INTEGER)"))
        with pytest.raises(StoreError, match=refusal), store():
            pass
    assert {path: path.read_bytes() for path in disk.folder.rglob("*") if path.is_file()} == before
    disk.mount("rw")
    finish("broken")
    assert audit_answer().ok


def test_a_store_on_a_disk_that_goes_away_is_not_made_anew(disk, plan, tmp_path):
    """A release whose disk is unmounted on the way stops with its name and draws nothing into a store without a ledger."""
    release = new_release(plan, tmp_path / "out")

    def unmount():
        subprocess.run(["umount", "-l", disk.folder], check=True)

    with pytest.raises(StoreError, match="is gone") as stopped:
        make(plan, release, at("before measure 2", unmount))
    assert stopped.value.field == "TRELLIS_HOME"
    assert [path for path in disk.folder.rglob("*") if path.is_file()] == []
    assert not Path(release.folder).exists()


ALL = ["releases", "show made", "ledger", "audit", "plan spec.yaml", "release spec.yaml", "release spec.yaml --dry-run"]
ALL += ["budget raise synthetic-country --epsilon 90 --reason test", "abandon made", "forget made"]


@pytest.mark.parametrize(("what", "says"), [
    ("file", "is a file; it must be a folder."),
    ("link", "is a broken link; it must be a folder."),
    ("gone", "cannot be created: there is no folder"),
    ("store", "cannot be opened"),
])  # fmt: skip
def test_what_stands_in_the_place_of_the_home_is_named(what, says, plan, tmp_path, monkeypatch):
    """A file, a link to nothing, a folder whose disk is gone, or no store in the store's place: every command says which."""
    place = tmp_path / "gone" / "home" if what == "gone" else tmp_path / "home"
    monkeypatch.setenv("TRELLIS_HOME", str(place))
    if what == "file":
        place.touch()
    elif what == "link":
        place.symlink_to(tmp_path / "unmounted")
    elif what == "store":
        (place / "store.duckdb").mkdir(parents=True)
        place.chmod(0o700)
    for code, answer in run_commands(tmp_path, *ALL):
        assert (code, answer["field"]) == (1, "TRELLIS_HOME")
        assert says in answer["error"]
        assert str(place) in answer["error"]
        assert answer["hint"]
    assert not (tmp_path / "gone").exists()
    assert not (tmp_path / "unmounted").exists()
