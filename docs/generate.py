"""Make docs/reference from the code: `make reference`, or `python docs/generate.py`. A test compares the pages with the code."""

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import typer
import yaml
from pydantic.fields import FieldInfo
from spec_keys import MUST_BE_GIVEN, describe_type, rules, spec_schema
from store_tables import catalogue

from flows.answers.audit import audit_answer
from flows.answers.check import check_answer
from flows.answers.ledger import budget_answer, ledger_answer
from flows.answers.query import query_answer
from flows.answers.release_status import release_answer, releases_answer, show_answer
from flows.answers.verify import verify_answer
from flows.cli.arguments import json_object
from flows.cli.main import app, main
from flows.forecast.answer import plan_answer
from flows.planning.plan import make_plan
from flows.run.backups import Restored, back_up
from flows.run.driver import make_release
from flows.run.ending import clean
from flows.run.reservation import new_release
from flows.run.runner import report_nothing, submit_to
from flows.specification.explanations import Model, describe_default, explanation, section_of, sections_in, summary
from flows.specification.file import load_spec
from flows.specification.keys import Spec
from flows.specification.starters.examples import example
from flows.specification.starters.starter import SCHEMA, starter_answer
from storage.mailbox.keys import KEYS
from tasks.format.manifest import Manifest
from tasks.mechanisms import MECHANISMS
from tasks.synthesize.areas import write_country
from tasks.synthesize.country import draw_country

REPOSITORY = Path(__file__).parents[1]
FOLDER = Path(__file__).parent / "reference"
_EXAMPLES = ("rhode-island", "adult", "monthly", "households-by-size")
SPECS = [REPOSITORY / "deployments" / "specs" / f"{name}.yaml" for name in _EXAMPLES]

_SMALL = """\
name: small
dataset: country
input: {table: data/trips.csv, origin: home, destination: work, count: people}
hierarchy: {table: data/codebook.csv, levels: [region, province, municipality]}
release: {tree: destination, finest: region}
mechanism: inftda
privacy:
  {unit: one commuter, neighbours: substitution, max_records_per_unit: 1, epsilon: 4.0, delta: 1.0e-8, accountant: zcdp}
budget: {epsilon: 10.0, delta: 1.0e-7}
expected_total: 50
"""

_MADE = "<!-- `make reference` makes this page from the code. Edit the docstrings in the code, not this page. -->"


def spec_page() -> str:
    """Return the page that explains the keys of the spec."""
    given = [load_spec(path).published() for path in SPECS]
    intro = (
        "This page explains every key of a spec, the YAML file that describes a release. `trellis new TABLE` starts a spec for a"
        " table. `trellis check SPEC` lists everything that is wrong with a spec. Trellis refuses unknown keys. Paths are relative"
        " to the spec. `${NAME}` comes from the environment; a path that begins with `${NAME}` is relative to the working"
        " directory. Codes are text.\n\nEditors complete and check a spec by its [JSON Schema](../../flows/specification/spec.schema.json),"
        " which comes with Trellis. `trellis new` writes where it is into the first line of a spec, for the YAML language server"
        " (in Visual Studio Code the extension YAML); in another editor, name the file as the schema of specs. Rules between keys"
        " are for `trellis check`."
    )
    whole = SPECS[0].read_text(encoding="utf-8").rstrip()
    return "\n".join(
        [
            *_head("The spec", intro),
            f"This is a complete spec:\n\n```yaml\n{whole}\n```\n",
            *_keys(Spec, "", given, {}),
        ]
    )


def commands_page() -> str:
    """Return the page of the command line; the shapes of `--json` are the answers of commands about a small release made here."""
    with tempfile.TemporaryDirectory() as folder:
        shapes = {name: shape(json_object(answer)) for name, answer in answers(Path(folder)).items()}
    intro = (
        "This page lists every command and option. `trellis --help` lists the commands, `trellis COMMAND --help` lists the"
        " options of a command, and `trellis --version` prints the version. `trellis --install-completion` makes the shell"
        " complete commands, options, releases and datasets. With `--json`, a command prints one JSON object on stdout and"
        " nothing else there. An error is `{error, field, hint}`. A release that the budget refuses is"
        " `{id, state, reason, left: {epsilon, rho}}`."
    )
    codes = " ".join((main.__doc__ or "").split("\n\n")[1].split())
    group = typer.main.get_command(app)
    lines = [*_head("Commands", intro), f"Exit codes: {codes}\n"]
    for name, command in _commands(group, ""):
        context = typer.Context(command, info_name=f"trellis {name}")
        lines += [f"## `trellis {name}`\n", " ".join((command.help or "").split()) + "\n"]
        arguments = [p.get_help_record(context) for p in command.params if not p.opts[0].startswith("-")]
        options = [p.get_help_record(context) for p in command.params if p.opts[0].startswith("-")]
        for heading, records in (("Argument", arguments), ("Option", options)):
            if rows := [(f"`{re.sub(r' <(str|path)>$', '', record[0])}`", record[1]) for record in records if record]:
                lines += _table((heading, "Meaning"), rows)
        if name in shapes:
            lines += [f"`--json`: `{shapes[name]}`\n"]
    return "\n".join(lines)


