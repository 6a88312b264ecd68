"""The reference is what the code says."""

import importlib
import re
from typing import Any

import pytest
import typer
import yaml
from pydantic import BaseModel

from flows.cli.main import app
from flows.specification.explanations import explanation, section_of, sections_in
from flows.specification.file import faults_of
from flows.specification.keys import Spec
from tasks.format.manifest import Manifest
from tests.support.user import REPOSITORY

with pytest.MonkeyPatch.context() as patched:
    patched.syspath_prepend(str(REPOSITORY / "docs"))
    GENERATE: Any = importlib.import_module("generate")  # the program that writes the pages


@pytest.mark.parametrize("page", ["spec.md", "commands.md", "manifest.md", "store.md", "the schema"])
def test_a_page_is_what_the_code_says(page):
    """The page that is committed, and the JSON Schema that comes with the package, are those that the code makes now."""
    path = GENERATE.SCHEMA if page == "the schema" else REPOSITORY / "docs" / "reference" / page
    made = (GENERATE.PAGES | {"the schema": GENERATE.schema_text})[page]()
    assert made == path.read_text(encoding="utf-8"), f"{path} is old: run `make reference` and commit it."


def test_every_key_table_and_column_is_explained():
    """Each class of spec and manifest says of each of its keys what it is, inherited ones included, and storage/database/schema.py of each column."""
    models = [Spec, Manifest]
    for model in models:
        for key, info in model.model_fields.items():
            models += [below for below in sections_in(info) if below not in models]
            explained = any(explanation(of, key) for of in model.__mro__ if issubclass(of, BaseModel))
            assert explained, f"{model.__name__}.{key} has no line under Attributes."
    assert len(models) > 12
    tables = {table.name: table for table in GENERATE.catalogue()}
    assert {"releases", "levels", "branches", "shards", "seals", "ledger"} <= tables.keys()
    assert [of for table in tables.values() for of in table.columns if not (table.says and of.says)] == []
    cut = next(column for column in tables["branches"].columns if column.name == "cut_level")
    says = "the level of the frontier that was cut into branches"
    assert (cut.type, cut.may_be_null, cut.says) == ("INTEGER", False, says)


@pytest.mark.parametrize("key", GENERATE.MUST_BE_GIVEN)
def test_what_must_be_given_is_said_and_held_to(key):
    """A key that only some specs need is said to be, on the page and where it is explained; without it those are refused."""
    page = (REPOSITORY / "docs" / "reference" / "spec.md").read_text(encoding="utf-8")
    of_key = page.split(f"\n### `{key}`\n")[1].split("\n##")[0]
    assert f"- {GENERATE.MUST_BE_GIVEN[key]}\n" in of_key
    assert "may be left out\n" not in of_key
    (kind,) = re.findall(r"^must be given for (trips|features|group sizes)", GENERATE.MUST_BE_GIVEN[key])
    keys = yaml.safe_load(GENERATE.SPECS[{"trips": 0, "features": 1, "group sizes": 3}[kind]].read_text("utf-8"))
    section, name = key.split(".")
    del keys[section][name]
    if key == "input.features":  # without which it is one of trips, to which nothing may be said of features
        del keys["release"]["order"]
        key = "input.origin"
    else:
        below = section_of(Spec.model_fields[section])
        assert below
        assert "must be given" in explanation(below, name).lower()
    assert f"{key} must be given." in {str(fault) for fault in faults_of(yaml.safe_dump(keys))}


def test_every_command_and_option_has_its_line():
    """The page of commands lists what the command line has; the shape of an answer has the keys of all entries of its lists, and no value."""
    page = (REPOSITORY / "docs" / "reference" / "commands.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## `trellis ([^`]+)`\n((?:(?!## ).*\n?)*)", page, re.MULTILINE))
    commands = dict(GENERATE._commands(typer.main.get_command(app), ""))
    assert sections.keys() == commands.keys()
    for name, command in commands.items():
        options = [option for of in command.params for option in of.opts if option.startswith("-")]
        assert [option for option in options if f"`{option}" not in sections[name]] == [], name
    assert "`--json`: `{ok, problems: " in sections["check"]
    answer = {"ok": True, "levels": [{"level": 0, "axes": {"home": None}}, {"level": 1, "sigma": 2.0}], "names": ["x"]}
    assert GENERATE.shape(answer) == "{ok, levels: [{level, axes: {home}, sigma}], names: […]}"
