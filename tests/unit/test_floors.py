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
    assert "5 kept, 0 broken" in done.stdout


def test_rooms_hold_no_code_in_their_doors() -> None:
    """An `__init__.py` says what the room is for, and nothing else."""
    doors = [door for floor in ("flows", "tasks", "storage") for door in (ROOT / floor).rglob("__init__.py")]
    assert len(doors) == 11
    for door in doors:
        text = door.read_text()
        assert text.startswith('"""'), door
        assert text.rstrip().endswith('"""'), door
        assert text.count('"""') == 2, door
