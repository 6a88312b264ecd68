"""A table of millions of rows, in PostgreSQL or in many files, and the steps that read it, each in a process of its own."""

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Literal

import duckdb

from tests.support.postgresql import PASSWORD, USER
from tests.support.user import REPOSITORY

Step = Literal["plan", "fingerprint", "ingest"]

DUCKDB = 2**28  # bytes that DuckDB may take while a table is ingested
_ZONES = 5_000

_SPEC = """\
name: many
dataset: many
input: {{table: "{trips}", origin: home, destination: work, count: people}}
hierarchy: {{table: "{zones}", levels: [district, zone]}}
release: {{tree: destination, finest: zone}}
privacy: {{unit: one trip, neighbours: substitution, max_records_per_unit: 1, epsilon: 1.0, delta: 1.0e-8, accountant: zcdp}}
budget: {{epsilon: 1.0, delta: 1.0e-7}}
"""

_STEP = """
import resource, sys, time
from pathlib import Path
from flows.planning.plan import make_plan
from flows.specification.file import load_spec
from storage.counts.vault import vault
from tasks.ingest.task import ingest

plan, began, records = make_plan(load_spec(Path(sys.argv[1]))), time.monotonic(), 0
if sys.argv[2] == "fingerprint":
    plan.read_table()
elif sys.argv[2] == "ingest":
    ingest.fn("a-release", plan.source, plan.units, plan.promised, int(sys.argv[3]))
seconds, peak = time.monotonic() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
if sys.argv[2] == "ingest":
    with vault("a-release") as con:
        records = con.execute("SELECT sum(true_count)::BIGINT FROM records").fetchone()[0]
print(seconds, peak * 1024, records)
"""


@dataclass(frozen=True)
class Taken:
    """What a step took."""

    seconds: float  # without the plan
    peak: int  # the most memory of its process, bytes
    records: int  # that are in the vault after an ingest; 0 after other steps


def filled(server, rows, pairs, folder):
    """Make a codebook, and a table whose row n, from 1, counts 1 + n mod 3 records of so many pairs of zones; return a spec of theirs in a folder."""
    server.run(
        "CREATE TABLE zones AS SELECT lpad((n / 50)::text, 3, '0') AS district, lpad(n::text, 5, '0') AS zone"
        f" FROM generate_series(0, {_ZONES - 1}) AS n",
        f"CREATE UNLOGGED TABLE trips AS SELECT lpad((n % {_ZONES})::text, 5, '0') AS home,"
        f" lpad((n % {pairs} / {_ZONES} * 17 % {_ZONES})::text, 5, '0') AS work, 1 + n % 3 AS people, 'person ' || n AS person"
        f" FROM generate_series(1::bigint, {rows}) AS n",
    )
    spec = folder / "spec.yaml"
    spec.write_text(_SPEC.format(trips=f"{server.url}::public.trips", zones=f"{server.url}::public.zones"))
    return spec


def filled_files(files, rows, pairs, folder):
    """Write the same rows into so many Parquet files of a folder `trips`, and the codebook beside it; return a spec of theirs."""
    (folder / "trips").mkdir()
    with duckdb.connect() as con:
        zones = f"SELECT lpad((n // 50)::VARCHAR, 3, '0') AS district, lpad(n::VARCHAR, 5, '0') AS zone FROM range({_ZONES}) AS of(n)"
        con.execute(f"COPY ({zones}) TO '{folder / 'zones.csv'}'")
        for number in range(files):
            first, last = number * rows // files + 1, (number + 1) * rows // files
            trips = (
                f"SELECT lpad((n % {_ZONES})::VARCHAR, 5, '0') AS home, lpad((n % {pairs} // {_ZONES} * 17 % {_ZONES})::VARCHAR, 5, '0') AS"
                f" work, 1 + n % 3 AS people, 'person ' || n AS person FROM range({first}, {last + 1}) AS of(n)"
            )
            con.execute(f"COPY ({trips}) TO '{folder / 'trips' / f'{number:05}.parquet'}'")
    spec = folder / "spec.yaml"
    spec.write_text(_SPEC.format(trips="trips/*.parquet", zones="zones.csv"))
    return spec


def taken(spec, step):
    """Run a step in a process of its own, and return what it took."""
    place = {"PYTHONPATH": str(REPOSITORY), "TRELLIS_HOME": str(spec.parent / "home")}
    environment = os.environ | {"PGUSER": USER, "PGPASSWORD": PASSWORD} | place
    command = [sys.executable, "-c", _STEP, spec, step, str(DUCKDB)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    seconds, peak, records = done.stdout.split()
    return Taken(float(seconds), int(peak), int(records))
