"""A release on a cluster: home sends each order to a worker that it has chosen, and brings what that made to its own disk."""

import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from threading import BoundedSemaphore, Event, Lock, Thread
from typing import Any

from flows.cluster.connection import Connection, connected, within
from flows.cluster.dispatch import Dispatch, codebook_name, do, forget_run, mark_of, outcome_of
from flows.cluster.pool import Pool
from storage.counts.encrypted_files import EncryptedFiles
from storage.counts.shard_files import codebook_path, shard_path
from storage.database.connections import store
from storage.errors import HeldElsewhere, Interrupted, StoreError, TrellisError, WorkerLost
from storage.machine.files import put_new, sha256_of
from storage.machine.home import subfolder
from storage.machine.locks import check_going_on, held
from storage.mailbox.cluster_file import ClusterFile, read_cluster_file
from storage.mailbox.keys import unwrapped_key, wrapped_key
from storage.mailbox.places import namespace_of_home
from storage.record import Record
from storage.releases.register import state_of
from storage.releases.shards import TRUNK, Shard
from tasks.noise.slicing import slice_vault
from tasks.steps import STAGES
from tasks.work.order import Order
from tasks.work.stage import Outcome, running_remotely

BRANCHES_PER_WORKER = 4

_LOOK_EVERY = 1.0  # seconds between two looks at who is there
_FORGET_WITHIN = 1.0  # seconds; a worker that does not hear of it deletes a run when it begins the next one
_END_CHECKS_WITHIN = 10.0  # seconds for which the end waits for the checks of newcomers
_WAKE_EVERY = 0.5  # seconds between two looks of an order at whether its release goes on


@contextmanager
def on_cluster() -> Iterator["Cluster"]:
    """Carry out the orders of branches that are submitted inside on the cluster that TRELLIS_CLUSTER names.

    Errors are those of `read_cluster_file` and `connected`.
    """
    with connected(_file_of_home()) as (connection, listed):
        cluster = Cluster(connection, listed)
        try:
            with running_remotely(cluster):
                yield cluster
        finally:
            cluster.end()


def check_cluster() -> None:
    """Check the cluster that TRELLIS_CLUSTER names; errors are those of `on_cluster`."""
    with connected(_file_of_home()):
        pass


def sweep_mailbox() -> None:
    """Delete what lies in the mailbox of releases that this store knows and that nobody runs.

    A worker that was cut off may have left a shard there after its release had ended.
    """
    place = namespace_of_home(read_cluster_file().place())
    for release_id in sorted({name.partition("/")[0] for name in place.list()}):
        with store() as con:
            is_known = state_of(con, release_id) is not None
        if is_known:
            with suppress(HeldElsewhere), held(release_id):
                place.clear(release_id)


def _file_of_home() -> ClusterFile:
    """Return the cluster file; say on stderr what will soon stop the cluster."""
    file = read_cluster_file()
    for text in file.warnings():
        print(f"Warning: {text}", file=sys.stderr)  # noqa: T201 (the caller's terminal)
    return file


@dataclass(slots=True)
class _Sent:
    """What home knows of the mailbox for one release.

    Attributes:
        run: as its mark in the mailbox says.
        key: of the release, wrapped.
        codebooks: by axis, the hash of its codebook there.
        there: the names of shards there.
        folder: for files on their way.
    """

    run: str
    key: str
    encrypted: EncryptedFiles
    codebooks: dict[str, str]
    folder: TemporaryDirectory[str]
    there: set[str] = field(default_factory=set)
    lock: Lock = field(default_factory=Lock)


