"""The layout and the budget of the tests: what they share lies in tests/support, and unit tests stay alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from flows.run import driver
from tests.support.processor_time import LIMIT, too_much

TESTS = Path(__file__).parents[1]


def imported_by(path):
    """Return the modules that a file imports, wherever in it, with each name that it takes from them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{name.name}" for name in node.names)


def test_no_file_imports_a_test_file_or_a_conftest():
    """Every file of the tests imports of the tests what tests/support holds, and nothing else."""
    stems = {path.stem for path in TESTS.rglob("*.py") if path.stem == "conftest" or path.stem.startswith("test_")}
    found = {
        f"{path.relative_to(TESTS)}: {name}"
        for path in TESTS.rglob("*.py")
        for name in imported_by(path)
        if name.startswith(".")
        or (name.split(".")[0] == "tests" and not f"{name}.".startswith("tests.support."))
        or name.split(".")[0] in stems
    }
    assert found == set()


def test_every_file_of_tests_lies_in_a_suite():
    """Test files lie in a folder of tests/unit, releases, end_to_end, documents, crash, cluster, statistical or browser."""
    suites = {"unit", "releases", "end_to_end", "documents", "crash", "cluster", "statistical", "browser"}
    assert {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")} == suites


def test_a_unit_test_can_start_no_process():
    """Whoever starts a process in this suite fails, however it is started."""
    with pytest.raises(AssertionError, match="starts a process"):
        subprocess.run([sys.executable, "--version"], check=True)


def test_a_unit_test_can_make_no_release():
    """Whoever makes, finishes or rehearses a release in this suite fails before anything is read."""
    with pytest.raises(AssertionError, match="makes no release"), driver.running("one", "dataset", ""):
        pass


def test_a_test_over_the_limit_is_told_what_to_do(request):
    """It is named with what it took; at the limit nothing is said, and above it nothing to one with a reason."""
    assert too_much(request.node, LIMIT) == ""
    assert f"{request.node.nodeid} takes {LIMIT + 1} processor seconds" in too_much(request.node, LIMIT + 1)
    request.node.add_marker(pytest.mark.thorough)
    assert too_much(request.node, 3 * LIMIT) == ""
    assert f"is {3 * LIMIT:g}." in too_much(request.node, 3 * LIMIT + 1)
    request.node.add_marker(pytest.mark.heavy("it shows that a reason is enough"))
    assert too_much(request.node, 3 * LIMIT + 1) == ""
