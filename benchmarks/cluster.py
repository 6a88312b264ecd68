"""Measure what a cluster costs and gains: scheduler and workers on this machine, under mutual TLS, with a folder as mailbox.

`--part stage`: the fixed cost of an order, in CPU seconds at home and at the worker, on a country so small that nothing else
counts. `--part speed`: the wall seconds of the branches with OpenDP's sampler, with one worker, two workers and two threads, in
turn. `--part cost`: all CPU seconds of a release with the table sampler, by threads and by workers, and the bytes that the mailbox
moves. Each prints what was asked for beside what it measured. The nation is the made-up one of Italy's shape.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import repository  # noqa: F401, for tests.support
import yaml
from italy import folder_of
from nation import write_spec
from results import FOLDER, save

from tests.support.cluster import Machines, cluster, count_bytes

BRANCH_STAGES = ("measure_branch", "optimise_branch", "repeat_branch", "estimate_branch", "settle_branch")
EPSILON = 10.0


@dataclass
class Measured:
    """What a release took.

    Attributes:
        branches: wall seconds from the beginning of the first stage of a branch to the end of the last.
        home: CPU seconds of this process.
        workers: CPU seconds of all workers.
        stages: of branches.
        cells: of branches.
        shards: bytes of the shards of branches.
    """

    branches: float
    home: float
    workers: float
    stages: int
    cells: int
    shards: int


def main() -> None:
    """Measure the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--part", choices=("stage", "speed", "cost"), nargs="+", default=["stage", "speed", "cost"])
    parser.add_argument("--share", type=float, default=0.1, help="of the nation's flows")
    parser.add_argument("--pairs", type=int, default=3)
    arguments = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    if "stage" in arguments.part:
        stage_part(arguments.pairs)
    if "speed" in arguments.part:
        speed_part(arguments.share, arguments.pairs)
    if "cost" in arguments.part:
        cost_part(arguments.share)


def stage_part(rounds: int) -> None:
    """Measure the fixed cost of an order."""
    found = []
    with cut_as_before():
        measured(write_many, "threads", 1)  # what is imported late is imported now
    for _ in range(rounds):
        with cut_as_before():
            by_threads = measured(write_many, "threads", 1)
            by_cluster = measured(write_many, "dask", 1)
        found.append(((by_cluster.home - by_threads.home) / by_cluster.stages, by_cluster.workers / by_cluster.stages))
        print(
            f"{by_cluster.stages} orders: {1000 * found[-1][0]:.0f} ms at home, {1000 * found[-1][1]:.0f} ms at the worker",
            flush=True,
        )
    home, worker = (1000 * statistics.median(column) for column in zip(*found, strict=True))
    save("cluster_stage", [{"home": home, "worker": worker}])
    print(
        f"CPU of an order, median: at home {home:.0f} ms (asked: <= 25), at the worker {worker:.0f} ms (asked: <= 120)",
        flush=True,
    )


def write_many(folder: Path) -> Path:
    """Write a country with little to draw and many orders to do it with, and return the path of its spec."""
    import flows.cluster.cluster
    import tasks.tree.branches
    from flows.synthetic import write_ready
    from tasks.synthesize.country import draw_country

    tasks.tree.branches.BRANCH_CELLS, flows.cluster.cluster.BRANCHES_PER_WORKER = 20, 24
    generator = np.random.default_rng(1)
    country = draw_country(regions=4, provinces=8, municipalities=40, people=2000, generator=generator)
    return write_ready(country, folder, "many", "many", epsilon=4.0)


@contextmanager
def cut_as_before() -> Iterator[None]:
    """Let what `write_many` says about cutting branches hold inside alone."""
    import flows.cluster.cluster
    import tasks.tree.branches

    cells, branches = tasks.tree.branches.BRANCH_CELLS, flows.cluster.cluster.BRANCHES_PER_WORKER
    try:
        yield
    finally:
        tasks.tree.branches.BRANCH_CELLS, flows.cluster.cluster.BRANCHES_PER_WORKER = cells, branches


def speed_part(share: float, pairs: int) -> None:
    """Measure two workers against one, and against two threads."""
    rows = []
    for _ in range(pairs):
        walls = [
            measured(nation(share, "opendp", "municipality"), *how).branches
            for how in (("dask", 1), ("dask", 2), ("threads", 2))
        ]
        rows.append(walls)
        print("one worker {:.1f} s, two workers {:.1f} s, two threads {:.1f} s".format(*walls), flush=True)
    against_one = statistics.median(one / two for one, two, _ in rows)
    against_threads = statistics.median(threads / two for _, two, threads in rows)
    save("cluster_speed", [{"share": share, "walls": rows}])
    print(f"two workers against one: {against_one:.2f} (asked: >= 1.8)")
    print(f"two workers against two threads: {against_threads:.2f} (asked: >= 0.9)", flush=True)


