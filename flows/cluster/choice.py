"""Where the orders of a release are carried out, by the `run.workers` of its spec. What a command does not need it does not import."""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any


def by_workers(workers: str) -> AbstractContextManager[Any]:
    """Return what lets the orders that are submitted inside be carried out where a spec says: `threads`, `processes` or `dask`.

    Raises:
        TrellisError: once it is entered, why the cluster cannot be used.
    """
    if workers == "dask":
        from flows.cluster.cluster import on_cluster

        return on_cluster()
    if workers == "processes":
        from flows.cluster.processes import in_processes

        return in_processes()
    return nullcontext()


def check_workers(workers: str) -> None:
    """Check, before anything is reserved, that orders can be carried out where a spec says, as in `by_workers`.

    Raises:
        TrellisError: why the cluster cannot be used.
    """
    if workers == "dask":
        from flows.cluster.cluster import check_cluster

        check_cluster()


def sweep_mailbox() -> None:
    """Sweep the mailbox of the cluster that TRELLIS_CLUSTER names, if it names one, as `flows.cluster.cluster.sweep_mailbox` does."""
    if os.environ.get("TRELLIS_CLUSTER"):
        from flows.cluster.cluster import sweep_mailbox

        sweep_mailbox()
