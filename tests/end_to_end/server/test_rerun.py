"""A release that is stopped by a person, in every way that there is, and gone on with in others."""

import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.error import HTTPError

import pytest

from storage.database.connections import store
from storage.releases.register import state_of
from storage.releases.seals import list_seals
from tests.support.server import Prefect, ask
from tests.support.up import states, until, write_large
from tests.support.user import User

pytestmark = [pytest.mark.thorough, pytest.mark.heavy("a large release is stopped, three times, and a server runs")]


@pytest.fixture(autouse=True, scope="module")
def _ctrl_c_interrupts() -> Iterator[None]:
    """Let SIGINT interrupt also where the tests run in a shell's background, in which it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory, prefect: Prefect) -> User:
    """Return a user with a country whose release takes some seconds, in branches."""
    user = User(tmp_path_factory.mktemp("interrupter"), prefect)
    write_large(user.folder / "data")
    user.spec(name="interrupted", privacy={"epsilon": 9.0})  # others release beneath this server, too
    return user


class Stopped:
    """A release that was stopped three times, and what was there each time."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.codes: list[int] = []
        self.said: list[str] = []
        self.sealed: list[set[tuple[int, str, str]]] = []
        self.states: list[str] = []
        self.asked_meanwhile: list[int] = []
        process = user.start("release", "spec.yaml")
        self.id = until(lambda: next(iter(states(user)), None))
        self.stop(process, lambda: process.send_signal(signal.SIGINT))
        process = user.start("rerun", self.id)
        self.stop(process, lambda: process.send_signal(signal.SIGTERM))
        process = user.start("rerun", self.id)
        self.stop(process, self.cancel, in_branches=True)

    def stop(self, process: subprocess.Popen[str], press: Callable[[], object], *, in_branches: bool = False) -> None:
        """Wait until it runs and something is sealed, ask around, stop the process, and note how it ended."""
        until(lambda: self.state() == "running")
        asked = [self.user.start(command) for command in ("releases", "ledger")]
        until(lambda: any(branch != "trunk" or not in_branches for _, branch, _ in self.seals()))
        press()
        _, said = process.communicate(timeout=240)
        self.asked_meanwhile += [answer.wait(timeout=240) for answer in asked]
        self.codes.append(process.returncode)
        self.said.append(said)
        self.sealed.append(self.seals())
        self.states.append(self.state())

    def cancel(self) -> None:
        """Press Cancel on the run that is there."""
        api, password = (self.user.prefect.environment[f"PREFECT_API_{key}"] for key in ("URL", "AUTH_STRING"))
        running = {"flow_runs": {"name": {"any_": [f"{self.id} again"]}, "state": {"type": {"any_": ["RUNNING"]}}}}
        (run,) = ask(f"{api}/flow_runs/filter", running, password)
        ask(f"{api}/flow_runs/{run['id']}/set_state", {"state": {"type": "CANCELLING", "name": "Cancelling"}}, password)

    def state(self) -> str:
        """Return its state, from the store: a command takes its time."""
        with store() as con:
            return state_of(con, self.id) or ""

    def seals(self) -> set[tuple[int, str, str]]:
        """Return what is sealed."""
        with store() as con:
            return {(seal.level, seal.branch, seal.sha256) for seal in list_seals(con, self.id).values()}


