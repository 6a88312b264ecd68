"""The page that says whether views reach what was asked for: from made-up results, and as it stands."""

import re
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BENCHMARKS = DOCS.parent / "benchmarks"


@pytest.fixture
def views(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the benchmark."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return import_module("views")


def made_up(value: float, error: float) -> dict[str, Any]:
    """Return the results of a part with one figure, of which at most 5 was asked for."""
    figure = {"what": "an error", "value": value, "error": error, "least": float("-inf"), "most": 5.0}
    return {"machine": "a machine", "rows": [{"runs": 7, "text": "a table", "figures": [figure]}]}


@pytest.mark.parametrize(
    ("value", "error", "told"),
    [
        (4.0, 0.1, "reached"),
        (4.9, 0.1, "reached, but within two standard errors of the bound"),
        (5.1, 0.1, "MISSED, but within two standard errors of the bound"),
        (6.0, float("nan"), "MISSED"),
    ],
)
def test_a_figure_is_told_with_its_verdict(views: ModuleType, value: float, error: float, told: str) -> None:
    """A figure beyond its bound is missed, one that noise could have put on the other side says so, and each part states its runs."""
    page = views.page({"city": made_up(value, error), "adult": made_up(value, error)})
    stated = "" if error != error else f"{error:.2g}"
    assert page.count(f"| an error | {value:.4g} | {stated} | at most 5 | {told} |") == 2
    assert page.count("7 runs") == 2
    assert page.count("Measured on a machine.") == 2


def test_the_page_has_every_part_and_every_verdict(views: ModuleType) -> None:
    """All parts are on the page with their runs and tables; a verdict is of its figure and its bound."""
    page = (BENCHMARKS / "views.md").read_text(encoding="utf-8")
    assert re.findall("^## (.+)$", page, re.MULTILINE) == [
        "What was asked for",
        *(part.title for part in views.PARTS.values()),
    ]
    figures = re.findall(r"^\| (.+?) \| ([\d.,]+) \| .*? \| (.+?) \| (reached|MISSED)", page, re.MULTILINE)
    assert len(figures) == 19
    for what, value, asked, verdict in figures:
        bounds = [(side, float(of)) for side, of in re.findall(r"at (least|most) ([\d.]+)", asked)]
        number = float(value.replace(",", ""))
        holds = all(number >= bound if side == "least" else number <= bound for side, bound in bounds)
        assert bounds, what
        assert (verdict == "reached") == holds, what
    for mechanism in ("cbdp", "inftda_reconciled"):
        assert sum(f"Adult, {mechanism} with views" in what for what, *_ in figures) == 2
    assert "binary_tree" not in page


def test_the_page_of_mechanisms_has_the_figures_of_the_page() -> None:
    """The table of baselines has the errors of the benchmark's page, and links to it."""
    page, mechanisms = (
        (folder / name).read_text("utf-8") for folder, name in ((BENCHMARKS, "views.md"), (DOCS, "mechanisms.md"))
    )
    assert "(../benchmarks/views.md" in mechanisms
    for name in ("laplace", "hay", "hay:pruned", "hay:geometric", "hay:pruned_geometric", "cbdp"):
        row = "cbdp, o5" if name == "cbdp" else name
        (errors,) = re.findall(rf"^\| {re.escape(row)} (\|.+)$", page, re.MULTILINE)
        assert f"| {name} {errors}" in mechanisms, name
