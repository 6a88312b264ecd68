"""Orders carried out in processes of this machine, one per core."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from threading import Lock

from storage.errors import WorkerLost
from storage.machine.caller import may_print, print_as
from tasks.steps import STAGES, may_travel
from tasks.work.capacity import cores
from tasks.work.order import Order
from tasks.work.stage import Outcome, running_remotely


@contextmanager
def in_processes() -> Iterator["Processes"]:
    """Carry out the orders that are submitted inside in processes, one per core; the shards are the same."""
    processes = Processes(cores())
    try:
        with running_remotely(processes):
            yield processes
    finally:
        processes.workers.shutdown()


class Processes:
    """A pool of `width` processes, which wait for something to do."""

    memory: None = None  # what they may take is a share of this machine's
    branches: None = None  # the trunk is cut as for threads

    def __init__(self, width: int) -> None:
        self.width = width
        self.workers = self._begun()
        self._lock = Lock()

    def takes(self, order: Order) -> bool:
        """Return whether an order is carried out there: any that may travel, since they have the store."""
        return may_travel(order.kind)

    def run(self, order: Order) -> Outcome:
        """Carry out an order in a process; arguments and errors are those of `Remote.run`."""
        return self.run_in(self.workers, order)

    def run_in(self, workers: ProcessPoolExecutor, order: Order) -> Outcome:
        """Carry out an order in one of these processes. Others take their place once one of them has ended."""
        try:
            return workers.submit(_carry_out_here, order.to_json()).result()
        except BrokenProcessPool:  # all of them end once one has
            with self._lock:
                if self.workers is workers:
                    workers.shutdown(wait=False)
                    self.workers = self._begun()
            raise WorkerLost("A worker process ended before its time.") from None

    def _begun(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.width, get_context("spawn"), _begin_worker, (may_print(),))


def _carry_out_here(text: str) -> Outcome:
    """Carry out an order in a worker, as it is carried out at home."""
    order = Order.from_json(text)
    return STAGES[order.kind].fn(order)


def _begin_worker(heard: bool) -> None:
    """Set up a worker: print where its parent prints, ignore Ctrl-C, create private files, and end with the parent."""
    print_as(heard)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.umask(0o077)

    def wait() -> None:
        parent = multiprocessing.parent_process()
        if parent:
            parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
