"""A table that was charged is recognised where it lies now and however it is written, and the head of the ledger does not tell."""

import shutil
from dataclasses import replace
from functools import partial

import duckdb
import pytest

from flows.api import release
from flows.run.reservation import new_release, plan_again, reserve_release
from flows.specification.file import load_spec
from flows.trials.comparison import make_comparison
from storage.database.connections import store
from storage.errors import BudgetExceeded, SpecError, StoreError, TrellisError, UsageError
from storage.ledger.events import head, read_books
from storage.ledger.recognition import known_contents
from storage.machine.fingerprints import KEY
from storage.releases.register import find_release
from tests.support.office import ROWS


def rewritten(folder):
    """Write the rows elsewhere, in another order, with other line ends and quotes."""
    (folder / "elsewhere").mkdir()
    rows = "".join(f'"{row}"\r\n'.replace(",", '","') for row in sorted(ROWS.splitlines()))
    (folder / "elsewhere" / "trips.csv").write_text("home,work\r\n" + rows, newline="")
    return "elsewhere/trips.csv"


def as_view(folder):
    """Show the file by a view of a DuckDB file."""
    with duckdb.connect(str(folder / "views.duckdb")) as con:
        con.execute(f"CREATE VIEW trips AS FROM read_csv('{folder / 'people.csv'}')")
    return "views.duckdb::trips"


def as_link(folder, kind):
    """Give the file another name, or point to it."""
    getattr(folder / "linked.csv", f"{kind}_to")(folder / "people.csv")
    return "linked.csv"


@pytest.mark.parametrize(
    "moved",
    [rewritten, as_view, partial(as_link, kind="hardlink"), partial(as_link, kind="symlink")],
    ids=["rewritten", "a view", "a hard link", "a link"],
)
def test_a_charged_table_is_asked_about_wherever_it_lies(office, moved):
    """Another dataset's release is refused before anything is reserved, a comparison too; either answer lets it in, and is recorded."""
    table = moved(office.folder)
    with pytest.raises(UsageError, match="was used by dataset first; if it holds the same people") as refused:
        release(office.spec("second", table))
    assert refused.value.field == "input.table"
    # a charged table is not, whatever a spec declares
    public = load_spec(office.spec("second", table, public_data=True))
    with pytest.raises(SpecError, match=r"was charged by release first-.*, whose spec did not set public_data"):
        make_comparison(public, ["inftda"], [1.0], runs=1)
    with store() as con:
        assert list(read_books(con).accounts) == ["first"]
    with pytest.raises(TrellisError, match="would spend epsilon"):  # the same people: nothing is left of their cap
        release(office.spec("third", table, same_people_as="first"))
    release(office.spec("second", table), different_people=True)
    with store() as con:
        books = read_books(con)
    ((made, claim),) = books.accounts["second"].claims.items()
    assert claim.different_people
    assert books.others[made] == ("first",)
    with pytest.raises(BudgetExceeded):  # the question was answered
        new_release(office.plan("second", table))


def test_what_is_not_recognised(office):
    """A row more is another content, and so is a table without a column that the release used. The documents say so."""
    (office.folder / "more.csv").write_text("home,work\n" + ROWS + "a0,b0\n")
    assert new_release(office.plan("second", "more.csv")).dataset == "second"
    (office.folder / "homes.csv").write_text("home\n" + "".join(f"{row[:2]}\n" for row in ROWS.splitlines()))
    one = {"input": {"table": "homes.csv", "features": ["home"]}, "release": {"order": ["home"]}}
    homes = office.plan("third", "homes.csv", hierarchy={"home": {"values": ["a0", "a1"]}}, **one)
    assert new_release(homes).dataset == "third"


OTHERS = {
    "the same bytes": "home,work\n" + ROWS,
    "the same rows": "work,home\n" + "".join(f"{row[3:]},{row[:2]}\n" for row in ROWS.splitlines()),
    "a row less": "home,work\n" + ROWS[6:],
    "another table": "home,work\na1,b1\n",
    "a table without rows": "home,work\n",
}


