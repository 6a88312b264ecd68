"""A release with so little noise that its standard deviation is not its scale."""

import json
from pathlib import Path

import pytest

from flows.answers.audit import audit_answer
from flows.answers.verify import verify_answer
from flows.api import release
from tasks.laws.gaussian import gaussian_variance
from tests.support.office import ROWS, Office


def test_a_release_with_little_noise_states_its_deviation_and_its_scale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every level states what its noise deviates by; the charge, the ledger's audit and `verify` go by the scale beside it."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    (tmp_path / "people.csv").write_text("home,work\n" + ROWS)
    privacy = {
        "unit": "one person",
        "neighbours": "add_remove",
        "max_records_per_unit": 1,
        "epsilon": 90.0,
        "delta": 1e-6,
        "accountant": "zcdp",
    }
    spec = Office(tmp_path).spec("people", "people.csv", privacy=privacy, budget={"epsilon": 100.0, "delta": 1e-6})
    folder = release(spec).folder
    for level in json.loads((folder / "manifest.json").read_text())["levels"]:
        scale = (level["l2_sensitivity"] ** 2 / (2 * level["rho"])) ** 0.5
        assert level["scale"] == pytest.approx(scale)
        assert level["sigma"] == pytest.approx(gaussian_variance(scale) ** 0.5)
        assert level["sigma"] < level["scale"] / 2
    assert verify_answer(folder).failures == []
    assert audit_answer().ok
