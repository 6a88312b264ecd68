"""Only the tables of mechanisms and of baselines and the laws know their names: all other code asks them for what it needs."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.mechanisms import MECHANISMS
from flows.spec.keys import DEFAULT_FOR_SIZES, DEFAULT_MECHANISM
from storage.releases.terms import DISCRETE_GAUSSIAN
from tasks.laws.named import LAWS

ROOT = Path(__file__).parents[2]

NAMES = {*MECHANISMS, *LAWS, *(name for recipe in MECHANISMS.values() for name in recipe.laws)}

# of mechanisms, of those of group sizes, and of what mechanisms are compared with
TABLES = {"flows/mechanisms.py", "tasks/sizes/estimators.py", "flows/trials/baselines.py"}

# where a name stands for itself: the defaults of a spec and of a ledger's charge, and the laws that a spec may name
NAMED = {
    ("flows/spec/keys.py", DEFAULT_MECHANISM),
    ("flows/spec/keys.py", DEFAULT_FOR_SIZES),
    ("flows/spec/sections/group_sizes.py", DEFAULT_FOR_SIZES),  # the key of a spec has the name of the mechanism
    ("storage/counts/columns.py", DEFAULT_FOR_SIZES),  # likewise
    ("flows/spec/keys.py", "gaussian"),
    ("flows/spec/keys.py", "laplace"),
    ("flows/spec/sections/privacy.py", "cascade"),  # splits have the names of the mechanisms that they make
    ("flows/spec/sections/privacy.py", "wavelet"),
    ("storage/releases/terms.py", DISCRETE_GAUSSIAN),
}


def faults_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of every name of a mechanism or law in some code, and every comparison with such a name."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in NAMES:
            yield node.lineno, str(node.value)
        if isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                if isinstance(side, ast.Attribute) and side.attr == "mechanism":
                    yield node.lineno, ast.unparse(node)
                if isinstance(side, ast.Attribute) and side.attr == "name" and _is_kind(side.value):
                    yield node.lineno, ast.unparse(node)
        if isinstance(node, ast.MatchValue):
            yield node.lineno, "match"


def _is_kind(value: ast.expr) -> bool:
    """Return whether an expression is called a mechanism, a recipe or a law."""
    called = value.attr if isinstance(value, ast.Attribute) else value.id if isinstance(value, ast.Name) else ""
    return called in {"mechanism", "recipe", "law"}


def test_no_file_outside_the_table_knows_a_mechanism_or_a_law_by_name() -> None:
    """Neither a mechanism's name nor a law's is compared with anything, and none stands in the code but as a default."""
    found = []
    for path in sorted(path for floor in ("flows", "tasks", "storage") for path in (ROOT / floor).rglob("*.py")):
        where = path.relative_to(ROOT).as_posix()
        if where in TABLES or where.startswith("tasks/laws/"):
            continue
        found += [(where, line, text) for line, text in faults_of(path.read_text()) if (where, text) not in NAMED]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        'if manifest.mechanism == "inftda_reconciled": pass',
        "if level.mechanism != DISCRETE_GAUSSIAN: pass",
        'TWO_PASSES = frozenset({"inftda_reconciled", "inftda_lenient"})',
        "if plan.mechanism.name in names: pass",
        'if plan.law == "laplace": pass',
        'noise = margins if law.name == "discrete_gaussian" else None',
    ],
)
def test_a_comparison_by_name_is_found(code: str) -> None:
    """The search finds a name in a comparison, in a set, and behind a constant."""
    assert list(faults_of(code))
