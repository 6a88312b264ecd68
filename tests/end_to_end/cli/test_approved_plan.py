"""A plan that somebody approves, on the command line: the page, the release that is held to it, its refusals, and where it is kept."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.user import User


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory, settle: Callable[[Path], User]) -> User:
    """Give a user with a table and a spec."""
    return settle(tmp_path_factory.mktemp("approved"))


def test_a_plan_is_approved_released_and_kept(user: User) -> None:
    """`plan --html` writes a page; `release --approved-plan` takes it once, `rerun` and `show` keep it, and then it is refused with 3."""
    said = user.run("plan", "spec.yaml", "--html", "plan.html", "--json")
    planned = said.json()
    assert said.code == 0
    page = (user.folder / "plan.html").read_text()
    assert planned["approval"]["fingerprint"] in page
    assert "page: plan.html" in said.stderr
    rehearsed = user.run("release", "spec.yaml", "--approved-plan", "plan.html", "--dry-run", "--json")
    assert (rehearsed.code, rehearsed.json()["dry_run"]) == (0, True)
    made = user.run("release", "spec.yaml", "--approved-plan", "plan.html", "--no-server", "--json")
    assert made.code == 0, made.stderr
    release = made.json()["id"]
    assert user.run("rerun", release, "--no-server", "--json").code == 0
    shown = user.run("show", release, "--json").json()
    assert shown["approved_plan"] == {
        "fingerprint": planned["approval"]["fingerprint"],
        "made": planned["approval"]["made"],
    }
    assert user.run("show", release, "--approved-plan").stdout == page
    short = planned["approval"]["fingerprint"][:4]
    assert f"approved plan {short}" in user.run("show", release).stdout
    refused = user.run("release", "spec.yaml", "--approved-plan", "plan.html", "--no-server", "--json")
    answer = refused.json()
    assert (refused.code, answer["state"]) == (3, "refused")
    assert f"charged since: {release}" in answer["reason"]
    assert answer["left"]["epsilon"] > 0
    rehearsed = user.run("release", "spec.yaml", "--approved-plan", "plan.html", "--dry-run", "--json")
    assert rehearsed.code == 3
    assert len(user.run("ledger", "--json").json()["datasets"][0]["releases"]) == 1


def test_json_of_a_plan_is_an_approval_and_other_differences_end_with_2(user: User) -> None:
    """A plan's JSON on stdout is enough; an edited spec, a changed codebook and what is no plan are wrong input."""
    (user.folder / "plan.json").write_text(user.run("plan", "spec.yaml", "--json").stdout)
    events = user.run("audit", "--json").json()["events"]
    user.spec("edited.yaml", privacy={"epsilon": 3.0})
    said = user.run("release", "edited.yaml", "--approved-plan", "plan.json", "--no-server", "--json")
    assert (said.code, said.json()["field"]) == (2, "privacy.epsilon")
    assert "privacy.epsilon: 4 → 3" in said.json()["error"]
    assert "have it approved" in said.json()["hint"]
    codebook = user.folder / "data" / "codebook.csv"
    before = codebook.read_text()
    codebook.write_text(before + "r9,r9p9,r9p9m9\n")
    said = user.run("release", "spec.yaml", "--approved-plan", "plan.json", "--no-server", "--json")
    codebook.write_text(before)
    assert (said.code, said.json()["field"]) == (2, "hierarchy")
    assert "the codebook of origin: sha256" in said.json()["error"]
    damaged = json.loads((user.folder / "plan.json").read_text())
    damaged["approval"]["budget"]["cap"]["epsilon"] = 100.0
    (user.folder / "damaged.json").write_text(json.dumps(damaged))
    user.run("plan", "spec.yaml", "--html", "plan.html")
    page = (user.folder / "plan.html").read_text()
    (user.folder / "edited.html").write_text(page.replace("98.3 of 100 times", "50.1 of 100 times"))
    assert (user.folder / "edited.html").read_text() != page
    said = user.run("release", "spec.yaml", "--approved-plan", "edited.html", "--no-server", "--json")
    assert (said.code, said.json()["field"]) == (2, "--approved-plan")
    assert "was altered after it was made" in said.json()["error"]
    for wrong in ("damaged.json", "spec.yaml", "none.html"):
        said = user.run("release", "spec.yaml", "--approved-plan", wrong, "--no-server", "--json")
        assert (said.code, said.json()["field"]) == (2, "--approved-plan"), wrong
    assert user.run("audit", "--json").json()["events"] == events


def test_a_page_that_cannot_be_written_is_named(user: User) -> None:
    """A folder that does not exist is wrong usage, and nothing is left there."""
    said = user.run("plan", "spec.yaml", "--html", "nowhere/plan.html", "--json")
    assert (said.code, said.json()["field"]) == (2, "--html")
