"""A table of ten million rows in a real PostgreSQL is read within a bound on memory, each step in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.postgresql import PASSWORD, USER, Postgres
from tests.support.spec import SPEC
from tests.support.user import REPOSITORY

ROWS, PAIRS, ZONES = 10_000_000, 100_000, 5_000
DUCKDB = 2**28  # bytes that DuckDB may take while a table is ingested
BATCHES = 2**26  # bytes for batches on their way; the rows as Arrow would be 200 MB, and as Python's objects a gigabyte

STEP = """
import resource, sys
from pathlib import Path
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from storage.counts.vault import vault
from tasks.ingest.task import ingest

plan, records = make_plan(load_spec(Path(sys.argv[1]))), 0
if sys.argv[2] == "fingerprint":
    plan.read_table()
elif sys.argv[2] == "ingest":
    ingest.fn("a-release", plan.source, plan.units, plan.promised, int(sys.argv[3]))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
if sys.argv[2] == "ingest":
    with vault("a-release") as con:
        records = con.execute("SELECT sum(true_count)::BIGINT FROM records").fetchone()[0]
print(peak * 1024, records)
"""


def filled(server: Postgres, folder: Path) -> Path:
    """Make a codebook and a table, of which row n, from 1, counts 1 + n mod 3 records; return a spec of theirs."""
    server.run(
        "CREATE TABLE zones AS SELECT lpad((n / 50)::text, 3, '0') AS district, lpad(n::text, 5, '0') AS zone"
        f" FROM generate_series(0, {ZONES - 1}) AS n",
        f"CREATE UNLOGGED TABLE trips AS SELECT lpad((n % {ZONES})::text, 5, '0') AS home,"
        f" lpad((n % {PAIRS} / {ZONES} * 17 % {ZONES})::text, 5, '0') AS work, 1 + n % 3 AS people, 'person ' || n AS person"
        f" FROM generate_series(1::bigint, {ROWS}) AS n",
    )
    columns = {"origin": "home", "destination": "work", "count": "people"}
    keys = SPEC | {
        "input": {"table": f"{server.url}::public.trips"} | columns,
        "hierarchy": {"table": f"{server.url}::public.zones", "levels": ["district", "zone"]},
        "release": {"tree": "destination", "finest": "zone"},
    }
    spec = folder / "spec.yaml"
    spec.write_text(yaml.safe_dump(keys))
    return spec


def taken(spec: Path, step: str) -> tuple[int, int]:
    """Run a step in a process of its own; return the most memory that it took, in bytes, and the records in the vault."""
    own = {
        "PGUSER": USER,
        "PGPASSWORD": PASSWORD,
        "PYTHONPATH": str(REPOSITORY),
        "TRELLIS_HOME": str(spec.parent / "home"),
    }
    command = [sys.executable, "-c", STEP, spec, step, str(DUCKDB)]
    done = subprocess.run(command, env=os.environ | own, check=True, stdout=subprocess.PIPE, text=True)
    peak, records = done.stdout.split()
    return int(peak), int(records)


@pytest.mark.thorough
def test_ten_million_rows_need_no_more_memory_than_their_bound(postgres: Postgres, tmp_path: Path) -> None:
    """The fingerprint takes no more than some batches beside the plan; ingest that and DuckDB's share; every record arrives."""
    spec = filled(postgres, tmp_path)
    (plan, _), (fingerprint, _), (ingest, records) = (taken(spec, step) for step in ("plan", "fingerprint", "ingest"))
    assert fingerprint <= plan + BATCHES
    assert ingest <= plan + DUCKDB + BATCHES
    assert records == sum(1 + n % 3 for n in range(1, ROWS + 1))
