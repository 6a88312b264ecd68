"""Workers of a cluster that have stopped themselves."""

import time
from collections.abc import Callable
from pathlib import Path

from tests.support.cluster import Machines


def wait_for(is_so: Callable[[], bool], words: str) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + 240
    while not is_so():
        assert time.monotonic() < deadline, words
        time.sleep(0.05)


def wait_until_stopped(machines: Machines) -> int:
    """Return the process of the worker that has stopped itself."""

    def found() -> list[int]:
        return [
            process.pid
            for name, process in machines.processes.items()
            if name.startswith("worker")
            and Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        ]

    wait_for(lambda: bool(found()), "no worker has stopped")
    return found()[0]
