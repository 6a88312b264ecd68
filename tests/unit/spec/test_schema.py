"""The JSON Schema of specs: what editors complete and refuse by it, and that it refuses no spec that Trellis reads."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from jsonschema import Draft202012Validator

from flows.spec.file import parse_spec
from flows.spec.schema import SCHEMA
from flows.spec.starter import starter
from storage.errors import SpecError
from tests.support.spec import SPEC
from tests.support.user import REPOSITORY

EXAMPLES = sorted((REPOSITORY / "deployments" / "specs").glob("*.yaml"))
ALSO = [
    {"release": SPEC["release"] | {"csv": "every_level"}},
    {"release": SPEC["release"] | {"records": True, "noisy_counts": False}},
    {"run": {"prefect": "off", "max_memory": "4GB", "workers": "processes"}},
    {"privacy": SPEC["privacy"] | {"split": [0.5, 0.5], "distinct": "province"}},
    {"privacy": SPEC["privacy"] | {"split": {"geometric": 2}, "invariants": "region"}},
    {"schedule": {"cron": "0 3 1 * *", "timezone": "UTC", "until": "12 releases"}},
    {"hierarchy": SPEC["hierarchy"] | {"blank": "own_area"}},
    {
        "input": {"table": "t.csv", "features": ["sex", "age"]},
        "hierarchy": {"sex": {"values": ["f", 1]}, "age": [1, 2]},
    },
    {
        "input": {"table": "t.csv", "features": ["age", "size", "day"]},
        "hierarchy": {
            "age": {"ordered": 100, "branching": 3},
            "size": {"ordered": ["s", "m", 3]},
            "day": {"ordered": {"first": "2024-01-01", "last": "2024-12-31"}, "calendar": ["month"]},
        },
    },
]
WRONG = [
    {"mechanism": "inftdaa"},
    {"mechanisms": "inftda"},
    {"privacy": SPEC["privacy"] | {"epsilon": "much"}},
    {"privacy": SPEC["privacy"] | {"neighbors": "substitution"}},
    {"privacy": SPEC["privacy"] | {"neighbours": "substitutions"}},
    {"run": {"max_memory": "plenty"}},
    {"input": {"origin": "home", "destination": "work"}},
]


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """Return the schema that comes with the package."""
    found: dict[str, Any] = json.loads(SCHEMA.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(found)
    return found


@pytest.mark.parametrize(
    "keys", [*EXAMPLES, *ALSO], ids=lambda keys: keys.stem if isinstance(keys, Path) else next(iter(keys))
)
def test_what_trellis_reads_is_accepted(keys: Path | dict[str, Any], schema: dict[str, Any]) -> None:
    """Every example, and whatever is written in a shorter way: one text for a list, a list for values, bytes with a unit, off."""
    spec = yaml.safe_load(keys.read_text("utf-8")) if isinstance(keys, Path) else {"name": "x"} | SPEC | keys
    assert not list(Draft202012Validator(schema).iter_errors(spec))


@pytest.mark.parametrize("keys", WRONG, ids=lambda keys: next(iter(keys)))
def test_what_is_misspelt_is_not(keys: dict[str, Any], schema: dict[str, Any]) -> None:
    """A key or a value that Trellis refuses by itself, without the others, is refused in the editor."""
    wrong = {"name": "x"} | SPEC | keys
    assert list(Draft202012Validator(schema).iter_errors(wrong))
    if "mechanism" not in keys:
        with pytest.raises(SpecError):
            parse_spec(yaml.safe_dump(wrong), Path("spec.yaml"))


def test_every_key_is_explained(schema: dict[str, Any]) -> None:
    """Whoever hovers over a key reads what it is for."""
    sections = [schema, *schema["$defs"].values()]
    sections += [option for section in sections for option in section.get("anyOf", ())]
    keys = {key: of for section in sections for key, of in section.get("properties", {}).items()}
    assert len(keys) > 40
    assert [key for key, of in keys.items() if len(of.get("description", "")) < 6] == []


def test_a_starter_names_it(tmp_path: Path) -> None:
    """The first line is the modeline that editors look for, and the file is there."""
    (tmp_path / "trips.csv").write_text("home,work\n")
    first = starter(str(tmp_path / "trips.csv"), tmp_path).text.splitlines()[0]
    path = Path(urlsplit(first.removeprefix("# yaml-language-server: $schema=")).path)
    assert path == SCHEMA
    assert path.is_file()
