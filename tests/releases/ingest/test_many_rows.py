"""A table of ten million rows in a real PostgreSQL is read within a bound on memory."""

from pathlib import Path

import pytest

from tests.support.many_rows import DUCKDB, filled, taken
from tests.support.postgresql import Postgres

ROWS, PAIRS = 10_000_000, 100_000
BATCHES = 2**26  # bytes for batches on their way; the rows as Arrow would be 200 MB, and as Python's objects a gigabyte


@pytest.mark.thorough
@pytest.mark.heavy("ten million rows")
def test_ten_million_rows_need_no_more_memory_than_their_bound(postgres: Postgres, tmp_path: Path) -> None:
    """The fingerprint takes no more than some batches beside the plan; ingest that and DuckDB's share; every record arrives."""
    spec = filled(postgres, ROWS, PAIRS, tmp_path)
    plan, fingerprint, ingest = (taken(spec, step) for step in ("plan", "fingerprint", "ingest"))
    assert fingerprint.peak <= plan.peak + BATCHES
    assert ingest.peak <= plan.peak + DUCKDB + BATCHES
    assert ingest.records == sum(1 + n % 3 for n in range(1, ROWS + 1))