def manifest_page() -> str:
    """Return the page of `manifest.json`."""
    intro = (
        f"{summary(Manifest)} Every published folder has a manifest, and `trellis verify` compares the folder with it."
    )
    lines = _head("The manifest", intro)
    models: list[Model] = [Manifest]
    for model in models:  # grows by the models of its fields
        heading = "`manifest.json`" if model is Manifest else f"`{model.__name__}`"
        lines += [f"## {heading}\n", *([] if model is Manifest else [summary(model) + "\n"])]
        rows = []
        for key, info in model.model_fields.items():
            below = sections_in(info)
            models += [other for other in below if other not in models]
            kind = f"`{below[0].__name__}`" if below else describe_type(info)
            many = f"list of {kind}" if below and not section_of(info) else kind
            default = "" if info.is_required() or info.default == "" else describe_default(info) or "null"
            rows.append((f"`{key}`", many, f"`{default}`" if default else "", _prose(explanation(model, key))))
        lines += _table(("Field", "Type", "Default", "Meaning"), rows)
    return "\n".join(lines)


def store_page() -> str:
    """Return the page of the store's tables."""
    intro = (
        "`TRELLIS_HOME/store.duckdb` is the only truth about what is done and what it cost. Read it with DuckDB while no release"
        " runs, because only one process at a time can open the file. Write to it only through the commands. It contains no"
        " true count. Its table `recognised` follows from the confidential tables, and says nothing without the key beside the store."
        ' Keep both to yourself. A published release also has a schema of its own, named after its id: `SELECT * FROM "<release'
        ' id>".level_3`.\n\n'
        "Every release has turns of measuring, wherever its orders are carried out: `turns` has a row for each, which stays when"
        " the release ends, and `trellis audit` counts those that were given up. No table has a key. While a cluster works on a"
        f" release, or may go on with it, the file `TRELLIS_HOME/{KEYS}/<release id>.key` holds the key that encrypts what the"
        " release puts into the mailbox. The file holds it in wrapped form: only the key of the mailbox opens it. It is a file"
        " and not a row, because DuckDB leaves deleted rows readable in its file. Trellis deletes it when the release is"
        " published or abandoned, and a backup leaves it out. A restored release draws another key, and puts what workers need"
        " into the mailbox again."
    )
    lines = _head("The store", intro)
    for table in catalogue():
        lines += [f"## `{table.name}`\n", f"{table.says}\n"]
        rows = [(f"`{c.name}`", c.type + ("" if c.may_be_null else ", not null"), c.says) for c in table.columns]
        lines += _table(("Column", "Type", "Meaning"), rows)
    return "\n".join(lines)


def answers(folder: Path) -> dict[str, Any]:
    """Return the answer of each command about a small release of synthetic trips in an empty folder."""
    drawn = draw_country(regions=2, provinces=2, municipalities=4, people=50, generator=np.random.default_rng(3))
    write_country(drawn, folder / "data")
    spec = folder / "spec.yaml"
    spec.write_text(_SMALL, encoding="utf-8")
    before = os.environ.get("TRELLIS_HOME")
    os.environ["TRELLIS_HOME"] = str(folder / "home")
    try:
        planned = make_plan(load_spec(spec))
        before_release: dict[str, Any] = {
            "new": starter_answer(str(folder / "data" / "trips.csv"), None),
            "check": replace(check_answer(spec), problems=check_answer(folder / "none.yaml").problems),
            "plan": json_object(plan_answer(planned)),
        }
        release = new_release(planned)
        with ThreadPoolExecutor(1) as executor:
            make_release(planned, release, submit_to(executor), report_nothing)
        stages = ("ingest", "tree", "noise", "optimize", "validate", "publish", "total")
        return before_release | {
            "release": release_answer(release.id, dict.fromkeys(stages, 0.0)),
            "releases": releases_answer(),
            "show": show_answer(release.id),
            "verify": verify_answer(Path(release.folder)),
            "query": query_answer(Path(release.folder), "01", None, [], simultaneous=False),
            "audit": audit_answer(()),
            "clean": replace(clean(), runs=0),
            "backup": (backup := back_up(folder / "kept")),
            "restore": Restored("", backup, ""),
            "budget raise": budget_answer("country", 20.0, "to show what is answered"),
            "ledger": ledger_answer(None),
        }
    finally:
        os.environ.pop("TRELLIS_HOME")
        if before is not None:
            os.environ["TRELLIS_HOME"] = before


