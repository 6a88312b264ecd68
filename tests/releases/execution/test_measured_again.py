"""What a person is asked who runs the deployment of a spec again: whether the same people are to be measured once more."""

import pytest

from flows.api import release
from flows.release import SPECS, _question
from storage.database.connections import store, transaction
from storage.releases.register import open_run, set_state
from tests.support.office import ROWS
from tests.support.spec import SPEC


@pytest.fixture
def folder(fresh, monkeypatch):
    """Give the folder of specs that deployments may release."""
    monkeypatch.setenv(SPECS, str(fresh.folder))
    return fresh


def test_a_spec_that_was_released_is_asked_about(folder):
    """Whatever the table holds by now, and while the first release still runs; the question says what it would mean, and what to do."""
    folder.spec("first", "people.csv")
    assert _question("first.yaml", "a run") == ""
    made = release(folder.folder / "first.yaml").id
    for text in (ROWS, ROWS + "a0,b0\n"):
        (folder.folder / "people.csv").write_text("home,work\n" + text)
        question = _question("first.yaml", "a run")
        for words in (made, "a new measurement", "charged again", "Nothing was measured", "measure_again"):
            assert words in question
    with store() as con, transaction(con):
        set_state(con, made, "running")
    assert made in _question("first.yaml", "a run")
    with store() as con, transaction(con):
        open_run(con, "its own run", made)
    assert _question("first.yaml", "its own run") == ""  # Retry


def test_another_release_is_not_asked_about(folder):
    """An edited spec asks for something else, a schedule for a release of its day, and a revision says what it replaces."""
    spec = folder.spec("first", "people.csv")
    release(spec)
    assert _question("first.yaml", "a run")
    for more in (
        {"privacy": SPEC["privacy"] | {"epsilon": 0.5, "delta": 1e-6, "accountant": "zcdp"}},
        {"schedule": {"cron": "0 3 1 * *"}},
        {"supersedes": "first-20260101T000000Z"},
    ):
        folder.spec("first", "people.csv", **more)
        assert _question("first.yaml", "a run") == ""


def test_what_is_wrong_with_a_spec_is_told_by_the_run(folder):
    """A spec that is missing, or outside the folder, is no question."""
    for spec in ("missing.yaml", "../outside.yaml"):
        assert _question(spec, "a run") == ""
