"""Errors that people read: the field, the rule, a public value, and what to do next.

The text of every error here is public: Prefect stores it and logs show it. It never says how many confidential rows are at
fault; ingest says that on the caller's terminal.
"""

import errno
import functools
import os
import traceback
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# What the libraries' exceptions say about a disk. The last text is DuckDB's: it limits its temporary files to the free space.
_FULL = ("No space left on device", "Disk quota exceeded", "'max_temp_directory_size'")
_NOT_WRITABLE = ("Read-only file system", "read-only mode")


class TrellisError(Exception):
    """Something that a person can correct.

    Args:
        message: what is wrong, in one public sentence that names the rule.
        field: the key of the spec, the option of the command or the file at fault.
        hint: what to do next; empty where there is nothing to do.
    """

    def __init__(self, message: str, *, field: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.field = field
        self.hint = hint

    @property
    def hint(self) -> str:
        """What to do next. It is the exception's note too, which Python prints below the message."""
        return "\n".join(getattr(self, "__notes__", ()))

    @hint.setter
    def hint(self, text: str) -> None:
        self.__notes__ = [text] if text else []

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self),), self.__dict__


class SpecError(TrellisError):
    """The spec breaks a rule."""


class UsageError(TrellisError):
    """A command names what does not exist, or cannot be understood."""


class InputError(TrellisError):
    """A table or a codebook breaks a rule; the message names the column and the rule, never a value."""


class BudgetExceeded(TrellisError):
    """The release would exceed its dataset's cap.

    Attributes:
        left: the ρ that may still be reserved.
        left_epsilon: the ε that it is enough for.
    """

    left = Fraction(0)
    left_epsilon = 0.0
    release_id = ""


class BudgetNotAsApproved(BudgetExceeded):
    """Something was charged to the dataset's people, or their cap changed, since the plan of the release was approved."""


class SealedAlready(TrellisError):
    """A cell would have been measured a second time."""


class StoreError(TrellisError):
    """The store, a vault or a shard is missing, locked, altered, or from another version."""


class ChecksFailed(StoreError):
    """A release breaks a rule that it was checked for; nothing of it is published.

    Attributes:
        checks: what every check of the level found, as (check, level, passed).
    """

    checks: tuple[tuple[str, int, bool], ...] = ()


class MadeAlready(StoreError):
    """A release is already in the store, and a release is made only once."""


class HeldElsewhere(StoreError):
    """Another run, in this process or another, holds what is needed."""


class TakenAlready(StoreError):
    """The name of a file is taken, in a mailbox or on the disk; what lies there stays as it is."""


class WorkerLost(TrellisError):
    """Who carried out an order has gone, somebody else claimed it, or what came back is not what was promised."""


class Interrupted(TrellisError):
    """A stage was asked to stop, and stopped at its next chunk."""


class StageFailed(TrellisError):
    """A stage stopped for another reason than its input; the message has kind and place of the fault, never its text."""


def public_errors(
    function: Callable[P, R], passing: tuple[type[BaseException], ...] = (KeyboardInterrupt, SystemExit)
) -> Callable[P, R]:
    """Make a function raise only exceptions that may be shown; those in `passing` pass unchanged: signals, which carry no data.

    A TrellisError is public by construction, and so is a full or read-only disk; any other exception is replaced by its kind
    and place. Its cause and context are removed, since they may quote the data.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except passing:
            raise
        except BaseException as fault:  # noqa: BLE001 (panics of Rust libraries too: their text stays here)
            failure = public_error(fault, function.__name__)
        raise failure

    return call


def public_error(fault: BaseException, of: str) -> TrellisError:
    """Return what may be shown of an exception: itself if it is public, otherwise its kind and place, without its cause.

    Args:
        of: the name of what it stopped, for the message.
    """
    public = fault if isinstance(fault, TrellisError) else disk_fault(fault)
    public = public or StageFailed(f"{of} stopped: {kind_and_place(fault)}.")
    public.__cause__ = public.__context__ = None
    return public.with_traceback(None)


def disk_fault(fault: BaseException, field: str = "TRELLIS_HOME", folder: str = "") -> StoreError | None:
    """Return the public error for a disk that is full or read-only, without the exception's text; None where the fault is another.

    Args:
        field: the key or option that names the folder.
        folder: TRELLIS_HOME if left out.
    """
    place = folder or f"TRELLIS_HOME={os.environ.get('TRELLIS_HOME') or '~/.trellis'}"
    number, text = getattr(fault, "errno", None), str(fault)
    if number in {errno.ENOSPC, errno.EDQUOT} or any(words in text for words in _FULL):
        return StoreError(
            f"The disk that holds {place} is full.",
            field=field,
            hint="Free some space, then run the command again. Trellis keeps everything it has sealed.",
        )
    if number == errno.EROFS or any(words in text for words in _NOT_WRITABLE):
        return StoreError(f"{place} is mounted read-only.", field=field, hint="Mount its disk for writing.")
    return None


def kind_and_place(fault: BaseException) -> str:
    """Return an exception's type and the last line of Trellis that it passed; its text could quote the data."""
    house = Path(__file__).parent.parent
    rooms = [house / "flows", house / "tasks", house / "storage"]
    frames = [
        (Path(frame.filename), frame.lineno)
        for frame in traceback.extract_tb(fault.__traceback__)
        if any(Path(frame.filename).is_relative_to(room) for room in rooms)
    ]
    place = f" at {frames[-1][0].relative_to(house)}:{frames[-1][1]}" if frames else ""
    return f"{type(fault).__name__}{place}"
