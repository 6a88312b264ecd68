"""Who may talk to the server: its own pages and programs; and which password it asks for."""

import asyncio
import pwd
import stat
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.server.guard import AUTH, NAMES, OF_THIS_MACHINE, OwnPagesOnly, auth_of_up, server_names, stored_auth
from storage.errors import UsageError

OWN = "127.0.0.1:4200"


def asked(headers: Mapping[str, str], kind: str = "http", names: tuple[str, ...] = OF_THIS_MACHINE) -> Any:
    """Return the status that a request gets, or the code with which a websocket is closed; 200 where it is passed on."""
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        sent.append({"status": 200})

    async def receive() -> dict[str, str]:
        return {"type": f"{kind}.connect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": kind, "headers": [(name.encode(), of.encode()) for name, of in headers.items()]}
    asyncio.run(OwnPagesOnly(app, names)(scope, receive, send))
    return sent[0].get("status", sent[0].get("code"))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
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
        ({"host": "127.0.0.1.evil.example:4200"}, 403),
        ({"host": ""}, 403),
        ({}, 403),
    ],
)
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


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the home of a store on a machine of one person, without a password in the environment."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path))
    monkeypatch.delenv(AUTH, raising=False)
    monkeypatch.setattr(pwd, "getpwall", lambda: people(1000))
    return tmp_path


def people(*numbers: int, login: str = "/bin/bash") -> list[SimpleNamespace]:
    """Return users of these numbers, and those that every machine has."""
    there = [(0, "/bin/bash"), (33, "/usr/sbin/nologin"), (65534, "/usr/sbin/nologin")]
    return [
        SimpleNamespace(pw_uid=number, pw_shell=of) for number, of in [*there, *((each, login) for each in numbers)]
    ]


def test_a_password_is_kept_for_the_commands_of_this_store(store):
    """It is random, stays the same, and nobody else can read it, whatever the file was; without one, nothing is kept."""
    assert (auth_of_up(None), stored_auth()) == (None, None)
    first = auth_of_up(asked=True)
    assert first
    assert first.startswith("trellis:")
    assert len(first) > 32
    path = store / "auth"
    path.chmod(0o644)
    assert auth_of_up(asked=True) == first == stored_auth()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert auth_of_up(asked=False) is None
    assert not path.exists()
    assert auth_of_up(asked=True) != first


def test_the_environment_and_the_machine_decide_where_nobody_does(store, monkeypatch):
    """A password of the environment is taken; several people have one by default; users who cannot log in are no people."""
    monkeypatch.setenv(AUTH, "anna:secret")
    assert auth_of_up(None) == "anna:secret" == stored_auth()
    assert auth_of_up(asked=False) is None
    for wrong in ("secret", ":", "anna:", ":secret"):
        monkeypatch.setenv(AUTH, wrong)
        with pytest.raises(UsageError, match="a name and a password with a colon"):
            auth_of_up(None)
    monkeypatch.delenv(AUTH)
    monkeypatch.setattr(pwd, "getpwall", lambda: people(1000, 1001, login="/usr/sbin/nologin"))
    assert auth_of_up(None) is None
    monkeypatch.setattr(pwd, "getpwall", lambda: people(1000, 1001))
    assert (auth_of_up(None) or "").startswith("trellis:")
    assert [path.name for path in store.iterdir()] == ["auth"]
