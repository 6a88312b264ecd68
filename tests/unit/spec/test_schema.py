"""The JSON Schema of specs: what editors complete and refuse by it, and that it refuses no spec that Trellis reads."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from flows.spec.file import parse_spec
from flows.spec.schema import SCHEMA
from storage.errors import SpecError
from tests.support.spec import SPEC
from tests.support.user import REPOSITORY

FOUND: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
ALSO: list[dict[str, Any]] = [
    {"release": SPEC["release"] | {"csv": "every_level", "records": True, "noisy_counts": False}},
    {"run": {"prefect": "off", "max_memory": "4GB", "workers": "processes"}},
    {"privacy": SPEC["privacy"] | {"split": [0.5, 0.5], "distinct": "province"}},
    {"privacy": SPEC["privacy"] | {"split": {"geometric": 2}, "invariants": "region"}},
    {"schedule": {"cron": "0 3 1 * *", "timezone": "UTC", "until": "12 releases"}},
    {"hierarchy": SPEC["hierarchy"] | {"blank": "own_area"}},
    {
        "input": {"table": "t.csv", "features": ["age", "size", "day", "sex", "kind"]},
        "hierarchy": {
            "age": {"ordered": 100, "branching": 3},
            "size": {"ordered": ["s", "m", 3]},
            "day": {"ordered": {"first": "2024-01-01", "last": "2024-12-31"}, "calendar": ["month"]},
            "sex": {"values": ["f", 1]},
            "kind": [1, 2],
        },
    },
]
WRONG: list[dict[str, Any]] = [
    {"mechanism": "inftdaa"},
    {"mechanisms": "inftda"},
    {"privacy": SPEC["privacy"] | {"epsilon": "much"}},
    {"privacy": SPEC["privacy"] | {"neighbors": "substitution"}},
    {"run": {"max_memory": "plenty"}},
    {"input": {"origin": "home", "destination": "work"}},
]


def test_what_trellis_reads_is_accepted() -> None:
    """Every example, and whatever is written in a shorter way: one text for a list, a list for values, bytes with a unit, off."""
    Draft202012Validator.check_schema(FOUND)
    examples = [yaml.safe_load(path.read_text("utf-8")) for path in (REPOSITORY / "deployments/specs").glob("*.yaml")]
    assert examples
    for keys in (*examples, *(SPEC | keys for keys in ALSO)):
        assert not list(Draft202012Validator(FOUND).iter_errors(keys)), keys


@pytest.mark.parametrize("keys", WRONG, ids=lambda keys: next(iter(keys)))
def test_what_is_misspelt_is_not(keys: dict[str, Any]) -> None:
    """A key or a value that Trellis refuses by itself, without the others, is refused in the editor."""
    assert list(Draft202012Validator(FOUND).iter_errors(SPEC | keys))
    if "mechanism" not in keys:
        with pytest.raises(SpecError):
            parse_spec(yaml.safe_dump(SPEC | keys), Path("spec.yaml"))


def test_every_key_is_explained() -> None:
    """Whoever hovers over a key reads what it is for."""
    sections = [FOUND, *FOUND["$defs"].values()]
    sections += [option for section in sections for option in section.get("anyOf", ())]
    keys = {key: of for section in sections for key, of in section.get("properties", {}).items()}
    assert len(keys) > 40
    assert [key for key, of in keys.items() if len(of.get("description", "")) < 6] == []
