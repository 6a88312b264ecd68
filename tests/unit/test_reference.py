"""The reference is what the code says."""

import importlib.util
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
import yaml

from flows.answers import ledger_answer, release_answer, releases_answer, show_answer
from flows.audit import audit_answer
from flows.check import check_answer
from flows.cli import app
from flows.driver import make_release
from flows.ending import clean
from flows.explanations import explanation, sections_in
from flows.forecast import plan_answer
from flows.keys import Spec
from flows.plan import make_plan
from flows.reservation import new_release
from flows.runner import report_nothing, submit_to
from flows.spec import load_spec
from flows.starter import starter_answer
from flows.verification import verify_answer
from storage.catalogue import catalogue
from tasks.publish.manifest import Manifest
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country

REPOSITORY = Path(__file__).parents[2]
PAGES = ("spec.md", "commands.md", "manifest.md", "store.md")


def generator() -> Any:
    """Return the program that writes the pages."""
    spec = importlib.util.spec_from_file_location("generate", REPOSITORY / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATE = generator()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_what_the_code_says(page: str) -> None:
    """The page that is committed is the one that the code makes now."""
    committed = (REPOSITORY / "docs" / "reference" / page).read_text(encoding="utf-8")
    assert GENERATE.PAGES[page]() == committed, f"docs/reference/{page} is old: run `make reference` and commit it."


def test_every_key_of_spec_and_manifest_is_explained() -> None:
    """Each class says of each of its keys what it is, those inside others included."""
    models = [Spec, Manifest]
    for model in models:
        for key, info in model.model_fields.items():
            models += [below for below in sections_in(info) if below not in models]
            assert explanation(model, key), f"{model.__name__}.{key} has no line under Attributes."
    assert len(models) > 12


def test_every_table_and_column_of_the_store_is_explained() -> None:
    """Each has words beside it in its migration, or in storage/catalogue.py; a column that was renamed has its last name."""
    tables = {table.name: table for table in catalogue()}
    assert {"releases", "levels", "branches", "seals", "ledger"} <= tables.keys()
    unsaid = [table.name for table in tables.values() if not table.says]
    unsaid += [
        f"{table.name}.{column.name}" for table in tables.values() for column in table.columns if not column.says
    ]
    assert unsaid == []
    cut = next(column for column in tables["branches"].columns if column.name == "cut_level")
    assert (cut.type, cut.may_be_null, cut.says) == (
        "INTEGER",
        False,
        "of the frontier of which the branch is a slice",
    )
    assert "trunk_level" not in [column.name for column in tables["branches"].columns]


def test_every_command_says_what_it_prints_as_json() -> None:
    """Each command with `--json` has its shape on the page of commands: a line of JSON in docs/generate.py."""
    group = typer.main.get_command(app)
    with_json = {
        name for name, command in GENERATE._commands(group, "") if any("--json" in p.opts for p in command.params)
    }
    assert with_json == GENERATE.JSON.keys()


def keys_in(shape: str) -> set[str]:
    """Return the keys of the first object in a documented shape, those of objects inside it not among them."""
    depth, said = 0, ""
    for letter in shape[shape.index("{") :]:
        depth -= letter in "]}"
        if depth == 1 and letter not in "]}":
            said += letter
        depth += letter in "[{"
        if not depth:
            break
    return {key.strip().split(":")[0] for key in said.split(",")}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what commands answer about a small release."""
    folder = tmp_path_factory.mktemp("reference")
    drawn = draw_country(regions=2, provinces=2, municipalities=4, people=50, generator=np.random.default_rng(3))
    write_country(drawn, folder / "data")
    privacy = {"unit": "one commuter", "neighbours": "substitution", "max_records_per_unit": 1, "accountant": "zcdp"}
    spec = {
        "name": "documented",
        "dataset": "country",
        "input": {"table": "data/trips.csv", "origin": "home", "destination": "work", "count": "people"},
        "hierarchy": {"table": "data/codebook.csv", "levels": ["region", "province", "municipality"]},
        "release": {"tree": "destination", "finest": "region"},
        "mechanism": "inftda",
        "privacy": {**privacy, "epsilon": 4.0, "delta": 1.0e-8},
        "budget": {"epsilon": 10.0, "delta": 1.0e-7},
    }
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec))
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as executor:
        patch.setenv("TRELLIS_HOME", str(folder / "home"))
        plan = make_plan(load_spec(folder / "spec.yaml"))
        told = {"plan": plan_answer(plan), "check": check_answer(folder / "spec.yaml")}
        release = new_release(plan)
        make_release(plan, release, submit_to(executor), report_nothing)
        told |= {
            "new": starter_answer(str(folder / "data" / "trips.csv"), None),
            "release": release_answer(release.id, {"total": 1.0}),
            "releases": releases_answer(),
            "show": show_answer(release.id),
            "ledger": ledger_answer(None),
            "verify": verify_answer(Path(release.folder)),
            "audit": audit_answer(()),
            "clean": {"cleaned": clean(), "bytes": 0},
        }
    return json.loads(json.dumps(told))


def test_answers_have_the_keys_that_the_page_says(answers: dict[str, Any]) -> None:
    """What commands print as JSON has the documented keys and no others, levels, charges and accounts included."""
    said = GENERATE.JSON
    for command, answer in answers.items():
        keys = keys_in(said[command])
        if command == "check":
            assert answer["ok"]
            keys |= keys_in(said[command][said[command].index("also") :])
        assert answer.keys() == keys, command
    for command in ("plan", "release", "show"):
        level = keys_in(said[command][said[command].index("levels: [") :])
        assert answers[command]["levels"][-1].keys() == level, command
    assert answers["ledger"]["datasets"][0].keys() == keys_in(re.sub(r"^\{datasets: ", "", said["ledger"]))
    for part in ("seals", "charges", "checks"):
        of_part = said["show"][said["show"].index(f"{part}: [") :]
        assert answers["show"][part]
        assert all(entry.keys() == keys_in(of_part) for entry in answers["show"][part]), part
    assert answers["releases"]["releases"][0].keys() == {"id", "dataset", "state", "created"}
