"""The Prefect flow of a comparison: trials run in parallel, several in each task run, on the server that is running."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.task_runners import ThreadPoolTaskRunner

from flows.trials.comparison import Comparison, trials_of
from flows.trials.contestants import Contestant
from storage.errors import public_errors
from tasks.work.capacity import cores

MOST_TASK_RUNS = 180  # the server records about 40 a second


def run_trials(comparison: Comparison, tried: Callable[[int], None]) -> tuple[pl.DataFrame, str, int]:
    """Try every entry as often as is asked for.

    Args:
        tried: called with the number of further trials each time that some are done.
    Returns:
        A row per entry, run and level; the id of the flow run; and its task runs.
    """
    parts = _parts(comparison.runs, max(1, MOST_TASK_RUNS // len(comparison.entries)))

    @task(
        task_run_name="{mechanism} at ε = {epsilon:g}, runs {runs.start} to {runs.stop}",
        cache_policy=NO_CACHE,
        persist_result=False,
    )
    @public_errors
    def trials(mechanism: str, epsilon: float, runs: range) -> list[dict[str, Any]]:
        rows = trials_of(comparison, entry_of[mechanism, epsilon], runs)
        tried(len(runs))
        return rows

    entry_of: dict[tuple[str, float], Contestant] = {(entry.name, entry.epsilon): entry for entry in comparison.entries}

    @flow(
        name="compare",
        flow_run_name=f"compare {comparison.plan.file.spec.name}",
        task_runner=ThreadPoolTaskRunner(max_workers=cores()),  # type: ignore[arg-type]
        persist_result=False,
    )
    def compare() -> tuple[list[dict[str, Any]], str, int]:
        from prefect.runtime import flow_run

        futures = [trials.submit(*key, runs) for key in entry_of for runs in parts]
        return [row for future in futures for row in future.result()], str(flow_run.id), len(futures)

    rows, run, task_runs = compare()
    table = pl.DataFrame(rows, infer_schema_length=None)  # what is null in many rows is a number in others
    return table, run, task_runs


def _parts(runs: int, most: int) -> list[range]:
    """Return the runs, from run 1, in at most `most` parts of about equal length."""
    cuts = np.linspace(1, runs + 1, min(runs, most) + 1).round().astype(int).tolist()
    return [range(first, end) for first, end in pairwise(cuts)]
