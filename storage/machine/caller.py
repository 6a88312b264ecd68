"""What only the caller of a command may read, such as how many rows are at fault: on stderr, and nowhere else.

Nothing is printed unless a command declares that stderr is its caller's terminal. A deployment has no such caller: `trellis
up`, a worker, or a service manager keeps its stderr in a log.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_may_print = False


@contextmanager
def heard_by_caller() -> Iterator[None]:
    """Print what `tell_caller` is given inside, in any thread and in the processes of `flows.cluster.processes`."""
    global _may_print
    before, _may_print = _may_print, True
    try:
        yield
    finally:
        _may_print = before


def may_print() -> bool:
    """Return whether `tell_caller` prints."""
    return _may_print


def print_as(heard: bool) -> None:
    """Make `tell_caller` print in this process just as in the one that started it."""
    global _may_print
    _may_print = heard


def tell_caller(text: str) -> None:
    """Print something about the confidential table where only the caller reads it."""
    if _may_print:
        print(text, file=sys.stderr, flush=True)  # noqa: T201 (the one place for it)
