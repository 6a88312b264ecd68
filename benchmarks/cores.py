"""Measure how much a second core speeds up the branch stages of a release: one thread and two threads, in turn, with the plain driver.

The nation is a tenth of the made-up nation of Italy's shape, with all five levels and ε = 10. The branches measure more than ten
million cells. The benchmark takes wall seconds from the first stage of a branch to the last, including vault, draws, shards and
seals. With OpenDP's sampler it goes down to municipalities of the same nation, because its draws take a hundred times as long.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from italy import folder_of
from nation import write_spec
from results import FOLDER, save

SHARE, EPSILON = 0.1, 10.0
BRANCH_STAGES = ("measure_branch", "optimise_branch")


def branch_stages(folder: Path, sampler: str, threads: int) -> tuple[float, int]:
    """Make a release on some threads; return the wall seconds of its branch stages, and their cells."""
    from flows.planning.plan import make_plan
    from flows.run.driver import make_release
    from flows.run.reservation import new_release
    from flows.run.runner import report_nothing
    from flows.specification.file import load_spec
    from storage.database.connections import store
    from storage.releases.shards import TRUNK, list_shards

    finest = "municipality" if sampler == "opendp" else "section"
    plan = make_plan(load_spec(write_spec(folder, folder_of(SHARE), EPSILON, sampler, finest)))
    release = new_release(plan)
    times: list[float] = []

    with ThreadPoolExecutor(threads) as executor:

        def submit(stage: Any, *arguments: Any) -> Future:
            return executor.submit(noted, stage.fn, stage.name, arguments)

        def noted(function: Callable[..., Any], name: str, arguments: tuple[Any, ...]) -> Any:
            began = time.monotonic()
            done = function(*arguments)
            if name in BRANCH_STAGES and arguments[2] != TRUNK:
                times.extend((began, time.monotonic()))
            return done

        make_release(plan, release, submit, report_nothing)
    with store() as con:
        cells = sum(seal.rows for (_, branch), seal in list_shards(con, release.id)["noisy"].items() if branch != TRUNK)
    return max(times) - min(times), cells


def main() -> None:
    """Measure pairs, and print and keep their medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sampler", choices=("opendp", "table"), nargs="+", default=["table", "opendp"])
    parser.add_argument("--pairs", type=int, default=3)
    arguments = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    rows = []
    for sampler in arguments.sampler:
        pairs = []
        for _ in range(arguments.pairs):
            pair = []
            for threads in (1, 2):
                with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
                    seconds, cells = branch_stages(Path(folder), sampler, threads)
                pair.append(seconds)
            pairs.append(pair)
        ratios = [one / two for one, two in pairs]
        one, two = (statistics.median(column) for column in zip(*pairs, strict=True))
        rows.append({"sampler": sampler, "cells": cells, "one": one, "two": two, "ratios": ratios})
        save("cores", rows)
        print(
            f"{sampler}: {cells:,} cells in branches, {one:.1f} s on one thread, {two:.1f} s on two:"
            f" {statistics.median(ratios):.2f} times faster ({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
