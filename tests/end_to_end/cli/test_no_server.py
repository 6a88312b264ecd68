"""Releases without a Prefect server: the same files, ledger and rerun, nothing of Prefect, and plans that they are held to."""

import json
import os
import sys

from tests.support.processes import ran

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


def plain(user, *arguments, ask=ASK):
    """Run a command in a cold process; return its exit code, whether it imported Prefect, and what it printed."""
    kept = {name: of for name, of in user.environment.items() if not name.startswith("PREFECT_")}
    done = ran(sys.executable, "-c", ask, *arguments, cwd=user.folder, env=os.environ | kept)
    code, prefect = json.loads(done.stderr.splitlines()[-1])
    return code, prefect, json.loads(done.stdout)


def test_a_release_without_a_server_is_like_any_other(newcomer):
    """Where the disk is full at the third level it fails; then only what is missing runs, and nothing is charged again."""
    # It is published, verified, charged and listed; it says that the UI has none of it, and Prefect is not even imported. With
    # run.prefect off no option is needed, and with the option of the command a server is used all the same.
    user = newcomer
    user.spec(run={"prefect": False}, budget={"epsilon": 40.0})
    code, prefect, said = plain(user, "release", "spec.yaml", "--json", ask=FULL_DISK + ASK)
    assert (code, prefect, "is full" in said["error"]) == (1, False, True)
    (stopped,) = user.run("releases", "--json").json()["releases"]
    sealed = user.run("show", stopped["id"], "--json").json()["seals"]
    assert (stopped["state"], stopped["in_ui"], [seal["level"] for seal in sealed]) == ("failed", False, [0, 1, 2])
    (account,) = user.run("ledger", "--json").json()["datasets"]
    code, prefect, said = plain(user, "rerun", stopped["id"], "--no-server", "--json")
    assert (code, prefect, said["state"]) == (0, False, "published")
    assert not (user.folder / "home" / "prefect").exists()
    assert user.run("ledger", "--json").json()["datasets"][0]["spent"] == account["spent"]
    shown = user.run("show", stopped["id"], "--json").json()
    assert [seal for seal in shown["seals"] if seal in sealed] == sealed
    assert "published, not in the UI" in user.run("releases").stdout
    assert "the UI does not list it" in user.run("show", stopped["id"]).stdout
    assert user.run("verify", said["folder"], "--json").json()["ok"]
    assert user.run("release", "spec.yaml", "--server", "--json").code == 0
    assert user.run("releases", "--json").json()["releases"][-1]["in_ui"] is True
    assert user.run("audit", "--json").json()["ok"]


def test_a_plan_is_approved_released_and_kept(newcomer):
    """`plan --html` writes a page; `release --approved-plan` takes it once, `show` keeps it, and then it is refused with 3."""
    # A plan's JSON on stdout is enough; another spec, and a page that cannot be written, end with 2.
    user = newcomer
    said = user.run("plan", "spec.yaml", "--html", "plan.html", "--json")
    approval, page = said.json()["approval"], (user.folder / "plan.html").read_text()
    assert (said.code, approval["fingerprint"] in page, "page: plan.html" in said.stderr) == (0, True, True)
    (user.folder / "plan.json").write_text(said.stdout)
    held = ["--approved-plan", "plan.html", "--no-server", "--json"]
    user.spec("edited.yaml", privacy={"epsilon": 3.0})
    edited = user.run("release", "edited.yaml", "--approved-plan", "plan.json", "--no-server", "--json")
    assert (edited.code, edited.json()["field"]) == (2, "privacy.epsilon")
    assert "have it approved" in edited.json()["hint"]
    assert user.run("release", "spec.yaml", *held, "--dry-run").json()["dry_run"]
    made = user.run("release", "spec.yaml", *held)
    assert made.code == 0, made.stderr
    release = made.json()["id"]
    assert user.run("rerun", release, "--no-server", "--json").code == 0
    kept = {name: approval[name] for name in ("fingerprint", "made")}
    assert user.run("show", release, "--json").json()["approved_plan"] == kept
    assert user.run("show", release, "--approved-plan").stdout == page
    assert f"approved plan {approval['fingerprint'][:4]}" in user.run("show", release).stdout
    refused = user.run("release", "spec.yaml", *held)
    assert (refused.code, refused.json()["state"]) == (3, "refused")
    assert f"charged since: {release}" in refused.json()["reason"]
    assert user.run("release", "spec.yaml", *held, "--dry-run").code == 3
    assert len(user.run("ledger", "--json").json()["datasets"][0]["releases"]) == 1
    nowhere = user.run("plan", "spec.yaml", "--html", "nowhere/plan.html", "--json")
    assert (nowhere.code, nowhere.json()["field"]) == (2, "--html")
