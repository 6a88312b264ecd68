"""The process of a worker: it waits for orders, keeps nothing, and ends with its scheduler."""

import asyncio
import os
import signal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flows.cluster.security import check_installed, no_answer, security_of
from flows.cluster.worker_setup import WorkerSetup, set_up_worker
from storage.errors import StoreError
from storage.machine.home import have_no_home
from storage.mailbox.cluster_file import ClusterFile, read_cluster_file

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
    """Work for the cluster that a file names, until SIGTERM, Ctrl-C, or the end of its scheduler.

    Args:
        path: the cluster file; the one that TRELLIS_CLUSTER names if left out.
    Raises:
        SpecError: the file breaks a rule.
        StoreError: the mailbox is not there, or the scheduler does not answer or has ended.
    """
    check_installed()
    file = read_cluster_file(path)
    os.umask(0o077)
    with TemporaryDirectory(prefix="trellis-worker-") as folder:
        kept = Path(folder) / "kept"
        kept.mkdir()
        place, key = file.place(), file.mailbox_key()
        have_no_home()
        set_up_worker(WorkerSetup(place, key, kept))
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
