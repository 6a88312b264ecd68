"""A comparison as a command runs it: with a Prefect server and a progress bar, and written to a folder."""

import json
import math
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.json_object import json_object
from flows.console import terminal
from flows.server.process import prefect_server, wait_until_recorded
from flows.spec.file import SpecFile
from storage.errors import InputError, StoreError, UsageError, disk_fault
from storage.machine.clock import utc_now
from storage.machine.files import beside
from storage.machine.home import home, subfolder

if TYPE_CHECKING:
    from tasks.pages.trial_results import TrialResults


def numbers_of(option: str, text: str) -> list[float]:
    """Return the numbers of an option that lists them.

    Raises:
        UsageError: one of them is not a number above zero.
    """
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(math.isfinite(number) and number > 0 for number in numbers):
        raise UsageError(f"{option} must list numbers > 0, such as 0.1,1,10; got {text}.", field=option)
    return numbers


def compare_and_write(
    file: SpecFile,
    mechanisms: list[str],
    epsilons: list[float],
    runs: int,
    out: Path | None,
    utilities: Sequence[str] = (),
) -> "TrialResults":
    """Compare mechanisms on the table of a spec, write the page, the rows and the figures, and return what was found.

    Without a named folder each comparison has a new one. In a named folder it replaces an earlier comparison.

    Raises:
        TrellisError: as `make_comparison`; or the folder cannot be written, or the server is gone.
    """
    folder = (out or new_folder(file)).absolute()
    with prefect_server(subfolder("prefect"), home() / "address"):
        from httpx import HTTPError

        from flows.parallel_trials import run_trials
        from flows.trials.comparison import comparison_answer, error_rows, make_comparison, stated_rows
        from flows.trials.coverage import coverage_rows
        from flows.trials.utility import utility_rows
        from tasks.pages.comparison import comparison_page

        comparison = make_comparison(file, mechanisms, epsilons, runs, utilities)
        with terminal.trials_progress(len(comparison.entries) * runs) as tried:
            try:
                rows, run, task_runs = run_trials(comparison, tried)
            except HTTPError as fault:
                raise StoreError(f"The Prefect server no longer answers ({type(fault).__name__}).") from None
        wait_until_recorded(run, task_runs)
    results = comparison_answer(comparison, rows, str(folder))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "utility.parquet").unlink(missing_ok=True)  # of an earlier comparison
        tables = {"errors": error_rows(rows), "coverage": coverage_rows(rows), "rows": stated_rows(rows)}
        if comparison.utilities:
            tables["utility"] = utility_rows(comparison.utilities, rows)
        for name, table in tables.items():
            with beside(folder / f"{name}.parquet") as written:
                table.write_parquet(written)
        with beside(folder / "comparison.json") as written:
            written.write(json.dumps(json_object(results), ensure_ascii=False, indent=2).encode() + b"\n")
        with beside(folder / "index.html") as written:
            written.write(comparison_page(results).encode())
    except OSError as fault:
        raise disk_fault(fault, "--out", str(folder)) or InputError(
            f"--out: {folder} cannot be written ({fault.strerror}).", field="--out"
        ) from None
    return results


def new_folder(file: SpecFile) -> Path:
    """Return `compare-<name>-<UTC time>` below the spec's output, with a number behind it where that is there."""
    wanted = f"compare-{file.spec.name}-{utc_now().replace('-', '').replace(':', '')}"
    names = chain([wanted], (f"{wanted}-{number}" for number in count(2)))
    return next(folder for folder in (file.output() / name for name in names) if not folder.exists())
