"""The floors of the house, and who in it knows mechanisms and laws by their names."""

import ast
import subprocess
import sys
from pathlib import Path

from storage.releases.parts import DISCRETE_GAUSSIAN
from storage.releases.terms import DEFAULT_FOR_SIZES
from tasks.laws.named import LAWS
from tasks.mechanisms import MECHANISMS
from tests.support.user import REPOSITORY

PROGRAMS = Path(sys.executable).parent
MODULES = sorted(path for floor in ("flows", "tasks", "storage") for path in (REPOSITORY / floor).rglob("*.py"))
NAMES = {*MECHANISMS, *LAWS, *(name for recipe in MECHANISMS.values() for name in recipe.laws)}

# of mechanisms, of those of group sizes, and of what mechanisms are compared with
TABLES = {"tasks/mechanisms.py", "tasks/sizes/estimators.py", "flows/trials/baselines.py"}

# where a name stands for itself: the defaults of a spec and of a ledger's charge, and the laws that a spec may name
NAMED = {
    ("flows/specification/sections/input.py", DEFAULT_FOR_SIZES),  # the key of a spec has the name of the mechanism
    ("storage/tables.py", DEFAULT_FOR_SIZES),  # likewise
    ("flows/specification/sections/run.py", "gaussian"),
    ("flows/specification/sections/run.py", "laplace"),
    ("flows/specification/sections/privacy.py", "cascade"),  # splits have the names of the mechanisms that they make
    ("flows/specification/sections/privacy.py", "wavelet"),
    ("storage/releases/parts.py", DISCRETE_GAUSSIAN),
    ("storage/releases/terms.py", DEFAULT_FOR_SIZES),
}
BY_NAME = """
if manifest.mechanism == "inftda_reconciled": pass
if level.mechanism != DISCRETE_GAUSSIAN: pass
TWO_PASSES = frozenset({"inftda_reconciled", "inftda_lenient"})
if plan.mechanism.name in names: pass
if plan.law == "laplace": pass
noise = margins if law.name == "discrete_gaussian" else None
"""


def test_arrows_run_down_only():
    """Every import contract of pyproject.toml is kept: floors, numerics without storage, one reader of the vault."""
    done = subprocess.run([PROGRAMS / "lint-imports", "--no-cache"], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert " 0 broken" in done.stdout


def test_rooms_say_what_belongs_there_and_hold_few_modules():
    """Every package has an `__init__.py` with one docstring and no code, and at most a dozen modules."""
    for room in {path.parent for path in MODULES}:
        text = (room / "__init__.py").read_text()
        assert text.startswith('"""'), room
        assert text.rstrip().endswith('"""'), room
        assert text.count('"""') == 2, room
        assert len([path for path in MODULES if path.parent == room]) <= 12, room


def test_scripts_of_the_explorer_are_linted():
    """The linter finds nothing in the scripts that pages carry."""
    linter = [str(PROGRAMS / "oxlint"), "--deny-warnings", "tasks/pages/explorer/assets"]
    done = subprocess.run(linter, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def by_name(source):
    """Yield the line and the text of every name of a mechanism or law in some code, and every comparison with such a name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and node.value in NAMES:
            yield node.lineno, str(node.value)
        if isinstance(node, ast.MatchValue):
            yield node.lineno, "match"
        for side in (node.left, *node.comparators) if isinstance(node, ast.Compare) else ():
            if isinstance(side, ast.Attribute) and side.attr in {"mechanism", "name"}:
                called = ast.unparse(side.value).rpartition(".")[2]
                if side.attr == "mechanism" or called in {"mechanism", "recipe", "law"}:
                    yield side.lineno, ast.unparse(side)


def test_no_file_outside_the_tables_knows_a_mechanism_or_a_law_by_name():
    """Neither a mechanism's name nor a law's is compared with anything, and none stands in the code but as a default."""
    assert {line for line, _ in by_name(BY_NAME)} == set(range(2, 8))  # in a comparison, in a set, behind a constant
    found = []
    for path in MODULES:
        where = path.relative_to(REPOSITORY).as_posix()
        if where not in TABLES and not where.startswith("tasks/laws/"):
            found += [(where, *of) for of in by_name(path.read_text()) if (where, of[1]) not in NAMED]
    assert found == []
