"""What only the caller of a command may read, such as how many rows are at fault: on stderr, and nowhere else.

It is silent unless a command says that stderr is its caller's. What a deployment runs has none: its stderr is kept in a
log, by `trellis up`, by a worker, or by whatever keeps a worker up.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_is_heard = False


@contextmanager
def heard_by_caller() -> Iterator[None]:
    """Let the caller hear what is told inside, in any thread, and in processes of `tasks.stage.in_processes`."""
    global _is_heard
    before, _is_heard = _is_heard, True
    try:
        yield
    finally:
        _is_heard = before


def is_heard() -> bool:
    """Return whether a caller hears what is told."""
    return _is_heard


def hear_as(heard: bool) -> None:
    """Let this process, which another has started for its work, be heard as that one is."""
    global _is_heard
    _is_heard = heard


def tell_caller(text: str) -> None:
    """Say something about the confidential table where only the caller reads it."""
    if _is_heard:
        print(text, file=sys.stderr, flush=True)  # noqa: T201 (the one place for it)
