"""What every Prefect task here has in common: nothing confidential reaches Prefect, and its time is told."""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from prefect import Task
from prefect.cache_policies import NO_CACHE

from storage.errors import StageFailed, TrellisError, kind_and_place

P = ParamSpec("P")
R = TypeVar("R")


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

    The task stores no result and no key derived from its inputs. What it raises is either public by construction (a
    TrellisError) or replaced by the kind and the place of the fault, since the text could hold a confidential value.
    """

    def make(function: Callable[P, Any]) -> "Task[P, Outcome]":
        room = function.__module__.split(".")[1]

        @functools.wraps(function)
        def timed(*args: P.args, **kwargs: P.kwargs) -> Outcome:
            began = time.thread_time()
            try:
                value = function(*args, **kwargs)
            except TrellisError as fault:
                failure: TrellisError = fault
            except Exception as fault:  # noqa: BLE001 (whatever it is, its text stays here)
                failure = StageFailed(f"{function.__name__} stopped: {kind_and_place(fault)}.")
            else:
                return Outcome(room, value, time.thread_time() - began)
            failure.__cause__ = failure.__context__ = None  # what it was raised from may quote the data
            raise failure.with_traceback(None)

        return Task(
            timed,
            name=function.__name__,
            task_run_name=run_name,
            cache_policy=NO_CACHE,
            persist_result=False,
            log_prints=False,
        )

    return make
