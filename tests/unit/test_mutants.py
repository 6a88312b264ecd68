"""The list of mutants keeps up with the code: what each replaces is there, and so is the test that notices it."""

import ast
from functools import cache

import pytest

from tests.support.mutants import ROOT, listed_mutants

MUTANTS = listed_mutants()


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_mutant_is_another_program_with_a_test(mutant):
    """It is listed once; its text is in the file once, the file with the fault is Python and does something else, and the test is in its file."""
    listed = [(of.file, of.text, of.replacement) for of in MUTANTS]
    assert listed.count((mutant.file, mutant.text, mutant.replacement)) == 1
    faulty = ast.parse(mutant.put_into(ROOT))
    assert ast.dump(faulty) != ast.dump(parsed(mutant.file))
    path, _, test = mutant.test.partition("::")
    name = test.partition("[")[0]
    assert not test or name in {node.name for node in parsed(path).body if isinstance(node, ast.FunctionDef)}
    assert is_thorough(parsed(path), name) == bool(mutant.thorough)


@cache
def parsed(path):
    """Return a file of the project as Python reads it."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def is_thorough(module, test):
    """Return whether only `make test-all` runs a test, or a whole module."""
    marks = [
        node.value if isinstance(node, ast.Assign) else node.decorator_list
        for node in module.body
        if (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark")
        or (isinstance(node, ast.FunctionDef) and node.name == test)
    ]
    return any(
        ast.unparse(mark).startswith("pytest.mark.thorough")
        for of in marks
        for mark in (of if isinstance(of, list) else [of])
    )
