"""A table that was charged is recognised where it lies now, whatever its name, as long as its content is the same."""

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest

from flows.api import release
from flows.execution.reservation import new_release, reserve_release
from flows.execution.resumption import plan_again
from flows.spec.file import load_spec
from flows.trials.comparison import make_comparison
from storage.database.connections import store
from storage.errors import SpecError, StoreError, TrellisError, UsageError
from storage.ledger.events import read_books
from storage.machine.fingerprints import KEY, fingerprint_of
from storage.releases.register import Release, find_release, list_releases
from tests.support.office import ROWS, Office


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Office:
    """Give a folder with a table of which everything that its people can give is spent."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    (tmp_path / "people.csv").write_text("home,work\n" + ROWS)
    with duckdb.connect(str(tmp_path / "people.duckdb")) as con:
        con.execute(f"CREATE TABLE people AS FROM read_csv('{tmp_path / 'people.csv'}')")
    office = Office(tmp_path)
    release(office.spec("first", "people.csv"))
    return office


def as_copy(folder: Path) -> str:
    """Copy the table elsewhere."""
    (folder / "elsewhere").mkdir()
    shutil.copy(folder / "people.csv", folder / "elsewhere" / "trips.csv")
    return "elsewhere/trips.csv"


def as_hard_link(folder: Path) -> str:
    """Give the file another name."""
    (folder / "linked.csv").hardlink_to(folder / "people.csv")
    return "linked.csv"


def as_link(folder: Path) -> str:
    """Point to the file."""
    (folder / "pointing.csv").symlink_to(folder / "people.csv")
    return "pointing.csv"


def as_gzip(folder: Path) -> str:
    """Pack the table."""
    (folder / "packed.csv.gz").write_bytes(gzip.compress((folder / "people.csv").read_bytes()))
    return "packed.csv.gz"


@pytest.mark.parametrize("moved", [as_copy, as_hard_link, as_link, as_gzip])
def test_a_charged_table_is_asked_about_wherever_it_lies(office: Office, moved: Callable[[Path], str]) -> None:
    """Another dataset's release of it is refused before anything is reserved; either answer lets it in, and is recorded."""
    table = moved(office.folder)
    with pytest.raises(UsageError, match="was used by dataset first; if it holds the same people") as refused:
        release(office.spec("second", table))
    assert refused.value.field == "input.table"
    with store() as con:
        assert list(read_books(con).accounts) == ["first"]
    with pytest.raises(
        TrellisError, match="would spend epsilon"
    ):  # it is the same people: nothing is left of their cap
        release(office.spec("third", table, same_people_as="first"))
    release(office.spec("second", table), different_people=True)
    with store() as con:
        (claim,) = read_books(con).accounts["second"].claims.values()
    assert claim.different_people_from == ("first",)


@pytest.mark.parametrize("moved", [as_copy, as_hard_link, as_gzip])
def test_a_copy_of_a_charged_table_is_not_compared(office: Office, moved: Callable[[Path], str]) -> None:
    """A spec that declares it public does not open it."""
    spec = load_spec(office.spec("second", moved(office.folder), public_data=True))
    with pytest.raises(SpecError, match=r"was charged by release first-.*, whose spec did not set public_data"):
        make_comparison(spec, ["inftda"], [1.0], runs=1)


def test_what_is_not_recognised(office: Office) -> None:
    """A row more, or the rows in another order, are another content. The documents say so."""
    (office.folder / "more.csv").write_text("home,work\n" + ROWS + "a0,b0\n")
    (office.folder / "other.csv").write_text("home,work\n" + "".join(sorted(ROWS.splitlines(keepends=True))))
    for table in ("more.csv", "other.csv", "people.duckdb::people"):
        assert new_release(office.plan("second", table)).dataset == "second"


def test_tables_in_one_database_are_told_apart(office: Office) -> None:
    """The file is the same; the name inside it counts, in any case."""
    path = office.folder / "people.duckdb"
    assert fingerprint_of(path, "People") == fingerprint_of(path, "people") != fingerprint_of(path, "trips")
    shutil.copy(path, office.folder / "copy.duckdb")
    release(office.spec("fourth", "people.duckdb::people"))
    with pytest.raises(UsageError, match="has the same content as a table that was used by dataset fourth"):
        new_release(office.plan("fifth", "copy.duckdb::people"))


def reserved(office: Office, **more: object) -> Release:
    """Reserve a release of a table of its own, and go no further."""
    (office.folder / "own.csv").write_text("home,work\na1,b1\n")
    plan = office.plan("own", "own.csv")
    made = new_release(plan, **more)
    reserve_release(made, plan)
    with store() as con:
        return find_release(con, made.id)


def test_a_table_that_was_mended_is_recorded_anew(office: Office) -> None:
    """What is read when the release goes on is what the ledger recognises from then on."""
    made = reserved(office)
    (office.folder / "own.csv").write_text("home,work\na0,b1\n")
    plan_again(made)
    with store() as con:
        kept = find_release(con, made.id).terms.files.fingerprint
    assert kept == fingerprint_of(office.folder / "own.csv")
    shutil.copy(office.folder / "own.csv", office.folder / "copy.csv")
    with pytest.raises(UsageError, match="used by dataset own"):
        new_release(office.plan("another", "copy.csv"))


def test_a_charged_table_cannot_be_put_in_the_place_of_another(office: Office) -> None:
    """A release that was reserved for one table does not go on with a copy of a table whose people have spent their cap."""
    made = reserved(office)
    shutil.copy(office.folder / "people.csv", office.folder / "own.csv")
    with pytest.raises(UsageError, match="used by dataset first"):
        plan_again(made)


def test_the_fingerprint_says_nothing_without_the_key(office: Office) -> None:
    """It is in the store; not in the ledger, whose hash is published, nor in a published file. The key is its owner's alone."""
    key = office.folder / "home" / KEY
    assert key.stat().st_mode & 0o777 == 0o600
    fingerprint = fingerprint_of(office.folder / "people.csv")
    with store() as con:
        (events,) = con.execute("SELECT string_agg(event) FROM ledger").fetchone()
        (made,) = list_releases(con)
        assert find_release(con, made.id).terms.files.fingerprint == fingerprint
    assert fingerprint not in events
    published = [path for path in (office.folder / "out").rglob("*") if path.is_file()]
    assert published
    assert [path for path in published if fingerprint.encode() in path.read_bytes()] == []
    assert [path for path in published if key.read_bytes() in path.read_bytes()] == []
    key.unlink()
    assert fingerprint_of(office.folder / "people.csv") != fingerprint
    key.write_bytes(b"short")
    with pytest.raises(StoreError, match="must have 32 bytes"):
        fingerprint_of(office.folder / "people.csv")
