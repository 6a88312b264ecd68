"""Stages in flight: the stages of different branches run side by side, and one that fails does not stop the others."""

from queue import SimpleQueue
from typing import Any

from flows.walks.runner import Future, Submit
from storage.errors import Interrupted, StageFailed, TrellisError
from tasks.stage import Outcome


class InFlight:
    """The submitted stages of a walk, at most one per branch at a time.

    Attributes:
        release_id: the release that is walked.
        outcomes: of the stages that have succeeded.
    """

    def __init__(self, release_id: str, submit: Submit) -> None:
        self.outcomes: list[Outcome] = []
        self.release_id, self._submit = release_id, submit
        self._finished: SimpleQueue[tuple[str, Future]] = SimpleQueue()
        self._running = 0
        self._failures: dict[str, BaseException] = {}

    def __bool__(self) -> bool:
        """Return whether `take` has more stages to wait for."""
        return self._running > 0

    def start(self, branch: str, stage: Any, *arguments: Any) -> None:
        """Submit a stage of a branch; the release is its first argument."""
        future = self._submit(stage, self.release_id, *arguments)
        self._running += 1
        future.add_done_callback(lambda done: self._finished.put((branch, done)))

    def take(self) -> list[tuple[str, Any]]:
        """Wait until a stage has ended; return the branches of all stages that have succeeded by then, with their values."""
        finished = [self._finished.get()]
        while not self._finished.empty():
            finished.append(self._finished.get())
        done = []
        for branch, future in finished:
            self._running -= 1
            try:
                outcome: Outcome = future.result()
            except Exception as fault:  # noqa: BLE001 (the other branches continue; `raise_first` raises it)
                self._failures[branch] = fault
            else:
                self.outcomes.append(outcome)
                done.append((branch, outcome.value))
        return done

    def raise_first(self) -> None:
        """Raise the failure of the first branch that has failed, if any has; a request to stop the release comes first."""
        for fault in self._failures.values():
            if isinstance(fault, Interrupted):
                raise fault
        if not self._failures:
            return
        branch, *others = sorted(self._failures)
        also = f" Also failed: {', '.join(others)}." if others else ""
        first = self._failures[branch]
        if isinstance(first, TrellisError):
            raise type(first)(f"{branch}: {first}{also}", field=first.field, hint=first.hint)
        raise StageFailed(f"{branch}: {type(first).__name__}.{also}")
