"""The connection of home to its cluster, and what it asks before it trusts it with anything."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from flows.cluster.dispatch import introduce, probe
from flows.cluster.pool import difference, facts
from flows.cluster.worker import check_installed, no_answer, security_of
from storage.errors import SpecError, StoreError
from storage.mailbox.cluster_file import ClusterFile
from storage.mailbox.keys import proves_key
from storage.mailbox.places import Mailbox, enter_probe, judge_probe, new_nonce, remove_probe

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")

_CONNECT_WITHIN = 30.0  # seconds
_ANSWER_WITHIN = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class Connection:
    """A connection to a scheduler that home has checked, with the mailbox and its key.

    Attributes:
        probes: the nonces of probes that have begun and not ended.
    """

    file: ClusterFile
    client: "Client"
    place: Mailbox
    key: bytes
    probes: set[str] = field(default_factory=set)

    def check_alive(self) -> None:
        """Refuse to go on once the scheduler is gone."""
        if self.client.status != "running":
            raise StoreError(
                f"The scheduler {self.file.scheduler} no longer answers.",
                field="scheduler",
                hint="Start it and the workers, or set run.workers to threads. Then run `trellis rerun`.",
            )

    def listed(self) -> Mapping[str, float]:
        """Return, by address, when the scheduler last heard of each worker, by its own clock; refuse one that does not answer."""
        client: Any = self.client  # which says nothing of its types
        try:
            identity: Any = within(
                self.file.lost_after,
                # not `scheduler_info`: what that returns, Dask replaces now and then by an answer without workers
                lambda: client.sync(client.scheduler.identity, n_workers=-1),
            )
        except Exception as fault:  # noqa: BLE001 (Dask, Tornado and ssl raise many kinds)
            raise no_answer(self.file, fault) from None
        return {address: float(of["last_seen"]) for address, of in identity["workers"].items()}

    def check(self, addresses: Sequence[str]) -> None:
        """Refuse workers that may not be asked.

        Raises:
            SpecError: one is not encrypted, differs from home, has another key, shows a dashboard or spills.
            StoreError: one does not answer, or the mailbox overwrites, or the machines do not see the same one.
        """
        for address in addresses:
            if not address.startswith("tls://"):
                open_to_others = f"The worker {address} is not reached by tls://, so others could read along."
                raise _refused(open_to_others, "Start it with `trellis worker`.")
        nonce = new_nonce()
        for address, introduced in self._asked(addresses, introduce, nonce).items():
            _check_introduced(address, introduced, self.key, nonce)
        self._probe(addresses)

    def _probe(self, addresses: Sequence[str]) -> None:
        """Let home and all workers put a file under one name of the mailbox."""
        nonce = new_nonce()
        self.probes.add(nonce)
        try:
            with ThreadPoolExecutor(1) as thread:
                ours = thread.submit(enter_probe, self.place, nonce)
                theirs = self._asked(addresses, probe, nonce)
                winners = [ours.result()]
            for address, won in theirs.items():
                if isinstance(won, str):
                    raise StoreError(f"The worker {address} cannot use the mailbox: {won}", field="mailbox")
                winners.append(won)
            judge_probe(self.place, nonce, winners)
        finally:
            remove_probe(self.place, nonce)
            self.probes.discard(nonce)

    def remove_probes(self) -> None:
        """Remove what probes have put into the mailbox that do not end in time."""
        for nonce in list(self.probes):
            remove_probe(self.place, nonce)

    def _asked(self, addresses: Sequence[str], question: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """Return what each worker answers; it does so even while it carries out an order."""
        try:
            answers = within(
                max(_ANSWER_WITHIN, self.file.lost_after),
                lambda: self.client.run(question, *arguments, workers=list(addresses), on_error="return"),
            )
        except Exception as fault:  # noqa: BLE001 (likewise)
            raise _silent("A worker", fault) from None
        for address, answer in answers.items():
            if isinstance(answer, ModuleNotFoundError | AttributeError | ImportError):
                raise _refused(
                    f"The worker {address} has no Trellis, or another one than home.",
                    "Install the same version there, and start it with `trellis worker`.",
                )
            if isinstance(answer, BaseException):
                raise _silent(f"The worker {address}", answer)
        return dict(answers)


@contextmanager
def connected(file: ClusterFile) -> Iterator[tuple[Connection, Mapping[str, float]]]:
    """Yield a connection to a cluster whose scheduler and workers home has checked, and these workers.

    Raises:
        SpecError: something of the cluster breaks a rule.
        StoreError: it does not answer, there is no worker, or the package for clusters is not installed.
    """
    check_installed()
    place, key = file.place(), file.mailbox_key()
    from distributed import Client

    _connect: Any = Client  # which says nothing of its types
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters is raised, in words for people
    try:
        client: Client = _connect(
            file.scheduler, security=security_of(file), timeout=_CONNECT_WITHIN, set_as_default=False
        )
    except Exception as fault:  # noqa: BLE001 (likewise)
        raise no_answer(file, fault) from None
    try:
        connection = Connection(file, client, place, key)
        _check_scheduler(client)
        listed = connection.listed()
        if not listed:
            raise StoreError(
                f"The scheduler {file.scheduler} has no worker.",
                field="scheduler",
                hint="Start workers with `trellis worker`, or set run.workers to threads.",
            )
        connection.check(list(listed))
        yield connection, listed
    finally:
        within(_ANSWER_WITHIN, client.close, quietly=True)


def within(seconds: float, work: Callable[[], T], *, quietly: bool = False) -> T:
    """Return what a call to Dask returns, which might wait for ever for a machine that is switched off.

    Args:
        seconds: for which to wait, before a TimeoutError.
        quietly: whether to go on where it fails or does not end.
    """
    ended: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        try:
            ended.append((work(), None))
        except BaseException as fault:  # noqa: BLE001 (the caller's thread raises it)
            ended.append((None, fault))

    thread = Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    value: Any
    value, fault = ended[0] if ended else (None, TimeoutError())
    if fault is not None and not quietly:
        raise fault
    return value  # type: ignore[no-any-return]


def _check_scheduler(client: Any) -> None:
    """Refuse a scheduler that takes unencrypted connections, shows a dashboard, or sends orders elsewhere than home says."""
    try:
        scheduler = within(_ANSWER_WITHIN, lambda: client.run_on_scheduler(scheduler_facts))
    except (ModuleNotFoundError, AttributeError, ImportError):
        scheduler = {"trellis": "none"}
    except Exception as fault:  # noqa: BLE001 (likewise)
        raise _silent("The scheduler", fault) from None
    if differs := difference(facts(), scheduler):
        raise _refused(f"The scheduler {differs}.", "Install there what home has.")
    if not scheduler["encrypts"]:
        raise _refused(
            "The scheduler takes connections that are not encrypted.",
            "Set DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=true where it starts.",
        )
    if scheduler["dashboard"]:
        raise _refused(
            "The scheduler shows a dashboard, which anybody who reaches its port can read.",
            "Start it with --no-dashboard, and with DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES='[]'.",
        )
    if scheduler["failures"] or scheduler["steals"]:
        raise _refused(
            "The scheduler would send an order again, or to another worker than home has chosen.",
            "Set DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES=0 and DASK_DISTRIBUTED__SCHEDULER__WORK_STEALING=false"
            " where it starts.",
        )


def scheduler_facts(dask_scheduler: Any = None) -> dict[str, Any]:
    """Return what the scheduler is; Dask calls it there."""
    import dask

    return {
        **facts(),
        "encrypts": bool(dask_scheduler.security.require_encryption),
        "dashboard": bool(dask.config.get("distributed.scheduler.http.routes", default=[])),
        "failures": int(dask_scheduler.allowed_failures),
        "steals": bool(dask.config.get("distributed.scheduler.work-stealing")),
    }


def _check_introduced(address: str, introduced: Mapping[str, Any], key: bytes, nonce: str) -> None:
    """Refuse a worker by what it says of itself."""
    if "error" in introduced:
        raise _refused(f"The worker {address}: {introduced['error']}", "Start it with `trellis worker`.")
    if differs := difference(facts(), dict(introduced)):
        raise _refused(f"The worker {address} {differs}.", "Install there what home has.")
    if not proves_key(key, bytes.fromhex(nonce), str(introduced["proof"])):
        raise SpecError(
            f"The worker {address} has another key of the mailbox than home.",
            field="key",
            hint="Copy the key of home to all machines.",
        )
    if introduced["threads"] != 1:
        raise _refused(
            f"The worker {address} has {introduced['threads']} threads, not one.", "Start several workers there."
        )
    for fact, what in (
        ("dashboard", "shows a dashboard, which anybody who reaches its port can read"),
        ("spills", "spills to its disk"),
    ):
        if introduced[fact]:
            raise _refused(f"The worker {address} {what}.", "Start it with `trellis worker`.")


def _refused(message: str, hint: str) -> SpecError:
    return SpecError(message, field="scheduler", hint=hint)


def _silent(who: str, fault: BaseException) -> StoreError:
    return StoreError(f"{who} does not answer ({type(fault).__name__}).", field="scheduler", hint="See its log.")
