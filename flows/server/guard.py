"""Who may talk to our Prefect server: pages that it serves itself, and, with a password, who knows that.

Whoever drives Prefect's API can start releases. A server that listens on 127.0.0.1 alone is reached by every page that is open
in a browser of this machine, and by every user of it.
"""

import os
import pwd
import secrets
from collections.abc import Collection
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from storage.errors import UsageError
from storage.machine.files import beside
from storage.machine.home import home

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

AUTH = "TRELLIS_AUTH"  # the name and the password of `trellis up`, with a colon between them
NAMES = "TRELLIS_SERVER_NAMES"  # further names under which the server is reached, such as that of a proxy
OF_THIS_MACHINE = ("127.0.0.1", "localhost", "[::1]")

_REFUSED = (
    b"Refused: this server is asked under a name that is not its own, or by a page of another server."
    b" TRELLIS_SERVER_NAMES lists further names.\n"
)
_FIRST_PERSON, _FIRST_SYSTEM_AGAIN = 1000, 60_000  # numbers of users who are people
_NO_LOGIN = ("nologin", "false", "sync")  # shells of users who are none


class OwnPagesOnly:
    """Refuses who asks for a server of another name, and what a page of another server asks.

    A browser names the page that asks in `Origin`, and the server it asks in `Host`. Programs send no `Origin`. A page whose
    own name has been made to point here asks under that name (DNS rebinding).
    """

    def __init__(self, app: "ASGIApp", names: Collection[str]) -> None:
        """Wrap an app that is reached under some names, whatever the port."""
        self.app, self.names = app, frozenset(name.lower() for name in names)

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Pass on what may be asked, and answer 403 to the rest."""
        if scope["type"] not in {"http", "websocket"} or self._may_ask(scope):
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            headers = [(b"content-type", b"text/plain; charset=utf-8")]
            await send({"type": "http.response.start", "status": 403, "headers": headers})
            await send({"type": "http.response.body", "body": _REFUSED})

    def _may_ask(self, scope: "Scope") -> bool:
        headers = [(name.decode("latin-1"), of.decode("latin-1")) for name, of in scope["headers"]]
        hosts, origins = ([of.lower() for name, of in headers if name == wanted] for wanted in ("host", "origin"))
        if len(hosts) != 1:
            return False
        asked = _name_and_port(hosts[0])
        pages = [_name_and_port(urlsplit(origin).netloc) for origin in origins]
        return all(name in self.names and port == asked[1] for name, port in (asked, *pages))


def _name_and_port(host: str) -> tuple[str, str]:
    """Return the name and the port of a `Host` header; no port where it has none."""
    name, colon, port = host.rpartition(":")
    return (name, port) if colon and port.isdigit() else (host, "")


def server_names() -> list[str]:
    """Return the names under which the server may be reached."""
    return [*OF_THIS_MACHINE, *filter(None, os.environ.get(NAMES, "").replace(",", " ").split())]


def new_auth() -> str:
    """Return a name and a random password, with a colon between them."""
    return f"trellis:{secrets.token_urlsafe(24)}"


def stored_auth() -> str | None:
    """Return the name and the password that the server of `trellis up` on this store asks for; None if it never asked."""
    path = home() / "auth"
    return path.read_text().strip() if path.is_file() else None


def auth_of_up(asked: bool | None) -> str | None:
    """Return the name and the password that `trellis up` asks for, and keep them for commands on this store; None for none.

    Args:
        asked: whether one is wanted. If that is not said, one is wanted where TRELLIS_AUTH has it or several people use this machine.
    Raises:
        UsageError: TRELLIS_AUTH has no colon.
    """
    given = os.environ.get(AUTH, "")
    if given and ":" not in given.strip(":"):
        raise UsageError(f"{AUTH} must be a name and a password with a colon between them.", field=AUTH)
    path = home() / "auth"
    if not (given or have_several_users() if asked is None else asked):
        path.unlink(missing_ok=True)
        return None
    auth = given or stored_auth() or new_auth()
    with beside(path, closed=True) as file:
        file.write(f"{auth}\n".encode())
    return auth


def have_several_users() -> bool:
    """Return whether more than one person has an account on this machine."""
    people = [
        user
        for user in pwd.getpwall()
        if _FIRST_PERSON <= user.pw_uid < _FIRST_SYSTEM_AGAIN and not user.pw_shell.endswith(_NO_LOGIN)
    ]
    return len(people) > 1
