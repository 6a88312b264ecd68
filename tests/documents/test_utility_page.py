"""docs/how-to/utility.md: the spec that it shows is one, and the function and the line that it shows are a measure."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml

import tasks.validate.utility
from flows.spec.file import load_spec
from flows.spec.keys import Spec
from flows.trials.comparison import comparison_answer, make_comparison, trials_of
from storage.errors import InputError
from tasks.validate.utility import UTILITIES
from tests.support.spec import SPEC
from tests.support.user import REPOSITORY

PAGE = (REPOSITORY / "docs" / "how-to" / "utility.md").read_text(encoding="utf-8")


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the measure as the page has it, where it would stand, in a store of its own."""
    function, line = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    scope: dict[str, Any] = dict(vars(tasks.validate.utility))
    exec(function + line, scope)  # noqa: S102 (the page's own code)
    assert scope["UTILITIES"].keys() == {*UTILITIES, "largest"}
    monkeypatch.setitem(UTILITIES, "largest", scope["UTILITIES"]["largest"])
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))


def write_spec(folder: Path, **largest: object) -> Path:
    """Write a table of trips between ten stops, the page's spec over it, and a section for the page's measure."""
    piece = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert piece is not None
    keys = SPEC | yaml.safe_load(piece[1]) | {"utility": {"largest": largest}}
    stops = np.arange(10)
    pl.DataFrame({"zone": stops // 5, "stop": stops}).write_csv(folder / "stops.csv")
    generator = np.random.default_rng(1)
    trips = {"period": generator.integers(0, 48, 300), "origin": generator.geometric(0.5, 300) % 10}
    table = pl.DataFrame(trips | {"destination": generator.integers(0, 10, 300)}).group_by(pl.all()).len("trips")
    table.write_parquet(folder / "trips.parquet")
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump(keys))
    return path


def test_the_section_of_the_page_is_one_of_a_spec() -> None:
    """The keys that the page shows make a spec."""
    piece = re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert piece is not None
    spec = Spec.model_validate(SPEC | yaml.safe_load(piece[1]))
    assert spec.utility is not None
    assert spec.utility.fleet is not None


def test_the_function_is_a_measure(added: None, tmp_path: Path) -> None:
    """With its line in the table, a comparison measures it with the keys of the spec, and finds everything at a large ε."""
    file = load_spec(write_spec(tmp_path, axis="origin", areas=3))
    comparison = make_comparison(file, ["inftda"], [0.001, 1000.0], 2, ["largest"])
    rows = [row for entry in comparison.entries for row in trials_of(comparison, entry, [1, 2])]
    answer = comparison_answer(comparison, pl.DataFrame(rows, infer_schema_length=None), "nowhere")
    poor, good = ((result.utility or {})["largest"]["found"] for result in answer.results)
    assert poor is not None
    assert good is not None
    assert 0 <= poor.mean < good.mean == 1


def test_its_refusal_names_the_key(added: None, tmp_path: Path) -> None:
    """A key that does not fit the table is refused before any trial, by its path in the spec."""
    file = load_spec(write_spec(tmp_path, axis="origin", areas=11))
    with pytest.raises(InputError, match=r"utility\.largest\.areas must be from 1 to 10, got 11") as refused:
        make_comparison(file, ["inftda"], [1.0], 2, ["largest"])
    assert refused.value.field == "utility.largest.areas"
