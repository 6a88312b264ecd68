"""What somebody in front of a terminal sees of a release: what begins, at once, and bars in the order of the levels."""

import os
import pty
import re
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest

from tests.support.user import TRELLIS, User

SOON = 5.0  # seconds, on a machine that does other things too; measured: 0.3


def watched(user: User, *arguments: str) -> tuple[float, str]:
    """Run a command in a terminal; return when it first said something, in seconds, and all that it showed."""
    began, first, shown = monotonic(), 0.0, b""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(user.folder)
        os.execve(TRELLIS, ["trellis", *arguments], user.environment | {"COLUMNS": "100", "TERM": "xterm"})  # noqa: S606
    while True:
        try:
            piece = os.read(terminal, 2**16)
        except OSError:  # the other end is closed
            break
        first = first or monotonic() - began
        shown += piece
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 0, shown
    return first, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory, settle: Callable[[Path], User]) -> tuple[float, str]:
    """Watch a release."""
    return watched(settle(tmp_path_factory.mktemp("watched")), "release", "spec.yaml")


def test_what_begins_is_said_at_once(seen: tuple[float, str]) -> None:
    """Before anything slow is imported, and then step by step."""
    first, shown = seen
    assert first < SOON
    steps = ["planning the release of spec.yaml …", "reading trips.csv …", "starting Prefect's server …", "making "]
    places = [shown.index(step) for step in steps]
    assert places == sorted(places)


def test_bars_are_in_the_order_of_the_levels(seen: tuple[float, str]) -> None:
    """At the end there is one for each level, coarse to fine, with separators in its numbers."""
    bars = re.findall(
        r"level +(\d+) .*? ([\d,]+) of +([\d,]+) cells",
        seen[1].rpartition("level  0")[1] + seen[1].rpartition("level  0")[2],
    )
    assert [int(level) for level, _, _ in bars] == list(range(len(bars)))
    assert len(bars) == 7
    assert all(done == known for _, done, known in bars)
    assert any("," in known for _, _, known in bars) == any(int(known.replace(",", "")) > 999 for _, _, known in bars)
