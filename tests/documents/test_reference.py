"""The reference is what the code says."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from pydantic import BaseModel

from flows.cli.main import app
from flows.spec.explanations import explanation, section_of, sections_in
from flows.spec.file import faults_of
from flows.spec.keys import MUST_BE_GIVEN, Spec
from storage.database.catalogue import catalogue
from tasks.format.manifest import Manifest

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


def test_the_schema_is_that_of_the_code() -> None:
    """The JSON Schema that comes with the package is what the classes of specs give."""
    assert GENERATE.SCHEMA.read_text(encoding="utf-8") == GENERATE.schema_text(), "run `make reference` and commit it."


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
            explained = any(
                explanation(of, key) for of in model.__mro__ if issubclass(of, BaseModel)
            )  # also where it inherits
            assert explained, f"{model.__name__}.{key} has no line under Attributes."
    assert len(models) > 12


@pytest.mark.parametrize("key", MUST_BE_GIVEN)
def test_what_must_be_given_is_said_and_held_to(key: str) -> None:
    """A key that only some specs need is said to be, on the page and where it is explained; without it those are refused."""
    page = (REPOSITORY / "docs" / "reference" / "spec.md").read_text(encoding="utf-8")
    of_key = page.split(f"\n### `{key}`\n")[1].split("\n##")[0]
    assert f"- {MUST_BE_GIVEN[key]}\n" in of_key
    assert "may be left out\n" not in of_key
    kind = re.match(r"must be given for (trips|features|group sizes)", MUST_BE_GIVEN[key])
    assert kind is not None
    section, name = key.split(".")
    example = {"trips": 0, "features": 1, "group sizes": 3}[kind[1]]
    keys = yaml.safe_load(GENERATE.SPECS[example].read_text(encoding="utf-8"))
    del keys[section][name]
    if key == "input.features":  # without which it is one of trips, to which nothing may be said of features
        del keys["release"]["order"]
        key = "input.origin"
    else:
        below = section_of(Spec.model_fields[section])
        assert below is not None
        assert "must be given" in explanation(below, name).lower()
    assert f"{key} must be given." in {str(fault) for fault in faults_of(yaml.safe_dump(keys))}


def test_every_table_and_column_of_the_store_is_explained() -> None:
    """Each table has a comment above it in storage/database/schema.py, and each column one beside it."""
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
        "the level of the frontier that was cut into branches",
    )


def test_every_command_and_option_has_its_line() -> None:
    """The page of commands lists what the command line has, and the keys of what most commands print as JSON."""
    page = (REPOSITORY / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## `trellis ([^`]+)`\n((?:(?!## ).*\n?)*)", page, re.MULTILINE))
    commands = dict(GENERATE._commands(typer.main.get_command(app), ""))
    assert sections.keys() == commands.keys()
    for name, command in commands.items():
        assert all(f"`{option}" in sections[name] for p in command.params for option in p.opts if option[0] == "-"), (
            name
        )
    assert "`--json`: `{ok, problems: " in sections["check"]
    assert (
        "`--json`: `{releases: [{id, dataset, state, created, supersedes, superseded_by, in_ui}]}`"
        in sections["releases"]
    )
    assert re.search(
        r"charges: \[\{level, state, mechanism, rho, sigma, l2_sensitivity, epsilon, delta\}\]", sections["show"]
    )


def test_shapes_have_every_key() -> None:
    """The shape of an answer has the keys of all entries of its lists, and no value."""
    answer = {"ok": True, "levels": [{"level": 0, "axes": {"home": None}}, {"level": 1, "sigma": 2.0}], "names": ["x"]}
    assert GENERATE.shape(answer) == "{ok, levels: [{level, axes: {home}, sigma}], names: […]}"
