"""The workers of a cluster as home sees them: who is there, whether it would draw and compute the same, who may be asked, who works, and who has gone."""

import hashlib
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from threading import Event, Lock
from typing import Any

from storage.errors import StoreError
from tasks.tree.branches import top_branch

_PACKAGE = re.compile(r"[A-Za-z0-9._-]+")
_HOUSE = Path(__file__).parents[2]
_ROOMS = ("flows", "tasks", "storage")


@cache
def facts() -> dict[str, Any]:
    """Return the version of Trellis and the hash of its code, the minor version of Python, and the versions of the packages beneath."""
    return {
        "trellis": version("trellis"),
        "code": _code(),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "packages": dict(sorted(_packages())),
    }


def difference(here: dict[str, Any], there: dict[str, Any]) -> str:
    """Return in what another machine differs from this one, in words; nothing where it does not."""
    for fact, words in (("trellis", "Trellis"), ("python", "Python")):
        if here[fact] != there.get(fact):
            return f"has {words} {there.get(fact)}, and home has {here[fact]}"
    for package, of_home in here["packages"].items():
        other = there.get("packages", {}).get(package, "none")
        if other != of_home:
            return f"has {package} {other}, and home has {of_home}"
    return "" if here["code"] == there.get("code") else "runs other code of Trellis than home"


def _code() -> str:
    digest = hashlib.sha256()
    for room in _ROOMS:
        for path in sorted((_HOUSE / room).rglob("*.py")):
            digest.update(f"{path.relative_to(_HOUSE)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _packages() -> list[tuple[str, str]]:
    """Return the packages that Trellis needs on a cluster, with their versions; one that is not installed has `none`."""
    versions = []
    for requirement in requires("trellis") or ():
        needed, _, condition = requirement.partition(";")
        if "extra" in condition and "dask" not in condition:
            continue
        package = _PACKAGE.match(needed.strip())
        if package:
            try:
                versions.append((package[0], version(package[0])))
            except PackageNotFoundError:
                versions.append((package[0], "none"))
    return versions


_LOOK_AGAIN = 0.5  # seconds after which somebody who waits for a worker looks whether the release goes on


@dataclass(slots=True)
class _Worker:
    """A worker.

    Attributes:
        seen: when the scheduler last heard of the worker, by its own clock.
        since: when that changed last, by the clock of home.
    """

    seen: float
    since: float
    busy: bool
    gone: Event


@dataclass(slots=True, eq=False)
class _Waiting:
    """An order that waits for a worker, or has one.

    Attributes:
        branch: of the trunk, in which it is.
        address: of its worker, once it has one.
        is_given: set then.
    """

    branch: str
    address: str = ""
    worker: _Worker | None = None
    is_given: Event = field(default_factory=Event)


class Pool:
    """The workers that home has checked.

    Args:
        lost_after: seconds of silence after which a worker is lost.
        patience: seconds for which an order waits where there is no worker at all.
        clock: of home, seconds.
    """

    def __init__(self, lost_after: float, patience: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._lost_after, self._patience, self._clock = lost_after, patience, clock
        self._workers: dict[str, _Worker] = {}
        # lost though the scheduler still lists them, and when it last heard of them
        self._silent: dict[str, float] = {}
        self._last: dict[str, str] = {}  # by branch of the trunk, who had it last
        self._waiting = list[_Waiting]()  # the longest first
        self._lock = Lock()
        self._alone_since = clock()

    def __len__(self) -> int:
        return len(self._workers)

    def strangers(self, listed: Mapping[str, float]) -> list[str]:
        """Return the addresses of workers that have to be checked before they are asked.

        Args:
            listed: by address, when the scheduler last heard of a worker.
        """
        with self._lock:
            return [
                address
                for address, seen in listed.items()
                if address not in self._workers and self._silent.get(address) != seen
            ]

    def update(self, listed: Mapping[str, float], checked: list[str]) -> None:
        """Learn who is there.

        Args:
            listed: as in `strangers`.
            checked: the strangers that may be asked.
        """
        now = self._clock()
        with self._lock:
            for address in checked:
                self._silent.pop(address, None)
                if address not in self._workers:  # it may have an order already
                    self._workers[address] = _Worker(listed[address], now, False, Event())
            for address, worker in list(self._workers.items()):
                if address in listed and listed[address] != worker.seen:
                    worker.seen, worker.since = listed[address], now
                if address not in listed or now - worker.since > self._lost_after:
                    self._lose(address)
            self._silent = {address: seen for address, seen in self._silent.items() if address in listed}
            if self._workers:
                self._alone_since = now
            self._share_out()

    def lose(self, address: str) -> None:
        """Ask a worker nothing before the scheduler has heard of it again, and home has checked it again."""
        with self._lock:
            self._lose(address)

    def _lose(self, address: str) -> None:
        if worker := self._workers.pop(address, None):
            worker.gone.set()
            self._silent[address] = worker.seen

    @contextmanager
    def worker_for(self, branch: str, going_on: Callable[[], None]) -> Iterator[tuple[str, Event]]:
        """Yield the address of an idle worker, and what is set once it is lost.

        Who had the branch before has its shards. So the order waits for that worker, unless another one would have nothing else to do.

        Args:
            going_on: called again and again during the wait; an exception that it raises ends the wait.
        Raises:
            StoreError: there has been no worker for too long.
        """
        order = _Waiting(top_branch(branch))
        with self._lock:
            self._waiting.append(order)
            self._share_out()
        try:
            going_on()
            while not order.worker:
                self._check_not_alone()
                order.is_given.wait(_LOOK_AGAIN)
                going_on()
            yield order.address, order.worker.gone
        finally:
            with self._lock:
                if order.worker:
                    order.worker.busy = False
                else:
                    self._waiting.remove(order)
                self._share_out()

    def forget(self, branch: str) -> None:
        """Let the next order of a branch go to any worker, whoever had it last."""
        with self._lock:
            self._last.pop(top_branch(branch), None)

    def _share_out(self) -> None:
        """Give each idle worker the order that it does next."""
        for address, worker in self._workers.items():
            if not worker.busy and (order := self._next_of(address)):
                self._waiting.remove(order)
                worker.busy, self._last[order.branch] = True, address
                order.address, order.worker = address, worker
                order.is_given.set()

    def _next_of(self, address: str) -> _Waiting | None:
        """Return which of the waiting orders a worker does next: the first of a branch that it had last, or that nobody had who is
        there; or else the first of a branch whose worker is busy.
        """
        others = {other: worker.busy for other, worker in self._workers.items() if other != address}
        last = {order: self._last.get(order.branch, "") for order in self._waiting}
        own = (order for order in self._waiting if last[order] not in others)
        return next(own, None) or next((order for order in self._waiting if others.get(last[order])), None)

    def _check_not_alone(self) -> None:
        """Refuse to wait any longer where there has been no worker for too long."""
        with self._lock:
            is_alone = not self._workers and self._clock() - self._alone_since > self._patience
        if is_alone:
            raise StoreError(
                f"There has been no worker for {self._patience:g} seconds.",
                field="scheduler",
                hint="Start workers with `trellis worker`, or set run.workers to threads. Then run `trellis rerun`.",
            )
