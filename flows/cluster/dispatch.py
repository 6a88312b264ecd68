"""What home asks of a worker: who it is, whether it sees the mailbox, and to carry out an order. Dask calls these functions there.

Texts go both ways, and errors come back as texts too: Dask logs what is raised, and pickles it.
"""

import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from flows.cluster.pool import facts
from flows.cluster.worker import WorkerSetup, worker_setup
from storage.counts.encrypted_files import EncryptedFiles
from storage.errors import Interrupted, StageFailed, StoreError, TakenAlready, TrellisError, WorkerLost, public_errors
from storage.mailbox.keys import proof_of_key, unwrapped_key
from storage.mailbox.places import Mailbox, Namespace, enter_probe
from storage.releases.shards import Shard, shard_name
from tasks.noise.slicing import sliced_truth
from tasks.steps import carry_out
from tasks.tree.job import Job, tree_in
from tasks.tree.order import Tree
from tasks.work.order import Order
from tasks.work.stage import Outcome

_LOOK_EVERY = 0.5  # seconds between two looks at the mark of a run
_ERRORS = {kind.__name__: kind for kind in (Interrupted, StageFailed, StoreError, WorkerLost)}


@dataclass(frozen=True, slots=True)
class Dispatch:
    """An order on its way to a worker.

    Attributes:
        home: the part of the mailbox that belongs to home.
        run: the run of the release at home; while its mark is in the mailbox, the run goes on.
        key: the key of the release, as the key of the mailbox wraps it.
        codebooks: by axis, the hash of the codebook in the mailbox.
    """

    order: Order
    home: str
    run: str
    key: str
    codebooks: dict[str, str]

    def to_json(self) -> str:
        """Return the dispatch as it travels."""
        content = {name: getattr(self, name) for name in ("home", "run", "key", "codebooks")}
        return json.dumps({"order": self.order.to_json(), **content})

    @classmethod
    def from_json(cls, text: str) -> "Dispatch":
        """Return the dispatch that travelled."""
        content = json.loads(text)
        return cls(Order.from_json(content.pop("order")), **content)


def mark_of(release_id: str, run: str) -> str:
    """Return the name in the mailbox of what says that a run of a release goes on."""
    return f"{release_id}/run.{run}"


def codebook_name(axis: str) -> str:
    """Return the name of a codebook in the mailbox, beside those of shards."""
    return f"codebook_{axis}"


def introduce(nonce: str, dask_worker: Any = None) -> dict[str, Any]:
    """Return what this worker is, and the proof that it has the key of the mailbox."""
    import dask

    try:
        proof = proof_of_key(worker_setup().key, bytes.fromhex(nonce))
    except StoreError as fault:
        return {"error": str(fault)}
    routes = dask.config.get("distributed.worker.http.routes", default=[])
    return {
        **facts(),
        "proof": proof,
        "threads": dask_worker.state.nthreads,
        "dashboard": bool(dask_worker._dashboard or routes),  # Dask does not tell otherwise
        "spills": bool(dask_worker.memory_manager.memory_limit),
    }


def probe(nonce: str) -> bool | str:
    """Put a file under the name of a nonce; return whether that succeeded, or why it cannot be tried."""
    try:
        return public_errors(enter_probe)(worker_setup().place, nonce)
    except TrellisError as fault:
        return str(fault)


def forget_run(run: str) -> None:
    """Delete what was kept for a run."""
    worker_setup().forget(run)


def do(text: str) -> str:
    """Carry out an order; return what `outcome_of` reads."""
    began = time.thread_time()
    try:
        made = public_errors(_made)(Dispatch.from_json(text), worker_setup())
    except TrellisError as fault:
        return json.dumps(
            {"error": type(fault).__name__, "message": str(fault), "field": fault.field, "hint": fault.hint}
        )
    rows = [asdict(shard) for shard in made]
    return json.dumps({"shards": rows, "seconds": time.thread_time() - began})


def outcome_of(text: str, stage: str) -> Outcome:
    """Return what came of an order, whose value is a list of shards.

    Raises:
        WorkerLost: somebody else has claimed it, or it was not to go on.
        TrellisError: what the worker raised.
    """
    reply = json.loads(text)
    if "error" in reply:
        raise _ERRORS.get(reply["error"], StoreError)(reply["message"], field=reply["field"], hint=reply["hint"])
    shards = [Shard(**row) for row in reply["shards"]]
    return Outcome(stage, shards, reply["seconds"])


def _made(dispatch: Dispatch, setup: WorkerSetup) -> list[Shard]:
    """Carry out an order, from the mailbox to the mailbox."""
    order, place = dispatch.order, Namespace(setup.place, dispatch.home)
    key, folder = unwrapped_key(dispatch.key, order.release_id, setup.key), setup.folder_of(dispatch.run)
    encrypted = EncryptedFiles(place, key, order.release_id, folder)
    measures = order.kind == "measure"
    if measures:
        try:
            encrypted.claim(shard_name("noisy", order.level, order.branch, order.turn))
        except TakenAlready:
            raise WorkerLost("Somebody else has claimed what this worker was to draw.") from None
    going_on = _going_on(place, mark_of(order.release_id, dispatch.run), folder)
    job = Job(order.record, encrypted.shard_store(), partial(_tree, dispatch, encrypted), going_on)
    truth = sliced_truth(order.record, order.level, order.branch, key, place.get, folder) if measures else nullcontext()
    with truth as true_counts:
        return carry_out(order, job, true_counts)


def _tree(dispatch: Dispatch, encrypted: EncryptedFiles) -> Tree:
    """Return the tree, from the codebooks in the mailbox, which are public."""
    folder = encrypted.folder / "codebooks"
    folder.mkdir(mode=0o700, exist_ok=True)
    for axis, sha256 in dispatch.codebooks.items():
        path = folder / f"{codebook_name(axis)}.parquet"
        if not path.exists():
            partial_path = path.with_suffix(".partial")
            with partial_path.open("wb") as file:
                encrypted.copy(codebook_name(axis), sha256, file)
            partial_path.replace(path)
    return tree_in(folder, dispatch.order.record.release.terms)


def _going_on(place: Mailbox, mark: str, folder: Path) -> Callable[[], None]:
    """Return what raises once the run of an order is over, or home no longer waits for the order."""
    task_is_cancelled = _cancelled()
    looked = 0.0
    if not (there := folder / "mark").exists():
        place.get(mark, there)  # it waits, should this machine not see yet what home has put there

    def check() -> None:
        nonlocal looked
        now = time.monotonic()
        if task_is_cancelled():
            raise Interrupted("Home no longer waits for it.")
        if now - looked >= _LOOK_EVERY:
            looked = now
            if not place.exists(mark):
                raise Interrupted("Its run at home has ended.")

    return check


def _cancelled() -> Callable[[], bool]:
    """Return what tells whether Dask has cancelled the task of this thread, as it does when home's connection ends."""
    from distributed import get_worker

    try:
        worker = get_worker()
    except ValueError:  # no worker of Dask: a test carries it out
        return lambda: False
    key = worker.get_current_task()

    def is_cancelled() -> bool:
        task = worker.state.tasks.get(key)
        return task is None or task.state == "cancelled"

    return is_cancelled
