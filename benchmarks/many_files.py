"""Seconds and memory to read a confidential table from many Parquet files: its fingerprint, and ingest, each in a process of its own."""

import argparse
import tempfile
from pathlib import Path

import repository  # noqa: F401, for tests.support
from results import machine, markdown, save

from tests.support.many_rows import DUCKDB, Step, filled_files, taken

STEPS: tuple[Step, ...] = ("plan", "fingerprint", "ingest")


def main() -> None:
    """Print a table and save it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the table")
    parser.add_argument("--pairs", type=int, default=1_000_000, help="different pairs of zones in it")
    parser.add_argument("--files", type=int, default=40, help="files that hold them")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spec = filled_files(asked.files, asked.rows, asked.pairs, Path(folder))
        found = {step: taken(spec, step) for step in STEPS}
    save("many_files", [{"step": step, "seconds": of.seconds, "MiB": of.peak / 2**20} for step, of in found.items()])
    print(
        f"{asked.rows:,} rows in {asked.files:,} files with {asked.pairs:,} pairs of zones; DuckDB may take"
        f" {DUCKDB / 2**20:.0f} MiB. {machine()}\n"
    )
    rows = [["step", "seconds", "memory of the process, MiB"], ["---", "---:", "---:"]]
    rows += [
        [step, "" if step == "plan" else f"{of.seconds:.1f}", f"{of.peak / 2**20:.0f}"] for step, of in found.items()
    ]
    print(markdown(rows))


if __name__ == "__main__":
    main()