@pytest.fixture(scope="module")
def stopped(user: User) -> Iterator[Stopped]:
    """Stop a release by Ctrl-C, SIGTERM and the UI's Cancel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", user.environment["TRELLIS_HOME"])
        yield Stopped(user)


def test_every_way_to_stop_ends_alike(stopped: Stopped, prefect: Prefect) -> None:
    """Ctrl-C, SIGTERM and Cancel end with 130 at the next chunk; the release has failed, and says how to go on.

    Cancel is heard from a server that answers only those who know its password.
    """
    assert stopped.codes == [130, 130, 130]
    assert stopped.states == ["failed", "failed", "failed"]
    charged = re.compile(
        rf"{stopped.id} is failed\. (Its whole charge stays\."
        r"|What it has drawn stays charged; the rest is given back if you run `trellis abandon)"
    )
    assert [said for said in stopped.said if not charged.search(said)] == []
    assert [said for said in stopped.said if f"`trellis rerun {stopped.id}` continues it." not in said] == []
    runs = prefect.rows("SELECT state_type FROM flow_run WHERE name LIKE ? ORDER BY created", f"{stopped.id}%")
    assert runs == [("CANCELLED",)] * 3
    api = prefect.environment["PREFECT_API_URL"]
    with pytest.raises(HTTPError, match="401"):
        ask(f"{api}/flow_runs/filter", {}, "operator:another-word")


def test_what_was_sealed_stays(stopped: Stopped) -> None:
    """Each stop keeps every seal of the one before, bit for bit, and nothing is drawn that no seal will have.

    While a release runs, the store answers.
    """
    assert stopped.asked_meanwhile == [0] * 6
    first, second, third = stopped.sealed
    assert first <= second <= third
    shards = stopped.user.folder / "home" / "shards" / stopped.id
    assert [path.name for path in shards.iterdir() if path.suffix == ".partial"] == []


def test_one_branch_is_gone_on_with(stopped: Stopped, prefect: Prefect) -> None:
    """`rerun --branch` finishes that branch and says which others are missing; a branch that is none is refused."""
    missing = [
        b["branch"] for b in stopped.user.run("show", stopped.id, "--json").json()["branches"] if b["state"] == "open"
    ]
    assert len(missing) > 1
    said = stopped.user.run("rerun", stopped.id, "--branch", missing[-1])
    assert (said.code, said.stdout.splitlines()[0]) == (
        0,
        f"{stopped.id} failed Still missing: {', '.join(missing[:-1])}.",
    )
    assert said.stdout.splitlines()[-1] == "folder: not published"
    shown = stopped.user.run("show", stopped.id, "--json").json()
    assert shown["reason"] == f"Still missing: {', '.join(missing[:-1])}."
    assert {b["branch"]: b["state"] for b in shown["branches"]}[missing[-1]] == "optimised"
    # The progress of that run counts what the runs before had sealed: the trunk's levels, of which it drew none.
    query = "SELECT data FROM artifact WHERE key = ? ORDER BY created DESC LIMIT 1"
    ((progress,),) = prefect.rows(query, f"{stopped.id.lower()}-progress")
    trunk = {seal["level"] for seal in shown["seals"] if seal["branch"] == "trunk"}
    assert 100 * len(trunk) / len(shown["levels"]) < float(progress) <= 100
    said = stopped.user.run("rerun", stopped.id, "--branch", "b99")
    assert (said.code, f"{stopped.id} has no branch b99" in said.stderr) == (2, True)


def test_what_was_edited_since_is_refused(stopped: Stopped) -> None:
    """A release keeps the spec that it was reserved with, however it is laid out, and the codebook, whose hashes are named."""
    spec = stopped.user.folder / "spec.yaml"
    reserved = spec.read_text()
    spec.write_text(reserved.replace("epsilon: 9.0", "epsilon: 8.0"))
    said = stopped.user.run("rerun", stopped.id, "--json")
    assert (said.code, said.json()["field"]) == (2, "SPEC")
    assert "a release keeps the spec that it was reserved with" in said.json()["error"]
    assert stopped.user.run("show", stopped.id, "--spec").stdout == reserved
    spec.write_text("# a remark\n" + reserved)
    codebook = stopped.user.folder / "data" / "codebook.csv"
    before = codebook.read_bytes()
    codebook.write_bytes(before + b"\n")
    said = stopped.user.run("rerun", stopped.id, "--json")
    assert said.code == 2
    hashes = [word for word in said.json()["error"].replace(".", " ").split() if len(word) == 64]
    assert len(set(hashes)) == 2
    codebook.write_bytes(before)


def test_it_is_finished_elsewhere(stopped: Stopped, tmp_path: Path) -> None:
    """With Prefect's database lost and spec and table gone, the store is enough: one consistent release, charged once."""
    user = replace(stopped.user, prefect=Prefect(tmp_path / "prefect", {}))
    shutil.move(user.folder / "data", tmp_path / "data")
    (user.folder / "spec.yaml").rename(tmp_path / "spec.yaml")
    said = user.run("rerun", stopped.id, "--json", PREFECT_HOME=str(tmp_path / "prefect"))
    assert (said.code, said.json()["state"]) == (0, "published"), said.stderr
    assert stopped.sealed[-1] < stopped.seals()
    assert user.run("verify", said.json()["folder"]).code == 0
    assert user.run("audit", "--json").json()["findings"] == []
    (account,) = user.run("ledger", "--json").json()["datasets"]
    assert [charge["state"] for charge in account["charges"]] == ["released"] * 6
    assert list((user.folder / "home" / "vault").iterdir()) == []


def test_what_has_ended_is_not_run(stopped: Stopped) -> None:
    """A published release is published already; one that nobody knows is named."""
    said = stopped.user.run("rerun", stopped.id, "--json")
    assert (said.code, said.json()["state"]) == (0, "published")
    said = stopped.user.run("rerun", "nobody")
    assert (said.code, "There is no release nobody." in said.stderr) == (2, True)
