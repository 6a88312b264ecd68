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
