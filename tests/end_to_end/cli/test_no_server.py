"""Releases without a Prefect server: the same files, ledger and rerun, and nothing of Prefect."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.user import User

CAP = {"epsilon": 40.0}

ASK = """\
import json, sys
from flows.cli.main import main
code = main(sys.argv[1:])
print(json.dumps([code, "prefect" in sys.modules]), file=sys.stderr)
"""

FULL_DISK = """\
import tasks.noise.task
measure, measured = tasks.noise.task.measure, []
def full(*arguments, **options):
    measured.append(arguments)
    if len(measured) > 2:
        raise OSError(28, "No space left on device")
    return measure(*arguments, **options)
tasks.noise.task.measure = full
"""


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory, settle: Callable[[Path], User]) -> User:
    """Give a user whose releases need no server."""
    user = settle(tmp_path_factory.mktemp("plain"))
    user.spec(budget=CAP)
    return user


def plain(user: User, *arguments: str, ask: str = ASK) -> tuple[int, bool, str]:
    """Run a command in a cold process; return its exit code, whether it imported Prefect, and what it printed."""
    kept = {name: of for name, of in user.environment.items() if not name.startswith("PREFECT_")}
    done = subprocess.run(
        [sys.executable, "-c", ask, *arguments], cwd=user.folder, env=os.environ | kept, capture_output=True, text=True
    )
    code, prefect = json.loads(done.stderr.splitlines()[-1])
    return code, prefect, done.stdout


def last(user: User) -> dict:
    """Return the newest release, as `releases` lists it."""
    found = user.run("releases", "--json").json()["releases"][-1]
    assert isinstance(found, dict)
    return found


def test_a_release_without_a_server_is_like_any_other(user: User) -> None:
    """It is published, verified, charged and listed; it says that the UI has none of it, and Prefect is not even imported."""
    code, prefect, said = plain(user, "release", "spec.yaml", "--no-server", "--json")
    made = json.loads(said)
    assert (code, prefect, made["state"]) == (0, False, "published")
    assert not (user.folder / "home" / "prefect").exists()
    assert user.run("verify", made["folder"], "--json").json()["ok"]
    assert user.run("audit", "--json").json()["ok"]
    (account,) = user.run("ledger", "--json").json()["datasets"]
    assert account["releases"][-1]["release"] == made["id"]
    assert (last(user)["id"], last(user)["in_ui"]) == (made["id"], False)
    assert "published, not in the UI" in user.run("releases").stdout
    assert "the UI does not list it" in user.run("show", made["id"]).stdout


@pytest.mark.thorough
def test_the_spec_may_say_so(user: User) -> None:
    """With run.prefect off no option is needed, and with the option of the command a server is used all the same."""
    user.spec("plain.yaml", name="plain", budget=CAP, run={"prefect": False})
    assert plain(user, "release", "plain.yaml", "--json")[:2] == (0, False)
    assert last(user)["in_ui"] is False
    assert user.run("release", "plain.yaml", "--server", "--json").code == 0
    assert last(user)["in_ui"] is True
    assert "not in the UI" not in user.run("releases").stdout.splitlines()[-1]


@pytest.mark.thorough
def test_a_release_that_failed_is_continued_without_a_server(user: User) -> None:
    """The disk is full at the third level; then only what is missing runs, and nothing is charged again."""
    user.spec("stopped.yaml", name="stopped", budget=CAP)
    code, prefect, said = plain(user, "release", "stopped.yaml", "--no-server", "--json", ask=FULL_DISK + ASK)
    assert (code, prefect) == (1, False)
    assert "is full" in json.loads(said)["error"]
    stopped = last(user)
    sealed = user.run("show", stopped["id"], "--json").json()["seals"]
    assert (stopped["state"], [seal["level"] for seal in sealed]) == ("failed", [0, 1, 2])
    spent = user.run("ledger", "--json").json()["datasets"][0]["spent"]
    code, prefect, said = plain(user, "rerun", stopped["id"], "--no-server", "--json")
    assert (code, prefect, json.loads(said)["state"]) == (0, False, "published")
    assert user.run("ledger", "--json").json()["datasets"][0]["spent"] == spent
    shown = user.run("show", stopped["id"], "--json").json()
    assert [seal for seal in shown["seals"] if seal in sealed] == sealed
    assert shown["in_ui"] is False
    assert user.run("audit", "--json").json()["ok"]
