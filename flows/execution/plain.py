"""Releases without Prefect: the same driver, store, seals and ledger, in threads of this process. The UI does not list them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from flows.cluster.choice import by_workers
from flows.walks.runner import Submit, submit_to
from tasks.stage import width


@contextmanager
def without_prefect(workers: str) -> Iterator[Submit]:
    """Yield a `submit` for the driver, which carries out orders where `run.workers` of a spec says."""
    with by_workers(workers), ThreadPoolExecutor(width()) as threads:
        yield submit_to(threads)
