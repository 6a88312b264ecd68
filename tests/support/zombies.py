"""A worker that is stopped with its shard open, counts as lost, and wakes when another turn is sealed.

This file is also the program of the worker.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np

import storage.counts.shards
import tasks.noise.task
import tasks.noise.truth
import tasks.optimize.task
import tasks.tree.job
from flows.mechanisms import MECHANISMS
from flows.walks.orders import carry_out, stage_of
from storage.errors import WorkerLost
from storage.machine.files import beside
from tasks.laws.law import Sampling
from tasks.laws.samplers import discrete_gaussian
from tasks.order import Order
from tasks.stage import Outcome
from tasks.tree.axis import IntArray
from tests.support.draws import CHUNK_CELLS, Place
from tests.support.laws import drawn_by
from tests.support.user import REPOSITORY


def write_as_before_turns(set_to: Callable[[Any, str, Any], None]) -> None:
    """Let shards have names without turns, and be written beside their names and renamed, as they were once."""

    def one_name(level: int, branch: str, turn: int = 0) -> str:
        return f"level_{level}_{branch}.noisy"

    for module in (storage.counts.shards, tasks.noise.task, tasks.optimize.task, tasks.tree.job):
        set_to(module, "noisy_name", one_name)
    set_to(storage.counts.shards, "put_new", beside)


class Zombie:
    """Carries out the first turn of a place in a worker that stops halfway; everything else is taken at home.

    Attributes:
        width: as many as at home; so are memory and branches.
        worker: once it has begun.
    """

    memory: None = None
    branches: None = None

    def __init__(self, place: Place, *, before_turns: bool) -> None:
        self.width, self.place, self.before_turns = 2, place, before_turns
        self.worker: subprocess.Popen[str] | None = None

    def takes(self, order: Order) -> bool:
        """Return whether it is the first turn of the place."""
        is_of_place = (order.level, order.branch) == self.place
        return order.stage == "measure_branch" and is_of_place and self.worker is None

    def run(self, order: Order) -> Outcome:
        """Begin a worker, and lose it once it has stopped."""
        said = json.dumps({"order": order.to_json(), "before_turns": self.before_turns})
        self.worker = subprocess.Popen(
            [sys.executable, "-m", "tests.support.zombies", said], env=os.environ | {"PYTHONPATH": str(REPOSITORY)}
        )
        _, status = os.waitpid(self.worker.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        raise WorkerLost("It does not answer.")

    def wake(self) -> int:
        """Let the worker go on, and return its exit code."""
        assert self.worker
        self.worker.send_signal(signal.SIGCONT)
        return self.worker.wait(120)


def work(said: str) -> None:
    """Carry out an order, and stop at the second call of the sampler, when the shard is open and has a part."""
    told, calls = json.loads(said), count(1)

    def sample(true_counts: IntArray, scale: float) -> IntArray:
        if next(calls) == 2:
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(1)  # the stop is not immediate: without a pause, this thread might write on
        return np.asarray(discrete_gaussian(true_counts, scale))

    MECHANISMS["inftda"] = drawn_by("inftda", {"opendp": Sampling(sample)})
    tasks.noise.truth.CHUNK_CELLS = CHUNK_CELLS
    if told["before_turns"]:
        write_as_before_turns(setattr)
    order = Order.from_json(told["order"])
    stage_of(order).fn(order, carry_out)


if __name__ == "__main__":
    work(sys.argv[1])
