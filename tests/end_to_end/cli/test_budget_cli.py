"""Budgets on the command line: rehearsals, refusals, raises, whose people, the audit, and what is forgotten."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flows.cli import main as cli

if TYPE_CHECKING:
    from tests.support.user import User


@pytest.fixture(scope="module")
def releaser(tmp_path_factory: pytest.TempPathFactory, settle: "Callable[[Path], User]") -> "User":
    """Return a user who has released once and kept the vault."""
    user = settle(tmp_path_factory.mktemp("budget"))
    text = (user.folder / "spec.yaml").read_text()
    (user.folder / "spec.yaml").write_text(f"{text}keep_vault: true\n")
    assert user.run("release", "spec.yaml", "--json").code == 0
    return user


@pytest.fixture
def user(releaser: "User", monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> "User":
    """Return that user, with commands that need no Prefect run in this process, which spares them their start."""
    monkeypatch.setenv("TRELLIS_HOME", str(releaser.folder / "home"))
    monkeypatch.chdir(releaser.folder)
    from tests.support.user import Said

    class Here(type(releaser)):
        def run(self, *arguments: str, **variables: str) -> Said:
            if arguments[0] == "release" and "--dry-run" not in arguments:
                return super().run(*arguments, **variables)
            capsys.readouterr()
            code = cli._run(list(arguments))
            return Said(code, *capsys.readouterr())

    return Here(releaser.folder, releaser.prefect)


def events(user: "User") -> int:
    """Return how many events the ledger has."""
    return int(user.run("audit", "--json").json()["events"])


@pytest.mark.thorough
def test_a_rehearsal_leaves_nothing(user):
    """`release --dry-run` answers as a plan does, draws, reserves and keeps nothing, and refuses what a release would."""
    before = events(user), sorted(path.name for path in (user.folder / "home").rglob("*"))
    said = user.run("release", "spec.yaml", "--dry-run", "--json")
    assert (said.code, said.json()["dry_run"]) == (0, True)
    assert said.json()["levels"][1]["sigma"] > 0
    user.spec("dear.yaml", name="dear", privacy={"epsilon": 9.9})
    assert user.run("release", "dear.yaml", "--dry-run", "--json").code == 3
    (user.folder / "data" / "bad.csv").write_text("home,work,people\nnowhere,nowhere,3\n")
    user.spec("bad.yaml", name="bad", input={"table": "data/bad.csv"})
    said = user.run("release", "bad.yaml", "--dry-run", "--json")
    assert (said.code, said.json()["field"]) == (2, "input.origin")
    assert (events(user), sorted(path.name for path in (user.folder / "home").rglob("*"))) == before
    assert "rehearsed" in user.run("release", "spec.yaml", "--dry-run").stdout
    said = user.run("release", "spec.yaml", "--dry-run", "--output", "/proc/nowhere", "--json")
    assert (said.code, said.json()["field"]) == (2, "output")


def test_a_plan_tells_what_an_error_takes(user):
    """`plan --for` says which ε it takes that a level keeps within an error; a spec with that ε has that bound."""
    answer = user.run("plan", "spec.yaml", "--for", "province=60@95%", "--json").json()
    wanted = answer["for"]
    assert (wanted["level"], wanted["max_error"], wanted["confidence"]) == ("province", 60, 0.95)
    user.spec("for.yaml", privacy={"epsilon": wanted["epsilon"]})
    bound = user.run("plan", "for.yaml", "--json").json()["levels"][4]["bound"]
    assert bound == pytest.approx(60, rel=1e-4)
    said = user.run("plan", "spec.yaml", "--for", "province=60@95%").stdout
    user.spec("said.yaml", privacy={"epsilon": float(said.split("takes ε = ")[1].split()[0])})
    assert user.run("plan", "said.yaml", "--json").json()["levels"][4]["bound"] <= 60
    for wrong in ("county=60", "county=60@95%", "province=0.0000001@95%"):
        said = user.run("plan", "spec.yaml", "--for", wrong, "--json")
        assert (said.code, said.json()["field"]) == (2, "--for")


def test_a_plan_says_what_is_noise(user):
    """The curve has five points, δ falling with ε, the stated one among them; the earlier release's total is known."""
    answer = user.run("plan", "spec.yaml", "--json").json()
    curve = answer["curve"]
    assert len(curve) == 5
    deltas = [point["delta"] for point in curve]
    assert deltas == sorted(deltas, reverse=True)
    assert next(point["delta"] for point in curve if point["epsilon"] == 4.0) <= 1e-8
    release = user.run("releases", "--json").json()["releases"][0]["id"]
    assert answer["typical"]["total"] == 500
    assert answer["typical"]["from"] == release
    above = [level["level"] for level in answer["levels"][1:] if level["typical_count"] >= 2 * level["sigma"]]
    assert answer["typical"]["finest_above_noise"] == max(above) < 6
    assert answer["levels"][2]["typical_count"] == 125


def test_a_refusal_names_an_epsilon_that_fits(user):
    """What a refusal says is left can be planned without being refused, and a little more cannot."""
    user.spec("dear.yaml", name="dear", privacy={"epsilon": 9.9})
    said = user.run("release", "dear.yaml", "--json")
    assert said.code == 3
    fits = said.json()["left"]["epsilon"]
    assert 4 < fits < 9.9
    for epsilon, refused in ((fits, False), (fits * 1.001, True)):
        user.spec("fits.yaml", name="fits", privacy={"epsilon": epsilon})
        budget = user.run("plan", "fits.yaml", "--json").json()["budget"]
        assert (budget["after"]["epsilon"] > budget["cap"]["epsilon"]) is refused


