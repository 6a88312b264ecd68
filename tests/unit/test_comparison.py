"""What is compared, without a server: every mechanism on features, and what cannot be tried."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml

from flows.comparison import comparison_answer, make_comparison, trials_of
from flows.mechanisms import MECHANISMS
from flows.spec import load_spec
from storage.errors import SpecError, UsageError

KEYS = {
    "name": "features",
    "dataset": "made-up",
    "public_data": True,
    "input": {"table": "people.csv", "features": ["colour", "size"]},
    "hierarchy": {"colour": {"values": 3}, "size": {"values": 4}},
    "release": {"order": ["colour", "size"]},
    "mechanism": "inftda",
    "privacy": {
        "unit": "one person",
        "neighbours": "substitution",
        "max_records_per_unit": 1,
        "epsilon": 1.0,
        "delta": 1e-6,
        "accountant": "zcdp",
    },
    "budget": {"epsilon": 1.0, "delta": 1e-6},
}


def spec_at(folder: Path, **keys: object) -> Path:
    """Write a table of 500 people of 12 kinds, and a spec."""
    generator = np.random.default_rng(6)
    table = {"colour": generator.integers(0, 3, 500), "size": generator.integers(0, 4, 500)}
    pl.DataFrame(table).write_csv(folder / "people.csv")
    (folder / "spec.yaml").write_text(yaml.safe_dump(KEYS | keys))
    return folder / "spec.yaml"


def test_every_mechanism_can_be_tried(tmp_path: Path) -> None:
    """Every mechanism, with every priority that it has, is tried on every level, and gets nearer as ε grows."""
    names = [
        f"{name}:{priority}" if len(mechanism.optimisers) > 1 else name
        for name, mechanism in MECHANISMS.items()
        for priority in list(mechanism.optimisers) or [""]
    ]
    comparison = make_comparison(load_spec(spec_at(tmp_path)), names, [0.1, 100.0], runs=2)
    rows = pl.DataFrame([row for entry in comparison.entries for row in trials_of(comparison, entry, [1, 2])])
    answer = comparison_answer(comparison, rows, "nowhere")
    assert answer["refused"] == {}
    assert [(result["mechanism"], result["epsilon"]) for result in answer["results"]] == [
        (name, epsilon) for name in names for epsilon in (0.1, 100.0)
    ]
    for loose, tight in zip(answer["results"][::2], answer["results"][1::2], strict=True):
        assert [level["level"] for level in tight["levels"]] == [0, 1, 2]
        assert tight["levels"][2]["l1"]["mean"] < loose["levels"][2]["l1"]["mean"]


def test_what_cannot_be_tried_is_told(tmp_path: Path) -> None:
    """A mechanism that refuses the universe is left out with its reason; where it is the only one, nothing is compared."""
    spec = load_spec(spec_at(tmp_path, hierarchy={"colour": {"values": 30_000}, "size": {"values": 30_000}}))
    comparison = make_comparison(spec, ["inftda", "gaussian"], [1.0], runs=1)
    assert [entry.name for entry in comparison.entries] == ["inftda"]
    assert "at most 100,000,000 leaves with mechanism gaussian" in comparison.refused["gaussian"]
    with pytest.raises(UsageError, match="None of them can be tried"):
        make_comparison(spec, ["gaussian"], [1.0], runs=1)


def test_only_public_tables_are_compared(tmp_path: Path) -> None:
    """Without public_data the table is not even opened."""
    path = spec_at(tmp_path, public_data=False)
    (tmp_path / "people.csv").write_text("not what it was")
    with pytest.raises(SpecError, match="public_data must be true"):
        make_comparison(load_spec(path), ["inftda"], [1.0], runs=1)


@pytest.mark.parametrize("name", ["magic", "inftda:magic", "gaussian:false_positives"])
def test_unknown_mechanisms_are_refused(name: str, tmp_path: Path) -> None:
    """A mechanism or a priority that is not there is refused, and those that are there are named."""
    with pytest.raises(UsageError, match="--mechanisms"):
        make_comparison(load_spec(spec_at(tmp_path)), [name], [1.0], runs=1)