def test_the_head_of_the_ledger_does_not_depend_on_the_table(office, monkeypatch):
    """It says that the caller confirmed other people, and not of whom: so it is the same whatever was recognised, byte for byte."""
    monkeypatch.setattr("storage.ledger.events.utc_now", lambda: "now")
    before = shutil.copytree(office.folder / "home", office.folder / "before")
    heads, seen = set(), set()
    for number, content in enumerate(OTHERS.values()):
        monkeypatch.setenv("TRELLIS_HOME", str(shutil.copytree(before, office.folder / f"home-{number}")))
        (office.folder / "own.csv").write_text(content)
        plan = office.plan("own", "own.csv")
        made = new_release(plan, release_id="own-1", different_people=True)
        reserve_release(made, plan)
        with store() as con:
            heads.add(head(con))
            seen.add(read_books(con).others.get("own-1", ()))
            text = con.execute("SELECT event FROM ledger WHERE contains(event, 'own-1')").fetchall()
        assert not any("first" in event for (event,) in text)
    assert len(heads) == 1
    assert seen == {("first",), ()}


def test_a_table_that_changed_leaves_the_head_as_it_was(office):
    """Only another place is an event; what lies there now is kept beside the ledger."""
    made = reserved(office, different_people=True)
    with store() as con:
        before = head(con)
    for content in OTHERS.values():
        (office.folder / "own.csv").write_text(content)
        plan_again(made)
        with store() as con:
            assert head(con) == before
    (office.folder / "own.csv").rename(office.folder / "moved.csv")
    (office.folder / "own.csv").symlink_to("moved.csv")
    plan_again(made)
    with store() as con:
        assert head(con).length == before.length + 1


def reserved(office, **more):
    """Reserve a release of a table of its own, and go no further."""
    (office.folder / "own.csv").write_text("home,work\na1,b1\n")
    plan = office.plan("own", "own.csv")
    made = new_release(plan, **more)
    reserve_release(made, plan)
    with store() as con:
        return find_release(con, made.id)


def test_what_lies_there_when_a_release_goes_on_is_what_is_recognised(office):
    """A table that was mended is recorded anew; a copy of one whose people have spent their cap cannot be put in its place."""
    made = reserved(office)
    (office.folder / "own.csv").write_text("home,work\na0,b1\n")
    of_before = replace(made, spec=made.spec.replace("mechanism: inftda\n", ""))  # by another rule for the mechanism
    assert plan_again(of_before).mechanism.name == plan_again(made).mechanism.name
    shutil.copy(office.folder / "own.csv", office.folder / "copy.csv")
    with pytest.raises(UsageError, match="used by dataset own"):
        new_release(office.plan("another", "copy.csv"))
    shutil.copy(office.folder / "people.csv", office.folder / "own.csv")
    with pytest.raises(UsageError, match="used by dataset first"):
        plan_again(made)


def test_who_answered_for_one_table_has_not_answered_for_another(office):
    """The link points to a table that another dataset was charged for by now: what was said of the table before is not said of it."""
    (office.folder / "mine.csv").touch()
    link = office.folder / "own.csv"
    link.symlink_to(office.folder / "mine.csv")
    made = reserved(office, different_people=True)
    link.unlink()
    link.symlink_to(office.folder / "people.csv")
    with pytest.raises(UsageError, match="used by dataset first"):
        plan_again(made)


def test_the_fingerprint_is_kept_for_the_keeper_of_the_store(office):
    """It is in a table of its own; not in the ledger, whose hash is published, nor in a published file. The key is its owner's alone."""
    key = office.folder / "home" / KEY
    assert key.stat().st_mode & 0o777 == 0o600
    with store() as con:
        (kept,) = known_contents(con).values()
        (events,) = con.execute("SELECT string_agg(event || terms) FROM ledger, releases").fetchone()
    assert kept == office.plan("first", "people.csv").read_table().content
    assert kept.records
    assert kept.records not in events
    published = [path for path in (office.folder / "out").rglob("*") if path.is_file()]
    assert published
    assert [path for path in published if kept.records.encode() in path.read_bytes()] == []
    assert [path for path in published if key.read_bytes() in path.read_bytes()] == []
    key.write_bytes(b"short")
    with pytest.raises(StoreError, match="must have 32 bytes"):
        new_release(office.plan("second", "people.csv"))
