"""Seconds and memory to read a confidential table from PostgreSQL: its fingerprint, and ingest, each in a process of its own.

The benchmark makes a database server of its own in a folder for temporary files, from Debian's PostgreSQL, and removes it.
"""

import argparse
import tempfile
from pathlib import Path

import repository  # noqa: F401, for tests.support
from results import machine, markdown, save

from tests.support.many_rows import DUCKDB, Step, filled, taken
from tests.support.postgresql import running

STEPS: tuple[Step, ...] = ("plan", "fingerprint", "ingest")


def main() -> None:
    """Print a table and save it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the table")
    parser.add_argument("--pairs", type=int, default=1_000_000, help="different pairs of zones in it")
    asked = parser.parse_args()
    with running() as server, tempfile.TemporaryDirectory() as folder:
        spec = filled(server, asked.rows, asked.pairs, Path(folder))
        found = {step: taken(spec, step) for step in STEPS}
    save("database", [{"step": step, "seconds": of.seconds, "MiB": of.peak / 2**20} for step, of in found.items()])
    print(
        f"{asked.rows:,} rows with {asked.pairs:,} pairs of zones; DuckDB may take {DUCKDB / 2**20:.0f} MiB. {machine()}\n"
    )
    rows = [["step", "seconds", "memory of the process, MiB"], ["---", "---:", "---:"]]
    rows += [
        [step, "" if step == "plan" else f"{of.seconds:.1f}", f"{of.peak / 2**20:.0f}"] for step, of in found.items()
    ]
    print(markdown(rows))


if __name__ == "__main__":
    main()
