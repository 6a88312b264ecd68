"""Results of benchmarks: each benchmark saves a JSON file under build/bench/, and `report.py` loads it."""

import csv
import json
import os
import platform
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "build" / "bench"


def save(name: str, rows: list[dict[str, Any]]) -> None:
    """Write the rows of a benchmark, with the machine on which they were measured."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n")


def load(name: str) -> dict[str, Any] | None:
    """Return what a benchmark has written last; None if it has not run."""
    file = FOLDER / f"{name}.json"
    return json.loads(file.read_text()) if file.exists() else None


def markdown(rows: Iterable[Iterable[str]]) -> str:
    """Return rows of cells as a table in Markdown; the second row says how columns are aligned."""
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def excerpt(file: str, rows: Iterable[Sequence[str]], is_shown: Callable[[Sequence[str]], bool]) -> str:
    """Write a table beside the pages as CSV, and return those of its rows that a page shows, with a link to all.

    Args:
        file: the name of the CSV file.
        rows: the heads, how columns are aligned, and the lines.
        is_shown: whether a page shows a line.
    """
    heads, aligned, *lines = rows
    with (Path(__file__).parent / file).open("w", encoding="utf-8", newline="") as stream:
        plain = ([cell.replace("`", "") for cell in line] for line in (heads, *lines))
        csv.writer(stream, lineterminator="\n").writerows(plain)
    shown = [*filter(is_shown, lines)]
    told = f"All {len(lines)} rows are in [{file}]({file})."
    return f"{markdown([heads, aligned, *shown])}\n\n{told}" if shown else told


def machine() -> str:
    """Return processor, cores and Python in a line."""
    models = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = next(int(line.split()[1]) / 2**20 for line in _lines("/proc/meminfo") if line.startswith("MemTotal"))
    model = models[0] if models else platform.machine()
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, Python {platform.python_version()}"


def _lines(file: str) -> list[str]:
    return Path(file).read_text().splitlines()
