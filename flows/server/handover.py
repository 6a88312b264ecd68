"""Runs that no server saw: what they did is kept in a file, and handed over to the next server of Trellis, whose UI then lists them.

A small release takes a fraction of the processor time of a server. So a command starts none: its run is recorded without Prefect, in
the form in which Prefect keeps runs, with the times at which things happened. A record holds what a flow run would hold:
names, times and states, and nothing of the table.

Importing this module does not import Prefect.
"""

import inspect
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from flows.run.runner import Future, Submit
from storage.database.connections import store
from storage.errors import HeldElsewhere, Interrupted, StoreError, public_error
from storage.machine.files import beside
from storage.machine.home import subfolder
from storage.machine.locks import held, holder_of
from storage.releases.register import find_release, how_to_go_on, state_of

if TYPE_CHECKING:
    from fastapi import FastAPI

_FOLDER, _ROUTE = "unseen", "/trellis/runs"
_AT_ONCE = 50  # task runs that a transaction of the server records
_FINAL = {"COMPLETED", "FAILED", "CANCELLED", "CRASHED"}

State = dict[str, str]


def _state(kind: str, message: str = "", name: str = "") -> State:
    """Return a state of Prefect that begins now."""
    known = {"type": kind, "message": message, "name": name, "timestamp": datetime.now(UTC).isoformat()}
    return {key: text for key, text in known.items() if text}


def tags_of(release_id: str, dataset: str) -> set[str]:
    """Return the tags by which people find the flow runs of a release."""
    return {f"release:{release_id}"} | ({f"dataset:{dataset}"} if dataset else set())


@dataclass
class Unseen:
    """A run that no server sees.

    Attributes:
        id: of the flow run, as Prefect will know it.
        task_runs: name, task and states of each stage that has run.
    """

    release_id: str
    dataset: str
    flow: str
    name: str
    parameters: Mapping[str, object]
    id: str = field(default_factory=lambda: str(uuid4()))
    states: list[State] = field(default_factory=lambda: [_state("RUNNING")])
    task_runs: list[dict[str, Any]] = field(default_factory=list)

    def submit(self, submit: Submit, stage: Any, *arguments: Any) -> Future:
        """Submit a stage, and note when it runs and how it ends."""

        def noted(*given: Any) -> Any:
            states = [_state("RUNNING")]
            end = "FAILED"
            try:
                done = stage.fn(*given)
                end = "COMPLETED"
                return done
            finally:
                name = stage.run_name.format(**inspect.signature(stage.fn).bind(*given).arguments)
                states.append(_state(end))
                self.task_runs.append({"name": name, "task": stage.name, "states": states})

        return submit(replace(stage, fn=noted), *arguments)

    def keep(self) -> None:
        """Write what is known. A release that is paid for goes on if that cannot be written."""
        with suppress(OSError, StoreError):
            folder = subfolder("prefect") / _FOLDER
            folder.mkdir(mode=0o700, exist_ok=True)
            with beside(folder / f"{self.id}.json", closed=True) as file:
                file.write(json.dumps(vars(self)).encode())


@contextmanager
def unseen(run: Unseen) -> Iterator[Unseen]:
    """Keep a record of a run while the body runs it, and of how it ended. A process that dies leaves a record without an end."""
    with held(run.id, run.id):
        run.keep()
        try:
            yield run
        except (Interrupted, KeyboardInterrupt):
            with store() as con:
                how = how_to_go_on(con, run.release_id)
            run.states.append(_state("CANCELLED", f"{run.release_id} was interrupted. {how}"))
            raise
        except BaseException as fault:
            shown = public_error(fault, run.flow)
            run.states.append(_state("FAILED", f"{shown} {shown.hint}".rstrip()))
            raise
        else:
            with store() as con:
                ended = find_release(con, run.release_id)
            done = ended.state == "published"
            run.states.append(_state("COMPLETED") if done else _state("COMPLETED", ended.reason, "Branch done"))
        finally:
            run.keep()


