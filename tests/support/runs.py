"""Releases made and finished through the plain driver, with something done around a stage."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flows.planning.plan import Plan
from flows.run.driver import finish_release, make_release
from flows.run.runner import Future, report_nothing
from storage.releases.register import Release

Around = Callable[[Any, tuple[Any, ...]], Any]  # carries out a stage, which `stage.fn(*arguments)` does


def plainly(stage: Any, arguments: tuple[Any, ...]) -> Any:
    """Carry out a stage, and do nothing else."""
    return stage.fn(*arguments)


def make(plan: Plan, release: Release, around: Around = plainly, *, threads: int = 2) -> None:
    """Make a release."""
    with ThreadPoolExecutor(threads) as executor:
        make_release(plan, release, _submit_to(executor, around), report_nothing)


def finish(release_id: str, around: Around = plainly, *, threads: int = 2) -> dict[str, float]:
    """Finish a release; return the seconds that its stages took."""
    with ThreadPoolExecutor(threads) as executor:
        return finish_release(release_id, _submit_to(executor, around), report_nothing)


def _submit_to(executor: ThreadPoolExecutor, around: Around) -> Callable[..., Future]:
    def submit(stage: Any, *arguments: Any) -> Future:
        return executor.submit(around, stage, arguments)

    return submit
