"""Metrics of the store for Prometheus: releases by state, what is left of budgets, bytes, and the age of the last success."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from flows.answers.ledger import ledger_answer
from storage.counts.shard_files import place_of_noisy, shard_path
from storage.database.connections import Connection, store
from storage.machine.files import beside
from storage.machine.home import SHARDS, STORE, home
from storage.releases.register import ListedRelease, last_published, list_releases
from storage.releases.shards import list_shards

_STATES = ("reserved", "running", "published", "failed", "refused", "abandoned")
_PARTS = {
    "cap": "what all releases about the dataset's people may cost together",
    "spent": "what they have spent or reserved",
    "left": "what one more release may cost",
}


def metrics_answer() -> str:
    """Return every metric in Prometheus's text format. None depends on a true count.

    That a release failed may still tell something of the table, such as a code that its codebook lacks.
    """
    with store() as con:
        releases, published = list_releases(con), last_published(con)
        sizes = _sizes(con, releases)
    accounts = ledger_answer(None).datasets
    states = Counter((release.dataset, release.state) for release in releases)
    datasets = sorted({release.dataset for release in releases})
    now, last = datetime.now(UTC), {name: datetime.fromisoformat(at) for name, at in published.items()}
    registry = CollectorRegistry()

    def gauge(name: str, text: str, labels: tuple[str, ...], values: Mapping[Any, float]) -> None:
        metric = Gauge(f"trellis_{name}", text, labels, registry=registry)
        for of, value in values.items():
            (metric.labels(*of) if labels else metric).set(value)

    gauge(
        "releases",
        "Releases of a dataset in a state.",
        ("dataset", "state"),
        {(dataset, state): states[dataset, state] for dataset in datasets for state in _STATES},
    )
    for part, meaning in _PARTS.items():
        of_part = {(account.dataset,): getattr(account, part).epsilon for account in accounts}
        gauge(f"budget_{part}_epsilon", f"Epsilon, at the cap's delta: {meaning}.", ("dataset",), of_part)
    gauge(
        "bytes",
        "Bytes on disk: the store's file, shards of published releases, Prefect's files. Others depend on the records.",
        ("part",),
        {(part,): size for part, size in sizes.items()},
    )
    gauge(
        "last_success_timestamp_seconds",
        "When the dataset's latest published release passed its checks; 0 where none has.",
        ("dataset",),
        {(dataset,): last[dataset].timestamp() if dataset in last else 0 for dataset in datasets},
    )
    gauge(
        "last_success_age_seconds",
        "How long ago that was when these metrics were written.",
        ("dataset",),
        {(dataset,): (now - at).total_seconds() for dataset, at in last.items()},
    )
    gauge("metrics_timestamp_seconds", "When these metrics were written.", (), {(): now.timestamp()})
    return generate_latest(registry).decode()


def write_metrics(path: Path) -> None:
    """Write every metric to a file, for node_exporter's textfile collector: completely or not at all, and readable for it."""
    with beside(path) as file:
        file.write(metrics_answer().encode())
    path.chmod(0o644)


def _sizes(con: Connection, releases: Iterable[ListedRelease]) -> dict[str, int]:
    """Return the bytes of what may be known: the store's own file, shards of published releases, and Prefect's files.

    What is left out is as large as true counts make it: vaults, slices in `tmp`, logs of what went wrong, and shards that may not be
    sealed, or hold exact counts that are not published.
    """
    published = [release.id for release in releases if release.state == "published"]
    return {
        "store": _bytes([home() / STORE]),
        SHARDS: sum(_bytes(_known_shards(con, release_id)) for release_id in published),
        "prefect": _bytes(Path(folder) / file for folder, _, files in os.walk(home() / "prefect") for file in files),
    }


def _known_shards(con: Connection, release_id: str) -> Iterator[Path]:
    """Yield the shards of a published release, without noisy counts that were never sealed."""
    sealed = {shard_path(release_id, shard.name) for shard in list_shards(con, release_id)["noisy"].values()}
    for path in (home() / SHARDS / release_id).glob("*.parquet"):
        if path in sealed or place_of_noisy(path) is None:
            yield path


def _bytes(paths: Iterable[Path]) -> int:
    size = 0
    for path in paths:
        with suppress(FileNotFoundError):  # a running release or Prefect has just removed it
            size += path.stat().st_size
    return size
