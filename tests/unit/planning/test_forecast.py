"""What `trellis plan --for` says where it cannot say which ε an error bound takes."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.forecast.answer import plan_answer
from flows.planning.plan import make_plan
from flows.spec.file import load_spec
from flows.spec.sections.privacy import Target
from storage.errors import UsageError

SPEC = {
    "name": "planned",
    "dataset": "made-up",
    "input": {"table": "people.csv", "features": ["colour", "size"]},
    "hierarchy": {"colour": {"values": 3}, "size": {"values": 4}},
    "release": {"order": ["colour", "size"]},
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


@pytest.mark.parametrize(
    ("mechanism", "level", "told", "next_step"),
    [
        ({}, "size", "--for: mechanism inftda_reconciled states no error bound.", "such as mechanism: inftda."),
        (
            {"mechanism": "inftda", "release": {"order": ["colour", "size"], "views": "margins"}},
            "size",
            "--for: mechanism inftda states no error bound with release.views.",
            "such as mechanism: inftda without release.views.",
        ),
        ({"mechanism": "inftda"}, "county", "--for must be one of the released levels colour, size, got county.", ""),
    ],
)
def test_a_bound_that_cannot_be_had_is_told_once(
    mechanism: dict[str, Any], level: str, told: str, next_step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option is named, and not the spec's key, which is not there; what to do next is not lost."""
    monkeypatch.setenv("TRELLIS_HOME", str(tmp_path / "home"))
    (tmp_path / "people.csv").touch()
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC | mechanism))
    with pytest.raises(UsageError) as refused:
        plan_answer(make_plan(load_spec(tmp_path / "spec.yaml")), Target(level=level, max_error=9, confidence=0.9))
    assert (str(refused.value), refused.value.field) == (told, "--for")
    assert refused.value.hint.endswith(next_step)
