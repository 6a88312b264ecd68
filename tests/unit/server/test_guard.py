"""A server's beginnings: who may talk to it, which password it asks for, and the empty database that is copied for it."""

import asyncio
import pwd
import sqlite3
import stat
from contextlib import closing
from types import SimpleNamespace

import pytest

from flows.server.database import DATABASE, begin_database, keep_empty_database
from flows.server.guard import AUTH, NAMES, OF_THIS_MACHINE, OwnPagesOnly, auth_of_up, server_names, stored_auth
from storage.errors import UsageError

OWN = "127.0.0.1:4200"


def asked(headers, kind="http", names=OF_THIS_MACHINE):
    """Return the status that a request gets, or the code with which a websocket is closed; 200 where it is passed on."""
    sent = []

    async def app(scope, receive, send):
        sent.append({"status": 200})

    async def receive():
        return {"type": f"{kind}.connect"}

    async def send(message):
        sent.append(message)

    scope = {"type": kind, "headers": [(name.encode(), of.encode()) for name, of in headers.items()]}
    asyncio.run(OwnPagesOnly(app, names)(scope, receive, send))
    return sent[0].get("status", sent[0].get("code"))


@pytest.mark.parametrize(("headers", "status"), [
    ({"host": OWN}, 200),
    ({"host": "LocalHost:4200", "origin": "http://localhost:4200"}, 200),
    ({"host": "[::1]:4200", "origin": "http://[::1]:4200"}, 200),
    ({"host": OWN, "origin": "http://localhost:4200"}, 200),  # one server by two names
    ({"host": OWN, "origin": "http://evil.example"}, 403),
    ({"host": OWN, "origin": "http://127.0.0.1:4201"}, 403),  # another program of this machine
    ({"host": OWN, "origin": "null"}, 403),
    ({"host": OWN, "origin": ""}, 403),
    ({"host": "evil.example:4200"}, 403),  # a name that points here
    ({"host": "evil.example:4200", "origin": "http://evil.example:4200"}, 403),
    ({"host": ""}, 403),
    ({}, 403),
])  # fmt: skip
def test_only_own_pages_and_programs_may_ask(headers, status):
    """Requests and websockets alike; programs name no page."""
    assert asked(headers) == status
    assert asked(headers, "websocket") == (200 if status == 200 else 1008)
    assert asked(headers, "lifespan") == 200  # the server's own start and end are no requests


def test_a_proxy_has_a_name_of_its_own(monkeypatch):
    """Names of the environment are allowed beside those of this machine."""
    monkeypatch.setenv(NAMES, "trellis.example, other.example")
    assert server_names() == [*OF_THIS_MACHINE, "trellis.example", "other.example"]
    behind = {"host": "trellis.example", "origin": "https://trellis.example"}
    assert (asked(behind, names=tuple(server_names())), asked(behind)) == (200, 403)


def people(*numbers, login="/bin/bash"):
    """Return users of these numbers, and those that every machine has."""
    there = [(0, "/bin/bash"), (33, "/usr/sbin/nologin"), (65534, "/usr/sbin/nologin")]
    every = [*there, *((each, login) for each in numbers)]
    return [SimpleNamespace(pw_uid=number, pw_shell=of) for number, of in every]


def test_a_password_is_kept_for_the_commands_of_this_store(tmp_path, monkeypatch):
    """It is random, stays the same, and nobody else can read it, whatever the file was; without one, nothing is kept."""
    # One of the environment is taken; several people have one by default; users who cannot log in are no people.
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path))
    monkeypatch.delenv(AUTH, raising=False)
    for users, has_one in (
        (people(1000), False),
        (people(1000, 1001, login="/usr/sbin/nologin"), False),
        (people(1000, 1001), True),
    ):
        monkeypatch.setattr(pwd, "getpwall", lambda users=users: users)
        assert (auth_of_up(None) or "").startswith("trellis:") == bool(stored_auth()) == has_one
    path, first = tmp_path / "auth", auth_of_up(asked=True)
    assert len(first) > 32
    path.chmod(0o644)
    assert auth_of_up(asked=True) == first == stored_auth()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert auth_of_up(asked=False) is None
    assert not path.exists()
    assert auth_of_up(asked=True) != first
    monkeypatch.setenv(AUTH, "anna:secret")
    assert auth_of_up(None) == "anna:secret" == stored_auth()
    assert auth_of_up(asked=False) is None
    for wrong in ("secret", ":", "anna:", ":secret"):
        monkeypatch.setenv(AUTH, wrong)
        with pytest.raises(UsageError, match="a name and a password with a colon"):
            auth_of_up(None)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Let the user's cache be a new folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("PREFECT_API_DATABASE_CONNECTION_URL", "PREFECT_SERVER_DATABASE_CONNECTION_URL"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache"


def made(folder, word):
    """Make a database with a word in it, as a server would."""
    folder.mkdir()
    with closing(sqlite3.connect(folder / DATABASE)) as con:
        con.execute("CREATE TABLE told (word)")
        con.execute("INSERT INTO told VALUES (?)", [word])
        con.commit()
    return folder


def told(folder):
    """Return the word in a database."""
    with closing(sqlite3.connect(folder / DATABASE)) as con:
        return str(con.execute("SELECT word FROM told").fetchone()[0])


def test_a_new_server_begins_with_the_first_one_s(tmp_path, cache):
    """The second server's database is a copy, closed to others; later ones do not change what is kept."""
    for name in ("first", "second"):
        keep_empty_database(made(tmp_path / name, name))
    (tmp_path / "three").mkdir()
    assert begin_database(tmp_path / "three")
    assert told(tmp_path / "three") == "first"
    assert {path.stat().st_mode & 0o077 for path in [tmp_path / "three" / DATABASE, *cache.rglob("*.db")]} == {0}
    assert [path.suffix for path in (cache / "trellis").iterdir()] == [".db"]


def test_a_database_that_is_there_or_elsewhere_is_not_begun(tmp_path, cache, monkeypatch):
    """One that is there is not replaced; a server that uses PostgreSQL, or has no cache to copy from, gets no file."""
    keep_empty_database(made(tmp_path / "one", "first"))
    assert not begin_database(made(tmp_path / "two", "second"))
    assert told(tmp_path / "two") == "second"
    monkeypatch.setenv("PREFECT_API_DATABASE_CONNECTION_URL", "postgresql+asyncpg://nowhere/prefect")
    assert not begin_database(tmp_path)
    monkeypatch.delenv("PREFECT_API_DATABASE_CONNECTION_URL")
    cache.rename(tmp_path / "elsewhere")
    cache.write_text("a file where a folder should be")
    keep_empty_database(tmp_path / "one")  # which stops nothing
    assert begin_database(tmp_path)
    assert not (tmp_path / DATABASE).exists()
