"""What all tests share: hypothesis and noise without chance, small universes, the country, its users and their server."""

import os

os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # before numpy: idle threads of two workers spin

import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from storage.database.connections import store
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country

pytest.register_assert_rewrite("tests.support")

from tests.support import universe  # noqa: E402 (after the line before, or its asserts would not say why they fail)
from tests.support.library import Library, shared_place  # noqa: E402
from tests.support.postgresql import running  # noqa: E402
from tests.support.processor_time import ProcessorTime  # noqa: E402
from tests.support.seeded_bits import seed_bits_of  # noqa: E402
from tests.support.server import Prefect, copy_database, shared_server  # noqa: E402
from tests.support.user import User  # noqa: E402

# what Trellis and others keep in the user's cache stays in the checkout
os.environ["XDG_CACHE_HOME"] = str(Path(__file__).parent.parent / "build" / "cache")

settings.register_profile("test", derandomize=True, deadline=None, max_examples=30)
settings.register_profile("thorough", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("test")


def pytest_configure(config):
    """Hold the run to its budget, and let `make test-all` look further."""
    config.pluginmanager.register(ProcessorTime(), "processor_time")
    if "not thorough" not in config.option.markexpr:
        settings.load_profile("thorough")  # twice as many examples


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Leave nothing to chance, in shared fixtures neither."""
    seed_bits_of(item)


def pytest_xdist_auto_num_workers(config):
    """Return two workers for a folder of tests, and none for single files, which would wait for them."""
    return 2 if any(Path(argument).is_dir() for argument in config.args) else 0


@pytest.fixture(scope="session", autouse=True)
def _home(tmp_path_factory):
    """Let what names no other TRELLIS_HOME have one of this run: nobody's own store is read, and none is changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(tmp_path_factory.mktemp("nobody") / "home"))
        yield


@pytest.fixture
def own_home(tmp_path, monkeypatch):
    """Give a test a store of its own, in its own folder, and return where."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def con(own_home):
    """Open a store in which nothing has happened."""
    with store() as opened:
        yield opened


@pytest.fixture(scope="module")
def _ctrl_c_interrupts():
    """Let SIGINT interrupt also where the tests run in a shell's background, in which it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """Return the published folders that all tests share; each is made when a test first asks for it."""
    return Library(shared_place(tmp_path_factory.getbasetemp()))


@pytest.fixture(scope="session")
def axis_of():
    """Return the maker of an axis from paths of codes."""
    return universe.axis_of


@pytest.fixture(scope="session")
def universe_of():
    """Return the maker of a universe from the paths of each axis and the order of refinement."""
    return universe.universe_of


@pytest.fixture(scope="session")
def codebooks():
    """Return a strategy for the sorted paths of one axis."""
    return universe.codebooks(4, 12)


@pytest.fixture(scope="session")
def universes():
    """Return a strategy for universes of one to three axes, refined in any order."""
    return universe.universes()


@pytest.fixture(scope="session")
def prefect(tmp_path_factory):
    """Hold a Prefect server open for all commands: one for all workers, started by the first that needs it."""
    together = tmp_path_factory.getbasetemp()
    with shared_server(together.parent if "PYTEST_XDIST_WORKER" in os.environ else together) as shared:
        yield shared


@pytest.fixture(scope="session")
def country(tmp_path_factory):
    """Return the folder with the tables of a small made-up country."""
    folder = tmp_path_factory.mktemp("country")
    drawn = draw_country(regions=2, provinces=4, municipalities=12, people=500, generator=np.random.default_rng(7))
    write_country(drawn, folder)
    return folder


@pytest.fixture(scope="session")
def settle(country, prefect):
    """Return what settles a user in a folder, with the tables of the country and a spec, beneath the shared server."""

    def settle_in(folder):
        shutil.copytree(country, folder / "data")
        User(folder, prefect).spec()
        return User(folder, prefect)

    return settle_in


@pytest.fixture
def newcomer(tmp_path, settle):
    """Return a user who has not released anything."""
    return settle(tmp_path)


@pytest.fixture
def loner(newcomer):
    """Return a user without a server, who has had one before: its database is there, and need not be made again."""
    home = newcomer.folder / "home" / "prefect"
    home.parent.mkdir(mode=0o700)
    copy_database(newcomer.prefect, home)
    return replace(newcomer, prefect=Prefect(home, {}))


@pytest.fixture(scope="session")
def postgres():
    """Hold a PostgreSQL server open."""
    with running() as server:
        yield server


@pytest.fixture(scope="session")
def real_data():
    """Return TRELLIS_DATA, the folder of the real tables."""
    folder = Path(os.environ.get("TRELLIS_DATA") or "/TRELLIS_DATA is not set").absolute()
    if not (folder / "lodes_ri_2019").is_dir():
        pytest.skip(f"no real data: there is no {folder / 'lodes_ri_2019'}")
    return folder
