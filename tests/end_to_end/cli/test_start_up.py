"""What commands that only look something up leave unimported, so that they answer at once."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from flows.api import release
from tests.support.spec import SPEC

NOT_FOR_A_LOOK = ["prefect", "opendp", "dp_accounting", "numpy", "scipy", "polars", "pyarrow"]
NOT_FOR_HELP = [*NOT_FOR_A_LOOK, "duckdb", "pydantic"]  # Typer itself imports pydantic where a command has options

ASK = """\
import json, sys
from flows.cli.main import main
code = main(sys.argv[1:])
print(json.dumps([code, sorted(name for name in sys.modules if "." not in name)]), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory, country: Path) -> tuple[Path, str]:
    """Return a TRELLIS_HOME with one release, and its id."""
    folder = tmp_path_factory.mktemp("looked_up")
    shutil.copytree(country, folder / "data")
    (folder / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRELLIS_HOME", str(folder / "home"))
        return folder / "home", release(folder / "spec.yaml").id


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


@pytest.mark.thorough
def test_a_look_into_the_store_imports_duckdb_alone(released: tuple[Path, str]) -> None:
    """What was released and spent is answered from DuckDB, without Prefect, the noise, and the libraries of arrays."""
    home, release_id = released
    for arguments in (["ledger"], ["releases"], ["show", release_id]):
        modules = imported_by(home, *arguments)
        assert "duckdb" in modules
        assert modules.isdisjoint(NOT_FOR_A_LOOK), arguments


def test_scipy_is_imported_only_when_a_parent_is_solved() -> None:
    """Who imports the module waits for no SciPy."""
    script = "import sys, tasks.optimize.solver; sys.exit('scipy.optimize' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
