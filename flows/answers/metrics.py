"""Metrics of the store for Prometheus: releases by state, what is left of budgets, bytes, and the age of the last success."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from flows.answers.ledger import ledger_answer
from storage.database.connections import store
from storage.machine.files import beside
from storage.machine.home import SHARDS, VAULTS, home
from storage.releases.register import last_published, list_releases

_STATES = ("reserved", "running", "published", "failed", "refused", "abandoned")
_PARTS = {
    "cap": "what all releases about the dataset's people may cost together",
    "spent": "what they have spent or reserved",
    "left": "what one more release may cost",
}


def metrics_answer() -> str:
    """Return every metric in Prometheus's text format. All of them are public, and none depends on a true count."""
    registry = CollectorRegistry()
    registry.register(_Store())
    return generate_latest(registry).decode()


def write_metrics(path: Path) -> None:
    """Write every metric to a file, for node_exporter's textfile collector: completely or not at all, and open to readers."""
    with beside(path) as file:
        file.write(metrics_answer().encode())
    path.chmod(0o644)


class _Store(Collector):
    """What the store holds, read when it is asked for."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield each metric with its values."""
        with store() as con:
            releases, published = list_releases(con), last_published(con)
        accounts = ledger_answer(None).datasets
        states = Counter((release.dataset, release.state) for release in releases)
        datasets = sorted({release.dataset for release in releases})
        yield _gauge(
            "trellis_releases",
            "Releases of a dataset in a state.",
            ("dataset", "state"),
            (((dataset, state), states[dataset, state]) for dataset in datasets for state in _STATES),
        )
        for part, meaning in _PARTS.items():
            yield _gauge(
                f"trellis_budget_{part}_epsilon",
                f"Epsilon, at the cap's delta: {meaning}.",
                ("dataset",),
                (((account.dataset,), getattr(account, part).epsilon) for account in accounts),
            )
        yield _gauge(
            "trellis_bytes",
            "Bytes on disk, by part of TRELLIS_HOME; vaults are left out, since their size depends on the records.",
            ("part",),
            (((part,), size) for part, size in _sizes().items()),
        )
        now, last = datetime.now(UTC), {name: datetime.fromisoformat(at) for name, at in published.items()}
        yield _gauge(
            "trellis_last_success_timestamp_seconds",
            "When the dataset's latest published release passed its checks; 0 where none has.",
            ("dataset",),
            (((dataset,), last[dataset].timestamp() if dataset in last else 0) for dataset in datasets),
        )
        yield _gauge(
            "trellis_last_success_age_seconds",
            "How long ago that was when these metrics were written.",
            ("dataset",),
            (((dataset,), (now - at).total_seconds()) for dataset, at in last.items()),
        )
        yield _gauge(
            "trellis_metrics_timestamp_seconds", "When these metrics were written.", (), [((), now.timestamp())]
        )


def _gauge(
    name: str, text: str, labels: Iterable[str], values: Iterable[tuple[tuple[str, ...], float]]
) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(name, text, labels=tuple(labels))
    for of, value in values:
        gauge.add_metric(of, value)
    return gauge


def _sizes() -> dict[str, int]:
    """Return the bytes of each folder of TRELLIS_HOME, and of the files beside them as `store`.

    Vaults are left out: how large they are depends on the records.
    """
    sizes = Counter({"store": 0, SHARDS: 0, "prefect": 0})
    for folder, _, files in os.walk(home()):  # passes over folders that a running release has just removed
        inside = Path(folder).relative_to(home()).parts
        for file in files if VAULTS not in inside[:1] else ():
            with suppress(FileNotFoundError):
                sizes[inside[0] if inside else "store"] += (Path(folder) / file).stat().st_size
    return dict(sorted(sizes.items()))
