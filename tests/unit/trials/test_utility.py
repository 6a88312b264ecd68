"""Measures of the leaves in a comparison, without a server: their rows, their summary, and what is refused before any trial."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

from flows.cli.json_object import json_object
from flows.console.comparison_view import show_comparison
from flows.spec.file import load_spec
from flows.trials.comparison import comparison_answer, make_comparison
from flows.trials.utility import utility_rows
from storage.errors import InputError, SpecError, UsageError
from tasks.report.comparison_page import comparison_page
from tasks.validate.utility import UTILITIES, Terms
from tests.support.comparisons import rows_of
from tests.support.spec import SPEC

NUMBERS = ["busy", "flow", "pooled"]
STOPS = {"table": "stops.csv", "levels": ["zone", "stop"]}


def spec_at(folder: Path, **keys: Any) -> Path:
    """Write trips between six stops in three zones in four periods, the minutes between stops, and a spec."""
    generator = np.random.default_rng(8)
    numbers = np.arange(6)
    pl.DataFrame({"zone": numbers % 3, "stop": numbers}).write_csv(folder / "stops.csv")
    pairs = pl.DataFrame({"from": np.repeat(numbers, 6), "to": np.tile(numbers, 6)})
    pairs.with_columns(minutes=5 + 4 * (pl.col("from") - pl.col("to")).abs()).write_csv(folder / "minutes.csv")
    sizes = {"period": 4, "from": 2, "to": 6}
    pl.DataFrame({name: generator.integers(0, size, 400) for name, size in sizes.items()}).write_csv(
        folder / "trips.csv"
    )
    spec = SPEC | {
        "input": {"table": "trips.csv", "features": ["period", "from", "to"]},
        "hierarchy": {"period": {"values": 4}, "from": STOPS, "to": STOPS},
        "release": {"order": ["period", "from", "to"]},
        "public_data": True,
        "utility": {"fleet": {"period": "period", "minutes": 15, "capacity": 4, "durations": "minutes.csv"}},
    }
    (folder / "spec.yaml").write_text(yaml.safe_dump({key: of for key, of in (spec | keys).items() if of is not None}))
    return folder / "spec.yaml"


@pytest.mark.thorough
def test_every_trial_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each run has three ratios, which near 1 as ε grows; JSON, terminal and page show mean, least and most of them."""
    comparison = make_comparison(load_spec(spec_at(tmp_path)), ["inftda", "gaussian"], [0.05, 1e3], 3, ["fleet"])
    rows = rows_of(comparison, 3)
    written = utility_rows(comparison.utilities, rows)
    assert written.columns == ["mechanism", "epsilon", "run", "utility", "number", "value"]
    assert written.height == 2 * 2 * 3 * 3
    assert written["value"].null_count() == 0
    answer = comparison_answer(comparison, rows, "nowhere")
    show_comparison(answer)
    page, said = comparison_page(answer), capsys.readouterr().out
    for result in answer.results:
        told = json_object(result)["utility"]["fleet"]
        assert list(told) == NUMBERS
        for number, spread in told.items():
            of_runs = written.filter(mechanism=result.mechanism, epsilon=result.epsilon, number=number)["value"]
            assert spread == {"mean": pytest.approx(of_runs.mean()), "min": of_runs.min(), "max": of_runs.max()}
            shown = f"{spread['mean']:.2f} [{spread['min']:.2f}, {spread['max']:.2f}]"
            assert shown in said
            assert f"<td>{shown}</td>" in page
    rough, exact, *_ = (json_object(result)["utility"]["fleet"] for result in answer.results)
    assert all(exact[number] == {"mean": 1, "min": 1, "max": 1} for number in NUMBERS)
    assert any(rough[number]["mean"] != 1 for number in NUMBERS)
    assert "Utility: fleet" in page
    assert "utility fleet" in said


