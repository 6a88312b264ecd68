"""The floors of the house."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_arrows_run_down_only() -> None:
    """Every import contract of pyproject.toml is kept: floors, numerics without storage, one reader of the vault."""
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout
    assert " 0 broken" in done.stdout


def test_rooms_say_what_belongs_there_and_hold_few_modules() -> None:
    """Every package has an `__init__.py` with one docstring and no code, and at most a dozen modules."""
    modules = [path for floor in ("flows", "tasks", "storage") for path in (ROOT / floor).rglob("*.py")]
    for room in {path.parent for path in modules}:
        text = (room / "__init__.py").read_text()
        assert text.startswith('"""'), room
        assert text.rstrip().endswith('"""'), room
        assert text.count('"""') == 2, room
        assert len([path for path in modules if path.parent == room]) <= 12, room


def test_scripts_of_the_explorer_are_linted() -> None:
    """The linter finds nothing in the scripts that pages carry, and finds a name that is not declared."""
    linter = [Path(sys.executable).parent / "oxlint", "--deny-warnings"]
    done = subprocess.run([*linter, "tasks/explore/assets"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    fudged = ROOT / "build" / "fudged" / "fudged.js"
    fudged.parent.mkdir(parents=True, exist_ok=True)
    fudged.write_text("export const one = undeclared;\n")
    command = [*linter, "--no-ignore", "--config", ".oxlintrc.json", str(fudged)]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert found.returncode != 0
    assert "undeclared" in found.stdout
