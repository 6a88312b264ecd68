"""A folder with tables of trips, for tests of what is read, what is kept of it, and what is refused."""

import pytest

from tests.support.tables import settled


@pytest.fixture
def place(tmp_path):
    """Return a folder of the test's own."""
    with settled(tmp_path) as place:
        yield place


@pytest.fixture(scope="module")
def anyplace(tmp_path_factory):
    """Return a folder for tests whose examples are many."""
    with settled(tmp_path_factory.mktemp("any")) as place:
        yield place


@pytest.fixture(scope="session")
def _refusing(tmp_path_factory):
    return tmp_path_factory.mktemp("refusing")


@pytest.fixture
def refusing(_refusing):
    """Return a folder that all refusals share, since none touches its store."""
    with settled(_refusing) as place:
        yield place
