"""The stages of a release: each is a Prefect task, and runs without Prefect too.

Nothing confidential reaches Prefect, and the running time is measured. Prefect is imported when a stage is first submitted to it.
"""

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from threading import BoundedSemaphore
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol

from storage.errors import public_errors
from storage.machine.locks import check_going_on
from tasks.work.capacity import cores
from tasks.work.order import Order

if TYPE_CHECKING:
    from prefect import Task
    from prefect.futures import PrefectFuture

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a stage returned, and the thread seconds that it took.

    Attributes:
        stage: the package of the stage: ingest, tree, noise, optimize, validate or publish.
    """

    stage: str
    value: Any
    seconds: float


class Remote(Protocol):
    """Where orders are carried out instead of in the thread that submits them."""

    @property
    def width(self) -> int:
        """How many orders are in hand at once."""

    @property
    def memory(self) -> int | None:
        """How many bytes the arrays of an order may take there; None where it is a share of this machine's."""

    @property
    def branches(self) -> int | None:
        """Into how many branches the trunk is cut, at most; None where that is as for threads."""

    def takes(self, order: Order) -> bool:
        """Return whether an order is carried out there; others are carried out here."""

    def run(self, order: Order) -> Outcome:
        """Carry out an order there, and wait for what comes of it. Several threads call it at once.

        Raises:
            WorkerLost: who carried it out has gone, or what came back is not what was promised.
            TrellisError: what the stage raised.
        """


_remote: Remote | None = None
_here: AbstractContextManager[object] = nullcontext()  # entered by what is carried out in this process


@contextmanager
def running_remotely(remote: Remote) -> Iterator[None]:
    """Carry out the orders that are submitted inside elsewhere, as far as that takes them; the rest here, on each core one."""
    global _remote, _here
    _remote, _here = remote, BoundedSemaphore(cores())
    try:
        yield
    finally:
        _remote, _here = None, nullcontext()


def width() -> int:
    """Return how many stages are submitted at once: one for each core, or as many as are in hand elsewhere."""
    return _remote.width if _remote else cores()


def memory_of_branch(memory: int) -> int:
    """Return how many bytes the arrays of a branch may take.

    Args:
        memory: of this machine, for all that is walked at once. What runs elsewhere leaves it to the trunk alone, which is cut
            by the same rule: so a branch takes no more than it either.
    """
    there = _remote.memory if _remote else None
    return memory // width() if there is None else min(there, memory)


def most_branches() -> int:
    """Return into how many branches the trunk is cut, at most; 0 where it is cut as for threads of this machine."""
    return (_remote and _remote.branches) or 0


@dataclass(frozen=True)
class Stage(Generic[P]):
    """A stage of a release.

    Attributes:
        fn: runs it, without Prefect. What it raises may be shown.
        run_name: the name of its task runs, for people; a template of its arguments.
        package: by which its seconds are counted.
    """

    fn: Callable[P, Outcome]
    name: str
    run_name: str
    package: str

    @cached_property
    def task(self) -> "Task[P, Outcome]":
        """The Prefect task, which stores no result and no key derived from its inputs."""
        from prefect import Task
        from prefect.cache_policies import NO_CACHE

        return Task(
            self.fn,
            name=self.name,
            task_run_name=self.run_name,
            cache_policy=NO_CACHE,
            persist_result=False,
            log_prints=False,
        )

    def submit(self, *args: P.args, **kwargs: P.kwargs) -> "PrefectFuture[Outcome]":
        """Submit it to the task runner of the flow run that calls. Prefect does not look into orders."""
        from prefect.utilities.annotations import opaque

        unread: Any = [opaque(value) if isinstance(value, Order) else value for value in args]
        return self.task.submit(*unread, **kwargs)


def stage(run_name: str, name: str = "", package: str = "") -> Callable[[Callable[P, Any]], Stage[P]]:
    """Make a function a stage. Its first argument is the release, which may have been asked to stop, or an order about it.

    Args:
        name: of the stage in Prefect; that of the function if left out.
        package: by which its seconds are counted; the one that holds its module if left out.
    """

    def make(function: Callable[P, Any]) -> Stage[P]:
        counted = package or function.__module__.split(".")[-2]
        named = name or function.__name__

        @functools.wraps(function)
        def timed(*args: P.args, **kwargs: P.kwargs) -> Outcome:
            order = args[0] if isinstance(args[0], Order) else None
            release_id = order.release_id if order else str(args[0])
            check_going_on(release_id)
            if _remote and order and _remote.takes(order):
                return _remote.run(order)
            with _here:
                check_going_on(release_id)  # it may have waited
                began = time.thread_time()
                value = function(*args, **kwargs)
                return Outcome(counted, value, time.thread_time() - began)

        timed.__name__ = named
        return Stage(public_errors(timed), named, run_name, counted)

    return make
