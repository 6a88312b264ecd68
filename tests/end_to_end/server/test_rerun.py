"""A release that is stopped by a person, in every way that there is, and gone on with in others."""

import re
import shutil
import signal
from dataclasses import replace
from urllib.error import HTTPError

import pytest

from storage.database.connections import store
from storage.releases.register import state_of
from storage.releases.shards import list_shards
from tests.support.server import Prefect, ask
from tests.support.up import states, until, write_large
from tests.support.user import User

pytestmark = [
    *(pytest.mark.thorough, pytest.mark.heavy("a large release is stopped, three times, and a server runs")),
    pytest.mark.usefixtures("_ctrl_c_interrupts"),
]


@pytest.fixture(scope="module")
def user(tmp_path_factory, prefect):
    """Return a user with a country whose release takes some seconds, in branches, and whose store this process reads, too."""
    user = User(tmp_path_factory.mktemp("interrupter"), prefect)
    write_large(user.folder / "data")
    user.spec(name="interrupted", privacy={"epsilon": 9.0})  # others release beneath this server, too
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", user.environment["TRELLIS_HOME"])  # a command takes its time
        yield user


def seals(release_id):
    """Return what is sealed."""
    with store() as con:
        return {(seal.level, seal.branch, seal.sha256) for seal in list_shards(con, release_id)["noisy"].values()}


def state(release_id):
    """Return the state of the release."""
    with store() as con:
        return state_of(con, release_id)


def stop(user, id_, process, press, *, in_branches):
    """Wait until it runs and something is sealed, ask around, stop the process, check how it ended, and return what is sealed."""
    until(lambda: state(id_) == "running")
    asked = [user.start(command) for command in ("releases", "ledger")]
    until(lambda: any(branch != "trunk" or not in_branches for _, branch, _ in seals(id_)))
    press()
    _, said = process.communicate(timeout=240)
    assert [answer.wait(timeout=240) for answer in asked] == [0, 0]
    assert (process.returncode, state(id_)) == (130, "failed")
    assert f"`trellis rerun {id_}` continues it." in said
    stays, rest = (
        "Its whole charge stays.",
        "What it has drawn stays charged; the rest is given back if you run `trellis abandon",
    )
    assert f"{id_} is failed. {stays}" in said or f"{id_} is failed. {rest}" in said
    return seals(id_)


@pytest.fixture(scope="module")
def stopped(user, prefect):
    """Stop a release by Ctrl-C, SIGTERM and the UI's Cancel, and return it."""
    # Each ends with 130 at the next chunk, and the release has failed and says how to go on; every seal of before stays, bit for bit.
    # Meanwhile the store answers. Cancel is heard from a server that answers only those who know its password.
    api, password = (prefect.environment[f"PREFECT_API_{key}"] for key in ("URL", "AUTH_STRING"))
    process = user.start("release", "spec.yaml")
    id_ = str(until(lambda: next(iter(states(user)), None)))

    def cancel():
        running = {"flow_runs": {"name": {"any_": [f"{id_} again"]}, "state": {"type": {"any_": ["RUNNING"]}}}}
        (run,) = ask(f"{api}/flow_runs/filter", running, password)
        ask(f"{api}/flow_runs/{run['id']}/set_state", {"state": {"type": "CANCELLING", "name": "Cancelling"}}, password)

    first = stop(user, id_, process, lambda: process.send_signal(signal.SIGINT), in_branches=False)
    again = user.start("rerun", id_)
    second = stop(user, id_, again, lambda: again.send_signal(signal.SIGTERM), in_branches=False)
    assert first <= second <= stop(user, id_, user.start("rerun", id_), cancel, in_branches=True)
    shards = user.folder / "home" / "shards" / id_
    assert [path.name for path in shards.iterdir() if path.suffix == ".partial"] == []
    runs = prefect.rows("SELECT state_type FROM flow_run WHERE name LIKE ? ORDER BY created", f"{id_}%")
    assert runs == [("CANCELLED",)] * 3
    with pytest.raises(HTTPError, match="401"):
        ask(f"{api}/flow_runs/filter", {}, "operator:another-word")
    return id_


def test_what_was_edited_since_is_refused(user, stopped):
    """A release keeps the spec that it was reserved with, however it is laid out, and the codebook, whose hashes are named."""
    spec, codebook = user.folder / "spec.yaml", user.folder / "data" / "codebook.csv"
    reserved, before = spec.read_text(), codebook.read_bytes()
    spec.write_text(reserved.replace("epsilon: 9.0", "epsilon: 8.0"))
    said = user.run("rerun", stopped, "--json")
    assert (said.code, said.json()["field"]) == (2, "SPEC")
    assert "a release keeps the spec that it was reserved with" in said.json()["error"]
    assert user.run("show", stopped, "--spec").stdout == reserved
    spec.write_text("# a remark\n" + reserved)
    codebook.write_bytes(before + b"\n")
    said = user.run("rerun", stopped, "--json")
    codebook.write_bytes(before)
    assert (said.code, len(set(re.findall(r"\b[0-9a-f]{64}\b", said.json()["error"])))) == (2, 2)


def test_it_is_finished_elsewhere(user, stopped, tmp_path):
    """With Prefect's database lost and spec and table gone, the store is enough: one consistent release, charged once."""
    # One branch can be gone on with by itself.
    before = seals(stopped)
    shown = user.run("show", stopped, "--json").json()
    *others, last = [branch["branch"] for branch in shown["branches"] if branch["state"] == "open"]
    said = user.run("rerun", stopped, "--branch", last)
    assert (said.code, said.stdout.splitlines()[0]) == (0, f"{stopped} failed Still missing: {', '.join(others)}.")
    elsewhere = replace(user, prefect=Prefect(tmp_path / "prefect", {}))
    shutil.move(user.folder / "data", tmp_path / "data")
    (user.folder / "spec.yaml").rename(tmp_path / "spec.yaml")
    said = elsewhere.run("rerun", stopped, "--json", PREFECT_HOME=str(tmp_path / "prefect"))
    assert (said.code, said.json()["state"]) == (0, "published"), said.stderr
    assert before < seals(stopped)
    assert user.run("verify", said.json()["folder"]).code == 0
    assert user.run("audit", "--json").json()["findings"] == []
    (account,) = user.run("ledger", "--json").json()["datasets"]
    assert [charge["state"] for charge in account["charges"]] == ["released"] * 6
    assert list((user.folder / "home" / "vault").iterdir()) == []
