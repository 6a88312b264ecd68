"""What is told to the addresses in TRELLIS_NOTIFY, by a real web server and a real mail server that receive it."""

import email
import email.policy
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from aiosmtpd.controller import Controller

from flows.answers.release_status import releases_answer
from flows.api import release
from flows.run.crashes import note_crashes
from flows.run.notices import NOTIFY, check_addresses, send_notice
from storage.database.connections import store, transaction
from storage.errors import BudgetExceeded, InputError, Interrupted, UsageError
from storage.releases.register import list_releases, set_state
from tests.support.office import ROWS
from tests.support.up import free_port

SECRET = "s3cret"  # noqa: S105 (of servers that this file starts)


@pytest.fixture
def posted(monkeypatch):
    """Serve a web hook, and name it in TRELLIS_NOTIFY behind an address that is not understood; yield what arrives there."""
    notices = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            notices.append({key: body[key] for key in ("title", "message", "type")})
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    hook = f"json://user:{SECRET}@127.0.0.1:{server.server_port}/hook"
    monkeypatch.setenv(NOTIFY, f"nonsense://{SECRET}@host {hook}")
    try:
        yield notices
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Mailbox:
    """Keeps the mails that a server receives."""

    def __init__(self):
        self.mails = []

    async def handle_DATA(self, _server, _session, envelope):  # noqa: N802 (aiosmtpd's name)
        """Take a mail."""
        self.mails.append((envelope.rcpt_tos, email.message_from_bytes(envelope.content, policy=email.policy.default)))
        return "250 OK"


def test_how_a_release_ends_is_told_once(fresh, posted, monkeypatch, capfd):
    """Published, refused, crashed: with its folder or what to do. What a person stops is not told. A wrong address silences no other."""
    spec = fresh.spec("first", "people.csv")
    with monkeypatch.context() as patch:

        def interrupt(*_):
            raise Interrupted("stopped")

        patch.setattr("flows.run.driver._finish", interrupt)
        with pytest.raises(Interrupted):
            release(fresh.spec("stopped", "people.csv"))
    assert posted == []
    made = release(spec, different_people=True).id
    (notice,) = posted
    assert (notice["title"], notice["type"]) == (f"Trellis: {made} is published", "success")
    assert notice["message"].startswith("Dataset: first\nFolder: ")
    assert made in notice["message"]
    said = capfd.readouterr().err
    assert "address 1 (nonsense://…) is not understood" in said
    assert SECRET not in said
    posted.clear()
    with pytest.raises(BudgetExceeded) as fault:
        release(spec)
    (notice,) = posted
    assert (notice["title"], notice["type"]) == (f"Trellis: {fault.value.release_id} was refused", "warning")
    assert notice["message"] == f"Dataset: first\n{fault.value}\n{fault.value.hint}"
    posted.clear()
    with store() as con, transaction(con):
        set_state(con, made, "running")
    for _ in range(2):
        note_crashes()
    (notice,) = posted
    assert notice["title"] == f"Trellis: {made} is failed"
    assert "It crashed" in notice["message"]
    assert f"`trellis rerun {made}`" in notice["message"]


def test_a_crash_is_told_by_whoever_has_an_address(fresh, posted, monkeypatch):
    """Whoever sees it without one, or with one that does not answer, leaves the notice to others; it is told once, unless it is out of date."""
    made = [release(fresh.spec(name, "people.csv"), different_people=True).id for name in ("first", "second", "third")]
    posted.clear()
    hook = os.environ[NOTIFY]
    with store() as con, transaction(con):
        for release_id in made:
            set_state(con, release_id, "running")
    for address in ("", "json://127.0.0.1:9/closed"):
        monkeypatch.setenv(NOTIFY, address)
        assert {of.state for of in releases_answer().releases} == {"failed"}
    with store() as con, transaction(con):
        set_state(con, made[2], "published")  # by `trellis rerun`
    assert posted == []
    monkeypatch.setenv(NOTIFY, hook)
    for _ in range(2):
        note_crashes()  # as `trellis up` does
    assert [of["title"] for of in posted] == [f"Trellis: {release_id} is failed" for release_id in made[:2]]
    assert all("It crashed" in of["message"] for of in posted)


def test_a_failure_is_told_with_what_to_do(fresh, posted):
    """The notice has the error's own words, which name a rule and a column, and no value of the table."""
    (fresh.folder / "people.csv").write_text("home,work\n" + ROWS + "a0,elsewhere\n")
    with pytest.raises(InputError) as fault:
        release(fresh.spec("first", "people.csv"))
    (notice,) = posted
    assert notice["type"] == "failure"
    assert notice["title"].startswith("Trellis: first-")
    assert notice["title"].endswith(" is failed")
    assert notice["message"] == f"Dataset: first\n{fault.value}\n{fault.value.hint}".rstrip()
    assert "input.table: column work has codes that hierarchy.work lacks." in notice["message"]
    assert "elsewhere" not in notice["message"]


@pytest.mark.thorough
def test_notices_arrive_by_mail(fresh, monkeypatch):
    """A mail server on this machine receives what a web hook would."""
    mailbox = Mailbox()
    controller = Controller(mailbox, hostname="127.0.0.1", port=free_port())
    controller.start()
    to = "from=trellis@office.example&to=statistics@office.example&format=text"
    try:
        monkeypatch.setenv(NOTIFY, f"mailto://127.0.0.1:{controller.port}?{to}")
        made = release(fresh.spec("first", "people.csv"))
    finally:
        controller.stop()
    ((recipients, message),) = mailbox.mails
    assert recipients == ["statistics@office.example"]
    assert message["Subject"] == f"Trellis: {made.id} is published"
    assert "Dataset: first" in message.get_content()


def test_a_notice_that_cannot_be_sent_stops_nothing(fresh, monkeypatch, capfd, caplog):
    """The release is published; what is said of the address is its kind alone, since it may hold a password."""
    caplog.set_level("DEBUG")
    for address in (f"json://user:{SECRET}@127.0.0.1:9/{SECRET}", f"nonsense://{SECRET}@host", SECRET):
        monkeypatch.setenv(NOTIFY, address)
        if address == SECRET:
            release(fresh.spec("first", "people.csv"))
            with store() as con:
                assert [listed.state for listed in list_releases(con)] == ["published"]
        assert not send_notice("first", "people", "published")
        said = capfd.readouterr()
        assert "A notice was not sent: " in said.err
        assert SECRET not in said.err + said.out
    assert not [record for record in caplog.records if record.name.startswith("apprise")]


@pytest.mark.parametrize("address", [f"nonsense://{SECRET}@host", f"json://127.0.0.1/ {SECRET}"])
def test_an_address_that_is_not_understood_is_refused(address, monkeypatch):
    """`trellis up` refuses it when it starts, by its number."""
    monkeypatch.setenv(NOTIFY, address)
    with pytest.raises(UsageError, match=r"TRELLIS_NOTIFY: address [12] ") as fault:
        check_addresses()
    assert SECRET not in f"{fault.value}{fault.value.hint}"