def test_the_cap_is_raised_for_a_reason(user):
    """Only upwards, only with a reason, recorded; both the first and the new budget may stand in specs then."""
    assert user.run("budget", "raise", "synthetic-country", "--epsilon", "20", "--reason", " ").code == 2
    assert user.run("budget", "raise", "synthetic-country", "--epsilon", "9", "--reason", "less").code == 2
    assert user.run("budget", "raise", "nobody", "--epsilon", "20", "--reason", "who").code == 2
    before = events(user)
    said = user.run("budget", "raise", "synthetic-country", "--epsilon", "20", "--reason", "decree 7", "--json")
    assert said.code == 0
    assert said.json()["cap"]["epsilon"] == 20
    assert "only the new cap holds" in said.json()["statement"]
    (raised,) = user.run("ledger", "--json").json()["datasets"][0]["raises"]
    assert (raised["before"], raised["epsilon"], raised["reason"]) == (10, 20, "decree 7")
    assert "from 10 to 20: decree 7" in user.run("ledger").stdout
    assert events(user) == before + 1
    for epsilon, code in ((10.0, 0), (20.0, 0), (15.0, 2)):
        user.spec("raised.yaml", budget={"epsilon": epsilon})
        assert user.run("plan", "raised.yaml", "--json").code == code
    assert user.run("audit", "--json").json()["ok"]


@pytest.mark.thorough
def test_a_table_of_another_dataset_must_be_answered_for(user):
    """A second dataset with the same table is warned of in its plan, refused, and let in by either answer."""
    user.spec("other.yaml", name="other", dataset="other-country")
    assert "synthetic-country" in user.run("plan", "other.yaml", "--json").json()["warnings"][0]
    said = user.run("release", "other.yaml", "--json")
    assert (said.code, said.json()["field"]) == (2, "input.table")
    assert "--different-people" in said.json()["hint"]
    user.spec("same.yaml", name="same", dataset="other-country", same_people_as="synthetic-country")
    assert user.run("release", "same.yaml", "--dry-run", "--json").json()["warnings"] == []
    assert user.run("release", "other.yaml", "--different-people", "--json").code == 0
    assert user.run("plan", "other.yaml", "--json").json()["warnings"] == []
    shutil.copy(user.folder / "data" / "trips.csv", user.folder / "data" / "more.csv")
    user.spec("more.yaml", name="more", input={"table": "data/more.csv"})
    assert user.run("release", "more.yaml", "--json").code == 0
    user.spec("again.yaml", name="again", dataset="other-country", input={"table": "data/more.csv"})
    assert user.run("plan", "again.yaml", "--json").json()["warnings"]  # what was said of one table holds for it alone
    datasets = user.run("ledger", "--json").json()["datasets"]
    assert datasets[1]["releases"][0]["different_people_from"] == ["synthetic-country"]
    assert [account["dataset"] for account in datasets] == ["synthetic-country", "other-country"]


@pytest.mark.thorough
def test_datasets_of_the_same_people_share_a_ledger(user):
    """What a second version of a dataset releases is charged to the first."""
    user.spec("version.yaml", name="version", dataset="version-2", same_people_as="synthetic-country")
    assert user.run("release", "version.yaml", "--json").code == 0
    one, other = (user.run("ledger", name, "--json").json() for name in ("synthetic-country", "version-2"))
    assert one == other
    assert one["datasets"][0]["same_people"] == ["version-2"]
    assert {claim["dataset"] for claim in one["datasets"][0]["releases"]} == {"synthetic-country", "version-2"}
    user.spec("stray.yaml", name="stray", dataset="version-2", same_people_as="other-country")
    assert user.run("plan", "stray.yaml", "--json").json()["field"] == "same_people_as"


def test_what_was_kept_is_forgotten(user):
    """`forget` deletes the vault that a release has kept, once, and says so."""
    release = user.run("releases", "--json").json()["releases"][0]["id"]
    vault = user.folder / "home" / "vault" / f"{release}.duckdb"
    assert vault.exists()
    assert user.run("forget", release, "--json").json()["deleted"] == ["vault"]
    assert not vault.exists()
    assert user.run("forget", release, "--json").json()["deleted"] == []
    assert user.run("abandon", release, "--json").code == 2


@pytest.mark.thorough
def test_the_audit_finds_a_store_that_was_set_back(user, tmp_path):
    """An older copy of the store does not know what the newest manifest saw; exit 1, with the position."""
    said = user.run("audit", str(user.folder / "out"), "--json")
    assert (said.code, said.json()["ok"], said.json()["first_bad"]) == (0, True, None)
    copy = tmp_path / "store.duckdb"
    shutil.copy(user.folder / "home" / "store.duckdb", copy)
    assert user.run("release", "spec.yaml", "--json").code == 0
    shutil.copy(copy, user.folder / "home" / "store.duckdb")
    said = user.run("audit", "--json")
    assert said.code == 1
    assert json.loads(said.stdout)["first_bad"]["position"] == said.json()["events"]
    assert "older copy" in user.run("audit").stdout