def hand_over() -> None:
    """Hand over the records of runs that have ended to the server that this process uses, and forget them. One by one; each is there once.

    Raises:
        HTTPError: the server does not answer, or is one that takes no records: they are kept.
    """
    for path in sorted((subfolder("prefect") / _FOLDER).glob("*.json")):
        if holder_of(path.stem):
            continue  # it still runs
        with suppress(HeldElsewhere, FileNotFoundError), held(path.stem):  # another process hands it over
            _hand_over(json.loads(path.read_bytes()))
            path.unlink()


def _hand_over(run: dict[str, Any]) -> None:
    from prefect.client.orchestration import get_client
    from prefect.context import FlowRunContext

    from flows.server.artifacts import show_published

    release_id = run["release_id"]
    with store() as con:
        how, is_published = how_to_go_on(con, release_id), state_of(con, release_id) == "published"
    if run["states"][-1]["type"] not in _FINAL:
        gone = f"The process that ran {release_id} ended before the release was complete. {how}"
        run["states"].append(_state("COMPLETED") if is_published else _state("CRASHED", gone))
    with get_client(sync_client=True) as client:
        client.request("POST", _ROUTE, json=run)  # type: ignore[arg-type]
        if is_published:
            known = client.read_flow_run(UUID(run["id"]))
            with FlowRunContext.model_construct(
                flow_run=known, flow=SimpleNamespace(isasync=False)
            ):  # artifacts belong to it
                show_published(release_id)


def take_runs(app: "FastAPI") -> None:
    """Let a server of Prefect take records of runs, from whoever may ask its API."""
    app.api_app.post(_ROUTE, status_code=204)(record_run)  # type: ignore[attr-defined]


async def record_run(run: dict[str, Any]) -> None:
    """Record a run that has ended, in the server's process; a part that is there already is left as it is."""
    from prefect.server import models
    from prefect.server.database import provide_database_interface
    from prefect.server.schemas.core import Flow, FlowRun, TaskRun
    from prefect.server.schemas.states import State as StateOfRun

    db, id_, (first, last) = provide_database_interface(), UUID(run["id"]), run["states"]
    tags = sorted(tags_of(run["release_id"], run["dataset"]))
    async with db.session_context(begin_transaction=True) as session:
        known = await models.flow_runs.read_flow_run(session, id_)  # type: ignore[attr-defined]
        if known is None:
            flow = await models.flows.create_flow(session=session, flow=Flow(name=run["flow"]))  # type: ignore[attr-defined]
            about = {"name": run["name"], "parameters": run["parameters"], "tags": tags}
            begun = FlowRun(id=id_, flow_id=flow.id, **about)
            await models.flow_runs.create_flow_run(session=session, flow_run=begun)  # type: ignore[attr-defined]
            await models.flow_runs.set_flow_run_state(session, id_, StateOfRun.model_validate(first), force=True)
    if known and known.state_type and known.state_type.value in _FINAL:
        return
    numbered = list(enumerate(run["task_runs"]))
    for start in range(0, len(numbered), _AT_ONCE):
        async with db.session_context(begin_transaction=True) as session:
            for number, ran in numbered[start : start + _AT_ONCE]:
                about = {"name": ran["name"], "task_key": ran["task"], "dynamic_key": str(number)}
                one = TaskRun(flow_run_id=id_, **about)
                task_run = await models.task_runs.create_task_run(session=session, task_run=one)  # type: ignore[attr-defined]
                if task_run.state_id is None:
                    for state in ran["states"]:
                        of = StateOfRun.model_validate(state)
                        await models.task_runs.set_task_run_state(session, task_run.id, of, force=True)
    async with db.session_context(begin_transaction=True) as session:
        await models.flow_runs.set_flow_run_state(session, id_, StateOfRun.model_validate(last), force=True)