class Cluster:
    """A cluster that home has checked.

    Attributes:
        width: how many orders are in hand at once: more than there are workers, so that each of these goes on with a branch whose
            shards it has, while home copies what it has made.
    """

    def __init__(self, connection: Connection, listed: Mapping[str, float]) -> None:
        self.width = self.branches = BRANCHES_PER_WORKER * len(listed)
        self.memory = int(connection.file.memory_per_worker)
        self._connection, self._place = connection, namespace_of_home(connection.place)
        self._pool = Pool(connection.file.lost_after, connection.file.wait_for_worker)
        self._pool.update(listed, list(listed))
        self._sent: dict[str, _Sent | TrellisError] = {}
        self._bringing = BoundedSemaphore(len(listed))  # how many orders' shards home copies at once
        self._lock, self._ended = Lock(), Event()
        self._checks, self._admitted = dict[str, Thread](), SimpleQueue[str]()  # of newcomers, by address
        self._refused = set[str]()  # the newcomers that were refused, with a warning
        self._fault: TrellisError | None = None
        self._watch = Thread(target=self._look, daemon=True)
        self._watch.start()

    def takes(self, order: Order) -> bool:
        """Return whether workers carry out an order: those of the trunk are carried out at home."""
        return order.branch != TRUNK

    def run(self, order: Order) -> Outcome:
        """Carry out an order at a worker; arguments and errors are those of `Remote.run`."""
        release_id = order.release_id

        def going_on() -> None:
            check_going_on(release_id)
            if self._fault:
                raise self._fault

        try:
            with self._pool.worker_for(order.branch, going_on) as (address, gone):
                sent = self._ready(order)
                self._put_parents(sent, order.record)
                text = Dispatch(order, self._place.name, sent.run, sent.key, sent.codebooks).to_json()
                reply = self._ask(address, gone, text, going_on)
            outcome = self._read(order, reply, going_on)
            _check_ordered(order, outcome.value)
            with self._bringing:
                for shard in outcome.value:  # from the mailbox to the disk of home
                    with put_new(shard_path(release_id, shard.name)) as file:
                        sent.encrypted.bring(shard.name, shard.sha256, file)
                    with sent.lock:
                        sent.there.add(sent.encrypted.name_of(shard.name, shard.sha256))
        except WorkerLost:
            self._pool.forget(order.branch)  # if it is there still, and fails again and again, others should try
            raise
        return outcome

    def end(self) -> None:
        """Let the workers stop, and clear the mailbox, unless another process has taken the release over."""
        self._ended.set()
        self._watch.join()
        until = time.monotonic() + _END_CHECKS_WITHIN
        for check in self._checks.values():
            check.join(max(0.0, until - time.monotonic()))
        with suppress(TrellisError):
            self._connection.remove_probes()
        for release_id, sent in self._sent.items():
            if not isinstance(sent, _Sent):
                continue
            with suppress(TrellisError):
                self._place.delete(mark_of(release_id, sent.run))
            with suppress(HeldElsewhere, TrellisError), held(release_id):
                self._place.clear(release_id)
            sent.folder.cleanup()
            forget = partial(self._connection.client.run, forget_run, sent.run, on_error="ignore")
            within(_FORGET_WITHIN, forget, quietly=True)

    def _look(self) -> None:
        """Learn again and again who is there, and let those in who are new."""
        every = min(_LOOK_EVERY, self._connection.file.lost_after / 4)
        while not self._ended.wait(every):
            try:
                self._connection.check_alive()
                listed = self._connection.listed()
            except TrellisError as fault:
                self._fault = fault  # the scheduler is gone: every order ends
                return
            admitted = [self._admitted.get() for _ in range(self._admitted.qsize())]
            self._pool.update(listed, [address for address in admitted if address in listed])
            for address in self._pool.strangers(listed):
                check = self._checks.get(address)
                if check is None or not check.is_alive():  # one that does not answer keeps nobody else waiting
                    self._checks[address] = Thread(target=self._let_in, args=[address], daemon=True)
                    self._checks[address].start()

    def _let_in(self, address: str) -> None:
        """Check a worker that is new; one that is refused, or does not answer, is asked nothing."""
        try:
            self._connection.check([address])
        except Exception as fault:  # noqa: BLE001 (whatever it is, the others go on)
            if not self._ended.is_set() and address not in self._refused:
                self._refused.add(address)  # it is checked again at the next look
                reason = str(fault) if isinstance(fault, TrellisError) else type(fault).__name__
                print(f"Warning: the worker {address} is not asked: {reason}", file=sys.stderr)  # noqa: T201 (the caller's terminal)
        else:
            self._admitted.put(address)

    def _ready(self, order: Order) -> _Sent:
        """Make the mailbox ready for a release, once its trunk is cut: what lay there is deleted, and slices are put there."""
        with self._lock:
            if order.release_id not in self._sent:
                try:
                    self._sent[order.release_id] = self._begun(order)
                except TrellisError as fault:
                    self._sent[order.release_id] = fault
            sent = self._sent[order.release_id]
        if isinstance(sent, TrellisError):
            raise sent
        return sent

    def _begun(self, order: Order) -> _Sent:
        release_id, place = order.release_id, self._place
        place.clear(release_id)
        run, folder = secrets.token_hex(8), TemporaryDirectory(prefix="sent-", dir=subfolder("tmp"))
        mark = Path(folder.name) / "mark"
        mark.touch()
        place.put_new(mark_of(release_id, run), mark)
        wrapped = wrapped_key(release_id, self._connection.key)
        key = unwrapped_key(wrapped, release_id, self._connection.key)
        encrypted = EncryptedFiles(place, key, release_id, Path(folder.name))
        codebooks = {}
        for axis in order.record.release.terms.axes:
            path = codebook_path(release_id, axis)
            codebooks[axis] = sha256_of(path)
            encrypted.put(codebook_name(axis), codebooks[axis], path)
        slice_vault.fn(release_id)
        return _Sent(run, wrapped, encrypted, codebooks, folder)

    def _put_parents(self, sent: _Sent, record: Record) -> None:
        """Put the shards that a record names into the mailbox, unless workers or home have put them there."""
        with sent.lock:
            for shard in record.all_shards:
                name = sent.encrypted.name_of(shard.name, shard.sha256)
                if name not in sent.there:
                    sent.encrypted.put(shard.name, shard.sha256, shard_path(record.release.id, shard.name))
                    sent.there.add(name)

    def _ask(self, address: str, gone: Event, text: str, going_on: Callable[[], None]) -> str:
        """Return what a worker replies; raise `WorkerLost` once it has gone."""
        client: Any = self._connection.client  # which says nothing of its types
        future = client.submit(do, text, workers=[address], allow_other_workers=False, pure=False, retries=0)
        done = Event()
        future.add_done_callback(lambda _: done.set())
        try:
            while not done.wait(_WAKE_EVERY):
                _check_there(address, gone)
                going_on()
            try:
                return str(future.result(timeout=self._connection.file.lost_after))
            except Exception as fault:  # noqa: BLE001 (Dask tells of lost workers by many kinds; a worker's own errors are texts)
                reason = f"The worker has gone, and its reply with it ({type(fault).__name__})."
                raise WorkerLost(reason) from None
        except WorkerLost:
            self._connection.check_alive()  # or else nobody knows whether the worker has gone
            self._pool.lose(address)
            raise
        finally:
            future.release()

    def _read(self, order: Order, reply: str, going_on: Callable[[], None]) -> Outcome:
        try:
            return outcome_of(reply, STAGES[order.kind].package)
        except Interrupted:
            going_on()
            raise StoreError(
                "The worker finds no mark of this run in the mailbox.",
                field="mailbox",
                hint="Has somebody emptied it? Run `trellis rerun`.",
            ) from None


def _check_there(address: str, gone: Event) -> None:
    if gone.is_set():
        raise WorkerLost(f"The worker {address} has gone.")


def _check_ordered(order: Order, made: Sequence[Shard]) -> None:
    """Refuse what nobody has ordered."""
    if order.kind == "measure":
        ordered = (order.level, order.branch, order.turn)
        is_ordered = [(shard.kind, *shard.place, shard.turn) for shard in made] == [("noisy", *ordered)]
    else:
        is_ordered = not any(shard.kind == "noisy" or shard.branch != order.branch for shard in made)
    if not is_ordered:
        raise WorkerLost("What came back is not what was ordered.")
