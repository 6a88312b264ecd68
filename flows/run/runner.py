"""What a caller gives the driver: a function that runs stages and one that receives progress; threads and Prefect both fit."""

from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from threading import Event
from typing import Any, Protocol, TypeVar

from storage.machine.locks import ask_to_stop

T = TypeVar("T")

_LOOK_EVERY = 0.2  # seconds


class Future(Protocol):
    """What `submit` returns: concurrent.futures and Prefect both have it."""

    def add_done_callback(self, function: Callable[[Any], None]) -> None:
        """Call a function with this future once it is done."""

    def result(self) -> Any:
        """Return what the stage returned, or raise what it raised."""


Submit = Callable[..., Future]  # submit(stage, *arguments)
Report = Callable[[int, int, int], None]  # report(level, cells measured, cells known to be measured)


def submit_to(executor: Executor) -> Submit:
    """Return a `submit` that runs stages on a plain executor, without Prefect."""

    def submit(stage: Any, *arguments: Any) -> Future:
        return executor.submit(stage.fn, *arguments)

    return submit


def result_of(release_id: str, future: Future) -> Any:
    """Return what a stage of a release returned; if a signal interrupts the wait, let the stage stop first."""
    done = Event()
    future.add_done_callback(lambda _: done.set())
    try:
        while not done.wait(_LOOK_EVERY):  # this thread sees a signal that another has caught only in between
            pass
    except BaseException:
        ask_to_stop(release_id)
        done.wait()
        raise
    return future.result()


def in_thread(release_id: str, work: Callable[[], T]) -> T:
    """Run some work on a release in a thread of its own and return its result: signals interrupt only the wait for it.

    After a signal the release is asked to stop, and the work ends in order before the interruption is raised again.
    """
    with ThreadPoolExecutor(1) as executor:
        done: T = result_of(release_id, executor.submit(copy_context().run, work))
    return done


def report_nothing(level: int, measured: int, known: int) -> None:
    """Report to nobody."""
