"""Budgets on the command line: rehearsals, refusals, raises, and whose people."""

import pytest


@pytest.fixture(scope="module")
def user(tmp_path_factory, settle):
    """Return a user who has released once."""
    user = settle(tmp_path_factory.mktemp("budget"))
    assert user.run("release", "spec.yaml", "--json").code == 0
    return user


def events(user):
    """Return how many events the ledger has."""
    return int(user.run("audit", "--json").json()["events"])


@pytest.mark.thorough
def test_a_rehearsal_leaves_nothing(user):
    """`release --dry-run` answers as a plan does, draws, reserves and keeps nothing, and refuses what a release would."""
    before = events(user), sorted(path.name for path in (user.folder / "home").rglob("*"))
    said = user.run("release", "spec.yaml", "--dry-run", "--json")
    assert (said.code, said.json()["dry_run"]) == (0, True)
    user.spec("dear.yaml", name="dear", privacy={"epsilon": 9.9})
    assert user.run("release", "dear.yaml", "--dry-run", "--json").code == 3
    (user.folder / "data" / "bad.csv").write_text("home,work,people\nnowhere,nowhere,3\n")
    user.spec("bad.yaml", name="bad", input={"table": "data/bad.csv"})
    for arguments, field in ((["bad.yaml"], "input.origin"), (["spec.yaml", "--output", "/proc/nowhere"], "output")):
        said = user.run("release", *arguments, "--dry-run", "--json")
        assert (said.code, said.json()["field"]) == (2, field)
    assert (events(user), sorted(path.name for path in (user.folder / "home").rglob("*"))) == before


def test_a_plan_tells_what_an_error_takes(user):
    """`plan --for` says which ε it takes that a level keeps within an error, rounded up for people; a spec with it has that bound."""
    wanted = user.run("plan", "spec.yaml", "--for", "province=60@95%", "--json").json()["for"]
    assert (wanted["level"], wanted["max_error"], wanted["confidence"]) == ("province", 60, 0.95)
    said = user.run("plan", "spec.yaml", "--for", "province=60@95%").stdout
    for epsilon in (wanted["epsilon"], float(said.split("takes ε = ")[1].split()[0])):
        user.spec("for.yaml", privacy={"epsilon": epsilon})
        bound = user.run("plan", "for.yaml", "--json").json()["levels"][4]["bound"]
        assert bound == pytest.approx(60, rel=1e-2)
        assert bound <= 60 * (1 + 1e-4)
    for wrong in ("county=60", "county=60@95%", "province=0.0000001@95%"):
        said = user.run("plan", "spec.yaml", "--for", wrong, "--json")
        assert (said.code, said.json()["field"]) == (2, "--for")


def test_the_cap_is_raised_for_a_reason(user):
    """Only upwards, only with a reason, recorded."""
    for dataset, epsilon, reason in (
        ("synthetic-country", "20", " "),
        ("synthetic-country", "9", "less"),
        ("no", "20", "a"),
    ):
        assert user.run("budget", "raise", dataset, "--epsilon", epsilon, "--reason", reason).code == 2
    before = events(user)
    said = user.run("budget", "raise", "synthetic-country", "--epsilon", "20", "--reason", "decree 7", "--json")
    assert (said.code, said.json()["cap"]["epsilon"]) == (0, 20)
    assert "only the new cap holds" in said.json()["statement"]
    (raised,) = user.run("ledger", "--json").json()["datasets"][0]["raises"]
    assert (raised["before"], raised["epsilon"], raised["reason"]) == (10, 20, "decree 7")
    assert "from 10 to 20: decree 7" in user.run("ledger").stdout
    assert events(user) == before + 1


@pytest.mark.thorough
def test_a_table_of_another_dataset_must_be_answered_for(user):
    """A second dataset with the same table is warned of in its plan, refused, and let in by either answer."""
    # What a second version of a dataset releases is charged to the first.
    user.spec("other.yaml", name="other", dataset="other-country")
    assert "synthetic-country" in user.run("plan", "other.yaml", "--json").json()["warnings"][0]
    said = user.run("release", "other.yaml", "--json")
    assert (said.code, said.json()["field"]) == (2, "input.table")
    assert "--different-people" in said.json()["hint"]
    user.spec("version.yaml", name="version", dataset="version-2", same_people_as="synthetic-country")
    assert user.run("release", "version.yaml", "--json").code == 0
    assert user.run("release", "other.yaml", "--different-people", "--json").code == 0
    assert user.run("plan", "other.yaml", "--json").json()["warnings"] == []
    one, other = user.run("ledger", "--json").json()["datasets"]
    assert user.run("ledger", "version-2", "--json").json()["datasets"] == [one]
    assert (one["same_people"], other["dataset"]) == (["version-2"], "other-country")
    assert {claim["dataset"] for claim in one["releases"]} == {"synthetic-country", "version-2"}
    assert other["releases"][0]["different_people_from"] == ["synthetic-country", "version-2"]
