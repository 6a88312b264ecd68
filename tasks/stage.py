"""What every Prefect task here has in common: nothing confidential reaches Prefect, and its time is told."""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec

from prefect import Task
from prefect.cache_policies import NO_CACHE

from storage.errors import public_errors
from storage.running import check_going_on

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a stage returned, and the thread seconds that it took.

    Attributes:
        room: the room of the stage: ingest, tree, noise, optimize, validate or publish.
    """

    room: str
    value: Any
    seconds: float


def stage(run_name: str) -> Callable[[Callable[P, Any]], "Task[P, Outcome]"]:
    """Make a function a Prefect task whose runs are named for people.

    Its first argument is the release, which may have been asked to stop. The task stores no result and no key derived from its inputs, and what it raises may be shown.
    """

    def make(function: Callable[P, Any]) -> "Task[P, Outcome]":
        room = function.__module__.split(".")[1]

        @functools.wraps(function)
        def timed(*args: P.args, **kwargs: P.kwargs) -> Outcome:
            check_going_on(str(args[0]))
            began = time.thread_time()
            value = function(*args, **kwargs)
            return Outcome(room, value, time.thread_time() - began)

        return Task(
            public_errors(timed),
            name=function.__name__,
            task_run_name=run_name,
            cache_policy=NO_CACHE,
            persist_result=False,
            log_prints=False,
        )

    return make
