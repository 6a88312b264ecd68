"""Locations of tables in databases: without credentials, and with the schema of the table; no server is asked."""

import traceback
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.forecast.check import check_answer
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from storage.errors import InputError, TrellisError
from tests.support.postgresql import PASSWORD, USER
from tests.support.spec import SPEC


def spec_over(folder: Path, table: str) -> Path:
    """Write a spec over a table of trips, and the codebook."""
    (folder / "codebook.csv").write_text("region,area\n1,11\n")
    keys: dict[str, Any] = SPEC | {
        "input": {"table": table, "origin": "home", "destination": "work"},
        "hierarchy": {"table": "codebook.csv", "levels": ["region", "area"]},
        "release": {"tree": "destination", "finest": "area"},
    }
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(keys))
    return path


@pytest.mark.parametrize(
    "location",
    [
        "postgresql://{user}:{password}@127.0.0.1/postgres::public.trips",
        "postgresql://{user}@127.0.0.1/postgres::public.trips",
        "postgres://{user}:{password}@127.0.0.1/postgres",
        "postgresql://127.0.0.1/postgres?user={user}&password={password}::public.trips",
        "postgresql://{user}:a::{password}@127.0.0.1/postgres::public.trips",
        "postgresql+psycopg://{user}:{password}@127.0.0.1/postgres::public.trips",
        "mysql://{user}:{password}@127.0.0.1/postgres::public.trips",
    ],
)
@pytest.mark.parametrize("through", ["the spec", "a variable"])
def test_a_location_holds_no_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str, through: str
) -> None:
    """A user or a password in a location is refused, by `check` too, and neither is repeated; nor is one from the environment."""
    location = location.format(user=USER, password=PASSWORD)
    monkeypatch.setenv("TRIPS", location)
    path = spec_over(tmp_path, location if through == "the spec" else "${TRIPS}")
    with pytest.raises(TrellisError, match=r"^input\.table must ") as refused:
        make_plan(load_spec(path))
    assert refused.value.field == "input.table"
    fault = refused.value
    said = f"{''.join(traceback.format_exception(fault))} {fault!r} {vars(fault)} {check_answer(path)!r}"
    assert "input.table" in said
    assert PASSWORD not in said
    assert USER not in said


@pytest.mark.parametrize("inner", ["trips", "a.b.c", "", "public.trips; DROP TABLE x", "public."])
def test_a_table_is_named_with_its_schema(tmp_path: Path, inner: str) -> None:
    """Which schema a bare name means depends on who asks, so it is refused."""
    with pytest.raises(InputError, match=r"^input\.table must name the table with its schema, or be a query"):
        load_spec(spec_over(tmp_path, f"postgresql://127.0.0.1/postgres::{inner}")).source()
