"""How the command line and `import trellis` begin: what they import, what shells are told, and what is said of other packages."""

import json
import os
import re
import sys
from importlib.metadata import version

import pytest

from storage.database.connections import store
from tests.support.processes import ran
from tests.support.user import TRELLIS

NEVER = {"prefect", "dp_accounting", "pandas.core", "scipy.special", "scipy.optimize", "pyarrow._dataset", "jinja2"}
NOT_FOR_A_LOOK = {"opendp", "numpy", "scipy", "polars", "pyarrow", "typer._adapters", "rich.progress"}
UNUSED = [  # what else a command does not import
    (["--help"], NOT_FOR_A_LOOK | {"duckdb", "pydantic"}),
    (["ledger"], NOT_FOR_A_LOOK | {"pydantic"}),
    (["releases"], NOT_FOR_A_LOOK),
    (["show", "{id}"], NOT_FOR_A_LOOK),
    (["check", "{spec}"], {"opendp.prelude", "typer._adapters"}),
    (["query", "{folder}"], {"duckdb", "opendp", "scipy", "shapely", "typer._adapters"}),
    (["verify", "{folder}"], {"duckdb", "opendp.prelude", "flows.specification.keys"}),
]  # fmt: skip


def imported_by(home, *arguments):
    """Return the modules that a command imports from its beginning to its end, as Python lists them."""
    done = ran(sys.executable, "-X", "importtime", TRELLIS, *arguments, env=os.environ | {"TRELLIS_HOME": str(home)})
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"^import time: .*\| +([\w.]+)$", done.stderr, re.MULTILINE))


@pytest.mark.parametrize(("words", "unused"), UNUSED)
def test_a_command_imports_nothing_that_it_does_not_use(words, unused, library):
    """Nothing of Prefect, and not pandas, which pyarrow would look for; what solves and what composes is imported where it does."""
    kept = library["trips"]
    places = {"spec": kept.spec, "folder": kept.folder, "id": kept.folder.name}
    imported = imported_by(kept.home, *(word.format(**places) for word in words))
    assert imported & (NEVER | unused) == set()


NAMES = ["check", "compare", "ledger", "open_release", "plan", "plan_page", "release", "releases", "rerun", "verify"]


def python(folder, code):
    """Run a script in a folder, as `python -c` does: that folder comes first on its path."""
    kept = {name: of for name, of in os.environ.items() if name not in {"PYTHONSAFEPATH", "PYTHONPATH"}}
    return ran(sys.executable, "-c", code, cwd=folder, env=kept)


def test_it_offers_ten_functions_and_imports_them_when_they_are_used(tmp_path):
    """Nothing else has a name in it, and the import alone costs nothing."""
    heavy = "{'flows.api', 'polars', 'duckdb', 'prefect', 'numpy'}"
    script = (
        "import sys, json, trellis\n"
        f"early = sorted({heavy} & set(sys.modules))\n"
        "namespace = {}\n"
        "exec('from trellis import *', namespace)\n"
        "print(json.dumps([dir(trellis), early, sorted(set(namespace) - {'__builtins__'}), hasattr(trellis, 'load')]))"
    )
    done = python(tmp_path, script)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [NAMES, [], NAMES, False]


@pytest.mark.parametrize("name", ["tasks.py", "flows/__init__.py"])
def test_a_foreign_package_is_named(name, tmp_path):
    """It takes one sentence, which names what was found; nothing of it is run. Commands take no notice of their folder."""
    foreign = tmp_path / name
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text("print('imported what lies here')\n")
    words = f"Trellis cannot start: Python finds {foreign} in place of"
    done = python(tmp_path, "import trellis; trellis.plan")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{words} Trellis' package" in done.stderr.splitlines()[-1]
    for variables, code in (({"PYTHONPATH": str(tmp_path)}, 1), ({}, 0)):
        said = ran(TRELLIS, "--version", cwd=tmp_path, env=os.environ | variables)
        assert (said.returncode, said.stdout) == (code, "" if code else f"trellis {version('trellis')}\n")
        assert said.stderr.startswith(words) if code else said.stderr == ""
        assert said.stderr.count("\n") == code


def asked(home, words, place):
    """Return how `trellis` completes a word of a line for bash, which sets variables and gives no argument."""
    protocol = {"_TRELLIS_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(place)}
    done = ran(TRELLIS, env=os.environ | {"TRELLIS_HOME": str(home)} | protocol)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_shells_are_told_what_completes_a_word(tmp_path, monkeypatch):
    """Commands, datasets, and ids of releases, the newest first; nothing where a spec or a folder stands, so that bash goes on with files."""
    # Without a store, or with one that cannot be read, no name is known, and nothing is made.
    home, newest, oldest = tmp_path / "home", "jobs-20260201T000000Z", "jobs-20260101T000000Z"
    assert (asked(home, "trellis show jobs", 2), home.exists()) == ([], False)
    monkeypatch.setenv("TRELLIS_HOME", str(home))
    with store() as con:
        for name, dataset in ((oldest, "jobs-2025"), (newest, "jobs-2025"), ("trips-20260301T000000Z", "trips")):
            added = "INSERT INTO releases VALUES (?, 'n', ?, 'published', '', ?, '', '{}', '', NULL)"
            con.execute(added, [name, dataset, name])
    for words, place, completed in (
        ("trellis re", 1, ["release", "rerun", "releases", "restore"]),
        ("trellis ledger jo", 2, ["jobs-2025"]),
        ("trellis show jobs", 2, [newest, oldest]),
        ("trellis plan ./", 2, []),
        ("trellis release s --output ./", 4, []),
    ):
        assert asked(home, words, place) == completed, words
    (home / "store.duckdb").write_text("no database")
    assert asked(home, "trellis show jobs", 2) == []
    assert (home / "store.duckdb").read_text() == "no database"
