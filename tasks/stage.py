"""The stages of a release: each is a Prefect task, and runs without Prefect too.

Nothing confidential reaches Prefect, and the running time is measured. Prefect is imported when a stage is first submitted to it.
"""

import functools
import importlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, ParamSpec

from storage.errors import public_errors
from storage.machine.caller import hear_as, is_heard
from storage.machine.locks import check_going_on
from tasks.capacity import cores

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


_workers: ProcessPoolExecutor | None = None


@contextmanager
def in_processes() -> Iterator[None]:
    """Run the stages that are submitted inside in processes of their own, one per core; the shards are the same."""
    global _workers
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(cores(), context, _begin_worker, (is_heard(),)) as _workers:
        try:
            yield
        finally:
            _workers = None


def _begin_worker(heard: bool) -> None:
    """Set up a worker: print where its parent prints, ignore Ctrl-C, create private files, and end with the parent."""
    hear_as(heard)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.umask(0o077)

    def wait() -> None:
        parent = multiprocessing.parent_process()
        if parent:
            parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _run_by_name(module: str, name: str, args: tuple[Any, ...]) -> Any:
    """Run a stage in a worker, which knows it by its name."""
    task = getattr(importlib.import_module(module), name)
    return task.fn(*args)


@dataclass(frozen=True)
class Stage(Generic[P]):
    """A stage of a release.

    Attributes:
        fn: runs it, without Prefect. What it raises may be shown.
        name: its name in Prefect.
        run_name: the name of its task runs, for people; a template of its arguments.
    """

    fn: Callable[P, Outcome]
    name: str
    run_name: str

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
        """Submit it to the task runner of the flow run that calls."""
        return self.task.submit(*args, **kwargs)


def stage(run_name: str) -> Callable[[Callable[P, Any]], Stage[P]]:
    """Make a function a stage. Its first argument is the release, which may have been asked to stop.

    Args:
        run_name: the name of its task runs, for people; a template of its arguments.
    """

    def make(function: Callable[P, Any]) -> Stage[P]:
        stage = function.__module__.split(".")[1]

        @functools.wraps(function)
        def timed(*args: P.args, **kwargs: P.kwargs) -> Outcome:
            if _workers:
                done: Outcome = _workers.submit(_run_by_name, function.__module__, function.__name__, args).result()
                return done
            check_going_on(str(args[0]))
            began = time.thread_time()
            value = function(*args, **kwargs)
            return Outcome(stage, value, time.thread_time() - began)

        return Stage(public_errors(timed), function.__name__, run_name)

    return make
