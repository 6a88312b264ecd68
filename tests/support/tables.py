"""Trips of people in tables of any kind: `home`, `work` and `people`, over a codebook of `region` and `area`."""

from collections.abc import Sequence
from pathlib import Path

import yaml

from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from storage.counts.vault import vault
from tasks.ingest.codebook import read_codebook
from tasks.ingest.sources.locations import table_at
from tasks.ingest.task import ingest
from tests.support.spec import SPEC


def spec_over(folder: Path, table: str, codebook: str, name: str = "trips") -> Path:
    """Write a spec over two tables."""
    keys = SPEC | {
        "name": name,
        "dataset": name,
        "input": {"table": table, "origin": "home", "destination": "work", "count": "people"},
        "hierarchy": {"table": codebook, "levels": ["region", "area"]},
        "release": {"tree": "destination", "finest": "area"},
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(keys))
    return path


def records(spec: Path) -> list[tuple[int, int, int]]:
    """Ingest a table and return the records in the vault."""
    plan = make_plan(load_spec(spec))
    ingest.fn("a-release", plan.source, plan.units, plan.promised, 2**30)
    with vault("a-release") as con:
        found: list[tuple[int, int, int]] = con.execute("SELECT * FROM records ORDER BY ALL").fetchall()
    return found


def codes_in(path: str, folder: Path, levels: Sequence[str] = ("region", "area")) -> list[tuple[str, ...]]:
    """Return the areas of a codebook."""
    table = table_at("hierarchy.table", path, folder)
    return read_codebook(table, levels, by_path=False, not_all_of=None).rows()
