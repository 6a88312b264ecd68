"""Steps in flight: the steps of different branches run side by side, and one that fails does not stop the others."""

from collections.abc import Callable, Sequence
from queue import SimpleQueue

from flows.walks.runner import Future
from storage.errors import Interrupted, StageFailed, TrellisError, WorkerLost
from storage.releases.shards import Shard
from tasks.order import Step
from tasks.stage import Outcome


class InFlight:
    """The steps of a walk that have begun.

    Attributes:
        outcomes: of the steps that have succeeded.
        lost: the steps whose workers were lost, since somebody last looked.
    """

    def __init__(self, begin: Callable[[Step], Future], check: Callable[[Step, Sequence[Shard]], None]) -> None:
        self.outcomes: list[Outcome] = []
        self.lost: list[Step] = []
        self._begin, self._check = begin, check
        self._finished: SimpleQueue[tuple[Step, Future]] = SimpleQueue()
        self._running = 0
        self._failures: dict[str, BaseException] = {}

    def __bool__(self) -> bool:
        """Return whether `take` has more steps to wait for."""
        return self._running > 0

    def start(self, step: Step) -> None:
        """Begin a step."""
        future = self._begin(step)
        self._running += 1
        future.add_done_callback(lambda done: self._finished.put((step, done)))

    def take(self) -> list[Shard]:
        """Wait until a step has ended; return what all steps have made that have succeeded by then."""
        finished = [self._finished.get()]
        while not self._finished.empty():
            finished.append(self._finished.get())
        made = list[Shard]()
        for step, future in finished:
            self._running -= 1
            try:
                outcome: Outcome = future.result()
                self._check(step, outcome.value)
            except WorkerLost:
                self.lost.append(step)
            except Exception as fault:  # noqa: BLE001 (the other branches continue; `raise_first` raises it)
                self._failures[step.branch] = fault
            else:
                self.outcomes.append(outcome)
                made += outcome.value
        return made

    def fail(self, step: Step, fault: Exception) -> None:
        """Let a step fail that does not run any more."""
        self._failures[step.branch] = fault

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