def shape(answer: Any) -> str:
    """Return the keys of an answer and of everything in it; for a list, the keys that any entry has."""
    if isinstance(answer, dict):
        keys = (
            key if not isinstance(value, dict | list) else f"{key}: {shape(value)}" for key, value in answer.items()
        )
        return f"{{{', '.join(keys)}}}"
    entries = [entry for entry in answer if isinstance(entry, dict)]
    if entries:
        merged: dict[str, Any] = {}
        for entry in entries:
            merged |= {key: value for key, value in entry.items() if key not in merged or not merged[key]}
        return f"[{shape(merged)}]"
    return "[…]"


PAGES: dict[str, Callable[[], str]] = {
    "spec.md": spec_page,
    "commands.md": commands_page,
    "manifest.md": manifest_page,
    "store.md": store_page,
}


def _head(title: str, intro: str) -> list[str]:
    return [f"# {title}\n", f"{_MADE}\n", f"{intro}\n"]


def _keys(model: Model, path: str, given: list[Any], told: dict[str, str]) -> Iterator[str]:
    """Yield a heading for each key of a section, its allowed values, and then the keys below it; what a key above has told, by its name."""
    for key, info in model.model_fields.items():
        whole = f"{path}{key}"
        yield f"{'##' if not path else '###'} `{whole}`\n"
        yield f"{_prose(explanation(model, key))}\n"
        yield from _facts(whole, info, _value_of(whole, given))
        if below := section_of(info):
            yield from _keys(below, f"{whole}.", given, told)
            continue
        for alternative in sections_in(info):
            lines = dict[str, str]()
            for name, of_name in alternative.model_fields.items():
                held = "; ".join([describe_type(of_name), *rules(of_name)])
                lines[name] = f"- `{name}`: {explanation(alternative, name)} Type: {held}."
            again = [name for name, line in lines.items() if line in told]
            says = [summary(alternative)] if len(again) < len(lines) else []
            if again:
                where = sorted({told[lines[name]] for name in again})
                says.append(
                    f"{', '.join(f'`{name}`' for name in again)}: as in {', '.join(f'`{key}`' for key in where)}."
                )
            yield f"As `{{{', '.join(f'{name}: …' for name in lines)}}}`: {' '.join(says)}\n"
            yield from (line for name, line in lines.items() if name not in again)
            yield ""
            told |= {line: whole for name, line in lines.items() if name not in again}


def _facts(path: str, info: FieldInfo, value: Any) -> list[str]:
    facts = [] if section_of(info) else [f"- type: {describe_type(info)}"]
    default = describe_default(info)
    facts += [
        f"- default: `{default}`"
        if default
        else "- must be given"
        if info.is_required()
        else f"- {MUST_BE_GIVEN.get(path, 'may be left out')}"
    ]
    if of_key := rules(info):
        facts.append(f"- rule: {'; '.join(of_key)}")
    if not section_of(info):
        facts.append(f"- example: `{path.split('.')[-1]}: {example(path, info) if value is None else _flow(value)}`")
    return ["\n".join(facts) + "\n"]


def _value_of(path: str, given: list[Any]) -> Any:
    """Return the value of a key in the first spec that has it; None if no spec has it."""
    for keys in given:
        value = keys
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            return value
    return None


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6, sort_keys=False)
    return text.removesuffix("...\n").strip()


def _prose(text: str) -> str:
    """Return a text in which angle brackets outside of code are not HTML."""
    parts = text.split("`")
    return "`".join(part if number % 2 else part.replace("<", "&lt;") for number, part in enumerate(parts))


def _commands(group: Any, above: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{above}{name} ")
        else:
            yield f"{above}{name}", command


def _table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    lines = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return ["\n".join(lines) + "\n"]


def schema_text() -> str:
    """Return the JSON Schema of specs, which comes with the package."""
    return json.dumps(spec_schema(list(MECHANISMS)), ensure_ascii=False, indent=2) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for page, make in PAGES.items():
        (FOLDER / page).write_text(make(), encoding="utf-8")
    SCHEMA.write_text(schema_text(), encoding="utf-8")
