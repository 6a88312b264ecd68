"""What somebody in front of a terminal sees of a release: what begins, at once, and bars in the order of the levels."""

import os
import pty
import re

import pytest

from tests.support.user import TRELLIS, User

# Says in the terminal when a package is imported that takes its time.
TELLING = """
import sys
class Telling:
    def find_spec(self, name, path=None, target=None):
        if name in {"numpy", "polars", "prefect", "opendp"}:
            print(f"[imports {name}]", file=sys.stderr, flush=True)
sys.meta_path.insert(0, Telling())
"""


def watched(user: User, *arguments: str) -> str:
    """Run a command in a terminal, and return all that it showed."""
    (user.folder / "telling").mkdir()
    (user.folder / "telling" / "sitecustomize.py").write_text(TELLING)
    own = {"COLUMNS": "100", "TERM": "xterm", "PYTHONPATH": str(user.folder / "telling")}
    shown = b""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(user.folder)
        os.execve(TRELLIS, ["trellis", *arguments], user.environment | own)  # noqa: S606
    while True:
        try:
            shown += os.read(terminal, 2**16)
        except OSError:  # the other end is closed
            break
    os.close(terminal)
    _, status = os.waitpid(process, 0)
    assert os.waitstatus_to_exitcode(status) == 0, shown
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())


@pytest.mark.thorough
@pytest.mark.heavy("a cold release with a server")
def test_a_release_says_at_once_what_begins_and_ends_with_bars_in_the_order_of_the_levels(newcomer: User) -> None:
    """Before anything slow is imported, and then step by step; at the end there is a bar for each level, coarse to fine."""
    shown = watched(newcomer, "release", "spec.yaml")
    steps = ["planning the release of spec.yaml …", "[imports ", "reading trips.csv …", "starting Prefect's server …"]
    places = [shown.index(step) for step in [*steps, "making "]]
    assert places == sorted(places)
    last = "".join(shown.rpartition("level  0")[1:])
    bars = re.findall(r"level +(\d+) .*? ([\d,]+) of +([\d,]+) cells", last)
    assert [int(level) for level, _, _ in bars] == list(range(7))
    assert all(done == known for _, done, known in bars)
    assert any("," in known for _, _, known in bars) == any(int(known.replace(",", "")) > 999 for _, _, known in bars)