def test_nothing_is_said_where_nothing_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --utility there are no columns and no section, whatever the spec has, and no table of the section is read."""
    file = load_spec(spec_at(tmp_path))
    (tmp_path / "minutes.csv").unlink()
    comparison = make_comparison(file, ["inftda"], [1.0], 1)
    rows = rows_of(comparison)
    answer = comparison_answer(comparison, rows, "nowhere")
    show_comparison(answer)
    assert not [column for column in rows.columns if "fleet" in column]
    assert "utility" not in json_object(answer.results[0])
    assert "utility" not in comparison_page(answer).casefold() + capsys.readouterr().out.casefold()


@pytest.mark.parametrize(
    ("keys", "asked", "kind", "told"),
    [
        ({}, "flet", UsageError, "--utility must be among fleet, got flet."),
        ({"utility": None}, "fleet", SpecError, "utility.fleet must be given for --utility fleet."),
        ({"public_data": False}, "fleet", SpecError, "public_data must be true"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    keys: dict[str, Any], asked: str, kind: type[Exception], told: str, tmp_path: Path
) -> None:
    """An unknown measure, a spec without its section, and a table that may not be seen are refused."""
    with pytest.raises(kind) as refused:
        make_comparison(load_spec(spec_at(tmp_path, **keys)), ["inftda"], [1.0], 1, [asked])
    assert told in str(refused.value)
    assert getattr(refused.value, "hint", "")  # what to add, or what was meant


def test_tables_that_do_not_fit_are_refused_before_any_trial(tmp_path: Path) -> None:
    """Durations that lack a pair, or are not there, are refused by the key of the spec."""
    file = load_spec(spec_at(tmp_path))
    pl.read_csv(tmp_path / "minutes.csv")[:-1].write_csv(tmp_path / "minutes.csv")
    with pytest.raises(
        InputError, match=r"^utility\.fleet\.durations must list each pair .* 5 to 5 is there 0"
    ) as refused:
        make_comparison(file, ["inftda"], [1.0], 1, ["fleet"])
    assert refused.value.field == "utility.fleet.durations"
    (tmp_path / "minutes.csv").unlink()
    with pytest.raises(InputError, match=r"^utility\.fleet\.durations: there is no file"):
        make_comparison(file, ["inftda"], [1.0], 1, ["fleet"])


def test_a_measure_of_ones_own_has_its_keys_and_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A function that is added to the table gets its section: keys as written, tables read as text, and listed codes in order.

    A number that no run has is null in JSON and in the rows, and a dash in the terminal and on the page.
    """
    seen: list[Terms] = []

    def own(tree: Any, true: Any, released: Any, terms: Terms) -> dict[str, float | None]:
        seen.append(terms)
        return {"kept": released.counts.sum() / true.counts.sum(), "never": None}

    monkeypatch.setitem(UTILITIES, "own", own)
    hierarchy = {"period": {"values": ["3", "1", "0", "2"]}, "from": STOPS, "to": STOPS}
    section = {"own": {"weight": 2, "name": "x", "zones": "stops.csv"}}
    file = load_spec(spec_at(tmp_path, hierarchy=hierarchy, utility=section))
    comparison = make_comparison(file, ["inftda"], [1.0], 2, ["own", "own"])
    rows = rows_of(comparison, 2)
    assert utility_rows(comparison.utilities, rows).filter(number="never")["value"].to_list() == [None, None]
    answer = comparison_answer(comparison, rows, "nowhere")
    found = json_object(answer.results[0])["utility"]["own"]
    assert (found["kept"]["mean"], found["never"]) == (1, None)  # the total is public
    assert seen[-1].keys == {"weight": 2, "name": "x"}
    assert seen[-1].tables["zones"].rows()[4] == ("1", "4")
    assert seen[-1].listed == {"period": ("3", "1", "0", "2")}
    show_comparison(answer)
    assert "–" in capsys.readouterr().out.split("utility own")[1].split("what a release")[0]
    assert "<td>–</td>" in comparison_page(answer)
