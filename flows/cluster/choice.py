"""Where the orders of a release are carried out, by the `run.workers` of its spec."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from flows.cluster.cluster import check_cluster, on_cluster
from flows.walks.processes import in_processes


def by_workers(workers: str) -> AbstractContextManager[Any]:
    """Return what lets the orders that are submitted inside be carried out where a spec says.

    Args:
        workers: `threads`, `processes` or `dask`.
    Raises:
        TrellisError: once it is entered, why the cluster cannot be used.
    """
    if workers == "dask":
        return on_cluster()
    return in_processes() if workers == "processes" else nullcontext()


def check_workers(workers: str) -> None:
    """Check, before anything is reserved, that orders can be carried out where a spec says.

    Args:
        workers: as in `by_workers`.
    Raises:
        TrellisError: why the cluster cannot be used.
    """
    if workers == "dask":
        check_cluster()
