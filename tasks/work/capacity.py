"""What this machine has: cores and memory, as far as this process may use them; and work shared out among threads."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from storage.releases.terms import RunTerms

R = TypeVar("R")
T = TypeVar("T")

ROWS_OF_A_SLICE = 2**16  # that are worth a slice

_SLICES = 4  # that a thread works on, one after the other

_MEMORY_OF_CONTAINER = Path("/sys/fs/cgroup/memory.max")  # bytes, or `max`
_PART_OF_MEMORY = 4  # a release takes a quarter, unless its spec says otherwise


def cores() -> int:
    """Return how many cores this process may use, at least one: as many branches are walked at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_slices(rows: int, work: Callable[[slice], T]) -> list[T]:
    """Return what some work gives for consecutive slices of rows, in their order, worked out by a thread per core where there are many rows.

    There are several slices for each thread, so that all of them end at about the same time.

    Args:
        work: what it gives does not depend on how the rows are cut, once it is put together again.
    """
    count = max(1, min(_SLICES * cores(), rows // ROWS_OF_A_SLICE))
    slices = [slice(first, end) for first, end in pairwise(rows * number // count for number in range(count + 1))]
    if count == 1:
        return [work(slices[0])]
    with ThreadPoolExecutor(min(count, cores())) as threads:
        return list(threads.map(work, slices))


def memory_of(run: RunTerms) -> int:
    """Return how many bytes the arrays of a release may take."""
    return run.max_memory or default_memory()


def default_memory() -> int:
    """Return how many bytes that is where the spec does not say: a quarter of what there is."""
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # no container, or one without a bound
        there = min(there, int(_MEMORY_OF_CONTAINER.read_text()))
    return there // _PART_OF_MEMORY


def side_by_side(work: Callable[[T], R], items: Iterable[T], threads: int, waiting: int = 0) -> Iterator[R]:
    """Yield the results for some items in their order, worked out by threads.

    Args:
        items: one after the other; few are in memory at once.
        waiting: how many more results may wait to be taken, so that no thread waits for who takes them.
    """
    begun = deque[Future[R]]()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                if len(begun) == threads + waiting:
                    yield begun.popleft().result()
                begun.append(pool.submit(work, item))
            while begun:
                yield begun.popleft().result()
        finally:
            for coming in begun:
                coming.cancel()
