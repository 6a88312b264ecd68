"""The process of a worker: how it and home speak with the scheduler, what it has to carry out orders with, and its life."""

import asyncio
import os
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from storage.errors import StoreError
from storage.machine.home import have_no_home
from storage.mailbox.cluster_file import ClusterFile, read_cluster_file
from storage.mailbox.places import Mailbox

if TYPE_CHECKING:
    from distributed.security import Security


def check_installed() -> None:
    """Refuse to go on where Dask is not installed."""
    try:
        import distributed  # noqa: F401 (whether it is there)
    except ModuleNotFoundError:
        raise StoreError(
            "run.workers: dask needs the package distributed.",
            field="run.workers",
            hint="Run pip install 'trellis[dask]', or set run.workers to threads.",
        ) from None


def security_of(file: ClusterFile) -> "Security":
    """Return the certificates of this machine, for every part that it may play."""
    from distributed.security import Security

    certificate, key = str(file.certificate), str(file.private_key)
    return Security(  # type: ignore[no-untyped-call]
        require_encryption=True,
        tls_ca_file=str(file.ca),
        tls_client_cert=certificate,
        tls_client_key=key,
        tls_worker_cert=certificate,
        tls_worker_key=key,
        tls_scheduler_cert=certificate,
        tls_scheduler_key=key,
    )


def no_answer(file: ClusterFile, fault: BaseException) -> StoreError:
    """Return the error that the scheduler does not answer, of what Dask, Tornado or ssl has raised."""
    return StoreError(
        f"The scheduler {file.scheduler} does not answer, or does not know this certificate ({type(fault).__name__}).",
        field="scheduler",
        hint="See that it runs, and that one authority has signed its certificate and that of this machine.",
    )


@dataclass(frozen=True, slots=True, eq=False)
class WorkerSetup:
    """What a worker has: the mailbox, its key, and a folder of its own for files of ciphertext and public codebooks."""

    place: Mailbox
    key: bytes
    folder: Path

    def folder_of(self, run: str) -> Path:
        """Return the folder of a run; what was kept for other runs is deleted, since a worker works for one at a time."""
        folder = self.folder / run
        if not folder.exists():
            for kept in self.folder.iterdir():
                self.forget(kept.name)
            folder.mkdir(mode=0o700)
        return folder

    def forget(self, run: str) -> None:
        """Delete what was kept for a run."""
        shutil.rmtree(self.folder / run, ignore_errors=True)


_setup: WorkerSetup | None = None


def worker_setup() -> WorkerSetup:
    """Return the setup of this process, which must be a worker of Trellis."""
    if _setup is None:
        raise StoreError("It was not started by `trellis worker`.", field="worker", hint="Start it so.")
    return _setup


# No page of Dask's, no spilling to disk, and nothing that Dask would measure of the code of orders.
SETTINGS: dict[str, Any] = {
    "distributed.comm.require-encryption": True,
    "distributed.worker.http.routes": [],
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.profile.enabled": False,
}


def run_worker(path: Path | None = None) -> None:
    """Work for the cluster of a file, by default that which TRELLIS_CLUSTER names, until SIGTERM, Ctrl-C, or the end of its scheduler.

    Raises:
        SpecError: the file breaks a rule.
        StoreError: the mailbox is not there, or the scheduler does not answer or has ended.
    """
    global _setup
    check_installed()
    file = read_cluster_file(path)
    os.umask(0o077)
    with TemporaryDirectory(prefix="trellis-worker-") as folder:
        kept = Path(folder) / "kept"
        kept.mkdir()
        place, key = file.place(), file.mailbox_key()
        have_no_home()
        _setup = WorkerSetup(place, key, kept)
        asyncio.run(_work(file, Path(folder)))


async def _work(file: ClusterFile, folder: Path) -> None:
    import dask
    from distributed import Worker

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    with dask.config.set(SETTINGS):
        try:
            worker = await Worker(
                file.scheduler,
                security=security_of(file),
                nthreads=1,
                memory_limit=0,
                dashboard=False,
                dashboard_address="127.0.0.1:0",
                local_directory=str(folder / "dask"),
                death_timeout=file.wait_for_worker,
            )
        except Exception as fault:  # noqa: BLE001 (Dask, Tornado and ssl raise many kinds)
            raise no_answer(file, fault) from None
        ends = [asyncio.ensure_future(stopped.wait()), asyncio.ensure_future(worker.finished())]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        was_stopped = stopped.is_set()
        await worker.close()
    if not was_stopped:
        raise StoreError(
            f"The scheduler {file.scheduler} has ended.",
            field="scheduler",
            hint="Start it, and then this worker again; a service manager does so by itself.",
        )
