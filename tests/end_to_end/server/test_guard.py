"""What `trellis up` lets in: its own pages and who has the password; and what its runs import."""

import json
import stat
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.up import Up, bring_up, states, with_one_spec
from tests.support.user import User


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, settle: Callable[[Path], User]) -> Iterator[Up]:
    """Bring Trellis up with a password, in a folder with modules of its own that have the names of ours."""
    user = with_one_spec(settle(tmp_path_factory.mktemp("guarded")))
    for name in ("tasks", "storage", "numpy"):
        (user.folder / f"{name}.py").write_text("raise SystemExit('imported what lies here')\n")
    (user.folder / "flows").mkdir()
    (user.folder / "flows" / "__init__.py").write_text("raise SystemExit('imported what lies here')\n")
    up = bring_up(user, "--auth")
    try:
        yield up
    finally:
        up.process.kill()
        up.process.wait()


def status(up: Up, *, method: str = "POST", auth: str = "", **headers: str) -> tuple[int, str | None]:
    """Ask for all flow runs; return the status of the answer, and which pages it may be shown to."""
    asked = {"Content-Type": "application/json"} | {name.replace("_", "-"): of for name, of in headers.items()}
    if auth:
        asked["Authorization"] = f"Basic {b64encode(auth.encode()).decode()}"
    data = b"{}" if method == "POST" else None
    request = urllib.request.Request(f"{up.api}/flow_runs/filter", data, asked, method=method)  # noqa: S310 (our own)
    try:
        with urllib.request.urlopen(request, timeout=60.0) as response:  # noqa: S310 (our own server)
            return response.status, response.headers.get("Access-Control-Allow-Origin")
    except urllib.error.HTTPError as fault:
        return fault.code, fault.headers.get("Access-Control-Allow-Origin")


def password(up: Up) -> str:
    """Return the line in the file that the operator is told of."""
    return (Path(up.user.environment["TRELLIS_HOME"]) / "auth").read_text().strip()


def test_pages_of_other_servers_are_refused(guarded: Up) -> None:
    """Neither a question nor the one that a browser asks before it is answered, under whatever name, password or not."""
    own = guarded.api.removesuffix("/api")
    auth = password(guarded)
    assert status(guarded, auth=auth) == (200, None)
    assert status(guarded, auth=auth, Origin=own)[0] == 200
    assert status(guarded, auth=auth, Origin=own.replace("127.0.0.1", "localhost"))[0] == 200
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "http://127.0.0.1:9"},
        {"Origin": "null"},
        {"Host": "evil.example"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
    ):
        assert status(guarded, auth=auth, **headers) == (403, None)
        before = headers | {"Access_Control_Request_Method": "POST"}
        assert status(guarded, method="OPTIONS", **before) == (403, None)


def test_who_has_no_password_is_refused(guarded: Up) -> None:
    """The operator is told where it is, and nobody else can read it there."""
    path = Path(guarded.user.environment["TRELLIS_HOME"]) / "auth"
    assert status(guarded) == (401, None)
    assert status(guarded, auth="trellis:guess") == (401, None)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert str(path) in guarded.said or str(path) in (
        guarded.process.stderr.readline() if guarded.process.stderr else ""
    )


def test_commands_of_the_store_are_let_in_and_import_nothing_from_the_folder(guarded: Up) -> None:
    """A release in the folder with modules of our names reports to the server that asks for a password."""
    made = guarded.user.run("release", "specs/by-hand.yaml", "--json")
    assert made.code == 0, made.stderr
    release_id = json.loads(made.stdout)["id"]
    assert states(guarded.user)[release_id] == "published"
    found = guarded.call("/flow_runs/filter", {})
    assert [run["state_type"] for run in found] == ["COMPLETED"]


def test_runs_import_nothing_from_the_folder_in_which_they_begin(guarded: Up) -> None:
    """A run that the server starts there is a release like any other."""
    run = guarded.trigger("release/release", spec="by-hand.yaml")
    assert guarded.ended(run)["state_type"] == "COMPLETED"
