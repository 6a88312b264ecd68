"""What the releases of the library publish stays as it is, whatever becomes of the house around it.

Their noise is fixed. Where a change is meant to alter what is published, `TRELLIS_GOLDEN=1` in the environment of these tests writes
`golden.json` again, and the difference shows which families it reaches.
"""

import hashlib
import json
import os
from pathlib import Path

import polars as pl
import pytest

from tests.support.library import ROWS

GOLDEN = Path(__file__).parent / "golden.json"
# which no release shares with another, or which hang on a library's bytes
OF_THE_RUN = {"id", "ledger", "versions", "seals"}
# whose noise OpenDP draws, unseeded
REPEATABLE = [name for name, row in ROWS.items() if row[0] != "stability_histogram"]


def digests(folder):
    """Return a hash of the tables of each kind in a published folder, and of its manifest's values."""
    found = {}
    for kind in ("counts", "views", "noisy_counts", "signal"):
        tables = sorted((folder / kind).rglob("*.parquet"))
        texts = [f"{table.relative_to(folder)}\n{pl.read_parquet(table).write_csv()}" for table in tables]
        if texts:
            found[kind] = _short_hash("".join(texts))
    manifest = json.loads((folder / "manifest.json").read_text())
    found["manifest"] = _short_hash(json.dumps(_rounded({k: v for k, v in manifest.items() if k not in OF_THE_RUN})))
    return found


def _short_hash(text):
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _rounded(value):
    """Return a value of JSON in the order of its keys, with numbers to nine digits: processors differ beyond."""
    if isinstance(value, dict):
        return {key: _rounded(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value


@pytest.mark.parametrize("name", REPEATABLE)
def test_what_is_published_is_as_it_was(library, name):
    """Counts, views, noisy counts, the rows that stand out, and every value of the manifest."""
    found, golden = digests(library[name].folder), json.loads(GOLDEN.read_text())
    if os.environ.get("TRELLIS_GOLDEN"):
        GOLDEN.write_text(json.dumps(golden | {name: found}, indent=1, sort_keys=True) + "\n")
    else:
        assert found == golden[name]