def cost_part(share: float) -> None:
    """Measure all CPU seconds, and the bytes that are moved."""
    make = nation(share, "table", "section")
    by_threads = measured(make, "threads", 2)
    with tempfile.TemporaryDirectory() as folder:
        moved = Path(folder) / "bytes"
        by_cluster = measured(make, "dask", 2, moved)
        sizes = [line.split() for line in moved.read_text().splitlines()]
    shards, slices = (sum(int(size) for name, size in sizes if f"/{kind}/" in name) for kind in ("shards", "slices"))
    padded = sum(int(size) for name, size in dict(sizes).items() if "/shards/" in name)
    total, threads = by_cluster.home + by_cluster.workers, by_threads.home
    save(
        "cluster_cost",
        [
            {
                "share": share,
                "threads": threads,
                "home": by_cluster.home,
                "workers": by_cluster.workers,
                "moved": shards,
                "padded": padded,
                "slices": slices,
                "shards": by_cluster.shards,
                "cells": by_cluster.cells,
            }
        ],
    )
    print(
        f"{by_cluster.cells:,} cells in branches; CPU: threads {threads:.1f} s, home {by_cluster.home:.1f} s and workers {by_cluster.workers:.1f} s"
    )
    print(f"CPU of the cluster against threads: {total / threads:.2f} (asked: <= 1.3)")
    print(
        f"shards {by_cluster.shards / 1e6:.1f} MB, moved {shards / 1e6:.1f} MB: {shards / by_cluster.shards:.2f} times (asked: <= 3), and"
        f" {shards / padded:.2f} times the {padded / 1e6:.1f} MB that lie in the mailbox; slices moved {slices / 1e6:.1f} MB",
        flush=True,
    )


def nation(share: float, sampler: str, finest: str) -> Callable[[Path], Path]:
    """Return what writes the spec of a nation to a folder, and returns its path."""
    return lambda folder: write_spec(folder, folder_of(share), EPSILON, sampler, finest)


def measured(write: Callable[[Path], Path], workers: str, number: int, moved: Path | None = None) -> Measured:
    """Make a release, and return what it took.

    Args:
        write: writes its spec to a folder.
        workers: `threads` or `dask`.
        number: of threads, or of workers.
        moved: a file to which the bytes of each file are written that goes through the mailbox.
    """
    with (
        tempfile.TemporaryDirectory(dir=FOLDER) as name,
        running(Path(name) / "cluster", workers, number, moved) as machines,
    ):
        folder = Path(name)
        spec = write(folder)
        keys = yaml.safe_load(spec.read_text())
        keys["run"] = {**keys.get("run", {}), "workers": workers}
        spec.write_text(yaml.safe_dump(keys, sort_keys=False))
        return release(spec, folder, workers, number, machines)


@contextmanager
def running(folder: Path, workers: str, number: int, moved: Path | None) -> Iterator[Machines | None]:
    """Run a cluster, where that is what is measured."""
    if workers != "dask":
        yield None
        return
    if moved:
        count_bytes(moved)
    with cluster(folder, number, **({"TEST_BYTES": str(moved)} if moved else {})) as machines:
        os.environ["TRELLIS_CLUSTER"] = str(machines.file)
        yield machines


def release(spec: Path, folder: Path, workers: str, number: int, machines: Machines | None) -> Measured:
    """Make the release of a spec, and return what it took."""
    from flows.cluster.choice import by_workers
    from flows.planning.plan import make_plan
    from flows.run.driver import make_release
    from flows.run.reservation import new_release
    from flows.run.runner import report_nothing
    from flows.specification.file import load_spec
    from storage.counts.shard_files import shards_of_levels
    from storage.database.connections import store
    from storage.releases.shards import TRUNK, list_shards
    from tasks.work.stage import width

    os.environ["TRELLIS_HOME"] = str(folder / "home")
    plan = make_plan(load_spec(spec))
    made, times = new_release(plan), list[float]()

    def noted(function: Callable[..., Any], name: str, arguments: tuple[Any, ...]) -> Any:
        began = time.monotonic()
        done = function(*arguments)
        if name in BRANCH_STAGES and arguments[0].branch != TRUNK:
            times.extend((began, time.monotonic()))
        return done

    with by_workers(workers), ThreadPoolExecutor(width() if machines else number) as executor:
        began, of_workers = time.process_time(), seconds_of(machines)

        def submit(stage: Any, *arguments: Any) -> Future:
            return executor.submit(noted, stage.fn, stage.name, arguments)

        make_release(plan, made, submit, report_nothing)
        home, of_workers = time.process_time() - began, seconds_of(machines) - of_workers
        sizes = sum(path.stat().st_size for path in shards_of_levels(made.id) if f"_{TRUNK}" not in path.name)
    with store() as con:
        cells = sum(seal.rows for (_, branch), seal in list_shards(con, made.id)["noisy"].items() if branch != TRUNK)
    return Measured(max(times) - min(times), home, of_workers, len(times) // 2, cells, sizes)


def seconds_of(machines: Machines | None) -> float:
    """Return the CPU seconds of all workers so far."""
    if machines is None:
        return 0.0
    ticks = 0
    for name, process in machines.processes.items():
        if name.startswith("worker"):
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
