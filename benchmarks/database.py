"""Seconds and memory to read a confidential table from PostgreSQL: its fingerprint, and ingest, each in a process of its own.

The benchmark makes a database server of its own in a folder for temporary files, from Debian's PostgreSQL, and removes it.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from results import machine, markdown, save

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # the server is that of the tests

from tests.support.postgresql import PASSWORD, USER, Postgres, running  # noqa: E402

ZONES = 5_000
MEMORY = 2**28  # bytes that DuckDB may take while it ingests

SPEC = """\
name: many
dataset: many
input: {{table: "{url}::public.trips", origin: home, destination: work, count: people}}
hierarchy: {{table: "{url}::public.zones", levels: [district, zone]}}
release: {{tree: destination, finest: zone}}
privacy: {{unit: one trip, neighbours: substitution, max_records_per_unit: 1, epsilon: 1.0, delta: 1.0e-8, accountant: zcdp}}
budget: {{epsilon: 1.0, delta: 1.0e-7}}
"""

STEP = """
import resource, sys, time
from pathlib import Path
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from tasks.ingest.task import ingest

plan, began = make_plan(load_spec(Path(sys.argv[1]))), time.monotonic()
if sys.argv[2] == "fingerprint":
    plan.read_table()
elif sys.argv[2] == "ingest":
    ingest.fn("a-release", plan.source, plan.units, plan.promised, int(sys.argv[3]))
print(time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def fill(server: Postgres, rows: int, pairs: int) -> None:
    """Make a codebook, and a table of so many rows that have so many pairs of zones."""
    server.run(
        "CREATE TABLE zones AS SELECT lpad((n / 50)::text, 3, '0') AS district, lpad(n::text, 5, '0') AS zone"
        f" FROM generate_series(0, {ZONES - 1}) AS n",
        "CREATE UNLOGGED TABLE trips AS SELECT lpad((n % 5000)::text, 5, '0') AS home,"
        f" lpad((n % {pairs} / 5000 * 17 % 5000)::text, 5, '0') AS work, 1 + n % 3 AS people, 'person ' || n AS person"
        f" FROM generate_series(1::bigint, {rows}) AS n",
    )


def measure(spec: Path, step: str) -> tuple[float, float]:
    """Return the seconds of a step, without the plan, and the largest memory of its process in MiB."""
    environment = {
        **os.environ,
        "PGUSER": USER,
        "PGPASSWORD": PASSWORD,
        "PYTHONPATH": str(ROOT),
        "TRELLIS_HOME": str(spec.parent / "home"),
    }
    command = [sys.executable, "-c", STEP, spec, step, str(MEMORY)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    seconds, peak = done.stdout.split()
    return float(seconds), float(peak)


def main() -> None:
    """Print a table and save it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="rows of the table")
    parser.add_argument("--pairs", type=int, default=1_000_000, help="different pairs of zones in it")
    asked = parser.parse_args()
    with running() as server, tempfile.TemporaryDirectory() as folder:
        fill(server, asked.rows, asked.pairs)
        spec = Path(folder) / "spec.yaml"
        spec.write_text(SPEC.format(url=server.url))
        found = {step: measure(spec, step) for step in ("plan", "fingerprint", "ingest")}
    save("database", [{"step": step, "seconds": seconds, "MiB": peak} for step, (seconds, peak) in found.items()])
    print(
        f"{asked.rows:,} rows with {asked.pairs:,} pairs of zones; DuckDB may take {MEMORY / 2**20:.0f} MiB. {machine()}\n"
    )
    rows = [["step", "seconds", "memory of the process, MiB"], ["---", "---:", "---:"]]
    rows += [
        [step, "" if step == "plan" else f"{seconds:.1f}", f"{peak:.0f}"] for step, (seconds, peak) in found.items()
    ]
    print(markdown(rows))


if __name__ == "__main__":
    main()
