"""A unit test makes no release and starts no process: one that does fails here."""

import sys

import pytest

PROCESSES = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "os.exec"}

_watched = []  # the unit test that runs now, if one does


def _refuse_processes(event, _):
    if _watched and event in PROCESSES:
        raise AssertionError(f"{_watched[0]} starts a process ({event}): it belongs to tests/end_to_end.")


sys.addaudithook(_refuse_processes)  # Python keeps it until the process ends


def _refuse_releases(*_):
    raise AssertionError("A unit test makes no release: this one belongs to tests/releases.")


@pytest.fixture(autouse=True)
def _in_this_process_without_a_release(request, monkeypatch):
    """Refuse each process and each release, finished release and rehearsal of a unit test."""
    monkeypatch.setattr("flows.run.driver.running", _refuse_releases)
    _watched.append(request.node.nodeid)
    yield
    _watched.clear()
