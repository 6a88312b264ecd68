"""Who comes to a cluster while a release runs: home lets nobody in unchecked, and waits for nobody."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

import flows.cluster.cluster
from flows.cluster.cluster import Cluster
from storage.errors import SpecError
from storage.mailbox.places import open_place


@dataclass
class Door:
    """A connection to a cluster of which a test says who is there, and what checking a worker does."""

    place: Any
    beats: dict[str, float]
    how: dict[str, Callable[[], None]] = field(default_factory=dict)
    checked: list[str] = field(default_factory=list)
    file: Any = field(
        default_factory=lambda: SimpleNamespace(memory_per_worker=10**9, lost_after=0.4, wait_for_worker=60)
    )

    def check_alive(self):
        """Say that the scheduler is there."""

    def listed(self):
        """Return who is there; all of them have been heard of just now."""
        self.beats = {address: time.monotonic() for address in self.beats}
        return dict(self.beats)

    def remove_probes(self):
        """Note that what open probes have left is removed."""
        self.checked.append("probes removed")

    def check(self, addresses):
        """Check workers."""
        self.checked += addresses
        for address in addresses:
            self.how.get(address, lambda: None)()


@pytest.fixture
def door(tmp_path):
    """Return a cluster of one worker."""
    (tmp_path / "mailbox").mkdir(mode=0o700)
    return Door(open_place(f"file://{tmp_path / 'mailbox'}"), {"tls://first": 0.0})


@pytest.fixture
def cluster(door):
    """Watch the cluster."""
    cluster = Cluster(door, door.listed())  # type: ignore[arg-type]
    yield cluster
    cluster.end()


def wait_for(is_so):
    """Wait until something is so, ten seconds at most."""
    until = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_newcomer_that_hangs_costs_nobody_anything(door, cluster, monkeypatch):
    """While one does not answer, who is there stays, and others are let in; so is it, once it does."""
    # It holds the end of a release up for a moment alone, and its probe is removed.
    monkeypatch.setattr(flows.cluster.cluster, "_END_CHECKS_WITHIN", 0.1)
    answers, never = Event(), Event()
    for address, event in (("tls://hung", answers), ("tls://silent", never)):
        door.how[address] = lambda event=event: event.wait(20)
        door.beats |= {address: 0.0}
    wait_for(lambda: {"tls://hung", "tls://silent"} <= {*door.checked})
    door.beats |= {"tls://next": 0.0}
    wait_for(lambda: len(cluster._pool) == 2)
    time.sleep(3 * door.file.lost_after)
    assert len(cluster._pool) == 2
    assert door.checked.count("tls://hung") == 1
    answers.set()
    wait_for(lambda: len(cluster._pool) == 3)
    cluster.end()
    assert door.checked[-1] == "probes removed"
    never.set()


@pytest.mark.parametrize(
    "fault", [OSError(28, "No space left on device"), SpecError("It has another key.", field="key")]
)
def test_a_newcomer_that_cannot_be_checked_is_asked_nothing(fault, door, cluster, capsys):
    """Whatever its check raises, home goes on watching, and says who is left out."""

    def refuse():
        raise fault

    door.how["tls://bad"] = refuse
    door.beats |= {"tls://bad": 0.0}
    wait_for(lambda: "tls://bad" in door.checked)
    door.beats |= {"tls://next": 0.0}
    wait_for(lambda: len(cluster._pool) == 2 and door.checked.count("tls://bad") > 2)
    assert capsys.readouterr().err.count("the worker tls://bad is not asked") == 1
    assert cluster._fault is None


def test_the_parts_of_a_mailbox_are_those_of_homes(door, monkeypatch, tmp_path):
    """Two homes that share a mailbox have a part each, and one home has always the same."""
    names = list[str]()
    for home in ("one", "two", "one"):
        monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / home))
        names.append(flows.cluster.cluster.namespace_of_home(door.place).name)
    assert names[0] == names[2] != names[1]
