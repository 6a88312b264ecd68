"""What is told to the addresses in TRELLIS_NOTIFY, by a real web server and a real mail server that receive it."""

import email
import email.policy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from aiosmtpd.controller import Controller

from flows.api import release
from flows.execution.crashes import note_crashes
from flows.execution.notices import NOTIFY, check_addresses
from storage.database.connections import store, transaction
from storage.errors import BudgetExceeded, InputError, Interrupted, UsageError
from storage.releases.register import list_releases, set_state
from tests.support.office import ROWS, Office
from tests.support.up import free_port

SECRET = "s3cret"  # noqa: S105 (of servers that this file starts)


@pytest.fixture
def office(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Office:
    """Give a folder with a table and a store in which nothing is spent."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (tmp_path / "people.csv").write_text("home,work\n" + ROWS)
    return Office(tmp_path)


@contextmanager
def web_server() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve on a free port of 127.0.0.1; yield the address for notices, and what arrives there."""
    posted: list[dict[str, Any]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            posted.append({key: body[key] for key in ("title", "message", "type")})
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"json://user:{SECRET}@127.0.0.1:{server.server_port}/hook", posted
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """Serve a web hook, and name it in TRELLIS_NOTIFY."""
    with web_server() as (address, notices):
        monkeypatch.setenv(NOTIFY, address)
        yield notices


class Mailbox:
    """Keeps the mails that a server receives."""

    def __init__(self) -> None:
        self.mails: list[Any] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 (aiosmtpd's name)
        """Take a mail."""
        self.mails.append((envelope.rcpt_tos, email.message_from_bytes(envelope.content, policy=email.policy.default)))
        return "250 OK"


def only(office: Office) -> str:
    """Return the id of the one release that the store knows."""
    with store() as con:
        (listed,) = list_releases(con)
    return listed.id


def test_a_published_release_is_told_once(office: Office, posted: list[dict[str, Any]]) -> None:
    """Its folder is named, and finishing it again tells nothing."""
    release(office.spec("first", "people.csv"))
    made = only(office)
    assert [(notice["title"], notice["type"]) for notice in posted] == [(f"Trellis: {made} is published", "success")]
    assert posted[0]["message"].startswith("Dataset: first\nFolder: ")
    assert made in posted[0]["message"]


def test_a_failure_is_told_with_what_to_do(office: Office, posted: list[dict[str, Any]]) -> None:
    """The notice has the error's own words, which name a rule and a column, and no value of the table."""
    (office.folder / "people.csv").write_text("home,work\n" + ROWS + "a0,elsewhere\n")
    with pytest.raises(InputError) as fault:
        release(office.spec("first", "people.csv"))
    (notice,) = posted
    assert notice["type"] == "failure"
    assert notice["title"].startswith("Trellis: first-")
    assert notice["title"].endswith(" is failed")
    assert notice["message"] == f"Dataset: first\n{fault.value}\n{fault.value.hint}".rstrip()
    assert "input.table: column work has codes that hierarchy.work lacks." in notice["message"]
    assert "elsewhere" not in notice["message"]


def test_a_refusal_is_told(office: Office, posted: list[dict[str, Any]]) -> None:
    """What the cap refuses is told once, with what would fit."""
    spec = office.spec("first", "people.csv")
    release(spec)
    posted.clear()
    with pytest.raises(BudgetExceeded) as fault:
        release(spec)
    (notice,) = posted
    assert notice["type"] == "warning"
    assert notice["title"] == f"Trellis: {fault.value.release_id} was refused"
    assert notice["message"] == f"Dataset: first\n{fault.value}\n{fault.value.hint}"


def test_a_crash_is_told_once(office: Office, posted: list[dict[str, Any]]) -> None:
    """A release whose process has died is told by whoever sees it first."""
    release(office.spec("first", "people.csv"))
    made = only(office)
    posted.clear()
    with store() as con, transaction(con):
        set_state(con, made, "running")
    for _ in range(2):
        note_crashes()
    (notice,) = posted
    assert notice["title"] == f"Trellis: {made} is failed"
    assert "It crashed" in notice["message"]
    assert f"`trellis rerun {made}`" in notice["message"]


def test_what_a_person_stops_is_not_told(
    office: Office, posted: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who pressed Ctrl-C knows."""

    def interrupt(*_: object) -> None:
        raise Interrupted("stopped")

    monkeypatch.setattr("flows.execution.driver._finish", interrupt)
    with pytest.raises(Interrupted):
        release(office.spec("first", "people.csv"))
    assert posted == []


@pytest.mark.thorough
def test_notices_arrive_by_mail(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mail server on this machine receives the same notice as a web hook beside it."""
    mailbox = Mailbox()
    controller = Controller(mailbox, hostname="127.0.0.1", port=free_port())
    controller.start()
    try:
        mail = (
            f"mailto://127.0.0.1:{controller.port}?from=trellis@office.example&to=statistics@office.example&format=text"
        )
        with web_server() as (hook, posted):
            monkeypatch.setenv(NOTIFY, f"{mail} {hook}")
            release(office.spec("first", "people.csv"))
    finally:
        controller.stop()
    ((recipients, message),) = mailbox.mails
    assert recipients == ["statistics@office.example"]
    assert message["Subject"] == f"Trellis: {only(office)} is published" == posted[0]["title"]
    assert "Dataset: first" in message.get_content()


@pytest.mark.parametrize("address", [f"json://user:{SECRET}@127.0.0.1:9/{SECRET}", f"nonsense://{SECRET}@host", SECRET])
def test_a_notice_that_cannot_be_sent_stops_nothing(
    office: Office,
    address: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The release is published; what is said of the address is its kind alone, since it may hold a password."""
    caplog.set_level("DEBUG")
    monkeypatch.setenv(NOTIFY, address)
    release(office.spec("first", "people.csv"))
    with store() as con:
        assert [listed.state for listed in list_releases(con)] == ["published"]
    said = capfd.readouterr()
    assert "A notice was not sent: " in said.err
    assert SECRET not in said.err + said.out
    assert not [record for record in caplog.records if record.name.startswith("apprise")]


@pytest.mark.parametrize("address", [f"nonsense://{SECRET}@host", f"json://127.0.0.1/ {SECRET}"])
def test_an_address_that_is_not_understood_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`trellis up` refuses it when it starts, by its number."""
    monkeypatch.setenv(NOTIFY, address)
    with pytest.raises(UsageError, match=r"TRELLIS_NOTIFY: address [12] ") as fault:
        check_addresses()
    assert SECRET not in f"{fault.value}{fault.value.hint}"


def test_a_wrong_address_does_not_silence_the_others(
    office: Office, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What is understood is told; the other is named by its number."""
    with web_server() as (hook, posted):
        monkeypatch.setenv(NOTIFY, f"nonsense://{SECRET}@host {hook}")
        release(office.spec("first", "people.csv"))
    assert [notice["type"] for notice in posted] == ["success"]
    assert "address 1 (nonsense://…) is not understood" in capfd.readouterr().err
