"""`import trellis`: what it offers, what it costs, and what it says where Python finds other packages in place of ours."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.support.user import User

NAMES = ["check", "ledger", "open_release", "plan", "plan_page", "release", "verify"]


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory, settle: Callable[[Path], User]) -> User:
    """Give a user with a table, who works in Python."""
    return settle(tmp_path_factory.mktemp("facade"))


def python(
    user: User, code: str, *, folder: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a script in a folder, as `python -c` does: that folder comes first on its path."""
    kept = {name: of for name, of in user.environment.items() if name not in {"PYTHONSAFEPATH", "PYTHONPATH"}}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=folder or user.folder, env=kept | environment, capture_output=True, text=True, check=False
    )


def test_it_offers_seven_functions_and_imports_them_when_they_are_used(user: User) -> None:
    """Nothing else has a name in it, and the import alone costs nothing."""
    heavy = "{'flows.api', 'polars', 'duckdb', 'prefect', 'numpy'}"
    script = (
        "import sys, json, trellis\n"
        f"early = sorted({heavy} & set(sys.modules))\n"
        "namespace = {}\n"
        "exec('from trellis import *', namespace)\n"
        "print(json.dumps([dir(trellis), early, sorted(set(namespace) - {'__builtins__'}), hasattr(trellis, 'load')]))"
    )
    done = python(user, script)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [NAMES, [], NAMES, False]


@pytest.mark.thorough
def test_python_says_what_the_command_line_says(user: User) -> None:
    """Plans, checks, ledgers and verifications are those of the commands, of a path or of keys."""
    keys = yaml.safe_load((user.folder / "spec.yaml").read_text())
    script = (
        "import json, trellis\n"
        "from dataclasses import asdict\n"
        f"keys = json.loads({json.dumps(json.dumps(keys))})\n"
        "planned, same = trellis.plan('spec.yaml'), trellis.plan(keys)\n"
        "checked, wrong = trellis.check(keys), trellis.check(keys | {'mechanism': 'inftad'})\n"
        "released = trellis.release(keys)\n"
        "spent = trellis.ledger().datasets[0].spent.epsilon\n"
        "verified = trellis.verify(released.folder)\n"
        "print(json.dumps([planned.epsilon, planned.rho, same.rho, checked.ok, wrong.ok, [asdict(one) for one in wrong.problems],"
        " spent, asdict(verified), str(released.folder)]))"
    )
    done = python(user, script)
    assert done.returncode == 0, done.stderr
    epsilon, rho, again, fine, not_fine, problems, spent, verified, folder = json.loads(done.stdout)
    assert (fine, not_fine, problems[0]["field"]) == (True, False, "mechanism")
    assert verified == {"ok": True, "failures": [], "unread": None}
    planned = user.run("plan", "spec.yaml", "--json").json()
    assert (epsilon, rho, again) == (planned["epsilon"], planned["rho"], planned["rho"])
    assert spent == user.run("ledger", "--json").json()["datasets"][0]["spent"]["epsilon"]
    assert user.run("verify", folder, "--json").json() == {"ok": True, "failures": []}


@pytest.fixture(params=["tasks.py", "flows/__init__.py"])
def foreign(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Make a folder of another project with a module or a package of one of our names."""
    path: Path = tmp_path / request.param
    path.parent.mkdir(exist_ok=True)
    path.write_text("print('imported what lies here')\n")
    return path


def test_a_foreign_package_is_named(user: User, foreign: Path) -> None:
    """It takes one sentence, which names what was found; nothing of it is run."""
    done = python(
        user,
        "import trellis; trellis.plan",
        folder=foreign.parent if foreign.name == "tasks.py" else foreign.parents[1],
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"Trellis cannot start: Python finds {foreign} in place of Trellis' package" in done.stderr.splitlines()[-1]
    command = [Path(sys.executable).with_name("trellis"), "--help"]
    path = str(foreign.parent if foreign.name == "tasks.py" else foreign.parents[1])
    said = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (1, "")
    assert said.stderr.startswith(f"Trellis cannot start: Python finds {foreign} in place of")
    assert said.stderr.count("\n") == 1


def test_the_command_line_takes_no_notice_of_the_folder_it_is_in(user: User, foreign: Path) -> None:
    """There it begins like anywhere else."""
    command = [Path(sys.executable).with_name("trellis"), "--version"]
    folder = foreign.parent if foreign.name == "tasks.py" else foreign.parents[1]
    said = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr) == (0, "")
