"""What commands that only look something up leave unimported, so that they answer at once."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import yaml

from flows.execution.driver import make_release
from flows.execution.reservation import new_release
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.walks.runner import report_nothing, submit_to
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country

SPEC = {
    "name": "looked-up",
    "dataset": "synthetic-country",
    "input": {"table": "data/trips.csv", "origin": "home", "destination": "work", "count": "people"},
    "hierarchy": {"table": "data/codebook.csv", "levels": ["region", "province", "municipality"]},
    "release": {"tree": "destination", "finest": "region"},
    "mechanism": "inftda",
    "privacy": {
        "unit": "one made-up commuter",
        "neighbours": "substitution",
        "max_records_per_unit": 1,
        "epsilon": 4.0,
        "delta": 1.0e-8,
        "accountant": "zcdp",
    },
    "budget": {"epsilon": 10.0, "delta": 1.0e-7},
    "output": "out",
}
NOT_FOR_A_LOOK = ["prefect", "opendp", "dp_accounting", "numpy", "scipy", "polars", "pyarrow"]
NOT_FOR_HELP = [*NOT_FOR_A_LOOK, "duckdb", "pydantic"]  # Typer itself imports pydantic where a command has options

ASK = """\
import json, sys
from flows.cli.main import main
code = main(sys.argv[1:])
print(json.dumps([code, sorted(name for name in sys.modules if "." not in name)]), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return a TRELLIS_HOME with one release, and its id."""
    folder = tmp_path_factory.mktemp("looked_up")
    drawn = draw_country(regions=2, provinces=3, municipalities=6, people=300, generator=np.random.default_rng(3))
    write_country(drawn, folder / "data")
    (folder / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as executor:
        patch.setenv("TRELLIS_HOME", str(folder / "home"))
        plan = make_plan(load_spec(folder / "spec.yaml"))
        release = new_release(plan)
        make_release(plan, release, submit_to(executor), report_nothing)
    return folder / "home", release.id


def imported_by(home: Path, *arguments: str) -> set[str]:
    """Return the packages that a process has imported once it has run a command to its end."""
    done = subprocess.run(
        [sys.executable, "-c", ASK, *arguments],
        env=os.environ | {"TRELLIS_HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    code, modules = json.loads(done.stderr.splitlines()[-1])
    assert code == 0, done.stderr
    return set(modules)


def test_help_imports_nothing_that_is_slow(tmp_path: Path) -> None:
    """`trellis --help` reads no table and opens no store, and imports nothing of what would."""
    assert imported_by(tmp_path, "--help").isdisjoint(NOT_FOR_HELP)


@pytest.mark.parametrize("command", ["ledger", "releases", "show"])
def test_a_look_into_the_store_imports_duckdb_alone(command: str, released: tuple[Path, str]) -> None:
    """What was released and spent is answered from DuckDB, without Prefect, the noise, and the libraries of arrays."""
    home, release_id = released
    modules = imported_by(home, command, *([release_id] if command == "show" else []))
    assert "duckdb" in modules
    assert modules.isdisjoint(NOT_FOR_A_LOOK)


def test_scipy_is_imported_only_when_a_parent_is_solved() -> None:
    """Who imports the module waits for no SciPy."""
    script = "import sys, tasks.optimize.solver; sys.exit('scipy.optimize' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
