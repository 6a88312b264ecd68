"""What this machine has: cores and memory, as far as this process may use them."""

import os
from contextlib import suppress
from pathlib import Path

from storage.releases.terms import RunTerms

_MEMORY_OF_CONTAINER = Path("/sys/fs/cgroup/memory.max")  # bytes, or `max`
_PART_OF_MEMORY = 4  # a release takes a quarter, unless its spec says otherwise


def cores() -> int:
    """Return how many cores this process may use, at least one: so many branches are walked at once."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_of(run: RunTerms) -> int:
    """Return how many bytes the arrays of a release may take."""
    return run.max_memory or default_memory()


def default_memory() -> int:
    """Return how many bytes that is where the spec does not say: a quarter of what there is."""
    there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):  # no container, or one without a bound
        there = min(there, int(_MEMORY_OF_CONTAINER.read_text()))
    return there // _PART_OF_MEMORY
