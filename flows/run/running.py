"""What holds while a release runs: no other process runs it, the releases of a dataset take turns, and its end is recorded."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from flows.run.ending import remove_all
from flows.run.notices import send_notice_of
from storage.database.connections import lingering, store
from storage.errors import MadeAlready, StoreError, TrellisError
from storage.machine.locks import check_going_on, forget_to_stop, held, held_when_free
from storage.releases.register import open_run, set_state, state_of


@contextmanager
def running(release_id: str, dataset: str, run: str = "") -> Iterator[None]:
    """Hold a release while the body runs it, wait for the turn of its dataset, and record a failure.

    A release that stops before it is reserved leaves nothing behind. Afterwards it is failed and keeps what it has.

    Args:
        dataset: whose releases run one after the other.
        run: Prefect's id of the flow run, if there is one.
    Raises:
        HeldElsewhere: another run has it.
    """

    def ahead(process: str) -> None:
        print(  # noqa: T201 (the caller's terminal)
            f"{release_id} waits: process {process} runs another release of dataset {dataset}.", file=sys.stderr
        )

    with lingering(), held(release_id, run):
        forget_to_stop(release_id)
        try:
            if run:
                with store() as con:  # the run stays open until Prefect is seen to know its end
                    open_run(con, run, release_id)
            with (
                _failures_recorded(release_id, dataset),
                held_when_free(f"dataset.{dataset}", ahead, lambda: check_going_on(release_id)),
            ):
                yield
        finally:
            forget_to_stop(release_id)


@contextmanager
def _failures_recorded(release_id: str, dataset: str) -> Iterator[None]:
    """Record a failure, tell those who want to know, and say what to do next."""
    try:
        yield
    except MadeAlready:
        raise  # another run has made it
    except BaseException as fault:
        reason = str(fault) if isinstance(fault, TrellisError) else "It was interrupted."
        state = _record_failure(release_id, reason)
        if state in {None, "refused"}:
            remove_all(release_id)
        elif state in {"reserved", "running", "failed"} and isinstance(fault, TrellisError) and not fault.hint:
            fault.hint = f"What was sealed is kept; `trellis rerun {release_id}` continues from there."
        if isinstance(fault, Exception):
            send_notice_of(fault, release_id, dataset)
        raise


def _record_failure(release_id: str, reason: str) -> str | None:
    """Record a reserved release as failed and return the state it had, `unknown` where the store cannot be read or written."""
    state: str | None = "unknown"
    with suppress(StoreError), store() as con:
        state = state_of(con, release_id)
        if state in {"reserved", "running"}:
            set_state(con, release_id, "failed", reason)
    return state
