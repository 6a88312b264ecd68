"""The budget of the suite holds itself."""

import pytest

from tests.support.processor_time import LIMIT, table, too_much


def test_a_test_over_the_limit_is_told_what_to_do(request: pytest.FixtureRequest) -> None:
    """It is named with what it took; at the limit nothing is said."""
    assert too_much(request.node, LIMIT) == ""
    assert f"{request.node.nodeid} takes {LIMIT + 1} processor seconds" in too_much(request.node, LIMIT + 1)


@pytest.mark.heavy("it shows that a reason is enough")
def test_a_test_with_a_reason_may_take_longer(request: pytest.FixtureRequest) -> None:
    """Neither it nor one of `make crash` is told anything."""
    assert too_much(request.node, LIMIT + 1) == ""


def test_the_table_adds_up() -> None:
    """It has a line per folder, the dearest first, their sum, and the dearest tests."""
    lines = list(table({"tests/a/one.py::x": 1.0, "tests/b/two.py::y": 2.5, "tests/b/two.py::z": 0.25}))
    assert [line.split()[:2] for line in lines[:4]] == [
        ["2.8", "tests/b"],
        ["1.0", "tests/a"],
        ["3.8", "together"],
        ["2.5", "tests/b/two.py::y"],
    ]
